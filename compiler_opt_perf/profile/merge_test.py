# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.profile.callgrind import Cache, CacheGeometry
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.events import RATES
from compiler_opt_perf.profile.function_table import UNKNOWN, guid
from compiler_opt_perf.profile.manifest import EventFile, Manifest
from compiler_opt_perf.profile.merge import merge
from compiler_opt_perf.profile.profile import Profile

pytestmark = pytest.mark.compiler

Show = Callable[[Path], dict[str, Any]]

# What "repeat" calls: each run of it does the same work again.
REPEATED = ("repeated", "outer", "choose", "often", "seldom", "indirect", "unrolled")
EXACT = ("executions", "instructions", "loads", "stores", "conditional-branches")


@pytest.fixture(scope="module")
def runs(workload: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Manifest]:
    """Profiles of runs that do the work once, twice and three times."""
    folder = tmp_path_factory.mktemp("runs")
    return {
        times: collect(workload, ["repeat", str(times)], folder / f"{times}.pmu.json", timeout_s=60)
        for times in (1, 2, 3)
    }


def test_merged_runs_are_one_longer_run(
    runs: dict[int, Manifest], show: Show, tmp_path: Path
) -> None:
    merge([runs[1].path, runs[2].path], tmp_path / "all.pmu.json")
    merged = Manifest.load(tmp_path / "all.pmu.json")
    assert merged.collector.runs == 3 - 1
    for name in EXACT:
        found = show(merged.file(merged.event(name)))
        expected = show(runs[3].file(runs[3].event(name)))
        for function in REPEATED:
            assert found.get(function) == expected.get(function), (name, function)
    for event in merged.events:
        if event.name == "hot-code-bytes":
            continue
        parts = [runs[times].event(event.name) for times in (1, 2)]
        assert event.total == sum(part.total for part in parts)
        assert event.located == sum(part.located for part in parts)
        assert event.outside == sum(part.outside for part in parts)


def test_hot_code_is_needed_once(runs: dict[int, Manifest], show: Show, tmp_path: Path) -> None:
    merged = merge([runs[2].path, runs[2].path], tmp_path / "twice.pmu.json")
    once, twice = runs[2].event("hot-code-bytes"), merged.event("hot-code-bytes")
    assert show(merged.file(twice)) == show(runs[2].file(once))
    assert (twice.total, twice.located) == (once.total, once.located)
    # What only one of the runs was hot in is hot in both together.
    union = merge([runs[1].path, runs[3].path], tmp_path / "union.pmu.json")
    totals = {name: record["total"] for name, record in show(union.file(hot_code(union))).items()}
    for part in (runs[1], runs[3]):
        for name, record in show(part.file(hot_code(part))).items():
            assert totals[name] >= record["total"]


def hot_code(manifest: Manifest) -> EventFile:
    return manifest.event("hot-code-bytes")


def test_merging_one_profile_copies_it(
    runs: dict[int, Manifest], show: Show, tmp_path: Path
) -> None:
    merged = merge([runs[2].path], tmp_path / "new" / "copy.pmu.json")
    for event in merged.events:
        assert show(merged.file(event)) == show(runs[2].file(runs[2].event(event.name)))
    assert merged.rates == runs[2].rates
    assert merged.sources is not None and runs[2].sources is not None
    assert merged.sources.xxh3 == runs[2].sources.xxh3


def test_other_binaries_and_caches_are_refused_unless_told(
    runs: dict[int, Manifest], build: Callable[..., Path], workload: Path, tmp_path: Path
) -> None:
    output = tmp_path / "all.pmu.json"
    other = collect(build("-O1"), ["repeat", "1"], tmp_path / "o1.pmu.json", timeout_s=60)
    with pytest.raises(PmuError, match=r"o1\.pmu\.json: its build-id .* differs from .*1\.pmu"):
        merge([runs[1].path, other.path], output)
    small = CacheGeometry(ll=Cache(65536, 16, 64))
    cached = collect(workload, ["repeat", "1"], tmp_path / "c.pmu.json", geometry=small)
    with pytest.raises(PmuError, match=r"c\.pmu\.json: its caches .*--force"):
        merge([runs[1].path, cached.path], output)
    part = collect(workload, ["repeat", "1"], tmp_path / "f.pmu.json", within="outer")
    with pytest.raises(PmuError, match=r"f\.pmu\.json: its scope calls of outer differs"):
        merge([runs[1].path, part.path], output)
    assert not output.exists()
    merged = merge([runs[1].path, other.path, cached.path], output, allow_different=True)
    assert merged.collector.runs == 3


