# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures one module: compiles it several times with a policy in development mode.

The functions here run in pool workers: nothing that this module imports loads TensorFlow.
"""

import dataclasses
import hashlib
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from compiler_opt_perf.compare.baseline import Detail, ModuleRun, ProgramRun, Status, pack
from compiler_opt_perf.compare.modes import Modes, ModesError
from compiler_opt_perf.compare.remarks import (
    RemarksError,
    count_pmu,
    read_decisions,
    remark_options,
)
from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.cost.evaluator import EVALUATORS, REPLAY_FLAGS, Context, Cost, CostError
from compiler_opt_perf.cost.linked import linked_text_bytes
from compiler_opt_perf.cost.size import ObjectFileError, function_sizes, text_bytes
from compiler_opt_perf.policy.problem import Problem, for_clang
from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.files import atomic_write, read_input, require_space, sha256
from compiler_opt_perf.run.json_text import Measure
from compiler_opt_perf.run.memory import with_peak_memory
from compiler_opt_perf.run.timing import Meter
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.trace.errors import TraceError
from compiler_opt_perf.train.log import LogError, read_log

_OBJECT = "module.o"
# Keeps the compiler from telling what it does not do.
_NO_WARNINGS = "-w"
_PROFILE_PASS = "pmu-profile"
_STALE = re.compile(rb"^Pass: +pmu-profile\nName: +Stale$", re.MULTILINE)
_WARNING = re.compile(r"warning: (.*)")
_FALLBACK = "using the default policy"
#: Evaluators of recorded runs, by metric; the second needs a CPU file.
REPLAYED = {"instructions": "count", "cycles": "mca-pmu"}
# Of warnings and messages that are kept.
_MOST_LINES = 10
_LONGEST_LINE = 600


@dataclass(frozen=True)
class Candidate:
    """A compiler, a policy and profiles, with the limits that a compilation must keep.

    Attributes:
      toolchain: compiles, in development mode.
      release: has the policy compiled in, to compare modes; None leaves that out.
      model: the policy's folder.
      profiles: of the programs.
      repetitions: compilations of each module, at least 2, so that a difference shows.
      timeout_s: wall-clock limit of one compilation.
      memory_mib: limit of its address space.
      traces: recorded runs by program. The modules of these programs are compiled with the flags
        that keep the recorded blocks.
      cpu: CPU file, for the cycles of these runs.
    """

    problem: Problem
    toolchain: Toolchain
    release: Toolchain | None
    model: Path
    profiles: Profiles
    repetitions: int
    timeout_s: float
    memory_mib: int
    traces: Mapping[str, Path] = field(default_factory=dict)
    cpu: Path | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Variables for the compiler."""
        return {"LLVM_LITERT_LIBRARY": str(self.toolchain.litert_library)}

    def development_command(
        self, module: Module, output: Path, log: Path, more: Sequence[str] = ()
    ) -> list[str]:
        """The command that compiles a module by the policy and logs its decisions by key.

        Args:
          more: further options of LLVM.
        """
        options = self.problem.development_options(
            model=self.model, log=log, profile=self.profiles.of(module.program)
        )
        options += ["-mlgo-decision-keys", *more]
        flags = REPLAY_FLAGS if module.program in self.traces else ()
        return warning(module).compile_command(
            self.toolchain.clang, output, [*for_clang(options), *flags]
        )

    def replayed(
        self, module: Module, image: Path, metrics: Iterable[str] = tuple(REPLAYED)
    ) -> dict[str, Cost]:
        """What the program's recorded run costs in a module's code, by metric.

        Empty for programs without a run. Raises CostError, CommandError, TraceError, PmuError.

        Args:
          metrics: some of REPLAYED.
        """
        trace = self.traces.get(module.program)
        if trace is None:
            return {}
        context = Context(
            tool=self.toolchain.trace_cost,
            trace=trace,
            cpu=self.cpu,
            profile=self.profiles.of(module.program),
            threads=1,
        )
        evaluators = {name: EVALUATORS[REPLAYED[name]] for name in metrics}
        return {
            name: evaluator.cost([image], context)
            for name, evaluator in evaluators.items()
            if self.cpu is not None or name != "cycles"
        }


@dataclass(frozen=True)
class Job:
    """A module to measure; may be sent to another process.

    Attributes:
      object: where its object file is kept, to be linked.
    """

    module: Module
    candidate: Candidate
    object: Path


@dataclass(frozen=True)
class EffortJob:
    """A module whose compilations are to be measured, so many times."""

    module: Module
    candidate: Candidate
    meter: Meter
    times: int


class Effort(msgspec.Struct, frozen=True):
    """What the compiler's work took.

    Attributes:
      taken: by each compilation; none where the compiler failed.
      status, message: as of ModuleRun.
    """

    taken: tuple[Measure, ...] = ()
    status: Status = "ok"
    message: str = ""


def warning(module: Module) -> Module:
    """The module, compiled with the compiler's warnings."""
    words = tuple(word for word in module.command if word != _NO_WARNINGS)
    return dataclasses.replace(module, command=words)


def fingerprint(module: Module) -> str:
    """SHA-256 of all that the module is, without the compiler. Raises OSError."""
    return hashlib.sha256("\0".join(module.fingerprint()).encode()).hexdigest()


def measure_module(job: Job) -> ModuleRun:
    """Measures all but the compiler's effort. In a pool's worker.

    What the compiler fails on is a result, too.

    Raises:
      FileWriteError: there is no room for what the compiler writes.
    """
    module = job.module
    with tempfile.TemporaryDirectory(prefix="gate-") as name:
        folder = Path(name)
        try:
            run = _measured(module, job.candidate, folder)
            with atomic_write(job.object) as kept:
                shutil.copyfile(folder / _OBJECT, kept)
            return run
        except CommandError as error:
            require_space(folder)
            status, message = _status(error), _told(error)
        except (LogError, ObjectFileError, RemarksError) as error:
            require_space(folder)
            status, message = "failed", _cut(str(error))
        return ModuleRun(
            name=module.name, digest=fingerprint(module), status=status, message=message
        )


