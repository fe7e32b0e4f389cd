# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How much of the code in an object file would find data in a PMU profile."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.execution.llvm import stock_tool
from compiler_opt_perf.pmu.disassembly import disassemble
from compiler_opt_perf.pmu.errors import PmuError
from compiler_opt_perf.pmu.events import Event
from compiler_opt_perf.pmu.profile import Profile
from compiler_opt_perf.pmu.sample_profile import FunctionSamples
from compiler_opt_perf.pmu.symbolize import CallSite, Line, Location, symbolize

Stack = tuple[str, tuple[CallSite, ...]]


@dataclass(frozen=True)
class Lookups:
    """What became of looking up some places or counts.

    Attributes:
      exact: found with the same inline stack.
      flattened: found for the same function and line in other inline stacks only.
      missing: neither.
    """

    exact: int
    flattened: int
    missing: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.exact + self.flattened + self.missing


@dataclass(frozen=True)
class Coverage:
    """How code and profile meet.

    Attributes:
      functions: functions of the code, inlined ones included, and how many the profile knows.
      instructions: of those functions that the profile knows, the instructions that have a source
        line, and whether the profile has the line (with a count, or as never executed).
      counts: for each event, the profile's counts in functions that the code has, and whether the
        code has their lines.
    """

    functions: tuple[int, int]
    instructions: Lookups
    counts: tuple[tuple[Event, Lookups], ...]


def coverage(profile: Profile, code: Path) -> Coverage:
    """Looks up every instruction of `code` in `profile`, and every count of `profile` in `code`.

    Args:
      code: executable, shared library, object file or LLVM bitcode, with debug info for profiling.
        Bitcode is compiled as it is, so that it should be optimised already.

    Raises:
      PmuError: not such a file, or it has no debug info.
      CommandError: one of LLVM's tools failed.
    """
    with tempfile.TemporaryDirectory(prefix="pmu-coverage-") as folder:
        addresses, locations = _locations(code, Path(folder))
    known = {
        (stack, line)
        for name, samples in profile.samples.functions.items()
        for stack, line, _ in walk(name, (), samples)
    }
    hot = set(profile.functions)
    exact = flattened = missing = 0
    here: set[tuple[Stack, Line]] = set()
    here_flat: set[tuple[str, Line]] = set()
    functions: set[str] = set()
    for address in addresses:
        location = locations.get(address)
        if location is None:
            continue
        innermost = location.call_sites[-1].callee if location.call_sites else location.function
        functions.update((location.function, innermost))
        here.add(((location.function, location.call_sites), location.line))
        here_flat.add((innermost, location.line))
        if innermost not in hot:
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
        (len(functions), len(functions & hot)),
        Lookups(exact, flattened, missing),
        tuple((event, Lookups(*row)) for event, row in zip(events, found, strict=True)),
    )


def walk(
    function: str, sites: tuple[CallSite, ...], samples: FunctionSamples
) -> Iterator[tuple[Stack, Line, list[int]]]:
    """All lines in `samples`, with their inline stacks."""
    for line, counts in samples.lines.items():
        yield (function, sites), line, counts
    for site, inlined in samples.callees.items():
        yield from walk(function, (*sites, site), inlined)


def _locations(code: Path, folder: Path) -> tuple[list[int], dict[int, Location]]:
    """The addresses of all instructions, and the locations of those that have one."""
    try:
        with code.open("rb") as stream:
            start = stream.read(20)
    except OSError as error:
        raise PmuError(f"{code}: cannot be read: {error.strerror}") from error
    linked = code
    # Bitcode, bare or in a wrapper.
    if start[:4] in (b"BC\xc0\xde", b"\xde\xc0\x17\x0b"):
        linked = folder / "object"
        run_command([stock_tool("llc"), "-O2", "-filetype=obj", code, "-o", linked], timeout_s=600)
        start = linked.read_bytes()[:20]
    if start[:4] != b"\x7fELF":
        raise PmuError(f"{code}: neither an ELF file nor LLVM bitcode")
    if int.from_bytes(start[16:18], "little") == 1:
        # The sections of an object file all begin at address 0. Linking puts them apart; what is
        # undefined does not matter.
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
    addresses = disassemble(linked).addresses
    try:
        return addresses, symbolize(linked, addresses).locations
    except PmuError as error:
        raise PmuError(f"{code}: {str(error).partition(': ')[2]}") from error


def describe(found: Coverage, name: str) -> str:
    """The coverage as text."""
    everything, known = found.functions
    lines = [
        f"{name}: {everything} functions (inlined ones included), {known} of them in the profile",
        "",
        f"{'':32}{'all':>18}{'exact':>10}{'flattened':>11}{'missing':>9}",
        _row("instructions of those", found.instructions),
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
