# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exchanges the counts of a PMU profile between places: they tell nothing of their place then."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from compiler_opt_perf.binary.symbolize import Line
from compiler_opt_perf.profile.profile import Profile
from compiler_opt_perf.profile.sample_profile import FunctionSamples
from compiler_opt_perf.profile.store import save_profile


def shuffle(path: Path, output: Path, seed: int) -> None:
    """Writes a profile with the same places and counts, but of other places each.

    What was counted at a line (in its inline stack), of all events, goes to another line, by one
    permutation of all lines with samples. So every rate is as often there as before, together with
    the counts that it is of and with the other rates. What stays: which lines have samples at all,
    how often functions were called, and the totals.

    Args:
      path: the manifest, NAME.pmu.json.
      output: of the new profile. The same profile and seed give the same files.
      seed: of the permutation.

    Raises:
      PmuError: the profile cannot be read.
      CommandError: llvm-profdata failed.
      FileWriteError: the disk is full, or the folder cannot be written.
    """
    profile = Profile.load(path)
    samples = profile.samples
    places = [
        place for name in sorted(samples.functions) for place in _places(samples.functions[name])
    ]
    counted = [(one.lines[line], one.targets.pop(line, None)) for one, line in places]
    random.Random(seed).shuffle(counted)
    for (one, line), (counts, targets) in zip(places, counted, strict=True):
        one.lines[line] = counts
        if targets is not None:
            one.targets[line] = Counter(targets)

    def write(number: int, file: Path) -> None:
        samples.write(samples.events[number], file)

    manifest = profile.manifest
    save_profile(
        output,
        manifest.program,
        manifest.collector,
        manifest.events,
        profile.sources,
        profile.table,
        write,
    )


def _places(samples: FunctionSamples) -> Iterator[tuple[FunctionSamples, Line]]:
    """Each line with samples, in a fixed order."""
    for line in sorted(samples.lines):
        yield samples, line
    for site in sorted(samples.callees):
        yield from _places(samples.callees[site])
