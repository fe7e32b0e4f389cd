# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds are judged by a recorded run of their own, where their control flow differs.

A replay takes the blocks of a run that another build made. Inlining, branch forms and layout change
the blocks: such a candidate has to run itself. It runs in the simulators that record any run, with
the same seed, windows, branch predictor and caches for each candidate, and an evaluator that
replays does so with the candidate's own run.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler_opt_perf.binary.elf import BinaryError
from compiler_opt_perf.blocks import cpu_files
from compiler_opt_perf.cost.evaluator import (
    RECORDED,
    Context,
    Cost,
    CostError,
    Evaluator,
    Replay,
)
from compiler_opt_perf.profile import callgrind
from compiler_opt_perf.profile.callgrind import CacheGeometry
from compiler_opt_perf.profile.collect import collect_run
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.manifest import Manifest
from compiler_opt_perf.run.command import CompletedCommand, signal_name
from compiler_opt_perf.run.content import Content
from compiler_opt_perf.run.files import make_executable, sha256
from compiler_opt_perf.run.memo import memo
from compiler_opt_perf.run.scratch import with_long_path
from compiler_opt_perf.run.workload import Run
from compiler_opt_perf.toolchain.layout import BUILD
from compiler_opt_perf.trace import native, qemu
from compiler_opt_perf.trace.errors import TraceError
from compiler_opt_perf.trace.trace_file import VERSION
from compiler_opt_perf.trace.windows import write_windows

#: What clang needs to be told for candidates that are recorded.
RECORD_FLAGS = ("-fbasic-block-address-map",)
#: Where recordings are kept.
FOLDER = BUILD / "recordings"
#: Blocks before each one that evaluators look at.
WINDOW = 9
# Their folders are named by the content of their sources.
_LIBRARIES = ("qemu_plugin", "reader", "branch_predictor", "code_caches")
#: Name of the part for instructions in other objects, such as the C library, and the cycles of one:
#: 0.42 and 0.50 were fitted to the times of programs on two CPUs (docs/results/cycles.md).
ELSEWHERE = "(code elsewhere)"
CYCLES_ELSEWHERE = 0.45
# The whole environment of isolated runs.
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"}


class RecordingError(CostError):
    """A candidate cannot be run and recorded, or computes something else."""


@dataclass(frozen=True)
class Workload:
    """The run by which candidates are judged.

    Attributes:
      arguments: the program's.
      stdin: its standard input; empty when None.
      inputs: files that an isolated run finds in its folder.
      isolated: whether it runs in a new folder with a fixed environment, and is the same wherever
        it runs; else in the present folder and environment, where the candidate is.
      timeout_s: limit of each of its simulations, wall-clock seconds.
    """

    arguments: tuple[str, ...] = ()
    stdin: Content | None = None
    inputs: tuple[Content, ...] = ()
    isolated: bool = False
    timeout_s: float = 60.0

    def digest(self) -> list[str | list[str]]:
        """All that its run depends on besides the candidate, as far as arguments name it."""
        files = (*self.inputs, *([] if self.stdin is None else [self.stdin]))
        named = [] if self.isolated else [Path(one) for one in self.arguments]
        found = [one for one in named if one.is_file()]
        names = [one.name for one in self.inputs]
        return [list(self.arguments), names, [*map(sha256, (*files, *found))]]


@dataclass(frozen=True)
class _Facts:
    """What is noted of a simulation of a run; seconds of processor time."""

    seconds: float
    peak_mib: float
    output: str = ""
    blocks: int = 0


@dataclass(frozen=True)
class Recording:
    """A recorded run of a candidate.

    Attributes:
      windows: its windows.
      profile: its PMU profile; None if the evaluator reads none.
      output: digest of what it printed.
      blocks: how many it executed.
      seconds: processor time of its simulations, when they were done.
      peak_mib: the most memory that one of them took.
    """

    windows: Path
    profile: Path | None
    output: str
    blocks: int
    seconds: float
    peak_mib: float


