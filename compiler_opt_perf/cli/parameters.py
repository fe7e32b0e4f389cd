# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Flags and arguments of a verb, from the parameters of its function.

A parameter `top: Annotated[int, Flag("how many to show", low=1)] = 20` is a flag `--top=20`: name,
type and default are there once, and mypy checks the same type that click converts to.
"""

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from compiler_opt_perf.toolchain.layout import REPO_ROOT, ToolchainError, set_folder


class _Path(click.ParamType[Path]):
    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if value == "":
            self.fail("expected a path", param, ctx)
        return Path(value)


class _Toolchain(_Path):
    name = "folder"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        try:
            return Path(value) if "/" in str(value) else set_folder(value)
        except ToolchainError as error:
            self.fail(str(error), param, ctx)


class _WholeNumber(click.IntRange):
    name = "whole number"


class _Words(click.ParamType[tuple[str, ...]]):
    name = "word,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        words = value.split(",") if isinstance(value, str) else value
        return tuple(word.strip() for word in words if word.strip())


class LateChoice(click.ParamType[str]):
    """One of some words, which take long to import: `words` is called when they are needed."""

    name = "choice"

    def __init__(self, words: Callable[[], Sequence[str]]):
        self._words = words

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        return click.Choice(self._words()).get_metavar(param, ctx)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return click.Choice(self._words()).convert(value, param, ctx)


#: A folder, or the name of one in build/toolchain.
TOOLCHAIN = _Toolchain()
#: A list of words, separated by commas.
WORDS = _Words()


@dataclass(frozen=True)
class Flag:
    """A parameter that is given as --name=value; one without a default must be given.

    A bool is given as --name, or as --no-name if it is True by default. A sequence is given once
    for each value, unless `type` reads it as a whole.

    Attributes:
      help: for --help.
      low: the least whole number.
      high: the largest whole number.
      type: reads the value, where the annotation does not say how.
      name: of the flag, where it is not the parameter's.
      described: writes lines that follow the help, as they are.
    """

    help: str
    low: int | None = None
    high: int | None = None
    type: click.ParamType[Any] | None = None
    name: str = ""
    described: Callable[[], str] | None = None


@dataclass(frozen=True)
class Argument:
    """A parameter that is given without a name; one without a default must be given.

    Attributes:
      metavar: what stands for it in the usage line.
      help: for --help.
    """

    metavar: str
    help: str = ""


class _Option(click.Option):
    """A flag, shown as --name=value, with its default."""

    def __init__(self, *names: Any, described: Callable[[], str] | None, **attributes: Any):
        super().__init__(*names, **attributes)
        self._described = described

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        if record is None or self.is_flag:
            return record
        name = (
            record[0].replace(" ", "=", 1).replace("WHOLE NUMBER", "INTEGER").replace(" RANGE", "")
        )
        # Of lines after \b, click keeps the ends.
        more = f"\n\n\b\n{self._described()}" if self._described else ""
        return name, record[1] + more


def parameters_of(function: Callable[..., Any]) -> list[click.Parameter]:
    """The flags and arguments of a verb, in the order of the function's parameters."""
    hints = typing.get_type_hints(function, include_extras=True)
    defaults = inspect.signature(function).parameters
    return [
        _parameter(name, hint.__origin__, hint.__metadata__[0], defaults[name].default)
        for name, hint in hints.items()
        if name != "return"
    ]


def _parameter(name: str, kind: Any, declared: Flag | Argument, default: Any) -> click.Parameter:
    """One flag or argument.

    Args:
      kind: the annotated type.
      default: inspect.Parameter.empty if the function has none.
    """
    if isinstance(kind, types.UnionType):
        (kind,) = (one for one in typing.get_args(kind) if one is not types.NoneType)
    several = typing.get_origin(kind) is Sequence
    if several:
        (kind,) = typing.get_args(kind)
    required = default is inspect.Parameter.empty
    if isinstance(declared, Argument):
        return click.Argument(
            [name],
            metavar=declared.metavar,
            help=declared.help,
            type=_type(kind, None, None),
            nargs=-1 if several else 1,
            required=required,
        )
    flag = f"--{declared.name or name.replace('_', '-')}"
    attributes: dict[str, Any] = {"help": declared.help, "described": declared.described}
    if kind is bool:
        names = f"{flag}/--no-{flag[2:]}" if default else flag
        return _Option([names], is_flag=True, default=default, show_default=default, **attributes)
    several = several and declared.type is not WORDS
    if not (required or several or default is None):
        attributes["default"] = text = _as_typed(default, declared.type)
        attributes["show_default"] = _shown(text) or text != ""
    return _Option(
        [flag],
        type=declared.type or _type(kind, declared.low, declared.high),
        multiple=several,
        required=required,
        **attributes,
    )


def _shown(default: Any) -> str:
    """A folder of the project without the path to it, which differs by machine; empty else."""
    inside = isinstance(default, Path) and default.is_relative_to(REPO_ROOT)
    return str(default.relative_to(REPO_ROOT)) if inside else ""


def _as_typed(default: Any, kind: click.ParamType[Any] | None) -> Any:
    """A default value as a user would give it."""
    if kind is TOOLCHAIN:
        return default.name
    return ",".join(default) if kind is WORDS else default


def _type(kind: Any, low: int | None, high: int | None) -> click.ParamType[Any] | type:
    """What reads a value of the type `kind`."""
    if typing.get_origin(kind) is Literal:
        return click.Choice(typing.get_args(kind))
    if kind is Path:
        return _Path()
    if low is None and high is None:
        return kind  # type: ignore[no-any-return]
    return _WholeNumber(low, high)
