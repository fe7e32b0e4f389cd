# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tries the ways to compile a user's program: builds, profiles, counts, times, judges."""

import contextlib
import os
import shutil
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from absl import logging

from compiler_opt_perf.binary.elf import BinaryError, require_debug_info
from compiler_opt_perf.cost.size import stripped_bytes, text_bytes
from compiler_opt_perf.policy.compiler_flags import CompilerFlags
from compiler_opt_perf.profile.manifest import Manifest
from compiler_opt_perf.run.files import exclusive, sha256, write_text
from compiler_opt_perf.run.progress import Progress
from compiler_opt_perf.run.rounds import paired_change
from compiler_opt_perf.run.timing import Meter, find_meter
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.trial.build import Built, Project, WayFolder
from compiler_opt_perf.trial.errors import TrialError
from compiler_opt_perf.trial.result import (
    Trial,
    TrialRun,
    WayResult,
    WayRun,
    judge_size,
    judge_time,
)
from compiler_opt_perf.trial.runs import (
    SHORTEST_S,
    Contender,
    GivenRun,
    Timed,
    instructions,
    instrumented,
    profiled,
    timed,
)
from compiler_opt_perf.trial.ways import (
    PGO,
    PLAIN,
    SIZE,
    SIZE_THINLTO,
    SMALL_COLD,
    SPEED,
    Way,
)

_LOCK = "try.lock"
_INSTRUMENTED = Way("instrumented")
# A way's number names its folder, as long for all: runs have its path in their environment.
_FOLDERS = (*SPEED, *PGO, _INSTRUMENTED, *SIZE[1:], *SIZE_THINLTO, *SMALL_COLD.values())
# QEMU and the simulator are about so many times as slow as the program.
_COUNTED_SLOWER = 20
_PROFILED_SLOWER = 100
# No processor executes so few instructions in a second of its time.
_FEWEST_A_SECOND = 1e7


@dataclass(frozen=True)
class Request:
    """What to try.

    Attributes:
      project: what is built, and at which level.
      runs: the user's runs; the first one is profiled. Without any, only sizes are compared.
      binary: the program's path in the tree; None for the first program in the runs' commands.
      toolchain: the patched tools.
      models: by problem, the folder of the policy.
      ways: plain is the first.
      by_size: whether the smallest build is taken, and not the fastest.
      rounds: how many rounds are timed.
      counts: whether instructions are counted, which takes longer than a round.
    """

    project: Project
    runs: Sequence[GivenRun]
    binary: str | None
    toolchain: Toolchain
    models: Mapping[str, Path | None]
    ways: Sequence[Way]
    by_size: bool
    rounds: int
    counts: bool = True

    @property
    def program(self) -> str:
        """The program's path in the tree, or the command that names it."""
        return self.binary or self.runs[0].line


def try_ways(request: Request, output: Path, *, force: bool = False) -> Trial:
    """Tries all ways of a request; the same request again goes on where it was interrupted.

    Args:
      output: folder of the builds; it is made.
      force: does all again.

    Raises:
      TrialError: a build or a run failed, or the folder is no folder of a trial.
      FileLockedError: another trial uses the folder.
      PmuError, BinaryError: the program cannot be profiled.
      ToolchainError: a policy is missing.
      OSError: a file cannot be read or written.
    """
    with _opened(request, output, force=force) as trial:
        return trial.measured(trial.prepare())


@dataclass(frozen=True)
class Prepared:
    """What was built and profiled.

    Attributes:
      profile: the manifest of plain's PMU profile; None if no way needs one.
      counters: of an instrumented run; None if no way needs them.
      builds: by way, its folder and what was built there.
    """

    profile: Path | None
    counters: Path | None
    builds: Mapping[Way, tuple[WayFolder, Built]]

    def in_layouts(self, rounds: int) -> list[Contender]:
        """Links the builds in as many layouts as there are rounds, and plain in others at the end.

        Those tell chance by layouts that plain has not had.
        """
        contenders = []
        for way, first in [*((way, 0) for way in self.builds), (PLAIN, rounds)]:
            folder, built = self.builds[way]
            layouts = folder.layouts(built, way.name, range(first, first + rounds))
            contenders.append(Contender(way.name, folder, built, layouts))
        return contenders


