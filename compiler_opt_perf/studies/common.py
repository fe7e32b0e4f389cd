# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Helpers that studies share besides their workloads."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.binary.elf import hide_debug_info
from compiler_opt_perf.profile.callgrind_dump import Dump, read_dump
from compiler_opt_perf.profile.shuffle import shuffle
from compiler_opt_perf.run.command import CompletedCommand, run_command
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import read_input, sha256
from compiler_opt_perf.run.json_text import JsonError, decode
from compiler_opt_perf.run.memo import memo
from compiler_opt_perf.run.pool import Pool

T = TypeVar("T")

_TIMEOUT_S = 1800.0
_TRIES = 20


class StudyError(UserError):
    """A study that cannot go on; the message says why and what to do."""


def forward_times(run: Callable[[], npt.NDArray[np.float64]], name: str) -> npt.NDArray[np.float64]:
    """The times of a run's moments; runs again where one goes back.

    The kernel's time of a whole run is at times a tick behind that of its last part.

    Raises:
      StudyError: it does so in each of several runs.
    """
    for _ in range(_TRIES):
        times = run()
        if (np.diff(times) >= 0).all():
            return times
    raise StudyError(f"{name}: its processor time goes back, in {_TRIES} runs")


def run_all(
    commands: Iterable[Sequence[str | Path]], cwd: Path | None = None, label: str | None = None
) -> list[CompletedCommand]:
    """Runs commands on all cores; with a `label`, shows progress.

    Raises:
      CommandError: one of them failed; by then all have ended.
    """
    with Pool() as pool:
        outcomes = pool.map(_run, [(tuple(command), cwd) for command in commands], label=label)
    return [outcome.get() for outcome in outcomes]


def _run(job: tuple[Sequence[str | Path], Path | None]) -> CompletedCommand:
    command, cwd = job
    return run_command(command, cwd=cwd, timeout_s=_TIMEOUT_S)


def counted_run(
    binary: Path, arguments: Sequence[str], folder: Path, options: Sequence[str] = ()
) -> Dump:
    """What callgrind counts in the program's own object.

    Args:
      folder: for the dump, and for a copy of the binary: a program's behaviour may depend on its
        path, so that those to compare need one folder.
      options: of callgrind.
    """
    copy = folder / "copy" / binary.name
    copy.parent.mkdir(exist_ok=True)
    hide_debug_info(binary, copy)
    path = folder / "callgrind.out"
    argv: list[str | Path] = ["valgrind", "--tool=callgrind", "--dump-instr=yes", "--vgdb=no"]
    argv += ["--skip-plt=no", f"--callgrind-out-file={path}", *options]
    run_command([*argv, copy, *arguments], timeout_s=_TIMEOUT_S)
    return read_dump(path, copy)


def shuffled_profile(profile: Path, output: Path, seed: int) -> Path:
    """A PMU profile with its counts exchanged between lines, made once; returns `output`.

    Args:
      profile: the manifest.
      output: NAME.pmu.json; the note NAME.json lies beside it.
      seed: as for `shuffle`.

    Raises: as `shuffle`.
    """
    inputs = {"profile": sha256(profile), "seed": seed}
    note = output.with_name(output.name.replace(".pmu.json", ".json"))
    memo(note, inputs, NoneType, lambda: shuffle(profile, output, seed), [output])
    return output


def read_result(path: Path, kind: type[T]) -> T:
    """What a step of a study wrote to `path`. Raises OSError; where it is damaged, StudyError."""
    try:
        return decode(read_input(path), kind, path)
    except JsonError as error:
        raise StudyError(f"{error}; remove it to do that step again") from error


def saved(folder: Path, names: Iterable[str], suffix: str = ".json") -> dict[str, Any]:
    """The results in `folder`, files NAME + suffix, of the programs that have one."""
    paths = {name: folder / f"{name}{suffix}" for name in names}
    return {n: read_result(path, dict[str, Any]) for n, path in paths.items() if path.is_file()}


def percent(change: Sequence[float]) -> str:
    """A change and the ends of its interval, as "-0.53% (-0.83% to -0.22%)"."""
    value, low, high = change
    return f"{value:+.2%} ({low:+.2%} to {high:+.2%})"
