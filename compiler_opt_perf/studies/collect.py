# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures PMU collection on real programs: how slow, how large, how much has a location.

    python -m compiler_opt_perf.studies.collect [--only=zstd,lua]
        [--output=build/bench-collect]
        [--nocollect]

Prints tables in Markdown, of all results in the folder. Programs are built from Debian's sources;
the compiler is the patched one of `cop toolchain build --set=dev`.
"""

import dataclasses
import json
import logging as python_logging
import os
import random
import re
import resource
import shlex
import statistics
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from absl import flags, logging

from compiler_opt_perf.cli.verb import parse_program
from compiler_opt_perf.corpus.programs import (
    PROGRAMS,
    BuiltProgram,
    Program,
    build_program,
    program_sources,
)
from compiler_opt_perf.execution.command import CompletedCommand, run_command
from compiler_opt_perf.execution.files import write_json
from compiler_opt_perf.execution.llvm import LLVM_PREFIX, stock_tool
from compiler_opt_perf.pmu.binary import PROFILING_FLAGS
from compiler_opt_perf.pmu.collect import collect
from compiler_opt_perf.toolchain.layout import BUILD
from compiler_opt_perf.toolchain.source import debian_source

_NATIVE_RUNS = 5
_SEED = 1

# Where clang -O2 spends time, and what of the overlay's own runs then; relative to llvm/lib.
LLVM_UNITS = (
    "Analysis/BasicAliasAnalysis",
    "Analysis/InlineAdvisor",
    "Analysis/InstructionSimplify",
    "Analysis/ScalarEvolution",
    "Analysis/ValueTracking",
    "CodeGen/LiveInterval",
    "CodeGen/MachineInstr",
    "CodeGen/RegAllocEvictionAdvisor",
    "CodeGen/RegAllocGreedy",
    "CodeGen/SelectionDAG/SelectionDAG",
    "IR/ConstantRange",
    "IR/Value",
    "Support/APInt",
    "Support/FoldingSet",
    "Support/SmallPtrSet",
)

# Of these, what is compiled again for lookups (hits.py); the rest takes a minute or two each.
LOOKED_UP = (
    "Analysis/BasicAliasAnalysis",
    "CodeGen/LiveInterval",
    "CodeGen/MachineInstr",
    "IR/Value",
    "Support/APInt",
    "Support/FoldingSet",
    "Support/SmallPtrSet",
)

# A database, beside the compressor and the interpreter that the corpus has: a loader of LMDB.
LMDB = Program(
    name="mdb_load",
    source_package="lmdb",
    sources=(
        "libraries/liblmdb/mdb.c",
        "libraries/liblmdb/midl.c",
        "libraries/liblmdb/mdb_load.c",
    ),
    libraries=("-lpthread",),
)

_LUA = """
local function tree(depth)
  if depth == 0 then return {} end
  return { tree(depth - 1), tree(depth - 1) }
end
local function size(t) return t[1] and 1 + size(t[1]) + size(t[2]) or 1 end
local total = 0
for i = 1, 10 do total = total + size(tree(12)) end
local words, state = {}, 42
for i = 1, 20000 do
  state = (state * 1103515245 + 12345) % 2147483648
  words[i] = ("%08x"):format(state)
end
table.sort(words)
local seen = {}
for _, word in ipairs(words) do
  local key = word:sub(1, 3)
  seen[key] = (seen[key] or 0) + 1
