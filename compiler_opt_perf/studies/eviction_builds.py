# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The programs of the study of evictions: their builds, and what these execute.

From one optimised IR each variant of register allocation is compiled twice: `replayed`, by which
the evaluators predict, and `shipped`, as users compile, whose instructions callgrind counts.
"""

import dataclasses
import functools
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any

import msgspec
from absl import logging

from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.corpus.programs import compile_commands, source_checksums, write_input
from compiler_opt_perf.cost.cpu_files import llvm_name
from compiler_opt_perf.cost.evaluator import EVALUATORS, REPLAY_FLAGS, Context, Cost, Evaluator
from compiler_opt_perf.cost.regalloc_score import FLAGS as SCORE_FLAGS
from compiler_opt_perf.execution.command import CommandError, run_command
from compiler_opt_perf.execution.executor import Executor
from compiler_opt_perf.execution.files import sha256
from compiler_opt_perf.execution.llvm import stock_tool
from compiler_opt_perf.execution.memo import memo
from compiler_opt_perf.execution.seeds import derive_seed
from compiler_opt_perf.learned.model import load
from compiler_opt_perf.learned.replay import LearnedReplay
from compiler_opt_perf.pmu.collect import collect
from compiler_opt_perf.policies.interactive import Decide
from compiler_opt_perf.policies.problem import for_clang
from compiler_opt_perf.studies.common import StudyError, Timing, counted_run, run_all
from compiler_opt_perf.studies.eviction_search import decision_options
from compiler_opt_perf.studies.variant_builds import LAYOUTS, Codegen, generate, link_layouts
from compiler_opt_perf.studies.variants import TOO_FEW_REGISTERS, Variant
from compiler_opt_perf.studies.workloads import COUNTED, HELD_OUT, Workload
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.traces.qemu import record
from compiler_opt_perf.traces.trace_file import Trace
from compiler_opt_perf.traces.windows import write_windows

# Debug info changes no code; PMU profiles are looked up by it.
_OPTIMISED = ("-O2", "-march=x86-64-v2", *PROFILING_FLAGS.split())
_SHIPPED = ("-O2", "-x", "ir", "-Xclang", "-disable-llvm-passes")
_KINDS = {"shipped": _SHIPPED, "replayed": (*_SHIPPED, *SCORE_FLAGS, *REPLAY_FLAGS)}
# Functions can be put into other orders.
_TIMED = "timed"
_FLAGS = {**_KINDS, _TIMED: (*_SHIPPED, "-ffunction-sections")}
_TIMEOUT_S = 1800.0
# Blocks of the recorded run that are known together: a count asks for no more, cycles do.
_WINDOW, _LONG_WINDOW = 2, 9

COUNT, ALLOCATION = "count", "allocation-score"
#: Stands for that of a learned cost model.
LEARNED = "learned"
#: Evaluators that replay the recorded run, and the units of their costs.
REPLAYS = {
    ALLOCATION: "weighted instructions",
    COUNT: "instructions",
    "mca-pmu": "cycles",
    LEARNED: "cycles",
}
#: And LLVM's own score, which is of object files only.
SCORE = "regalloc-score"
REWARDS = {SCORE: "weighted instructions", **REPLAYS}

#: By number of the module, decisions by key.
Decisions = Mapping[int, Mapping[str, int]]
_NOT_GIVEN: Decisions = {}

#: Whether the IR is optimised by counters of the same run, the best that a profile can tell.
LEVELS = {"O2": False, "O2-PGO": True}
# What the first use of a callee-saved register costs, in 2^14ths of a function's entry; the
# default is 0.
CSR_COSTS = (1024, 4096, 16384, 32768, 65536, 262144)
DEFAULT = Variant("default")


def priced(price: int) -> Variant:
    """The variant with a price of a callee-saved register's first use."""
    if price == 0:
        return DEFAULT
    return Variant(f"csr {price}", (f"-regalloc-csr-first-time-cost={price}",))


CONSTANTS = tuple(map(priced, CSR_COSTS))
#: The compiler's own rules with measured executions of blocks in the place of estimates.
MEASURED = Variant("measured frequencies")


def variants(seed: int) -> tuple[Variant, ...]:
    """All but `MEASURED`.

    Args:
      seed: of the random decisions.
    """
    own = derive_seed(seed, "random evictions")
    return (
        DEFAULT,
        *CONSTANTS,
        Variant("basic", ("-regalloc=basic",)),
        Variant("8 registers", ("-stress-regalloc=8",)),
        Variant("random 0.2", rule="imitated", random=0.2, seed=own),
    )


