# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads the commands that compile a program, as build systems write them.

- compile_commands.json, of CMake, Meson, bear and others.
- The actions of `bazel aquery --output=jsonproto`, in a file of the workspace: commands run in
  Bazel's execution root, which the link `bazel-out` beside the file leads to.
"""

import os
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from compiler_opt_perf.corpus.corpus import CorpusError
from compiler_opt_perf.execution.files import read_input
from compiler_opt_perf.execution.json_text import (
    CText,
    FieldError,
    JsonError,
    convert,
    decode,
)

_REMEDY = (
    "write it with CMake's -DCMAKE_EXPORT_COMPILE_COMMANDS=ON, with `bear -- make`, or with "
    "`bazel aquery --output=jsonproto 'mnemonic(CppCompile, TARGETS)'`"
)
_ASSEMBLY = (".s", ".S", ".asm")


class Command(NamedTuple):
    """A source, the folder that it is compiled in, and the words of the command."""

    source: Path
    directory: Path
    words: tuple[str, ...]


class _Entry(msgspec.Struct, frozen=True):
    """An element of compile_commands.json."""

    directory: CText
    file: CText
    arguments: tuple[CText, ...] = ()
    command: CText = ""

    def __post_init__(self) -> None:
        if not (self.arguments or self.command):
            raise FieldError("arguments", "is missing, as is command")


class _Action(msgspec.Struct, frozen=True):
    """An action of Bazel."""

    mnemonic: str
    arguments: tuple[CText, ...] = ()


class _Actions(msgspec.Struct, frozen=True):
    """What `bazel aquery` says."""

    actions: tuple[_Action, ...]


def read_commands(path: Path) -> list[Command]:
    """The commands that compile C and C++, at least one. Raises CorpusError."""
    try:
        content = decode(read_input(path), Any, path)
        if isinstance(content, dict) and "actions" in content:
            found = _of_bazel(convert(content, _Actions, path), path)
        else:
            found = _of_entries(convert(content, tuple[_Entry, ...], path), path)
    except OSError as error:
        raise CorpusError(f"{path}: {error.strerror}; {_REMEDY}") from error
    except JsonError as error:
        raise CorpusError(f"{error}; {_REMEDY}") from error
    found = [command for command in found if command.source.suffix not in _ASSEMBLY]
    if not found:
        raise CorpusError(f"{path}: holds no compilation; {_REMEDY}")
    return found


def _of_entries(entries: tuple[_Entry, ...], path: Path) -> list[Command]:
    found = []
    for number, entry in enumerate(entries):
        directory = path.parent.absolute() / entry.directory
        try:
            words = entry.arguments or tuple(shlex.split(entry.command))
        except ValueError as error:
            raise CorpusError(f"{path}: $[{number}].command: {error}; {_REMEDY}") from error
        found.append(Command(Path(os.path.normpath(directory / entry.file)), directory, words))
    return found


def _of_bazel(actions: _Actions, path: Path) -> list[Command]:
    """The compilations among the actions, in the execution root."""
    link = path.parent / "bazel-out"
    if not link.is_dir():
        raise CorpusError(
            f"{link}: not found: write the actions to the workspace's own folder, and build the "
            "targets before, so that their headers are there"
        )
    root = link.resolve().parent
    found = []
    for number, action in enumerate(actions.actions):
        if action.mnemonic != "CppCompile":
            continue
        words = action.arguments
        if "-c" not in words[:-1]:
            raise CorpusError(f"{path}: $.actions[{number}].arguments: no source after -c")
        source = root / words[words.index("-c") + 1]
        found.append(Command(Path(os.path.normpath(source)), root, words))
    return found
