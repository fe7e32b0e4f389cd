# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The subject of a measurement: a compiler with a policy and profiles, and its commands.

The functions here run in pool workers: nothing that this module imports loads TensorFlow.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from absl import logging

from compiler_opt_perf.compare.errors import CompareError
from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.cost.evaluator import EVALUATORS, REPLAY_FLAGS, Context, Cost
from compiler_opt_perf.policy.export import Policy, load
from compiler_opt_perf.policy.problem import NO_PROFILE, PROBLEMS, Problem, for_clang
from compiler_opt_perf.toolchain.installation import Toolchain

#: Evaluators of recorded runs, by metric; cycles need a CPU file.
REPLAYED = {"instructions": "count", "cycles": "mca-pmu"}
# This flag keeps the compiler from printing warnings.
_NO_WARNINGS = "-w"


@dataclass(frozen=True)
class Subject:
    """A compiler, a policy and profiles, with the limits of one compilation.

    Attributes:
      problem: what the policy decides.
      toolchain: compiles in development and in interactive mode.
      release: has the policy compiled in; None leaves release mode out.
      model: the policy's folder.
      profiles: of the programs.
      interactive: the policy for interactive mode; None leaves that mode out.
      repetitions: compilations of each module; from 2 on, a difference between them shows.
      timeout_s: wall-clock limit of one compilation.
      memory_mib: limit of its address space; the default is as good as none.
      traces: recorded runs by program. The modules of these programs are compiled with the flags
        that keep the recorded blocks.
      cpu: CPU file for the cycles of these runs.
    """

    problem: Problem
    toolchain: Toolchain
    release: Toolchain | None
    model: Path
    profiles: Profiles = field(default_factory=Profiles)
    interactive: Policy | None = None
    repetitions: int = 1
    timeout_s: float = 300.0
    memory_mib: int = 1 << 20
    traces: Mapping[str, Path] = field(default_factory=dict)
    cpu: Path | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Variables for the compiler."""
        return {"LLVM_LITERT_LIBRARY": str(self.toolchain.litert_library)}

    @property
    def default_clang(self) -> Path:
        """The compiler that users of the policy have."""
        return (self.release or self.toolchain).clang

    def release_options(self, module: Module) -> list[str]:
        """LLVM's options for the policy that is compiled in."""
        return self.problem.release_options(profile=self.profiles.of(module.program))

    def user_options(self, module: Module) -> list[str]:
        """LLVM's options as users give them: of release mode if there are tools for it."""
        if self.release is not None:
            return self.release_options(module)
        options = self.problem.development_options(
            model=self.model, profile=self.profiles.of(module.program)
        )
        return [*options, f"-litert-library={self.toolchain.litert_library}"]

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
        """The cost of the program's recorded run in a module's code, by metric.

        Programs without a run have no costs. Raises CostError, CommandError, TraceError, PmuError.

        Args:
          metrics: some of REPLAYED.
        """
        if module.program not in self.traces:
            return {}
        context = self.replay_context(module)
        return {
            name: EVALUATORS[REPLAYED[name]].cost([image], context)
            for name in metrics
            if self.cpu is not None or name != "cycles"
        }

    def replay_context(self, module: Module) -> Context:
        """The files with which the recorded run of a module's program is replayed."""
        return Context(
            tool=self.toolchain.trace_cost,
            trace=self.traces[module.program],
            cpu=self.cpu,
            profile=self.profiles.of(module.program),
            threads=1,
        )


def warning(module: Module) -> Module:
    """The module, compiled with the compiler's warnings."""
    words = tuple(word for word in module.command if word != _NO_WARNINGS)
    return dataclasses.replace(module, command=words)


def policy_in(model: Path, name: str, profiles: Profiles) -> Policy | None:
    """The policy in a folder; None where it has no description, as policies from elsewhere.

    A policy that reads a PMU profile and gets none is told of.

    Args:
      model: the folder.
      name: of the problem that it must be for.
      profiles: that it is used with.

    Raises:
      CompareError: the policy is for another problem.
      ModelError: the policy is damaged.
    """
    if not (model / "model.json").exists():
        return None
    policy = load(model)
    if policy.network.problem.name != name:
        raise CompareError(f"{model}: a policy for {policy.network.problem.name}, not {name}")
    if policy.network.with_pmu and not profiles.paths:
        logging.warning("%s: %s", model, NO_PROFILE)
    return policy


def problem_of(model: Path, name: str, profiles: Profiles) -> Problem:
    """The problem with the further rates that a policy takes; else as `policy_in`."""
    policy = policy_in(model, name, profiles)
    return PROBLEMS[name] if policy is None else policy.network.problem
