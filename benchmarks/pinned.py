# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What does it gain to pass cold calls copies of locals, and what to inline them?

A profile says that a cold call costs nothing. It may be passed the address of a local, which then
lives in memory where the hot code uses it, too. The pass UnpinAllocas of the patches passes a copy.
"""

import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.changes import changes_table, counted_changes
from benchmarks.common import PASSED_LOCAL, counted_run, counters_profile, saved
from benchmarks.inline_builds import Executed, InlineBuilds
from benchmarks.programs.workloads import COUNTED
from benchmarks.results import Cell, Table
from benchmarks.ways import LOCALS, PINNING
from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.policy.compiler_flags import compiler_flags
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.files import exclusive, sha256, write_json
from compiler_opt_perf.run.timing import processor_seconds
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT

PROGRAMS = tuple(COUNTED)
_PINNED, _COPIES, _INLINED = LOCALS
#: Rounds of the example's loop: timed, and profiled and counted.
TIMED, _COUNTED = "20000", "200"
_RUNS = 5


def study(programs: Sequence[str], folder: Path, toolchain: Toolchain) -> list[Table]:
    """Builds the example and some of the `PROGRAMS` with copies and without.

    Args:
      folder: for builds and results; what is there is not done again.

    Raises:
      CommandError: a compiler or a run failed.
      BenchmarkError: a damaged result.
    """
    for program in programs:
        # Runs of a program write to the same files.
        with exclusive(folder / f"{program}.lock"):
            own = InlineBuilds(program, folder / program, toolchain)
            write_json(folder / f"{program}.json", _result(own))
    return [_example(folder / "example", toolchain), *tables(saved(folder, PROGRAMS))]


def _result(own: InlineBuilds) -> dict[str, Any]:
    """What one program executes in each way, and how many locals were copied."""
    counted: dict[tuple[str, ...], Executed] = {}
    ways, copies = {}, {}
    for name in PINNING:
        objects = own.objects(name)
        # Most ways of most programs are the same code.
        code = tuple(map(sha256, objects))
        if code not in counted:
            counted[code] = own.executed(name)
        ways[name] = msgspec.to_builtins(counted[code])
        copies[name] = _remarks(objects[0].parent)
    return {"ways": ways, "copies": copies}


def tables(results: Mapping[str, Mapping[str, Any]]) -> list[Table]:
    """Changes of instructions and of text, against the same way with locals pinned."""
    pairs = {
        name.removeprefix("pinned, "): (name, name.removesuffix(ending))
        for name in PINNING
        for ending in (_COPIES, _INLINED)
        if name.endswith(ending)
    }
    found: list[Table] = []
    for key, caption in (
        ("instructions", "executed instructions, counted by callgrind in the profiled run"),
        ("text", "bytes of text, linked"),
    ):
        totals = {
            program: {way: counts[key] for way, counts in row["ways"].items()}
            for program, row in results.items()
        }
        copied: dict[str, list[Cell]] = {
            program: [row["copies"][f"pinned, PGO{_COPIES}"]] for program, row in results.items()
        }
        found += changes_table(
            key,
            f"Change of {caption}, against the same way without copies. Locals copied: by PGO.",
            {"locals copied": "integer"},
            copied,
            counted_changes(totals, pairs),
            pairs,
        )
    return found


def _remarks(folder: Path) -> int:
    """How many locals the compilations of a way copied, by their records of remarks."""
    records = (path.read_text() for path in folder.glob("*.opt.yaml"))
    return sum(len(re.findall("^--- !Passed", text, re.MULTILINE)) for text in records)


def _example(folder: Path, toolchain: Toolchain) -> Table:
    """The program of the fault in each way: its time, instructions and text."""
    folder.mkdir(parents=True, exist_ok=True)
    plain = _build(toolchain, folder / "plain", PROFILING_FLAGS.split())
    profile = folder / "run.pmu.json"
    collect(plain, [_COUNTED], profile)
    generated = _build(toolchain, folder / "generated", ["-fprofile-generate"])
    counters = folder / "merged.profdata"
    counters_profile(generated, [_COUNTED], folder / "raw", counters)
    policy = compiler_flags(
        toolchain, {"inline-size": REPO_ROOT / "models" / "inline-speed"}, profile
    )
    profiled = {
        "AutoFDO": [
            *PROFILING_FLAGS.split(),
            f"-fprofile-sample-use={folder / 'run.executions.afdo'}",
        ],
        "PGO": [f"-fprofile-use={counters}"],
        "ThinLTO and PGO": ["-flto=thin", f"-fprofile-use={counters}"],
    }
    ways = {"plain `-O2`": [], "plain `-O3`": ["-O3"], "inline-speed": policy.compile_words()} | {
        name + ending: [*words, *flags, *(_linked(flags) if "-flto=thin" in words else ())]
        for name, words in profiled.items()
        for ending, flags in LOCALS.items()
    }
    rows: list[list[Cell]] = []
    for number, (name, words) in enumerate(ways.items()):
        binary = _build(toolchain, folder / f"way-{number}", words)
        seconds = [processor_seconds([binary, TIMED], cpu=0) for _ in range(_RUNS)]
        dump = counted_run(binary, [_COUNTED], folder)
        rows.append([name, statistics.median(seconds), dump.totals()[0], text_bytes(binary)])
    return Table.of(
        "example",
        f"`{PASSED_LOCAL.name}`, profiled with {_COUNTED} rounds: processor time of {TIMED} "
        f"rounds, median of {_RUNS}; executed instructions of {_COUNTED} rounds; bytes of text.",
        {"way": "text", "time": "seconds:2", "instructions": "integer", "text": "integer"},
        rows,
    )


def _linked(flags: Sequence[str]) -> list[str]:
    """LLVM's options for the linker, which optimises again."""
    return [f"-Wl,-mllvm,{option}" for option in flags if option != "-mllvm"]


def _build(toolchain: Toolchain, output: Path, flags: Sequence[str]) -> Path:
    words: list[str | Path] = [toolchain.clang, "--driver-mode=g++", "-O2", "-fuse-ld=lld"]
    run_command([*words, "-Wl,--build-id", *flags, PASSED_LOCAL, "-o", output], timeout_s=300)
    return output
