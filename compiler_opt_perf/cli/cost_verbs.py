# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs of evaluators."""

from pathlib import Path
from typing import Any

from absl import flags

from compiler_opt_perf.cli.options import define_path, define_toolchain, optional_path
from compiler_opt_perf.cli.verb import Table, UsageError, Verb

# cop cost calibrate


def _define_calibrate(values: flags.FlagValues) -> None:
    define_path(values, "output", "CPU file to write, JSON")
    flags.DEFINE_integer("repetitions", 101, "samples of each measurement", 11, flag_values=values)


def _calibrate(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.cost.calibrate import calibrate, summary

    cpu = calibrate(Path(values.output), values.repetitions)
    return Table(summary(cpu), {"cpu": cpu})


# cop cost predict


def _define_predict(values: flags.FlagValues) -> None:
    from compiler_opt_perf.cost.evaluator import EVALUATORS

    flags.DEFINE_enum("evaluator", "mca-pmu", list(EVALUATORS), "what tells", flag_values=values)
    for name, what in (
        ("trace", "block trace or window histogram of the run"),
        (
            "traced",
            "the binary that was traced: blocks are then compared by their instructions, too",
        ),
        ("cpu", "CPU file, for cycles"),
        ("profile", "PMU profile of the run, for mca-pmu, profile-count"),
        ("base", "the profiled binary, for profile-count"),
    ):
        define_path(values, name, what, required=False)
    flags.DEFINE_list(
        "entry",
        [],
        "functions, such as request handlers, of which profile-count estimates what a call takes, "
        "callees included: --evaluator=profile-count --profile=run.pmu.json --base=program "
        "--entry=get_page,put_page candidate; a profile by `cop collect --within=` tells more",
        flag_values=values,
    )
    flags.DEFINE_list(
        "without", [], "parts that mca-pmu leaves out: llvm-trace-cost --help", flag_values=values
    )
    flags.DEFINE_integer("top", 20, "how many functions to show", 0, flag_values=values)
    define_toolchain(values, "toolchain", "dev")


def _predict(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.cost.evaluator import EVALUATORS, Context, TraceReplay
    from compiler_opt_perf.cost.report import Candidate, describe, document
    from compiler_opt_perf.toolchain.installation import Toolchain

    if not arguments:
        raise UsageError("expected object files or a binary")
    evaluator = EVALUATORS[values.evaluator]
    replays = isinstance(evaluator, TraceReplay)
    context = Context(
        tool=Toolchain.load(Path(values.toolchain)).trace_cost if replays else None,
        trace=optional_path(values, "trace"),
        traced=optional_path(values, "traced"),
        cpu=optional_path(values, "cpu"),
        profile=optional_path(values, "profile"),
        base=optional_path(values, "base"),
        entries=tuple(values.entry),
        without=tuple(values.without),
    )
    files = tuple(Path(argument) for argument in arguments)
    candidates = [Candidate("", files, evaluator.cost(files, context))]
    return Table(
        describe(evaluator, candidates, values.top), document(evaluator, candidates, values.top)
    )


VERBS: tuple[Verb, ...] = (
    Verb(
        "cost calibrate",
        "Measure the latencies and penalties of the present CPU, without performance counters.",
        "cost calibrate --output=build/cpu.json",
        _define_calibrate,
        _calibrate,
        json_version=1,
    ),
    Verb(
        "cost predict",
        "Predict what code would cost on a recorded run, without running it.",
        "cost predict --trace=run.bbwindows --cpu=build/cpu.json --profile=run.pmu.json program",
        _define_predict,
        _predict,
        arguments="FILE...",
        json_version=1,
    ),
)
