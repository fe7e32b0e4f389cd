# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Do predicted cycles show loads that the processor cannot forward to?

A call that never runs is passed the address of a local of two bytes. Where it stays a call, the hot
loop stores the bytes one by one and reads both at once. Each way of compiling the program is timed,
and judged by a recorded run of its own: inlining changes the control flow.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.common import PASSED_LOCAL, TIMEOUT_S
from benchmarks.results import Cell, Table
from compiler_opt_perf.blocks.cpu_files import cpu_file
from compiler_opt_perf.cost.evaluator import EVALUATORS, Context, Replay
from compiler_opt_perf.cost.recording import RECORD_FLAGS, Recorder, Workload, judged, record
from compiler_opt_perf.policy.compiler_flags import compiler_flags, flags_without_policies
from compiler_opt_perf.profile.callgrind import CacheGeometry
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.timing import processor_seconds
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT

#: Rounds of the program's loop that are timed, and the run that is recorded.
TIMED = "20000"
WORKLOAD = Workload(("200",), timeout_s=TIMEOUT_S)
ROUNDS = 7


def study(folder: Path, toolchain: Toolchain) -> list[Table]:
    """Builds, times and predicts the program in each way."""
    by_default = flags_without_policies(toolchain).compile_words()
    plain = _build(toolchain, folder / "way-0" / "program", by_default)
    profile = record(plain, WORKLOAD, folder / "recordings", CacheGeometry()).profile
    policy = REPO_ROOT / "models" / "inline-speed"
    ways: dict[str, Sequence[str]] = {
        "plain `-O2`": by_default,
        "`models/inline-speed`": compiler_flags(
            toolchain, {"inline-size": policy}, profile
        ).compile_words(),
        # Else the compiler passes a copy of the local, and no load waits.
        "AutoFDO": [
            *flags_without_policies(toolchain, profile).compile_words(),
            *("-mllvm", "-enable-unpin-allocas=false"),
        ],
        "no inlining": [*by_default, "-mllvm", "-inline-threshold=0"],
    }
    binaries = {
        name: _build(toolchain, folder / f"way-{number}" / "program", flags) if number else plain
        for number, (name, flags) in enumerate(ways.items())
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, binary in binaries.items():
            seconds[name].append(processor_seconds([binary, TIMED], cpu=0))
    times = {name: statistics.median(values) for name, values in seconds.items()}
    predicted = _predicted(toolchain, binaries, folder / "recordings")
    base = "plain `-O2`"
    rows: list[list[Cell]] = []
    for name in ways:
        costs = predicted[name]
        ratios = (costs[judge] / predicted[base][judge] for judge in costs)
        rows.append([name, times[name], times[name] / times[base], *ratios])
    columns = {"way": "text", "time": "seconds:2", "time, ratio": "ratio:2"}
    columns |= dict.fromkeys(predicted[base], "ratio:2")
    return [
        Table.of(
            "ways",
            "Processor time, median of "
            f"{ROUNDS} interleaved runs, and predicted costs, each as a ratio to plain `-O2`.",
            columns,
            rows,
        )
    ]


def _build(toolchain: Toolchain, output: Path, flags: Sequence[str]) -> Path:
    output.parent.mkdir(parents=True, exist_ok=True)
    words: list[str | Path] = [
        toolchain.clang,
        "--driver-mode=g++",
        "-O2",
        *RECORD_FLAGS,
    ]
    words += ["-Wl,--build-id", *flags, PASSED_LOCAL, "-o", output]
    run_command(words, timeout_s=300)
    return output


def _predicted(
    toolchain: Toolchain, binaries: Mapping[str, Path], folder: Path
) -> dict[str, dict[str, float]]:
    """Costs of a run of each binary, by judge."""
    context = Context(tool=toolchain.trace_cost, cpu=cpu_file("host"))
    without = replace(context, without=("failed-forwarding",))
    judges = {
        "instructions": ("count", context),
        "llvm-mca": ("mca", context),
        "`mca-pmu` without `failed-forwarding`": ("mca-pmu", without),
        "`mca-pmu`": ("mca-pmu", context),
    }
    predicted: dict[str, dict[str, float]] = {name: {} for name in binaries}
    candidates = [[binary] for binary in binaries.values()]
    for judge, (evaluator, given) in judges.items():
        chosen = EVALUATORS[evaluator]
        assert isinstance(chosen, Replay)
        costs = judged(Recorder(chosen, WORKLOAD, folder), candidates, given)
        for name, cost in zip(binaries, costs, strict=True):
            predicted[name][judge] = cost.total
    return predicted
