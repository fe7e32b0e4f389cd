# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Flags that several verbs have, and what they mean."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click
from click import UsageError

from compiler_opt_perf.cli.parameters import TOOLCHAIN, Argument, Flag
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.json_text import JsonError, parse_json
from compiler_opt_perf.toolchain.layout import REPO_ROOT, set_folder

if TYPE_CHECKING:
    from compiler_opt_perf.run.executor import Executor


class FolderError(UserError):
    """A folder that a flag names is missing; the message says which one may be meant."""


Problem = Annotated[str, Flag("the decision", type=click.Choice(sorted(PROBLEMS)))]
ProblemOfModel = Annotated[
    str | None,
    Flag(
        "the decision; by default the one that the policy is for", type=click.Choice(list(PROBLEMS))
    ),
]
Profiles = Annotated[
    Sequence[str],
    Flag(
        "PMU profile manifest of all modules, or PROGRAM=MANIFEST for each program, the first part "
        "of a module's name; without, there are no PMU features"
    ),
]
Html = Annotated[Path | None, Flag("write a page with plots to this file instead")]
Workers = Annotated[int, Flag("processes that compile; 0: one a core", low=0)]
Toolchain = Annotated[
    Path,
    Flag("folder of the patched tools, or the name of one in build/toolchain", type=TOOLCHAIN),
]
#: The toolchain that most verbs use unless told otherwise.
DEV = set_folder("dev")
ExecutorName = Annotated[
    Literal["processes", "ray"],
    Flag("where modules are compiled: in processes of this machine, or on a Ray cluster"),
]
Address = Annotated[
    str | None,
    Flag(
        "of the Ray cluster: auto for the one that this machine belongs to, HOST:PORT of its first "
        "machine, or local for one of this machine alone, which ends with the command (default)"
    ),
]
# Of verbs that run a program.
RunArguments = Annotated[
    Sequence[str], Argument("[-- ARGUMENT...]", "those of the program that is run")
]
Run = Annotated[Path | None, Flag("executable to run, if the binary is a shared library")]
Stdin = Annotated[Path | None, Flag("file that the program reads")]
Recording = Annotated[
    Path | None,
    Flag("run nothing: read this perf.data (or perf script text) of a run of the program"),
]
Timeout = Annotated[float | None, Flag("limit of the run, seconds")]


def top(what: str) -> Flag:
    """`--top`: how many of them are shown."""
    return Flag(f"how many {what} to show", low=0)


def cpu(what: str) -> Flag:
    """`--cpu`; `cpu_of` finds its file."""
    return Flag(
        f"{what}: host, the name of a CPU that the package has a file of (a wrong one lists them), "
        "or a CPU file, as cop cost calibrate writes it"
    )


def settings(owner: str, examples: str, described: Callable[[], str]) -> Flag:
    """`--setting`, which may be given more than once; `settings_of` reads it."""
    help = f"NAME=VALUE instead of the {owner}'s, e.g. {examples}; there are:"
    return Flag(help, described=described)


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
    # A shipped model is found by its name from any folder.
    if path == Path(path.name) and (shipped / path).is_dir():
        return shipped / path
    if (shipped / path.name).is_dir():
        hint = f"did you mean {name}={path.name}, the model of this project?"
    else:
        names = sorted(one.name for one in shipped.iterdir() if one.is_dir())
        hint = f"those of this project are {', '.join(names)}"
    raise FolderError(f"{given}: no such folder; {hint}")


def problem_name(given: str | None, model: Path) -> str:
    """What `--problem` says, or else the policy's description.

    Raises:
      UsageError: neither does.
      ToolchainError: the description is damaged.
    """
    from compiler_opt_perf.policy.compiler_flags import problem_in

    name = given or problem_in(model)
    if name not in PROBLEMS:
        raise UsageError(f"--problem: name it, for {model} does not say what it decides")
    return name


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


def candidates_by_name(words: Sequence[str]) -> dict[str, list[Path]]:
    """The files of each candidate by its name; without names, all are of one without a name.

    Raises:
      UsageError: there are none, some have a name and others have none, or a folder has no object
        file.
    """
    if not words:
        raise UsageError("expected object files or a binary, of several candidates NAME=FILE")
    found: dict[str, list[Path]] = {}
    for word in words:
        name, equals, path = word.partition("=")
        if not equals or Path(word).exists():
            name, path = "", word
        if not path:
            raise UsageError(f"{word!r}: expected NAME=FILE")
        files = [Path(path)]
        if files[0].is_dir():
            files = sorted(files[0].rglob("*.o"))
            if not files:
                raise UsageError(f"{path}: has no object files, NAME.o")
        found.setdefault(name, []).extend(files)
    if "" in found and len(found) > 1:
        raise UsageError(
            f"{found[''][0]}: of which candidate? Give all files as NAME=FILE, or none"
        )
    return found
