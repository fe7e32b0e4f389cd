# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The one protocol of timed runs: interleaved variants, on one processor, in several layouts.

A preloaded library notes the processor time at moments of a run. The parts between moments are
timed, and of each part the fastest round counts. `ranking.Measured` says what the times tell.
"""

import resource
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from absl import logging

from benchmarks.changes import percents
from benchmarks.common import TIMEOUT_S, BenchmarkError
from benchmarks.ranking import Estimate, Measured
from benchmarks.results import Interval
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.files import sha256
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.memo import note, recall
from compiler_opt_perf.run.rounds import layout_flags, round_order
from compiler_opt_perf.run.timing import processor_seconds

#: A function's time depends on where it lies, by chance. Each variant is linked several times, with
#: its functions in other orders: the more layouts, the better their mean is known.
LAYOUTS = 5
#: Twelve rounds of each layout find most parts undisturbed once.
ROUNDS = 12 * LAYOUTS
SEGMENTS = Path(__file__).with_name("segments.c")
_SHORTEST_PART_S = 0.001
_TRIES = 20

Floats = npt.NDArray[np.float64]


class TimedRun(NamedTuple):
    """One run.

    Attributes:
      times: [M] processor time at each moment, in seconds; the first moment is the start, the last
        one the end. Runs that do the same have equal M.
      system_s: processor time of the kernel, estimated by sampling.
    """

    times: Floats
    system_s: float


class Stopwatch:
    """Times the parts of runs between moments: reads of files, queries of the time, allocations.

    On a core that is shared with other machines, no run of a second is undisturbed. Each of its
    parts is undisturbed in some of the runs. Used in a `with` statement.

    Attributes:
      library: the library to preload, which notes the moments; valid in the statement.
    """

    library: Path

    def __enter__(self) -> "Stopwatch":
        self._folder = tempfile.TemporaryDirectory(prefix="stopwatch-")
        self.library = self._built("segments.so")
        return self

    def _built(self, name: str, *options: str) -> Path:
        library = Path(self._folder.name) / name
        flags = ("-O2", "-shared", "-fPIC", *options)
        run_command([stock_tool("clang"), *flags, SEGMENTS, "-o", library])
        return library

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def run(self, argv: Sequence[str | Path], cpu: int) -> TimedRun:
        """Runs a program on a processor.

        The kernel's time of a whole run is at times a tick behind that of the last part; such a run
        is repeated.

        Raises:
          BenchmarkError: time goes back in each of several runs.
          CommandError: the program ended with another status than 0.
          OSError: it cannot be started, or is not linked with a shared C library.
        """
        for _ in range(_TRIES):
            before_s = _system_seconds()
            times = self._noted(self.library, argv, cpu)
            if (np.diff(times) >= 0).all():
                return TimedRun(times, _system_seconds() - before_s)
        raise BenchmarkError(f"{argv[0]}: its processor time goes back, in {_TRIES} runs")

    def faults(self, argv: Sequence[str | Path], cpu: int) -> Floats:
        """Runs a program; returns its page faults [M] by each moment. Raises as `run`."""
        return self._noted(self._built("faults.so", "-DFAULTS"), argv, cpu)

    def _noted(self, library: Path, argv: Sequence[str | Path], cpu: int) -> Floats:
        output = Path(self._folder.name) / "noted"
        output.unlink(missing_ok=True)
        processor_seconds(argv, cpu, {"LD_PRELOAD": str(library), "SEGMENTS": str(output)})
        return np.fromfile(output)


def boundaries(times: Floats, shortest: float) -> npt.NDArray[np.int64]:
    """The moments [S + 1] that divide a run into parts of at least `shortest` seconds."""
    chosen = [0]
    for moment in range(1, len(times) - 1):
        if min(times[moment] - times[chosen[-1]], times[-1] - times[moment]) >= shortest:
            chosen.append(moment)
    return np.array([*chosen, len(times) - 1])


class Rounds(msgspec.Struct):
    """Timed rounds of V variants, in each of which each variant ran once.

    Attributes:
      variants: names.
      moments: how many each run has; 0 if variants differ in it, whose runs are one part then.
      boundaries: the moments [S + 1] that separate the parts of a run.
      seconds: [rounds, V, S] processor time.
      turns: how many layouts take turns.
      whole_s, system_s: processor time of all runs, and the kernel's share of it.
      beside: [rounds] what was measured beside the runs of each round.
    """

    variants: list[str]
    moments: int = 0
    boundaries: list[int] = []
    seconds: list[list[list[float]]] = []
    turns: int = LAYOUTS
    whole_s: float = 0.0
    system_s: float = 0.0
    beside: list[float] = []

    @property
    def layouts(self) -> tuple[int, ...]:
        """[rounds] the layout that ran in each."""
        return tuple(number % self.turns for number in range(len(self.seconds)))

    @property
    def run_s(self) -> float:
        """Seconds of the fastest run of the first variant."""
        return float(np.array(self.seconds)[:, 0].sum(axis=-1).min())

    def changes(self, pairs: Mapping[str, tuple[str, str]]) -> dict[str, Interval]:
        """By name, the change of time in percent from the second variant of a pair to the first.

        Each has its 95% interval over layouts. Pairs with an unknown variant are left out.
        """
        measured = Measured(self.seconds, self.layouts)
        logs, replicates = measured.log_time, measured.replicates
        found = {}
        for name, pair in pairs.items():
            if set(pair) <= set(self.variants):
                one, other = map(self.variants.index, pair)
                change = logs[one] - logs[other], replicates[:, one] - replicates[:, other]
                estimate = Estimate.of(*change)
                found[name] = percents(estimate.value, estimate.low, estimate.high)
        return found


def run_rounds(
    path: Path,
    binaries: Mapping[str, Sequence[Path]],
    arguments: Sequence[str],
    inputs: Mapping[str, Any],
    rounds: int,
    processor: int,
    *,
    label: str,
    beside: Callable[[], float] | None = None,
) -> Rounds:
    """Runs all variants in random order, round by round, until there are `rounds` rounds.

    Args:
      path: the note of the rounds; rounds of earlier calls count.
      binaries: by variant, the program in each layout; each variant has as many.
      inputs: all that the runs depend on besides the binaries.
      processor: number of the processor to which runs are bound.
      label: for messages.
      beside: measures something before each round.

    Raises:
      BenchmarkError: a run has other moments than an earlier one, or its time goes back.
      CommandError: a run failed.
    """
    names = list(binaries)
    turns = len(binaries[names[0]])
    inputs = {
        "binaries": [sha256(binary) for row in binaries.values() for binary in row],
        **inputs,
        "stopwatch": sha256(SEGMENTS),
        "shortest_part_s": _SHORTEST_PART_S,
    }
    measured = recall(path, inputs, Rounds) or Rounds(names, turns=turns)
    with Stopwatch() as stopwatch:
        for number in range(len(measured.seconds), rounds):
            if beside is not None:
                measured.beside.append(beside())
            noted: list[Floats] = [np.empty(0) for _ in names]
            for i in round_order(number, len(names)):
                argv = [str(binaries[names[i]][number % turns]), *arguments]
                noted[i], system_s = stopwatch.run(argv, processor)
                measured.system_s += system_s
                measured.whole_s += float(noted[i][-1] - noted[i][0])
            if not measured.boundaries:
                measured.moments, measured.boundaries = _division(noted)
            runs = []
            for name, times in zip(names, noted, strict=True):
                if measured.moments and len(times) != measured.moments:
                    raise BenchmarkError(
                        f"{label}: {name}: computes something else than in other runs"
                    )
                parts = np.diff(times[measured.boundaries])
                runs.append(np.round(parts, 7).tolist())
            measured.seconds.append(runs)
            note(path, inputs, Rounds, measured)
            middle = statistics.median(map(sum, runs))
            logging.info("%s: round %d, median %.3f s", label, number, middle)
    return measured


def _division(noted: Sequence[Floats]) -> tuple[int, list[int]]:
    """The moments of each run, and the boundaries of parts; (0, one part) where runs differ.

    Compilers leave out allocations of which they see both ends, some by inlining.
    """
    if len({len(times) for times in noted}) > 1:
        return 0, [0, -1]
    return len(noted[0]), boundaries(noted[0], _SHORTEST_PART_S).tolist()


def _system_seconds() -> float:
    """Processor time of the kernel so far, for children of this process."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_stime


def link_layouts(
    objects: Sequence[Path], libraries: Sequence[str], targets: Sequence[Path]
) -> None:
    """Links a program once for each target, with its functions in other orders.

    The first target has the functions in their own order, and symbols; the others only run.

    Raises:
      CommandError: the linker failed.
    """
    for layout, target in enumerate(targets):
        argv: list[str | Path] = [stock_tool("clang"), "-fuse-ld=lld", "-Wl,--build-id"]
        argv += layout_flags(layout)
        run_command([*argv, *objects, *libraries, "-o", target], timeout_s=TIMEOUT_S)
