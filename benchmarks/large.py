# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Large programs whose time is spread over much code: profiles, ThinLTO, and policies on top.

Programs are those of programs/large.toml. They run an input of another seed than the profiled one.
"""

import dataclasses
from pathlib import Path

from benchmarks.beside import beside, of_trial
from benchmarks.comparison import Comparison
from benchmarks.programs.forty import TABLE, read_table
from compiler_opt_perf.trial.runs import Contender
from compiler_opt_perf.trial.trial import Request, prepare_ways
from compiler_opt_perf.trial.ways import PGO, SPEED

PROGRAMS = {program.name: program for program in read_table(TABLE.with_name("large.toml")).program}
_WAYS = (*SPEED, *PGO)
_POLICIES, _THINLTO = SPEED[2], PGO[1]
_WITH_POLICIES = f"{_THINLTO.name} and policies"


def _built(task: tuple[Request, Path]) -> list[Contender]:
    """The ways of the trial, and ThinLTO by counters with policies by the PMU profile on top."""
    wanted, folder = task
    prepared = prepare_ways(wanted, folder)
    thinlto, policies = (
        way.flags(wanted.toolchain, wanted.models, prepared.profile, prepared.counters)
        for way in (_THINLTO, _POLICIES)
    )
    flags = dataclasses.replace(policies, profile_words=thinlto.profile_words)
    added = beside(prepared, wanted.project, "way-on", _WITH_POLICIES, flags)
    return [*(of_trial(prepared, way) for way in _WAYS), added]


study = Comparison(
    PROGRAMS,
    "large",
    _WAYS,
    _built,
    {
        **{way.name: (number, 0) for number, way in enumerate(_WAYS) if number},
        _WITH_POLICIES: (len(_WAYS), 0),
        "policies, to AutoFDO": (3, 1),
        f"policies, to {_THINLTO.name}": (len(_WAYS), len(_WAYS) - 1),
    },
).study
