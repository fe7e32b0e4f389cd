# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Does a predicted cost rank compilations of a program as their measured times do?

Four real programs, each compiled by several register allocations of the same optimised code. One
run of the default one is recorded (block trace, PMU profile); every evaluator predicts the cost of
every variant from that; then all variants run, interleaved. Each is linked in five layouts, with
which the rounds take turns; of its rounds in one layout the fastest parts count, and of layouts the
mean. Each of `STEPS` goes on where it stopped.
"""

import hashlib
import json
import random
import re
import shutil
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from absl import logging

from compiler_opt_perf.corpus.corpus import Corpus
from compiler_opt_perf.corpus.extract import extract_corpus
from compiler_opt_perf.corpus.programs import compile_commands, find_program
from compiler_opt_perf.cost.calibrate import calibrate
from compiler_opt_perf.cost.evaluator import EVALUATORS, REPLAY_FLAGS, Context, TraceReplay
from compiler_opt_perf.cost.regalloc_score import FLAGS as SCORE_FLAGS
from compiler_opt_perf.cost.timing import (
    SEGMENTS,
    Stopwatch,
    boundaries,
    processor_seconds,
    seconds_so_far,
)
from compiler_opt_perf.execution.command import CommandError, run_command
from compiler_opt_perf.execution.files import sha256, write_json, write_text
from compiler_opt_perf.execution.llvm import stock_tool
from compiler_opt_perf.execution.pool import Pool
from compiler_opt_perf.pmu.binary import PROFILING_FLAGS
from compiler_opt_perf.pmu.collect import collect
from compiler_opt_perf.pmu.profile import Profile
from compiler_opt_perf.policies.interactive import InteractiveHost
from compiler_opt_perf.policies.problem import PROBLEMS, for_clang
from compiler_opt_perf.report.ranking import Ranked, write
from compiler_opt_perf.studies.common import StudyError, noted, read_noted, run_all
from compiler_opt_perf.studies.variants import (
    DEFAULT,
    TOO_FEW_REGISTERS,
    TRAININGS,
    VARIANTS,
    Variant,
)
from compiler_opt_perf.studies.workloads import TIMED
from compiler_opt_perf.toolchain.debian import debian_source
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.traces.qemu import record
from compiler_opt_perf.traces.synthesis import ANALYSIS_FLAGS, synthesise
from compiler_opt_perf.traces.windows import write_windows
from compiler_opt_perf.training.config import Config
from compiler_opt_perf.training.train import train

_PROBLEM = PROBLEMS["regalloc-evict"]
_IR_FLAGS = ("-O2", *PROFILING_FLAGS.split(), "-march=x86-64-v2", "-emit-llvm")
_CODEGEN = (
    *("-O2", "-x", "ir", "-Xclang", "-disable-llvm-passes", "-ffunction-sections"),
    *(*ANALYSIS_FLAGS.split(), *SCORE_FLAGS, *REPLAY_FLAGS),
)
# A function's time depends on where it lies, by chance. Each variant is linked several times, with
# its functions in other orders, and rounds take turns with them: their number tells how well the
# mean over layouts is known, and twelve rounds of each find most parts undisturbed once. Working
# sets are small, for the caches beyond the core's own are shared with who knows whom.
LAYOUTS = 5
ROUNDS = 12 * LAYOUTS
_WINDOW = 9
_DRAWN_BLOCKS = 1_000_000
_EVALUATIONS = 3
_SHORTEST_PART_S = 0.001
# What is left out of mca-pmu, one at a time.
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
_TIMEOUT_S = 900.0

PROGRAMS = tuple(TIMED)
# What each does.
STEPS = {
    "build": "trains the policies, compiles the variants, and checks that all compute the same",
    "record": "block trace and PMU profile of the default variant",
    "evaluate": "predicts with every evaluator",
    "measure": "runs all variants and times the evaluators, on an otherwise idle machine",
    "report": "results.json, report.md, report.html and rank.svg in the output folder",
}
_TRAINING_PROGRAMS = ("zstd", "lua")
# Beginnings of the names of modules that the runs hardly enter (of Lua, its compiler, and libraries
# of which the script calls nothing): all variants have them from the default one.
_KEPT: dict[str, tuple[str, ...]] = {
    "zstd": (
        *("programs/", "lib/d"),
        *(f"lib/compress/zstd{x}" for x in ("mt", "_opt", "_fast", "_d")),
    ),
    "lua": (
        *("src/lcode", "src/ldblib", "src/ldump", "src/liolib", "src/llex", "src/loadlib"),
        *("src/loslib", "src/lparser", "src/lua.", "src/lundump", "src/lutf8lib"),
        *("src/lcorolib", "src/lmathlib"),
    ),
}


def train_policies(output: Path, toolchain: Toolchain) -> dict[str, Path]:
    """The policies of the variants that want one, by training; those trained before are kept."""
    wanted = sorted({variant.training for variant in VARIANTS if variant.training})
    if not wanted:
        return {}
    corpus = output / "corpus"
    if not (corpus / "train" / "corpus_description.json").exists():
        commands = {}
        for name in _TRAINING_PROGRAMS:
            program = find_program(name)
            tree = debian_source(program.source_package)
            options = (_PROBLEM.optimization_level, *PROFILING_FLAGS.split())
            folder = output / "training-programs" / name
            found = compile_commands(
                program, tree, folder, clang=stock_tool("clang"), flags=options
            )
            commands[name] = folder / "compile_commands.json"
            write_json(commands[name], found)
        extract_corpus(
            commands,
            corpus,
            clang=stock_tool("clang"),
            opt_level=_PROBLEM.optimization_level,
            stage=_PROBLEM.corpus_stage,
            held_out_share=0.3,
            seed=1,
        )
    modules = Corpus.load(corpus / "train")
    policies = {}
    for name in wanted:
        config = Config().changed({"warm_starts": 1, **TRAININGS[name]})
        folder = output / "training" / name.replace(" ", "-")
        policies[name] = train(_PROBLEM, modules, toolchain, None, folder, config).policy
    return policies


class _Key(msgspec.Struct, frozen=True):
    """What the files beside it were made of."""

    key: str


class _Linked(msgspec.Struct, frozen=True):
    """What a variant computes.

    Attributes:
      run: as of Study._run.
      computed: the checksum.
    """

    run: str
    computed: str


class _Rounds(msgspec.Struct):
    """What was measured.

    Attributes:
      key: of the binaries and of how they are timed.
      variants: names.
      moments: that each run tells the time of.
      boundaries: of the parts of a run, among the moments.
      seconds: [rounds, variants, parts].
    """

    key: str
    variants: list[str]
    moments: int = 0
    boundaries: list[int] = []
    seconds: list[list[list[float]]] = []


class _Predictions(msgspec.Struct, frozen=True):
    """Costs of the variants, by way to predict."""

    variants: list[str]
    costs: dict[str, list[float]]


@dataclass(frozen=True)
class _Codegen:
    """One module of one variant."""

    toolchain: Toolchain
    variant: Variant
    policy: Path | None
    bitcode: Path
    target: Path


def _generate(job: _Codegen) -> None:
    """Bitcode to an object file. In a pool's worker."""
    argv: list[str | Path] = [job.toolchain.clang, *_CODEGEN, "-c", job.bitcode]
    argv += ["-o", job.target, *for_clang(job.variant.options)]
    if job.policy:
        argv += for_clang(_PROBLEM.development_options(model=job.policy))
    if job.variant.rule is None:
        environment = {"LLVM_LITERT_LIBRARY": str(job.toolchain.litert_library)}
        run_command(argv, timeout_s=_TIMEOUT_S, env=environment)
        return
    with InteractiveHost(_PROBLEM, job.variant.decide(job.bitcode.name)) as host:
        options = for_clang(_PROBLEM.interactive_options(host.channel))
        host.run([*argv, *options], timeout_s=_TIMEOUT_S)


