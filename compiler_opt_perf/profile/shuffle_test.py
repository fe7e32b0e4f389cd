# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from collections import Counter
from pathlib import Path

import pytest

from compiler_opt_perf.profile.events import RATES
from compiler_opt_perf.profile.manifest import Manifest
from compiler_opt_perf.profile.profile import Profile
from compiler_opt_perf.profile.sample_profile import FunctionSamples
from compiler_opt_perf.profile.shuffle import shuffle

pytestmark = pytest.mark.compiler

Places = dict[tuple[object, ...], tuple[int, ...]]


def _places(profile: Profile) -> Places:
    """The counts of each line, by its inline stack."""
    found: Places = {}

    def collect(stack: tuple[object, ...], samples: FunctionSamples) -> None:
        for line, counts in samples.lines.items():
            found[*stack, line] = tuple(counts)
        for site, inner in samples.callees.items():
            collect((*stack, site), inner)

    for name, samples in profile.samples.functions.items():
        collect((name,), samples)
    return found


def test_counts_are_those_of_other_places(profile: Manifest, tmp_path: Path) -> None:
    before = Profile.load(profile.path)
    shuffle(profile.path, tmp_path / "s" / "shuffled.pmu.json", 1)
    after = Profile.load(tmp_path / "s" / "shuffled.pmu.json")
    places, others = _places(before), _places(after)
    assert places.keys() == others.keys() and len(places) > 50
    assert Counter(places.values()) == Counter(others.values())
    moved = sum(places[one] != others[one] for one in places)
    assert moved > 0.8 * len(places)
    # The rates of lines are the same, and all that does not belong to places.
    for rate in RATES:
        if rate.numerator in before.index and rate.denominator in before.index:
            i, j = before.index[rate.numerator], before.index[rate.denominator]
            rates = [
                Counter(one[i] / one[j] for one in own.values() if one[j])
                for own in (places, others)
            ]
            assert rates[0] == rates[1]
    assert before.samples.entries == after.samples.entries
    assert before.samples.located == after.samples.located
    assert before.sources == after.sources
    assert [one.total for one in before.manifest.events] == [
        one.total for one in after.manifest.events
    ]
    assert before.manifest.rates == after.manifest.rates


def test_the_seed_says_which_places(profile: Manifest, tmp_path: Path) -> None:
    paths = [tmp_path / name / "s.pmu.json" for name in ("one", "again", "other")]
    for path, seed in zip(paths, (1, 1, 2), strict=True):
        shuffle(profile.path, path, seed)
    files = [{f.name: f.read_bytes() for f in path.parent.iterdir()} for path in paths]
    assert files[0] == files[1] and len(files[0]) > 10
    assert files[0].keys() == files[2].keys()
    assert files[0]["s.executions.afdo"] != files[2]["s.executions.afdo"]
