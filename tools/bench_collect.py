# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures PMU collection on real programs: how slow, how large, how much is found again.

    build/venv/bin/python tools/bench_collect.py [--only=zstd,lua] [--output=build/bench-collect]

Prints tables in Markdown, of all results in the folder. Programs are built from Debian's sources.
Hit rates of the compiler's decisions need `cop toolchain build --set=dev`.
"""

import dataclasses
import json
import random
import re
import resource
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from absl import flags, logging

from compiler_opt_perf.corpus.programs import (
    PROFILING_FLAGS,
    PROGRAMS,
    Program,
    build_program,
    program_sources,
)
from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.execution.files import write_json
from compiler_opt_perf.pmu import callgrind
from compiler_opt_perf.pmu.binary import hide_debug_info
from compiler_opt_perf.pmu.callgrind import CacheGeometry
from compiler_opt_perf.pmu.collect import collect
from compiler_opt_perf.pmu.coverage import Lookups, coverage
from compiler_opt_perf.pmu.disassembly import disassemble
from compiler_opt_perf.pmu.profile import Profile
from compiler_opt_perf.pmu.sample_profile import convert_to_binary
from compiler_opt_perf.pmu.symbolize import symbolize
from compiler_opt_perf.toolchain.installation import stock_tool
from compiler_opt_perf.toolchain.layout import BUILD
from compiler_opt_perf.toolchain.source import debian_source

_NATIVE_RUNS = 5
_SEED = 1
_LEVELS = ("-O2", "-O3", "-Os")

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
class Work:
    """A program and one run of it.

    Attributes:
      prepare: writes the input into a folder and returns the arguments.
    """

    program: Program
    prepare: Callable[[Path, Path | None], list[str]]


def _compress(folder: Path, given: Path | None) -> list[str]:
    return ["-9", "--single-thread", "-f", "-q", "-o", str(folder / "out.zst"), str(given)]


def _load_database(folder: Path, given: Path | None) -> list[str]:
    """40,000 random records, in the text form of Berkeley DB's and LMDB's dumps."""
    generator = random.Random(_SEED)
    records = folder / "records"
    with records.open("w") as stream:
        stream.write("VERSION=3\nformat=bytevalue\ntype=btree\nmapsize=268435456\nHEADER=END\n")
        for _ in range(40_000):
            stream.write(f" {generator.randbytes(12).hex()}\n {generator.randbytes(100).hex()}\n")
        stream.write("DATA=END\n")
    return ["-n", "-f", str(records), str(folder / "database")]


def _interpret(folder: Path, given: Path | None) -> list[str]:
    (folder / "script.lua").write_text(_LUA)
    return [str(folder / "script.lua")]


WORK = {
    "zstd": Work(PROGRAMS["zstd"], _compress),
    "lmdb": Work(LMDB, _load_database),
    "lua": Work(PROGRAMS["lua"], _interpret),
}


def native_seconds(argv: Sequence[str | Path]) -> float:
    """Median user and system time of a few runs."""
    seconds = []
    for _ in range(_NATIVE_RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([str(word) for word in argv], stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(seconds)


def measure(name: str, work: Work, output: Path) -> dict[str, Any]:
    """Everything about one program."""
    tree = debian_source(work.program.source_package)
    built = build_program(work.program, tree, output / name, clang=stock_tool("clang"))
    arguments = work.prepare(output / name, built.workload_input)
    native = native_seconds([built.binary, *arguments])

    folder = output / name / "run"
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.iterdir():
        stale.unlink()
    copy = folder / work.program.name
    hide_debug_info(built.binary, copy)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    dumps = callgrind.simulate(copy, arguments, folder, CacheGeometry())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    simulated = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    start = time.monotonic()
    counts = callgrind.event_counts(callgrind.read_dumps(dumps, copy))
    reading = time.monotonic() - start
    start = time.monotonic()
    symbols = symbolize(built.binary, counts.at)
    symbolising = time.monotonic() - start
    start = time.monotonic()
    profile = counts.attribute(symbols)
    for event in counts.events:
        profile.write_text(event, folder / "text")
        convert_to_binary(folder / "text", folder / "binary")
    writing = time.monotonic() - start

    path = output / f"{name}.pmu.json"
    manifest = collect(built.binary, arguments, path)
    everything = disassemble(built.binary).addresses
    start = time.monotonic()
    symbolize(built.binary, everything)
    per_minute = len(everything) / (time.monotonic() - start) * 60

    size = sum(event.bytes or 0 for event in manifest.events)
    located = {event.name: event.located / max(1, event.total) for event in manifest.events}
    logging.info("%s: %d instructions symbolised", name, len(everything))
    return {
        "native_s": native,
        "simulated_s": simulated,
        "slowdown": simulated / native,
        "dump_mb": sum(dump.stat().st_size for dump in dumps) / 1e6,
        "instructions": manifest.event("instructions").total,
        "outside": manifest.event("instructions").outside,
        "addresses": len(counts.at),
        "reading_s": reading,
        "symbolising_s": symbolising,
        "writing_s": writing,
        "profile_kb": size / 1e3,
        "located": located,
        "addresses_per_minute": per_minute,
        "lookups": lookups(name, work, tree, path, output),
    }


def lookups(
    name: str, work: Work, tree: Path, manifest: Path, output: Path
) -> dict[str, dict[str, Any]]:
    """How much is found again in code of other levels: by counts, and by decisions of clang."""
    profile = Profile.load(manifest)
    patched = BUILD / "toolchain" / "dev" / "bin" / "clang"
    found: dict[str, dict[str, Any]] = {}
    for level in _LEVELS:
        flags_of_level = (level, *PROFILING_FLAGS)
        built = build_program(
            work.program,
            tree,
            output / name / level.lstrip("-"),
            clang=stock_tool("clang"),
            flags=flags_of_level,
        )
        result = coverage(profile, built.binary)
        counts = {event.name: _shares(looked_up) for event, looked_up in result.counts}
        row: dict[str, Any] = {"counts": counts}
        if patched.exists():
            row["decisions"] = decisions(
                patched, work.program, tree, manifest, level, output / name
            )
        found[level] = row
    return found


def _shares(looked_up: Lookups) -> list[float]:
    total = max(1, looked_up.total)
    return [part / total for part in (looked_up.exact, looked_up.flattened, looked_up.missing)]


def decisions(
    clang: Path, program: Program, tree: Path, manifest: Path, level: str, folder: Path
) -> dict[str, dict[str, int]]:
    """For inlining and eviction, how many decisions the compiler found data for."""
    remarks = folder / f"remarks{level}"
    remarks.mkdir(parents=True, exist_ok=True)
    flags_of_level = (
        level,
        *PROFILING_FLAGS,
        *("-mllvm", f"-pmu-profile={manifest.resolve()}"),
        # Development mode without a model takes the default decisions, and logs them.
        *("-mllvm", "-enable-ml-inliner=development", "-mllvm", "-training-log=/dev/null"),
        *("-mllvm", "-regalloc-enable-advisor=development"),
        *("-mllvm", "-regalloc-training-log=/dev/null"),
        "-fsave-optimization-record=yaml",
        "-foptimization-record-passes=inline-ml|regalloc-ml",
    )
    # build_program has been here before: what it generates is there.
    includes = [f"-I{(folder / 'generated').resolve()}"] if program.generated else []
    for number, source in enumerate(program_sources(program, tree)):
        target = remarks.resolve() / f"{number}.o"
        options = [*flags_of_level, *program.flags, *includes, "-w"]
        run_command([clang, *options, "-c", source, "-o", target], cwd=tree, timeout_s=600)
    found: dict[str, Counter[str]] = {"inline-ml": Counter(), "regalloc-ml": Counter()}
    for file in remarks.rglob("*.opt.yaml"):
        for remark in re.split(r"^---", file.read_text(errors="replace"), flags=re.MULTILINE):
            kind = re.search(r"^Pass: +(\S+)", remark, re.MULTILINE)
            data = re.search(r"PMUData: +'?(\w+)", remark)
            if kind and data and kind[1] in found and "DefaultDecision" in remark:
                found[kind[1]][data[1]] += 1
    return {kind: dict(counts) for kind, counts in found.items()}


def measure_clang(output: Path, source: Path) -> dict[str, Any]:
    """The stock compiler, which has no debug info: the simulator's part only."""
    folder = output / "clang"
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.iterdir():
        stale.unlink()
    clang = stock_tool("clang").resolve()
    argv = ["-cc1", "-triple", "x86_64-pc-linux-gnu", "-O2", "-emit-obj", "-x", "c"]
    argv += ["-o", str(folder / "out.o"), str(source)]
    native = native_seconds([clang, *argv])
    copy = folder / "clang"
    hide_debug_info(clang, copy)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    dumps = callgrind.simulate(copy, argv, folder, CacheGeometry())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    simulated = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    start = time.monotonic()
    dump = callgrind.read_dumps(dumps, copy)
    return {
        "native_s": native,
        "simulated_s": simulated,
        "slowdown": simulated / native,
        "dump_mb": sum(path.stat().st_size for path in dumps) / 1e6,
        "reading_s": time.monotonic() - start,
        "instructions": dump.totals()[0],
        "outside": dump.outside[0],
    }


