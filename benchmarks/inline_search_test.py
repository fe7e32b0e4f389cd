# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`inline-search` on a program in which PGO leaves a call, and groups of decisions."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from benchmarks import inline_search
from benchmarks.inline_flips import Flip, Site, together
from benchmarks.inline_search import learnt, study
from benchmarks.programs.workload import Workload
from benchmarks.programs.workloads import COUNTED, HELD_OUT, TIMED
from benchmarks.testing import labels_by_executions
from compiler_opt_perf.corpus.program_table import Program
from compiler_opt_perf.toolchain.installation import Toolchain

_CASES = "\n".join(
    f"case {n}: x = (x ^ {7 * n + 3}) * {2 * n + 5} + (y >> {n % 7}); y += x & {n + 9}; break;"
    for n in range(120)
)
# Large, and seldom called in the profiled run only.
_SOURCES = {
    "stir.c": f"""
unsigned rare(unsigned x);
static unsigned stir(unsigned k, unsigned x, unsigned y) {{
  switch (k % 128) {{
{_CASES}
  }}
  return x ^ y;
}}
unsigned all(int n, int every) {{
  unsigned sum = 1;
  for (int i = 0; i < n; ++i) {{
    if (i % every == 0) sum = stir(i, sum, i);
    if (sum == 7) sum = rare(sum);
  }}
  // Decisions that change next to nothing tell how much builds differ by chance.
  return n < 0 ? stir(n, n, n) + stir(n, 1, 2) + stir(n, 3, 4) + stir(n, 5, 6) : sum;
}}
""",
    "main.c": """
#include <stdio.h>
#include <stdlib.h>
unsigned all(int, int);
unsigned rare(unsigned x) { return x * 3; }
int main(int argc, char **argv) { printf("%u\\n", all(atoi(argv[1]), atoi(argv[2]))); }
""",
}


@pytest.mark.long(20)
@pytest.mark.compiler
def test_a_call_that_is_hot_in_another_run_is_found(
    tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in _SOURCES.items():
        (tmp_path / name).write_text(text)
    program = Program(name="stir", source_package="none", sources=tuple(_SOURCES))

    def workload(runs: str, every: str, _: Path) -> Workload:
        return Workload(program, tmp_path, (runs, every))

    monkeypatch.setitem(COUNTED, "stir", partial(workload, "200000", "2000"))
    monkeypatch.setitem(TIMED, "stir", partial(workload, "10000", "1"))
    monkeypatch.setitem(HELD_OUT, "stir", partial(workload, "2000000", "1"))
    monkeypatch.setattr(inline_search, "PROGRAMS", ("stir",))
    folder = tmp_path / "study"
    folder.mkdir()
    assert study(["stir"], folder, toolchain, rounds=5, prepare=True) == []
    tables = {one.name: one for one in study(["stir"], folder, toolchain, rounds=5)}

    result = json.loads((folder / "stir search.json").read_text())
    assert result["tried"] == result["sites"] and 1 <= result["taken"] <= result["saving"]
    assert result["after"] < 0.98 * result["before"]
    executed, text = result["executed"], result["text"]
    for way in ("PGO", "ThinLTO and PGO"):
        # The held-out run is another one, and the same call is hot in it.
        assert executed[f"{way}, searched"] < 0.97 * executed[way]
        assert text[f"{way}, searched"] > text[way]
        assert {way, f"{way}, inline-speed"} <= set(result["changes"])
    (row,) = tables["found"].rows
    assert row[:5] == ["stir", *(result[key] for key in ("sites", "tried", "saving", "taken"))]
    assert tables["time"].rows[0][2] == 5


def test_decisions_that_undo_one_another_are_not_taken_together() -> None:
    alone = {"a": 10, "b": 6, "c": 5, "d": 1}
    flips = [Flip(Site(0, key), 1, -saved) for key, saved in alone.items()]

    def count(given: Sequence[Flip]) -> int:
        keys = {one.site.key for one in given}
        # Beside a, b costs what it saves alone.
        saved = sum(alone[key] for key in keys) - (12 if {"a", "b"} <= keys else 0)
        return 1000 - saved

    taken, after = together(flips, 1000, count)
    assert sorted(one.site.key for one in taken) == ["a", "c", "d"]
    assert after == count(taken) == 984
    assert together([], 1000, count) == ([], 1000)


def test_trees_learn_what_the_profile_tells() -> None:
    labels = labels_by_executions(["a", "b", "c"])
    (table,) = learnt(labels)
    assert [row[:2] for row in table.rows] == [["a", 300], ["b", 300], ["c", 300]]
    for _, _, possible, static, profiled, exchanged in table.rows:
        assert isinstance(possible, float) and isinstance(profiled, float)
        assert isinstance(static, float) and isinstance(exchanged, float)
        assert profiled < 0.9 * possible < 0
        assert static > 0.3 * possible and exchanged > 0.3 * possible
    assert learnt(labels[:1]) == []
