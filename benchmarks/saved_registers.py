# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`models/regalloc-evict` beside constant costs of a first use of a callee-saved register.

Builds of the twenty programs by which a policy may be chosen, timed on inputs that were not
profiled: plain, by AutoFDO, and by counters with ThinLTO.
"""

import dataclasses
from pathlib import Path

from benchmarks.beside import beside, of_trial
from benchmarks.comparison import Comparison
from benchmarks.programs.forty import read_table
from compiler_opt_perf.policy.compiler_flags import CompilerFlags, compiler_flags
from compiler_opt_perf.trial.runs import Contender
from compiler_opt_perf.trial.trial import Prepared, Request, prepare_ways
from compiler_opt_perf.trial.ways import PGO, SPEED, Way

PROGRAMS = {one.name: one for one in read_table().program if one.set == "choose"}
_BASES = (*SPEED[:2], PGO[1])
_PROBLEM = "regalloc-evict"
#: By name, options of LLVM.
_CONSTANTS = {
    "upstream's cost": "-regalloc-csr-cost-scale=30",
    "price 65536": "-regalloc-csr-first-time-cost=65536",
}
_ADDED = (*_CONSTANTS, _PROBLEM)


def _flags(wanted: Request, prepared: Prepared, way: Way) -> list[CompilerFlags]:
    """Those of a way with each of what is added."""
    own = way.flags(wanted.toolchain, wanted.models, prepared.profile, prepared.counters)
    models = {_PROBLEM: wanted.models[_PROBLEM]}
    policy = compiler_flags(wanted.toolchain, models, prepared.profile)
    return [
        *(dataclasses.replace(own, options=(*own.options, one)) for one in _CONSTANTS.values()),
        dataclasses.replace(policy, profile_words=own.profile_words),
    ]


def _built(task: tuple[Request, Path]) -> list[Contender]:
    wanted, folder = task
    prepared = prepare_ways(wanted, folder)
    builds = [of_trial(prepared, way) for way in _BASES]
    for number, way in enumerate(_BASES):
        for other, flags in enumerate(_flags(wanted, prepared, way)):
            name = f"{way.name}, {_ADDED[other]}"
            builds.append(beside(prepared, wanted.project, f"csr-{number}{other}", name, flags))
    return builds


def _number(base: int, added: int) -> int:
    """The number of a build with something added, as `_built` has them."""
    return len(_BASES) + len(_ADDED) * base + added


study = Comparison(
    PROGRAMS,
    "saved-registers",
    _BASES,
    _built,
    {
        f"{added}, to {way.name}": (_number(base, other), base)
        for base, way in enumerate(_BASES)
        for other, added in enumerate(_ADDED)
    }
    | {
        f"{_PROBLEM} by {way.name}, to {constant}": (
            _number(base, -1 + len(_ADDED)),
            _number(base, other),
        )
        for base, way in enumerate(_BASES)
        for other, constant in enumerate(_CONSTANTS)
    },
).study
