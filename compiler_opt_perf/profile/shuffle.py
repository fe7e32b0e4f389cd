# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shuffles the counts of a PMU profile over its lines: a control without location information."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from compiler_opt_perf.binary.symbolize import Line
from compiler_opt_perf.profile.profile import Profile
from compiler_opt_perf.profile.sample_profile import FunctionSamples
from compiler_opt_perf.profile.store import save_profile


def shuffle(path: Path, output: Path, seed: int) -> None:
    """Writes a profile whose counts are permuted among its lines.

    One random permutation moves the counts of all events from each line, in its inline stack, to
    another line. So the joint distribution of counts and rates does not change. The set of lines
    with samples, the number of calls of each function, and the totals do not change either.

    Args:
      path: the manifest, NAME.pmu.json.
      output: the new manifest. The same profile and seed give the same files.
      seed: the permutation's seed.

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
    counted = [(owner.lines[line], owner.targets.pop(line, None)) for owner, line in places]
    random.Random(seed).shuffle(counted)
    for (owner, line), (counts, targets) in zip(places, counted, strict=True):
        owner.lines[line] = counts
        if targets is not None:
            owner.targets[line] = Counter(targets)

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
    """Yields each line with samples, and the counts that hold it, in a fixed order."""
    for line in sorted(samples.lines):
        yield samples, line
    for site in sorted(samples.callees):
        yield from _places(samples.callees[site])
