# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import pytest

from benchmarks.common import BenchmarkError
from benchmarks.size_columns import WAYS, Builds, Sizes, tables
from compiler_opt_perf.run.files import write_text
from compiler_opt_perf.toolchain.installation import Toolchain


def _sizes(text: int, policy: int) -> dict[str, Sizes]:
    """A policy's builds have `policy` bytes of text, the others `text`."""
    return {way.name: Sizes(policy if way.policies else text, 2 * text, "") for way in WAYS}


def test_the_mean_is_of_programs_that_the_training_never_saw() -> None:
    found = {
        "lua": _sizes(1000, 900),
        "zlib": _sizes(1000, 1100),
        "zstd": _sizes(1000, 1500),
        "re2": _sizes(1000, 800),
    }
    means, policy, text, file = tables(found)
    by_name = {str(row[0]): row[3:] for row in policy.rows}
    assert by_name["zstd"][0] == pytest.approx(50)
    assert by_name["geometric mean of C, never seen"][0] == pytest.approx(
        100 * ((0.9 * 1.1) ** 0.5 - 1), abs=1e-3
    )
    # Of zlib the default's build is taken.
    assert by_name["geometric mean of C, never seen, smaller build taken"][0] == pytest.approx(
        100 * (0.9**0.5 - 1), abs=1e-3
    )
    assert by_name["geometric mean of C++, never seen"][0] == pytest.approx(-20)
    assert by_name["largest change of all programs"][0] == pytest.approx(50)
    assert [row[:2] for row in means.rows] == [
        ["C, linked text", 2],
        ["C, stripped file", 2],
        ["C++, linked text", 1],
        ["C++, stripped file", 1],
    ]
    assert [row[:4] for row in text.rows][1] == ["zlib", "test", "C", 1000]
    assert file.rows[1][3] == 2000


@pytest.mark.long(10)
@pytest.mark.compiler
def test_builds_of_a_program_compute_the_same(toolchain: Toolchain, tmp_path: Path) -> None:
    builds = Builds("lmdb", tmp_path, toolchain)
    found = builds.sizes()
    plain, outlined = found["plain"], found["outliner"]
    assert outlined.text < plain.text and outlined.file < plain.file
    assert found["ThinLTO"].text != plain.text
    # What one build computes is noted; another one is told by it.
    note = tmp_path / "outliner" / "computed.json"
    write_text(note, note.read_text().replace('"result": "', '"result": "0'))
    with pytest.raises(BenchmarkError, match="lmdb: outliner computes something else"):
        builds.sizes()
