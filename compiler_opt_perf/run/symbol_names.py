# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Linkage names of functions: canonical, demangled and shortened."""

import re
import tempfile
from collections.abc import Sequence

from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool

# Suffixes that passes of LLVM, GCC and BOLT append to names of functions, after a dot and possibly
# followed by numbers. The compiler has the same list (PassSuffixes in PMUSampleFile.cpp), by which
# it finds a function under its present name.
#
# Suffixes of parts of a function: split cold code, sections of basic blocks, coroutines, extracted
# regions. A jump to a part is no call of the function.
PART_SUFFIXES = (
    "__part",
    "cleanup",
    "cold",
    "destroy",
    "eh",
    "extracted",
    "part",
    "resume",
    "warm",
)
# Suffixes of copies of a function, or of the same function under another name.
COPY_SUFFIXES = (
    "Tgm",
    "argelim",
    "argprom",
    "cfi",
    "constprop",
    "content",
    "dfsan",
    "inline",
    "internalized",
    "isra",
    "llvm",
    "local",
    "localalias",
    "lto_priv",
    "memprof",
    "merged",
    "noalloc",
    "retelim",
    "specialized",
    "valist",
    "varargs",
)

# A number, or the hash of a module by which ThinLTO tells local functions apart in split units.
# The hash that -funique-internal-linkage-names adds is part of the name.
_DISTINCTION = r"(?<!\.__uniq)\.(?:\d+|[0-9a-f]{32})"
_APPENDED = re.compile(
    rf"(?<=.)(?:{_DISTINCTION}|\.(?:{'|'.join(PART_SUFFIXES + COPY_SUFFIXES)}))+\Z", re.DOTALL
)
_PART = re.compile(rf"\.(?:{'|'.join(PART_SUFFIXES)})(?=[.]|\Z)")


def canonical_name(name: str) -> str:
    """A function's name without the suffixes of its parts and copies."""
    return _APPENDED.sub("", name)


def is_part(name: str) -> bool:
    """Whether a symbol of that name is a part of a function."""
    return _PART.search(name, len(canonical_name(name))) is not None


def printable(text: str) -> str:
    """The text without control characters, which a terminal would obey."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def printable_lines(text: str) -> str:
    """Text of several lines without control characters but newlines and tabs."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text
    )


def demangled(names: Sequence[str]) -> dict[str, str]:
    """Names as in the source, by linkage name. Raises CommandError."""
    # A name of several lines could not be told from several names.
    told = [name for name in names if name.isprintable()]
    result = {name: printable(name) for name in names}
    if not told:
        return result
    with tempfile.TemporaryFile() as questions:
        questions.write("".join(f"{name}\n" for name in told).encode())
        questions.seek(0)
        printed = run_command([stock_tool("llvm-cxxfilt")], stdin=questions, timeout_s=60).stdout
    return result | dict(zip(told, printed.split("\n"), strict=False))


# Brackets that are part of a name, and characters.
_PARTS = re.compile(
    r"operator(?:<=>|<<=?|>>=?|->\*?|<=?|>=?|\(\))|\(anonymous namespace\)|->|.", re.DOTALL
)
_OPENING, _CLOSING = {"(", "<"}, {")", ">"}
_QUALIFIERS = re.compile(r"(?: const| volatile|&)+$")
ELLIPSIS = "..."


def shortened(name: str, width: int) -> str:
    """A demangled name in at most `width` characters.

    Types of function arguments are left out first, then arguments of templates from the innermost
    to the outermost, then the middle.
    """
    if len(name) <= width:
        return name
    name = _QUALIFIERS.sub("", _without(name, "(", 0, ""))
    depth = _deepest(name)
    while len(name) > width and depth:
        depth -= 1
        name = _without(name, "<", depth, f"<{ELLIPSIS}>")
    if len(name) <= width:
        return name
    kept = max(width - len(ELLIPSIS), 0)
    return name[: (kept + 1) // 2] + ELLIPSIS[:width] + name[len(name) - kept // 2 :]


def _without(name: str, bracket: str, level: int, instead: str) -> str:
    """The name without the contents of such brackets that are nested `level` deep."""
    kept, depth, skipped = [], 0, None
    for part in _PARTS.findall(name):
        if part in _CLOSING:
            depth -= 1
            if skipped is not None and depth <= skipped:
                skipped = None
                kept.append(instead)
                continue
        if part in _OPENING:
            if skipped is None and part == bracket and depth == level:
                skipped = depth
            depth += 1
        if skipped is None:
            kept.append(part)
    # A demangled name has pairs of brackets; nothing is left out of other names.
    return "".join(kept) if skipped is None and depth == 0 else name


def _deepest(name: str) -> int:
    """The depth of nested brackets."""
    depth = deepest = 0
    for part in _PARTS.findall(name):
        depth += (part in _OPENING) - (part in _CLOSING)
        deepest = max(deepest, depth)
    return deepest
