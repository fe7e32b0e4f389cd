# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Do predicted costs rank compilations of a program as measured times do?

Real programs are compiled by several register allocations of the same optimised code. One run of
the default one is recorded (block trace, PMU profile), and every evaluator predicts the cost of
every variant from that. Then all variants run by the protocol of `timing`. Each of `STEPS` goes on
where it stopped.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import NoneType

import msgspec
import numpy as np

from benchmarks.common import WINDOW, BenchmarkError, read_result, recorded
from benchmarks.programs.workloads import TIMED
from benchmarks.rank_tables import Ranked, tables
from benchmarks.ranking import Measured
from benchmarks.results import Table
from benchmarks.timing import LAYOUTS, ROUNDS, Rounds, run_rounds
from benchmarks.variant_builds import Builds
from benchmarks.variants import DEFAULT, Variant
from compiler_opt_perf.blocks.calibrate import calibrate
from compiler_opt_perf.blocks.cpu_files import llvm_name
from compiler_opt_perf.blocks.model import CostModel, load
from compiler_opt_perf.cost.batch import costs
from compiler_opt_perf.cost.evaluator import EVALUATORS, Context, TraceReplay
from compiler_opt_perf.cost.learned_replay import LearnedReplay
from compiler_opt_perf.profile.profile import Profile
from compiler_opt_perf.run.files import sha256, write_json
from compiler_opt_perf.run.memo import memo
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.timing import processor_seconds, seconds_so_far
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.trace.synthesis import synthesise
from compiler_opt_perf.trace.windows import write_windows

_DRAWN_BLOCKS = 1_000_000
_EVALUATIONS = 3
# Parts of mca-pmu that are left out, one at a time.
_PARTS = (
    "stack-slots",
    "other-stores",
    "renaming",
    "dispatch-width",
    "l1-misses",
    "llc-misses",
    "outstanding-misses",
    "predictor",
    "mispredicts",
    "icache-misses",
    "taken-branches",
)

PROGRAMS = tuple(TIMED)
# What each step does.
STEPS = {
    "build": "compile the variants, and check that all compute the same",
    "record": "record a block trace and a PMU profile of the default variant",
    "evaluate": "predict with every evaluator",
    "measure": "run all variants and time the evaluators, on an otherwise idle machine",
}


class _Noted(msgspec.Struct, frozen=True):
    """The note of what was measured."""

    result: Rounds


class _Predictions(msgspec.Struct, frozen=True):
    """Costs of the variants, by way to predict."""

    variants: list[str]
    costs: dict[str, list[float]]


class RankedProgram:
    """The steps for one program, in a folder of its own."""

    def __init__(
        self,
        name: str,
        folder: Path,
        toolchain: Toolchain,
        cpu: Path,
        models: Sequence[CostModel],
    ):
        self.name = name
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.toolchain = toolchain
        self.case = TIMED[name](self.folder)
        self.cpu = cpu
        self.models = models
        self.builds = Builds(name, self.folder, self.case, toolchain)

    def record(self) -> None:
        """Records the block trace and the PMU profile of the default variant's run."""
        binary = self.builds.binary(DEFAULT)
        recorded(binary, self.case.arguments, self.folder, self.builds.run_inputs())

    def measure(self, rounds: int, processor: int) -> None:
        """Runs all variants until there are `rounds` rounds, and times the evaluators."""
        binaries = {
            variant.name: [self.builds.binary(variant, layout) for layout in range(LAYOUTS)]
            for variant in self.builds.variants()
        }
        run_rounds(
            self.folder / "rounds.json",
            binaries,
            self.case.arguments,
            self.builds.run_inputs(),
            rounds,
            processor,
            label=self.name,
        )
        self._time_evaluators(processor)

    def evaluate(self) -> None:
        """Predicts the cost of every variant with every evaluator."""
        self._draw()
        variants = self.builds.variants()
        predictions: dict[str, list[float]] = {}
        with Pool() as pool:
            for name, (evaluator, context) in self._ways().items():
                candidates = [self._candidate(evaluator, variant) for variant in variants]
                outcomes = costs(evaluator, candidates, context, pool, f"{self.name}: {name}")
                predictions[name] = [outcome.get().total for outcome in outcomes]
        for model in self.models:
            learned = self._learned(model)
            predictions[learned.name] = [
                learned.cost([self.builds.binary(variant)], self._context).total
                for variant in variants
            ]
        names = [variant.name for variant in variants]
        write_json(self.folder / "predictions.json", {"variants": names, "costs": predictions})

    @property
    def _context(self) -> Context:
        return Context(
            tool=self.toolchain.trace_cost,
            trace=self.folder / "run.bbwindows",
            cpu=self.cpu,
            profile=self.folder / "run.pmu.json",
            threads=1,
            cache=self.folder / "costs",
        )

    def _learned(self, model: CostModel) -> LearnedReplay:
        """A new evaluator, which has predicted nothing so far."""
        return LearnedReplay(model, llvm_name(self.cpu))

    def _ways(self) -> dict[str, tuple[str, Context]]:
        """Evaluator and context of each way to predict, but for a learned model."""
        context = self._context
        ways = {name: (name, context) for name in EVALUATORS}
        for part in _PARTS:
            ways[f"mca-pmu without {part}"] = ("mca-pmu", replace(context, without=(part,)))
        drawn = replace(context, trace=self.folder / "drawn.bbwindows")
        ways["mca-pmu on a drawn path"] = ("mca-pmu", drawn)
        return ways

    def _candidate(self, evaluator: str, variant: Variant) -> list[Path]:
        if evaluator.startswith("regalloc-score"):
            return self.builds.objects(variant)
        return [self.builds.binary(variant)]

    def _draw(self) -> None:
        """A path drawn from the profile, in the place of the trace."""
        windows, binary = self.folder / "drawn.bbwindows", self.builds.binary(DEFAULT)
        # It holds the checksums of its files.
        manifest = self.folder / "run.pmu.json"
        inputs = {
            "binary": sha256(binary),
            "profile": sha256(manifest),
            "blocks": _DRAWN_BLOCKS,
            "seed": 1,
            "window": WINDOW,
        }

        def drawn() -> None:
            profile, path = Profile.load(manifest), self.folder / "drawn.bbtrace"
            write_windows(
                synthesise(binary, profile, path, blocks=_DRAWN_BLOCKS, seed=1), WINDOW, windows
            )

        memo(self.folder / "drawn.json", inputs, NoneType, drawn, [windows])

    def _time_evaluators(self, processor: int) -> None:
        """Processor time of evaluating the default variant, and of a run of it."""
        binary = self.builds.binary(DEFAULT)
        seconds: dict[str, list[float]] = {}
        for _ in range(_EVALUATIONS):
            run = processor_seconds([binary, *self.case.arguments], processor)
            seconds.setdefault("run", []).append(run)
            for name, (evaluator, context) in self._ways().items():
                if context.without:
                    continue
                chosen = EVALUATORS[evaluator]
                if isinstance(chosen, TraceReplay):
                    used = processor_seconds(chosen.command([binary], context), processor)
                else:
                    before = seconds_so_far()
                    candidate = self._candidate(evaluator, DEFAULT)
                    chosen.cost(candidate, replace(context, cache=None))
                    used = seconds_so_far() - before
                seconds.setdefault(name, []).append(used)
            for model in self.models:
                learned = self._learned(model)
                before = seconds_so_far()
                learned.cost([binary], replace(self._context, cache=None))
                seconds.setdefault(learned.name, []).append(seconds_so_far() - before)
        median = {name: statistics.median(values) for name, values in seconds.items()}
        write_json(self.folder / "evaluation_seconds.json", median)


