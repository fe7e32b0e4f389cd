# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewards by record: a program is linked with one module's candidate in it, run and recorded.

All other modules are as the compiler's own policy compiles them. The run is isolated, so that the
same candidate costs the same on every machine (`cost.recording`).

The functions here run in workers, on this machine or another (`train.compilation`).
"""

import dataclasses
import filecmp
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from compiler_opt_perf.cost.evaluator import RECORDED, Context, Cost, Evaluator, Replay
from compiler_opt_perf.cost.recording import Recorder, Workload
from compiler_opt_perf.cost.size import function_sizes
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.content import Content, Tool
from compiler_opt_perf.run.files import sha256
from compiler_opt_perf.train.rewards import Costs, Reward, replayed_costs

# Differences of costs within so many standard errors are none.
_RESOLVED = 2.0
#: Of labels: differences are in millionths of the program's cost, so that programs compare.
PER_UNIT = 1e6
_LINK_S = 600.0
_DIGITS = 3


@dataclass(frozen=True)
class Judged:
    """What a program costs in its recorded run.

    Attributes:
      parts: by function.
      standard_error: of the sum, from sampling the run.
      output: digest of what the run prints.
    """

    parts: Mapping[str, float]
    standard_error: float
    output: str

    @classmethod
    def of(cls, cost: Cost) -> Self:
        """That of a cost by record."""
        output: str = cost.report[RECORDED]["output"]
        parts = replayed_costs(cost.parts, cost.report).parts
        # The last digits depend on the order of blocks, and would pass for a difference.
        rounded = {name: round(part, _DIGITS) for name, part in parts.items()}
        return cls(rounded, cost.standard_error or 0.0, output)

    @property
    def total(self) -> float:
        """The sum."""
        return math.fsum(self.parts.values())


@dataclass(frozen=True)
class ProgramRun:
    """How a program is linked and run.

    Attributes:
      workload: the run.
      more: objects and archives that no module of the corpus is compiled to.
      options: words that follow them, such as -lm.
      objects: by module's name in the order of the link, what the compiler's own policy makes.
      default: what the program costs with these; None until that is known.
    """

    workload: Workload
    more: tuple[Content, ...] = ()
    options: tuple[str, ...] = ()
    objects: Mapping[str, Content] = dataclasses.field(default_factory=dict)
    default: Judged | None = None

    def digest(self) -> list[str]:
        """All that costs depend on, as far as it is known."""
        files = (*self.more, *self.objects.values())
        return [*map(str, self.workload.digest()), *map(sha256, files), *self.options]

    def judge(
        self, evaluator: Replay, context: Context, clang: Path, changed: Mapping[str, Path]
    ) -> Judged:
        """Links the program with some objects changed, records its run, and judges it.

        Args:
          clang: the driver that links.
          changed: by module's name.

        Raises:
          CommandError: it cannot be linked.
          RecordingError: its run fails, or prints something else than the default's.
        """
        objects = [changed.get(name, path) for name, path in self.objects.items()]
        with tempfile.TemporaryDirectory(prefix="linked-") as folder:
            program = Path(folder) / "program"
            words: list[str | Path] = [clang, "--driver-mode=g++", *objects, *self.more]
            words += [*self.options, "-Wl,--build-id", "-o", program]
            run_command(words, timeout_s=_LINK_S)
            output = None if self.default is None else self.default.output
            recorder = Recorder(evaluator, self.workload, None, output)
            return Judged.of(recorder.cost([program], context))


@dataclass(frozen=True)
class ModuleRun:
    """A module in its program, to be judged by record.

    Attributes:
      evaluator: what judges.
      context: its CPU and tool.
      clang: the driver that links.
      program: the module's program.
      module: its name.
    """

    evaluator: Replay
    context: Context
    clang: Tool
    program: ProgramRun
    module: str

    def judge(self, object_file: Path) -> Judged:
        """The program with this object. Raises as `ProgramRun.judge`."""
        default = self.program.default
        own = self.program.objects[self.module]
        if default is not None and filecmp.cmp(object_file, own, shallow=False):
            return default
        changed = {self.module: object_file}
        return self.program.judge(self.evaluator, self.context, self.clang, changed)

    def costs(self, object_file: Path) -> Costs:
        """The module's functions, as the default has them, and all else of the program."""
        judged = self.judge(object_file)
        own = function_sizes(self.program.objects[self.module]).keys()
        parts = {name: cost for name, cost in judged.parts.items() if name in own}
        return Costs(parts, {}, elsewhere=judged.total - math.fsum(parts.values()))


def recorded_reward(evaluator: Evaluator, run: ModuleRun | None) -> Reward:
    """What the program costs with the module's candidate in it (docs/cost.md).

    Args:
      run: of the module; None for a reward that measures nothing.
    """

    def measure(object_file: Path) -> Costs:
        assert run is not None
        return run.costs(object_file)

    name = f"{evaluator.name} {evaluator.unit}"
    return Reward(name, adds_up=True, measure=measure, way="record")


def recorded_differences(
    run: ModuleRun,
    base: Path,
    reach: Mapping[str, frozenset[str]],
    aliases: Mapping[str, str],
    draw: Callable[[Sequence[str]], Sequence[str]],
    flipped: Callable[[str], Path],
) -> tuple[dict[str, float], float]:
    """What each of some decisions would change in the program's cost, taken the other way.

    A decision that reaches no function that runs changes nothing in the run, and has no label.

    Args:
      base: the object file with the decisions as they are.
      reach: the functions that flipping a decision can change, by its key.
      aliases: names of functions that `reach` has by another one.
      draw: chooses from the keys of decisions that reach what runs.
      flipped: compiles the module with a decision flipped.

    Returns:
      The differences by key, in millionths of the program's cost, 0 if they are not resolved; and
      the program's cost.
    """
    before = run.judge(base)
    executed = {aliases.get(name, name) for name, cost in before.parts.items() if cost > 0}
    reaching = [key for key, functions in reach.items() if not executed.isdisjoint(functions)]
    found: dict[str, float] = {}
    for key in draw(reaching):
        other = flipped(key)
        if filecmp.cmp(other, base, shallow=False):
            found[key] = 0.0
            continue
        after = run.judge(other)
        change = after.total - before.total
        error = math.hypot(after.standard_error, before.standard_error)
        is_resolved = abs(change) > _RESOLVED * error
        found[key] = PER_UNIT * change / before.total if is_resolved else 0.0
    return found, before.total
