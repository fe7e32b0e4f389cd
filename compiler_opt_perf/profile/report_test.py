# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import dataclasses
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler_opt_perf.binary.disassembly import disassemble
from compiler_opt_perf.binary.elf import open_elf
from compiler_opt_perf.binary.symbolize import DeclaredAt, Line, symbolize
from compiler_opt_perf.profile.callgrind import Cache, CacheGeometry
from compiler_opt_perf.profile.collect import collect, import_recording
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.hotspots import (
    SourceText,
    shown_rates,
    top_functions,
    top_lines,
)
from compiler_opt_perf.profile.manifest import FileRecord, Manifest
from compiler_opt_perf.profile.profile import Profile, read_sources
from compiler_opt_perf.profile.rates import RateEstimate, wilson
from compiler_opt_perf.profile.report import diff, interval, show, summarize
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.symbol_names import demangled

LineOf = Callable[[str], int]


@pytest.fixture(scope="module")
def loaded(profile: Manifest) -> Profile:
    """The test program's profile, in memory."""
    return Profile.load(profile.path)


@pytest.mark.compiler
def test_summary(profile: Manifest) -> None:
    lines = summarize(profile).splitlines()
    assert profile.program.build_id in lines[0]
    assert "workload measure" in lines[1]
    assert "LL 2097152,16,64" in lines[2]
    assert re.fullmatch(
        r"functions  \d+ profiled; 0 with a checksum of their control flow", lines[3]
    )
    loads = next(line for line in lines if line.startswith("loads"))
    assert f"{profile.event('loads').total:,}" in loads
    assert "%" in loads
    for rate in profile.rates:
        assert any(
            line.startswith(rate.name) and line.endswith(f"%  {rate.unit}") for line in lines
        )


@pytest.mark.compiler
def test_counts_in_memory_are_those_of_the_files(loaded: Profile) -> None:
    for event in loaded.manifest.events:
        if event.kind == "sum":
            index = loaded.index[event.name]
            total = sum(loaded.total(name)[index] for name in loaded.functions)
            assert total == loaded.samples.located[index] == event.located


@pytest.mark.compiler
def test_known_rates_are_within_their_intervals(loaded: Profile) -> None:
    misses, mispredicts, *_ = shown_rates(loaded)
    chase = loaded.of_line(misses, "chase", Line(3, 0))
    # A quarter of the lines fits the cache at most; nearly all steps come before it is full.
    assert 0.98 <= chase.low <= chase.high <= 1
    random = loaded.of_line(mispredicts, "countSmall", Line(3, 0))
    assert random.low <= 0.5 <= random.high + 0.02
    ordered = loaded.of_line(mispredicts, "countSmallOfSorted", Line(3, 0))
    assert ordered.high < 0.01


@pytest.mark.compiler
def test_few_counts_are_drawn_towards_the_surroundings(loaded: Profile) -> None:
    rate = loaded.manifest.rates[0]
    program = loaded.of_program(rate).raw
    assert program is not None
    index = loaded.index["loads"]
    few = min(
        (name for name in loaded.functions if loaded.total(name)[index]),
        key=lambda name: loaded.total(name)[index],
    )
    n, d = (loaded.total(few)[loaded.index[e]] for e in ("llc-load-misses", "loads"))
    # The profile is of a million loads and more: a is that share of them.
    strength = 16e-6 * loaded.manifest.event("loads").total
    expected = (n + strength * program) / (d + strength)
    assert loaded.of_function(rate, few).shrunk == pytest.approx(expected)


@pytest.mark.compiler
def test_costs_are_led_by_what_is_known_to_be_costly(loaded: Profile, line_of: LineOf) -> None:
    (function,) = top_functions(loaded, 1)
    assert function.function == "chase"
    lines = top_lines(loaded, 10)
    assert lines[0].source is not None
    assert lines[0].source.line == line_of("chase")
    places = {(spot.source.line if spot.source else None) for spot in lines}
    assert line_of("random") in places
    costs = [spot.cost for spot in lines]
    assert costs == sorted(costs, reverse=True)


@pytest.mark.compiler
def test_shown_with_source_lines(loaded: Profile, line_of: LineOf) -> None:
    text = show(loaded, 5)
    assert f"chase (workload.c:{line_of('chase')})" in text
    assert "| At = Next[At]; // mark: chase" in text
    assert "llc-load-misses 200" in text


