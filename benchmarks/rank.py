# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Do predicted costs rank compilations of a program as measured times do?

Real programs are compiled in variants of three kinds (`variants.KINDS`). Register allocations share
one recorded run, of the default variant; other variants are recorded each by itself, with the same
simulated branch predictor and caches. Every evaluator predicts the cost of every variant from that.
Then all variants run by the protocol of `timing`. Each of `STEPS` goes on where it stopped.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Any

import msgspec
import numpy as np
from absl import logging

from benchmarks.common import WINDOW, BenchmarkError, read_result
from benchmarks.programs.workloads import TIMED
from benchmarks.rank_tables import Ranked, tables
from benchmarks.ranking import Measured
from benchmarks.results import Table
from benchmarks.timing import LAYOUTS, Rounds, run_rounds
from benchmarks.variant_builds import Builds
from benchmarks.variants import DEFAULT, KINDS, Variant
from compiler_opt_perf.blocks.cpu_files import caches, llvm_name
from compiler_opt_perf.blocks.model import CostModel, load
from compiler_opt_perf.cost.evaluator import EVALUATORS, Context, Cost, Evaluator, TraceReplay
from compiler_opt_perf.cost.learned_replay import LearnedReplay
from compiler_opt_perf.cost.recording import own_cost
from compiler_opt_perf.profile.manifest import Manifest
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
# Parts of mca-pmu that are left out, one at a time: those whose worth is in doubt.
_PARTS = ("failed-forwarding", "predictor", "icache-misses", "decoded-code", "llc-misses")
_DRAWN = "mca-pmu on a drawn path"
_ALL = "instructions of the whole process"
#: As many rounds of all programs are run before the next ones.
_TURN = LAYOUTS

PROGRAMS = tuple(TIMED)
# What each step does.
STEPS = {
    "build": "compile the variants, and check that all compute the same",
    "record": "record a block trace and a PMU profile of the variants",
    "evaluate": "predict with every evaluator",
    "measure": "run all variants, on an otherwise idle machine",
    "time": "time the evaluators, on an otherwise idle machine",
}


class _Noted(msgspec.Struct, frozen=True):
    """The note of what was measured."""

    result: Rounds


class _Predictions(msgspec.Struct, frozen=True):
    """Costs of the variants, by way to predict."""

    variants: list[str]
    costs: dict[str, list[float]]


@dataclass(frozen=True)
class Judges:
    """What predicts.

    Attributes:
      cpu: CPU file.
      models: learned cost models.
      earlier: llvm-trace-cost of another build, to compare; None for none.
    """

    cpu: Path
    models: Sequence[CostModel] = ()
    earlier: Path | None = None

    def learned(self) -> dict[str, LearnedReplay]:
        """New evaluators, by name. One that does not know the CPU predicts for its own."""
        name = llvm_name(self.cpu)
        known = {
            f"{model.config.name}{'' if name in model.cpus else f' for {model.cpus[0]}'}": model
            for model in self.models
        }
        return {
            shown: LearnedReplay(model, name if name in model.cpus else model.cpus[0])
            for shown, model in known.items()
        }