def tables(results: dict[str, dict[str, Any]]) -> str:
    """The results in Markdown."""
    rows = [
        "| program | native | simulated | slowdown | instructions | of them in libraries "
        "| conversion | profile |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, result in results.items():
        everything = result["instructions"] + result["outside"]
        conversion = size = "–"
        if "symbolising_s" in result:
            seconds = result["reading_s"] + result["symbolising_s"] + result["writing_s"]
            conversion, size = f"{seconds:.1f} s", f"{result['profile_kb']:.0f} kB"
        rows.append(
            f"| {name} | {result['native_s']:.2f} s | {result['simulated_s']:.1f} s "
            f"| {result['slowdown']:.0f} | {everything / 1e6:.0f} M "
            f"| {100 * result['outside'] / everything:.0f}% | {conversion} | {size} |"
        )
    profiled = {name: result for name, result in results.items() if "located" in result}
    shown = (
        "executions",
        "loads",
        "llc-load-misses",
        "conditional-branches",
        "conditional-branch-mispredicts",
    )
    rows += ["", "| located | " + " | ".join(shown) + " | symbolised |"]
    rows.append("|---" * (len(shown) + 2) + "|")
    for name, result in profiled.items():
        cells = [f"{100 * result['located'][event]:.1f}%" for event in shown]
        speed = f"{result['addresses_per_minute'] / 1e6:.1f} M/min"
        rows.append(f"| {name} | " + " | ".join([*cells, speed]) + " |")
    rows += ["", "| exact + flattened | level | " + " | ".join(shown) + " | inlining | eviction |"]
    rows.append("|---" * (len(shown) + 4) + "|")
    for name, result in profiled.items():
        for level, found in result["lookups"].items():
            cells = [_pair(*found["counts"][event][:2]) for event in shown]
            for kind in ("inline-ml", "regalloc-ml"):
                data = found.get("decisions", {}).get(kind, {})
                total = max(1, sum(data.values()))
                cells.append(_pair(data.get("exact", 0) / total, data.get("flattened", 0) / total))
            rows.append(f"| {name} | `{level}` | " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def _pair(exact: float, flattened: float) -> str:
    return f"{100 * exact:.1f} + {100 * flattened:.1f}%"


def main(argv: Sequence[str]) -> None:
    values = flags.FlagValues()
    flags.DEFINE_string(
        "output", str(BUILD / "bench-collect"), "folder for results", flag_values=values
    )
    flags.DEFINE_list("only", [*WORK, "clang"], "programs to measure", flag_values=values)
    values(list(argv))
    logging.set_verbosity(logging.INFO)
    output = Path(values.output)
    for name in values.only:
        if name == "clang":
            tree = debian_source("libzstd")
            preprocessed = output / "huf_compress.i"
            output.mkdir(parents=True, exist_ok=True)
            run_command(
                [
                    *(stock_tool("clang"), "-E", "-P"),
                    *(tree / "lib/compress/huf_compress.c", "-o", preprocessed),
                ],
                timeout_s=60,
            )
            result = measure_clang(output, preprocessed)
        else:
            result = measure(name, WORK[name], output)
        write_json(output / f"{name}.json", result)
    measured = [name for name in (*WORK, "clang") if (output / f"{name}.json").exists()]
    print(tables({name: json.loads((output / f"{name}.json").read_text()) for name in measured}))


if __name__ == "__main__":
    main(sys.argv)
