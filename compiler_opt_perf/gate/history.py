# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The history of checks and of what was accepted: a file of SQLite, which bots may share.

Each event is written in one transaction that locks the file, so that a bot waits for another one.
"""

import contextlib
import datetime
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from compiler_opt_perf.execution.files import open_input, require_space, sha256
from compiler_opt_perf.execution.json_text import Finite, JsonError, convert, parse_json
from compiler_opt_perf.execution.symbol_names import printable
from compiler_opt_perf.gate.baseline import Baseline, Setup, read_baseline, write_baseline
from compiler_opt_perf.gate.check import Result, check
from compiler_opt_perf.gate.errors import GateError
from compiler_opt_perf.gate.tables import value

# Of the file's head: "copg", and the version of the table.
_APPLICATION, _VERSION = 0x636F7067, 1
_PATIENCE_S = 60.0
# What SQLite says of a file or disk that it cannot write.
_NOT_WRITTEN = {
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}
_TABLE = """
CREATE TABLE events (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  date TEXT NOT NULL,
  kind TEXT NOT NULL,
  problem TEXT NOT NULL,
  verdict TEXT NOT NULL,
  reason TEXT NOT NULL,
  details TEXT NOT NULL
)
"""
_DETAILS = ("changed", "totals", "setup")
_SHOWN = ("text", "score", "effort", "memory")


class Total(msgspec.Struct, frozen=True):
    """A metric over all modules: in the baseline, and measured."""

    metric: str
    unit: str
    before: Finite
    after: Finite
    verdict: str


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A check, or a candidate that was accepted.

    Attributes:
      number: in the order in which they were written, from 1; 0 before that.
      date: UTC, as ISO 8601 has it.
      verdict: "passes" or "worse".
      reason: why it was accepted.
      changed: inputs that were not the baseline's.
      totals: of the metrics.
      setup: what was measured with.
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


def event_of(kind: Literal["check", "accept"], result: Result, measured: Baseline) -> Event:
    """An event of now."""
    totals = [
        Total(one.metric, one.unit, one.before, one.after, one.verdict)
        for one in result.findings
        if one.level == "total"
    ]
    return Event(
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        kind=kind,
        problem=result.problem,
        verdict="worse" if result.worse else "passes",
        changed=result.changed,
        totals=tuple(totals),
        setup=measured.setup,
    )


def add(store: Path, event: Event) -> None:
    """Writes an event. Raises GateError: the file is none of ours, or stays locked."""
    with _writing(store) as connection:
        _insert(connection, event)


def accept(measured_path: Path, baseline: Path, store: Path, reason: str) -> Event:
    """Makes what was measured the baseline, and says why in the history.

    Raises:
      GateError: a file cannot be read, the reason is empty, or the baseline is another one by now
        than what the candidate was checked against.
      FileWriteError: the baseline cannot be written.
    """
    if not reason.strip():
        raise GateError("--reason: is empty; say why the candidate may be as it is")
    measured = read_baseline(measured_path)
    # The lock is held until the baseline is written: another bot sees both or none.
    with _writing(store) as connection:
        before = measured
        if baseline.exists():
            before = read_baseline(baseline)
            if measured.against and measured.against != sha256(baseline):
                raise GateError(
                    f"{baseline}: is not the baseline any more that {measured_path} was checked "
                    "against; check the candidate again"
                )
        event = msgspec.structs.replace(
            event_of("accept", check(before, measured, {}), measured), reason=reason
        )
        _insert(connection, event)
        write_baseline(msgspec.structs.replace(measured, against=""), baseline)
    return event


def events(store: Path) -> list[Event]:
    """All events, in their order. Raises GateError."""
    _require_file(store)
    with _connection(store) as connection:
        _require_ours(connection, store)
        rows = connection.execute(
            "SELECT number, date, kind, problem, verdict, reason, details FROM events "
            "ORDER BY number"
        ).fetchall()
    found = []
    for number, date, kind, problem, verdict, reason, details in rows:
        place = f"{store}, event {number}"
        try:
            more = parse_json(details) if isinstance(details, str) else None
            fields = {**more} if isinstance(more, dict) else {}
            fields |= {"number": number, "date": date, "kind": kind}
            fields |= {"problem": problem, "verdict": verdict, "reason": reason}
            found.append(convert(fields, Event, place))
        except (JsonError, TypeError) as error:
            raise GateError(f"{place}: {error}; restore the file from a copy") from error
    return found


def _insert(connection: sqlite3.Connection, event: Event) -> None:
    details = {name: msgspec.to_builtins(getattr(event, name)) for name in _DETAILS}
    row = (event.date, event.kind, event.problem, event.verdict, event.reason, json.dumps(details))
    connection.execute(
        "INSERT INTO events (date, kind, problem, verdict, reason, details) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        row,
    )


@contextlib.contextmanager
def _writing(store: Path) -> Iterator[sqlite3.Connection]:
    """A transaction in the store, which is made where there is none; rolled back on an error."""
    if store.exists():
        _require_file(store)
    else:
        store.parent.mkdir(parents=True, exist_ok=True)
    with _connection(store) as connection:
        # Of two bots that make it, one waits here.
        connection.execute("BEGIN IMMEDIATE")
        try:
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if not tables:
                connection.execute(_TABLE)
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                connection.execute(f"PRAGMA user_version = {_VERSION}")
            _require_ours(connection, store)
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


@contextlib.contextmanager
def _connection(store: Path) -> Iterator[sqlite3.Connection]:
    """A connection that does not begin transactions by itself."""
    try:
        connection = sqlite3.connect(store, timeout=_PATIENCE_S, isolation_level=None)
        with contextlib.closing(connection):
            yield connection
    except sqlite3.Error as error:
        remedy = "name a history that `cop gate check --store` wrote"
        # Of the whole code, the kind of error.
        kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if kind == sqlite3.SQLITE_BUSY:
            remedy = "another command holds it; run this one again"
        elif kind in _NOT_WRITTEN:
            # SQLite says neither of a full disk nor of a read-only one what it is.
            require_space(store.parent)
            remedy = "change its permissions, or name a history in another folder"
        raise GateError(f"{store}: {error}; {remedy}") from error


def _require_file(store: Path) -> None:
    """SQLite would wait for a pipe. Raises GateError."""
    try:
        open_input(store).close()
    except OSError as error:
        raise GateError(
            f"{store}: {error.strerror}; `cop gate check --store` writes a history"
        ) from error


def _require_ours(connection: sqlite3.Connection, store: Path) -> None:
    head = [
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("application_id", "user_version")
    ]
    if head != [_APPLICATION, _VERSION]:
        raise GateError(
            f"{store}: is no history of this version; name a file that `cop gate check --store` "
            "wrote, or a new one"
        )


def describe(found: list[Event]) -> str:
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


def document(found: list[Event]) -> dict[str, Any]:
    """The same as JSON values."""
    return {"events": msgspec.to_builtins(found)}
