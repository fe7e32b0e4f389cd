# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Results of benchmarks as data: benchmarks/results/NAME.json, from which tables are made.

A benchmark builds its tables, writes them with `write` and prints them with `Table.markdown`.
docs/results/ is rendered from the same files.
"""

import datetime
import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import atomic_write

FOLDER = Path(__file__).resolve().parent / "results"

#: A value with its 95% interval: estimate, low end, high end.
Interval = tuple[float, float, float]
#: None is a value that was not measured.
Cell = str | int | float | Interval | None

# The kind of value, a plus sign for values that are changes, and the digits after the point.
_FORMAT = re.compile(r"(text|integer|bytes)|(number|percent|ratio|seconds):(\+?)(\d)")
_UNITS = {"number": "", "percent": "%", "ratio": "×", "seconds": " s", "bytes": " B", "integer": ""}
_WIDTH = 100


class ResultError(UserError):
    """A file of results that cannot be read."""


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A column of a table.

    Attributes:
      format: `text`, `integer`, `bytes`, or `number:D`, `percent:D`, `ratio:D` or `seconds:D` with
        D digits after the point. `percent:+1` shows a plus sign, too. A value of 4.2 with the
        format `percent:1` is 4.2%, and one of 1.5 with the format `ratio:1` is 1.5×.
    """

    name: str
    format: str = "text"

    def __post_init__(self) -> None:
        if not _FORMAT.fullmatch(self.format):
            raise ValueError(f"no such format: {self.format}")

    def text(self, cell: Cell) -> str:
        """A cell as people read it: `4.2%`, or `4.2% (3.1 to 5.0)` with an interval."""
        if cell is None:
            return "–"
        if isinstance(cell, str):
            return cell
        if isinstance(cell, tuple):
            estimate, low, high = (self._number(value) for value in cell)
            return f"{estimate}{self._unit} ({low} to {high})"
        return self._number(cell) + self._unit

    @property
    def _unit(self) -> str:
        return _UNITS.get(self.format.partition(":")[0], "")

    def _number(self, value: float) -> str:
        match = _FORMAT.fullmatch(self.format)
        assert match
        return f"{value:{match[3] or ''},.{match[4] or 0}f}"


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table.

    Attributes:
      rows: as many cells each as there are columns.
    """

    name: str
    caption: str
    columns: list[Column]
    rows: list[list[Cell]]

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"table {self.name}: row {number} has {len(row)} cells "
                    f"for {len(self.columns)} columns"
                )

    @classmethod
    def of(
        cls, name: str, caption: str, columns: Mapping[str, str], rows: Iterable[Iterable[Cell]]
    ) -> "Table":
        """A table whose columns are formats by name."""
        own = [Column(*column) for column in columns.items()]
        return cls(name, caption, own, [list(row) for row in rows])

    def markdown(self) -> str:
        """The table in Markdown; columns of numbers are aligned to the right."""
        lines = [[column.name for column in self.columns]]
        lines.append(["---" if column.format == "text" else "---:" for column in self.columns])
        for row in self.rows:
            cells = zip(self.columns, row, strict=True)
            lines.append([column.text(cell).replace("|", "\\|") for column, cell in cells])
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)


class Plot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A picture of columns of a table, against its first column."""

    table: str
    columns: list[str]
    kind: Literal["bars", "lines"] = "bars"

    def of_known(self, tables: Iterable[Table]) -> "Plot | None":
        """The plot of those of its columns that the tables have; None if they have none."""
        known = {
            column.name for table in tables if table.name == self.table for column in table.columns
        }
        columns = [column for column in self.columns if column in known]
        return msgspec.structs.replace(self, columns=columns) if columns else None


class Result(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a benchmark found.

    Attributes:
      question: what it answers, with a question mark.
      date: of the measurement, `2026-11-26`.
      machine: processor, number of processors, operating system and clang.
      command: what was run.
      commit: the hash of the tree that measured.
    """

    format: Literal["compiler-opt-perf benchmark"] = "compiler-opt-perf benchmark"
    version: Literal[1] = 1
    benchmark: str
    question: str
    date: str
    machine: str
    command: str
    commit: str
    tables: list[Table]
    plot: Plot | None = None

    def table(self, name: str) -> Table:
        """The table of that name. Raises KeyError."""
        for table in self.tables:
            if table.name == name:
                return table
        raise KeyError(name)


def read(path: Path) -> Result:
    """Raises ResultError, with the file and the place in it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Result)
    except (OSError, msgspec.MsgspecError) as error:
        raise ResultError(f"{path}: {error}") from error


def write(result: Result, path: Path) -> None:
    """Writes a result as JSON, a row of a table a line where it fits."""
    # Fields that have their default value are written, too, but for the optional picture.
    value = msgspec.to_builtins(result)
    if result.plot is None:
        del value["plot"]
    with atomic_write(path) as temporary:
        temporary.write_text(_lines(value, "") + "\n")


def _lines(value: Any, indent: str) -> str:
    """JSON of a value: on one line where it fits, else with an element a line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) < _WIDTH or not isinstance(value, dict | list):
        return line
    deeper = indent + "  "
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_lines(item, deeper)}" for key, item in value.items()]
        begin, end = "{}"
    else:
        parts = [_lines(item, deeper) for item in value]
        begin, end = "[]"
    inside = ",\n".join(deeper + part for part in parts)
    return f"{begin}\n{inside}\n{indent}{end}"


def measured_now(
    benchmark: str, question: str, command: str, tables: list[Table], plot: Plot | None = None
) -> Result:
    """A result of today, of this machine and of this tree."""
    return Result(
        benchmark=benchmark,
        question=question,
        date=datetime.date.today().isoformat(),
        machine=_machine(),
        command=command,
        commit=_commit(),
        tables=tables,
        plot=plot,
    )


def _machine() -> str:
    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    processors = os.cpu_count()
    system = platform.freedesktop_os_release()["PRETTY_NAME"]
    clang = re.search(r"version (\S+)", _output("clang-22", "--version"))
    name = cpu[1] if cpu else platform.machine()
    return f"{name}, {processors} processors, {system}, clang {clang[1] if clang else '?'}"


def _commit() -> str:
    """The commit of the tree, with a plus sign where files differ from it."""
    commit = _output("git", "rev-parse", "--short=12", "HEAD").strip() or "?"
    changed = _output("git", "status", "--porcelain", "--untracked-files=no")
    return commit + ("+" if changed else "")


def _output(*command: str) -> str:
    try:
        run = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return run.stdout
