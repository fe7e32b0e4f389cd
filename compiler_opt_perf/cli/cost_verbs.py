# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs of evaluators: what code costs, by analysis, by replay or by a learned model."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from click import UsageError

from compiler_opt_perf.cli import options
from compiler_opt_perf.cli.options import (
    candidates_by_name,
    cpu_of,
    model_folder,
    required_model_folder,
)
from compiler_opt_perf.cli.parameters import WORDS, Argument, Flag, LateChoice
from compiler_opt_perf.cli.profile_verbs import check_run
from compiler_opt_perf.cli.verb import Group, Table

if TYPE_CHECKING:
    from compiler_opt_perf.blocks.model import CostModel
    from compiler_opt_perf.cost.evaluator import Evaluator
    from compiler_opt_perf.cost.recording import Recorder

cost = Group("cost", help="What machine code costs: measured, predicted, learned.")

#: Evaluators that are learned models, by network and whether they take PMU inputs.
LEARNED = ("granite", "granite-pmu")
_HEXADECIMAL = frozenset("0123456789abcdefABCDEF")

_Candidates = Annotated[Sequence[str], Argument("FILE...|NAME=FILE|FOLDER...")]
Data = Annotated[
    Sequence[Path], Flag("file of measured blocks (cop cost measure-blocks); once for each")
]


@cost.verb("calibrate", example="cost calibrate --output=build/cpu.json", json_version=1)
def calibrate(
    output: Annotated[Path, Flag("CPU file to write, JSON")],
    repetitions: Annotated[int, Flag("samples of each measurement", low=11)] = 101,
    force: Annotated[
        bool,
        Flag("write what was measured even if no known CPU is like that, as on a busy machine"),
    ] = False,
) -> Table:
    """Measure latencies and penalties of the present CPU, without performance counters."""
    from compiler_opt_perf.blocks.calibrate import calibrate, summary

    cpu = calibrate(output, repetitions, force)
    return Table(lambda: summary(cpu), lambda: {"cpu": cpu})


@cost.verb(
    "measure-blocks",
    example="cost measure-blocks --output=build/lua.blocks --most=2000 lua=build/lua/lua",
    json_version=1,
)
def measure_blocks(
    output: Annotated[Path, Flag("file of measured blocks to write (docs/reference/formats.md)")],
    candidates: _Candidates = (),
    bhive: Annotated[Path | None, Flag("write a list in BHive's form besides")] = None,
    most: Annotated[
        int | None, Flag("so many distinct blocks, drawn at random; all if not given", low=1)
    ] = None,
    seed: Annotated[int, Flag("of the order of blocks")] = 1,
    workers: Annotated[
        int, Flag("processes that measure; 0: three a core, for they mostly wait", low=0)
    ] = 0,
    miss_rates: Annotated[
        Sequence[str],
        Flag(
            "measure each block at known rates, once for each of these shares of its loads that "
            "miss (0 to 1), to a level of the cache drawn at random; blocks without a load whose "
            "address can be chosen are dropped: --miss-rates=0,0.1,0.5,1",
            type=WORDS,
        ),
    ] = (),
    mispredict_rates: Annotated[
        Sequence[str],
        Flag(
            "with --miss-rates: shares of mispredictions of a jump before the block (0 to 0.5), "
            "of which one is drawn each time; 0, 0.1 and 0.4 if not given",
            type=WORDS,
        ),
    ] = (),
    failed_forward_rates: Annotated[
        Sequence[str],
        Flag(
            "with --miss-rates: put a store before the block, and measure once for each of these "
            "shares of loads that it cannot be forwarded to (0 to 1)",
            type=WORDS,
        ),
    ] = (),
) -> Table:
    """Measure what basic blocks of machine code take on the present CPU, without counters; goes
    on where it was interrupted."""
    from compiler_opt_perf.blocks.block_code import distinct, find_blocks
    from compiler_opt_perf.blocks.block_file import write_bhive
    from compiler_opt_perf.blocks.measure_blocks import BATCH, describe, measure_blocks, sampled
    from compiler_opt_perf.blocks.rated_blocks import at_rates

    others = {"mispredict-rates": mispredict_rates, "failed-forward-rates": failed_forward_rates}
    if not miss_rates and (alone := [name for name, rates in others.items() if rates]):
        raise UsageError(f"--{alone[0]} needs --miss-rates; --miss-rates=0 is for no misses")
    blocks = sampled(distinct(find_blocks(candidates_by_name(candidates))), most, seed)
    if miss_rates:
        misses = _shares(miss_rates, "miss-rates", 1.0)
        mispredicts = _shares(mispredict_rates or ("0", "0.1", "0.4"), "mispredict-rates", 0.5)
        failed = failed_forward_rates and _shares(failed_forward_rates, "failed-forward-rates", 1.0)
        blocks = list(at_rates(blocks, misses, mispredicts, seed, failed or [None]))
    label = f"measuring {len(blocks):,} blocks, {BATCH} at a time"
    measured = measure_blocks(blocks, output, workers=workers or None, label=label)
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