# Functions whose names are some hundred characters.
TEMPLATES = """
#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>
namespace a_database_with_a_name {
template <typename Key, typename Value> struct Row { Key key; Value value; };
struct LessByTheKeyOfTheRow {
  template <typename T> bool operator()(const T &a, const T &b) const { return a.key < b.key; }
};
template <typename Rows, typename Less>
__attribute__((noinline)) unsigned count_of_rows_that_are_less(const Rows &rows, const Less &less) {
  unsigned count = 0;
  for (const auto &one : rows)
    if (less(one, rows[0])) // mark: rows that are less, in a comment that is longer than a line
      count += one.value.first;
  return count;
}
}
using namespace a_database_with_a_name;
using Table = std::vector<Row<unsigned, std::pair<unsigned, std::map<std::string, std::string>>>>;
int main() {
  Table table(3000);
  unsigned x = 1;
  for (auto &row : table)
    row.key = (x = x * 1664525 + 1013904223) >> 8;
  volatile unsigned sink = count_of_rows_that_are_less(table, LessByTheKeyOfTheRow());
  std::sort(table.begin(), table.end(), LessByTheKeyOfTheRow());
  sink = table[0].key;
}
"""


@pytest.mark.compiler
def test_shown_in_100_columns(tmp_path: Path) -> None:
    source, binary = tmp_path / "rows.cpp", tmp_path / "rows"
    source.write_text(TEMPLATES)
    flags = ["-O2", "-Wl,--build-id", "-g", "-fdebug-info-for-profiling"]
    run_command([stock_tool("clang++"), *flags, source, "-o", binary], timeout_s=120)
    caches = CacheGeometry(d1=Cache(4096, 2, 64), ll=Cache(16384, 4, 64))
    words = ["a-word-of-the-command-line"] * 9
    manifest = collect(binary, words, tmp_path / "r.pmu.json", geometry=caches, timeout_s=120)
    profile = Profile.load(manifest.path)
    # All of them: the last ones cost so little that their share takes more digits.
    assert max(map(len, show(profile, 1000).splitlines())) <= 100
    text = show(profile, 20)
    # The names are long, and still tell the function and the place.
    names = demangled([spot.function for spot in top_functions(profile, 20)]).values()
    assert max(map(len, names)) > 200
    line = next(n for n, code in enumerate(TEMPLATES.splitlines(), 1) if "mark: rows" in code)
    assert re.search(
        rf"%  unsigned int a_database_with_a_name::count_of_rows.*\(rows\.cpp:{line}\)\n"
        r" +\| if \(less\(one, rows\[0\]\)\) // mark: rows that .*$",
        text,
        re.MULTILINE,
    )
    assert re.search(r"^ +llc-miss-probability [\d.]+% \[[\d.]+, [\d.]+\] of ", text, re.MULTILINE)
    # The words of the command line are all there.
    assert text.count("a-word-of-the-command-line") == 9


@pytest.mark.compiler
def test_profile_without_table_of_sources(loaded: Profile) -> None:
    bare = Profile(loaded.manifest, loaded.samples)
    text = show(bare, 3)
    assert "chase, line 3 of the function" in text
    assert "mark: chase" not in text


@pytest.mark.compiler
def test_profile_without_misses(workload: Path, tmp_path: Path) -> None:
    manifest = collect(workload, ["threads"], tmp_path / "w.pmu.json", timeout_s=60)
    profile = Profile.load(manifest.path)
    for lines in profile.functions.values():
        for counts in lines.values():
            counts[:] = [0] * len(counts)
    _, functions, lines_shown = show(profile, 3).split("\nmost costly ")
    assert functions == "functions; rates with 95% confidence interval\n\n"
    assert lines_shown == "lines; rates with 95% confidence interval\n\n"


@pytest.mark.compiler
def test_a_mean_is_no_share(workload: Path, tmp_path: Path) -> None:
    """Latencies, in every table that has rates."""
    code = disassemble(workload)
    with open_elf(workload) as file:
        (segment,) = (s for s in file.iter_segments("PT_LOAD") if s["p_flags"] & 1)
        begin, offset = segment["p_vaddr"] & ~0xFFF, segment["p_offset"] & ~0xFFF
    located = symbolize(workload, code.addresses).locations
    address = next(a for a in code.addresses if a in located)
    profiles: list[Profile] = []
    for weight in (47, 52):
        text = tmp_path / f"{weight}.txt"
        text.write_text(
            f"  1 PERF_RECORD_MMAP2 1/1: [{begin:#x}(0x100000) @ {offset:#x} 0 0 0]: "
            "r-xp /workload\n"
            + 99
            * f"  1 1000 ibs_op//: 1 |OP LOAD|LVL L3 hit|SNP N/A  {weight} {address:x}\n"
        )
        manifest = import_recording(text, workload, tmp_path / f"{weight}.pmu.json")
        profiles.append(Profile.load(manifest.path))
    assert re.search(r"^load-latency +47  cycles per timed load$", show(profiles[0], 3), re.M)
    changed = diff(profiles[0], profiles[1], 3)
    assert re.search(r"^load-latency +47 +52$", changed, re.MULTILINE)
    assert re.search(r"^l1-miss-probability +100% +100%$", changed, re.MULTILINE)


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [
        (300_000, 2_100_000, "14.3% [14.2, 14.3] of 2.1M"),
        (5, 40, "12% [5, 26] of 40"),
        (1, 24_000_000, "below 0.01% of 24M"),
        (12, 40_000, "0.03% [0.02, 0.05] of 40k"),
        (0, 7, "0% [0, 35] of 7"),
        (9_000_000, 9_000_000, "100% [100, 100] of 9M"),
        (0, 0, "-"),
    ],
)
def test_a_rate_has_the_digits_that_are_known(part: int, whole: int, shown: str) -> None:
    low, high = wilson(part, whole)
    assert interval(RateEstimate(part, whole, None, low, high)) == shown


