# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The base class of errors that the user can do something about, and hints for their messages."""

import difflib
from collections.abc import Sequence


class UserError(Exception):
    """A failure that a command reports in one message, without a traceback.

    The message names the file or flag, the place in it, what was expected and what to do next. A
    bug of ours must never be of this class, so that it keeps its traceback.
    """


def meant(word: str, names: Sequence[str]) -> str:
    """What a mistaken name may stand for, to follow "no such ..."; empty if none is alike.

    Args:
      word: the name, with owners before dots, as in `ppo.modules`.
      names: those that there are.
    """
    last = word.rpartition(".")[2]
    alike = [name for name in names if name.rpartition(".")[2] == last]
    alike = alike or difflib.get_close_matches(word, names, n=2)
    return f"; did you mean {' or '.join(map(repr, alike))}?" if alike else ""
