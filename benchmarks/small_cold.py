# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small cold code beside -Os and -Oz: text and time of forty programs, on inputs of other seeds.

What a profile knows cold is compiled for size. Another input may need code that did not run when
the profile was made, and pays for it. The levels for size make all code small, without a profile.
"""

import dataclasses
from pathlib import Path

from benchmarks.beside import beside, of_trial
from benchmarks.comparison import Comparison
from benchmarks.programs.forty import read_table
from compiler_opt_perf.trial.runs import Contender
from compiler_opt_perf.trial.trial import Request, prepare_ways
from compiler_opt_perf.trial.ways import PLAIN, SMALL_COLD, SPEED

PROGRAMS = {program.name: program for program in read_table().program}
LEVELS = ("-Os", "-Oz")
_AUTOFDO, _SMALL = SPEED[1], SMALL_COLD[SPEED[1]]
_WAYS = (PLAIN, _AUTOFDO, _SMALL)


def _built(task: tuple[Request, Path]) -> list[Contender]:
    """Plain, the levels, and the ways with a profile."""
    wanted, folder = task
    prepared = prepare_ways(wanted, folder)
    plain, *others = (of_trial(prepared, way) for way in _WAYS)
    flags = PLAIN.flags(wanted.toolchain, {}, None, None)
    levels = [
        beside(
            prepared,
            dataclasses.replace(wanted.project, level=level),
            f"lev{level}",
            level,
            flags,
        )
        for level in LEVELS
    ]
    return [plain, *levels, *others]


study = Comparison(
    PROGRAMS,
    "small-cold",
    _WAYS,
    _built,
    {
        "-Os": (1, 0),
        "-Oz": (2, 0),
        _AUTOFDO.name: (3, 0),
        _SMALL.name: (4, 0),
        f"{_SMALL.name}, to {_AUTOFDO.name}": (4, 3),
    },
    # Formulas of other seeds are solved in a minute, not in half a second.
    not_timed=frozenset({"cadical"}),
).study
