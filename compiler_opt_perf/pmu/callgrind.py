# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The simulator back-end: runs a program under valgrind's callgrind and reads what it counted."""

import shlex
import shutil
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from absl import logging

from compiler_opt_perf.execution.command import run_command, signal_name
from compiler_opt_perf.execution.files import input_lines
from compiler_opt_perf.pmu.counts import Counts
from compiler_opt_perf.pmu.errors import PmuError
from compiler_opt_perf.pmu.events import EVENTS
from compiler_opt_perf.pmu.workload import run_workload

_STDERR_BYTES_SHOWN = 2000

# What valgrind says when it cannot go on, and what the user can do about it.
_KNOWN_FAILURES = {
    "Unrecognised instruction": (
        "valgrind does not know one of its instructions (AVX-512?); "
        "compile it, and the libraries it uses, for x86-64-v3 at most"
    ),
    "Possibly corrupted debuginfo": (
        "valgrind cannot read the debug info of a shared library that the program loads; "
        "point LD_LIBRARY_PATH to a copy made with llvm-objcopy --strip-debug"
    ),
}


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


@dataclass(frozen=True)
class Cache:
    """One cache of the simulated processor.

    Attributes:
      size: bytes.
      ways: associativity.
      line: bytes in a line.

    Raises:
      PmuError: the simulator has no such cache; it needs a power of two both as line size and as
        number of sets.
    """

    size: int
    ways: int
    line: int

    def __post_init__(self) -> None:
        if min(self.size, self.ways, self.line) <= 0:
            raise PmuError(f"cache {self}: size, ways and line size must be positive")
        if not _is_power_of_two(self.line) or self.line < 16:
            raise PmuError(f"cache {self}: the line size must be a power of two, at least 16 bytes")
        sets, rest = divmod(self.size, self.ways * self.line)
        if rest or not _is_power_of_two(sets):
            raise PmuError(
                f"cache {self}: size / (ways * line size) = "
                f"{self.size / (self.ways * self.line):g} sets, which must be a power of two; "
                "choose another size or number of ways"
            )

    def __str__(self) -> str:
        return f"{self.size},{self.ways},{self.line}"

    @classmethod
    def parse(cls, text: str) -> "Cache":
        """The cache written as "size,ways,line". Raises PmuError."""
        try:
            size, ways, line = (int(part) for part in text.split(","))
        except ValueError as error:
            raise PmuError(f"cache {text!r}: expected size,ways,line such as 32768,8,64") from error
        return cls(size, ways, line)


@dataclass(frozen=True)
class CacheGeometry:
    """The simulated caches: first level for instructions and data, last level for both.

    The last level defaults to one core's share of a server's, not to all of it: other cores are
    busy too. callgrind's own detection is never used, for it misreads recent processors.
    """

    i1: Cache = field(default_factory=lambda: Cache(32 * 1024, 8, 64))
    d1: Cache = field(default_factory=lambda: Cache(32 * 1024, 8, 64))
    ll: Cache = field(default_factory=lambda: Cache(2 * 1024 * 1024, 16, 64))

    def options(self) -> tuple[str, ...]:
        """callgrind's options for these caches."""
        return tuple(f"--{name}={cache}" for name, cache in self.as_dict().items())

    def as_dict(self) -> dict[str, str]:
        """The caches as in the manifest: {"I1": "32768,8,64", ...}."""
        return {"I1": str(self.i1), "D1": str(self.d1), "LL": str(self.ll)}


def options(geometry: CacheGeometry, within: str | None = None) -> tuple[str, ...]:
    """The options of valgrind that decide what is counted, without file names."""
    return (
        "--tool=callgrind",
        "--dump-instr=yes",
        "--cache-sim=yes",
        "--branch-sim=yes",
        *geometry.options(),
        "--combine-dumps=yes",
        "--trace-children=no",
        # A forked process goes on with its parent's counts; dumping sets them to zero.
        "--dump-before=fork",
        "--dump-before=vfork",
        "--dump-before=_Fork",
        # Otherwise the instructions of a PLT entry count as executions of the call itself.
        "--skip-plt=no",
        # No debugger will attach; its pipes would be left behind by a killed run.
        "--vgdb=no",
        *_only(within),
    )


def _only(function: str | None) -> tuple[str, ...]:
    """Counts only while the outermost call of a function is under way."""
    if function is None:
        return ()
    return ("--demangle=no", "--collect-atstart=no", f"--toggle-collect={function}")


def version() -> str:
    """The installed valgrind, as "valgrind-3.19.0".

    Raises:
      PmuError: there is none.
    """
    if shutil.which("valgrind") is None:
        raise PmuError("valgrind: not found on PATH; install it (apt-get install valgrind)")
    return run_command(["valgrind", "--version"], timeout_s=60).stdout.strip()