@dataclass(frozen=True)
class Recorder:
    """An evaluator that records a run of each candidate, one binary, and judges by that.

    Attributes:
      evaluator: what judges; it replays each candidate's own run.
      workload: the run.
      folder: keeps recordings, by the content of binary and inputs; None keeps nothing.
      output: digest of what a candidate has to print; None for anything.
    """

    evaluator: Replay
    workload: Workload
    folder: Path | None
    output: str | None = None

    @property
    def name(self) -> str:
        """That of the evaluator."""
        return self.evaluator.name

    @property
    def unit(self) -> str:
        """That of the evaluator."""
        return self.evaluator.unit

    def cost(self, objects: Sequence[Path], context: Context) -> Cost:
        """Records a run of the candidate; returns what the evaluator says of it.

        The report has besides, as `recorded`, fields of `Recording`.

        Raises the errors of Evaluator.cost, and:
          RecordingError: the candidate is no program, its run fails or exceeds the limit, or it
            prints something else than `output`.
          CpuFileError: the CPU's last level cannot be.
        """
        if len(objects) != 1:
            raise RecordingError(
                f"{objects[0]}: is one of {len(objects)} files; a candidate that is recorded is "
                "one program: link it"
            )
        with tempfile.TemporaryDirectory(prefix="recording-") as scratch:
            caches = _caches(context) if self.evaluator.uses_profile else None
            run = record(objects[0], self.workload, self.folder or Path(scratch), caches)
            if self.output not in (None, run.output):
                raise RecordingError(
                    f"{objects[0]}: prints something else in this run than the build that it is "
                    "compared with: it computes something else, or prints times or addresses"
                )
            own = dataclasses.replace(context, trace=run.windows, profile=run.profile, own_run=True)
            cost = own_cost(self.evaluator, objects, own)
        names = ("output", "blocks", "seconds", "peak_mib")
        recorded = {name: getattr(run, name) for name in names}
        return dataclasses.replace(cost, report={**cost.report, RECORDED: recorded})

    def requiring(self, cost: Cost) -> "Recorder":
        """The same, for candidates that have to print what the one of this cost printed."""
        return dataclasses.replace(self, output=cost.report[RECORDED]["output"])


def own_cost(evaluator: Evaluator, objects: Sequence[Path], context: Context) -> Cost:
    """The cost of a candidate whose own run the context has.

    An evaluator that reads the run's profile is told there what the run executed in other objects.
    That differs, too: what is not inlined may be called in a library. The report has it as
    `elsewhere`.

    Raises the errors of Evaluator.cost, and PmuError: the profile cannot be read.
    """
    cost = evaluator.cost(objects, context)
    # A correction has a weight of its own for it.
    reads = isinstance(evaluator, Replay) and evaluator.uses_profile
    if not reads or context.profile is None or "correction" in cost.report:
        return cost
    instructions = Manifest.load(context.profile).instructions_elsewhere
    cycles = CYCLES_ELSEWHERE * instructions
    return Cost(
        cost.total + cycles,
        {**cost.parts, ELSEWHERE: cycles},
        {**cost.report, "elsewhere": {"instructions": instructions, "cycles": cycles}},
    )


def judged(
    recorder: Recorder, candidates: Sequence[Sequence[Path]], context: Context
) -> list[Cost]:
    """The costs of candidates, one after another, so that simulations have the machine.

    Raises as `Recorder.cost`; also for a candidate that prints something else than the first.
    """
    costs: list[Cost] = []
    for candidate in candidates:
        costs.append(recorder.cost(candidate, context))
        recorder = recorder.requiring(costs[0])
    return costs


def _caches(context: Context) -> CacheGeometry:
    """Those of the CPU that is judged for: what misses the last one is priced as its memory."""
    return CacheGeometry() if context.cpu is None else cpu_files.caches(context.cpu)


