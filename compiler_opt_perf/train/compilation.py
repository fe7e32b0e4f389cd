# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One compilation of one module, by the compiler's own policy or by a candidate, and its cost.

The functions here run in workers, on this machine or another: jobs carry contents of files, and
nothing that this module imports loads TensorFlow, SciPy or matplotlib (layers_test.py looks).
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.cost.evaluator import REPLAY_FLAGS, Context, Evaluator, Replay
from compiler_opt_perf.cost.recording import RECORD_FLAGS, RecordingError
from compiler_opt_perf.cost.size import ObjectFileError
from compiler_opt_perf.policy.problem import Problem, for_clang
from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.content import Content, Tool
from compiler_opt_perf.run.files import (
    atomic_write,
    require_space,
    sha256,
)
from compiler_opt_perf.run.json_text import Count, Finite
from compiler_opt_perf.run.memo import note
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train.log import LogError, read_log
from compiler_opt_perf.train.recorded import ModuleRun, ProgramRun, recorded_reward
from compiler_opt_perf.train.rewards import LINKED_TEXT, REWARDS, Costs, Reward, evaluator_reward


@dataclass(frozen=True)
class Compiler:
    """The patched compiler and the limits that one run of it must keep.

    Attributes:
      clang: patched clang.
      litert_library: libLiteRt.so, which evaluates candidates.
      problem: what is decided.
      profiles: PMU profiles of the programs.
      timeout_s: wall-clock limit of one compilation.
      memory_mib: limit of its address space.
      evaluator: what measures costs by a run; None to use the problem's own reward.
      context: the recorded run, for the evaluator.
      traces: the recorded runs by program; with several programs they replace the context's.
      copies: whether the reward counts that linking keeps one copy of a function (COMDAT).
      folding: whether it counts that linking folds identical functions, too.
      options: further options of LLVM, in each compilation.
      runs: by program, how it is linked and run to be recorded with a candidate in it; with these
        the evaluator replays each candidate's own run instead of a recorded one.
    """

    clang: Tool
    litert_library: Tool
    problem: Problem
    profiles: Profiles
    timeout_s: float
    memory_mib: int
    evaluator: Evaluator | None = None
    context: Context = dataclasses.field(default_factory=Context)
    traces: Mapping[str, Content] = dataclasses.field(default_factory=dict)
    copies: bool = False
    folding: bool = False
    options: tuple[str, ...] = ()
    runs: Mapping[str, ProgramRun] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(
        cls,
        toolchain: Toolchain,
        problem: Problem,
        profiles: Profiles | None = None,
        *,
        timeout_s: float = 300.0,
        memory_mib: int = 8192,
    ) -> Self:
        """The compiler of a toolchain, with limits that no module of a real program meets."""
        clang, library = toolchain.clang, toolchain.litert_library
        return cls(clang, library, problem, profiles or Profiles(), timeout_s, memory_mib)

    @property
    def reward(self) -> Reward:
        """The cost that training makes smaller; to measure it, `reward_of` a module."""
        if self.evaluator is None:
            return REWARDS[LINKED_TEXT if self.copies else self.problem.reward]
        if self.runs:
            return recorded_reward(self.evaluator, None)
        return evaluator_reward(self.evaluator, self.context)

    def reward_of(self, module: Module) -> Reward:
        """The cost of a module; with several traces by its program's own run and profile."""
        if self.evaluator is not None and self.runs:
            return recorded_reward(self.evaluator, self.run_of(module))
        if self.evaluator is None or not self.traces:
            return self.reward
        program = module.program
        context = dataclasses.replace(
            self.context, trace=self.traces[program], profile=self.profiles.of(program)
        )
        return evaluator_reward(self.evaluator, context)

    def run_of(self, module: Module) -> ModuleRun:
        """The recorded run of a module's program, with the module's candidate in it."""
        assert isinstance(self.evaluator, Replay)
        program = self.runs[module.program]
        return ModuleRun(self.evaluator, self.context, self.clang, program, module.name)

    @property
    def limit_s(self) -> float:
        """Limit of a compilation and of its measurement."""
        # A candidate is run twice: for its trace and for its profile.
        recorded = [2 * run.workload.timeout_s for run in self.runs.values()]
        return self.timeout_s + max(recorded, default=0.0)

    @property
    def evaluator_inputs(self) -> dict[str, str | None] | None:
        """The evaluator's name and the SHA-256 of the files that its costs depend on."""
        evaluator = self.evaluator
        if evaluator is None:
            return None
        context = self.context
        files = {"tool": context.tool, "trace": context.trace, "cpu": context.cpu}
        files |= {f"trace of {program}": path for program, path in sorted(self.traces.items())}
        hashes = {name: sha256(path) if path is not None else None for name, path in files.items()}
        for program, run in sorted(self.runs.items()):
            hashes[f"run of {program}"] = json.dumps(run.digest())
        if isinstance(evaluator, Replay) and evaluator.learned is not None:
            hashes["learned"] = evaluator.learned
        return {"name": evaluator.name, **hashes}

    @property
    def score_in_log(self) -> bool:
        """The reward is measured from the training log, else from the object file."""
        return self.evaluator is None and self.problem.score_in_log

    def compile(self, module: Module, output: Path, options: Sequence[str]) -> float:
        """Compiles to the object file `output`; returns seconds. Raises CommandError."""
        flags = {"replay": REPLAY_FLAGS, "record": RECORD_FLAGS, None: ()}[self.reward.way]
        words = [*for_clang([*self.options, *options]), *flags]
        argv = module.compile_command(self.clang, output, words)
        environment = {"LLVM_LITERT_LIBRARY": os.fspath(self.litert_library)}
        completed = run_command(
            argv, timeout_s=self.timeout_s, memory_mib=self.memory_mib, env=environment
        )
        return completed.seconds


