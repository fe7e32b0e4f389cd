# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kinds of options that the commands of benchmarks share."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import set_folder


class ToolchainFolder(click.ParamType[Toolchain]):
    """A folder of the patched tools, or the bare name of one in build/toolchain."""

    name = "folder"

    def convert(self, value: Any, *_: Any) -> Toolchain:
        if isinstance(value, Toolchain):
            return value
        return Toolchain.load(Path(value) if "/" in value else set_folder(value))


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