class RankedProgram:
    """The steps for one program and one kind of variants, in a folder of its own."""

    def __init__(self, name: str, kind: str, folder: Path, toolchain: Toolchain, judges: Judges):
        self.label = f"{name}, {kind}"
        self.folder = folder / name / kind
        self.folder.mkdir(parents=True, exist_ok=True)
        self.toolchain = toolchain
        self.case = TIMED[name](folder / name)
        self.judges = judges
        self.replayed = KINDS[kind].replayed
        self.builds = Builds(
            self.label, self.folder, self.case, toolchain, KINDS[kind], caches(judges.cpu)
        )

    def measure(self, rounds: int, processor: int) -> None:
        """Runs all variants until there are `rounds` rounds."""
        binaries = {
            variant.name: [self.builds.binary(variant, layout) for layout in range(LAYOUTS)]
            for variant in self.variants
        }
        run_rounds(
            self.folder / "rounds.json",
            binaries,
            self.case.arguments,
            self.builds.run_inputs(),
            rounds,
            processor,
            label=self.label,
        )

    @cached_property
    def variants(self) -> list[Variant]:
        """The built variants, each code once. Raises BenchmarkError: none is built."""
        found = self.builds.variants()
        if not found:
            raise BenchmarkError(f"{self.folder}: no variant is built; run --steps=build first")
        return found

    def evaluate(self) -> None:
        """Predicts the cost of every variant with every evaluator."""
        jobs = [
            (
                name,
                evaluator,
                self._context(variant, **changes),
                self._candidate(evaluator, variant),
                self.replayed,
            )
            for name, (evaluator, changes) in self._ways().items()
            for variant in self.variants
        ]
        predictions: dict[str, list[float]] = {}
        with Pool() as pool:
            outcomes = pool.map(_total, [job[1:] for job in jobs], label=f"evaluating {self.label}")
            for job, outcome in zip(jobs, outcomes, strict=True):
                predictions.setdefault(job[0], []).append(outcome.get())
        for name, learned in self.judges.learned().items():
            predictions[name] = self._predicted(name, learned)
        if not self.replayed:
            profiles = [self.builds.record(variant)[1] for variant in self.variants]
            executed = [Manifest.load(one).event("instructions") for one in profiles]
            predictions[_ALL] = [float(one.everywhere) for one in executed]
        names = [variant.name for variant in self.variants]
        write_json(self.folder / "predictions.json", {"variants": names, "costs": predictions})

    def _predicted(self, name: str, learned: LearnedReplay) -> list[float]:
        """The costs of all variants by a learned model."""
        recorded = [self.builds.record(self._recorded(variant)) for variant in self.variants]
        binaries = [self.builds.binary(variant) for variant in self.variants]
        files = [*binaries, *(path for pair in recorded for path in pair)]
        inputs = {"model": learned.learned, "cpu": learned.cpu, "files": list(map(sha256, files))}

        def predict() -> list[float]:
            logging.info("%s: %s", self.label, name)
            return [
                _cost(
                    learned,
                    [self.builds.binary(variant)],
                    self._context(variant),
                    self.replayed,
                ).total
                for variant in self.variants
            ]

        path = self.folder / "learned" / f"{name.replace(' ', '-')}.json"
        path.parent.mkdir(exist_ok=True)
        return memo(path, inputs, list[float], predict)

    def _recorded(self, variant: Variant) -> Variant:
        """The variant whose recorded run tells of a variant."""
        return DEFAULT if self.replayed else variant

    def _context(self, variant: Variant, **changes: Any) -> Context:
        windows, profile = self.builds.record(self._recorded(variant))
        context = Context(
            tool=self.toolchain.trace_cost,
            trace=windows,
            cpu=self.judges.cpu,
            profile=profile,
            own_run=not self.replayed,
            threads=1,
            cache=self.folder / "costs",
        )
        return replace(context, **changes)

    def _ways(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """Evaluator, and changes of its context, of each way to predict, but for learned models."""
        ways: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in EVALUATORS}
        for part in _PARTS:
            ways[f"mca-pmu without {part}"] = ("mca-pmu", {"without": (part,)})
        if self.judges.earlier is not None:
            # It does not know the option for that.
            earlier = {"tool": self.judges.earlier, "own_run": False}
            ways["mca-pmu, earlier"] = ("mca-pmu", earlier)
        if self.replayed:
            ways[_DRAWN] = ("mca-pmu", {"trace": self._drawn()})
        return ways

    def _candidate(self, evaluator: str, variant: Variant) -> list[Path]:
        if evaluator.startswith("regalloc-score"):
            return self.builds.objects(variant)
        return [self.builds.binary(variant)]

    def _drawn(self) -> Path:
        """A path drawn from the default variant's profile, in the place of the trace."""
        windows, binary = self.folder / "drawn.bbwindows", self.builds.binary(DEFAULT)
        # It holds the checksums of its files.
        manifest = self.builds.record()[1]
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
        return windows

    def time_evaluators(self, processor: int) -> None:
        """Processor time of evaluating the default variant, and of a run of it."""
        binary = self.builds.binary(DEFAULT)
        seconds: dict[str, list[float]] = {}
        for _ in range(_EVALUATIONS):
            run = processor_seconds([binary, *self.case.arguments], processor)
            seconds.setdefault("run", []).append(run)
            for name, (evaluator, changes) in self._ways().items():
                if "without" in changes:
                    continue
                context = self._context(DEFAULT, cache=None, **changes)
                chosen = EVALUATORS[evaluator]
                if isinstance(chosen, TraceReplay):
                    used = processor_seconds(chosen.command([binary], context), processor)
                else:
                    before = seconds_so_far()
                    chosen.cost(self._candidate(evaluator, DEFAULT), context)
                    used = seconds_so_far() - before
                seconds.setdefault(name, []).append(used)
            for name, learned in self.judges.learned().items():
                before = seconds_so_far()
                learned.cost([binary], self._context(DEFAULT, cache=None))
                seconds.setdefault(name, []).append(seconds_so_far() - before)
        median = {name: statistics.median(values) for name, values in seconds.items()}
        write_json(self.folder / "evaluation_seconds.json", median)


