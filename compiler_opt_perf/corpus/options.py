# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks compiler options against the allow-list of a corpus.

A corpus and a build's commands may come from strangers. Compiling with them must not load code,
start programs, or read and write files elsewhere. LLVM has thousands of options, and each release
adds some. So `options.toml` lists the allowed options, and all others are refused by name.
"""

import functools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler_opt_perf.run.errors import UserError

# Uses of an option. Only CODE stays in the command of a module.
_CODE = "code"
_SOURCE = "source"
_DROPPED = "dropped"
_PLUGIN = "plugin"
_SHARED = "shared"
_REFUSED = "refused"

# Matches no path, no response file ("@file") and no assignment ("list=file").
_WORD = re.compile(r"[\w+.,:!%-]*", re.ASCII)
_LLVM_WORD = re.compile(r"[\w+][\w+.,-]*", re.ASCII)
_NUMBER = re.compile(r"[-+]?(\d+|0x[0-9a-fA-F]+|\d*\.\d+([eE][-+]?\d+)?)", re.ASCII)
_SWITCH = re.compile(r"true|false|TRUE|FALSE|True|False|0|1")
# LLVM options of a build that modules do not need: one embeds a copy of the module, one names the
# folder for crash reports.
_LLVM_DROPPED = {"lto-embed-bitcode", "crash-diagnostics-dir"}

_PLUGINS = {"-load", "-plugin", "-add-plugin"}
_PLUGIN_PREFIX = "-plugin-arg-"
_LOADS = ("-load", "-plugin", "-add-plugin", "-fplugin", "-fpass-plugin", "-pass-plugin")
# These name files that a corpus has no copy of, and the IR alone does not replace them.
_FILES = (
    *("-fprofile-", "-fmemory-profile-use=", "-fsanitize-coverage-allowlist="),
    *("-fsanitize-coverage-ignorelist=", "-fxray-", "-fbasic-block-sections=", "-fthinlto-index="),
    *("-fembed-offload-object=", "-mlink-bitcode-file", "-mlink-builtin-bitcode"),
)
_COVERAGE = ("-coverage-notes-file=", "-coverage-data-file=")
# Clang writes header modules to a folder that builds share. IR needs none. Number of words of each:
_MODULES = {"-fmodules": 1, "-fmodules-cache-path=": 1, "-fmodules-user-build-path": 2}
_SHOWN = 3


class OptionError(UserError):
    """Options are not allowed; the message names them and the reason."""


@dataclass(frozen=True)
class _Group:
    """Spellings of options by the way they take a value: none, joined or as a separate word."""

    flags: frozenset[str]
    joined: frozenset[str]
    separate: frozenset[str]

    @functools.cached_property
    def prefixes(self) -> tuple[str, ...]:
        """Joined options without "=" before the value."""
        return tuple(name for name in self.joined if not name.endswith("="))


@functools.cache
def allow_lists() -> Mapping[str, Mapping[str, frozenset[str]]]:
    """Reads `options.toml`: spellings by use, then by the way they take a value."""
    text = Path(__file__).with_name("options.toml").read_text(encoding="utf-8")
    return {
        group: {kind: frozenset(words.split()) for kind, words in kinds.items()}
        for group, kinds in tomllib.loads(text).items()
    }


@functools.cache
def _groups() -> Mapping[str, _Group]:
    return {use: _Group(**allow_lists()[use]) for use in (_CODE, _SOURCE, _DROPPED)}


def code_arguments(words: Iterable[str], *, trusted: bool = False) -> list[str]:
    """Returns the arguments of `clang -cc1` that a compilation of IR needs.

    Options that only the front end reads or that name further outputs are left out.

    Args:
      words: arguments after "-cc1", without the input.
      trusted: whether plugins are left out instead of refused; the IR has their effect.

    Raises:
      OptionError: an option is not allowed.
    """
    kept: list[str] = []
    refused = []
    for use, parts in _arguments(words):
        if use == _REFUSED or (use == _PLUGIN and not trusted):
            refused.append(parts)
        elif use == _CODE:
            kept += parts
    if refused:
        raise _refusal(*refused)
    return kept


def source_arguments(words: Iterable[str], *, trusted: bool = False) -> list[str]:
    """Returns the arguments of `clang -cc1` that compile a source and write only the output.

    Args:
      words: arguments after "-cc1", without the input.
      trusted: whether to keep options that are not listed.

    Raises:
      OptionError: an option is not allowed.
    """
    kept: list[str] = []
    refused = []
    for use, parts in _arguments(words):
        # The compiler reads "@file" as a response file at any position.
        known = use in (_CODE, _SOURCE) and not any(word[:1] == "@" for word in parts)
        if not (known or trusted or use == _DROPPED):
            refused.append(parts)
        elif use != _DROPPED:
            kept += parts
    if refused:
        raise _refusal(*refused)
    return kept


def driver_arguments(words: Iterable[str]) -> list[str]:
    """Checks the driver options of a command for all modules; returns them without "-c".

    Raises:
      OptionError: an option is not allowed.
    """
    driver = allow_lists()["driver"]
    # With -flto the output would not be an object.
    joined = (driver["joined"] | _groups()[_CODE].joined) - {"-flto="}
    kept: list[str] = []
    rest = iter(words)
    frontend: list[str] = []
    for word in rest:
        name = _until_equals(word)
        if word in ("-Xclang", "-mllvm"):
            value = next(rest, "")
            # Each -Xclang passes one word to -cc1, and an option may take two.
            frontend += [value] if word == "-Xclang" else [word, value]
        elif word == "-target":
            value = next(rest, "")
            if not _WORD.fullmatch(value):
                raise _refusal((word, value))
            kept += [word, value]
        elif word in driver["flags"] or word in _groups()[_CODE].flags:
            kept.append(word)
        elif name in joined or word.startswith("-O"):
            if not _WORD.fullmatch(word.removeprefix(name) if "=" in word else word):
                raise _refusal((word,))
            kept.append(word)
        elif word != "-c":
            raise _refusal((word,))
    if any(word.startswith(("--target=", "-target")) for word in kept):
        refused = [(word,) for word in kept if "=native" in word]
        if refused:
            raise _refusal(*refused)
    return kept + [part for word in code_arguments(frontend) for part in ("-Xclang", word)]


def _refusal(*options: Sequence[str]) -> OptionError:
    """Returns an error that names the first few options with their reasons."""
    more = f"; {len(options) - _SHOWN} more" if len(options) > _SHOWN else ""
    return OptionError(
        "; ".join(f"{' '.join(parts)} {_reason(parts)}" for parts in options[:_SHOWN]) + more
    )


def _reason(parts: Sequence[str]) -> str:
    option = parts[-1] if parts[0] == "-mllvm" else parts[0]
    single = f"-{option.lstrip('-')}"
    if single.startswith(_LOADS):
        return "loads code into the compiler"
    if single.startswith(_COVERAGE):
        return "is of --coverage, which writes a file that a corpus cannot hold"
    if single.startswith(_FILES):
        return "names a file that a corpus cannot hold"
    if single.startswith(tuple(_MODULES)):
        return "writes modules to a folder that builds share"
    if "=native" in option:
        return "with a target starts a program that asks for the machine's GPU"
    return "is not known to concern the code alone"


def _until_equals(word: str) -> str:
    name, equals, _ = word.partition("=")
    return name + equals


def _arguments(words: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields each option among arguments of -cc1, with its use and its words."""
    rest = list(words)
    position = 0
    while position < len(rest):
        word = rest[position]
        following = tuple(rest[position + 1 : position + 2])
        if word == "-mllvm":
            use, parts = _llvm(rest[position:])
        elif word in _PLUGINS or word.startswith(_PLUGIN_PREFIX):
            use, parts = _PLUGIN, (word, *following)
        elif _until_equals(word) in _MODULES:
            use, parts = _SHARED, (word, *following)[: _MODULES[_until_equals(word)]]
        else:
            use, parts = _cc1(word, following)
        yield use, parts
        position += len(parts)


