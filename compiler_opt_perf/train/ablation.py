# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trainings without a part of what policies see, which tell what that part is worth.

  pmu            the policy does not read the PMU features; rewards are weighted by calls as ever
  shuffled-pmu   the policy reads them, of a profile whose counts were exchanged between places: as
                 many inputs with the same values, which tell nothing of the code

A training with real PMU data that is no better than the second one has learnt nothing from it.
"""

import dataclasses
from functools import partial
from pathlib import Path
from types import NoneType

from compiler_opt_perf.corpus.profiles import PMU, SHUFFLED_PMU, Profiles
from compiler_opt_perf.profile.shuffle import shuffle
from compiler_opt_perf.run.files import sha256
from compiler_opt_perf.run.memo import memo
from compiler_opt_perf.run.seeds import derive_seed

ABLATIONS = (PMU, SHUFFLED_PMU)


def ablated(profiles: Profiles, folder: Path, seed: int) -> Profiles:
    """The profiles that a training reads.

    Args:
      profiles: those that it was given, with what is ablated.
      folder: receives the shuffled ones; what is there of the same ones is not made again.
      seed: the training's seed.

    Raises:
      PmuError: a profile cannot be read.
      CommandError: llvm-profdata failed.
      FileWriteError: the disk is full.
    """
    if profiles.ablation != SHUFFLED_PMU:
        return profiles

    def shuffled(name: str, path: Path) -> Path:
        output = folder / name / "shuffled.pmu.json"
        own = derive_seed(seed, "shuffled PMU", name)
        inputs = {"profile": sha256(path), "seed": own}
        memo(
            output.with_name("made.json"),
            inputs,
            NoneType,
            partial(shuffle, path, output, own),
            [output],
        )
        return output

    common = profiles.common
    return dataclasses.replace(
        profiles,
        common=None if common is None else shuffled("common", common),
        programs={
            program: shuffled(f"program-{program}", path)
            for program, path in profiles.programs.items()
        },
    )