def prepare_ways(request: Request, output: Path) -> Prepared:
    """Builds and profiles, which needs no idle machine; `try_ways` goes on from there.

    Args:
      output: as of `try_ways`, whose errors it raises.
    """
    with _opened(request, output) as trial:
        return trial.prepare()


@contextlib.contextmanager
def _opened(request: Request, output: Path, *, force: bool = False) -> Iterator["_Trial"]:
    """The trial in a folder that no other process uses."""
    output = output.absolute()
    source = request.project.source
    for one, other in ((output, source), (source, output)):
        if one.resolve().is_relative_to(other.resolve()):
            raise TrialError(
                f"{output}: is in the tree {source}, or the tree in it; nothing is written to the "
                "tree: give --output= another folder"
            )
    if output.exists() and not (output / _LOCK).exists() and any(output.iterdir()):
        raise TrialError(f"{output}: holds other files; give --output= a new or empty folder")
    with exclusive(output / _LOCK, wait=False):
        if force:
            for folder in output.glob("way-*"):
                shutil.rmtree(folder)
            for note in output.glob("rounds-*.json"):
                note.unlink()
        yield _Trial(request, output)


class _Trial:
    """A trial in progress."""

    def __init__(self, request: Request, output: Path):
        self._request = request
        self._output = output
        self._clang = sha256(request.toolchain.clang.resolve())
        self._processor = max(os.sched_getaffinity(0))
        self._built: dict[Way, Built] = {}
        self._left = len(request.ways) + any(way.counted for way in request.ways)

    def prepare(self) -> Prepared:
        """Builds all ways, and profiles plain if a way needs that."""
        request = self._request
        plain = self._folder(PLAIN)
        self._build(PLAIN, PLAIN.flags(request.toolchain, {}, None, None))
        run_s = self._require_long_runs(plain)
        profile = counters = None
        if not request.by_size and any(way.autofdo or way.policies for way in request.ways):
            profile = self._profiled(plain, run_s)
        if any(way.counted for way in request.ways):
            words = ("-fprofile-generate",)
            flags = CompilerFlags(request.toolchain, (), profile_words=words)
            self._build(_INSTRUMENTED, flags)
            folder = self._folder(_INSTRUMENTED)
            counters = instrumented(folder, self._built[_INSTRUMENTED], request.runs[0])
        for way in request.ways[1:]:
            flags = way.flags(request.toolchain, request.models, profile, counters)
            self._build(way, flags)
        builds = {way: (self._folder(way), self._built[way]) for way in request.ways}
        return Prepared(profile, counters, builds)

    def _folder(self, way: Way) -> WayFolder:
        return WayFolder(self._output / f"way-{_FOLDERS.index(way):02}")

    def _configuration(self, way: Way) -> Path:
        return self._output / f"{way.name}.cfg"

    def _build(self, way: Way, flags: CompilerFlags) -> None:
        request = self._request
        for warning in flags.warnings:
            logging.warning("%s: %s", way.name, warning)
        folder = self._folder(way)
        program = self._built[PLAIN].program if self._built else request.program
        self._built[way] = folder.build(request.project, way.name, flags, self._clang, program)
        write_text(self._configuration(way), flags.configuration())
        self._left -= 1
        if self._left:
            seconds = self._left * self._built[way].seconds
            logging.info("builds left: %d, about %.0f s", self._left, seconds)

    def _require_long_runs(self, plain: WayFolder) -> float:
        """Says how long all will take; returns the first run's seconds, 0 without any run.

        Raises:
          TrialError: a run fails or is too short.
        """
        request = self._request
        seconds = []
        for command in request.runs:
            run = command.execute(plain, self._processor)
            if run.seconds < SHORTEST_S:
                raise TrialError(
                    f"{command}: takes {run.seconds:.3f} s of processor "
                    f"time, too little to be timed; give it more to do, at least {SHORTEST_S:g} s "
                    "(a larger input, or the same one several times)"
                )
            seconds.append(run.seconds)
        first_s = seconds[0] if seconds else 0.0
        if seconds:
            each = (request.rounds + _COUNTED_SLOWER) * (len(request.ways) + 1)
            left = sum(seconds) * each + first_s * _PROFILED_SLOWER
            logging.info("besides the builds, about %.0f s: profile, counts and times", left)
        return first_s

    def _profiled(self, plain: WayFolder, run_s: float) -> Path:
        built = self._built[PLAIN]
        program = plain.program(built.program)
        try:
            require_debug_info(program)
        except BinaryError as error:
            raise TrialError(
                f"{plain.tree / built.program}: has no debug info, so that no profile can be "
                "made: the build strips it (-s, strip, install -s); leave that out of --build"
            ) from error
        run = self._request.runs[0]
        manifest = profiled(plain, built, run)
        executed = Manifest.load(manifest).event("instructions")
        if executed.everywhere < _FEWEST_A_SECOND * run_s:
            raise TrialError(
                f"{run}: executes next to nothing when it is profiled, because {built.program} "
                "finds what the same run wrote before; let it write elsewhere each time, or "
                "nowhere (/dev/null)"
            )
        return manifest

    def measured(self, prepared: Prepared) -> Trial:
        """Counts and times all builds."""
        request = self._request
        counts, meter = self._counts()
        times = {one.flag: self._timed(prepared, one) for one in request.runs}
        runs = []
        for command in request.runs:
            found = times[command.flag]
            base, control = _column(found, 0), _column(found, len(request.ways))
            change = paired_change(control, base)
            beyond = max(abs(change.low), abs(change.high))
            runs.append(TrialRun(command.flag, command.line, len(base), change, beyond))
        plain_text, plain_file = self._sizes(PLAIN)
        ways = []
        for number, way in enumerate(request.ways):
            text, file = self._sizes(way)
            of_runs = [_way_run(times[one.flag], number, counts[one.flag]) for one in request.runs]
            ways.append(
                WayResult(
                    way.name,
                    f"{request.project.level} --config={self._configuration(way)}",
                    str(self._program(way)),
                    text,
                    text / plain_text - 1,
                    file,
                    file / plain_file - 1,
                    of_runs,
                )
            )
        verdict = judge_size(ways, runs) if request.by_size else judge_time(ways, runs)
        project = request.project
        return Trial(
            str(project.source),
            str(self._output),
            project.command,
            project.level,
            str(request.toolchain.clang),
            None if meter is None else str(meter),
            runs,
            ways,
            verdict,
        )

    def _program(self, way: Way) -> Path:
        return self._folder(way).program(self._built[way].program)

    def _sizes(self, way: Way) -> tuple[int, int]:
        """Bytes of text and of the stripped file."""
        program = self._program(way)
        return text_bytes(program), stripped_bytes(program)

    def _counts(self) -> tuple[dict[str, list[int | None]], Meter | None]:
        """By run, what each way's program executes; and what counted it."""
        request = self._request
        none: list[int | None] = [None] * len(request.ways)
        meter = find_meter("auto", self._output) if request.runs and request.counts else None
        if meter is None or not meter.counts:
            return {command.flag: none for command in request.runs}, None
        found: dict[str, list[int | None]] = {}
        total = len(request.runs) * len(request.ways)
        with Progress("counting instructions", total) as progress:
            for command in request.runs:
                found[command.flag] = []
                for way in request.ways:
                    count = instructions(self._folder(way), self._built[way], command, meter)
                    found[command.flag].append(count)
                    progress.advance()
        return found, meter

    def _timed(self, prepared: Prepared, command: GivenRun) -> Timed:
        """Times all ways, and plain in other layouts as the last one."""
        rounds = self._request.rounds
        path = self._output / f"rounds-{command.flag}.json"
        contenders = prepared.in_layouts(rounds)
        return timed(contenders, command, rounds, self._processor, path)


def _column(times: Timed, number: int) -> list[float]:
    return [row[number] for row in times.seconds]


def _way_run(times: Timed, number: int, counts: Sequence[int | None]) -> WayRun:
    """The results of one way in one run."""
    seconds, plain = _column(times, number), times.outputs[0]
    count, base = counts[number], counts[0]
    return WayRun(
        instructions=count,
        instructions_change=None if count is None or not base else count / base - 1,
        seconds=statistics.median(seconds),
        time_change=paired_change(seconds, _column(times, 0)),
        same_output=times.outputs[number] == plain if len(plain) == 1 else None,
        round_seconds=seconds,
    )
