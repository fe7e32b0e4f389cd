# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes sound inputs for the readers of profiles, traces, corpora and code, from small programs."""

import dataclasses
import json
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from compiler_opt_perf.binary.disassembly import Kind, MachineCode
from compiler_opt_perf.binary.elf import PROFILING_FLAGS, function_entries, hide_debug_info
from compiler_opt_perf.blocks.block_file import (
    Cpu,
    MeasuredBlock,
    MeasuredBlocks,
    write_bhive,
    write_blocks,
)
from compiler_opt_perf.cost.correction import INPUTS, Correction, write_correction
from compiler_opt_perf.cost.evaluator import REPLAY_FLAGS
from compiler_opt_perf.cost.regalloc_score import FLAGS as SCORE_FLAGS
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.profile import callgrind, perf_record
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.index import index_of, write_index
from compiler_opt_perf.profile.manifest import FileRecord
from compiler_opt_perf.profile.merge import merge
from compiler_opt_perf.profile.perf_record import RecordingPlan
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.files import write_json
from compiler_opt_perf.run.json_text import JsonError, parse_json
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.workload import Run
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT
from compiler_opt_perf.trace.edit import cut
from compiler_opt_perf.trace.qemu import record
from compiler_opt_perf.trace.trace_file import Trace
from compiler_opt_perf.trace.windows import write_windows
from compiler_opt_perf.train.log import read_log

_LIT = REPO_ROOT / "lit_tests"
_SOURCE = """\
#include <stdint.h>
#include <stdlib.h>
static uint64_t Words[4096];
__attribute__((noinline)) static int isOdd(uint64_t X) { return X & 1; }
__attribute__((noinline)) uint64_t sum(long N) {
  uint64_t Sum = 0;
  for (long I = 0; I < N; ++I)
    Sum += isOdd(Words[I * 61 % 4096] + I) ? Words[I % 4096] : Sum >> 3;
  return Sum;
}
int main(int Argc, char **Argv) {
  for (long I = 0; I < 4096; ++I)
    Words[I] = I * 2654435761u;
  return sum(atol(Argv[1])) & 1;
}
"""


def _program(folder: Path) -> Path:
    """Compiles the program for profile and trace."""
    (folder / "program.c").write_text(_SOURCE)
    flags = [*PROFILING_FLAGS.split(), *REPLAY_FLAGS, "-mllvm", "-pgo-analysis-map=br-prob"]
    clang = [str(stock_tool("clang")), "-O1", *flags]
    run_command([*clang, "-c", "program.c", "-o", "program.o"], cwd=folder)
    link = ["-fuse-ld=lld", "-no-pie", "-Wl,--build-id", "program.o", "-o", "program"]
    run_command([*clang, *link], cwd=folder)
    return folder / "program"


def profile(folder: Path, toolchain: Toolchain) -> None:
    """A program with two PMU profiles: one.pmu.json, and both.pmu.json of two runs."""
    del toolchain
    binary = _program(folder)
    collect(binary, ["2000"], folder / "one.pmu.json")
    merge([folder / "one.pmu.json"] * 2, folder / "both.pmu.json")


def seal(manifest: Path) -> None:
    """Gives a profile's files sizes, checksums and an index, so that damage gets to its reader."""
    try:
        value = parse_json(manifest.read_bytes())
        records = [value.get(name) for name in ("sources", "functions")]
        records += [one for event in value["events"] for one in (event, event.get("flattened"))]
        for one in records:
            if one:
                file = manifest.parent / one["file"]
                if file.is_file() and file.stat().st_size < 1 << 30:
                    one |= dataclasses.asdict(FileRecord.of(file, one["file"]))
        manifest.write_text(json.dumps(value, indent=1))
        files = [one["file"] for e in value["events"] for one in (e, e["flattened"])]
        paths = [manifest.parent / file for file in files]
        functions = (manifest.parent / value["functions"]["file"]).read_bytes()
        write_index(manifest.read_bytes(), paths, functions, index_of(manifest))
    except (OSError, JsonError, PmuError, ValueError, KeyError, TypeError, AttributeError):
        # The damaged file is the manifest.
        return


def seal_profile(folder: Path) -> None:
    """Seals the damaged profile."""
    seal(folder / "one.pmu.json")


