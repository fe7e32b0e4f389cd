# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Options that the commands of benchmarks share."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from compiler_opt_perf.toolchain.installation import MOCK_SET, Toolchain
from compiler_opt_perf.toolchain.layout import set_folder

Option = Callable[..., Any]


class ToolchainFolder(click.ParamType[Toolchain]):
    """A folder of the patched tools, or the bare name of one in build/toolchain."""

    name = "folder"

    def convert(self, value: Any, *_: Any) -> Toolchain:
        if isinstance(value, Toolchain):
            return value
        return Toolchain.load(Path(value) if "/" in value else set_folder(value))


class CpuFile(click.ParamType[Path]):
    """A CPU file, or the name of one."""

    name = "cpu"

    def convert(self, value: Any, *_: Any) -> Path:
        from compiler_opt_perf.blocks.cpu_files import cpu_file

        return cpu_file(value)


class Some(click.ParamType[list[str]]):
    """Words of a list, separated by commas; a word with a comma in it stands in double quotes."""

    name = "list"

    def __init__(self, function: Callable[[], Sequence[str]]):
        self._function = function

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        words, known = next(csv.reader([value])), self._function()
        for word in words:
            if word not in known:
                self.fail(f"{word!r} is none of {', '.join(known)}", param, ctx)
        return words


def keys_of(module: str, name: str) -> Some:
    """The keys of a table in a benchmark's module, which is imported when they are needed."""

    def words() -> Sequence[str]:
        found = getattr(__import__(f"benchmarks.{module}", fromlist=[name]), name)
        return tuple(found)

    return Some(words)


TOOLCHAIN = click.option(
    "--toolchain",
    type=ToolchainFolder(),
    default=MOCK_SET,
    show_default=True,
    help="Folder of the patched tools, or the name of one in build/toolchain.",
)
PROCESSOR = click.option(
    "--processor",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Processor to which timed runs are bound.",
)
CPU = click.option(
    "--cpu",
    type=CpuFile(),
    default="host",
    show_default=True,
    help="A CPU file, or the name of one.",
)


def rounds(default: int, least: int = 3, what: str = "Timed runs.") -> Option:
    """--rounds."""
    return click.option(
        "--rounds", type=click.IntRange(least), default=default, show_default=True, help=what
    )


def most(default: int) -> Option:
    """--most."""
    return click.option(
        "--most",
        type=click.IntRange(1),
        default=default,
        show_default=True,
        help="Decisions of a program that are taken the other way.",
    )


LAYOUTS = click.option(
    "--layouts",
    type=click.IntRange(3),
    default=24,
    show_default=True,
    help="Layouts of functions that take turns in the rounds.",
)
PREPARE = click.option(
    "--prepare", is_flag=True, help="All but the times, on a machine that is not idle."
)
#: Of studies of programs that their own build systems build.
OF_DEBIAN = [rounds(15, 6), PREPARE, TOOLCHAIN]


def ways(module: str, names: str) -> Option:
    """--ways, of a table in a benchmark's module."""
    return click.option(
        "--ways", type=keys_of(module, names), help="Ways of compiling; default: all."
    )


def model(default: str, what: str = "Folder of a policy.") -> Option:
    """--model, one folder."""
    return click.option(
        "--model", type=click.Path(path_type=Path), default=default, show_default=True, help=what
    )
