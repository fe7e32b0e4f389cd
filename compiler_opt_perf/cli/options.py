# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Flags and arguments of verbs; those that several verbs have are here once."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click
from click import UsageError

from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.json_text import JsonError, parse_json
from compiler_opt_perf.toolchain.layout import REPO_ROOT, ToolchainError, set_folder

if TYPE_CHECKING:
    from compiler_opt_perf.run.executor import Executor

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Decorator(Protocol):
    """Adds flags or arguments to a verb's function."""

    def __call__(self, function: _Function, /) -> _Function: ...


class FolderError(UserError):
    """A folder that a flag names is missing; the message says which one may be meant."""


class _Path(click.ParamType[Path]):
    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if value == "":
            self.fail("expected a path", param, ctx)
        return Path(value)


class _Toolchain(click.ParamType[Path]):
    name = "folder"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        try:
            return Path(value) if "/" in str(value) else set_folder(value)
        except ToolchainError as error:
            self.fail(str(error), param, ctx)


class _Words(click.ParamType[tuple[str, ...]]):
    name = "word,word..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        words = value.split(",") if isinstance(value, str) else value
        return tuple(word.strip() for word in words if word.strip())


class LateChoice(click.ParamType[str]):
    """One of some words, which take long to import: `words` is called when it is needed."""

    name = "choice"

    def __init__(self, words: Callable[[], Sequence[str]]):
        self._words = words

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        return click.Choice(self._words()).get_metavar(param, ctx)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return click.Choice(self._words()).convert(value, param, ctx)


#: A file or folder, which need not exist.
PATH = _Path()
#: A list of words, separated by commas.
WORDS = _Words()


class _Flag(click.Option):
    """A flag, shown as --name=value, with its default.

    Args:
      described: writes lines that follow the help; they are shown as they are.
    """

    def __init__(self, *names: Any, described: Callable[[], str] | None = None, **attributes: Any):
        super().__init__(*names, **{"show_default": attributes.get("default") != "", **attributes})
        self._described = described

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        if record is None or self.is_flag:
            return record
        # Of lines after \b, click keeps the ends.
        more = f"\n\n\b\n{self._described()}" if self._described else ""
        name = record[0].replace(" ", "=", 1).replace(" RANGE", "")
        return name, record[1] + more


def flag(name: str, **attributes: Any) -> Decorator:
    """A flag, as `click.option` takes it."""
    return click.option(name, cls=_Flag, **attributes)


def path_flag(name: str, help: str, required: bool = False) -> Decorator:
    """A flag that names a file or folder."""
    return flag(name, type=PATH, help=help, required=required)


def path_argument(name: str, metavar: str, help: str = "") -> Decorator:
    """A file or folder that is given without a flag; several if `metavar` ends with "..."."""
    several: dict[str, Any] = {"nargs": -1} if metavar.endswith("...") else {}
    return click.argument(name, metavar=metavar, help=help, type=PATH, required=True, **several)


def all_of(*flags: Decorator) -> Decorator:
    """Several flags, in this order."""

    def decorate(function: _Function) -> _Function:
        for one in reversed(flags):
            function = one(function)
        return function

    return decorate


problem = flag("--problem", type=click.Choice(sorted(PROBLEMS)), required=True, help="the decision")
profiles = flag(
    "--profile",
    multiple=True,
    help="PMU profile manifest of all modules, or PROGRAM=MANIFEST for each program, the first "
    "part of a module's name; without, there are no PMU features",
)
html = path_flag("--html", "write a page with plots to this file instead")
workers = flag(
    "--workers", type=click.IntRange(0), default=0, help="processes that compile; 0: one a core"
)
run_arguments = click.argument(
    "arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGUMENT...]"
)
run_flags = all_of(
    path_flag("--run", "executable to run, if the binary is a shared library"),
    path_flag("--stdin", "file that the program reads"),
    path_flag(
        "--recording",
        "run nothing: read this perf.data (or perf script text) of a run of the program",
    ),
    flag("--timeout", type=float, help="limit of the run, seconds"),
)
executor = all_of(
    flag(
        "--executor",
        type=click.Choice(["processes", "ray"]),
        default="processes",
        help="where modules are compiled: in processes of this machine, or on a Ray cluster",
    ),
    flag(
        "--address",
        help="of the Ray cluster: auto for the one that this machine belongs to, HOST:PORT of its "
        "first machine, or local for one of this machine alone, which ends with the command "
        "(default)",
    ),
)


