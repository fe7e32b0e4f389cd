# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which lookups in a PMU profile succeed in compilations unlike the profiled one, and why not all?

The profile is of one run of the program, built at -O2. Compilations at other levels, with other
profiles and with ThinLTO look up call sites, where the inliner decides about them, and loads and
conditional branches, just before register allocation.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from absl import logging

from benchmarks.common import counters_profile, run_all, saved
from benchmarks.programs.workload import Built
from benchmarks.programs.workloads import COUNTED
from benchmarks.results import Cell, Table
from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.profile.coverage import Lookups, coverage
from compiler_opt_perf.profile.manifest import Manifest
from compiler_opt_perf.profile.profile import Profile
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.files import write_json
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.toolchain.installation import Toolchain

PROGRAMS = ("zstd", "lmdb", "lua", "bzip2")
FOUND = ("exact", "flattened")
# The first counts as known: the function was profiled and did not run.
REASONS = ("cold", "no location", "line 0", "unknown function", "unknown line")
_SITES = ("call sites", "calls", "loads", "branches", "evictions")
_MISSING = ("call sites", "loads", "branches")
# Events whose counts the code reaches or not, and their names in the table.
_EVENTS = {
    "executions": "executions",
    "loads": "loads executed",
    "conditional-branches": "branches executed",
}


@dataclasses.dataclass(frozen=True)
class Compilation:
    """How the program is compiled.

    Attributes:
      level: clang's option.
      counters: with the instrumented profile of the same run (-fprofile-use).
      samples: with the executions of the PMU profile (-fprofile-sample-use).
      thinlto: optimised at link time, each module in a process of its own (-fthinlto-index).
    """

    level: str = "-O2"
    counters: bool = False
    samples: bool = False
    thinlto: bool = False

    @property
    def name(self) -> str:
        """The compilation's name in the tables."""
        parts = {
            "instrumented PGO": self.counters,
            "sample PGO": self.samples,
            "ThinLTO": self.thinlto,
        }
        return " + ".join([self.level, *(part for part, given in parts.items() if given)])


COMPILATIONS = (
    *(Compilation(level) for level in ("-O2", "-O1", "-O3", "-Oz")),
    Compilation(counters=True),
    Compilation(samples=True),
    Compilation(thinlto=True),
    Compilation(counters=True, thinlto=True),
    Compilation(samples=True, thinlto=True),
)


def instrumented_profile(case: Built, folder: Path) -> Path:
    """Builds the program with counters, runs it, and returns the profile of its run."""
    clang = stock_tool("clang")
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    objects = _numbered(folder, case, ".o")
    instrument = ["-O2", "-fprofile-generate"]
    run_all(
        [
            [clang, *instrument, *unit, "-o", target]
            for unit, target in zip(case.units, objects, strict=True)
        ],
        case.directory,
    )
    binary, raw, merged = (folder / name for name in ("program", "raw", "counters.profdata"))
    run_command([clang, "-fuse-ld=lld", *instrument, *objects, *case.libraries, "-o", binary])
    counters_profile(binary, case.arguments, raw, merged)
    return merged


