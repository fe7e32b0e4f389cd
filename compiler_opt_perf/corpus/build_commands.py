# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads the commands that compile a program, as build systems write them.

- compile_commands.json, of CMake, Meson, `ninja -t compdb`, Bear and others.
- The actions of `bazel aquery --output=jsonproto`, in a file of the workspace: commands run in
  Bazel's execution root, which the link `bazel-out` beside the file leads to.

Such lists hold more than compilations. What is no compilation of C or C++ is left out and named.
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
# Of C, C++ and Objective-C, also preprocessed, and of modules of C++.
_SOURCES = {
    *(".c", ".i", ".C", ".cc", ".cp", ".cpp", ".cxx", ".c++", ".CC", ".CPP", ".CXX", ".ii"),
    *(".m", ".mm", ".M", ".mi", ".mii", ".cppm", ".ccm", ".cxxm", ".c++m", ".ixx"),
}
_LANGUAGES = ("c", "c++", "objective-c", "objective-c++", "cpp-output", "c++-cpp-output")
_SHELL = {"&&", "||", ";", "|", ">", ">>", "<"}
_NAMES_SHOWN = 3


class Command(NamedTuple):
    """A source, the folder that it is compiled in, and the words of the command."""

    source: Path
    directory: Path
    words: tuple[str, ...]


class _LeftOut(NamedTuple):
    """What is no compilation, and why."""

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
    """What `bazel aquery` says."""

    actions: tuple[Any, ...]


def read_commands(path: Path) -> list[Command]:
    """The commands that compile C and C++, at least one. The others are named in the log.

    Raises:
      CorpusError: the file cannot be read, or holds no compilation.
    """
    try:
        content = decode(read_input(path), Any, path)
        if isinstance(content, dict) and "actions" in content:
            everything = list(_of_bazel(convert(content, _Actions, path), path))
        else:
            everything = list(_of_entries(convert(content, tuple[Any, ...], path), path))
    except OSError as error:
        raise CorpusError(f"{path}: {error.strerror}; {_REMEDY}") from error
    except JsonError as error:
        raise CorpusError(f"{error}; {_REMEDY}") from error
    found = [one for one in everything if isinstance(one, Command)]
    left_out = [one for one in everything if isinstance(one, _LeftOut)]
    if not found:
        reasons = "".join(f"; {one.name}: {one.reason}" for one in left_out[:_NAMES_SHOWN])
        raise CorpusError(f"{path}: holds no compilation{reasons}; {_REMEDY}")
    by_reason: dict[str, list[str]] = {}
    for one in left_out:
        by_reason.setdefault(one.reason, []).append(one.name)
    say_left_out(path, by_reason)
    return found


def say_left_out(path: Path, names_by_reason: Mapping[str, Iterable[str]]) -> None:
    """Tells in the log how many entries of a list were left out for which reasons."""
    for reason, names in names_by_reason.items():
        listed = list(names)
        more = f" and {len(listed) - _NAMES_SHOWN} more" if len(listed) > _NAMES_SHOWN else ""
        shown = ", ".join(listed[:_NAMES_SHOWN])
        logging.warning("%s: left out, %s: %s%s", path, reason, shown, more)


def _of_entries(entries: tuple[Any, ...], path: Path) -> Iterator[Command | _LeftOut]:
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
    """The text of an error in an entry, without the entry's place."""
    return str(error).removeprefix(f"{place}: ").removeprefix("$.").removeprefix("$: ")


def _compilation(file: str, directory: Path, words: tuple[str, ...]) -> Command | _LeftOut:
    """An entry, if its command compiles its file."""
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
    """What the last option -x says; empty without."""
    found = ""
    for word, following in zip(words, (*words[1:], ""), strict=True):
        if word.startswith("-x"):
            found = word[2:] or following
    return found


def _of_bazel(actions: _Actions, path: Path) -> Iterator[Command | _LeftOut]:
    """The compilations among the actions, in the execution root."""
    link = path.parent / "bazel-out"
    if not link.is_dir():
        raise CorpusError(
            f"{link}: not found: write the actions to the workspace's own folder, and build the "
            "targets before, so that their headers are there"
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
