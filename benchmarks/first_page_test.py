# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import re
import shutil
from pathlib import Path

import pytest

import benchmarks.first_page
from benchmarks.first_page import README, update
from benchmarks.results import FOLDER, Cell, ResultError, read, write


def test_a_changed_result_changes_the_table_and_the_picture(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "results")
    (tmp_path / "docs").mkdir()
    readme = tmp_path / "README.md"
    readme.write_text("# Title\n\n<!-- table: first page -->\n<!-- end -->\n\nMore.\n")
    assert update(readme, tmp_path / "results") == ["README.md", "first-page.svg"]
    before = readme.read_text()
    assert before.startswith("# Title\n\n<!-- table: first page -->\n| your program |")
    assert before.endswith("|\n<!-- end -->\n\nMore.\n")
    assert update(readme, tmp_path / "results") == []

    path = tmp_path / "results" / "size-columns.json"
    _change(path, "means", "C, linked text", "outliner", (-9.9, -10.0, -9.8))
    assert update(readme, tmp_path / "results", check=True) == ["README.md"]
    assert readme.read_text() == before
    _change(path, "taken", "re2", "text, `--size`", -40.0)
    assert update(readme, tmp_path / "results") == ["README.md", "first-page.svg"]
    assert "-9.9%" in readme.read_text()


def _change(path: Path, table: str, row: str, column: str, value: Cell) -> None:
    result = read(path)
    found = result.table(table)
    place = [one.name for one in found.columns].index(column)
    next(cells for cells in found.rows if cells[0] == row)[place] = value
    write(result, path)


@pytest.mark.parametrize(
    "figure", ["inline-size/bytes/a/b", "inline-size/text/nobody/shipped", "inline-size/text/re2/x"]
)
def test_a_figure_that_does_not_exist_is_named(
    figure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmarks.first_page, "_ROWS", (("", "", f"{{{figure}}}"),))
    with pytest.raises(ResultError, match="bytes|nobody|no column x"):
        benchmarks.first_page.table()


def test_the_first_page_is_short() -> None:
    text = README.read_text()
    assert len(text.splitlines()) <= 120
    table = re.search(r"<!-- table: first page -->\n(.*?)<!-- end -->", text, re.DOTALL)
    assert table
    rows = table[1].splitlines()[2:]
    assert len(rows) == 6
    cells = [cell for row in rows for cell in row.strip("|").split("|")]
    words = {cell: len(re.sub(r"\]\(\S+\)", "", cell).split()) for cell in cells}
    assert max(words.values()) < 12, words
