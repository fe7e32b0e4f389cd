# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures how close predicted instruction counts of candidates come to callgrind's.

Real programs, each compiled in several variants: other register allocation, other inlining, other
code generation. One run of the default variant is profiled and traced; `profile-count` and `count`
predict from that how many instructions each variant retires in the program's own object, and
callgrind counts them. The same is done for calls of some functions, predicted from profiles of
these calls alone and, for comparison, from the profile of the whole run. Counts are kept in the
output folder and not repeated. Writes OUTPUT/PROGRAM.json.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any

from absl import logging

from compiler_opt_perf.binary.address_map import ANALYSIS_FLAGS
from compiler_opt_perf.binary.elf import PROFILING_FLAGS, function_entries
from compiler_opt_perf.corpus.programs import source_checksums
from compiler_opt_perf.cost.evaluator import EVALUATORS, REPLAY_FLAGS, Context
from compiler_opt_perf.execution.command import CommandError, run_command
from compiler_opt_perf.execution.files import sha256, write_json
from compiler_opt_perf.execution.llvm import stock_tool
from compiler_opt_perf.execution.memo import memo, numbered
from compiler_opt_perf.pmu.collect import collect
from compiler_opt_perf.policies.problem import for_clang
from compiler_opt_perf.studies.common import counted_run, saved
from compiler_opt_perf.studies.variants import TOO_FEW_REGISTERS
from compiler_opt_perf.studies.variants import VARIANTS as ALLOCATIONS
from compiler_opt_perf.studies.workloads import COUNTED
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.traces.qemu import record
from compiler_opt_perf.traces.windows import write_windows

_FLAGS = ("-O2", *PROFILING_FLAGS.split(), *ANALYSIS_FLAGS.split(), "-march=x86-64-v2")
_SAME_CALLS = 0.01
_WINDOW = 4


@dataclass(frozen=True)
class Variant:
    """One way to compile.

    Attributes:
      kind: what differs from the default variant: "eviction", "inlining" or "other".
      flags: of clang.
      replays: whether block ids are kept, as `count` needs.
      by_entry: whether calls of single functions are counted, too; each function takes a run.
    """

    name: str
    kind: str = ""
    flags: tuple[str, ...] = ()
    replays: bool = True
    by_entry: bool = False


# Whose calls are counted, each function in a run of its own.
_BY_ENTRY = ("basic", "8 registers")
_EVICTIONS = ("basic", "spill for size", "no region splitting", "10 registers", "8 registers")
DEFAULT = Variant("default", by_entry=True)
VARIANTS: tuple[Variant, ...] = (
    DEFAULT,
    *(
        Variant(
            variant.name,
            "eviction",
            tuple(for_clang(variant.options)),
            by_entry=variant.name in _BY_ENTRY,
        )
        for variant in ALLOCATIONS
        if variant.name in _EVICTIONS
    ),
    Variant("-inline-threshold=0", "inlining", ("-mllvm", "-inline-threshold=0")),
    Variant("-inline-threshold=25", "inlining", ("-mllvm", "-inline-threshold=25")),
    Variant(
        "-inline-threshold=1000", "inlining", ("-mllvm", "-inline-threshold=1000"), by_entry=True
    ),
    Variant("-fno-inline", "inlining", ("-fno-inline",), by_entry=True),
    Variant("-Os", "inlining", ("-Os",), by_entry=True),
    Variant("-O3", "inlining", ("-O3",)),
    Variant("branch folding, tail duplication", "other", replays=False),
)


# By program, the functions whose calls are counted.
ENTRIES: dict[str, tuple[str, ...]] = {
    "zstd": ("ZSTD_compressBlock_lazy2_row", "ZSTD_encodeSequences", "HUF_compress4X_repeat"),
    "lua": ("luaH_resize", "str_gsub", "sort"),
    "sqlite": ("sqlite3BtreeInsert", "sqlite3BtreeTableMoveto"),
    "tcc": ("next_nomacro", "gen_op", "gen_opic", "save_reg_upstack"),
}


