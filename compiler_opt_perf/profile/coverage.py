# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures how much of an object file's code has data in a PMU profile."""

import tempfile
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from compiler_opt_perf.binary.disassembly import disassemble
from compiler_opt_perf.binary.elf import BinaryError
from compiler_opt_perf.binary.symbolize import CallSite, DeclaredAt, Line, Symbols, symbolize
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.events import Event
from compiler_opt_perf.profile.function_table import UNKNOWN, control_flow_checksums, guid
from compiler_opt_perf.profile.profile import Profile
from compiler_opt_perf.profile.sample_profile import FunctionSamples
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.files import open_input
from compiler_opt_perf.run.llvm import stock_tool

Stack = tuple[str, tuple[CallSite, ...]]

# Code whose share of known functions is below this belongs to another program. The profiled
# program's own code has over 90% in the profile, or half before inlining; other code has none.
_OWN_PROGRAM = 0.25
_SYSTEM_HEADERS = "/usr/"
# Passes that code generation needs, for bitcode of the front end or of a pre-link compilation.
_TO_CODE = "coro-early,cgscc(coro-split),coro-cleanup"


@dataclass(frozen=True)
class Lookups:
    """Outcomes of looking up source locations.

    Attributes:
      exact: found with the same inline stack.
      flattened: found with the same function and line, but other inline stacks only.
      missing: not found.
    """

    exact: int
    flattened: int
    missing: int

    @property
    def total(self) -> int:
        """The number of lookups."""
        return self.exact + self.flattened + self.missing


@dataclass(frozen=True)
class FunctionCoverage:
    """Numbers of functions in the code, by what the profile knows about them.

    Attributes:
      total: all functions, inlined ones included.
      executed: functions with samples.
      unexecuted: functions that were profiled and did not run.
      own: functions except `main` and those from system headers. 0 if the profile has no function
        table.
      own_known: own functions that the profile knows by name and does not place in another file.
      comparable: functions with a control-flow checksum in both code and profile.
      changed: comparable functions whose checksums differ: their samples belong to other code.
      moved: functions whose file or first line differs from the profile's, without those from
        system headers.
    """

    total: int
    executed: int
    unexecuted: int
    own: int
    own_known: int
    comparable: int
    changed: int
    moved: int

    @property
    def unknown(self) -> int:
        """Functions that the profiled binary did not have."""
        return self.total - self.executed - self.unexecuted

    @property
    def warning(self) -> str | None:
        """A warning if the profile belongs to another program or source version; else None."""
        if self.own_known < _OWN_PROGRAM * self.own:
            return (
                f"The profile is of another program: it knows {self.own_known} of the {self.own} "
                "functions here that are neither main nor from headers of the system. What is "
                "found belongs to functions with the same names."
            )
        parts = []
        if self.changed:
            parts.append(f"with another control flow: {self.changed}")
        if self.moved:
            parts.append(f"at another line or in another file: {self.moved}")
        if not parts:
            return None
        return (
            f"The source is not the profiled one: functions {'; '.join(parts)}. Collect the "
            "profile again."
        )


@dataclass(frozen=True)
class Coverage:
    """How well code and profile match.

    Attributes:
      functions: numbers of functions in the code.
      instructions: lookups in the profile, for instructions that have a source line and belong to
        functions with samples. A line with a count of zero is found.
      unexecuted: instructions with a source line, in functions that did not run.
      counts: for each event, lookups in the code, weighted by the profile's counts in functions
        that the code has.
    """

    functions: FunctionCoverage
    instructions: Lookups
    unexecuted: int
    counts: tuple[tuple[Event, Lookups], ...]


def coverage(profile: Profile, code: Path) -> Coverage:
    """Looks up every instruction of `code` in `profile`, and every count of `profile` in `code`.

    Args:
      code: executable, shared library, object file or LLVM bitcode, with debug info for profiling.
        Bitcode is not optimised here, so it should be optimised already.

    Raises:
      PmuError, BinaryError: the file is of another kind, or has no debug info.
      CommandError: one of LLVM's tools failed.
    """
    with tempfile.TemporaryDirectory(prefix="pmu-coverage-") as folder:
        addresses, symbols, checksums = _symbols(code, Path(folder))
    known = {
        (stack, line)
        for name, samples in profile.samples.functions.items()
        for stack, line, _ in walk(name, (), samples)
    }
    hot = set(profile.functions)
    exact = flattened = missing = unexecuted = 0
    here: set[tuple[Stack, Line]] = set()
    here_flat: set[tuple[str, Line]] = set()
    functions: set[str] = set()
    for address in addresses:
        location = symbols.locations.get(address)
        if location is None:
            continue
        innermost = location.call_sites[-1].callee if location.call_sites else location.function
        functions.update((location.function, *(site.callee for site in location.call_sites)))
        here.add(((location.function, location.call_sites), location.line))
        here_flat.add((innermost, location.line))
        if innermost not in hot:
            unexecuted += profile.did_not_run(innermost)
            continue
        if ((location.function, location.call_sites), location.line) in known:
            exact += 1
        elif location.line in profile.functions[innermost]:
            flattened += 1
        else:
            missing += 1
    events = profile.samples.events
    found = [[0, 0, 0] for _ in events]
    for name, samples in profile.samples.functions.items():
        for stack, line, counts in walk(name, (), samples):
            innermost = stack[1][-1].callee if stack[1] else name
            if innermost not in functions:
                continue
            outcome = 0 if (stack, line) in here else 1 if (innermost, line) in here_flat else 2
            for row, count in zip(found, counts, strict=True):
                row[outcome] += count
    return Coverage(
        _functions(profile, functions, symbols.sources, checksums),
        Lookups(exact, flattened, missing),
        unexecuted,
        tuple((event, Lookups(*row)) for event, row in zip(events, found, strict=True)),
    )


