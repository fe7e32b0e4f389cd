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
      counts: link-time address of each executed instruction -> its counts, in the order of
        `columns`; trailing zeros may be missing.
      outside: for each column, the counts in other objects (shared libraries, the loader).
      calls: (address of the call instruction, address of the callee) -> number of calls, both in
        the program. The caller is None for calls from other objects.
      objects: name of each other object -> its counts of the first column; "???" is code that was
        generated at run time.
    """

    columns: tuple[str, ...]
    counts: dict[int, list[int]]
    outside: list[int]
    calls: dict[tuple[int | None, int], int]
    objects: dict[str, int] = field(default_factory=dict)

    def add(self, other: "Dump") -> None:
        """Adds the counts of another process. Raises PmuError if its events differ."""
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
        """Removes calls made while counting was off, which callgrind counts all the same.

        A call instruction cannot call more often than it was executed. Calls from other objects
        have no instruction here: they fill up the callee's executions at most.

        Args:
          entries: entry addresses of the function to which counting was limited. All of its
            outermost calls were counted; they have no caller if `read_dump` was given its name.
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
                # An indirect call's callees share its executions in proportion.
                count = count * min(ran(caller), made[caller]) // made[caller]
                known[callee] += count
            limited[caller, callee] = count
        for caller, callee in limited:
            if caller is None and callee not in entries:
                rest = max(ran(callee) - known[callee], 0)
                limited[caller, callee] = min(limited[caller, callee], rest)
        self.calls = {edge: count for edge, count in limited.items() if count}

    def totals(self) -> list[int]:
        """For each column, the sum of counts in the program."""
        totals = [0] * len(self.columns)
        for costs in self.counts.values():
            _add(totals, costs)
        return totals


def event_counts(dump: Dump) -> Counts:
    """Converts the dump's columns to the events of `EVENTS` that callgrind counts.

    Raises:
      PmuError: the dump lacks a column.
    """
    events = tuple(event for event in EVENTS if event.callgrind is not None)
    for event in events:
        if event.callgrind not in dump.columns:
            raise PmuError(
                f"event {event.name}: callgrind counted {', '.join(dump.columns)}, but not "
                f"{event.callgrind}; run it with --cache-sim=yes --branch-sim=yes"
            )
    columns = [dump.columns.index(event.callgrind or "") for event in events]
    by_address = {}
    for address, costs in dump.counts.items():
        present = len(costs)
        by_address[address] = [costs[i] if i < present else 0 for i in columns]
    return Counts(events, by_address, [dump.outside[i] for i in columns], dump.calls)


# First characters of position lines: costs of an instruction or of a call, or a jump.
_POSITION = frozenset("0123456789+-*")
# Records that do not change counts: source files, and details of calls and jumps.
_IGNORED = ("fl", "fi", "fe", "cfi", "cfl", "jfi", "jfn", "rcalls")


def read_dump(path: Path, program: Path, within: str | None = None) -> Dump:
    """Reads a callgrind dump of one or more parts, made with --dump-instr=yes.

    The format is the "Callgrind Format Specification" of valgrind's manual. The file is read line
    by line; counts by instruction are kept for `program` only.

    Args:
      path: the dump.
      program: path of the wanted object, as callgrind saw it.
      within: the function to which counting was limited; its outermost calls get no caller.

    Raises:
      PmuError: the file is not a dump, is truncated, or does not add up to its own totals. The
        message names the line.
    """
    return _DumpReader(path, program, within).read()


def read_dumps(paths: Sequence[Path], program: Path, within: str | None = None) -> Dump:
    """Reads the dumps of several processes and adds them up. See `read_dump`."""
    dump = read_dump(paths[0], program, within)
    for path in paths[1:]:
        dump.add(read_dump(path, program, within))
    return dump


class _DumpReader:
    """Reads one dump, with a method for each kind of line.

    A dump is a sequence of parts. A part has headers ("events: Ir Dr"), position lines, and its
    totals. "ob=" and "fn=" name the object and function of the position lines that follow. A
    position line is an address and its costs. After "calls=" the next position line is the call
    instruction, with the costs of the callee. After "jump=" or "jcnd=" it is the jump.
    """

    def __init__(self, path: Path, program: Path, within: str | None):
        self._path = path
        self._number = 0
        self._program = str(program)
        self._within = within
        # State of the current part.
        self._position_fields = 0
        self._columns: tuple[str, ...] = ()
        self._complete = True  # Its totals have been read.
        # State of the current position lines.
        self._object = "???"
        self._in_program = False
        self._address = 0
        self._jump_follows = False
        # The call on the next position line: its count and the callee's address; whether the
        # callee is in the program (None: in the caller's object); the callee's name.
        self._call: tuple[int, int] | None = None
        self._callee_in_program: bool | None = None
        self._callee = ""
        # Names by compressed number, such as "(1)".
        self._object_names: dict[str, str] = {}
        self._function_names: dict[str, str] = {}
        # Results.
        self._counts: dict[int, list[int]] = {}
        self._outside: list[int] = []
        self._calls: defaultdict[tuple[int | None, int], int] = defaultdict(int)
        self._objects: defaultdict[str, int] = defaultdict(int)
        self._totals: list[int] = []
        # Methods by the word before "=".
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
        # Methods by the word before ":".
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
        """Reads an address, an optional line number, and costs: "0x400 5 1"."""
        fields = line.split()
        address = _address(fields[0], self._address)
        if self._call is not None:
            # Its costs are the callee's, which has position lines of its own. The next address is
            # relative to the one before this line.
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
        """Counts the call whose position line is at `address`."""
        assert self._call is not None
        count, target = self._call
        self._call = None
        to_program = self._callee_in_program
        self._callee_in_program = None
        if to_program or (to_program is None and self._in_program):
            # callgrind names the callee of a recursive call F'2, so it is not an outermost call.
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
        # Headers such as "version:", "cmd:" and "desc:" are ignored.

    def _ignore(self, text: str) -> None:
        pass

    def _read_object(self, text: str) -> None:
        self._object = _name(text, self._object_names)
        self._in_program = self._object == self._program

    def _read_callee_object(self, text: str) -> None:
        self._callee_in_program = _name(text, self._object_names) == self._program

    def _read_function(self, text: str) -> None:
        # A later "cfn=" may repeat the name by its number.
        _name(text, self._function_names)

    def _read_callee(self, text: str) -> None:
        self._callee = _name(text, self._function_names)

    def _read_calls(self, text: str) -> None:
        """Reads the count, the callee's address and its line number: "3 0x400 7"."""
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
    """Parses an address; "+n", "-n" and "*" are relative to `base`."""
    if text == "*":
        return base
    if text[0] in "+-":
        return base + int(text, 0)
    return int(text, 0)


def _name(text: str, names: dict[str, str]) -> str:
    """Resolves a compressed name: "(1) name" defines number 1, and "(1)" repeats it."""
    key, _, name = text.strip().partition(" ")
    if not key.startswith("("):
        return text
    if name:
        names[key] = name
    return names[key]


def _add(sums: list[int], costs: Sequence[int]) -> None:
    """Adds `costs` to `sums`, column by column; missing trailing columns are zero."""
    if len(sums) < len(costs):
        sums.extend([0] * (len(costs) - len(sums)))
    for column, cost in enumerate(costs):
        sums[column] += cost