class Study:
    """One program's study, in a folder of its own."""

    def __init__(self, name: str, output: Path, toolchain: Toolchain):
        self.name = name
        self.entries = ENTRIES[name]
        self.folder = output / name
        # All variants run on the default variant's inputs.
        default = self._folder(DEFAULT)
        default.mkdir(parents=True, exist_ok=True)
        self.workload = COUNTED[name](default)
        self.toolchain = toolchain

    def run(self) -> dict[str, Any]:
        """Builds, profiles, predicts and counts; returns what OUTPUT/PROGRAM.json holds."""
        built: list[tuple[Variant, Path]] = []
        for variant in VARIANTS:
            try:
                built.append((variant, self._build(variant)))
            except CommandError as error:
                if TOO_FEW_REGISTERS not in str(error):
                    raise
                logging.warning("%s: %s is left out: %s", self.name, variant.name, error)
        base = built[0][1]
        context = self._recorded(base)
        variants = []
        for variant, binary in built:
            row: dict[str, Any] = {"name": variant.name, "kind": variant.kind}
            entries = _defined(binary, self.entries) if variant.by_entry else ()
            candidate = replace(context, entries=entries)
            cost = EVALUATORS["profile-count"].cost([binary], candidate)
            row["profile-count"] = cost.report["change"]
            row["entries"] = {entry: {"whole": cost.report["entries"][entry]} for entry in entries}
            row["count"] = self._replayed(binary, context) if variant.replays else None
            row["counted"] = self._counted(binary)["instructions"]
            for entry, found in row["entries"].items():
                profile = self.folder / f"{entry}.pmu.json"
                inside = replace(context, profile=profile)
                of_calls = EVALUATORS["profile-count"].cost([binary], inside)
                found["within"] = of_calls.report["entries"][entry]
                found["counted"] = self._counted(binary, entry)
            variants.append(row)
            logging.info("%s: %s: %s", self.name, variant.name, row)
        return {"variants": variants}

    def _replayed(self, binary: Path, context: Context) -> float | None:
        """The evaluator `count`; None where it refuses code in which it finds too few blocks."""
        try:
            return EVALUATORS["count"].cost([binary], context).total
        except CommandError as error:
            logging.info("%s", error)
            return None

    def _folder(self, variant: Variant) -> Path:
        return self.folder / variant.name.strip("-").replace(" ", "-").replace(",", "")

    def _build(self, variant: Variant) -> Path:
        """The program's binary."""
        options = [*_FLAGS, *(REPLAY_FLAGS if variant.replays else ()), *variant.flags]
        folder = self._folder(variant)
        folder.mkdir(parents=True, exist_ok=True)
        binary = folder / self.workload.program.name
        made = [binary] + [folder / "input"] * bool(self.workload.program.workload_inputs)
        inputs = {
            "options": (*options, *self.workload.flags),
            **source_checksums(self.workload.program, self.workload.tree),
            "clang": sha256(stock_tool("clang").resolve()),
        }

        def build() -> None:
            self.workload.build(folder, options)

        memo(folder / "built.json", inputs, NoneType, build, made)
        return binary

    def _recorded(self, base: Path) -> Context:
        """The profile and the trace of the default variant's run."""
        arguments = list(self.workload.arguments)
        profile, windows = self.folder / "run.pmu.json", self.folder / "run.bbwindows"
        of_calls = {entry: self.folder / f"{entry}.pmu.json" for entry in self.entries}
        inputs = {
            "binary": sha256(base),
            "arguments": arguments,
            "entries": self.entries,
            "window": _WINDOW,
        }

        def recorded() -> None:
            collect(base, arguments, profile)
            for entry, path in of_calls.items():
                collect(base, arguments, path, within=entry)
            trace = record(base, arguments, self.folder / "run.bbtrace")
            write_windows(trace, _WINDOW, windows)

        made = [profile, *of_calls.values(), windows]
        memo(self.folder / "recorded.json", inputs, NoneType, recorded, made)
        return Context(
            tool=self.toolchain.trace_cost,
            trace=windows,
            profile=profile,
            base=base,
            threads=1,
        )

    def _counted(self, binary: Path, entry: str = "") -> dict[str, int | float]:
        """Instructions of the program's object, counted by callgrind.

        With `entry`, only within its calls; then also their number, and the instructions of one.
        """
        inputs = {"binary": sha256(binary), "arguments": self.workload.arguments, "entry": entry}
        path = numbered(self.folder / "counts", inputs)
        return memo(path, inputs, dict[str, int | float], partial(self._count, binary, entry))

    def _count(self, binary: Path, entry: str) -> dict[str, int | float]:
        inside = ["--collect-atstart=no", f"--toggle-collect={entry}"] if entry else []
        dump = counted_run(binary, self.workload.arguments, self.folder, inside)
        found: dict[str, int | float] = {"instructions": dump.totals()[0]}
        if entry:
            addresses = function_entries(binary, entry)
            calls = sum(n for (_, callee), n in dump.calls.items() if callee in addresses)
            found |= {"calls": calls, "instructions": dump.totals()[0] / calls if calls else 0.0}
        return found


