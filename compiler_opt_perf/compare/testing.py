# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""For tests: a small program to measure, a baseline, comparisons, and folders of trainings."""

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.compare.baseline import (
    Artifact,
    Baseline,
    Detail,
    Environment,
    ModuleRow,
    Setup,
    pack,
)
from compiler_opt_perf.compare.comparison import Comparison, FunctionScores, ModuleComparison
from compiler_opt_perf.compare.linked import LinkedProgram, LinkedPrograms
from compiler_opt_perf.corpus.extract import extract_corpus
from compiler_opt_perf.policy.problem import PROBLEMS, Problem
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.files import write_json, write_text
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train.differences import Differences, ModuleDifferences, Site
from compiler_opt_perf.train.label_files import Labels, write_labels

#: Of the compiler.
ALL_MODES = ("release", "development", "interactive")
INLINE = Comparison(
    "inline-size",
    "-Oz",
    ALL_MODES,
    1,
    "processor time, 3 pairs a module",
    (
        ModuleComparison("zstd/a<b>", 1000, 900, (), 50, 40, 20, 5, (1.0, 2, 3), (1.1, 2.2, 3.3)),
        ModuleComparison("zstd/empty", 0, 0, (), 0, 0, 0, 0, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    ),
)
EVICT = Comparison(
    "regalloc-evict",
    "-O2",
    ("release",),
    1,
    "instructions, counted by QEMU's user mode, 1 pair a module",
    (
        ModuleComparison(
            "z",
            10,
            10,
            (FunctionScores("f", None, 80.0, 60.0), FunctionScores("[g]", None, None, 1.0)),
            4,
            2,
            1,
            3,
            (100.0,),
            (101.0,),
        ),
    ),
)

LINKED = LinkedPrograms(
    "inline-size",
    "-Oz",
    "shipped",
    64 * "0",
    (
        LinkedProgram("lua", (1200, 1200), (1300, 1300), "test"),
        LinkedProgram("zstd", (2000, 1800), (2500, 2000), "training"),
    ),
    ("tcc",),
)

#: That no program of text or plots may take for markup or a formula.
ODD_NAMES = (r"a$\frac{1$", r"$\frac{1$", r"a\$\frac{1$", "[red]a[/b]")

_TWICE, _HALF = "_Z5twicei", "_Z4halfi"
#: Of two modules; a third one does not compile.
DIFFERENCES = Differences(
    "inline-size",
    (
        ModuleDifferences(
            "p/a",
            100.0,
            102.0,
            7,
            (
                Site("p/a", f"{_TWICE} {_HALF} {_TWICE}.4 - #0", 1, 0, -10.0),
                Site("p/a", f"{_TWICE} main {_HALF}.7 twice:2<half:1 #1", 0, 1, 12.0),
                Site("p/a", f"{_TWICE} main ? - #0", 0, 1, None),
            ),
        ),
        ModuleDifferences(
            "q/b", 300.0, 240.0, 9, (Site("q/b", f"{_TWICE} {_HALF} {_TWICE}.3 - #0", 1, 0, -60.0),)
        ),
    ),
    {"q/c": "clang: exit status 1"},
)


def write_imitation(folder: Path) -> None:
    """A folder of a training on labels, of two rounds, with labels of one module."""
    programs = {"training": ["p"], "validation": ["b"], "test": ["c"]}
    config = {"seed": 3, "programs": programs, "stages": [{"algorithm": "labels"}]}
    inputs = {"problem": "inline-size", "config": config, "corpus": {"p/a": "0"}}
    write_json(folder / "inputs.json", {**inputs, "versions": {"numpy": "1.2"}})
    curve = [
        {"generation": number, "labels": 4 * number, "validation_of_mean": change}
        for number, change in enumerate((0.0, -0.02, -0.04))
    ]
    write_text(folder / "curve.jsonl", "".join(json.dumps(row) + "\n" for row in curve))
    rows = np.zeros(4, [("f", np.int64, (1,))])
    difference = np.array([-3.0, 0.0, 5.5, 2000.0])
    labels = Labels("p/a", ("a", "b", "c", "d"), rows, rows, difference, 100.0, 5)
    write_labels(folder / "labels" / "0" / "p" / "a.npz", labels)
    result = {
        "reward": "linked text bytes",
        "verdict": "better than the default",
        "test_change": -0.01,
        "validation_change": -0.04,
        "programs": {"c": {"linked": [1000, 990], "objects": [1000, 950]}},
    }
    write_json(folder / "training.json", {"problem": "inline-size", "results": result})


def write_search(folder: Path) -> None:
    """A folder as `cop train policy` leaves it, of one generation."""
    inputs = {"problem": "regalloc-evict", "config": {"seed": 2}, "corpus": {"p/a": "0"}}
    write_json(folder / "inputs.json", inputs)
    curve: list[dict[str, float]] = [
        {"generation": 0, "validation_of_mean": 0.01, "elapsed_s": 1.5},
        {
            "generation": 1,
            "candidates_mean": -0.02,
            "candidates_failed": 0,
            "validation_of_mean": -0.01,
            "elapsed_s": 2.5,
        },
    ]
    write_text(folder / "curve.jsonl", "".join(json.dumps(row) + "\n" for row in curve))
    result = {
        "reward": "RegAllocScore",
        "verdict": "better than the default",
        "test_change": -0.01,
        "validation_change": -0.04,
    }
    ended = {"problem": "regalloc-evict", "results": result, "modules": {"validation": ["p/b"]}}
    write_json(folder / "training.json", ended)


# Helpers of several blocks that are called once: whoever does not inline them pays for it.
_STEP = """
static int {name}{i}(int *t, int x) {{
  if (t[{i}] {op} x)
    t[{i}] = x;
  {edit}
  return t[{i} + 1];
}}
"""


def write_program(folder: Path, *, name: str = "step", edit: str = "") -> list[Path]:
    """Sources of a program of three modules; in `mix` is a helper of more than four blocks.

    Args:
      name: that the names of its functions begin with.
      edit: a statement in one of them.
    """
    folder.mkdir(parents=True)
    sources = []
    for module, op, edits in (
        ("add", ">", {0: edit}),
        ("mix", "<", {0: edit, 11: "if (x & 8) t[2] ^= x;"}),
    ):
        steps = [
            _STEP.format(name=f"{name}_{module}", i=i, op=op, edit=edits.get(i, ""))
            for i in range(12)
        ]
        calls = " + ".join(f"{name}_{module}{i}(t, x + {i})" for i in range(12))
        sources.append(folder / f"{module}.c")
        sources[-1].write_text(
            "".join(steps) + f"int {name}_all_{module}(int *t, int x) {{ return {calls}; }}\n"
        )
    names = [f"{name}_all_add", f"{name}_all_mix"]
    declared = "".join(f"int {one}(int *, int);\n" for one in names)
    called = " + ".join(f"{one}(t, i)" for one in names)
    sources.append(folder / "main.c")
    sources[-1].write_text(
        f"{declared}int main(void) {{\n  int t[16] = {{1, 2, 3}}, s = 0;\n"
        f"  for (int i = 0; i < 50; ++i)\n    s += {called};\n  return s == 7;\n}}\n"
    )
    return sources


def profile_of(sources: list[Path], toolchain: Toolchain, program: str) -> Path:
    """Runs a program; returns the manifest of its profile, with checksums of its functions."""
    folder = sources[0].parent
    flags = ["-O2", *PROFILING_FLAGS.split(), "-mllvm", "-pmu-emit-checksums", "-Wl,--build-id"]
    run_command([toolchain.clang, *flags, *sources, "-fuse-ld=lld", "-o", folder / program])
    manifest = folder / f"{program}.pmu.json"
    collect(folder / program, [], manifest)
    return manifest


def corpus_of(
    sources: list[Path],
    toolchain: Toolchain,
    program: str,
    problem: Problem = PROBLEMS["inline-size"],
    folder: Path | None = None,
) -> Path:
    """The corpus of a program's modules, in `folder` or else in the folder of the sources."""
    folder = folder or sources[0].parent
    flags = ["-O2", "-gline-tables-only", "-fdebug-info-for-profiling"]
    commands = [
        {
            "directory": str(folder),
            "file": str(one),
            "arguments": ["clang", *flags, "-c", str(one), "-o", f"{one.stem}.o"],
        }
        for one in sources
    ]
    write_json(folder / "compile_commands.json", commands)
    extract_corpus(
        {program: folder / "compile_commands.json"},
        folder / "corpus",
        clang=toolchain.clang,
        opt_level=problem.optimization_level,
        stage=problem.corpus_stage,
        held_out_share=0.0,
        seed=1,
        workers=2,
    )
    return folder / "corpus"


def failing_toolchain(folder: Path, toolchain: Toolchain, cases: str) -> Path:
    """A toolchain whose clang does as it pleases with some arguments.

    Args:
      cases: of a shell's `case` over the arguments.
    """
    (folder / "bin").mkdir(parents=True)
    for tool in toolchain.clang.parent.iterdir():
        (folder / "bin" / tool.name).symlink_to(tool)
    for name in ("lib", "models"):
        (folder / name).symlink_to(toolchain.directory / name)
    clang = folder / "bin" / "clang"
    clang.unlink()
    clang.write_text(f'#!/bin/sh\ncase "$*" in\n{cases}\nesac\nexec "{toolchain.clang}" "$@"\n')
    clang.chmod(0o755)
    return folder


def sample(**changes: Any) -> Baseline:
    """A baseline of two modules of a program, and one of another.

    Args:
      changes: of the module p/a, which the compiler compiles.
    """
    detail = Detail(
        {"f": 600, "g": 400}, {"f": 2.0, "g": 1.0}, {"f g f.0 - #0": 1, "f h ? - #0": 0}
    )
    run = ModuleRow(
        name="p/a",
        digest="0a",
        status="ok",
        objects=("00",),
        text=1000,
        memory=(80_000, 80_100),
        effort=(1e6, 1.001e6),
        decisions=2,
        with_pmu=2,
        differing=1,
        instructions=5e6,
        cycles=2.5e6,
        detail=pack(detail),
    )
    replace = msgspec.structs.replace
    failed = ModuleRow(name="q/c", digest="0c", status="failed", message="clang: exit status 1")
    modules = (replace(run, **changes), replace(run, name="p/b", digest="0b"), failed)
    setup = Setup(
        problem="regalloc-evict",
        corpora=("corpus",),
        compiler=Artifact("toolchain", "1", "clang version 22"),
        release=Artifact("release", "1"),
        policy=Artifact("model", "2"),
        profiles={"p": Artifact("p.pmu.json", "3", "p, build-id 12")},
        effort="qemu",
        repetitions=2,
        timeout_s=60.0,
        memory_mib=8192,
        traces={"p": Artifact("p.bbwindows", "4")},
        cpu=Artifact("cpu.json", "5"),
    )
    environment = Environment("2026-11-23T12:00:00+00:00", "a CPU", 2, "Linux 6", "1.0")
    return Baseline(environment, setup, modules)