def _cc1(word: str, following: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    name = _until_equals(word)
    for use, group in _groups().items():
        if word in group.flags:
            return use, (word,)
        if word in group.separate:
            allowed = following and (use != _CODE or _WORD.fullmatch(following[0]))
            return use if allowed else _REFUSED, (word, *following)
    for use, group in _groups().items():
        if name in group.joined and name.endswith("="):
            allowed = use != _CODE or _WORD.fullmatch(word.removeprefix(name))
            return use if allowed else _REFUSED, (word,)
    for use, group in _groups().items():
        if word.startswith(group.prefixes):
            return use if use != _CODE or _WORD.fullmatch(word) else _REFUSED, (word,)
    return _REFUSED, (word,)


def _llvm(words: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Returns use and words of the first LLVM option in `words`, which begin with "-mllvm"."""
    parts = tuple(words[:2])
    allowed = allow_lists()["llvm"]
    option = "".join(parts[1:])
    match = re.fullmatch(r"--?([\w.-]+)(=.*)?", option, re.ASCII)
    if match is None:
        return _REFUSED, parts
    name, value = match[1], match[2] and match[2][1:]
    if name in allowed["switches"] and (value is None or _SWITCH.fullmatch(value)):
        return _CODE, parts
    if name in _LLVM_DROPPED and value is not None:
        return _DROPPED, parts
    pattern = _NUMBER if name in allowed["numbers"] else _LLVM_WORD
    if name not in allowed["numbers"] | allowed["words"]:
        return _REFUSED, parts
    if value is None:
        # LLVM reads the next -mllvm argument as the value.
        if words[2:3] != ["-mllvm"] or len(words) < 4:
            return _REFUSED, parts
        parts, value = tuple(words[:4]), words[3]
    return _CODE if pattern.fullmatch(value) else _REFUSED, parts
