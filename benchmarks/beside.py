# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds beside those of a trial: the same program by other flags, timed in the same rounds."""

import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.common import BenchmarkError
from compiler_opt_perf.policy.compiler_flags import CompilerFlags
from compiler_opt_perf.run.files import sha256
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.trial.build import Project, WayFolder
from compiler_opt_perf.trial.runs import Contender, GivenRun, Timed, timed
from compiler_opt_perf.trial.trial import Prepared
from compiler_opt_perf.trial.ways import PLAIN, Way


def of_trial(prepared: Prepared, way: Way) -> Contender:
    """A trial's build, without layouts."""
    return Contender(way.name, *prepared.builds[way], ())


def beside(
    prepared: Prepared, project: Project, folder: str, name: str, flags: CompilerFlags
) -> Contender:
    """Builds the project by other flags, unless that was done; without layouts.

    Args:
      folder: name of the build's folder, as long as those of the trial's builds: runs have its
        path in their environment, and so on their stack.
      name: of the build, for messages.
    """
    plain, built = prepared.builds[PLAIN]
    assert len(folder) == len(plain.path.name)
    way = WayFolder(plain.path.parent / folder)
    clang = sha256(flags.toolchain.clang.resolve())
    return Contender(name, way, way.build(project, name, flags, clang, built.program), ())


def in_layouts(builds: Sequence[Contender], rounds: int) -> list[Contender]:
    """The builds, each in as many layouts as there are rounds."""
    return [
        dataclasses.replace(one, layouts=one.way.layouts(one.built, one.name, range(rounds)))
        for one in builds
    ]


def link_layouts(pool: Pool, programs: Iterable[Sequence[Contender]], rounds: int) -> None:
    """Links the builds of programs for `in_layouts`, in workers; what fails, fails again there."""
    tasks = ((builds, rounds) for builds in programs)
    pool.map(_linked, tasks, label="linking layouts")


def _linked(task: tuple[Sequence[Contender], int]) -> None:
    in_layouts(*task)


def timed_alike(builds: Sequence[Contender], run: GivenRun, rounds: int, path: Path) -> Timed:
    """Times builds in layouts, plain first; all must print what plain does.

    Args:
      path: the note of the rounds, by which an interrupted call goes on.

    Raises:
      TrialError: a run failed.
      BenchmarkError: a build prints something else than plain, which always prints the same.
    """
    processor = max(os.sched_getaffinity(0))
    found = timed(in_layouts(builds, rounds), run, rounds, processor, path)
    plain, *others = found.outputs
    if len(plain) == 1:
        for one, output in zip(builds[1:], others, strict=True):
            if output != plain:
                raise BenchmarkError(f"{run}: {one.name} prints something else than plain")
    return found
