# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Evaluators of the cost of machine code, behind one interface.

An evaluator measures or predicts a cost of object files: lower is better. `size` and
`regalloc-score` need only the object files; the others use a recorded run (docs/cost.md).
"""

import dataclasses
import functools
import hashlib
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec
import numpy as np
from absl import logging

from compiler_opt_perf.cost.regalloc_score import regalloc_scores
from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.content import Content, Manifest, Tool
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import read_input, sha256, write_json
from compiler_opt_perf.run.json_text import Count, Finite, JsonError, convert, decode
from compiler_opt_perf.trace.statistics import block_counts
from compiler_opt_perf.trace.trace_file import Trace
from compiler_opt_perf.trace.windows import SUFFIX as WINDOWS_SUFFIX
from compiler_opt_perf.trace.windows import Windows

#: clang's flags for traced programs and their candidates. They emit an address map, and disable
#: passes after register allocation that change block ids. Shrink wrapping stays, as a part of the
#: cost of callee-saved registers, but must not split blocks.
REPLAY_FLAGS = (
    "-fbasic-block-address-map",
    *("-mllvm", "-disable-branch-fold"),
    *("-mllvm", "-branch-fold-placement=0"),
    *("-mllvm", "-disable-tail-duplicate"),
    *("-mllvm", "-tail-dup-placement=0"),
    *("-mllvm", "-enable-shrink-wrap-region-split=0"),
)

FORMAT = "compiler-opt-perf/trace-cost"
VERSION = 2
#: Name of the part for executed blocks that the candidate lacks; each is charged the mean cost.
UNMAPPED = "(unmapped blocks)"
#: In a report, what tells of the run if it is the candidate's own (`cost.recording`).
RECORDED = "recorded"


class CostError(UserError):
    """A cost cannot be computed; the message names the missing or wrong input."""


@dataclass(frozen=True)
class Context:
    """The inputs of evaluators besides the object files.

    Attributes:
      tool: llvm-trace-cost (Toolchain.trace_cost).
      trace: block trace or window histogram of the run.
      traced: the traced binary. With it, blocks are matched by their instructions, which also
        tells local functions of one name apart.
      cpu: CPU file; evaluators of cycles need it.
      profile: PMU profile manifest of the run, for `mca-pmu`.
      own_run: whether trace and profile are of one run of the candidate itself.
      without: parts of `mca-pmu` to leave out (docs/cost.md), to measure what each contributes.
      threads: number of threads of the simulation; 0 for one per core.
      cache: folder of cached results, keyed by content; None caches nothing.
    """

    tool: Tool | None = None
    trace: Content | None = None
    traced: Content | None = None
    cpu: Content | None = None
    profile: Manifest | None = None
    own_run: bool = False
    without: tuple[str, ...] = ()
    threads: int = 0
    cache: Path | None = None


@dataclass(frozen=True)
class Cost:
    """The cost of a candidate.

    Attributes:
      total: the cost in the evaluator's unit.
      parts: costs by part of the code, to compare candidates part by part: "text" for the size;
        otherwise function names (functions of one name are added up).
      report: the report of llvm-trace-cost (docs/reference/formats.md); empty without one.
      residuals: for each simulated sample of the run, its cost minus the estimate, scaled to the
        run; empty if the run was not sampled.
      standard_error: standard error of `total` from sampling; None if the run was not sampled.
    """

    total: float
    parts: Mapping[str, float]
    report: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def residuals(self) -> tuple[float, ...]:
        return tuple(float(residual) for residual in self.report.get("sample_residuals", ()))

    @property
    def standard_error(self) -> float | None:
        error = self.report.get("standard_error")
        return None if error is None else float(error)


def difference_error(left: Cost, right: Cost) -> float | None:
    """The standard error of `left.total - right.total` from sampling the run; None if unknown.

    Where each is of its own recorded run, the samples are independent. Otherwise both costs must
    use one trace, so that their samples are the same parts of the run. Residuals of the two
    candidates are correlated and mostly cancel. With S samples and residuals e the error is

      sqrt(S / (S - 1) * sum((e_left - e_right)**2))

    without a finite-population correction, because samples are few.

    Raises:
      CostError: the costs have different numbers of samples.
    """
    samples = len(left.residuals)
    if left.standard_error is None or right.standard_error is None:
        return None
    if RECORDED in left.report:
        return math.hypot(left.standard_error, right.standard_error)
    if samples != len(right.residuals):
        raise CostError("the costs use different traces; compare costs of one trace")
    squares = (
        (mine - theirs) ** 2 for mine, theirs in zip(left.residuals, right.residuals, strict=True)
    )
    return math.sqrt(samples / (samples - 1) * sum(squares))


class _Cycles(msgspec.Struct, frozen=True):
    total: Finite


class _Executed(msgspec.Struct, frozen=True):
    executions: Count = 0


class _Charged(msgspec.Struct, frozen=True, kw_only=True):
    instructions: Finite
    allocation: Finite | None = None
    cycles: _Cycles | None = None


class _Function(_Charged, frozen=True, kw_only=True):
    name: str
    blocks: tuple[_Executed, ...]


class _Unmapped(_Charged, frozen=True, kw_only=True):
    executions: Count


class _Trace(msgspec.Struct, frozen=True):
    truncated: bool


class _Report(_Charged, frozen=True, kw_only=True):
    """The fields of llvm-trace-cost's report that are used here, without format and version."""

    executions: Count
    functions: tuple[_Function, ...]
    unmapped: _Unmapped
    trace: _Trace
    unsupported: _Executed = _Executed()
    sample_residuals: tuple[Finite, ...] = ()
    standard_error: Finite | None = None


