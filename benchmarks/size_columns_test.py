# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import pytest

from benchmarks.common import BenchmarkError
from benchmarks.results import Cell, Table
from benchmarks.size_builds import WAYS, Builds, Sizes
from benchmarks.size_columns import LINKS, tables
from compiler_opt_perf.run.files import write_text
from compiler_opt_perf.toolchain.installation import Toolchain


def _sizes(text: int, policy: int) -> dict[str, Sizes]:
    """Builds in which the policy decided have `policy` bytes of text, the others `text`."""
    by_policy = {way.name for way in WAYS if way.policies}
    by_policy |= {name for name, link in LINKS.items() if link.config.policies}
    names = [*(way.name for way in WAYS), *LINKS]
    return {name: Sizes(policy if name in by_policy else text, 2 * text, "") for name in names}


def _rows(table: Table) -> dict[str, tuple[Cell, ...]]:
    return {str(row[0]): tuple(row[1:]) for row in table.rows}


def test_the_mean_is_of_programs_that_the_training_never_saw() -> None:
    found = {
        "lua": _sizes(1000, 900),
        "zlib": _sizes(1000, 1100),
        "cmark": _sizes(1000, 1000),
        "zstd": _sizes(1000, 1500),
        "re2": _sizes(1000, 800),
        "jsoncpp": _sizes(1000, 1100),
    }
    counts = {name: 100 if name == "plain" else 110 for name in found["lua"]}
    made = tables(found, {"lua": counts, "re2": {}})
    means, policy, taken, stages, executed, text, file = made
    rows = _rows(policy)
    assert "cmark" not in rows
    assert rows["zstd"][1] == pytest.approx(50)
    assert rows["geometric mean of C++, never seen"][1] == pytest.approx(
        100 * ((0.8 * 1.1) ** 0.5 - 1), abs=1e-3
    )
    # Of jsoncpp the default's build is taken.
    assert rows["geometric mean of C++, never seen, checked"][1] == pytest.approx(
        100 * (0.8**0.5 - 1), abs=1e-3
    )
    assert rows["largest change of all programs"][1] == pytest.approx(50)
    assert rows["largest change of all programs, checked"][1] == 0
    assert [row[:2] for row in means.rows] == [
        ["C, linked text", 3],
        ["C, stripped file", 3],
        ["C++, linked text", 2],
        ["C++, stripped file", 2],
    ]
    # ThinLTO by its default limit has no policy.
    assert means.rows[0][-1] == (0, 0, 0)
    assert _rows(taken)["re2"][0] == "inline-size"
    assert _rows(taken)["re2"][1] == pytest.approx(-20)
    assert _rows(taken)["jsoncpp"][:2] == ("plain", 0)
    # Of lua the policy's build, of zlib and cmark the default's.
    mean = _rows(taken)["geometric mean of C, never seen"][1]
    assert isinstance(mean, tuple)
    assert mean[0] == pytest.approx(100 * (0.9 ** (1 / 3) - 1), abs=1e-3)
    # In C++ only; the policy is in the links of these columns.
    assert next(iter(_rows(stages))) == "re2" and len(stages.rows) == 4
    assert _rows(stages)["re2"][1:] == pytest.approx([-20, -20, 0, -20, -20, 0, -20, -20])
    assert [row[:3] for row in executed.rows] == [["lua", "test", 100]]
    assert _rows(executed)["lua"][2:] == pytest.approx([10] * 5)
    assert [row[:4] for row in text.rows][1] == ["zlib", "test", "C", 1000]
    assert file.rows[1][3] == 2000


def test_programs_of_ctmark_have_a_table() -> None:
    *_, ctmark = tables({"re2": _sizes(1000, 800), "bullet": _sizes(1000, 900)}, {})
    assert [row[:4] for row in ctmark.rows] == [["bullet", "choice", "C++", 1000]]
    assert ctmark.rows[0][4] == pytest.approx(-10)


@pytest.mark.long(10)
@pytest.mark.compiler
def test_builds_of_a_program_compute_the_same(toolchain: Toolchain, tmp_path: Path) -> None:
    builds = Builds("lmdb", tmp_path, toolchain)
    found = builds.sizes()
    # Copies of functions from other modules make it larger.
    imports = builds.linked("imports", LINKS["imports"], found)
    assert imports.text > found["ThinLTO"].text
    assert builds.linked("imports", LINKS["imports"], found) == imports
    counts = builds.executed(found, ["plain", "ThinLTO"])
    assert 1e6 < counts["ThinLTO"] < counts["plain"]
    plain, outlined = found["plain"], found["outliner"]
    assert outlined.text < plain.text and outlined.file < plain.file
    assert found["ThinLTO"].text != plain.text
    # What one build computes is noted; another one is told by it.
    note = tmp_path / "outliner" / "computed.json"
    write_text(note, note.read_text().replace('"result": "', '"result": "0'))
    with pytest.raises(BenchmarkError, match="lmdb: outliner computes something else"):
        builds.sizes()
