# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How many modules a second does a training compile?

Three ways are compared:
  - the plain compiler in a process a module, which is the fastest that any way can be;
  - a worker that compiles with a policy and measures the object's text, as evolution strategies do;
  - a worker that also reads the log and the sizes of functions, as labels do.

All ways compile the same modules, one after the other on one processor, in turn in each round. The
figures are processor time of all processes, which other work on the machine disturbs least.
"""

import functools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from benchmarks.common import BenchmarkError
from benchmarks.results import Cell, Table
from compiler_opt_perf.corpus.corpus import DESCRIPTION, Corpus, Module
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.executor import Executor
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.seeds import derive_seed
from compiler_opt_perf.run.timing import seconds_so_far
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train.compilation import Compiler, Job, measure_candidate
from compiler_opt_perf.train.labels import LabelJob, module_sizes

_PROBLEM = PROBLEMS["inline-size"]
_PLAIN = "plain clang"


@dataclass(frozen=True)
class _Spent:
    """Seconds of processor time, and of the clock."""

    processor: float
    clock: float


def study(
    folder: Path,
    corpora: Path,
    model: Path,
    toolchain: Toolchain,
    *,
    modules: int = 40,
    rounds: int = 3,
) -> list[Table]:
    """Compiles some modules in each way.

    Args:
      folder: for an object file.
      corpora: a folder with corpora in it, for `inline-size`.
      model: folder of a policy.
      modules: drawn at random, seed 1.
      rounds: of all ways; medians are shown.

    Raises:
      BenchmarkError: there are no corpora.
      CorpusError: one is damaged.
      CommandError: a module does not compile.
    """
    folders = sorted(path.parent for path in corpora.rglob(DESCRIPTION))
    found = [module for folder in folders for module in Corpus.load(folder).modules]
    if not found:
        raise BenchmarkError(f"{corpora}: no corpus; make train-inline or make demo leave some")
    draw = np.random.default_rng(derive_seed(1, "throughput"))
    drawn = [found[i] for i in sorted(draw.permutation(len(found))[:modules].tolist())]
    compiler = Compiler.of(toolchain, _PROBLEM)
    logging.info("%d of %d modules, seed 1", len(drawn), len(found))
    spent: dict[str, list[_Spent]] = {}
    with Pool(1) as pool:
        jobs = [Job(compiler, one, model) for one in drawn]
        label_jobs = [LabelJob(compiler, one, model) for one in drawn]
        ways: dict[str, Callable[[], _Spent]] = {
            _PLAIN: functools.partial(_plain, compiler, drawn, folder),
            "worker, bytes of text": functools.partial(_ours, pool, measure_candidate, jobs),
            "worker, log and bytes by function": functools.partial(
                _ours, pool, module_sizes, label_jobs
            ),
        }
        # The first call starts the worker and brings files into memory.
        list(ways.values())[1]()
        for number in range(rounds):
            for name, way in ways.items():
                spent.setdefault(name, []).append(way())
                logging.info("round %d: %s: %.2f s", number + 1, name, spent[name][-1].processor)
    return [_table(spent, len(drawn))]


def _plain(compiler: Compiler, modules: Sequence[Module], folder: Path) -> _Spent:
    def compile_all() -> None:
        for module in modules:
            words = module.compile_command(compiler.clang, folder / "plain.o")
            run_command(words, timeout_s=compiler.timeout_s)

    return _of_this_process(compile_all)


def _ours(pool: Executor, function: Callable[[Any], object], jobs: Sequence[Any]) -> _Spent:
    seconds: list[float] = []

    def compile_all() -> None:
        task = functools.partial(_timed, function)
        seconds.extend(outcome.get() for outcome in pool.map(task, jobs))

    # The time to pack and schedule tasks counts, too.
    own = _of_this_process(compile_all)
    return _Spent(own.processor + sum(seconds), own.clock)


def _timed(function: Callable[[Any], object], job: Any) -> float:
    """Processor seconds of a job. Runs in a worker."""
    before = seconds_so_far()
    function(job)
    return seconds_so_far() - before


def _of_this_process(work: Callable[[], None]) -> _Spent:
    """What work costs in this process and in those that it waits for."""
    clock, processor = time.monotonic(), seconds_so_far()
    work()
    return _Spent(seconds_so_far() - processor, time.monotonic() - clock)


def _table(spent: dict[str, list[_Spent]], modules: int) -> Table:
    rows: list[list[Cell]] = []
    for name, own in spent.items():
        processor = statistics.median(one.processor for one in own)
        # The ratio of each round, so that what slows a round slows both.
        pairs = zip(own, spent[_PLAIN], strict=True)
        ratio = statistics.median(one.processor / other.processor for one, other in pairs)
        clock = statistics.median(one.clock for one in own)
        rows.append([name, modules, 1000 * processor / modules, ratio, modules / clock])
    columns = {
        "way": "text",
        "modules": "integer",
        "ms a module": "integer",
        "against plain clang": "ratio:2",
        "modules a second by the clock": "number:2",
    }
    caption = "Processor time of a module's compilation by one worker; medians of rounds."
    return Table.of("ways", caption, columns, rows)
