# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The base class of errors that the user can do something about."""


class UserError(Exception):
    """A failure that a command reports in one message, without a traceback.

    The message names the file or flag, the place in it, what was expected and what to do next. A
    bug of ours must never be of this class, so that it keeps its traceback.
    """