def _functions(
    profile: Profile,
    names: Set[str],
    sources: Mapping[str, DeclaredAt],
    checksums: Mapping[str, int],
) -> FunctionCoverage:
    """Counts the functions `names` of the code by what `profile` knows about them.

    Args:
      names: linkage names.
      sources: the functions' first lines in the code.
      checksums: the functions' control-flow checksums in the code.
    """
    table = profile.table.checksums if profile.table is not None else {}
    pairs = [(checksums[name], table.get(guid(name), UNKNOWN)) for name in names & checksums.keys()]
    comparable = [pair for pair in pairs if UNKNOWN not in pair]
    private = {name for name in names if not sources[name].file.startswith(_SYSTEM_HEADERS)}
    # Only file names are compared: the source folder may have moved.
    elsewhere = {
        name
        for name in private & profile.sources.keys()
        if Path(sources[name].file).name != Path(profile.sources[name].file).name
    }
    at_another_line = {
        name
        for name in private & profile.sources.keys()
        if sources[name].line != profile.sources[name].line
    }
    own = private - {"main"} if profile.table is not None else set()
    known = {name for name in own if name in profile.executed or profile.did_not_run(name)}
    return FunctionCoverage(
        total=len(names),
        executed=len(names & profile.executed),
        unexecuted=sum(map(profile.did_not_run, names)),
        own=len(own),
        own_known=len(known - elsewhere),
        comparable=len(comparable),
        changed=sum(here != there for here, there in comparable),
        moved=len(elsewhere | at_another_line),
    )


def walk(
    function: str, sites: tuple[CallSite, ...], samples: FunctionSamples
) -> Iterator[tuple[Stack, Line, list[int]]]:
    """Yields each line in `samples` with its inline stack and counts."""
    for line, counts in samples.lines.items():
        yield (function, sites), line, counts
    for site, inlined in samples.callees.items():
        yield from walk(function, (*sites, site), inlined)


def _symbols(code: Path, folder: Path) -> tuple[list[int], Symbols, dict[str, int]]:
    """Disassembles and symbolises code.

    Returns:
      The addresses of all instructions, their symbols, and the control-flow checksums by linkage
      name, for functions that have one.
    """
    try:
        with open_input(code) as stream:
            start = stream.read(20)
    except OSError as error:
        raise PmuError(f"{code}: cannot be read: {error.strerror}") from error
    linked = code
    # Bitcode, bare or in a wrapper.
    if start[:4] in (b"BC\xc0\xde", b"\xde\xc0\x17\x0b"):
        linked = folder / "object"
        _compile(code, linked, folder)
        start = linked.read_bytes()[:20]
    if start[:4] != b"\x7fELF":
        raise PmuError(f"{code}: neither an ELF file nor LLVM bitcode")
    if int.from_bytes(start[16:18], "little") == 1:
        # All sections of an object file begin at address 0; linking gives them distinct addresses.
        # Undefined symbols do not matter.
        obj, linked = linked, folder / "linked"
        run_command(
            [
                stock_tool("ld.lld"),
                "--noinhibit-exec",
                "--unresolved-symbols=ignore-all",
                "--entry=0",
                obj,
                "-o",
                linked,
            ],
            timeout_s=600,
        )
    try:
        addresses = disassemble(linked).addresses
        return addresses, symbolize(linked, addresses), control_flow_checksums(linked)
    except (BinaryError, PmuError) as error:
        raise PmuError(f"{code}: {str(error).partition(': ')[2]}") from error


def _compile(bitcode: Path, output: Path, folder: Path) -> None:
    """Compiles bitcode to an object file without optimising it. Raises CommandError."""
    # With split LTO units (-fsanitize=cfi, say) the second module has the virtual tables and copies
    # of the first module's functions.
    first, split = folder / "first.bc", folder / "split.bc"
    commands: list[list[str | Path]] = [
        [stock_tool("llvm-modextract"), "-b", "-n", "0", bitcode, "-o", first],
        [stock_tool("opt"), f"-passes={_TO_CODE}", first, "-o", split],
        [stock_tool("llc"), "-O2", "-filetype=obj", split, "-o", output],
    ]
    for argv in commands:
        run_command(argv, timeout_s=600)


def describe(found: Coverage, name: str) -> str:
    """The coverage as text."""
    functions = found.functions
    changed = (
        f"; of {functions.comparable} with a checksum in both, {functions.changed} have another "
        "control flow than when profiled"
        if functions.comparable
        else ""
    )
    lines = [
        f"{name}: {functions.total} functions (inlined ones included): {functions.executed} with "
        f"samples, {functions.unexecuted} that did not run, {functions.unknown} that the profile "
        f"does not know{changed}",
        *([functions.warning] if functions.warning else []),
        "",
        f"{'':32}{'all':>18}{'exact':>10}{'flattened':>11}{'missing':>9}",
        _row("instructions of those that ran", found.instructions),
        f"{'instructions of those that did not':40}{found.unexecuted:10,}  known not to run",
        "counts of the profile in functions of this code:",
        *(_row("  " + event.name, lookups) for event, lookups in found.counts),
    ]
    return "\n".join(lines) + "\n"


def _row(name: str, lookups: Lookups) -> str:
    def share(part: int) -> str:
        return f"{100 * part / lookups.total:.1f}%" if lookups.total else "-"

    return (
        f"{name:32}{lookups.total:18,}{share(lookups.exact):>10}{share(lookups.flattened):>11}"
        f"{share(lookups.missing):>9}"
    )