def test_other_events_are_refused(runs: dict[int, Manifest], tmp_path: Path) -> None:
    for file in runs[1].path.parent.iterdir():
        shutil.copy(file, tmp_path)
    path = tmp_path / "1.pmu.json"
    document = json.loads(path.read_text())
    document["events"][-1]["name"] = "cycles"
    document["rates"] = []
    path.write_text(json.dumps(document))
    with pytest.raises(PmuError, match=r"1\.pmu\.json: its events .*'cycles'"):
        merge([runs[2].path, path], tmp_path / "all.pmu.json", allow_different=True)


def test_name_of_the_output(runs: dict[int, Manifest], tmp_path: Path) -> None:
    with pytest.raises(PmuError, match=r"must end with \.pmu\.json"):
        merge([runs[1].path], tmp_path / "all.json")


def test_period_of_the_merged_is_the_larger(runs: dict[int, Manifest], tmp_path: Path) -> None:
    sampled = dataclasses.replace(
        runs[1],
        path=tmp_path / "s.pmu.json",
        events=tuple(
            dataclasses.replace(event, period=1000, precise=False) for event in runs[1].events
        ),
    )
    for file in runs[1].path.parent.glob("1.*"):
        shutil.copy(file, tmp_path)
    sampled.save()
    merged = merge([runs[2].path, sampled.path], tmp_path / "all.pmu.json")
    assert {(event.period, event.precise) for event in merged.events} == {(1000, False)}
    # The prior weighs as much more as each sample stands for.
    totals = {event.name: event.total for event in merged.events}
    trials = {row.name: row.prior_trials for row in RATES}
    for rate in merged.rates:
        if totals[rate.denominator]:
            weight = rate.prior_share * totals[rate.denominator]
            assert 999.9 <= weight / trials[rate.name] <= 2000


def test_functions_of_all_binaries_are_known(
    runs: dict[int, Manifest], build: Callable[..., Path], tmp_path: Path
) -> None:
    merged = merge([runs[1].path, runs[2].path], tmp_path / "same.pmu.json")
    assert merged.functions is not None and runs[1].functions is not None
    assert merged.functions.xxh3 == runs[1].functions.xxh3
    # The threads' function ran in one of the two, and did not in the other.
    workload = build(name="threads")
    threads = collect(workload, ["threads"], tmp_path / "threads.pmu.json", timeout_s=60)
    both = merge([runs[1].path, threads.path], tmp_path / "both.pmu.json", allow_different=True)
    for manifest, run in ((runs[1], False), (threads, True), (both, True)):
        profile = Profile.load(manifest.path)
        assert profile.did_not_run("thread") == (not run)
        assert profile.did_not_run("chase")


def test_checksums_that_differ_are_left_out(
    build: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    probes = "-fpseudo-probe-for-profiling -fno-unique-internal-linkage-names"
    flags = f"{PROFILING_FLAGS} {probes}"
    tables, paths = [], []
    for number, define in enumerate(("-DOTHER", "-DMEASURED=1")):
        binary = build(define, debug=flags)
        path = tmp_path / f"{number}.pmu.json"
        tables.append(collect(binary, ["copy"], path, timeout_s=60).read_functions())
        paths.append(path)
    one, two = tables
    assert one is not None and two is not None
    assert {n for n, checksum in one.checksums.items() if checksum != two.checksums[n]} == {
        guid("nextRandom")
    }
    merged = merge(paths, tmp_path / "all.pmu.json", allow_different=True).read_functions()
    assert merged is not None
    assert merged.checksums == {**one.checksums, guid("nextRandom"): UNKNOWN}
    assert "1 functions have another control flow" in caplog.text
    alone = merge([*paths[:1], *paths[:1]], tmp_path / "same.pmu.json").read_functions()
    assert alone == one


def test_a_profile_without_functions_adds_none(runs: dict[int, Manifest], tmp_path: Path) -> None:
    for file in runs[1].path.parent.glob("1.*"):
        shutil.copy(file, tmp_path)
    without = dataclasses.replace(runs[1], path=tmp_path / "1.pmu.json", functions=None)
    without.save()
    merged = merge([without.path, without.path], tmp_path / "none.pmu.json")
    assert merged.functions is None
    merged = merge([without.path, runs[2].path], tmp_path / "some.pmu.json")
    assert merged.read_functions() == runs[2].read_functions()
