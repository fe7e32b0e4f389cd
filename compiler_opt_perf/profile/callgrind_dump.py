# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads the dumps that callgrind writes: counts by instruction, and calls."""

from collections import defaultdict
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from compiler_opt_perf.profile.counts import Counts
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.events import EVENTS
from compiler_opt_perf.run.files import input_lines


@dataclass
class Dump:
    """What callgrind counted in one run.

    Attributes:
      columns: names of the counted events ("Ir", "Dr", ...).
      counts: for each executed instruction of the program, by link-time address, its counts in
        the order of `columns`; zeros at the end may be left out.
      outside: for each column, the counts of all other objects (shared libraries, the loader).
      calls: how often the call instruction at one address entered the function at another, both
        in the program; the caller is None for all calls out of other objects.
      objects: for each other object, its counts of the first column; "???" is code that no file
        holds, made while the program ran.
    """

    columns: tuple[str, ...]
    counts: dict[int, list[int]]
    outside: list[int]
    calls: dict[tuple[int | None, int], int]
    objects: dict[str, int] = field(default_factory=dict)

    def add(self, other: "Dump") -> None:
        """Adds the counts of another process. Raises PmuError when they are of other events."""
        if self.columns != other.columns:
            raise PmuError(f"callgrind counted {other.columns}, expected {self.columns}")
        for address, costs in other.counts.items():
            _add(self.counts.setdefault(address, []), costs)
        self.outside = [sum(pair) for pair in zip(self.outside, other.outside, strict=True)]
        for edge, count in other.calls.items():
            self.calls[edge] = self.calls.get(edge, 0) + count
        for name, cost in other.objects.items():
            self.objects[name] = self.objects.get(name, 0) + cost

    def limit_calls(self, entries: Container[int]) -> None:
        """Leaves out calls that were made while nothing was counted; callgrind counts them, too.

        A call instruction calls at most as often as it ran. Of calls out of other objects, which
        have no instruction here, at most those are kept that the callee's executions ask for.

        Args:
          entries: addresses of the function to whose calls counting was limited. Its outermost
            calls, which were all counted, have no caller if `read_dump` was given its name.
        """

        def ran(address: int) -> int:
            counts = self.counts.get(address)
            return counts[0] if counts else 0

        made: defaultdict[int, int] = defaultdict(int)
        for (caller, _), count in self.calls.items():
            if caller is not None:
                made[caller] += count
        limited: dict[tuple[int | None, int], int] = {}
        known: defaultdict[int, int] = defaultdict(int)
        for (caller, callee), count in self.calls.items():
            if caller is not None:
                # Of an indirect call with several callees it is not known which were called when.
                count = count * min(ran(caller), made[caller]) // made[caller]
                known[callee] += count
            limited[caller, callee] = count
        for caller, callee in limited:
            if caller is None and callee not in entries:
                rest = max(ran(callee) - known[callee], 0)
                limited[caller, callee] = min(limited[caller, callee], rest)
        self.calls = {edge: count for edge, count in limited.items() if count}

    def totals(self) -> list[int]:
        """For each column, the counts of the program itself."""
        totals = [0] * len(self.columns)
        for costs in self.counts.values():
            _add(totals, costs)
        return totals


def event_counts(dump: Dump) -> Counts:
    """The dump's columns as the events of `EVENTS` that callgrind has a column for.

    Raises:
      PmuError: the dump lacks such a column.
    """
    events = tuple(event for event in EVENTS if event.callgrind is not None)
    for event in events:
        if event.callgrind not in dump.columns:
            raise PmuError(
                f"event {event.name}: callgrind counted {', '.join(dump.columns)}, but not "
                f"{event.callgrind}; run it with --cache-sim=yes --branch-sim=yes"
            )
    columns = [dump.columns.index(event.callgrind or "") for event in events]
    at = {}
    for address, costs in dump.counts.items():
        present = len(costs)
        at[address] = [costs[i] if i < present else 0 for i in columns]
    return Counts(events, at, [dump.outside[i] for i in columns], dump.calls)


# How a position line begins: it holds costs, of code or of a call, or the source of a jump.
_POSITION = frozenset("0123456789+-*")
# Source files, and details of calls and jumps that the counts do not depend on.
_IGNORED = ("fl", "fi", "fe", "cfi", "cfl", "jfi", "jfn", "rcalls")


