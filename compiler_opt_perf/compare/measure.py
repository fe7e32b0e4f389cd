# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures one module: its code and decisions with a policy, or its code by the default.

The functions here run in pool workers: nothing that this module imports loads TensorFlow.
"""

import hashlib
import random
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from compiler_opt_perf.compare.baseline import Detail, ModuleRow, ProgramRow, Status, pack
from compiler_opt_perf.compare.modes import ModesError, compile_in_modes
from compiler_opt_perf.compare.remarks import (
    RemarksError,
    count_pmu,
    read_decisions,
    remark_options,
)
from compiler_opt_perf.compare.subject import REPLAYED, Subject
from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.cost.evaluator import Cost, CostError
from compiler_opt_perf.cost.linked import linked_text_bytes
from compiler_opt_perf.cost.size import ObjectFileError, function_sizes, text_bytes
from compiler_opt_perf.policy.problem import decision_lines, for_clang
from compiler_opt_perf.run.command import CommandError, CompletedCommand, run_command
from compiler_opt_perf.run.files import atomic_write, read_input, require_space, sha256
from compiler_opt_perf.run.json_text import Measure
from compiler_opt_perf.run.memory import with_peak_memory
from compiler_opt_perf.run.timing import Meter
from compiler_opt_perf.trace.errors import TraceError
from compiler_opt_perf.train.log import LogError, read_log

#: Measurements of the compiler's effort on a module, by what measures it. Two counts show whether
#: they vary, which they hardly do; seven times have a median that one disturbance does not move.
EFFORTS = {"perf": 3, "qemu": 2, "time": 7}
_PROFILE_PASS = "pmu-profile"
_STALE = re.compile(rb"^Pass: +pmu-profile\nName: +Stale$", re.MULTILINE)
_WARNING = re.compile(r"warning: (.*)")
_FALLBACK = "using the default policy"
# The most warnings that are kept, and the longest line of a message.
_MOST_LINES = 10
_LONGEST_LINE = 600


@dataclass(frozen=True)
class MeasureJob:
    """A module to measure; it may be sent to another process.

    Attributes:
      default: whether the compiler's default decides, not the subject's policy.
      object: where the object file is kept, to be linked; None drops it.
      decisions: by key, those that are not left to the policy (-mlgo-decisions).
      replay: metrics of the recorded run, some of REPLAYED.
    """

    module: Module
    subject: Subject
    default: bool = False
    object: Path | None = None
    decisions: Mapping[str, int] = field(default_factory=dict)
    replay: tuple[str, ...] = tuple(REPLAYED)


@dataclass(frozen=True)
class EffortJob:
    """Compilations of one module whose effort is measured.

    Attributes:
      ways: compiler and further arguments of each way to compile the module.
      times: measurements of each way.
      seed: of the order of the ways.
      timeout_s: wall-clock limit of one compilation.
    """

    module: Module
    ways: tuple[tuple[Path, tuple[str, ...]], ...]
    meter: Meter
    times: int
    seed: int
    timeout_s: float

    @classmethod
    def of(
        cls,
        module: Module,
        subject: Subject,
        meter: Meter,
        *,
        with_default: bool = False,
        times: int | None = None,
        seed: int = 1,
    ) -> "EffortJob":
        """The job that compiles with the subject's policy.

        Args:
          with_default: whether the compiler's default is measured, too; it is the first way.
          times: None for the number that suits the meter.
        """
        clang = subject.default_clang
        policy = tuple(for_clang(subject.user_options(module)))
        ways = [(), policy] if with_default else [policy]
        return cls(
            module,
            tuple((clang, more) for more in ways),
            meter,
            times or EFFORTS[meter.how],
            seed,
            subject.timeout_s,
        )


class Effort(msgspec.Struct, frozen=True):
    """The compiler's effort on one module.

    Attributes:
      taken: of each compilation; empty where the compiler failed.
      status, message: as of ModuleRow.
    """

    taken: tuple[Measure, ...] = ()
    status: Status = "ok"
    message: str = ""


def fingerprint(module: Module) -> str:
    """SHA-256 of all that the module is, without the compiler. Raises OSError."""
    return hashlib.sha256("\0".join(module.fingerprint()).encode()).hexdigest()


def measure(job: MeasureJob) -> ModuleRow:
    """Measures all but the compiler's effort. In a pool's worker.

    Raises:
      CommandError: a compilation fails.
      LogError, ObjectFileError, RemarksError: the compiler leaves a damaged file.
      FileWriteError: the disk is full.
    """
    with tempfile.TemporaryDirectory(prefix="compare-") as name:
        folder = Path(name)
        image = folder / "module.o"
        row = (_by_default if job.default else _by_policy)(job, image)
        if job.object is not None:
            with atomic_write(job.object) as kept:
                shutil.copyfile(image, kept)
        return row


def try_measure(job: MeasureJob) -> ModuleRow:
    """As `measure`, but what the compiler fails on is a row, too. Raises FileWriteError."""
    try:
        return measure(job)
    except CommandError as error:
        status, message = _status(error), _told(error)
    except (LogError, ObjectFileError, RemarksError) as error:
        status, message = "failed", _cut(str(error))
    require_space(Path(tempfile.gettempdir()))
    return ModuleRow(
        name=job.module.name, digest=fingerprint(job.module), status=status, message=message
    )


def _by_default(job: MeasureJob, image: Path) -> ModuleRow:
    module, subject = job.module, job.subject
    command = module.compile_command(subject.default_clang, image)
    objects, memory, _ = _compile(job, command, image)
    scores: dict[str, float] = {}
    if subject.problem.score_in_log:
        log = image.with_name("scores.log")
        options = for_clang(subject.problem.development_options(log=log))
        target = image.with_name("scores.o")
        _run(job, module.compile_command(subject.toolchain.clang, target, options))
        scores = read_log(log).last_rewards()
    return ModuleRow(
        name=module.name,
        digest=fingerprint(module),
        status="ok",
        objects=objects,
        text=text_bytes(image),
        memory=memory,
        detail=pack(Detail(functions=dict(function_sizes(image)), scores=scores)),
    )


def _by_policy(job: MeasureJob, image: Path) -> ModuleRow:
    module, subject, folder = job.module, job.subject, image.parent
    problem = subject.problem
    log, remarks = folder / "module.log", folder / "module.yaml"
    given = []
    if job.decisions:
        (folder / "decisions").write_text(decision_lines(job.decisions))
        given = [f"-mlgo-decisions={folder / 'decisions'}"]
    command = subject.development_command(module, image, log, given)
    command += remark_options(problem, remarks, _PROFILE_PASS)
    objects, memory, completed = _compile(job, command, image)
    costs: dict[str, Cost] = {}
    unreplayed = ""
    try:
        costs = subject.replayed(module, image, job.replay)
    except (CostError, CommandError, TraceError) as error:
        require_space(folder)
        unreplayed = _cut(str(error))
    differing_modes = ""
    if subject.release is not None:
        try:
            compiled = compile_in_modes(subject, module, folder)
            objects = tuple(dict.fromkeys([*objects, hashlib.sha256(compiled[0]).hexdigest()]))
        except ModesError as error:
            differing_modes = _cut(str(error))
    total = {name: cost.total for name, cost in costs.items()}
    logged = read_log(log)
    taken = logged.observations[problem.decision].reshape(-1).tolist() if logged.keys else []
    decisions = read_decisions(remarks, problem)
    pmu = count_pmu(decisions)
    warnings = [found[1] for found in map(_WARNING.search, completed.stderr.splitlines()) if found]
    return ModuleRow(
        name=module.name,
        digest=fingerprint(module),
        status="ok",
        objects=objects,
        modes=differing_modes,
        text=text_bytes(image),
        memory=memory,
        decisions=len(decisions),
        with_pmu=len(decisions) - pmu["missing"],
        exact=pmu["exact"],
        differing=sum(decision.chosen != decision.default for decision in decisions),
        fallbacks=sum(_FALLBACK in line for line in warnings),
        stale=len(_STALE.findall(read_input(remarks))),
        warnings=tuple(_cut(line) for line in dict.fromkeys(warnings))[:_MOST_LINES],
        unreplayed=unreplayed,
        detail=pack(
            Detail(
                functions=dict(function_sizes(image)),
                scores=logged.last_rewards() if problem.score_in_log else {},
                decisions=dict(zip(logged.keys, taken, strict=True)),
                **{name: dict(cost.parts) for name, cost in costs.items()},
            )
        ),
        instructions=total.get("instructions"),
        cycles=total.get("cycles"),
    )


def _compile(
    job: MeasureJob, command: Sequence[str], image: Path
) -> tuple[tuple[str, ...], tuple[int, ...], CompletedCommand]:
    """Compiles as often as the subject says.

    Returns:
      SHA-256 of the different object files, each compilation's peak memory in KiB, and the last
      compilation.
    """
    objects: dict[str, None] = {}
    memory = []
    peak = image.with_name("peak")
    for _ in range(job.subject.repetitions):
        try:
            completed = _run(job, with_peak_memory(command, peak))
        except CommandError as error:
            # It was the compiler that failed, not what measures its memory.
            reason = f"{Path(command[0]).name}: {error.reason.partition(': ')[2]}"
            raise CommandError(
                error.kind, reason, shlex.join(command), error.stderr, error.returncode
            ) from None
        memory.append(int(peak.read_text()))
        objects[sha256(image)] = None
    return tuple(objects), tuple(memory), completed


def _run(job: MeasureJob, command: Sequence[str]) -> CompletedCommand:
    subject = job.subject
    return run_command(
        command,
        timeout_s=subject.timeout_s,
        memory_mib=subject.memory_mib,
        env=subject.environment,
    )


def link_program(name: str, objects: Sequence[Path], linker: Path) -> ProgramRow:
    """Links a program. What the linker fails on is a row, too."""
    try:
        return ProgramRow(name=name, linked=linked_text_bytes(objects, linker))
    except (CommandError, ObjectFileError) as error:
        return ProgramRow(name=name, message=_cut(str(error)))


def measure_effort(job: EffortJob) -> tuple[tuple[float, ...], ...]:
    """Measures compilations in each way, in turns of random order. In a pool's worker.

    Returns:
      By way, what each compilation took, in the meter's unit.

    Raises:
      CommandError: a compilation fails, or what measures is not installed.
    """
    taken: list[list[float]] = [[] for _ in job.ways]
    order = random.Random(job.seed)
    with tempfile.TemporaryDirectory(prefix="compare-") as folder:
        output = Path(folder) / "module.o"
        commands = [job.module.compile_command(clang, output, more) for clang, more in job.ways]
        # The first compilation reads its files into the page cache; counts do not depend on that.
        warm_up = 0 if job.meter.counts else 1
        for turn in range(warm_up + job.times):
            for way in order.sample(range(len(commands)), len(commands)):
                value = job.meter.measure(commands[way], job.timeout_s)
                if turn >= warm_up:
                    taken[way].append(value)
    return tuple(map(tuple, taken))


def try_effort(job: EffortJob) -> Effort:
    """As `measure_effort` of one way, but what the compiler fails on is a result, too.

    Raises:
      CommandError: what measures is not installed.
    """
    try:
        (taken,) = measure_effort(job)
        return Effort(taken)
    except CommandError as error:
        if error.kind == "missing":
            raise
        return Effort(status=_status(error), message=f"as it was measured: {_told(error)}")


def _status(error: CommandError) -> Status:
    statuses: dict[str, Status] = {"crashed": "crashed", "timeout": "timeout"}
    return statuses.get(error.kind, "failed")


def _told(error: CommandError) -> str:
    """How the compiler ended, and its first messages."""
    lines = error.stderr.splitlines()
    said = [line for line in lines if "error:" in line] or lines[:1]
    # What measures the effort may stand in front of the compiler.
    _, _, how = error.reason.partition(": ")
    return _cut("; ".join([f"clang: {how}", *said[:2]]))


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_LINE else line[:_LONGEST_LINE] + "..."