class Evaluator(Protocol):
    """A measure of the cost of code."""

    @property
    def name(self) -> str:
        """Its name in EVALUATORS."""

    @property
    def unit(self) -> str:
        """The unit of costs."""

    def cost(self, objects: Sequence[Path], context: Context) -> Cost:
        """The cost of a candidate: object files, or one binary.

        Raises:
          CostError: the context lacks an input.
          CommandError: llvm-trace-cost refused its input; the message names the file.
          ObjectFileError: an object file cannot be read.
          ScoreError: an object file has no scores beside it.
          TraceError: the trace cannot be read.
          PmuError: the profile cannot be read, or belongs to another build.
          BinaryError: the code has no address map or no debug info, where they are needed.
        """


@runtime_checkable
class Replay(Evaluator, Protocol):
    """An evaluator that replays a recorded run, and so compares compilations of a module."""

    @property
    def uses_cpu(self) -> bool:
        """Whether the context must have a CPU file."""

    @property
    def uses_profile(self) -> bool:
        """Whether costs depend on the context's profile."""

    @property
    def learned(self) -> str | None:
        """Digest of the learned model that costs depend on; None without one."""


@dataclass(frozen=True)
class Size:
    """Bytes of machine code."""

    name: str = "size"
    unit: str = "bytes"

    def cost(self, objects: Sequence[Path], context: Context) -> Cost:
        """The bytes of all executable sections; ignores the context."""
        total = float(sum(text_bytes(path) for path in objects))
        return Cost(total, {"text": total})


@dataclass(frozen=True)
class Score:
    """LLVM's RegAllocScore, from remarks that the compiler writes beside object files.

    Attributes:
      weighted: whether a function's score is multiplied by its calls in the recorded run.
    """

    name: str
    weighted: bool
    unit: str = "weighted instructions"

    def cost(self, objects: Sequence[Path], context: Context) -> Cost:
        """The sum over functions. Only object files have scores, not a linked binary."""
        parts: dict[str, float] = {}
        for path in objects:
            for function, score in regalloc_scores(path).items():
                parts[function] = parts.get(function, 0.0) + score
        if self.weighted:
            if context.trace is None:
                raise CostError(f"the evaluator {self.name} needs a trace")
            written = context.trace.stat() if context.trace.exists() else None
            calls = _calls(
                context.trace, (written.st_mtime_ns, written.st_size) if written else None
            )
            parts = {name: score * calls.get(name, 0) for name, score in parts.items()}
        return Cost(sum(parts.values()), parts)


@functools.lru_cache(maxsize=4)
def _calls(trace: Path, written: tuple[int, int] | None) -> Mapping[str, int]:
    """The number of times the run entered each function; functions of one name are added up.

    Args:
      trace: block trace or window histogram.
      written: the trace's time of writing and size, as a cache key: the file may be replaced.
    """
    if trace.suffix == WINDOWS_SUFFIX:
        windows = Windows.load(trace)
        # A window counts executions of its last block.
        table, blocks = windows.table, windows.blocks[:, -1]
        counts = np.bincount(blocks, windows.counts.astype(np.float64), len(table) + 1)[:-1]
    else:
        whole = Trace.load(trace)
        table, counts = whole.table, block_counts(whole).astype(np.float64)
    entered = table.address == table.entry[table.function]
    calls: dict[str, int] = {}
    for block in np.flatnonzero(entered & (counts > 0)).tolist():
        name = table.names[table.function[block]]
        calls[name] = calls.get(name, 0) + int(counts[block])
    return calls