def trace(folder: Path, toolchain: Toolchain) -> None:
    """A program, its trace of some thousand blocks, its windows, a profile and a CPU file."""
    profile(folder, toolchain)
    whole = record(folder / "program", ["1500"], folder / "whole.bbtrace")
    cut(whole, folder / "run.bbtrace", first=100, number=3000)
    write_windows(Trace.load(folder / "run.bbtrace", quiet=True), 4, folder / "run.bbwindows")
    whole.path.unlink()
    shutil.copy(_LIT / "TraceCost" / "Inputs" / "skylake.json", folder / "cpu.json")


def recordings(folder: Path, toolchain: Toolchain) -> None:
    """The output of perf script and callgrind for runs of a program."""
    del toolchain
    binary = _program(folder)
    words = ["llvm-readelf-22", "-lW", "-s", str(binary)]
    lines = run_command(words).stdout.splitlines()
    row = next(line.split() for line in lines if " R E " in line and "LOAD" in line)
    offset, address, size = (int(row[column], 16) for column in (1, 2, 5))
    second, first = _backward_jump(binary)
    mapped = (
        f"  100 PERF_RECORD_MMAP2 100/100: [{address & ~0xFFF:#x}({size + 0x2000:#x}) @ "
        f"{offset & ~0xFFF:#x} fe:00 2 3]: r-xp /b/program\n"
    )
    source = "68100842 |OP LOAD|LVL Local RAM or RAM hit|SNP None|TLB L2 miss|LCK No"
    samples = [
        f"  100 1009 cpu/mem_load_retired.l3_miss,period=1009/ppu:  {source}   310   {first} \n",
        f"  100 100003 cpu/br_inst_retired.near_taken,period=100003,branch_type=any/ppu:   {first} "
        f" 0x{second}/0x{first}/P/-/-/3 0x{second}/0x{first}/M/-/-/19 \n",
        f"  100  10007 cpu/br_misp_retired.cond,period=10007/ppu:   {second} \n",
        f"  100 1009 LLC-load-misses/period=1009/u:  {second} \n",
    ]
    (folder / "script.txt").write_text(mapped + 9 * "".join(samples))
    hidden = folder / "hidden"
    hide_debug_info(binary, hidden)
    (dump,) = callgrind.simulate(
        Run(hidden, ["50"], timeout_s=60), folder, callgrind.CacheGeometry()
    )
    dump.rename(folder / "callgrind.out")


def _backward_jump(binary: Path) -> tuple[str, str]:
    """The addresses of the branch that ends the loop of `sum`, and of its target; hexadecimal."""
    (entry,) = function_entries(binary, "sum")
    code = MachineCode.read(binary)
    (end,) = [end for start, end in code.parts if start == entry]
    return next(
        (f"{branch.address:x}", f"{branch.target:x}")
        for branch in code.instructions(entry, end)
        if Kind.CONDITIONAL in branch.kind
        and branch.target
        and entry <= branch.target < branch.address
    )


def corpus(folder: Path, toolchain: Toolchain) -> None:
    """A build with compile_commands.json and objects with bitcode, and a corpus of it."""
    del toolchain
    clang = stock_tool("clang")
    build = folder / "build"
    build.mkdir()
    entries = []
    for name in ("a", "b"):
        (build / f"{name}.c").write_text(f"int {name}(int X) {{ return X * 3; }}\n")
        words = ["clang", "-Oz", "-Xclang", "-fembed-bitcode=all", "-c", f"{name}.c"]
        words += ["-o", f"{name}.o"]
        run_command([clang, *words[1:]], cwd=build)
        entries.append({"directory": ".", "file": f"{name}.c", "arguments": words})
    (build / "compile_commands.json").write_text(json.dumps(entries))
    # A process, because it has workers of its own.
    words = [sys.executable, "-m", "compiler_opt_perf.cli.main", "corpus", "extract", "p=build"]
    run_command([*words, "--problem=inline-size", "--held-out=0.5", "--output=corpus"], cwd=folder)
    # The held-out part becomes a corpus of a ThinLTO build, with one command for all modules.
    held_out = folder / "corpus" / "held_out"
    description = json.loads((held_out / "corpus_description.json").read_text())
    for name in description["modules"]:
        (held_out / f"{name}.thinlto.bc").write_bytes(b"")
    override = ["-cc1", "-O2", "-mllvm", "-inline-threshold=5"]
    description |= {"has_thinlto": True, "global_command_override": override}
    write_json(held_out / "corpus_description.json", description)