class _Predicted(msgspec.Struct, frozen=True):
    """What is kept of a `Cost`."""

    total: float
    functions: dict[str, float]
    residuals: tuple[float, ...]
    standard_error: float | None


class Executed(msgspec.Struct, frozen=True):
    """What a variant executes in the run.

    Attributes:
      counted: by callgrind, in the program's own object, shipped.
      predicted: by the evaluator `count`, replayed; None for code that has other blocks.
      score, score_calls: by `regalloc-score` and `regalloc-score-calls`.
      allocation: by `allocation-score`.
      functions: what `predicted` is the sum of.
    """

    counted: int
    predicted: float | None = None
    score: float | None = None
    score_calls: float | None = None
    allocation: float | None = None
    functions: dict[str, float] = {}


@dataclass(frozen=True)
class Judge:
    """An evaluator, and the recorded run that it replays.

    Attributes:
      model: folder of what it has learned, if it has.
    """

    evaluator: Evaluator
    context: Context
    model: Path | None = None

    def cost(self, objects: Sequence[Path]) -> Cost:
        """As Evaluator.cost."""
        return self.evaluator.cost(objects, self.context)

    def kept_in(self, cache: Path) -> "Judge":
        """The same, whose costs are kept in a folder (`Context.cache`)."""
        return dataclasses.replace(self, context=dataclasses.replace(self.context, cache=cache))

    def inputs(self) -> list[str | None]:
        """Digests of what its costs depend on, beside the objects."""
        context = self.context
        model = self.model and self.model / "model.json"
        files = [context.tool, context.trace, context.cpu, context.profile, model]
        return [sha256(path) if path else None for path in files]