end
local text = table.concat(words, " ")
local _, matches = text:gsub("%x%x(%d+)", "<%1>")
print(total, matches)
"""


@dataclasses.dataclass(frozen=True)
class Case:
    """A program, one run of it, and how its code is compiled.

    Attributes:
      binary: built at -O2 for profiling.
      arguments: of the run.
      units: for each translation unit, clang's arguments but for level, profile and output.
      directory: where they are compiled.
      libraries: options to link them with; none for parts of a program.
    """

    binary: Path
    arguments: list[str]
    units: list[list[str]]
    directory: Path
    libraries: Sequence[str] = ()


def build_case(program: Program, output: Path) -> tuple[BuiltProgram, list[list[str]], Path]:
    """Builds one of the small programs."""
    tree = debian_source(program.source_package)
    built = build_program(program, tree, output, clang=stock_tool("clang"))
    includes = [f"-I{(output / 'generated').resolve()}"] if program.generated else []
    units = [
        [*program.flags, *includes, "-w", "-c", str(source)]
        for source in program_sources(program, tree)
    ]
    return built, units, tree


def compressor(output: Path) -> Case:
    """zstd -9 on its own source."""
    built, units, tree = build_case(PROGRAMS["zstd"], output)
    arguments = ["-9", "--single-thread", "-f", "-q", "-o", str(output / "out.zst")]
    return Case(
        built.binary,
        [*arguments, str(built.workload_input)],
        units,
        tree,
        PROGRAMS["zstd"].libraries,
    )


def database(output: Path) -> Case:
    """40,000 random records, in the text form of Berkeley DB's and LMDB's dumps."""
    built, units, tree = build_case(LMDB, output)
    records = output / "records"
    write_records(records)
    arguments = ["-n", "-f", str(records), str(output / "database")]
    return Case(built.binary, arguments, units, tree, LMDB.libraries)


def write_records(path: Path) -> None:
    """The database's input, the same each time."""
    generator = random.Random(_SEED)
    with path.open("w") as stream:
        stream.write("VERSION=3\nformat=bytevalue\ntype=btree\nmapsize=268435456\nHEADER=END\n")
        for _ in range(40_000):
            stream.write(f" {generator.randbytes(12).hex()}\n {generator.randbytes(100).hex()}\n")
        stream.write("DATA=END\n")


def interpreter(output: Path) -> Case:
    """Lua with trees, sorting and pattern matching."""
    built, units, tree = build_case(PROGRAMS["lua"], output)
    (output / "script.lua").write_text(_LUA)
    return Case(built.binary, [str(output / "script.lua")], units, tree, PROGRAMS["lua"].libraries)


def compiler(output: Path) -> Case:
    """The patched clang -O2 on one file of zstd.

    Debian's archives have no debug info: the translation units of `LLVM_UNITS`, where a good part
    of the time goes, are compiled anew for profiling and linked as the overlay links its own.
    """
    overlay, tree = BUILD / "overlay", BUILD / "llvm-22.1.8"
    database = json.loads(run_command(["ninja", "-C", overlay, "-t", "compdb"]).stdout)
    of_overlay = {entry["file"]: entry for entry in database if "-c" in entry["command"].split()}
    # All units have the same options; these come before the dependency file and the output.
    words = shlex.split(of_overlay[str(tree / "llvm/lib/Passes/PassBuilder.cpp")]["command"])
    launcher = words[: next(i for i, word in enumerate(words) if word.startswith("-"))]
    shared = words[len(launcher) : words.index("-MD")]
    files = {unit: str(tree / f"llvm/lib/{unit}.cpp") for unit in LLVM_UNITS}
    objects = output / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    level = ("-O2", *PROFILING_FLAGS.split())
    mine = [objects / f"{number}.o" for number in range(len(files))]
    commands: list[list[str | Path]] = [
        [*launcher, *shared, *level, "-c", file, "-o", target.resolve()]
        for file, target in zip(files.values(), mine, strict=True)
    ]
    run_all(commands, output)

    stock = run_command([stock_tool("llvm-config"), "--link-static", "--system-libs"]).stdout
    parts = ("common.dir/", "main_clang.dir/", "models_dev.dir/")
    theirs = [
        overlay / entry["output"]
        for file, entry in of_overlay.items()
        if any(part in entry["output"] for part in parts) and file not in files.values()
    ]
    archives = sorted(
        file
        for pattern in ("libclang*.a", "libLLVM*.a", "libPolly*.a")
        for file in (LLVM_PREFIX / "lib").glob(pattern)
    )
    binary = output / "clang"
    options = ["-fuse-ld=lld", "-Wl,--gc-sections,--as-needed,--build-id,--start-group"]
    run_command(
        [stock_tool("clang++"), *options, *mine, *theirs, *archives, *stock.split(), "-o", binary],
        timeout_s=600,
    )

    source = output / "huf_compress.i"
    zstd = debian_source("libzstd") / "lib/compress/huf_compress.c"
    run_command([stock_tool("clang"), "-E", "-P", zstd, "-o", source], timeout_s=60)
    arguments = ["-cc1", "-triple", "x86_64-pc-linux-gnu", "-O2", "-emit-obj", "-x", "c"]
    arguments += ["-o", str(output / "out.o"), str(source)]
    units = [[*shared, "-c", files[unit]] for unit in LOOKED_UP]
    return Case(binary, arguments, units, output)


CASES = {"zstd": compressor, "lmdb": database, "lua": interpreter, "clang": compiler}


def run_all(
    commands: Sequence[Sequence[str | Path]], cwd: Path | None = None
) -> list[CompletedCommand]:
    """Runs commands on all cores."""

    def run(command: Sequence[str | Path]) -> CompletedCommand:
        return run_command(command, cwd=cwd, timeout_s=1800)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(run, commands))