@pytest.mark.compiler
def test_difference_of_a_profile_with_itself(loaded: Profile) -> None:
    text = diff(loaded, loaded, 5)
    assert "more than chance: 0" in text
    assert "+0.00%" in text


@pytest.mark.compiler
def test_difference_beyond_chance(loaded: Profile, workload: Path, tmp_path: Path) -> None:
    """The same work with a last-level cache that holds all of it."""
    big = CacheGeometry(ll=Cache(32 * 1024 * 1024, 16, 64))
    calm = collect(workload, ["measure"], tmp_path / "c.pmu.json", geometry=big, timeout_s=120)
    text = diff(loaded, Profile.load(calm.path), 50)
    assert "note    the simulated caches differ" in text
    (line,) = [line for line in text.splitlines() if line.endswith("  chase")]
    assert " llc-load-misses: llc-miss-probability 100%" in line
    assert "countSmall" not in text


@pytest.mark.compiler
def test_functions_in_one_profile_only(loaded: Profile, workload: Path, tmp_path: Path) -> None:
    other = collect(workload, ["repeat", "3"], tmp_path / "r.pmu.json", timeout_s=60)
    assert "functions only in before: " in diff(loaded, Profile.load(other.path), 3)


def test_source_text_is_that_of_sources_only(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("one\n\ttwo \x1b]0;title\x07\n")
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "large").open("wb") as stream:
        stream.truncate(1 << 36)
    texts = SourceText()
    assert texts.line(DeclaredAt(str(tmp_path / "a.c"), 2)) == (
        "two \N{REPLACEMENT CHARACTER}]0;title\N{REPLACEMENT CHARACTER}"
    )
    for name in ("pipe", "large", "absent", "."):
        assert texts.line(DeclaredAt(str(tmp_path / name), 1)) == ""


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b'{"f": ["a\\u0000.c", 1]}', '$["f"][0]: expected `str` matching'),
        (b'{"e": ["", 0], "f": ["a.c", "1"]}', '$["f"][1]: expected `int`, found "1"'),
        (b'{"f": ["a.c", -1]}', '$["f"][1]: expected `int` >= 0, found -1'),
        (b'{"f": ["a.c", true]}', '$["f"][1]: expected `int`, found true'),
        (b'{"f": [1, 1]}', '$["f"][0]: expected `str`, found 1'),
        (b'{"f": ["a.c"]}', '$["f"]: expected `array` of length 2, found ["a.c"]'),
        (b'{"f": 1}', '$["f"]: expected `array`, found 1'),
        (b"[1]", "$: expected `object`, found [1]"),
        (b"[" * 200_000, "not JSON: nested too deep"),
        (b'{"f": ["\\ud800", 1]}', "not JSON: a string holds half a character"),
    ],
)
def test_damaged_sources_are_named(
    profile: Manifest, tmp_path: Path, content: bytes, place: str
) -> None:
    (tmp_path / "s.json").write_bytes(content)
    record = FileRecord.of(tmp_path / "s.json")
    damaged = dataclasses.replace(profile, path=tmp_path / "p.pmu.json", sources=record)
    with pytest.raises(PmuError, match=re.escape(f"s.json: {place}") + ".*; collect the profile"):
        read_sources(damaged)


@pytest.mark.compiler
@pytest.mark.parametrize("content", ["[1]", "{", '{"f": 3}', '{"f": ["a", "b"]}'])
def test_damaged_table_of_sources(profile: Manifest, tmp_path: Path, content: str) -> None:
    for file in profile.path.parent.iterdir():
        shutil.copy(file, tmp_path)
    path = tmp_path / profile.path.name
    table = tmp_path / "workload.sources.json"
    table.write_text(content)
    with pytest.raises(PmuError, match=r"sources: .*workload\.sources\.json: has \d+ bytes"):
        Profile.load(path)
    manifest = Manifest.load(profile.path)
    assert manifest.sources is not None
    with pytest.raises(PmuError, match=r"workload\.sources\.json:.*(expected|not JSON)"):
        read_sources(dataclasses.replace(manifest, path=path))