def _evaluators() -> Sequence[str]:
    from compiler_opt_perf.cost.evaluator import EVALUATORS

    return [*EVALUATORS, *LEARNED]


@cost.verb(
    "predict",
    example="cost predict --trace=run.bbwindows --cpu=host --profile=run.pmu.json "
    "default=program candidate=other/program",
    json_version=1,
)
def predict(
    candidates: _Candidates = (),
    evaluator: Annotated[
        str | None,
        Flag(
            "what tells: mca-pmu if not given; those that are learned need --model",
            type=LateChoice(_evaluators),
        ),
    ] = None,
    model: Annotated[
        Path | None,
        Flag(
            "learned cost model, a folder or the name of one in models/; it tells the cycles of a "
            "run with --trace; without, those of single blocks, as hexadecimal digits or files of "
            "measured blocks; --cpu names the CPU"
        ),
    ] = None,
    correction: Annotated[
        Path | None,
        Flag(
            "file of weights, with --model, --trace and --profile: what the model says of "
            "blocks, and what the run tells besides, count by these "
            "(`python -m benchmarks cycles` fits them)"
        ),
    ] = None,
    trace: Annotated[
        Path | None, Flag("block trace or window histogram of the run, which is replayed")
    ] = None,
    run: Annotated[
        str | None,
        Flag(
            "instead of --trace: candidates are programs, each is run with these arguments (one "
            "text, may be empty) in the simulators, and judged by its own run; for builds whose "
            "control flow differs"
        ),
    ] = None,
    stdin: Annotated[Path | None, Flag("with --run: file that the programs read")] = None,
    timeout: Annotated[
        float | None, Flag("with --run: limit of each simulation, seconds; 60 if not given")
    ] = None,
    traced: Annotated[
        Path | None,
        Flag("the binary that was traced: blocks are then compared by their instructions, too"),
    ] = None,
    profile: Annotated[
        Path | None, Flag("PMU profile of the run, for mca-pmu, granite-pmu")
    ] = None,
    cpu: Annotated[str | None, options.cpu("for cycles")] = None,
    without: Annotated[
        Sequence[str], Flag("parts that mca-pmu leaves out: llvm-trace-cost --help", type=WORDS)
    ] = (),
    top: Annotated[int, options.top("functions")] = 20,
    toolchain: options.Toolchain = options.DEV,
) -> Table:
    """Predict what code costs, by replay of a recorded run or by a run of its own; compare it."""
    from compiler_opt_perf.cost.evaluator import EVALUATORS, Context, Evaluator, TraceReplay
    from compiler_opt_perf.cost.recording import judged
    from compiler_opt_perf.cost.report import CandidateCost, describe, document
    from compiler_opt_perf.toolchain.installation import Toolchain

    chosen: Evaluator
    if model or evaluator in LEARNED:
        learned, cpu_name = model_of(model, evaluator, cpu)
        if not trace and run is None:
            return _predict_blocks(learned, cpu_name, candidates)
        from compiler_opt_perf.blocks.cpu_files import cpu_file
        from compiler_opt_perf.cost.correction import read_correction
        from compiler_opt_perf.cost.learned_replay import LearnedReplay

        weights = read_correction(correction) if correction else None
        chosen = LearnedReplay(learned, cpu_name, weights)
        needs_cpu = correction or chosen.uses_cpu
        parameters, replays = cpu_file(cpu_name) if needs_cpu else None, True
    elif correction:
        raise UsageError("--correction is of a learned model: give --model and --trace, too")
    else:
        chosen, parameters = EVALUATORS[evaluator or "mca-pmu"], cpu_of(cpu)
        replays = isinstance(chosen, TraceReplay)
    named = candidates_by_name(candidates)
    context = Context(
        tool=Toolchain.load(toolchain).trace_cost if replays else None,
        trace=trace,
        traced=traced,
        cpu=parameters,
        profile=profile,
        without=tuple(without),
    )
    if run is None:
        if stdin or timeout:
            raise UsageError("--stdin and --timeout are of candidates that run: give --run, too")
        found = [chosen.cost(files, context) for files in named.values()]
    else:
        recorder = _recorder(chosen, run, stdin, timeout, trace or traced or profile)
        found = judged(recorder, list(named.values()), context)
    costs = [
        CandidateCost(name, tuple(files), cost)
        for (name, files), cost in zip(named.items(), found, strict=True)
    ]
    return Table(lambda: describe(chosen, costs, top), lambda: document(chosen, costs, top))


def _recorder(
    evaluator: "Evaluator",
    arguments: str,
    stdin: Path | None,
    timeout: float | None,
    replayed: Path | None,
) -> "Recorder":
    """What records the candidates. Raises UsageError: flags contradict one another."""
    from compiler_opt_perf.cost import recording
    from compiler_opt_perf.cost.evaluator import Replay

    if replayed:
        raise UsageError(
            f"{replayed}: is of a run that is replayed; with --run, each candidate has its own: "
            "leave --trace, --traced and --profile away"
        )
    if not isinstance(evaluator, Replay):
        raise UsageError(f"--evaluator={evaluator.name}: needs no run; leave --run away")
    check_run((), None, timeout)
    try:
        words = tuple(shlex.split(arguments))
    except ValueError as error:
        raise UsageError(f"--run={arguments}: {error}") from None
    workload = recording.Workload(words, stdin, timeout_s=timeout or 60.0)
    return recording.Recorder(evaluator, workload, recording.FOLDER)


