# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The history of checks and of accepted candidates: JSON lines, in a file that bots may share.

An event is added under a lock, so that one bot waits for another.
"""

import contextlib
import datetime
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from compiler_opt_perf.compare.baseline import Baseline, Setup, read_baseline, write_baseline
from compiler_opt_perf.compare.check import CheckResult, check
from compiler_opt_perf.compare.check_tables import value
from compiler_opt_perf.compare.errors import CompareError
from compiler_opt_perf.run.files import (
    FileWriteError,
    atomic_write,
    exclusive,
    input_lines,
    read_input,
    sha256,
)
from compiler_opt_perf.run.json_text import Finite, JsonError, decode
from compiler_opt_perf.run.symbol_names import printable

FORMAT = "compiler-opt-perf/gate-history"
VERSION = 2
# Version 1 was a database of SQLite, which begins so.
_SQLITE = "SQLite format 3\0"
_SHOWN = ("text", "score", "effort", "memory")


class _Head(msgspec.Struct, frozen=True):
    """The first line."""

    format: str = FORMAT
    version: int = VERSION


class Total(msgspec.Struct, frozen=True):
    """A metric over all modules: in the baseline, and measured.

    Attributes:
      allowed: how much worse than before it may be; None without a limit, and in acceptances.
    """

    metric: str
    unit: str
    before: Finite
    after: Finite
    verdict: str
    allowed: Finite | None = None


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A check, or a candidate that was accepted.

    Attributes:
      number: counts from 1 in the file; 0 before the event is written.
      date: UTC, as ISO 8601 has it.
      verdict: "passes" or "worse".
      reason: why the candidate was accepted.
      changed: names of the inputs that differ from the baseline's.
      totals: of all metrics.
      setup: of the candidate.
    """

    number: Annotated[int, msgspec.Meta(ge=0)] = 0
    date: str
    kind: Literal["check", "accept"]
    problem: str
    verdict: Literal["passes", "worse"]
    reason: str = ""
    changed: tuple[str, ...]
    totals: tuple[Total, ...]
    setup: Setup


def event_of(
    kind: Literal["check", "accept"], result: CheckResult, measured: Baseline
) -> HistoryEntry:
    """An event of now."""
    totals = [
        Total(one.metric, one.unit, one.before, one.after, one.verdict, one.allowed)
        for one in result.findings
        if one.level == "total"
    ]
    return HistoryEntry(
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        kind=kind,
        problem=result.problem,
        verdict="worse" if result.worse else "passes",
        changed=result.changed,
        totals=tuple(totals),
        setup=measured.setup,
    )


def add(store: Path, event: HistoryEntry) -> None:
    """Writes an event.

    Raises:
      CompareError: the file is no history, or is damaged.
      FileWriteError: it cannot be written.
    """
    with _locked(store) as place, _added(place, event):
        pass


def accept(measured_path: Path, baseline: Path, store: Path, reason: str) -> HistoryEntry:
    """Makes a candidate the baseline, and adds the reason to the history.

    Raises:
      CompareError: a file cannot be read, the reason is empty, or the candidate was checked against
        another baseline.
      FileWriteError: the baseline or the history cannot be written.
    """
    if not reason.strip():
        raise CompareError("--reason: is empty; say why the candidate may be as it is")
    measured = read_baseline(measured_path)
    # The lock is held until the baseline is written: another bot sees both or none.
    with _locked(store) as place:
        before = measured
        if baseline.exists():
            before = read_baseline(baseline)
            if measured.against and measured.against != sha256(baseline):
                raise CompareError(
                    f"{baseline}: is not the baseline any more that {measured_path} was checked "
                    "against; check the candidate again"
                )
        event = msgspec.structs.replace(
            event_of("accept", check(before, measured, {}), measured), reason=reason
        )
        with _added(place, event):
            write_baseline(msgspec.structs.replace(measured, against=""), baseline)
    return event


def events(store: Path) -> list[HistoryEntry]:
    """All events, in their order. Raises CompareError."""
    try:
        lines = input_lines(store)
        first = next(lines, "")
        if first.startswith(_SQLITE):
            raise CompareError(
                f"{store}: is a history of an earlier version, in SQLite; name a new file "
                f"(`sqlite3 {store} 'SELECT * FROM events'` prints the old events)"
            )
        decode(first, _Head, f"{store}:1", (FORMAT, VERSION))
        return [
            decode(line, HistoryEntry, f"{store}:{number}") for number, line in enumerate(lines, 2)
        ]
    except OSError as error:
        raise CompareError(
            f"{store}: {error.strerror}; `cop gate check --store` writes a history"
        ) from error
    except JsonError as error:
        raise CompareError(
            f"{error}; name a history that `cop gate check --store` wrote, or restore it from a "
            "copy"
        ) from error


@contextlib.contextmanager
def _locked(store: Path) -> Iterator[Path]:
    """Holds the history's lock; yields where the file is. Raises FileWriteError."""
    # A link would become a file of its own, and its lock be another one.
    store = Path(os.path.realpath(store))
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(exclusive(store.parent / f".{store.name}.lock"))
        except OSError as error:
            raise FileWriteError(
                f"{store.parent}: no file can be made in it: {error.strerror}; change its "
                "permissions, or name a history in another folder"
            ) from error
        yield store


@contextlib.contextmanager
def _added(store: Path, event: HistoryEntry) -> Iterator[None]:
    """Adds an event when the body succeeds; else the history stays as it was."""
    known, content = [], msgspec.json.encode(_Head()) + b"\n"
    if store.exists():
        known, content = events(store), read_input(store).removesuffix(b"\n") + b"\n"
    numbered = msgspec.structs.replace(event, number=known[-1].number + 1 if known else 1)
    # The file is written anew: a reader, who takes no lock, never sees half of a line.
    with atomic_write(store) as temporary:
        temporary.write_bytes(content + msgspec.json.encode(numbered) + b"\n")
        yield


def describe(found: list[HistoryEntry]) -> str:
    """A block of lines for each event, the last one at the end."""
    lines = []
    for event in found:
        changed = ", ".join(event.changed) or "nothing"
        line = f"{event.number} {event.date} {event.kind} {event.problem}: {event.verdict}"
        lines.append(f"{line}; changed: {changed}")
        if event.reason:
            lines.append(f"  reason: {event.reason}")
        shown = [one for one in event.totals if one.metric in _SHOWN or one.verdict == "worse"]
        lines += [
            f"  {one.metric} {value(one.before, one.unit)} -> {value(one.after, one.unit)}"
            + (f" ({one.verdict})" if one.verdict in ("worse", "better") else "")
            for one in shown
        ]
    return "".join(f"{printable(line)}\n" for line in lines) or "no events\n"


def document(found: list[HistoryEntry]) -> dict[str, Any]:
    """The same as JSON values."""
    return {"events": msgspec.to_builtins(found)}