def simulate(
    program: Path,
    arguments: Sequence[str],
    directory: Path,
    geometry: CacheGeometry,
    *,
    within: str | None = None,
    stdin: Path | None = None,
    stdout: Path | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    expected_status: int = 0,
) -> list[Path]:
    """Runs `program` under callgrind; returns its dump, and one of each process that it forked.

    Threads are counted together. Of forked processes those are counted that end before the
    program does; the rest are killed. Programs that it starts run, but are not counted.

    Args:
      program: executable without debug info; valgrind 3.19 gives up on DWARF 5.
      arguments: of the program.
      directory: where dump, valgrind's messages and the program's diagnostics are written.
      geometry: caches to simulate.
      within: count only what calls of this function execute; its linkage name. Caches and branch
        predictor see the rest, too.
      stdin: the program's standard input; empty when None.
      stdout: where its standard output goes; discarded when None.
      cwd: the working directory it runs in.
      env: variables added to its environment.
      timeout_s: wall-clock limit in seconds.
      expected_status: the exit status of a run as it should be.

    Raises:
      PmuError: valgrind is missing, or the run failed, crashed, hung or left no dump.
    """
    version()
    # callgrind opens its dump at the end, in the working directory that the program is in then.
    directory = directory.resolve()
    messages = directory / "valgrind.log"
    diagnostics = directory / "stderr"
    command = [str(program.resolve()), *arguments]
    argv = [
        "valgrind",
        *options(geometry, within),
        f"--callgrind-out-file={directory}/callgrind.out.%p",
        f"--log-file={messages}",
        *command,
    ]
    name = program.name
    finished = run_workload(
        argv,
        name,
        "under callgrind",
        diagnostics=diagnostics,
        stdin=stdin,
        stdout=stdout,
        cwd=cwd,
        env=env,
        timeout_s=timeout_s,
    )
    status = finished.status
    dump = directory / f"callgrind.out.{finished.pid}"
    if status != expected_status or not dump.exists():
        _fail(name, command, status, expected_status, messages, diagnostics)
    logging.info(
        "%s: simulated in %.1f s (%.1f s of processor time), with %.0f MiB of memory",
        name,
        finished.seconds,
        finished.processor_seconds,
        finished.peak_mib,
    )
    forked = sorted(path for path in directory.glob("callgrind.out.*") if path != dump)
    if forked:
        logging.info("%s: forked %d processes, which are counted, too", name, len(forked))
    return [dump, *forked]


def _fail(
    name: str,
    command: Sequence[str],
    status: int,
    expected_status: int,
    messages: Path,
    diagnostics: Path,
) -> NoReturn:
    """Raises a PmuError that says why the run gave no profile."""
    log = messages.read_text(errors="replace") if messages.exists() else ""
    printed = diagnostics.read_bytes()[-_STDERR_BYTES_SHOWN:].decode(errors="replace").strip()
    reasons = [remedy for message, remedy in _KNOWN_FAILURES.items() if message in log]
    if status < 0:
        what = f"ended by {signal_name(-status)} under callgrind"
    elif status != expected_status:
        what = f"exit status {status} under callgrind, expected {expected_status}"
        if not reasons:
            reasons = ["does the same command work without the profiler?"]
    else:
        what = "callgrind left no dump"
        reasons = reasons or [log.strip()[-_STDERR_BYTES_SHOWN:]]
    details = "".join(f"; {reason}" for reason in reasons)
    shown = "".join(f"\n  {line}" for line in printed.splitlines())
    raise PmuError(f"{name}: {what}{details}{shown}\n  the command: {shlex.join(command)}")


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
            mine = self.counts.setdefault(address, costs)
            if mine is not costs:
                mine.extend([0] * (len(costs) - len(mine)))
                for column, cost in enumerate(costs):
                    mine[column] += cost
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
          entries: addresses of the function to whose calls counting was limited; `read_dump` with
            its name tells the outermost ones, which were all counted.
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
            for column, cost in enumerate(costs):
                totals[column] += cost
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


