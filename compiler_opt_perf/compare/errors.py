# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors of the gate."""


class GateError(Exception):
    """A gate that cannot judge: a file that cannot be read, or measurements of different things."""