def perf_data(folder: Path, toolchain: Toolchain) -> None:
    """The output of `perf record` with the event cpu-clock, which any machine has."""
    del toolchain
    binary = _program(folder)
    plan = RecordingPlan("generic", ("cpu-clock/period=2000000/u",), (), ())
    perf_record.record(plan, Run(binary, ["20000000"], timeout_s=60), folder)


def blocks(folder: Path, toolchain: Toolchain) -> None:
    """A program, and measured blocks in both forms."""
    _program(folder)
    cpu = Cpu("a CPU", "znver3", 25, 1, 1)
    rows = [
        MeasuredBlock(
            code="4801c8", cycles=1.0, agreeing=2, rounds=2, program="p", function="f", address=16
        ),
        MeasuredBlock(
            code="488b05f0ffffff", cycles=0.5, agreeing=3, rounds=4, pages=1, occurrences=7
        ),
        MeasuredBlock(code="0f05", dropped="system call", program="p"),
        MeasuredBlock(
            code="488b077500", cycles=9.0, pmu={"l1_miss": (0.5, None), "mispredict": (None, 1)}
        ),
    ]
    write_blocks(folder / "some.blocks", MeasuredBlocks(cpu, 0.17, rows))
    write_bhive(folder / "some.csv", rows)


def correction(folder: Path, toolchain: Toolchain) -> None:
    """Weights of a correction of cycles."""
    weights = dict.fromkeys(INPUTS, 0.5)
    written = Correction(evaluator="granite", mcpu="znver3", weights=weights, programs=("lua",))
    write_correction(folder / "correction.json", written)


def scores(folder: Path, toolchain: Toolchain) -> None:
    """An object file with the scores of register allocation beside it."""
    (folder / "module.c").write_text(_SOURCE)
    flags = ["-O2", *SCORE_FLAGS, "-c", "module.c", "-o", "module.o"]
    run_command([toolchain.clang, *flags], cwd=folder)


def compiler_profile(folder: Path, toolchain: Toolchain) -> None:
    """A PMU profile of a program and the program's IR."""
    profile(folder, toolchain)
    clang = [str(stock_tool("clang")), "-O1", *PROFILING_FLAGS.split(), "-S", "-emit-llvm"]
    run_command([*clang, "program.c", "-o", "program.ll"], cwd=folder)


def models(folder: Path, toolchain: Toolchain) -> None:
    """Models, logs and decisions of development mode, with their modules."""
    for name in ("inline-one-block", "evict-first"):
        shutil.copytree(_LIT / "Inputs" / name, folder / name)
    for name in ("calls.ll", "pressure.ll"):
        shutil.copy(_LIT / "Inputs" / name, folder)
    inline = [toolchain.opt, *INLINE, "calls.ll", "-disable-output", "-training-log=inline.log"]
    evict = [toolchain.llc, *EVICT, "pressure.ll", "-o", "/dev/null"]
    evict.append("-regalloc-training-log=evict.log")
    environment = {"LLVM_LITERT_LIBRARY": str(toolchain.litert_library)}
    for command in (inline, evict):
        words = [str(word) for word in (*command, "-mlgo-decision-keys")]
        run_command(words, cwd=folder, env=environment)
    for name, problem in (("inline", "inline-size"), ("evict", "regalloc-evict")):
        log = folder / f"{name}.log"
        keys = re.findall(rb'^\{"observation":.*?"key":"(.*)"\}$', log.read_bytes(), re.MULTILINE)
        chosen = read_log(log).decisions(PROBLEMS[problem])
        rows = [f"{key.decode()} {action}\n" for key, action in zip(keys, chosen, strict=True)]
        (folder / f"{name}.txt").write_text("; decisions\n" + "".join(rows))
        (folder / f"{name}.answers").write_bytes(chosen.astype("<i8").tobytes())


INLINE: Sequence[str] = ("-passes=scc-oz-module-inliner", "-enable-ml-inliner=development")
EVICT: Sequence[str] = ("-O2", "-mtriple=x86_64-linux-gnu", "-regalloc-enable-advisor=development")

Make = Callable[[Path, Toolchain], None]