_POSITION = frozenset("0123456789+-*")
_IGNORED = ("fn=", "fl=", "fi=", "fe=", "cfn=", "cfi=", "cfl=", "jfi=", "jfn=", "rcalls=")


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
    wanted = str(program)
    columns: tuple[str, ...] = ()
    positions = 0
    counts: dict[int, list[int]] = {}
    outside: list[int] = []
    calls: defaultdict[tuple[int | None, int], int] = defaultdict(int)
    objects: defaultdict[str, int] = defaultdict(int)
    current = "???"
    claimed: list[int] = []
    complete = True  # The part's totals have been read.
    names: dict[str, str] = {}
    functions: dict[str, str] = {}
    callee = ""
    in_program = False
    callee_in_program: bool | None = None
    address = 0
    call: tuple[int, int] | None = None  # Count and target of the call on the next line.
    skip_position = False
    number = 0

    def decoded(names: dict[str, str], text: str) -> str:
        """Decodes "(1) name", which defines number 1, and "(1)", which repeats it."""
        key, _, name = text.strip().partition(" ")
        if not key.startswith("("):
            return text
        if name:
            names[key] = name
        return names[key]

    def moved(base: int, text: str) -> int:
        """An address; +n, -n and * are relative to the line before."""
        if text == "*":
            return base
        if text[0] in "+-":
            return base + int(text, 0)
        return int(text, 0)

    def add_up() -> None:
        dump = Dump(columns, counts, outside, calls)
        total = [mine + others for mine, others in zip(dump.totals(), outside, strict=True)]
        if total != claimed:
            raise PmuError(
                f"{path}:{number}: the costs read so far add up to {total}, "
                f"but the file's totals are {claimed}; it is damaged, collect it again"
            )

    try:
        for number, line in enumerate(input_lines(path), 1):
            if line[0] in _POSITION:
                fields = line.split()
                text = fields[0]
                here = moved(address, text)
                if call is not None:
                    # A call's costs are those of the callee, counted there already. The next
                    # position is relative to the one before, as if this line were not there.
                    count, target = call
                    call = None
                    to_program = in_program if callee_in_program is None else callee_in_program
                    callee_in_program = None
                    if to_program:
                        # A recursive call's callee is called F'2.
                        known_caller = in_program and callee != within
                        calls[here if known_caller else None, target] += count
                    continue
                if skip_position:
                    skip_position = False
                    continue
                address = here
                costs = [int(cost) for cost in fields[positions:]]
                if not 0 < positions < len(fields) <= positions + len(columns):
                    raise ValueError
                if not in_program:
                    objects[current] += costs[0]
                    for column, cost in enumerate(costs):
                        outside[column] += cost
                    continue
                known = counts.setdefault(address, costs)
                if known is not costs:
                    known.extend([0] * (len(costs) - len(known)))
                    for column, cost in enumerate(costs):
                        known[column] += cost
            elif within is not None and line.startswith(("fn=", "cfn=")):
                kind, _, text = line.partition("=")
                name = decoded(functions, text)
                callee = name if kind == "cfn" else callee
            elif line.startswith(_IGNORED) or line[0] in "\n#":
                continue
            elif line.startswith("calls="):
                count_text, target_text = line[6:].split()[:2]
                call = int(count_text), moved(address, target_text)
            elif line.startswith("ob="):
                current = decoded(names, line[3:])
                in_program = current == wanted
            elif line.startswith("cob="):
                callee_in_program = decoded(names, line[4:]) == wanted
            elif line.startswith(("jump=", "jcnd=")):
                skip_position = True
            elif line.startswith("part:"):
                address = 0
            elif line.startswith("positions:"):
                kinds = line.split()[1:]
                if kinds[:1] != ["instr"]:
                    raise PmuError(
                        f"{path}:{number}: expected positions by instruction, found {kinds}; "
                        "run callgrind with --dump-instr=yes"
                    )
                positions = len(kinds)
            elif line.startswith("events:"):
                found = tuple(line.split()[1:])
                if columns and columns != found:
                    raise PmuError(
                        f"{path}:{number}: expected the events of the part before, {columns}"
                    )
                columns = found
                complete = False
                outside = outside or [0] * len(columns)
                claimed = claimed or [0] * len(columns)
            elif line.startswith("totals:"):
                for column, text in enumerate(line.split()[1:]):
                    claimed[column] += int(text)
                add_up()
                complete = True
            elif ":" in line.split(" ")[0]:
                continue  # A header that changes nothing here (version:, cmd:, desc: ...).
            else:
                raise ValueError
    except (ValueError, IndexError, KeyError) as error:
        raise PmuError(
            f"{path}:{number}: not a line of a callgrind dump: {line.strip()[:80]!r}; "
            "it is damaged, collect it again"
        ) from error
    except OSError as error:
        raise PmuError(f"{path}: cannot be read: {error.strerror}") from error
    if not columns:
        raise PmuError(f"{path}: not a callgrind dump: it has no line 'events:'")
    if not complete:
        raise PmuError(
            f"{path}:{number}: the file ends without 'totals:': it is truncated (disk full, or "
            "the run was killed); collect it again"
        )
    return Dump(columns, counts, outside, dict(calls), dict(objects))


def read_dumps(paths: Sequence[Path], program: Path, within: str | None = None) -> Dump:
    """Reads the dumps of several processes and adds them up. As `read_dump`, and raises as it."""
    dump = read_dump(paths[0], program, within)
    for path in paths[1:]:
        dump.add(read_dump(path, program, within))
    return dump
