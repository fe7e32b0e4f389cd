# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fills the table and the picture of README.md from benchmarks/results/.

README.md has the table between two lines, `<!-- table: first page -->` and `<!-- end -->`; the
picture is docs/first-page.svg.
"""

import re
from pathlib import Path

import matplotlib.style
import msgspec
from matplotlib.figure import Figure

from benchmarks.render import STYLE, draw_bars, svg_text, write_changed
from benchmarks.results import FOLDER, Cell, ResultError, Table, read

README = Path(__file__).resolve().parent.parent / "README.md"

_MARKED = re.compile(r"^<!-- table: first page -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
_COLUMNS = ("your program", "take", "what changes")
# {RESULT/TABLE/ROW/COLUMN} is a cell of benchmarks/results/RESULT.json, as a change with one digit.
_ROWS = (
    (
        "`-Oz`, no profile",
        "the [outliner](docs/results/size-outliner.md), "
        "[`inline-size`](docs/models.md#inline-size) for C++",
        "[C](docs/results/size-columns.md) {size-columns/means/C, linked text/outliner}, "
        "C++ {size-columns/means/C++, linked text/inline-size-outliner}",
    ),
    (
        "`-O2`, AMD Zen 5",
        "[both policies for speed](docs/models.md#both-policies-for-speed), with a profile",
        "[time](docs/results/policies.md) {policies/time/geometric mean/both policies}",
    ),
    (
        "`-O2`, Intel Ice Lake",
        "both policies for speed, with a profile",
        "[time](docs/results/beside-pgo.md) {beside-pgo/added/both policies, to -O2/Ice Lake}",
    ),
    (
        "`-O2`, Ice Lake, text may grow",
        "[AutoFDO](docs/models.md#which-build-to-take) by the same profile",
        "[time](docs/results/beside-pgo.md) {beside-pgo/added/AutoFDO, to -O2/Ice Lake}",
    ),
    (
        "`-O2`, forty programs, AMD Zen 3",
        "AutoFDO, [cold code compiled for size](docs/results/small-cold.md)",
        "time {small-cold/sums/AutoFDO-small-cold/time}, "
        "text {small-cold/sums/AutoFDO-small-cold/text}",
    ),
    (
        "a hot loop beside cold calls",
        "AutoFDO or PGO: our clang copies locals for cold calls",
        "[time](docs/results/pinned.md): plain {pinned/example/plain `-O2`/time}, "
        "AutoFDO {pinned/example/AutoFDO and copies/time}, "
        "upstream's {pinned/example/AutoFDO/time}",
    ),
)


def table(results: Path = FOLDER) -> str:
    """The table in Markdown. Raises ResultError: a figure does not exist."""

    def figure(name: re.Match[str]) -> str:
        benchmark, table, row, column = name[1].split("/")
        return _figure(_table(results, benchmark, table), row, column)

    lines = [_COLUMNS, ("---",) * len(_COLUMNS), *_ROWS]
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return re.sub(r"\{(.+?)\}", figure, text)


def picture(results: Path = FOLDER) -> str:
    """Bars by program: size without a profile, and time with the profile and a shuffled one."""
    size = _table(results, "size-columns", "taken")
    time = _table(results, "policies", "time")
    with matplotlib.style.context(["default", STYLE]):
        figure = Figure(figsize=(8.5, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        kinds = {name: _column(size, f"{name}, `--size`") for name in ("text", "file")}
        draw_bars(left, _programs(size), kinds)
        left.set_xlabel("size of C++ programs by cop try --size, change in %")
        left.legend(loc="lower left", frameon=False, fontsize=7)
        draw_bars(
            right,
            _programs(time),
            {
                "with the profile": _column(time, "both policies"),
                "with a shuffled profile": _column(time, "both, shuffled profile"),
            },
        )
        right.set_xlabel("time of programs at -O2, change in %")
        right.legend(loc="lower left", frameon=False, fontsize=7)
        return svg_text(figure)


def update(readme: Path = README, results: Path = FOLDER, *, check: bool = False) -> list[str]:
    """Writes README.md's table and the picture where they differ. Raises ResultError.

    Args:
      check: change no file.

    Returns:
      The names of the files that differ.
    """
    text = readme.read_text(encoding="utf-8")
    if not _MARKED.search(text):
        raise ResultError(f"{readme}: has no line <!-- table: first page -->")
    block = f"<!-- table: first page -->\n{table(results)}<!-- end -->"
    image = readme.parent / "docs" / "first-page.svg"
    return write_changed(
        {readme: _MARKED.sub(lambda _: block, text), image: picture(results)}, check=check
    )


def _table(results: Path, benchmark: str, name: str) -> Table:
    try:
        return read(results / f"{benchmark}.json").table(name)
    except KeyError as error:
        raise ResultError(f"{results / benchmark}.json has no table {error}") from error


def _place(table: Table, column: str) -> int:
    names = [one.name for one in table.columns]
    if column not in names:
        raise ResultError(f"table {table.name} has no column {column}; it has {', '.join(names)}")
    return names.index(column)


def _figure(table: Table, row: str, column: str) -> str:
    place = _place(table, column)
    found = [cells[place] for cells in table.rows if cells[0] == row]
    if len(found) != 1:
        raise ResultError(f"table {table.name} has {len(found)} rows {row}; one is needed")
    own = table.columns[place]
    # A digit more would be noise on a first page.
    short = re.sub(r"^(percent:\+)\d$", r"\g<1>1", own.format)
    return msgspec.structs.replace(own, format=short).text(found[0])


def _programs(table: Table) -> list[list[Cell]]:
    """The rows of programs, without those of means."""
    return [row for row in table.rows if not str(row[0]).startswith("geometric mean")]


def _column(table: Table, name: str) -> list[Cell]:
    place = _place(table, name)
    return [row[place] for row in _programs(table)]