def read_dump(path: Path, program: Path, within: str | None = None) -> Dump:
    """Reads a dump in callgrind's format, of one or more parts, made with --dump-instr=yes.

    The format: "Callgrind Format Specification" in valgrind's manual. The file is read line by
    line, so that its size does not matter; per-instruction counts are kept for `program` only.

    Args:
      path: the dump.
      program: the object, as callgrind saw it, whose instructions are wanted.
      within: the function to whose calls counting was limited: its outermost calls have no caller.

    Raises:
      PmuError: not a dump, truncated, or its counts do not add up to its own totals; names the
        line.
    """
    return _DumpReader(path, program, within).read()


def read_dumps(paths: Sequence[Path], program: Path, within: str | None = None) -> Dump:
    """Reads the dumps of several processes and adds them up. As `read_dump`, and raises as it."""
    dump = read_dump(paths[0], program, within)
    for path in paths[1:]:
        dump.add(read_dump(path, program, within))
    return dump


class _DumpReader:
    """Reads one dump; a method for each kind of line.

    A dump is a sequence of parts. Each has headers ("events: Ir Dr"), then lines that name the
    object, file and function of the position lines that follow ("ob=", "fn="), then its totals. A
    position line is an address and its costs. After "calls=" the next position line is the call
    instruction, with the costs of the callee; after "jump=" or "jcnd=" it is the jump.

    The attributes are what the lines so far say of those that follow.
    """

    def __init__(self, path: Path, program: Path, within: str | None):
        self._path = path
        self._number = 0
        self._program = str(program)
        self._within = within
        # Of the part.
        self._position_fields = 0
        self._columns: tuple[str, ...] = ()
        self._complete = True  # Its totals have been read.
        # Of the position lines.
        self._object = "???"
        self._in_program = False
        self._address = 0
        self._jump_follows = False
        # Of the call on the next position line: its count and the callee's address; whether the
        # callee is in the program, None when it is in the caller's object; the callee's name.
        self._call: tuple[int, int] | None = None
        self._callee_in_program: bool | None = None
        self._callee = ""
        # Names by their number, as "(1)".
        self._object_names: dict[str, str] = {}
        self._function_names: dict[str, str] = {}
        # What has been counted.
        self._counts: dict[int, list[int]] = {}
        self._outside: list[int] = []
        self._calls: defaultdict[tuple[int | None, int], int] = defaultdict(int)
        self._objects: defaultdict[str, int] = defaultdict(int)
        self._totals: list[int] = []
        # By what precedes "=".
        self._records: dict[str, Callable[[str], None]] = {
            **dict.fromkeys(_IGNORED, self._ignore),
            "fn": self._ignore if within is None else self._read_function,
            "cfn": self._ignore if within is None else self._read_callee,
            "ob": self._read_object,
            "cob": self._read_callee_object,
            "calls": self._read_calls,
            "jump": self._read_jump,
            "jcnd": self._read_jump,
        }
        # By what precedes ":".
        self._headers: dict[str, Callable[[str], None]] = {
            "part": self._read_part,
            "positions": self._read_positions,
            "events": self._read_events,
            "totals": self._read_totals,
        }

    def read(self) -> Dump:
        """Reads the file. Raises PmuError."""
        line = ""
        try:
            for line in input_lines(self._path):
                self._number += 1
                if line[0] in _POSITION:
                    self._read_position(line)
                elif line[0] not in "\n#":
                    self._read_other(line)
        except (ValueError, IndexError, KeyError) as error:
            raise self._error(
                f"not a line of a callgrind dump: {line.strip()[:80]!r}; "
                "it is damaged, collect it again"
            ) from error
        except OSError as error:
            raise PmuError(f"{self._path}: cannot be read: {error.strerror}") from error
        if not self._columns:
            raise PmuError(f"{self._path}: not a callgrind dump: it has no line 'events:'")
        if not self._complete:
            raise self._error(
                "the file ends without 'totals:': it is truncated (disk full, or the run was "
                "killed); collect it again"
            )
        return self._dump()

    def _dump(self) -> Dump:
        return Dump(
            self._columns, self._counts, self._outside, dict(self._calls), dict(self._objects)
        )

    def _error(self, message: str) -> PmuError:
        return PmuError(f"{self._path}:{self._number}: {message}")

    # Position lines

    def _read_position(self, line: str) -> None:
        """Address, line number if the dump has them, and costs: "0x400 5 1"."""
        fields = line.split()
        address = _address(fields[0], self._address)
        if self._call is not None:
            # Its costs are those of the callee, which are counted there. The next position is
            # relative to the one before, as if this line were not there.
            self._end_call(address)
        elif self._jump_follows:
            self._jump_follows = False
        else:
            self._address = address
            costs = [int(cost) for cost in fields[self._position_fields :]]
            if not (self._position_fields and 0 < len(costs) <= len(self._columns)):
                raise ValueError
            if self._in_program:
                _add(self._counts.setdefault(address, []), costs)
            else:
                self._objects[self._object] += costs[0]
                _add(self._outside, costs)

    def _end_call(self, address: int) -> None:
        """The position line of a call instruction."""
        assert self._call is not None
        count, target = self._call
        self._call = None
        to_program = self._callee_in_program
        self._callee_in_program = None
        if to_program or (to_program is None and self._in_program):
            # A recursive call's callee is called F'2.
            known_caller = self._in_program and self._callee != self._within
            self._calls[address if known_caller else None, target] += count

    # Other lines

    def _read_other(self, line: str) -> None:
        key, sign, text = line.partition("=")
        read = self._records.get(key)
        if read is None:
            key, sign, text = line.partition(":")
            read = self._headers.get(key)
        if read is not None and sign:
            read(text)
        elif ":" not in line.split(" ")[0]:
            raise ValueError
        # Else a header that changes nothing here: "version:", "cmd:", "desc:" and others.

    def _ignore(self, text: str) -> None:
        pass

    def _read_object(self, text: str) -> None:
        self._object = _name(text, self._object_names)
        self._in_program = self._object == self._program

    def _read_callee_object(self, text: str) -> None:
        self._callee_in_program = _name(text, self._object_names) == self._program

    def _read_function(self, text: str) -> None:
        # The name itself is not needed, but a callee's may be given by its number later.
        _name(text, self._function_names)

    def _read_callee(self, text: str) -> None:
        self._callee = _name(text, self._function_names)

    def _read_calls(self, text: str) -> None:
        """Count, the callee's address and its line number: "3 0x400 7"."""
        count, target = text.split()[:2]
        self._call = int(count), _address(target, self._address)

    def _read_jump(self, text: str) -> None:
        self._jump_follows = True

    def _read_part(self, text: str) -> None:
        self._address = 0

    def _read_positions(self, text: str) -> None:
        kinds = text.split()
        if kinds[:1] != ["instr"]:
            raise self._error(
                f"expected positions by instruction, found {kinds}; "
                "run callgrind with --dump-instr=yes"
            )
        self._position_fields = len(kinds)

    def _read_events(self, text: str) -> None:
        columns = tuple(text.split())
        if self._columns and self._columns != columns:
            raise self._error(f"expected the events of the part before, {self._columns}")
        self._columns = columns
        self._complete = False
        self._outside = self._outside or [0] * len(columns)
        self._totals = self._totals or [0] * len(columns)

    def _read_totals(self, text: str) -> None:
        for column, total in enumerate(text.split()):
            self._totals[column] += int(total)
        sums = [
            mine + others for mine, others in zip(self._dump().totals(), self._outside, strict=True)
        ]
        if sums != self._totals:
            raise self._error(
                f"the costs read so far add up to {sums}, "
                f"but the file's totals are {self._totals}; it is damaged, collect it again"
            )
        self._complete = True


def _address(text: str, base: int) -> int:
    """An address; "+n", "-n" and "*" are relative to `base`."""
    if text == "*":
        return base
    if text[0] in "+-":
        return base + int(text, 0)
    return int(text, 0)


def _name(text: str, names: dict[str, str]) -> str:
    """The name in "(1) name", which defines number 1, or in "(1)", which repeats it."""
    key, _, name = text.strip().partition(" ")
    if not key.startswith("("):
        return text
    if name:
        names[key] = name
    return names[key]


def _add(sums: list[int], costs: Sequence[int]) -> None:
    """Adds `costs`, column by column; columns that either lacks at its end are zero."""
    if len(sums) < len(costs):
        sums.extend([0] * (len(costs) - len(sums)))
    for column, cost in enumerate(costs):
        sums[column] += cost
