# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Flags that verbs of several groups have."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from compiler_opt_perf.cli.verb import UsageError
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.json_text import JsonError, parse_json
from compiler_opt_perf.toolchain.layout import BUILD, REPO_ROOT

if TYPE_CHECKING:
    from compiler_opt_perf.run.executor import Executor


class FolderError(UserError):
    """A folder that a flag names is not there; the message says which one may be meant."""


def optional_path(values: Any, name: str) -> Path | None:
    """What a flag names, if anything."""
    text = getattr(values, name)
    return Path(text) if text else None


def model_folder(values: Any, name: str) -> Path | None:
    """The folder of a policy or a cost model that a flag names, if anything. Raises FolderError."""
    path = optional_path(values, name)
    if path is None or path.is_dir():
        return path
    flag = f"--{name.replace('_', '-')}={path}"
    if path.exists():
        raise FolderError(f"{flag}: is a file; name the folder that it is in")
    shipped = REPO_ROOT / "models"
    meant = shipped / path.name
    hint = f"did you mean {meant}?" if meant.is_dir() else f"those of this project are in {shipped}"
    raise FolderError(f"{flag}: no such folder; {hint}")


def required_model_folder(values: Any, name: str) -> Path:
    """As `model_folder`, of a flag that must be given."""
    folder = model_folder(values, name)
    assert folder is not None
    return folder


def html_path(values: Any) -> Path | None:
    """Where a page shall be written in the place of what is printed. Raises UsageError."""
    if values.html and values.json:
        raise UsageError("--html and --json: give one of them")
    return optional_path(values, "html")


def define_path(values: flags.FlagValues, name: str, help: str, required: bool = True) -> None:
    flags.DEFINE_string(name, None, help, flag_values=values, required=required)


def define_problem(values: flags.FlagValues) -> None:
    flags.DEFINE_enum(
        "problem", None, sorted(PROBLEMS), "what is decided", flag_values=values, required=True
    )


def define_toolchain(values: flags.FlagValues, name: str, default: str) -> None:
    flags.DEFINE_string(
        name, str(BUILD / "toolchain" / default), "folder of the patched tools", flag_values=values
    )


def define_some(
    values: flags.FlagValues,
    name: str,
    words: Sequence[str],
    help: str,
    default: Sequence[str] | None = None,
) -> None:
    """A list of some of these words; all of them by default."""
    chosen = words if default is None else default
    flags.DEFINE_list(name, list(chosen), help, flag_values=values)
    flags.register_validator(
        name,
        lambda given: set(given) <= set(words),
        f"expected some of {','.join(words)}",
        flag_values=values,
    )


def define_profiles(values: flags.FlagValues) -> None:
    flags.DEFINE_multi_string(
        "profile",
        [],
        "PMU profile manifest of all modules, or PROGRAM=MANIFEST for each program, the first part "
        "of a module's name; without, there are no PMU features",
        flag_values=values,
    )


def define_cpu(values: flags.FlagValues, what: str) -> None:
    flags.DEFINE_string(
        "cpu",
        None,
        f"{what}: host, the name of a CPU that the package has a file of (a wrong one lists them), "
        "or a CPU file, as cop cost calibrate writes it",
        flag_values=values,
    )


def define_settings(values: flags.FlagValues, of: str, examples: str, described: str) -> None:
    """`--setting`, which may be given more than once; `settings_of` reads it."""
    flags.DEFINE_multi_string(
        "setting",
        [],
        f"NAME=VALUE in the place of the {of}'s, e.g. {examples}; those that there are:\n"
        f"{described}\n ",
        flag_values=values,
    )


def settings_of(values: Any, **given: Any) -> dict[str, Any]:
    """What `--setting` says by name, and what other flags do that are not None.

    Raises:
      UsageError: a word that is not NAME=VALUE.
    """
    settings = {name: value for name, value in given.items() if value is not None}
    for word in values.setting:
        name, _, text = word.partition("=")
        try:
            settings[name] = parse_json(text)
        except JsonError as error:
            raise UsageError(f"--setting={word}: expected NAME=VALUE: {error}") from None
    return settings


def define_processor(values: flags.FlagValues) -> None:
    """`--processor`, which timed runs are bound to."""
    last = max(os.sched_getaffinity(0))
    flags.DEFINE_integer("processor", last, "where runs are bound", 0, flag_values=values)


def define_executor(values: flags.FlagValues) -> None:
    flags.DEFINE_enum(
        "executor",
        "processes",
        ["processes", "ray"],
        "where modules are compiled: in processes of this machine, or on a Ray cluster",
        flag_values=values,
    )
    flags.DEFINE_string(
        "address",
        None,
        "of the Ray cluster: auto for the one that this machine belongs to, HOST:PORT of its first "
        "machine, or local for one of this machine alone, which ends with the command (default)",
        flag_values=values,
    )


def executor_of(values: Any) -> Callable[[int | None], "Executor"]:
    """What makes the workers, given how many there are at most. Raises UsageError."""
    if values.executor == "ray":
        from compiler_opt_perf.run.ray_cluster import LOCAL, RayExecutor

        return partial(RayExecutor, values.address or LOCAL)
    if values.address:
        raise UsageError("--address is of a Ray cluster: give --executor=ray, too")
    from compiler_opt_perf.run.pool import Pool

    return Pool


def cpu_of(values: Any) -> Path | None:
    """The CPU file that is asked for, if one is. Raises CpuFileError."""
    from compiler_opt_perf.blocks.cpu_files import cpu_file

    return cpu_file(values.cpu) if values.cpu else None