def record(
    binary: Path, workload: Workload, folder: Path, caches: CacheGeometry | None
) -> Recording:
    """Records a run of a binary, and collects its profile; each once.

    Args:
      folder: of recordings.
      caches: to simulate for the profile; None for no profile.

    Raises:
      RecordingError: the binary cannot be executed, its run fails or exceeds the limit.
    """
    if not os.access(binary, os.X_OK) or not binary.is_file():
        raise RecordingError(
            f"{binary}: cannot be executed; a candidate that is recorded is a program (link "
            "object files; chmod +x)"
        )
    inputs = [sha256(binary), workload.digest(), WINDOW, VERSION]
    traced_by = [qemu.version(), *(native.library(one).parent.name for one in _LIBRARIES)]
    own = folder / hashlib.sha256(json.dumps([inputs, traced_by]).encode()).hexdigest()[:32]
    own.mkdir(parents=True, exist_ok=True)
    windows, profile = own / "run.bbwindows", own / "run.pmu.json"
    trace = memo(
        own / "traced.json", inputs, _Facts, lambda: _traced(binary, workload, windows), [windows]
    )
    facts = [trace]
    if caches is not None:
        key = [inputs, callgrind.version(), caches.as_dict()]
        facts.append(
            memo(
                own / "profiled.json",
                key,
                _Facts,
                lambda: _profiled(binary, workload, profile, caches),
                [profile],
            )
        )
    return Recording(
        windows=windows,
        profile=None if caches is None else profile,
        output=trace.output,
        blocks=trace.blocks,
        seconds=sum(one.seconds for one in facts),
        peak_mib=max(one.peak_mib for one in facts),
    )


def _traced(binary: Path, workload: Workload, windows: Path) -> _Facts:
    ended: list[CompletedCommand] = []
    with _prepared(binary, workload, ended) as (run, folder):
        printed = folder / "stdout"
        run = dataclasses.replace(run, stdout=printed)
        try:
            trace = qemu.record_run(run, run.program, folder / "run.bbtrace")
        except (TraceError, BinaryError) as error:
            raise _explained(binary, workload, ended, str(error)) from error
        if ended[0].status < 0:
            how = f"was killed by {signal_name(-ended[0].status)} in its recorded run"
            raise _explained(binary, workload, ended, how)
        write_windows(trace, WINDOW, windows)
        return _Facts(ended[0].processor_seconds, ended[0].peak_mib, sha256(printed), trace.total)


def _profiled(binary: Path, workload: Workload, manifest: Path, caches: CacheGeometry) -> _Facts:
    ended: list[CompletedCommand] = []
    with _prepared(binary, workload, ended) as (run, _):
        try:
            collect_run(run, run.program, manifest, geometry=caches)
        except (PmuError, BinaryError) as error:
            raise _explained(binary, workload, ended, str(error)) from error
    return _Facts(ended[0].processor_seconds, ended[0].peak_mib)


def _explained(
    binary: Path, workload: Workload, ended: Sequence[CompletedCommand], problem: str
) -> RecordingError:
    """The error of a run that failed; over its limit, with what to do."""
    if ended and ended[0].timed_out:
        problem = (
            f"its recorded run was killed after its limit of {workload.timeout_s:g} s. A run that "
            "takes a second or less by itself is enough: give a smaller input or fewer rounds, or "
            "raise the limit (--timeout, or timeout_s in a recipe)"
        )
    return RecordingError(f"{binary}: {problem}")


@contextlib.contextmanager
def _prepared(
    binary: Path, workload: Workload, ended: list[CompletedCommand]
) -> Iterator[tuple[Run, Path]]:
    """A run of the binary, and a folder for files of it."""
    with tempfile.TemporaryDirectory(prefix="run-") as name:
        scratch = Path(name).resolve()
        run = Run(
            binary,
            workload.arguments,
            workload.stdin,
            timeout_s=workload.timeout_s,
            ended=ended.append,
        )
        if workload.isolated:
            place = with_long_path(scratch)
            run = dataclasses.replace(
                run,
                program=_copied(binary, place / "candidate"),
                cwd=_working_folder(workload.inputs, place / "work"),
                env=_ENVIRONMENT,
                inherit_env=False,
            )
        yield run, scratch


def _copied(binary: Path, place: Path) -> Path:
    shutil.copyfile(binary, place)
    make_executable(place)
    return place


def _working_folder(inputs: Sequence[Path], folder: Path) -> Path:
    folder.mkdir()
    for one in inputs:
        shutil.copyfile(one, folder / one.name)
    return folder