def _measured(module: Module, candidate: Candidate, folder: Path) -> ModuleRun:
    problem = candidate.problem
    image, log, remarks = folder / _OBJECT, folder / "module.log", folder / "module.yaml"
    command = candidate.development_command(module, image, log)
    command += remark_options(problem, remarks, _PROFILE_PASS)
    objects: dict[str, None] = {}
    memory = []
    for _ in range(candidate.repetitions):
        completed = run_command(
            with_peak_memory(command, folder / "peak"),
            timeout_s=candidate.timeout_s,
            memory_mib=candidate.memory_mib,
            env=candidate.environment,
        )
        memory.append(int((folder / "peak").read_text()))
        objects[sha256(image)] = None
    costs: dict[str, Cost] = {}
    unreplayed = ""
    try:
        costs = candidate.replayed(module, image)
    except (CostError, CommandError, TraceError) as error:
        require_space(folder)
        unreplayed = _cut(str(error))
    decisions = read_decisions(remarks, problem)
    pmu = count_pmu(decisions)
    warnings = [found[1] for found in map(_WARNING.search, completed.stderr.splitlines()) if found]
    return ModuleRun(
        name=module.name,
        digest=fingerprint(module),
        status="ok",
        objects=tuple(objects),
        modes=_modes(module, candidate, folder),
        text=text_bytes(image),
        memory=tuple(memory),
        decisions=len(decisions),
        with_pmu=len(decisions) - pmu["missing"],
        differing=sum(decision.chosen != decision.default for decision in decisions),
        fallbacks=sum(_FALLBACK in line for line in warnings),
        stale=len(_STALE.findall(read_input(remarks))),
        warnings=tuple(_cut(line) for line in dict.fromkeys(warnings))[:_MOST_LINES],
        unreplayed=unreplayed,
        detail=pack(detail_after(problem, image, log, costs)),
        **totals(costs),
    )


def totals(costs: Mapping[str, Cost]) -> dict[str, Any]:
    """As `ModuleRun` has them, by metric."""
    return {name: cost.total for name, cost in costs.items()}


def detail_after(problem: Problem, image: Path, log: Path, costs: Mapping[str, Cost]) -> Detail:
    """What a compilation led to, by its object file and log. Raises LogError, ObjectFileError.

    Args:
      costs: of the recorded run, by metric.
    """
    logged = read_log(log)
    taken = logged.observations[problem.decision].reshape(-1).tolist() if logged.keys else []
    return Detail(
        functions=dict(function_sizes(image)),
        scores=logged.last_rewards() if problem.score_in_log else {},
        decisions=dict(zip(logged.keys, taken, strict=True)),
        **{name: dict(cost.parts) for name, cost in costs.items()},
    )


def link_program(name: str, objects: Sequence[Path], linker: Path) -> ProgramRun:
    """Links a program. What the linker fails on is a result, too."""
    try:
        return ProgramRun(name=name, linked=linked_text_bytes(objects, linker))
    except (CommandError, ObjectFileError) as error:
        return ProgramRun(name=name, message=_cut(str(error)))


def _modes(module: Module, candidate: Candidate, folder: Path) -> str:
    """How release and development mode differ, in words. Raises CommandError."""
    if candidate.release is None:
        return ""
    modes = Modes(
        candidate.problem,
        candidate.release.clang,
        candidate.toolchain.clang,
        candidate.toolchain.litert_library,
        candidate.model,
        None,
        candidate.profiles,
    )
    try:
        modes.compile(module, folder)
    except ModesError as error:
        return _cut(str(error))
    return ""


def _status(error: CommandError) -> Status:
    statuses: dict[str, Status] = {"crashed": "crashed", "timeout": "timeout"}
    return statuses.get(error.kind, "failed")


def _told(error: CommandError) -> str:
    """What the compiler said of its failure, and how it ended."""
    lines = error.stderr.splitlines()
    said = [line for line in lines if "error:" in line] or lines[:1]
    # The command begins with what measures its memory.
    _, _, how = error.reason.partition(": ")
    return _cut("; ".join([f"clang: {how}", *said[:2]]))


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_LINE else line[:_LONGEST_LINE] + "..."


def measure_effort(job: EffortJob) -> Effort:
    """What compilations with the policy take, in the meter's unit. In a pool's worker.

    In release mode if there is a toolchain for it, as users compile.

    Raises:
      CommandError: what measures is not installed.
    """
    module, candidate = job.module, job.candidate
    profile = candidate.profiles.of(module.program)
    if candidate.release is not None:
        clang, options = candidate.release.clang, candidate.problem.release_options(profile=profile)
    else:
        clang = candidate.toolchain.clang
        options = candidate.problem.development_options(model=candidate.model, profile=profile)
        options.append(f"-litert-library={candidate.toolchain.litert_library}")
    with tempfile.TemporaryDirectory(prefix="gate-") as folder:
        command = module.compile_command(clang, Path(folder) / "module.o", for_clang(options))
        # The first compilation reads its files into the page cache; counts do not depend on it.
        warm_up = 0 if job.meter.counts else 1
        try:
            taken = [
                job.meter.measure(command, candidate.timeout_s) for _ in range(warm_up + job.times)
            ]
        except CommandError as error:
            if error.kind == "missing":
                raise
            return Effort(status=_status(error), message=f"as it was measured: {_told(error)}")
    return Effort(tuple(taken[warm_up:]))