def _defined(binary: Path, functions: Sequence[str]) -> tuple[str, ...]:
    """The functions that are not inlined everywhere."""
    listed = run_command([stock_tool("llvm-nm"), "--format=just-symbols", binary], timeout_s=60)
    return tuple(name for name in functions if name in listed.stdout.splitlines())


def tables(results: dict[str, dict[str, Any]]) -> str:
    """The results in Markdown.

    Changes are relative to the default variant's instructions. Predicted instructions are the
    default variant's plus the predicted change; errors are relative to what callgrind counted.
    """

    def error(base: int, change: float, counted: int) -> float:
        return (base + change) / counted - 1

    rows = [
        "| program | variant | callgrind | `profile-count` | error | `count` | error |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, result in results.items():
        base = result["variants"][0]
        of = base["counted"]
        rows.append(f"| {name} | {base['name']} | {of:,} | | | | |")
        for row in result["variants"][1:]:
            cells = [f"{row['counted'] / of - 1:+.2%}"]
            replayed = None if row["count"] is None else row["count"] - base["count"]
            for change in (row["profile-count"], replayed):
                if change is None:
                    cells += ["–", "–"]
                else:
                    cells += [f"{change / of:+.2%}", f"{error(of, change, row['counted']):+.2%}"]
            rows.append(f"| | {row['name']} | " + " | ".join(cells) + " |")
    rows += ["", "| program | kind | largest error | median |", "|---|---|---|---|"]
    for name, result in results.items():
        base = result["variants"][0]["counted"]
        for kind in dict.fromkeys(row["kind"] for row in result["variants"][1:]):
            errors = [
                abs(error(base, row["profile-count"], row["counted"]))
                for row in result["variants"]
                if row["kind"] == kind
            ]
            rows.append(
                f"| {name} | {kind} | {max(errors):.2%} | {statistics.median(errors):.2%} |"
            )
    rows += [
        "",
        "| program | function | calls | variant | callgrind | predicted | error | whole run |",
        "|---" * 8 + "|",
    ]
    for name, result in results.items():
        for entry in result["variants"][0]["entries"]:
            default = result["variants"][0]["entries"][entry]
            for row in result["variants"]:
                found = row["entries"].get(entry)
                if found is None or not found["counted"]["calls"]:
                    continue
                each = {way: found[way]["instructions"] for way in ("counted", "within", "whole")}
                calls = found["counted"]["calls"]
                cells = [name, f"`{entry}`", f"{calls:,}", row["name"]]
                for way in ("counted", "within"):
                    change = each[way] / default[way]["instructions"] - 1
                    cells.append(f"{each[way]:,.1f}" if found is default else f"{change:+.2%}")
                # Calls that the default variant inlines are not in its profile.
                same = abs(calls / default["counted"]["calls"] - 1) < _SAME_CALLS
                for way in ("within", "whole"):
                    off = each[way] / each["counted"] - 1
                    cells.append(f"{off:+.2%}" if same else "other calls")
                rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def study(programs: Sequence[str], output: Path, toolchain: Toolchain) -> str:
    """Studies some of the programs; returns tables of all results in the folder, in Markdown."""
    output = output.resolve()
    for name in programs:
        write_json(output / f"{name}.json", Study(name, output, toolchain).run())
    return tables(saved(output, ENTRIES))