def result(name: str, folder: Path) -> Ranked | None:
    """The results of all steps for a program; None if one is missing.

    Raises:
      BenchmarkError: results do not belong together, or are damaged.
    """
    files = [folder / f"{step}.json" for step in ("rounds", "predictions", "evaluation_seconds")]
    if not all(path.is_file() for path in files):
        return None
    rounds = read_result(files[0], _Noted).result
    predictions = read_result(files[1], _Predictions)
    if predictions.variants != rounds.variants:
        raise BenchmarkError(f"{folder}: measured and predicted variants differ; repeat both steps")
    evaluation = read_result(files[2], dict[str, float])
    return Ranked(
        name=name,
        variants=tuple(rounds.variants),
        measured=Measured(rounds.seconds, rounds.layouts),
        rounds=len(rounds.seconds),
        layouts=rounds.turns,
        predictions={name: np.array(costs) for name, costs in predictions.costs.items()},
        evaluation_s=evaluation,
        run_s=evaluation["run"],
    )


def study(
    programs: Sequence[str],
    folder: Path,
    toolchain: Toolchain,
    *,
    steps: Sequence[str] = tuple(STEPS),
    rounds: int = ROUNDS,
    processor: int,
    cpu: Path | None = None,
    models: Sequence[Path] = (),
) -> list[Table]:
    """Runs the given `STEPS` for the given `PROGRAMS`, in this order.

    Args:
      rounds: how often all variants run.
      processor: number of the processor that runs are bound to.
      cpu: CPU file; None for FOLDER/cpu.json, which is measured if it is missing.
      models: folders of learned cost models to compare, too, each of another evaluator; they must
        know the CPU.

    Returns:
      The tables of all programs for which all steps are done; none if there are none.

    Raises:
      BenchmarkError: the variants compute different things, results do not belong together, or two
        models are the same evaluator.
      LearnedError: a model is damaged, or does not know the CPU.
      OSError: the files of an earlier step are missing.
    """
    cpu = (cpu or folder / "cpu.json").resolve()
    if not cpu.exists():
        calibrate(cpu)
    learned: dict[str, CostModel] = {}
    for path in models:
        model = load(path)
        model.require_cpu(llvm_name(cpu))
        if model.config.name in learned:
            raise BenchmarkError(
                f"{path} is another model {model.config.name}; compare one at a time"
            )
        learned[model.config.name] = model
    for name in programs:
        one = RankedProgram(name, folder / name, toolchain, cpu, tuple(learned.values()))
        actions: dict[str, Callable[[], None]] = {
            "build": one.builds.build,
            "record": one.record,
            "evaluate": one.evaluate,
            "measure": partial(one.measure, rounds, processor),
        }
        for step in STEPS:
            if step in steps:
                actions[step]()
    done = [ranked for name in PROGRAMS if (ranked := result(name, folder / name))]
    return tables(done) if done else []