@dataclass(frozen=True)
class Level:
    """A program at one of `LEVELS`, in a folder of its own below the program's.

    Attributes:
      cpu: CPU file, for evaluators that predict cycles.
      model: folder of the learned cost model that is meant by `LEARNED`.
    """

    name: str
    level: str
    folder: Path
    toolchain: Toolchain
    pool: Executor
    cpu: Path | None = None
    model: Path | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def executed(self, variant: Variant, decisions: Decisions = _NOT_GIVEN) -> Executed | None:
        """What a variant executes; None where it has fewer registers than instructions need.

        Args:
          decisions: those that are given; only of a variant of its own name.

        Raises:
          CommandError: a compiler or a run failed.
        """
        measured, bitcode = variant is MEASURED, self._allocated(variant)
        inputs: dict[str, Any] = {
            "variant": repr(variant),
            "bitcode": [sha256(path) for path in bitcode],
            "clang": self._clang,
            "flags": _KINDS,
            "trace": None if measured else sha256(self.trace()),
        }
        if decisions:
            inputs["decisions"] = _as_json(decisions)
        path = self._of(variant) / "executed.json"
        try:
            make = partial(self._execute, variant, bitcode, decisions)
            found = memo(path, inputs, Executed, make)
        except CommandError as error:
            if TOO_FEW_REGISTERS not in str(error):
                raise
            logging.warning("%s: %s is left out: %s", self.name, variant.name, TOO_FEW_REGISTERS)
            return None
        logging.info("%s %s: %s: %d", self.name, self.level, variant.name, found.counted)
        return found

    def predicted(
        self, variant: Variant, evaluator: str = COUNT, decisions: Decisions = _NOT_GIVEN
    ) -> Cost:
        """What a variant costs by one of the `REPLAYS`.

        Args:
          decisions: those that are given; only of a variant of its own name.

        Raises, besides what `judge` does:
          CommandError: a compiler or a run failed.
          CostError: the evaluator needs a CPU file.
        """
        binary, judge = self._replayed(variant, decisions), self.judge(evaluator)
        inputs = [sha256(binary), *judge.inputs()]

        def predict() -> _Predicted:
            cost = judge.cost([binary])
            return _Predicted(cost.total, dict(cost.parts), cost.residuals, cost.standard_error)

        note = self._of(variant) / f"predicted-{evaluator}.json"
        kept = memo(note, inputs, _Predicted, predict)
        report = {"sample_residuals": kept.residuals, "standard_error": kept.standard_error}
        return Cost(kept.total, kept.functions, report)

    def _replayed(self, variant: Variant, decisions: Decisions = _NOT_GIVEN) -> Path:
        """The program of a variant, by which the evaluators predict."""
        bitcode = self.bitcode()
        binary = self._of(variant) / "replayed" / self.name
        inputs: dict[str, Any] = {
            "variant": repr(variant),
            "bitcode": [sha256(path) for path in bitcode],
            "clang": self._clang,
            "flags": _KINDS["replayed"],
        }
        if decisions:
            inputs["decisions"] = _as_json(decisions)

        def compiled() -> None:
            self._compile(variant, bitcode, ["replayed"], decisions)

        memo(self._of(variant) / "replayed.json", inputs, NoneType, compiled, [binary])
        return binary

    def layouts(
        self,
        variant: Variant,
        policy: Path | None = None,
        profile: Path | None = None,
        number: int = LAYOUTS,
        decide: Decide | None = None,
        decisions: Decisions = _NOT_GIVEN,
    ) -> list[Path]:
        """The program as users compile it, in so many layouts.

        Args:
          policy: folder of one that decides evictions.
          profile: PMU profile manifest for what decides.
          number: of layouts.
          decide: what decides evictions, a callable that a worker can be sent, told by its `repr`.
          decisions: those that are given; only of a variant of its own name.

        Raises:
          CommandError: the compiler or the linker failed.
        """
        bitcode, folder = self._allocated(variant), self._of(variant) / "layouts"
        targets = [folder / str(layout) for layout in range(number)]
        inputs: dict[str, Any] = {
            "variant": repr(variant),
            "bitcode": [sha256(path) for path in bitcode],
            "clang": self._clang,
            "flags": _FLAGS[_TIMED],
            "layouts": number,
        }
        if policy:
            inputs["policy"] = sha256(policy / "model.json")
        if profile:
            inputs["profile"] = sha256(profile)
        if decide:
            inputs["decide"] = repr(decide)
        if decisions:
            inputs["decisions"] = _as_json(decisions)

        def link() -> None:
            built = self._compile(
                variant, bitcode, [_TIMED], decisions, policy=policy, profile=profile, decide=decide
            )
            objects, _ = built[_TIMED]
            folder.mkdir(exist_ok=True)
            link_layouts(objects, self.workload.program.libraries, targets)

        memo(self._of(variant) / "layouts.json", inputs, NoneType, link, targets)
        return targets

    def timed(
        self, name: str, ways: Mapping[str, tuple[Variant, Decisions]], plan: Timing
    ) -> dict[str, Any]:
        """The times of ways, as `Rounds.against_first`, of the input by which nothing was chosen.

        Args:
          name: of the note of what was measured; the rounds of earlier calls count.
          ways: by name, a variant and decisions that are given; the first is the baseline.

        Raises:
          CommandError: a compiler or a run failed.
          StudyError: the ways compute different things.
        """
        from compiler_opt_perf.studies.rounds import run_rounds  # SciPy, which workers do without.

        folder = self.folder.parent / "held-out"
        folder.mkdir(exist_ok=True)
        workload = HELD_OUT[self.name](folder)
        binaries = {
            way: self.layouts(variant, number=plan.layouts, decisions=given)
            for way, (variant, given) in ways.items()
        }
        measured = run_rounds(
            self.folder / f"{name}.json",
            binaries,
            workload.arguments,
            workload.run_inputs(),
            plan.rounds,
            plan.processor,
            label=self.name,
        )
        return measured.against_first()

    def _execute(self, variant: Variant, bitcode: Sequence[Path], decisions: Decisions) -> Executed:
        kinds = ("shipped",) if variant is MEASURED else tuple(_KINDS)
        built = self._compile(variant, bitcode, kinds, decisions)
        _, shipped = built["shipped"]
        counted = counted_run(shipped, self.workload.arguments, self.folder).totals()[0]
        if variant is MEASURED:
            return Executed(counted)
        objects, binary = built["replayed"]
        judge = self.judge()
        cost = judge.cost([binary])
        score, of_calls = (
            EVALUATORS[name].cost(objects, judge.context).total
            for name in (SCORE, "regalloc-score-calls")
        )
        allocation = self.judge(ALLOCATION).cost([binary]).total
        return Executed(counted, cost.total, score, of_calls, allocation, dict(cost.parts))

    def judge(self, name: str = COUNT) -> Judge:
        """One of the `REWARDS`, with the recorded run as it needs it.

        Raises:
          StudyError: the learned one, without a model or a CPU file.
          LearnedError: the model is damaged, or does not know the CPU.
        """
        context = Context(tool=self.toolchain.trace_cost, trace=self.trace(), threads=1)
        if name in (SCORE, ALLOCATION, COUNT):
            return Judge(EVALUATORS[name], context)
        context = dataclasses.replace(context, cpu=self.cpu, profile=self.profile())
        if name != LEARNED:
            context = dataclasses.replace(context, trace=self.trace(_LONG_WINDOW))
            return Judge(EVALUATORS[name], context)
        if self.model is None or self.cpu is None:
            raise StudyError(
                f"{name}: give the folder of a learned cost model, as --model=models/cost-znver3, "
                "and the CPU, as --cpu=znver3"
            )
        model = load(self.model)
        mcpu = llvm_name(self.cpu)
        model.require_cpu(mcpu)
        return Judge(LearnedReplay(model, mcpu), context, self.model)

    @functools.cached_property
    def _clang(self) -> str:
        return sha256(self.toolchain.clang.resolve())

    @functools.cached_property
    def workload(self) -> Workload:
        """The program and its run; all levels and variants run on the same inputs."""
        found = COUNTED[self.name](self.folder.parent)
        target = self.folder.parent / "input"
        if found.program.workload_inputs and not target.exists():
            write_input(found.program, found.tree, target)
        return found

    def _run_inputs(self) -> dict[str, Any]:
        """What the run of the default variant depends on."""
        return {
            "bitcode": [sha256(path) for path in self.bitcode()],
            "flags": _KINDS["replayed"],
            "clang": self._clang,
            "arguments": self.workload.arguments,
        }

    def trace(self, window: int = _WINDOW) -> Path:
        """The run of the default variant, in windows of so many blocks."""
        recorded, windows = self.folder / "run.bbtrace", self.folder / f"run-{window}.bbwindows"
        inputs = self._run_inputs()

        def run() -> None:
            record(self._replayed(DEFAULT), self.workload.arguments, recorded)

        def cut() -> None:
            memo(self.folder / "recorded.json", inputs, NoneType, run, [recorded])
            write_windows(Trace.load(recorded), window, windows)

        note = self.folder / f"windows-{window}.json"
        memo(note, {**inputs, "window": window}, NoneType, cut, [windows])
        return windows

    def profile(self) -> Path:
        """The PMU profile of the run of the default variant."""
        manifest = self.folder / "profile.pmu.json"
        inputs = self._run_inputs()

        def collected() -> None:
            binary = self._replayed(DEFAULT)
            collect(binary, self.workload.arguments, manifest, timeout_s=_TIMEOUT_S)

        memo(self.folder / "collected.json", inputs, NoneType, collected, [manifest])
        return manifest

    def bitcode(self) -> list[Path]:
        """The optimised IR of all modules."""
        flags: tuple[str, ...] = _OPTIMISED
        inputs: dict[str, Any] = {}
        if LEVELS[self.level]:
            counters = self._counters()
            flags += (f"-fprofile-use={counters}",)
            inputs["counters"] = sha256(counters)
        return self._compiled("ir", (*flags, "-emit-llvm"), self.toolchain.clang, inputs)

    def _compiled(
        self, folder: str, flags: Sequence[str], clang: Path, inputs: dict[str, Any]
    ) -> list[Path]:
        """What clang makes of the sources, by `flags`, in a folder."""
        workload = self.workload
        commands = compile_commands(
            workload.program,
            workload.tree,
            self.folder / folder,
            clang=clang,
            flags=(*flags, *workload.flags),
        )
        targets = [Path(command["arguments"][-1]) for command in commands]
        inputs = inputs | {
            "commands": [command["arguments"][1:] for command in commands],
            **source_checksums(workload.program, workload.tree),
            "clang": sha256(clang.resolve()),
        }

        def compiled() -> None:
            for target in targets:
                target.parent.mkdir(parents=True, exist_ok=True)
            arguments = [command["arguments"] for command in commands]
            run_all(arguments, workload.tree, label=f"{self.name}: {folder}")

        memo(self.folder / f"{folder}.json", inputs, NoneType, compiled, targets)
        return targets

    def _counters(self) -> Path:
        """The profile of the run by counters that the front end's IR is given."""
        flags = ("-O2", "-fprofile-generate")
        objects = self._compiled("counting", flags, stock_tool("clang"), {})
        return self._profile(objects, "counting")

    def _allocated(self, variant: Variant) -> list[Path]:
        """The optimised IR that a variant allocates registers of."""
        return self._measured() if variant is MEASURED else self.bitcode()

    def _measured(self) -> list[Path]:
        """The optimised IR with the measured executions of its blocks.

        The counters are added behind the optimiser, so that the code is the same but for what is
        known of its frequencies.
        """
        bitcode = self.bitcode()
        names = [f"{number}.bc" for number in range(len(bitcode))]
        counting, measured = self.folder / "counting-blocks", self.folder / "measured"
        targets = [measured / name for name in names]
        inputs = [sha256(path) for path in bitcode]

        def measure() -> None:
            opt, clang = stock_tool("opt"), stock_tool("clang")
            counting.mkdir(exist_ok=True)
            measured.mkdir(exist_ok=True)
            counted = [counting / name for name in names]
            objects = [path.with_suffix(".o") for path in counted]
            add = ["-passes=pgo-instr-gen,instrprof"]
            run_all([[opt, *add, *pair] for pair in _outputs(bitcode, counted)])
            run_all([[clang, *_SHIPPED, "-c", *pair] for pair in _outputs(counted, objects)])
            use = [
                "-passes=pgo-instr-use",
                f"-pgo-test-profile-file={self._profile(objects, 'counting-blocks')}",
            ]
            run_all([[opt, *use, *pair] for pair in _outputs(bitcode, targets)])

        memo(self.folder / "measured.json", inputs, NoneType, measure, targets)
        return targets

    def _profile(self, objects: Sequence[Path], folder: str) -> Path:
        """Links a program with counters, runs it and returns the counters' profile."""
        workload, own = self.workload, self.folder / folder
        binary, raw, merged = (own / name for name in (self.name, "raw", "counters.profdata"))
        inputs = [sha256(path) for path in objects]

        def profile() -> None:
            link: list[str | Path] = [stock_tool("clang"), "-fuse-ld=lld", "-fprofile-generate"]
            run_command([*link, *objects, *workload.program.libraries, "-o", binary])
            raw.unlink(missing_ok=True)
            environment = {"LLVM_PROFILE_FILE": str(raw)}
            run_command([binary, *workload.arguments], timeout_s=_TIMEOUT_S, env=environment)
            run_command([stock_tool("llvm-profdata"), "merge", raw, "-o", merged])

        memo(own / "profile.json", inputs, NoneType, profile, [merged])
        return merged

    def _compile(
        self,
        variant: Variant,
        bitcode: Sequence[Path],
        kinds: Sequence[str],
        decisions: Decisions = _NOT_GIVEN,
        *,
        policy: Path | None = None,
        profile: Path | None = None,
        decide: Decide | None = None,
    ) -> dict[str, tuple[list[Path], Path]]:
        """By kind, the objects of a variant and the program that is linked from them."""
        built: dict[str, tuple[list[Path], Path]] = {}
        jobs = []
        for kind in kinds:
            folder = self._of(variant) / kind
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            objects = [folder / f"{number}.o" for number in range(len(bitcode))]
            for number, (source, target) in enumerate(zip(bitcode, objects, strict=True)):
                flags = _FLAGS[kind]
                if number in decisions:
                    given = decision_options(decisions[number], folder / f"{number}.txt")
                    flags = (*flags, *for_clang(given))
                jobs.append(
                    Codegen(self.toolchain, variant, policy, source, target, flags, profile, decide)
                )
            built[kind] = objects, folder / self.name
        label = f"{self.name} {self.level}: {variant.name}"
        for outcome in self.pool.map(generate, jobs, label=label):
            outcome.get()
        for objects, binary in built.values():
            link: list[str | Path] = [
                stock_tool("clang"),
                "-fuse-ld=lld",
                "-Wl,--build-id",
                *objects,
            ]
            libraries = self.workload.program.libraries
            run_command([*link, *libraries, "-o", binary], timeout_s=_TIMEOUT_S)
        return built

    def _of(self, variant: Variant) -> Path:
        return self.folder / variant.name.replace(",", "").replace(" ", "-")


def _as_json(decisions: Decisions) -> dict[str, dict[str, int]]:
    return {str(number): dict(own) for number, own in decisions.items()}


def _outputs(sources: Sequence[Path], targets: Sequence[Path]) -> list[list[str | Path]]:
    """Arguments that name an input and its output."""
    return [[source, "-o", target] for source, target in zip(sources, targets, strict=True)]
