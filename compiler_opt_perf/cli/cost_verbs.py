# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs of evaluators."""

from pathlib import Path
from typing import Any

from absl import flags

from compiler_opt_perf.cli.verb import UsageError, Verb
from compiler_opt_perf.toolchain.layout import BUILD


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


# cop cost calibrate


def _define_calibrate(values: flags.FlagValues) -> None:
    flags.DEFINE_string(
        "output", None, "CPU file to write, JSON", flag_values=values, required=True
    )
    flags.DEFINE_integer("repetitions", 101, "samples of each measurement", 11, flag_values=values)


def _calibrate(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.cost.calibrate import calibrate, summary

    print(summary(calibrate(Path(values.output), values.repetitions)), end="")


# cop cost predict


def _define_predict(values: flags.FlagValues) -> None:
    from compiler_opt_perf.cost.evaluator import EVALUATORS

    flags.DEFINE_enum("evaluator", "mca-pmu", list(EVALUATORS), "what tells", flag_values=values)
    flags.DEFINE_string(
        "trace", None, "block trace or window histogram of the run", flag_values=values
    )
    flags.DEFINE_string(
        "traced",
        None,
        "the binary that was traced: blocks are then compared by their instructions, too",
        flag_values=values,
    )
    flags.DEFINE_string("cpu", None, "CPU file, for cycles", flag_values=values)
    flags.DEFINE_string(
        "profile", None, "PMU profile of the run, for mca-pmu, profile-count", flag_values=values
    )
    flags.DEFINE_string("base", None, "the profiled binary, for profile-count", flag_values=values)
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
    flags.DEFINE_string(
        "toolchain", str(BUILD / "toolchain" / "dev"), "folder of the tools", flag_values=values
    )


def _predict(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.cost.description import describe
    from compiler_opt_perf.cost.evaluator import EVALUATORS, Context, TraceReplay
    from compiler_opt_perf.toolchain.installation import Toolchain

    if not arguments:
        raise UsageError("expected object files or a binary")
    evaluator = EVALUATORS[values.evaluator]
    replays = isinstance(evaluator, TraceReplay)
    context = Context(
        tool=Toolchain.load(Path(values.toolchain)).trace_cost if replays else None,
        trace=_path(values.trace),
        traced=_path(values.traced),
        cpu=_path(values.cpu),
        profile=_path(values.profile),
        base=_path(values.base),
        entries=tuple(values.entry),
        without=tuple(values.without),
    )
    cost = evaluator.cost([Path(argument) for argument in arguments], context)
    print(describe(evaluator, cost, values.top), end="")


VERBS: tuple[Verb, ...] = (
    Verb(
        "cost calibrate",
        "Measure the latencies and penalties of the present CPU, without performance counters.",
        "cost calibrate --output=build/cpu.json",
        _define_calibrate,
        _calibrate,
    ),
    Verb(
        "cost predict",
        "Predict what code would cost on a recorded run, without running it.",
        "cost predict --trace=run.bbwindows --cpu=build/cpu.json --profile=run.pmu.json program",
        _define_predict,
        _predict,
        arguments="FILE...",
    ),
)