@dataclass(frozen=True)
class TraceReplay:
    """A model of llvm-trace-cost, which replays a recorded run with the candidate's code.

    Attributes:
      uses_cpu: whether the model predicts cycles, which needs a CPU file.
      uses_profile: whether the model uses the PMU profile, if there is one.
      has_parts: whether parts of the model can be left out.
      allocated: whether only instructions that register allocation added count, by weight.
    """

    name: str
    unit: str
    uses_cpu: bool = True
    uses_profile: bool = False
    has_parts: bool = False
    allocated: bool = False

    @property
    def learned(self) -> None:
        """None: the model is not learned."""

    def cost(self, objects: Sequence[Path], context: Context) -> Cost:
        """Replays the run, or reads the result from the cache."""
        command = self.command(objects, context)
        path = None
        if context.cache is not None:
            path = context.cache / f"{self._key(objects, context)}.json"
            if path.is_file():
                try:
                    return self._read(read_input(path), path)
                except (OSError, JsonError) as error:
                    logging.warning("%s; computed again", error)
        with tempfile.TemporaryDirectory(prefix="cost-") as folder:
            output = Path(folder) / "cost.json"
            run_command([*command, "-o", output])
            try:
                cost = self._read(read_input(output), command[0])
            except JsonError as error:
                raise CostError(f"{error}; build the toolchain again") from error
        if path is not None:
            write_json(path, cost.report)
        return cost

    def command(self, objects: Sequence[Path], context: Context) -> list[str | Path]:
        """The command line of llvm-trace-cost. Raises CostError: the context lacks an input."""
        if context.tool is None or context.trace is None:
            raise CostError(f"the evaluator {self.name} needs llvm-trace-cost and a trace")
        model = "count" if self.allocated else self.name
        command: list[str | Path] = [context.tool, f"-model={model}", f"-trace={context.trace}"]
        if context.traced is not None:
            command.append(f"-traced={context.traced}")
        if self.uses_cpu:
            if context.cpu is None:
                raise CostError(f"the evaluator {self.name} needs a CPU file (cop cost calibrate)")
            command.append(f"-cpu={context.cpu}")
        if self.uses_profile and context.profile is not None:
            command.append(f"-pmu-profile={context.profile}")
            command += ["-own-run"] if context.own_run else []
        if self.has_parts and context.without:
            command.append("-without=" + ",".join(context.without))
        return [*command, f"-threads={context.threads}", *objects]

    def _read(self, data: bytes, where: Path | str) -> Cost:
        """Reads a report. Raises JsonError: it is damaged; the message begins with `where`."""
        report = decode(data, dict[str, Any], where, (FORMAT, VERSION))
        fields = convert(report, _Report, where)

        def charge(charged: _Charged, place: str) -> float:
            if not (self.uses_cpu or self.allocated):
                return charged.instructions
            if self.uses_cpu and charged.cycles is not None:
                return charged.cycles.total
            if self.allocated and charged.allocation is not None:
                return charged.allocation
            field = "cycles" if self.uses_cpu else "allocation"
            raise JsonError(f"{where}: {place}.{field}: is missing")

        parts: dict[str, float] = {}
        for number, function in enumerate(fields.functions):
            cost = charge(function, f"$.functions[{number}]")
            parts[function.name] = parts.get(function.name, 0.0) + cost
        if fields.unmapped.executions:
            parts[UNMAPPED] = charge(fields.unmapped, "$.unmapped")
        return Cost(charge(fields, "$"), parts, report)

    def _key(self, objects: Sequence[Path], context: Context) -> str:
        assert context.tool is not None
        # The tool is too large to hash each time; a new build changes size or time of writing.
        tool = context.tool.stat()
        parts = [self.name, str(VERSION), f"{tool.st_size} {tool.st_mtime_ns}"]
        # A profile's manifest holds the checksums of its files.
        inputs = [context.trace, context.traced]
        inputs += [context.cpu] if self.uses_cpu else []
        inputs += [context.profile] if self.uses_profile else []
        parts += sorted(context.without) if self.has_parts else []
        parts += ["own run"] if self.uses_profile and context.own_run else []
        parts += [sha256(path) if path else "none" for path in (*inputs, *objects)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


EVALUATORS: dict[str, Evaluator] = {
    evaluator.name: evaluator
    for evaluator in (
        Size(),
        Score("regalloc-score", weighted=False),
        Score("regalloc-score-calls", weighted=True),
        TraceReplay("allocation-score", "weighted instructions", uses_cpu=False, allocated=True),
        TraceReplay("count", "instructions", uses_cpu=False),
        TraceReplay("mca", "cycles"),
        TraceReplay("mca-pmu", "cycles", uses_profile=True, has_parts=True),
    )
}