class Study:
    """One program's study, in a folder of its own."""

    def __init__(self, name: str, output: Path, toolchain: Toolchain, cpu: Path):
        self.name = name
        self.folder = output / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.toolchain = toolchain
        self.case = TIMED[name](self.folder)
        self.kept = _KEPT.get(name, ())
        self.cpu = cpu

    # Build

    def build(self, policies: Mapping[str, Path]) -> None:
        """Compiles and links all variants, and compares what they compute."""
        bitcode = self._bitcode()
        jobs = []
        for variant in VARIANTS:
            folder = self._variant(variant)
            policy = policies[variant.training] if variant.training else None
            key = self._key(bitcode, variant, policy)
            stamp = folder / "wanted.json"
            if noted(stamp, _Key) != _Key(key):
                shutil.rmtree(folder, ignore_errors=True)
                write_json(stamp, {"key": key})
            for source, target in zip(bitcode, self._objects(variant), strict=True):
                if target.is_relative_to(folder) and not target.exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    jobs.append(_Codegen(self.toolchain, variant, policy, source, target))
        impossible = set()
        with Pool() as pool:
            outcomes = pool.map(_generate, jobs, label=f"compiling {self.name}")
            for job, outcome in zip(jobs, outcomes, strict=True):
                try:
                    outcome.get()
                except CommandError as error:
                    if TOO_FEW_REGISTERS not in str(error):
                        raise
                    impossible.add(job.variant)
        for variant in impossible:
            logging.warning("%s: %s is left out: %s", self.name, variant.name, TOO_FEW_REGISTERS)
        computed = {}
        for variant in VARIANTS:
            if variant in impossible:
                continue
            stamp = self._variant(variant) / "linked.json"
            linked = noted(stamp, _Linked)
            if linked is None:
                self._link(variant)
            if linked is None or linked.run != self._run():
                linked = _Linked(self._run(), self._computed(self.binary(variant)))
                write_json(stamp, msgspec.to_builtins(linked))
            computed[variant.name] = linked.computed
        wrong = [name for name in computed if computed[name] != computed[DEFAULT.name]]
        if wrong:
            raise StudyError(f"{self.name}: {', '.join(wrong)}: compute something else")

    def _optimisations(self) -> list[dict[str, Any]]:
        """How the optimised IR of each module is made."""
        return compile_commands(
            self.case.program,
            self.case.tree,
            self.folder / "ir",
            clang=self.toolchain.clang,
            flags=(*_IR_FLAGS, *self.case.flags),
        )

    def _bitcode(self) -> list[Path]:
        """The optimised IR of all modules."""
        commands = self._optimisations()
        words = [command["arguments"][1:] for command in commands]
        key = hashlib.sha256(repr((words, self._clang())).encode()).hexdigest()
        stamp = self.folder / "ir" / "built.json"
        targets = [Path(command["arguments"][-1]) for command in commands]
        if noted(stamp, _Key) != _Key(key):
            for target in targets:
                target.parent.mkdir(parents=True, exist_ok=True)
            run_all(
                [command["arguments"] for command in commands],
                self.case.tree,
                label=f"optimising {self.name}",
            )
            write_json(stamp, {"key": key})
        return targets

    def _link(self, variant: Variant) -> None:
        for layout in range(LAYOUTS):
            argv: list[str | Path] = [stock_tool("clang"), "-fuse-ld=lld", "-Wl,--build-id"]
            # Only the first is looked at; the others only run.
            argv += [f"-Wl,--shuffle-sections=.text*={layout}", "-Wl,--strip-all"] if layout else []
            argv += [*self._objects(variant), *self.case.program.libraries]
            run_command([*argv, "-o", self.binary(variant, layout)], timeout_s=_TIMEOUT_S)

    def _objects(self, variant: Variant) -> list[Path]:
        """The object files that a variant is linked from."""
        root = self.folder / "ir" / "objects"
        modules = [Path(c["arguments"][-1]).relative_to(root) for c in self._optimisations()]
        return [
            self._variant(DEFAULT if str(module).startswith(self.kept) else variant) / module
            for module in modules
        ]

    def _computed(self, binary: Path) -> str:
        """A checksum of what a run prints and writes."""
        argv = [str(binary), *self.case.arguments]
        done = subprocess.run(argv, capture_output=True, timeout=_TIMEOUT_S, check=True)
        # SQLite's benchmark tells times.
        printed = re.sub(rb"\d+\.\d+s", b"", done.stdout)
        written = sha256(self.case.output) if self.case.output else ""
        return hashlib.sha256(printed + written.encode()).hexdigest()

    def _key(self, bitcode: Sequence[Path], variant: Variant, policy: Path | None) -> str:
        parts = [repr(variant), repr(_CODEGEN), repr(self.kept), self._clang()]
        # It holds the checksums of the others.
        parts += [sha256(policy / "model.json")] if policy else []
        parts += [str(LAYOUTS), *(sha256(path) for path in bitcode)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def _run(self) -> str:
        """What the run depends on besides the binary."""
        return repr((self.case.arguments, [sha256(path) for path in self.case.inputs]))

    def _clang(self) -> str:
        return sha256(self.toolchain.clang.resolve())

    def _variant(self, variant: Variant) -> Path:
        return self.folder / "variants" / re.sub(r"[^a-z0-9.]+", "-", variant.name).strip("-")

    def binary(self, variant: Variant, layout: int = 0) -> Path:
        """One of the variant's linked programs."""
        return self._variant(variant) / f"layout{layout}"

    def variants(self) -> list[Variant]:
        """Those that were built, each code once."""
        found: dict[str, Variant] = {}
        for variant in VARIANTS:
            code = self._variant(variant) / "code"
            if not self.binary(variant).exists():
                continue
            if not code.exists():
                run_command(
                    ["objcopy", "-O", "binary", "-j", ".text", self.binary(variant), code],
                    timeout_s=60,
                )
            found.setdefault(sha256(code), variant)
        return list(found.values())

    # Record

    def record(self) -> None:
        """The block trace and the PMU profile of the default variant's run."""
        binary = self.binary(DEFAULT)
        key = hashlib.sha256(f"{sha256(binary)} {self._run()}".encode()).hexdigest()
        path = self.folder / "recorded.json"
        recorded = noted(path, dict[str, Any]) or {}
        if recorded.get("traced") != key:
            trace = record(binary, self.case.arguments, self.folder / "run.bbtrace")
            write_windows(trace, _WINDOW, self.folder / "run.bbwindows")
            recorded |= {"traced": key, "blocks": trace.total}
            write_json(path, recorded)
        if recorded.get("profiled") != key:
            collect(binary, self.case.arguments, self.folder / "run.pmu.json")
            write_json(path, recorded | {"profiled": key})

    # Measure

    def measure(self, rounds: int, processor: int) -> None:
        """Runs all variants until there are `rounds` rounds, and times the evaluators."""
        self._run_variants(rounds, processor)
        self._time_evaluators(processor)

    def _run_variants(self, rounds: int, processor: int) -> None:
        """Interleaved; the rounds of earlier runs count."""
        variants = self.variants()
        binaries = [[self.binary(v, layout) for layout in range(LAYOUTS)] for v in variants]
        checksums = [sha256(binary) for row in binaries for binary in row]
        how = (self._run(), SEGMENTS.read_bytes(), _SHORTEST_PART_S)
        key = hashlib.sha256(f"{checksums} {how}".encode()).hexdigest()
        path = self.folder / "rounds.json"
        measured = noted(path, _Rounds)
        if measured is None or measured.key != key:
            measured = _Rounds(key, [v.name for v in variants])
        with Stopwatch() as stopwatch:
            for number in range(len(measured.seconds), rounds):
                order = list(range(len(variants)))
                random.Random(number).shuffle(order)
                runs: list[list[float]] = [[] for _ in variants]
                for i in order:
                    argv = [str(binaries[i][_layout(number)]), *self.case.arguments]
                    times = stopwatch.times(argv, processor)
                    if not measured.boundaries:
                        measured.boundaries = boundaries(times, _SHORTEST_PART_S).tolist()
                        measured.moments = len(times)
                    if len(times) != measured.moments:
                        raise StudyError(f"{argv[0]}: does something else than in other runs")
                    parts = np.diff(times[measured.boundaries])
                    runs[i] = np.round(parts, 7).tolist()
                measured.seconds.append(runs)
                write_text(path, json.dumps(msgspec.to_builtins(measured)))
                middle = statistics.median(map(sum, runs))
                logging.info("%s: round %d, median %.3f s", self.name, number, middle)

    # Evaluate

    def evaluate(self) -> None:
        """Predicts the cost of every variant in every way."""
        self._draw()
        variants = self.variants()
        predictions: dict[str, list[float]] = {}
        with Pool() as pool:
            for name, (evaluator, context) in self._ways().items():
                jobs = [(evaluator, context, self._candidate(evaluator, v)) for v in variants]
                outcomes = pool.map(_predict, jobs, label=f"{self.name}: {name}")
                predictions[name] = [outcome.get() for outcome in outcomes]
        names = [variant.name for variant in variants]
        write_json(self.folder / "predictions.json", {"variants": names, "costs": predictions})

    def _ways(self) -> dict[str, tuple[str, Context]]:
        """Evaluator and context of each way to predict."""
        context = Context(
            tool=self.toolchain.trace_cost,
            trace=self.folder / "run.bbwindows",
            cpu=self.cpu,
            profile=self.folder / "run.pmu.json",
            threads=1,
            cache=self.folder / "costs",
        )
        # Of the same inlining profile-count tells nothing that count does not, and takes a minute.
        ways = {name: (name, context) for name in EVALUATORS if name != "profile-count"}
        for part in _PARTS:
            ways[f"mca-pmu without {part}"] = ("mca-pmu", replace(context, without=(part,)))
        drawn = replace(context, trace=self.folder / "drawn.bbwindows")
        ways["mca-pmu on a drawn path"] = ("mca-pmu", drawn)
        return ways

    def _candidate(self, evaluator: str, variant: Variant) -> list[Path]:
        if evaluator.startswith("regalloc-score"):
            return self._objects(variant)
        return [self.binary(variant)]

    def _draw(self) -> None:
        """A path drawn from the profile, in the place of the trace."""
        windows = self.folder / "drawn.bbwindows"
        recorded = self.folder / "recorded.json"
        if windows.exists() and windows.stat().st_mtime > recorded.stat().st_mtime:
            return
        profile = Profile.load(self.folder / "run.pmu.json")
        path = self.folder / "drawn.bbtrace"
        trace = synthesise(self.binary(DEFAULT), profile, path, blocks=_DRAWN_BLOCKS, seed=1)
        write_windows(trace, _WINDOW, windows)

    def _time_evaluators(self, processor: int) -> None:
        """Processor time of evaluating the default variant, and of a run of it."""
        binary = self.binary(DEFAULT)
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
        median = {name: statistics.median(values) for name, values in seconds.items()}
        write_json(self.folder / "evaluation_seconds.json", median)

    # Report

    def result(self) -> Ranked:
        """What the earlier steps found. Raises OSError where one is missing."""
        rounds = read_noted(self.folder / "rounds.json", _Rounds)
        predictions = read_noted(self.folder / "predictions.json", _Predictions)
        if predictions.variants != rounds.variants:
            raise StudyError(f"{self.folder}: measured and predicted variants differ; do both anew")
        evaluation = read_noted(self.folder / "evaluation_seconds.json", dict[str, float])
        return Ranked(
            name=self.name,
            variants=tuple(rounds.variants),
            seconds=np.array(rounds.seconds),
            layouts=tuple(map(_layout, range(len(rounds.seconds)))),
            predictions={name: np.array(costs) for name, costs in predictions.costs.items()},
            evaluation_s=evaluation,
            run_s=evaluation["run"],
        )


def _layout(number: int) -> int:
    """The layout that runs in a round."""
    return number % LAYOUTS


def _predict(job: tuple[str, Context, Sequence[Path]]) -> float:
    """The cost of one candidate. In a pool's worker."""
    evaluator, context, objects = job
    return EVALUATORS[evaluator].cost(objects, context).total


def study(
    programs: Sequence[str],
    output: Path,
    toolchain: Toolchain,
    *,
    steps: Sequence[str] = tuple(STEPS),
    rounds: int = ROUNDS,
    processor: int,
    cpu: Path | None = None,
) -> str:
    """Takes some of `STEPS` with some of `PROGRAMS`, in the order given.

    Args:
      rounds: of runs of all variants.
      processor: number of the one that runs are bound to.
      cpu: CPU file; None for one of this machine, in the output folder, measured if it is missing.

    Returns:
      The report in Markdown; empty if that is none of the steps.

    Raises:
      StudyError: the variants do not do the same, or results do not belong together.
      OSError: the results of an earlier step are missing.
    """
    output = output.resolve()
    cpu = (cpu or output / "cpu.json").resolve()
    if not cpu.exists():
        calibrate(cpu)
    policies = train_policies(output, toolchain) if "build" in steps else {}
    studies = [Study(name, output, toolchain, cpu) for name in programs]
    for one in studies:
        actions: dict[str, Callable[[], None]] = {
            "build": partial(one.build, policies),
            "record": one.record,
            "evaluate": one.evaluate,
            "measure": partial(one.measure, rounds, processor),
        }
        for step in steps:
            if step in actions:
                actions[step]()
    return write([one.result() for one in studies], output) if "report" in steps else ""