def lookups(
    case: Built,
    compilation: Compilation,
    tools: Toolchain,
    manifest: Path,
    counters: Path | None,
    folder: Path,
) -> dict[str, Any]:
    """Compiles the program and counts the lookups by outcome.

    Args:
      counters: the instrumented profile, for the compilations that use it.
      folder: for all that the compilers write; emptied first.

    Returns:
      Counts by outcome, `FOUND` or `REASONS`: "call sites", each weighted 1, and "calls", weighted
      by their executions if a profile of clang's tells them; "loads", "branches"; "evictions", by
      the remarks' PMUData. For "counts", the shares of `_EVENTS` that this code reaches.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    for stale in folder.iterdir():
        stale.unlink()

    profile = f"-pmu-profile={manifest.resolve()}"
    options = [
        *(compilation.level, *PROFILING_FLAGS.split()),
        # MIR can't be read again when two variables share a stack slot.
        "-gline-tables-only",
        # Development mode without a model takes the default decisions until a module has doubled.
        *("-mllvm", profile, "-mllvm", "-enable-ml-inliner=development"),
        *("-mllvm", "-training-log=/dev/null"),
        *("-fsave-optimization-record=yaml", "-foptimization-record-passes=pmu-profile"),
    ]
    if compilation.counters or compilation.samples:
        options.append("-fdiagnostics-show-hotness")
    if compilation.samples:
        events = {event.name: event for event in Manifest.load(manifest).events}
        executions = Manifest.load(manifest).file(events["executions"])
        options.append(f"-fprofile-sample-use={executions}")
    # The driver would compile .bc before it links.
    suffixes = (".thin.o" if compilation.thinlto else ".bc", ".yaml")
    bitcode, logs = (_numbered(folder, case, suffix) for suffix in suffixes)
    kind = ["-flto=thin"] if compilation.thinlto else ["-emit-llvm"]
    if compilation.counters:
        kind.append(f"-fprofile-use={counters}")
    run_all(
        [
            # The C driver does for C++, too: they differ only in linking.
            [tools.clang, *unit, *options, *kind, f"-foptimization-record-file={log}", "-o", target]
            for unit, target, log in zip(case.units, bitcode, logs, strict=True)
        ],
        case.directory,
    )
    if compilation.thinlto:
        bitcode = _import_and_optimise(case, options, tools, bitcode)

    llc = [str(tools.llc), "-relocation-model=pic", profile]
    # As clang: -Oz is an attribute of functions.
    llc.append(compilation.level if compilation.level in ("-O1", "-O3") else "-O2")
    objects, machine, decisions = (
        _numbered(folder, case, suffix) for suffix in (".o", ".mir", ".evict")
    )
    evictions = [
        *("-filetype=obj", "-regalloc-enable-advisor=development"),
        *("-regalloc-training-log=/dev/null", "-pass-remarks-filter=regalloc-ml"),
    ]
    run_all(
        [
            [*llc, *evictions, f"-pass-remarks-output={log}", str(source), "-o", str(target)]
            for source, target, log in zip(bitcode, objects, decisions, strict=True)
        ]
    )
    run_all(
        [
            [*llc, "-stop-before=greedy", str(source), "-o", str(target)]
            for source, target in zip(bitcode, machine, strict=True)
        ]
    )
    for file in machine:
        file.write_text(readable(file.read_text()))
    printed = run_all(
        [[*llc, "-run-pass=print-machine-pmu-profile", str(file), "-o", "-"] for file in machine]
    )
    together = folder / "together"
    run_command([stock_tool("ld.lld"), "-r", *objects, "-o", together], timeout_s=600)
    reached = coverage(Profile.load(manifest), together)
    sites: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for remark in remarks(folder.glob("*.yaml")):
        if found := re.search(r"^Name: +CallSite$", remark, re.MULTILINE):
            outcome = call_site(remark)
            sites[outcome] += 1
            if found := re.search(r"^Hotness: +(\d+)", remark, re.MULTILINE):
                calls[outcome] += int(found[1])
    result: dict[str, Any] = {"call sites": sites, "calls": calls}
    result |= machine_lookups(text for one in printed for text in one.stderr.splitlines())
    result["evictions"] = Counter(
        found[1]
        for remark in remarks(decisions)
        if (found := re.search(r"- PMUData: +(\w+)", remark))
    )
    result["counts"] = {
        event.name: _shares(looked_up)
        for event, looked_up in reached.counts
        if event.name in _EVENTS
    }
    return result


def readable(machine_code: str) -> str:
    """MIR without the marks of blocks whose address is taken.

    The parser refuses code whose only use of the address has gone since the mark was set.
    """
    mark = r"ir-block-address-taken %ir-block\.(?:\"[^\"]*\"|[\w.$-]+)"
    return re.sub(rf"{mark}, | \({mark}\)(?=:)|, {mark}", "", machine_code)


def _numbered(folder: Path, case: Built, suffix: str) -> list[Path]:
    return [folder / f"{number}{suffix}" for number in range(len(case.units))]


def _import_and_optimise(
    case: Built, options: list[str], tools: Toolchain, bitcode: list[Path]
) -> list[Path]:
    """ThinLTO's further steps: the linker's indices, then each module with its imports."""
    linker = [str(stock_tool("clang")), "-fuse-ld=lld", "-flto=thin", "-Wl,--thinlto-index-only"]
    program = str(bitcode[0].parent / "program")
    run_command([*linker, *map(str, bitcode), *case.libraries, "-o", program])
    targets, logs = (
        _numbered(bitcode[0].parent, case, suffix) for suffix in (".linked.bc", ".linked.yaml")
    )
    run_all(
        [
            [
                *(str(tools.clang), *options, "-x", "ir", str(module), "-c", "-emit-llvm"),
                *(f"-fthinlto-index={module}.thinlto.bc", f"-foptimization-record-file={log}"),
                *("-o", str(target)),
            ]
            for module, target, log in zip(bitcode, targets, logs, strict=True)
        ]
    )
    return targets


def remarks(paths: Iterable[Path]) -> Iterable[str]:
    """The YAML documents of remark files."""
    for path in paths:
        yield from path.read_text(errors="replace").split("\n--- ")


def call_site(remark: str) -> str:
    """The outcome (of `FOUND` and `REASONS`) in a remark that the inliner made before deciding."""
    if miss := re.search(r"- Miss: +'?([\w ]+)", remark):
        return miss[1]
    coverage = re.search(r"- pmu_coverage: +'(\d)'", remark)
    assert coverage is not None, remark
    return "exact" if coverage[1] == "2" else "flattened"


def machine_lookups(lines: Iterable[str]) -> dict[str, Counter[str]]:
    """Outcomes of the loads and branches that print-machine-pmu-profile printed."""
    sites = {"loads": "llc-miss-probability=", "branches": "branch-mispredict-rate="}
    outcomes: dict[str, Counter[str]] = {site: Counter() for site in sites}
    for line in lines:
        found = re.match(r"  \w+(?: .*)?: (?:missing \(([\w ]+)\)|(exact|flattened|cold)) ", line)
        for site, rate in sites.items():
            if found and rate in line:
                outcomes[site][found[1] or found[2]] += 1
    return outcomes


def _shares(looked_up: Lookups) -> list[float]:
    total = max(1, looked_up.total)
    return [looked_up.exact / total, looked_up.flattened / total]


def tables(results: dict[str, dict[str, Any]]) -> list[Table]:
    """Shares of lookups by program and compilation: what was found, and why the rest was not."""
    found, missed = [], []
    for program, compilations in results.items():
        for name, result in compilations.items():
            cells: list[Cell] = [f"{program}, {name}"]
            for site in _SITES:
                cells += _shares_of(result[site], FOUND)
            for event in _EVENTS:
                cells += [100 * share for share in result["counts"][event]]
            found.append(cells)
            cells = [f"{program}, {name}"]
            for site in _MISSING:
                cells += _shares_of(result[site], REASONS)
            missed.append(cells)
    head = {"program, level": "text"}
    shown = [f"{site}, {outcome}" for site in (*_SITES, *_EVENTS.values()) for outcome in FOUND]
    reasons = [f"{site}, {reason}" for site in _MISSING for reason in REASONS]
    return [
        Table.of(
            "found",
            "Shares with data, in the same inline stack (exact) and in other ones only "
            "(flattened). Calls are call sites weighted by executions. The last columns are shares "
            "of the profile's counts in functions that the code has.",
            {**head, **dict.fromkeys(shown, "percent:1")},
            found,
        ),
        Table.of(
            "missed",
            "Shares of lookups without data, by reason. Cold code was profiled and never ran.",
            {**head, **dict.fromkeys(reasons, "percent:1")},
            missed,
        ),
    ]


def _shares_of(counts: dict[str, int], outcomes: Sequence[str]) -> list[Cell]:
    """Shares of all lookups in percent; None if there are no lookups."""
    total = sum(counts.values())
    return [100 * counts.get(outcome, 0) / total if total else None for outcome in outcomes]


def study(programs: Sequence[str], folder: Path, toolchain: Toolchain) -> list[Table]:
    """Measures some of `PROGRAMS`; returns tables of all results in the folder."""
    for name in programs:
        own, path = folder / name, folder / f"{name}.pmu.json"
        case = COUNTED[name](own).build(own)
        collect(case.binary, case.arguments, path)
        counters = instrumented_profile(case, own / "instrumented")
        found = {}
        for compilation in COMPILATIONS:
            logging.info("%s, %s", name, compilation.name)
            found[compilation.name] = lookups(
                case, compilation, toolchain, path, counters, own / "lookups"
            )
            write_json(folder / f"{name}.lookups.json", found)
    return tables(saved(folder, PROGRAMS, ".lookups.json"))