def output(help: str) -> Decorator:
    """`--output`, which must be given."""
    return path_flag("--output", help, required=True)


def force(what: str) -> Decorator:
    """`--force`, to do what is refused without."""
    return flag("--force", is_flag=True, help=what)


def toolchain(
    default: str | None = "dev",
    name: str = "--toolchain",
    help: str = "folder of the patched tools, or the name of one in build/toolchain",
    required: bool = False,
) -> Decorator:
    """`--toolchain`, or a second toolchain under another name."""
    # click takes None for a default that is given.
    given = {} if default is None else {"default": default}
    return flag(name, type=_Toolchain(), help=help, required=required, **given)


def seed(help: str, default: int | None = 1) -> Decorator:
    """`--seed`, of what `help` says."""
    return flag("--seed", type=int, default=default, help=help)


def top(what: str) -> Decorator:
    """`--top`: how many of them are shown."""
    return flag("--top", type=click.IntRange(0), default=20, help=f"how many {what} to show")


def cpu(what: str) -> Decorator:
    """`--cpu`; `cpu_of` finds its file."""
    return flag(
        "--cpu",
        help=f"{what}: host, the name of a CPU that the package has a file of (a wrong one lists "
        "them), or a CPU file, as cop cost calibrate writes it",
    )


def settings(owner: str, examples: str, described: Callable[[], str]) -> Decorator:
    """`--setting`, which may be given more than once; `settings_of` reads it."""
    return flag(
        "--setting",
        multiple=True,
        help=f"NAME=VALUE instead of the {owner}'s, e.g. {examples}; there are:",
        described=described,
    )


def model_folder(path: Path | None, name: str = "--model") -> Path | None:
    """The folder of a policy or a cost model that the flag `name` names. Raises FolderError."""
    return None if path is None else required_model_folder(path, name)


def required_model_folder(path: Path, name: str = "--model") -> Path:
    """As `model_folder`, of a flag that must be given."""
    if path.is_dir():
        return path
    given = f"{name}={path}"
    if path.exists():
        raise FolderError(f"{given}: is a file; name the folder that it is in")
    shipped = REPO_ROOT / "models"
    meant = shipped / path.name
    hint = f"did you mean {meant}?" if meant.is_dir() else f"those of this project are in {shipped}"
    raise FolderError(f"{given}: no such folder; {hint}")


def settings_of(words: Sequence[str], **given: Any) -> dict[str, Any]:
    """What `--setting` says by name, and what other flags say that are not None.

    Raises:
      UsageError: a word that is not NAME=VALUE.
    """
    settings = {name: value for name, value in given.items() if value is not None}
    for word in words:
        name, _, text = word.partition("=")
        try:
            settings[name] = parse_json(text)
        except JsonError as error:
            raise UsageError(f"--setting={word}: expected NAME=VALUE: {error}") from None
    return settings


def executor_of(executor: str, address: str | None) -> Callable[[int | None], "Executor"]:
    """What makes the workers, given how many there are at most. Raises UsageError."""
    if executor == "ray":
        from compiler_opt_perf.run.ray_cluster import LOCAL, RayExecutor

        return partial(RayExecutor, address or LOCAL)
    if address:
        raise UsageError("--address is of a Ray cluster: give --executor=ray, too")
    from compiler_opt_perf.run.pool import Pool

    return Pool


def cpu_of(cpu: str | None) -> Path | None:
    """The CPU file that `--cpu` asks for, if it does. Raises CpuFileError."""
    from compiler_opt_perf.blocks.cpu_files import cpu_file

    return cpu_file(cpu) if cpu else None