def _total(job: tuple[str, Context, list[Path], bool]) -> float:
    """The cost of a candidate, in a pool's worker."""
    evaluator, context, candidate, replayed = job
    return _cost(EVALUATORS[evaluator], candidate, context, replayed).total


def _cost(evaluator: Evaluator, candidate: list[Path], context: Context, replayed: bool) -> Cost:
    """The cost of a candidate, whose run is the default variant's if it is `replayed`."""
    if replayed:
        return evaluator.cost(candidate, context)
    return own_cost(evaluator, candidate, context)


def result(name: str, kind: str, folder: Path) -> Ranked | None:
    """The results of all steps for a program and a kind; None if one is missing.

    Raises:
      BenchmarkError: results do not belong together, or are damaged.
    """
    files = [folder / name / kind / f"{step}.json" for step in ("rounds", "predictions")]
    if not all(path.is_file() for path in files):
        return None
    rounds = read_result(files[0], _Noted).result
    predictions = read_result(files[1], _Predictions)
    if predictions.variants != rounds.variants:
        raise BenchmarkError(
            f"{files[0].parent}: measured and predicted variants differ; repeat both steps"
        )
    timed = files[0].with_name("evaluation_seconds.json")
    return Ranked(
        name=name,
        kind=kind,
        variants=tuple(rounds.variants),
        measured=Measured(rounds.seconds, rounds.layouts),
        rounds=len(rounds.seconds),
        run_s=rounds.run_s,
        predictions={name: np.array(costs) for name, costs in predictions.costs.items()},
        evaluation_s=read_result(timed, dict[str, float]) if timed.is_file() else {},
    )


def study(
    programs: Sequence[str],
    folder: Path,
    toolchain: Toolchain,
    *,
    kinds: Sequence[str] = tuple(KINDS),
    steps: Sequence[str] = tuple(STEPS),
    rounds: int = 3 * LAYOUTS,
    processor: int,
    cpu: Path,
    models: Sequence[Path] = (),
    earlier: Path | None = None,
) -> list[Table]:
    """Runs the given `STEPS` for the given `PROGRAMS`, in this order.

    Args:
      kinds: of variants.
      rounds: how often all variants run.
      processor: number of the processor that runs are bound to.
      cpu: CPU file.
      models: folders of learned cost models to compare, too, each of another evaluator.
      earlier: llvm-trace-cost of another build, whose `mca-pmu` is compared, too.

    Returns:
      The tables of all programs and kinds that are predicted and measured; none without.

    Raises:
      BenchmarkError: the variants compute different things, results do not belong together, or two
        models are the same evaluator.
      LearnedError: a model is damaged.
      OSError: the files of an earlier step are missing.
    """
    judges = _judges(cpu.resolve(), models, earlier)
    chosen = [
        RankedProgram(name, kind, folder, toolchain, judges) for name in programs for kind in kinds
    ]
    actions: dict[str, Callable[[RankedProgram], None]] = {
        "build": lambda one: one.builds.build(),
        "record": lambda one: one.builds.record_all(),
        "evaluate": lambda one: one.evaluate(),
    }
    for one in chosen:
        for step, action in actions.items():
            if step in steps:
                action(one)
    if "measure" in steps:
        _measure(chosen, rounds, processor)
    for one in chosen:
        # Other kinds take as long.
        if "time" in steps and one.replayed:
            one.time_evaluators(processor)
    done = [found for name in PROGRAMS for kind in KINDS if (found := result(name, kind, folder))]
    return tables(done) if done else []


def _judges(cpu: Path, models: Sequence[Path], earlier: Path | None) -> Judges:
    learned: dict[str, CostModel] = {}
    for path in models:
        model = load(path)
        if model.config.name in learned:
            raise BenchmarkError(
                f"{path} is another model {model.config.name}; compare one at a time"
            )
        learned[model.config.name] = model
    return Judges(cpu, tuple(learned.values()), earlier)


def _measure(chosen: Sequence[RankedProgram], rounds: int, processor: int) -> None:
    """Runs some rounds of all, then more of all, so that one may stop at any time."""
    ends = [*range(_TURN, rounds, _TURN), rounds]
    for turn, end in enumerate(ends):
        began = time.monotonic()
        for number, one in enumerate(chosen, 1):
            one.measure(end, processor)
            spent = time.monotonic() - began
            left = spent * (len(chosen) * (len(ends) - turn) - number) / number
            logging.info("round %d of %d: about %.0f minutes left", end, rounds, left / 60)