@dataclass(frozen=True)
class Job:
    """One module to compile.

    Attributes:
      model: directory of the candidate's model; None for the compiler's own policy.
      log: where `keep_default` writes the training log of the compiler's own policy.
      key: identifies what the default measurement depends on; kept with the result.
    """

    compiler: Compiler
    module: Module
    model: Content | None = None
    log: Path | None = None
    key: tuple[str, ...] = ()

    @property
    def profile(self) -> Path | None:
        """That of the module's program."""
        return self.compiler.profiles.of(self.module.program)


@dataclass(frozen=True)
class Default:
    """The result of compiling a module with the compiler's own policy.

    Attributes:
      costs: by part.
      decisions: how many the policy took.
      seconds: wall time of one compilation.
      log: SHA-256 of the training log.
    """

    costs: Costs
    decisions: Count
    seconds: Finite
    log: str = ""


@dataclass(frozen=True)
class DefaultRun:
    """A compilation with the compiler's own policy: its result, the bytes of its log, and those of
    the object file if it is kept."""

    default: Default
    log: bytes
    image: bytes = b""


def measure_default(job: Job) -> DefaultRun:
    """Compiles with the compiler's own policy. In a worker.

    Raises:
      CommandError: the compiler failed, crashed or hung.
      LogError: it wrote a damaged log.
      ObjectFileError: it wrote a damaged object file.
      FileWriteError: a disk is full.
    """
    problem = job.compiler.problem
    reward = job.compiler.reward_of(job.module)
    with scratch() as folder:
        object_file, log_file = folder / "module.o", folder / "module.log"
        options = problem.development_options(log=log_file, profile=job.profile)
        seconds = job.compiler.compile(job.module, object_file, options)
        log = read_log(log_file)
        if job.compiler.score_in_log:
            costs = reward.measure(log_file)
        elif job.compiler.copies:
            # As labels are measured.
            costs = reward.measure(object_file)
        else:
            # Development mode takes the default policy's decisions, but differs from it otherwise.
            job.compiler.compile(job.module, object_file, [])
            costs = reward.measure(object_file)
        digest = hashlib.sha256(log.content).hexdigest()
        default = Default(costs, len(log.starts), seconds, digest)
        image = object_file.read_bytes() if job.compiler.folding else b""
        return DefaultRun(default, log.content, image)


def keep_default(job: Job, run: DefaultRun) -> None:
    """Writes the log, and beside it the object file, and the result as a note.

    Raises:
      FileWriteError: the disk is full.
    """
    assert job.log is not None
    kept = {job.log: run.log, **({object_path(job.log): run.image} if run.image else {})}
    for path, content in kept.items():
        with atomic_write(path) as temporary:
            temporary.write_bytes(content)
    note(record_path(job.log), job.key, Default, run.default)


def record_path(log: Path) -> Path:
    """Where `keep_default` keeps the result that belongs to a log."""
    return log.with_suffix(".json")


def object_path(log: Path) -> Path:
    """Where `keep_default` keeps the object file that belongs to a log."""
    return log.with_suffix(".o")


def measure_candidate(job: Job) -> Costs:
    """Compiles with the candidate in `job.model` in development mode.

    Raises: as measure_default.
    """
    problem = job.compiler.problem
    reward = job.compiler.reward_of(job.module)
    with scratch() as folder:
        object_file = folder / "module.o"
        log = folder / "module.log" if job.compiler.score_in_log else None
        options = problem.development_options(model=job.model, log=log, profile=job.profile)
        job.compiler.compile(job.module, object_file, options)
        return reward.measure(log or object_file)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for the compiler's output. A failure for lack of room there is a FileWriteError."""
    with tempfile.TemporaryDirectory(prefix="compile-") as name:
        folder = Path(name)
        try:
            yield folder
        except (CommandError, LogError, ObjectFileError, RecordingError):
            require_space(folder)
            raise
