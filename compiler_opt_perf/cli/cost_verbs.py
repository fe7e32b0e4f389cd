# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs of evaluators."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags

from compiler_opt_perf.cli.cost_model_verbs import LEARNED, model_of, predict_blocks
from compiler_opt_perf.cli.options import (
    cpu_of,
    define_cpu,
    define_path,
    define_toolchain,
    optional_path,
)
from compiler_opt_perf.cli.verb import Table, UsageError, Verb

# cop cost calibrate


def _define_calibrate(values: flags.FlagValues) -> None:
    define_path(values, "output", "CPU file to write, JSON")
    flags.DEFINE_integer("repetitions", 101, "samples of each measurement", 11, flag_values=values)
    flags.DEFINE_boolean(
        "allow_implausible",
        False,
        "write what was measured even if no known CPU is like that, as on a busy machine",
        flag_values=values,
    )


def _calibrate(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.blocks.calibrate import calibrate, summary

    cpu = calibrate(Path(values.output), values.repetitions, values.allow_implausible)
    return Table(lambda: summary(cpu), lambda: {"cpu": cpu})


# cop cost measure-blocks


def _define_measure_blocks(values: flags.FlagValues) -> None:
    define_path(values, "output", "file of measured blocks to write (docs/formats.md)")
    define_path(values, "bhive", "write a list in BHive's form besides", required=False)
    flags.DEFINE_integer(
        "most",
        None,
        "so many distinct blocks, drawn at random; all if not given",
        1,
        flag_values=values,
    )
    flags.DEFINE_integer("seed", 1, "of the order of blocks", 0, flag_values=values)
    flags.DEFINE_integer(
        "workers",
        0,
        "processes that measure; 0: three a core, for they mostly wait",
        lower_bound=0,
        flag_values=values,
    )
    flags.DEFINE_list(
        "miss_rates",
        [],
        "measure each block at known rates, once for each of these shares of its loads that miss "
        "(0 to 1), to a level of the cache drawn at random; blocks without a load whose address "
        "can be chosen are dropped: --miss-rates=0,0.1,0.5,1",
        flag_values=values,
    )
    flags.DEFINE_list(
        "mispredict_rates",
        ["0", "0.1", "0.4"],
        "with --miss-rates: shares of mispredictions of a jump before the block (0 to 0.5), of "
        "which one is drawn each time",
        flag_values=values,
    )


def _measure_blocks(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.blocks.block_code import distinct, find_blocks
    from compiler_opt_perf.blocks.block_file import write_bhive
    from compiler_opt_perf.blocks.measure_blocks import BATCH, describe, measure_blocks, sampled
    from compiler_opt_perf.blocks.rated_blocks import at_rates

    found = find_blocks(_candidates(arguments))
    blocks = sampled(distinct(found), values.most, values.seed)
    output, bhive = Path(values.output), optional_path(values, "bhive")
    if values.miss_rates:
        misses = _shares(values.miss_rates, "miss-rates", 1.0)
        mispredicts = _shares(values.mispredict_rates, "mispredict-rates", 0.5)
        blocks = list(at_rates(blocks, misses, mispredicts, values.seed))
    label = f"measuring {len(blocks):,} blocks, {BATCH} at a time"
    measured = measure_blocks(blocks, output, workers=values.workers or None, label=label)
    if bhive:
        write_bhive(bhive, measured.rows)
    return Table(
        lambda: describe(measured),
        lambda: {
            "written": str(output),
            "blocks": len(measured.rows),
            "measured": len(measured.measured()),
            "dropped": measured.dropped(),
        },
    )


def _shares(words: Sequence[str], option: str, most: float) -> list[float]:
    """Numbers of an option. Raises UsageError."""
    try:
        shares = [float(word) for word in words]
    except ValueError:
        shares = [-1.0]
    if not shares or not all(0 <= share <= most for share in shares):
        raise UsageError(f"--{option}={','.join(words)}: expected numbers from 0 to {most:g}")
    return shares


# cop cost predict


def _define_predict(values: flags.FlagValues) -> None:
    from compiler_opt_perf.cost.evaluator import EVALUATORS

    flags.DEFINE_enum(
        "evaluator",
        None,
        [*EVALUATORS, *LEARNED],
        "what tells: mca-pmu if not given; those that are learned need --model",
        flag_values=values,
    )
    define_path(
        values,
        "model",
        "folder of a learned cost model, which tells the cycles of a run with --trace; without, "
        "those of single blocks, as hexadecimal digits or files of measured blocks; --cpu names "
        "the CPU",
        required=False,
    )
    define_path(
        values,
        "correction",
        "file of weights, with --model, --trace and --profile: what the model says of blocks, and "
        "what the run tells besides, count by these (python -m benchmarks cycles fits them)",
        required=False,
    )
    for name, what in (
        ("trace", "block trace or window histogram of the run"),
        (
            "traced",
            "the binary that was traced: blocks are then compared by their instructions, too",
        ),
        ("profile", "PMU profile of the run, for mca-pmu, granite-pmu"),
    ):
        define_path(values, name, what, required=False)
    define_cpu(values, "for cycles")
    flags.DEFINE_list(
        "without", [], "parts that mca-pmu leaves out: llvm-trace-cost --help", flag_values=values
    )
    flags.DEFINE_integer("top", 20, "how many functions to show", 0, flag_values=values)
    define_toolchain(values, "toolchain", "dev")


def _predict(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.cost.evaluator import EVALUATORS, Context, Evaluator, TraceReplay
    from compiler_opt_perf.cost.report import CandidateCost, describe, document
    from compiler_opt_perf.toolchain.installation import Toolchain

    evaluator: Evaluator
    if values.model or values.evaluator in LEARNED:
        model, cpu = model_of(values)
        if not values.trace:
            return predict_blocks(model, cpu, arguments)
        from compiler_opt_perf.blocks.cpu_files import cpu_file
        from compiler_opt_perf.cost.correction import read_correction
        from compiler_opt_perf.cost.learned_replay import LearnedReplay

        path = optional_path(values, "correction")
        evaluator = LearnedReplay(model, cpu, read_correction(path) if path else None)
        parameters, replays = cpu_file(cpu) if path else None, True
    elif values.correction:
        raise UsageError("--correction is of a learned model: give --model and --trace, too")
    else:
        evaluator, parameters = EVALUATORS[values.evaluator or "mca-pmu"], cpu_of(values)
        replays = isinstance(evaluator, TraceReplay)
    named = _candidates(arguments)
    context = Context(
        tool=Toolchain.load(Path(values.toolchain)).trace_cost if replays else None,
        trace=optional_path(values, "trace"),
        traced=optional_path(values, "traced"),
        cpu=parameters,
        profile=optional_path(values, "profile"),
        without=tuple(values.without),
    )
    candidates = [
        CandidateCost(name, tuple(files), evaluator.cost(files, context))
        for name, files in named.items()
    ]
    return Table(
        lambda: describe(evaluator, candidates, values.top),
        lambda: document(evaluator, candidates, values.top),
    )


def _candidates(arguments: Sequence[str]) -> dict[str, list[Path]]:
    """The files of each candidate by its name; without names, all are of one without a name.

    Raises:
      UsageError: there are none, some have a name and others have none, or a folder has no object
        file.
    """
    if not arguments:
        raise UsageError("expected object files or a binary, of several candidates NAME=FILE")
    found: dict[str, list[Path]] = {}
    for word in arguments:
        name, equals, path = word.partition("=")
        if not equals or Path(word).exists():
            name, path = "", word
        if not path:
            raise UsageError(f"{word!r}: expected NAME=FILE")
        files = [Path(path)]
        if files[0].is_dir():
            files = sorted(files[0].rglob("*.o"))
            if not files:
                raise UsageError(f"{path}: has no object files, NAME.o")
        found.setdefault(name, []).extend(files)
    if "" in found and len(found) > 1:
        raise UsageError(
            f"{found[''][0]}: of which candidate? Give all files as NAME=FILE, or none"
        )
    return found


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
        "cost measure-blocks",
        "Measure what basic blocks of machine code take on the present CPU, without counters; goes "
        "on where it was interrupted.",
        "cost measure-blocks --output=build/lua.blocks --most=2000 lua=build/lua/lua",
        _define_measure_blocks,
        _measure_blocks,
        arguments="FILE...|NAME=FILE|FOLDER...",
        json_version=1,
    ),
    Verb(
        "cost predict",
        "Predict what code would cost on a recorded run, without running it; compare candidates.",
        "cost predict --trace=run.bbwindows --cpu=host --profile=run.pmu.json default=program"
        " candidate=other/program",
        _define_predict,
        _predict,
        arguments="FILE...|NAME=FILE|FOLDER...",
        json_version=1,
    ),
)