def processor_seconds() -> float:
    """User and system time so far, of this process and of all that it started."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in usage)


def native_seconds(argv: Sequence[str | Path]) -> float:
    """Median processor time of a few runs."""
    seconds = []
    for _ in range(_NATIVE_RUNS):
        before = processor_seconds()
        subprocess.run([str(word) for word in argv], stdout=subprocess.DEVNULL, check=True)
        seconds.append(processor_seconds() - before)
    return statistics.median(seconds)


class _Log(python_logging.Handler):
    """Keeps what the collection says about itself."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: python_logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def number(self, pattern: str) -> float:
        """The number in the only line that matches."""
        (found,) = [match[1] for line in self.lines if (match := re.search(pattern, line))]
        return float(found)


def measure(case: Case, path: Path) -> dict[str, Any]:
    """Collects the profile `path`, and says what that took and what came of it."""
    native = native_seconds([case.binary, *case.arguments])
    log = _Log()
    logging.get_absl_logger().addHandler(log)
    before = processor_seconds()
    manifest = collect(case.binary, case.arguments, path)
    seconds = processor_seconds() - before
    logging.get_absl_logger().removeHandler(log)
    simulated = log.number(r"simulated in .* \(([\d.]+) s of processor time")
    return {
        "native_s": native,
        "simulated_s": simulated,
        "slowdown": simulated / native,
        "memory_mib": log.number(r"with (\d+) MiB of memory"),
        "instructions": manifest.event("instructions").total,
        "outside": manifest.event("instructions").outside,
        "undescribed": log.number(r"^.*: ([\d.]+)% of the executions are in functions without"),
        "conversion_s": seconds - simulated,
        "addresses": log.number(r"^symbolising (\d+) instructions"),
        "symbolising_s": log.number(r"^symbolising .* \(([\d.]+) s of processor"),
        "profile_kb": sum(event.profile.bytes for event in manifest.events) / 1e3,
        "located": {event.name: event.located / max(1, event.total) for event in manifest.events},
    }


def tables(results: dict[str, dict[str, Any]]) -> str:
    """The results of collections, in Markdown."""
    rows = [
        "| program | native | simulated | slowdown | memory | instructions | of them in libraries "
        "| conversion | profile |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, result in results.items():
        everything = result["instructions"] + result["outside"]
        rows.append(
            f"| {name} | {result['native_s']:.2f} s | {result['simulated_s']:.1f} s "
            f"| {result['slowdown']:.0f} | {result['memory_mib']:.0f} MiB "
            f"| {everything / 1e6:.0f} M | {100 * result['outside'] / everything:.0f}% "
            f"| {result['conversion_s']:.1f} s | {result['profile_kb']:.0f} kB |"
        )
    shown = (
        "executions",
        "loads",
        "llc-load-misses",
        "conditional-branches",
        "conditional-branch-mispredicts",
    )
    rows += ["", "| located | " + " | ".join(shown) + " | no debug info | symbolised |"]
    rows.append("|---" * (len(shown) + 3) + "|")
    for name, result in results.items():
        cells = [f"{100 * result['located'][event]:.1f}%" for event in shown]
        cells.append(f"{result['undescribed']:.1f}%")
        speed = result["addresses"] / result["symbolising_s"] * 60 / 1e6
        rows.append(f"| {name} | " + " | ".join([*cells, f"{speed:.2f} M/min"]) + " |")
    return "\n".join(rows) + "\n"


def main(argv: Sequence[str]) -> None:
    values = flags.FlagValues()
    flags.DEFINE_string(
        "output", str(BUILD / "bench-collect"), "folder for results", flag_values=values
    )
    flags.DEFINE_list("only", list(CASES), "programs to measure", flag_values=values)
    flags.DEFINE_bool("collect", True, "collect anew", flag_values=values)
    parse_program(argv, values, __doc__ or "")
    logging.set_verbosity(logging.INFO)
    output = Path(values.output)
    for name in values.only if values.collect else ():
        folder = output / name
        folder.mkdir(parents=True, exist_ok=True)
        result = measure(CASES[name](folder), output / f"{name}.pmu.json")
        write_json(output / f"{name}.collection.json", result)
    files = {name: output / f"{name}.collection.json" for name in CASES}
    print(tables({n: json.loads(file.read_text()) for n, file in files.items() if file.exists()}))


if __name__ == "__main__":
    main(sys.argv)
