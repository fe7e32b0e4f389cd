# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import msgspec
import pytest

from benchmarks.results import (
    FOLDER,
    Cell,
    Column,
    Result,
    ResultError,
    Table,
    measured_now,
    read,
    write,
)

ROWS: list[list[Cell]] = [["zlib", (-4.2, -5.0, -3.4), 1234], ["lua | jit", None, 7]]


def _result() -> Result:
    columns = [
        Column("program"),
        Column("AutoFDO", "percent:+1"),
        Column("bytes", "bytes"),
    ]
    table = Table("time", "Change of the time.", columns, ROWS)
    return measured_now("policies", "Is it faster?", "python -m benchmarks policies", [table])


@pytest.mark.parametrize(
    ("format", "cell", "expected"),
    [
        ("integer", 12345, "12,345"),
        ("number:2", 1.005e3, "1,005.00"),
        ("percent:1", 4.25, "4.2%"),
        ("percent:+1", 4.26, "+4.3%"),
        ("ratio:2", 1.5, "1.50×"),
        ("seconds:1", (2.0, 1.0, 3.0), "2.0 s (1.0 to 3.0)"),
        ("number:1", "none", "none"),
    ],
)
def test_cells_are_shown_by_the_format_of_their_column(
    format: str, cell: Cell, expected: str
) -> None:
    assert Column("x", format).text(cell) == expected


def test_a_written_result_is_read_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "policies.json"
    write(_result(), path)
    assert read(path) == _result()
    # Rows stay on a line each, so that a change of one is a change of one line.
    assert '["zlib", [-4.2, -5.0, -3.4], 1234]' in path.read_text()


def test_a_table_is_markdown() -> None:
    assert _result().table("time").markdown().splitlines() == [
        "| program | AutoFDO | bytes |",
        "| --- | ---: | ---: |",
        "| zlib | -4.2% (-5.0 to -3.4) | 1,234 B |",
        "| lua \\| jit | – | 7 B |",
    ]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("version", 2, r"\$\.version"),
        ("format", "other", r"\$\.format"),
        ("tables", [{"name": "t", "caption": "", "columns": [], "rows": [[1]]}], "row 0 has 1"),
    ],
)
def test_a_damaged_file_is_an_error_with_its_place(
    tmp_path: Path, field: str, value: object, message: str
) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(msgspec.json.encode({**msgspec.to_builtins(_result()), field: value}))
    with pytest.raises(ResultError, match=message):
        read(path)


def test_published_results_can_be_read() -> None:
    for path in FOLDER.glob("*.json"):
        assert read(path).benchmark == path.stem
