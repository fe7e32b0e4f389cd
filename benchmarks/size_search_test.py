# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import pytest

from benchmarks.inline_flips import Flip, Site
from benchmarks.size_builds import COLUMNS
from benchmarks.size_flips import Found, linked_bytes
from benchmarks.size_search import chosen_modules, study, tables
from compiler_opt_perf.toolchain.installation import Toolchain

_MAP = """\
             VMA              LMA     Size Align Out     In      Symbol
            13a0             13a0      12c    16 .text
            13a0             13a0       1c     4         /a/one.o:(.text.unlikely.first)
            13a0             13a0       1c     1                 first
            13c0             13c0       10     4         /a/two.o:(.text.second)
            13e0             13e0        8     4         /a/one.o:(.rodata.x)
            13f0             13f0        5     1         /a/one.o:(.text.third)
"""


def test_bytes_of_modules_are_read_from_the_map_of_the_link() -> None:
    assert linked_bytes(_MAP, ["/a/two.o", "/a/none.o", "/a/one.o"]) == [0x10, 0, 0x1C + 5]


def test_modules_with_few_decisions_are_drawn_once_for_all() -> None:
    counts = [0, 9, 10, 400, 401, *range(20, 40)]
    every = range(len(counts))
    chosen = chosen_modules("lua", counts, every)
    assert len(chosen) == 3 and all(10 <= counts[one] <= 400 for one in chosen)
    assert chosen_modules("lua", counts, every) == chosen != chosen_modules("zlib", counts, every)
    assert chosen_modules("lua", [3, 500, 15], range(3)) == [2]
    # What is not linked is not searched, and others stay.
    first, *others = chosen
    kept = chosen_modules("lua", counts, [one for one in every if one != first])
    assert len(kept) == 3 and {*others} < {*kept}


def test_changes_are_those_of_the_searched_modules() -> None:
    changes = enumerate((-20, -30, 7))
    flips = [Flip(Site(0, str(number)), number % 2, change) for number, change in changes]
    without = Found(3, 1000, 5000, flips, flips[:2], 4960, 4990)
    outlined = Found(3, 900, 4000, flips, flips[:1], 3970, 4009, carried=4005)
    own = dict(zip(COLUMNS, (without, outlined, without, outlined), strict=True))
    programs, kept = tables({"lua": own, "zlib": own})
    (row, _) = programs.rows
    assert row[:4] == ["lua", "C", 3, 1000]
    assert row[4:8] == [-4, -1, pytest.approx(-3.3333), 1]
    rows = {str(row[0]): row[1:] for row in kept.rows}
    assert list(rows) == [f"C, {title}" for title in COLUMNS]
    # One by one, 30 of the 50 bytes of each program by inlining.
    assert rows["C, -Oz"][:8] == [6, 4, 2000, 100, 60, 80, 20, None]
    # What saved without the outliner costs with it.
    assert rows["C, with outliner"][5:8] == [60, -18, -10]


@pytest.mark.compiler
@pytest.mark.long(60)
def test_decisions_are_judged_by_linked_text_in_all_kinds_of_builds(
    tmp_path: Path, toolchain: Toolchain
) -> None:
    programs, kept, learnt = study(["lmdb"], tmp_path, toolchain, largest=20)
    (row,) = programs.rows
    name, language, decisions, text, *changes = row
    assert (name, language) == ("lmdb", "C") and decisions == 14
    assert isinstance(text, int) and 1000 < text < 20_000
    # A search never makes a program larger. The policy leaves C alone, but these tools have one for
    # registers inside, too, which is for speed.
    for searched, policy in zip(changes[::2], changes[1::2], strict=True):
        assert isinstance(searched, float) and searched <= 0
        assert isinstance(policy, float) and policy > 0
    assert [row[0] for row in kept.rows] == [f"C, {title}" for title in COLUMNS]
    # There is no other program to learn from.
    assert [row[0] for row in learnt.rows] == [*COLUMNS, "all"]
    assert all(one == 0 for row in learnt.rows for one in row[1:])
    assert study(["lmdb"], tmp_path, toolchain, largest=20)[0].rows == programs.rows
