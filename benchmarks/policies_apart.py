# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Both policies for speed beside `models/inline-speed` alone, and each policy beside plain."""

from pathlib import Path

from benchmarks.beside import beside, of_trial
from benchmarks.comparison import Comparison
from benchmarks.programs.forty import read_table
from compiler_opt_perf.policy.compiler_flags import compiler_flags
from compiler_opt_perf.trial.runs import Contender
from compiler_opt_perf.trial.trial import Request, prepare_ways
from compiler_opt_perf.trial.ways import SPEED

PROGRAMS = {one.name: one for one in read_table().program if one.set == "choose"}
_WAYS = (SPEED[0], SPEED[2])


def _built(task: tuple[Request, Path]) -> list[Contender]:
    wanted, folder = task
    prepared = prepare_ways(wanted, folder)
    models = {"inline-size": wanted.models["inline-size"]}
    flags = compiler_flags(wanted.toolchain, models, prepared.profile)
    alone = beside(prepared, wanted.project, "way-in", "inline-speed", flags)
    return [*(of_trial(prepared, way) for way in _WAYS), alone]


study = Comparison(
    PROGRAMS,
    "policies-apart",
    _WAYS,
    _built,
    {
        "both policies": (1, 0),
        "inline-speed": (2, 0),
        "both policies, to inline-speed": (1, 2),
    },
).study
