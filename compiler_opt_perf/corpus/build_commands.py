# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads the compile commands that build systems write.

- compile_commands.json of CMake, Meson, `ninja -t compdb`, Bear and others.
- Actions of `bazel aquery --output=jsonproto`, in a file of the workspace. The commands run in
  Bazel's execution root, which is found by the link `bazel-out` beside the file.

Entries that do not compile C or C++ are left out and named in the log.
"""

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from absl import logging

from compiler_opt_perf.corpus.command_line import compiler_position
from compiler_opt_perf.corpus.corpus import CorpusError
from compiler_opt_perf.run.files import read_input
from compiler_opt_perf.run.json_text import (
    CText,
    JsonError,
    convert,
    decode,
)

_REMEDY = (
    "write it with CMake's -DCMAKE_EXPORT_COMPILE_COMMANDS=ON, with `bear -- make`, or with "
    "`bazel aquery --output=jsonproto 'mnemonic(CppCompile, TARGETS)'`"
)
# Suffixes of C, C++ and Objective-C, also preprocessed, and of C++ modules.
_SOURCES = {
    *(".c", ".i", ".C", ".cc", ".cp", ".cpp", ".cxx", ".c++", ".CC", ".CPP", ".CXX", ".ii"),
    *(".m", ".mm", ".M", ".mi", ".mii", ".cppm", ".ccm", ".cxxm", ".c++m", ".ixx"),
}
_LANGUAGES = ("c", "c++", "objective-c", "objective-c++", "cpp-output", "c++-cpp-output")
_SHELL = {"&&", "||", ";", "|", ">", ">>", "<"}
_NAMES_SHOWN = 3


class Command(NamedTuple):
    """A compilation: its source, its working directory, and the words of its command."""

    source: Path
    directory: Path
    words: tuple[str, ...]


class _LeftOut(NamedTuple):
    """An entry that is no compilation, with the reason."""

    name: str
    reason: str


class _Entry(msgspec.Struct, frozen=True):
    """An element of compile_commands.json."""

    directory: CText
    file: CText
    arguments: tuple[CText, ...] = ()
    command: CText = ""


class _Action(msgspec.Struct, frozen=True):
    """An action of Bazel."""

    mnemonic: str
    arguments: tuple[CText, ...] = ()


class _Actions(msgspec.Struct, frozen=True):
    """The output of `bazel aquery`."""

    actions: tuple[Any, ...]


def read_commands(path: Path) -> list[Command]:
    """Reads at least one command that compiles C or C++; logs the entries left out.

    Raises:
      CorpusError: the file cannot be read, or holds no compilation.
    """
    try:
        content = decode(read_input(path), Any, path)
        if isinstance(content, dict) and "actions" in content:
            entries = list(_from_bazel(convert(content, _Actions, path), path))
        else:
            entries = list(_from_database(convert(content, tuple[Any, ...], path), path))
    except OSError as error:
        raise CorpusError(f"{path}: {error.strerror}; {_REMEDY}") from error
    except JsonError as error:
        raise CorpusError(f"{error}; {_REMEDY}") from error
    commands = [entry for entry in entries if isinstance(entry, Command)]
    left_out = [entry for entry in entries if isinstance(entry, _LeftOut)]
    if not commands:
        reasons = "".join(f"; {entry.name}: {entry.reason}" for entry in left_out[:_NAMES_SHOWN])
        raise CorpusError(f"{path}: holds no compilation{reasons}; {_REMEDY}")
    by_reason: dict[str, list[str]] = {}
    for entry in left_out:
        by_reason.setdefault(entry.reason, []).append(entry.name)
    log_left_out(path, by_reason)
    return commands


def log_left_out(path: Path, names_by_reason: Mapping[str, Iterable[str]]) -> None:
    """Logs which entries of a list are left out for which reasons."""
    for reason, names in names_by_reason.items():
        entries = list(names)
        more = f" and {len(entries) - _NAMES_SHOWN} more" if len(entries) > _NAMES_SHOWN else ""
        shown = ", ".join(entries[:_NAMES_SHOWN])
        logging.warning("%s: left out, %s: %s%s", path, reason, shown, more)


def _from_database(entries: tuple[Any, ...], path: Path) -> Iterator[Command | _LeftOut]:
    for number, content in enumerate(entries):
        place = f"$[{number}]"
        try:
            entry = convert(content, _Entry, place)
            words = entry.arguments or tuple(shlex.split(entry.command))
        except (JsonError, ValueError) as error:
            yield _LeftOut(place, _problem(error, place))
            continue
        directory = path.parent.absolute() / entry.directory
        yield _compilation(entry.file, directory, words)


def _problem(error: Exception, place: str) -> str:
    """Returns the text of an error in an entry, without the entry's place."""
    return str(error).removeprefix(f"{place}: ").removeprefix("$.").removeprefix("$: ")


def _compilation(file: str, directory: Path, words: tuple[str, ...]) -> Command | _LeftOut:
    """Returns the command if it compiles its file; otherwise the reason to leave it out."""
    source = Path(os.path.normpath(directory / file))
    if not words:
        return _LeftOut(file, "no command")
    if source.suffix not in _SOURCES and _language(words) not in _LANGUAGES:
        return _LeftOut(file, "no C or C++")
    if _SHELL & set(words):
        return _LeftOut(file, "a line for the shell, not the command of one program")
    position = compiler_position(words)
    if position is None:
        return _LeftOut(file, "no compiler in the command")
    options = words[position + 1 :]
    if options[:1] == ("-cc1",):
        return _LeftOut(file, "a call of clang by itself (-cc1)")
    if "-emit-pch" in options or _language(options).endswith("-header"):
        return _LeftOut(file, "a precompiled header is made")
    named = any(os.path.normpath(directory / word) == str(source) for word in options)
    if not named and not any(word.startswith("@") for word in options):
        return _LeftOut(file, "its command does not name it")
    return Command(source, directory, words)


def _language(words: tuple[str, ...]) -> str:
    """Returns the language of the last option -x; empty without one."""
    language = ""
    for word, following in zip(words, (*words[1:], ""), strict=True):
        if word.startswith("-x"):
            language = word[2:] or following
    return language


def _from_bazel(actions: _Actions, path: Path) -> Iterator[Command | _LeftOut]:
    """Yields each action as a command in the execution root, or why it is left out."""
    link = path.parent / "bazel-out"
    if not link.is_dir():
        raise CorpusError(
            f"{link}: not found: write the actions to the workspace's own folder, after building "
            "the targets, so that their headers are there"
        )
    root = link.resolve().parent
    for number, content in enumerate(actions.actions):
        place = f"$.actions[{number}]"
        try:
            action = convert(content, _Action, place)
        except JsonError as error:
            yield _LeftOut(place, _problem(error, place))
            continue
        words = action.arguments
        if action.mnemonic != "CppCompile":
            yield _LeftOut(place, f"an action {action.mnemonic}")
        elif "-c" not in words[:-1]:
            yield _LeftOut(place, "no source after -c")
        else:
            yield _compilation(words[words.index("-c") + 1], root, words)