def model_of(
    folder: Path | None, evaluator: str | None, cpu: str | None, flag: str = "--model"
) -> tuple["CostModel", str]:
    """The learned model that is asked for, and LLVM's name of the CPU.

    Args:
      folder: of the model, as the flag `flag` names it.
      evaluator: as `--evaluator` says.
      cpu: as `--cpu` says; by default the present one.

    Raises:
      UsageError: there is none, or `--evaluator` names another kind.
      LearnedError: the model is damaged, or does not know the CPU.
    """
    from compiler_opt_perf.blocks.cpu_files import HOST, host_cpu, llvm_name
    from compiler_opt_perf.blocks.model import load

    folder = model_folder(folder, flag)
    if folder is None:
        raise UsageError(
            f"--evaluator={evaluator}: give the folder of such a model, too, as {flag}=cost-znver3"
        )
    model = load(folder)
    if evaluator not in (None, model.config.name):
        raise UsageError(
            f"--evaluator={evaluator}: {folder} is a {model.config.name}; give "
            f"--evaluator={model.config.name} or leave it out"
        )
    cpu = cpu or HOST
    if cpu == HOST:
        cpu = host_cpu()
    elif Path(cpu).suffix == ".json":
        cpu = llvm_name(Path(cpu))
    model.require_cpu(cpu)
    return model, cpu


def _predict_blocks(model: "CostModel", cpu: str, words: Sequence[str]) -> Table:
    """Cycles of blocks by a learned model."""
    from compiler_opt_perf.blocks.block_file import read_blocks
    from compiler_opt_perf.blocks.data import known_of
    from compiler_opt_perf.blocks.model import counted
    from compiler_opt_perf.run.pool import Pool

    if not words:
        raise UsageError(
            "expected blocks in hexadecimal digits, or files of measured blocks; or --trace and "
            "object files"
        )
    codes: list[str] = []
    pmu: list[Any] = []
    for word in words:
        if Path(word).exists():
            rows = read_blocks(Path(word)).rows
            codes += [row.code for row in rows]
            pmu += [known_of(row, Path(word)) for row in rows]
        elif set(word) <= _HEXADECIMAL and len(word) % 2 == 0:
            codes.append(word.lower())
            pmu.append(None)
        else:
            raise UsageError(f"{word!r}: no such file, and no block in hexadecimal digits")
    with Pool() as pool:
        predicted, problems = model.predict(list(map(bytes.fromhex, codes)), cpu, pmu, pool)

    def text() -> str:
        shown = [
            f"{'-' if number in problems else format(cycles, '.2f'):>10}  {code}"
            for number, (code, cycles) in enumerate(zip(codes, predicted, strict=True))
        ]
        refused = [f"{count:,} blocks refused: {why}" for why, count in counted(problems).items()]
        head = f"{model.config.name}: cycles of an execution on {cpu}, of many in a row"
        return "\n".join([head, *shown, *refused]) + "\n"

    return Table(
        text,
        lambda: {
            "model": model.config.name,
            "cpu": cpu,
            "blocks": [
                {"code": code, "cycles": None if number in problems else round(float(cycles), 4)}
                for number, (code, cycles) in enumerate(zip(codes, predicted, strict=True))
            ],
            "refused": counted(problems),
        },
    )


@cost.verb("eval", example="cost eval --model=models/cost-znver3 --data=lua.blocks", json_version=1)
def evaluate(
    model: Annotated[Path, Flag("learned cost model: a folder, or the name of one in models/")],
    data: Data,
    blocks: Annotated[
        Literal["test", "validation", "training", "all"],
        Flag("which of them, by the model's own division; test: those that it was never shown"),
    ] = "test",
    plot: Annotated[
        Path | None, Flag("SVG file to write: predicted against measured cycles")
    ] = None,
) -> Table:
    """Judge a learned cost model by measured blocks."""
    from dataclasses import asdict

    from compiler_opt_perf.blocks.data import read_data
    from compiler_opt_perf.blocks.judge import evaluate
    from compiler_opt_perf.blocks.model import load

    learned = load(required_model_folder(model))
    files = read_data(data)
    found = evaluate(learned, files, None if blocks == "all" else blocks)
    if plot:
        from compiler_opt_perf.pages.predictions import write_plot

        write_plot(plot, f"{found.model} on {found.cpu}", found.points)
    return Table(
        found.text,
        lambda: {
            "model": found.model,
            "cpu": found.cpu,
            "blocks": {name: asdict(one) for name, one in found.figures.items()},
            "refused": dict(found.refused),
        },
    )
