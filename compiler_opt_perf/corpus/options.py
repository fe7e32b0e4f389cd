# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which compiler options a corpus may hold.

A corpus and a build's commands may come from strangers. Compiling with them must not load code,
start programs, or read and write files elsewhere. LLVM has thousands of options, and each release
adds some. So `options.toml` lists what is allowed, and everything else is refused by name.
"""

import functools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler_opt_perf.run.errors import UserError

# What an option is for. Only CODE stays in the command of a module.
_CODE = "code"
_SOURCE = "source"
_DROPPED = "dropped"
_PLUGIN = "plugin"
_SHARED = "shared"
_REFUSED = "refused"

# No folder, no list of arguments ("@file"), no assignment ("list=file").
_WORD = re.compile(r"[\w+.,:!%-]*", re.ASCII)
_LLVM_WORD = re.compile(r"[\w+][\w+.,-]*", re.ASCII)
_NUMBER = re.compile(r"[-+]?(\d+|0x[0-9a-fA-F]+|\d*\.\d+([eE][-+]?\d+)?)", re.ASCII)
_SWITCH = re.compile(r"true|false|TRUE|FALSE|True|False|0|1")
# LLVM's options that a build may name and modules do without: what embeds a copy of the module, and
# the folder for reports of crashes.
_LLVM_DROPPED = {"lto-embed-bitcode", "crash-diagnostics-dir"}

_PLUGINS = {"-load", "-plugin", "-add-plugin"}
_PLUGIN_PREFIX = "-plugin-arg-"
_LOADS = ("-load", "-plugin", "-add-plugin", "-fplugin", "-fpass-plugin", "-pass-plugin")
# The IR alone does not say what these do, and a corpus has no copy of what they name.
_FILES = (
    *("-fprofile-", "-fmemory-profile-use=", "-fsanitize-coverage-allowlist="),
    *("-fsanitize-coverage-ignorelist=", "-fxray-", "-fbasic-block-sections=", "-fthinlto-index="),
    *("-fembed-offload-object=", "-mlink-bitcode-file", "-mlink-builtin-bitcode"),
)
_COVERAGE = ("-coverage-notes-file=", "-coverage-data-file=")
# Modules of headers are written to a folder that builds share. IR needs none.
_MODULES = {"-fmodules": 1, "-fmodules-cache-path=": 1, "-fmodules-user-build-path": 2}
_SHOWN = 3


class OptionError(UserError):
    """Options that are not allowed; the text names them and says why."""


@dataclass(frozen=True)
class _Group:
    """Spellings of options by how they take a value."""

    flags: frozenset[str]
    joined: frozenset[str]
    separate: frozenset[str]

    @functools.cached_property
    def prefixes(self) -> tuple[str, ...]:
        """Joined options whose value follows without "="."""
        return tuple(name for name in self.joined if not name.endswith("="))


@functools.cache
def listed() -> Mapping[str, Mapping[str, frozenset[str]]]:
    """The lists of `options.toml`: spellings by how they take a value, by what they are for."""
    text = Path(__file__).with_name("options.toml").read_text(encoding="utf-8")
    return {
        group: {kind: frozenset(words.split()) for kind, words in kinds.items()}
        for group, kinds in tomllib.loads(text).items()
    }


@functools.cache
def _groups() -> Mapping[str, _Group]:
    return {use: _Group(**listed()[use]) for use in (_CODE, _SOURCE, _DROPPED)}


def code_arguments(words: Iterable[str], *, trusted: bool = False) -> list[str]:
    """The arguments of `clang -cc1` that a compilation of IR needs.

    What only the front end reads and what names further files to write is left out.

    Args:
      words: after "-cc1", without the input.
      trusted: plugins are left out, too; their work is in the IR.

    Raises:
      OptionError: some are not allowed.
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
    """The arguments of `clang -cc1` that compile a source, but write nothing besides the output.

    Args:
      words: after "-cc1", without the input.
      trusted: options that are not listed are kept.

    Raises:
      OptionError: some are not allowed.
    """
    kept: list[str] = []
    refused = []
    for use, parts in _arguments(words):
        # The compiler takes "@file" for a file of further arguments, wherever it stands.
        known = use in (_CODE, _SOURCE) and not any(word[:1] == "@" for word in parts)
        if not (known or trusted or use == _DROPPED):
            refused.append(parts)
        elif use != _DROPPED:
            kept += parts
    if refused:
        raise _refusal(*refused)
    return kept


def driver_arguments(words: Iterable[str]) -> list[str]:
    """The options of clang's driver in the command of all modules, without "-c".

    Raises:
      OptionError: some are not allowed.
    """
    driver = listed()["driver"]
    # With -flto the output is no object.
    joined = (driver["joined"] | _groups()[_CODE].joined) - {"-flto="}
    kept: list[str] = []
    rest = iter(words)
    frontend: list[str] = []
    for word in rest:
        name = _until_equals(word)
        if word in ("-Xclang", "-mllvm"):
            value = next(rest, "")
            # Values of -Xclang are arguments of -cc1, of which one option may take two.
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
    """Names the first few of the options, each by its words, with the reason."""
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
    """The options among arguments of -cc1, each with its use and its words."""
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
    """The first of LLVM's options in `words`, which begin with "-mllvm"."""
    parts = tuple(words[:2])
    allowed = listed()["llvm"]
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
        # LLVM takes the next of its arguments for the value.
        if words[2:3] != ["-mllvm"] or len(words) < 4:
            return _REFUSED, parts
        parts, value = tuple(words[:4]), words[3]
    return _CODE if pattern.fullmatch(value) else _REFUSED, parts
