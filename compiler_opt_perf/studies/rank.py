# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares how predicted costs and measured times rank compilations of a program.

Four real programs, each compiled by several register allocations of the same optimised code. One
run of the default one is recorded (block trace, PMU profile); every evaluator predicts the cost of
every variant from that; then all variants run, interleaved. Each is linked in five layouts, with
which the rounds take turns; of its rounds in one layout the fastest parts count, and of layouts the
mean. Each of `STEPS` goes on where it stopped.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import NoneType

import msgspec
import numpy as np

from compiler_opt_perf.blocks.calibrate import calibrate
from compiler_opt_perf.blocks.cpu_files import llvm_name
from compiler_opt_perf.blocks.model import CostModel, load
from compiler_opt_perf.compare.ranking import Ranked
from compiler_opt_perf.cost.batch import costs
from compiler_opt_perf.cost.evaluator import EVALUATORS, Context, TraceReplay
from compiler_opt_perf.cost.learned_replay import LearnedReplay
from compiler_opt_perf.pages.ranking import write
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.profile.profile import Profile
from compiler_opt_perf.run.files import sha256, write_json
from compiler_opt_perf.run.memo import memo
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.timing import processor_seconds, seconds_so_far
from compiler_opt_perf.studies.common import StudyError, read_result
from compiler_opt_perf.studies.rounds import ROUNDS, Rounds, run_rounds
from compiler_opt_perf.studies.variant_builds import LAYOUTS, Builds, train_policies
from compiler_opt_perf.studies.variants import DEFAULT, Variant
from compiler_opt_perf.studies.workloads import TIMED
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.trace.qemu import record
from compiler_opt_perf.trace.synthesis import synthesise
from compiler_opt_perf.trace.windows import write_windows

_WINDOW = 9
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
    "build": "trains the policies, compiles the variants, and checks that all compute the same",
    "record": "block trace and PMU profile of the default variant",
    "evaluate": "predicts with every evaluator",
    "measure": "runs all variants and times the evaluators, on an otherwise idle machine",
    "report": "results.json, report.md, report.html and rank.svg in the output folder",
}


class _Noted(msgspec.Struct, frozen=True):
    """The note of what was measured."""

    result: Rounds


class _Predictions(msgspec.Struct, frozen=True):
    """Costs of the variants, by way to predict."""

    variants: list[str]
    costs: dict[str, list[float]]


class Study:
    """One program's study, in a folder of its own."""

    def __init__(
        self,
        name: str,
        output: Path,
        toolchain: Toolchain,
        cpu: Path,
        models: Sequence[CostModel],
    ):
        self.name = name
        self.folder = output / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.toolchain = toolchain
        self.case = TIMED[name](self.folder)
        self.cpu = cpu
        self.models = models
        self.builds = Builds(name, self.folder, self.case, toolchain)

    # Record

    def record(self) -> None:
        """The block trace and the PMU profile of the default variant's run."""
        binary = self.builds.binary(DEFAULT)
        windows, profile = self.folder / "run.bbwindows", self.folder / "run.pmu.json"
        inputs = {"binary": sha256(binary), **self.builds.run_inputs(), "window": _WINDOW}

        def traced() -> None:
            trace = record(binary, self.case.arguments, self.folder / "run.bbtrace")
            write_windows(trace, _WINDOW, windows)

        def profiled() -> None:
            collect(binary, self.case.arguments, profile)

        memo(self.folder / "traced.json", inputs, NoneType, traced, [windows])
        memo(self.folder / "profiled.json", inputs, NoneType, profiled, [profile])

    # Measure

    def measure(self, rounds: int, processor: int) -> None:
        """Runs all variants until there are `rounds` rounds, and times the evaluators."""
        self._run_variants(rounds, processor)
        self._time_evaluators(processor)

    def _run_variants(self, rounds: int, processor: int) -> None:
        """Interleaved; the rounds of earlier runs count."""
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

    # Evaluate

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
            "window": _WINDOW,
        }

        def drawn() -> None:
            profile, path = Profile.load(manifest), self.folder / "drawn.bbtrace"
            write_windows(
                synthesise(binary, profile, path, blocks=_DRAWN_BLOCKS, seed=1), _WINDOW, windows
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

    # Report

    def result(self) -> Ranked:
        """The results of the earlier steps. Raises OSError if one is missing."""
        rounds = read_result(self.folder / "rounds.json", _Noted).result
        predictions = read_result(self.folder / "predictions.json", _Predictions)
        if predictions.variants != rounds.variants:
            raise StudyError(
                f"{self.folder}: measured and predicted variants differ; repeat both steps"
            )
        evaluation = read_result(self.folder / "evaluation_seconds.json", dict[str, float])
        return Ranked(
            name=self.name,
            variants=tuple(rounds.variants),
            seconds=np.array(rounds.seconds),
            layouts=rounds.layouts,
            predictions={name: np.array(costs) for name, costs in predictions.costs.items()},
            evaluation_s=evaluation,
            run_s=evaluation["run"],
        )


def study(
    programs: Sequence[str],
    output: Path,
    toolchain: Toolchain,
    *,
    steps: Sequence[str] = tuple(STEPS),
    rounds: int = ROUNDS,
    processor: int,
    cpu: Path | None = None,
    models: Sequence[Path] = (),
) -> str:
    """Runs the given `STEPS` for the given `PROGRAMS`, in this order.

    Args:
      rounds: how often all variants run.
      processor: number of the processor that runs are bound to.
      cpu: CPU file; None for one of this machine, in the output folder, measured if it is missing.
      models: folders of learned cost models to compare, too, each of another evaluator; they must
        know the CPU.

    Returns:
      The report in Markdown; empty if it is not among the steps.

    Raises:
      StudyError: the variants compute different things, results do not belong together, or two
        models are the same evaluator.
      LearnedError: a model is damaged, or does not know the CPU.
      OSError: the results of an earlier step are missing.
    """
    output = output.resolve()
    cpu = (cpu or output / "cpu.json").resolve()
    if not cpu.exists():
        calibrate(cpu)
    learned: dict[str, CostModel] = {}
    for folder in models:
        model = load(folder)
        model.require_cpu(llvm_name(cpu))
        if model.config.name in learned:
            raise StudyError(
                f"{folder} is another model {model.config.name}; compare one at a time"
            )
        learned[model.config.name] = model
    policies = train_policies(output, toolchain) if "build" in steps else {}
    studies = [Study(name, output, toolchain, cpu, tuple(learned.values())) for name in programs]
    for one in studies:
        actions: dict[str, Callable[[], None]] = {
            "build": partial(one.builds.build, policies),
            "record": one.record,
            "evaluate": one.evaluate,
            "measure": partial(one.measure, rounds, processor),
        }
        for step in steps:
            if step in actions:
                actions[step]()
    return write([one.result() for one in studies], output) if "report" in steps else ""
