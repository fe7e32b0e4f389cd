# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Comparisons and trainings for tests."""

import json
from pathlib import Path

import numpy as np

from compiler_opt_perf.compare.comparison import Comparison, FunctionScores, ModuleComparison
from compiler_opt_perf.compare.linked import LinkedProgram, LinkedPrograms
from compiler_opt_perf.run.files import write_json, write_text
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
    """A folder as `cop train` leaves it, of one generation."""
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
