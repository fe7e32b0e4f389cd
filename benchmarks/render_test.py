# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import pytest
from click.testing import CliRunner

import benchmarks.first_page
import benchmarks.render
from benchmarks.__main__ import main
from benchmarks.render import PAGES, rendered, update
from benchmarks.results import FOLDER, Cell, Column, Plot, Result, ResultError, Table, write

PAGE = "# Is it faster?\n\nYes.\n\n<!-- table: speed/time -->\n<!-- end -->\n\nLimits.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a result `speed.json` and its page, which is not rendered yet."""
    (tmp_path / "speed.md").write_text(PAGE)
    _write(tmp_path, -4.2)
    return tmp_path


def _write(folder: Path, change: float) -> None:
    rows: list[list[Cell]] = [["zlib", (change, -5.0, -3.4)], ["lua", None]]
    table = Table("time", "Change of time.", [Column("program"), Column("PGO", "percent:1")], rows)
    result = Result(
        benchmark="speed",
        question="Is it faster?",
        date="2026-11-26",
        machine="a CPU",
        command="python -m benchmarks speed",
        commit="0123456789ab",
        tables=[table],
        plot=Plot("time", ["PGO"]),
    )
    write(result, folder / "speed.json")


def test_a_page_gets_its_table_its_picture_and_where_they_are_from(folder: Path) -> None:
    assert update(folder, folder) == ["speed.svg", "speed.md"]
    text = (folder / "speed.md").read_text()
    assert text.startswith(
        "# Is it faster?\n\nYes.\n\n<!-- table: speed/time -->\nChange of time.\n"
    )
    assert text.endswith("<!-- end -->\n\nLimits.\n")
    assert "| zlib | -4.2% (-5.0 to -3.4) |" in text
    assert "(speed.svg)" in text
    assert "Measured 2026-11-26 on a CPU; commit 0123456789ab" in text
    assert "zlib" in (folder / "speed.svg").read_text()
    assert update(folder, folder) == []


def test_a_check_names_what_the_results_do_not_give_and_writes_nothing(folder: Path) -> None:
    update(folder, folder)
    before = (folder / "speed.md").read_text()
    _write(folder, -4.3)
    assert update(folder, folder, check=True) == ["speed.svg", "speed.md"]
    assert (folder / "speed.md").read_text() == before


def test_the_command_fails_if_a_page_is_not_as_it_must_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmarks.render, "update", lambda *, check: ["speed.md"] if check else [])
    monkeypatch.setattr(benchmarks.first_page, "update", lambda *, check: [])
    assert CliRunner().invoke(main, ["render"]).exit_code == 0
    done = CliRunner().invoke(main, ["render", "--check"])
    assert done.exit_code == 1
    assert "speed.md" in done.output


def test_a_picture_that_no_page_shows_is_deleted(folder: Path) -> None:
    update(folder, folder)
    (folder / "old.svg").write_text("<svg/>")
    assert update(folder, folder, check=True) == ["old.svg"]
    update(folder, folder)
    assert not (folder / "old.svg").exists()


def test_a_table_that_does_not_exist_is_an_error(folder: Path) -> None:
    (folder / "speed.md").write_text(PAGE.replace("speed/time", "speed/size"))
    with pytest.raises(ResultError, match=r"speed\.md.*size"):
        rendered(folder, folder)


def test_lines_are_drawn_in_the_order_of_rows(folder: Path) -> None:
    table = Table(
        "time",
        "",
        [Column("blocks"), Column("error", "percent:1")],
        [["1,000", 9.3], ["5,000", 7.4]],
    )
    picture = benchmarks.render._svg(table, Plot("time", ["error"], "lines"))
    assert picture == benchmarks.render._svg(table, Plot("time", ["error"], "lines"))
    assert picture.index("1,000") < picture.index("5,000")


def test_published_pages_are_what_the_results_give() -> None:
    assert update(check=True) == []
    assert benchmarks.first_page.update(check=True) == []


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_every_result_has_a_short_page_that_the_index_lists(path: Path) -> None:
    page = PAGES / f"{path.stem}.md"
    assert f"<!-- table: {path.stem}/" in page.read_text()
    assert len(page.read_text().splitlines()) <= 150
    assert f"]({page.name})" in (PAGES / "index.md").read_text()


def test_pictures_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in PAGES.glob("*.svg")}
    assert sizes
    assert max(sizes.values()) < 60_000
