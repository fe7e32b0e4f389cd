# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs of evaluators: what code costs, by analysis, by replay or by a learned model."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from click import UsageError

from compiler_opt_perf.cli import options
from compiler_opt_perf.cli.options import cpu_of, model_folder, required_model_folder
from compiler_opt_perf.cli.parameters import WORDS, Argument, Flag, LateChoice
from compiler_opt_perf.cli.verb import Group, Table

if TYPE_CHECKING:
    from compiler_opt_perf.blocks.model import CostModel

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
            "of which one is drawn each time",
            type=WORDS,
        ),
    ] = ("0", "0.1", "0.4"),
) -> Table:
    """Measure what basic blocks of machine code take on the present CPU, without counters; goes
    on where it was interrupted."""
    from compiler_opt_perf.blocks.block_code import distinct, find_blocks
    from compiler_opt_perf.blocks.block_file import write_bhive
    from compiler_opt_perf.blocks.measure_blocks import BATCH, describe, measure_blocks, sampled
    from compiler_opt_perf.blocks.rated_blocks import at_rates

    blocks = sampled(distinct(find_blocks(_by_name(candidates))), most, seed)
    if miss_rates:
        misses = _shares(miss_rates, "miss-rates", 1.0)
        mispredicts = _shares(mispredict_rates, "mispredict-rates", 0.5)
        blocks = list(at_rates(blocks, misses, mispredicts, seed))
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
    trace: Annotated[Path | None, Flag("block trace or window histogram of the run")] = None,
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
    """Predict what code would cost on a recorded run, without running it; compare candidates."""
    from compiler_opt_perf.cost.evaluator import EVALUATORS, Context, Evaluator, TraceReplay
    from compiler_opt_perf.cost.report import CandidateCost, describe, document
    from compiler_opt_perf.toolchain.installation import Toolchain

    chosen: Evaluator
    if model or evaluator in LEARNED:
        learned, cpu_name = model_of(model, evaluator, cpu)
        if not trace:
            return _predict_blocks(learned, cpu_name, candidates)
        from compiler_opt_perf.blocks.cpu_files import cpu_file
        from compiler_opt_perf.cost.correction import read_correction
        from compiler_opt_perf.cost.learned_replay import LearnedReplay

        weights = read_correction(correction) if correction else None
        chosen = LearnedReplay(learned, cpu_name, weights)
        parameters, replays = cpu_file(cpu_name) if correction else None, True
    elif correction:
        raise UsageError("--correction is of a learned model: give --model and --trace, too")
    else:
        chosen, parameters = EVALUATORS[evaluator or "mca-pmu"], cpu_of(cpu)
        replays = isinstance(chosen, TraceReplay)
    named = _by_name(candidates)
    context = Context(
        tool=Toolchain.load(toolchain).trace_cost if replays else None,
        trace=trace,
        traced=traced,
        cpu=parameters,
        profile=profile,
        without=tuple(without),
    )
    costs = [
        CandidateCost(name, tuple(files), chosen.cost(files, context))
        for name, files in named.items()
    ]
    return Table(lambda: describe(chosen, costs, top), lambda: document(chosen, costs, top))


def _by_name(words: Sequence[str]) -> dict[str, list[Path]]:
    """The files of each candidate by its name; without names, all are of one without a name.

    Raises:
      UsageError: there are none, some have a name and others have none, or a folder has no object
        file.
    """
    if not words:
        raise UsageError("expected object files or a binary, of several candidates NAME=FILE")
    found: dict[str, list[Path]] = {}
    for word in words:
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
