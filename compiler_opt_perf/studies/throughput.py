# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How many modules a second, by several ways of compiling them for a training?

  - the plain compiler, a process a module, whose object nobody looks at: no way is faster;
  - our worker, which compiles with a policy and measures the object;
  - our worker, with the log, its keys, and the sizes of functions besides, as labels need them;
  - ml-compiler-opt's way in a process a module (`studies.sequence_example`): a new Python process
    imports TensorFlow, compiles with the policy and a log, has llvm-size measure the object and
    turns the log into a SequenceExample. Its own workers live on; how much of the time is the start
    is told apart.

All ways compile the same modules, one after the other on one processor, in turn in each round. The
figures are processor time of all processes, for other work on the machine disturbs that least.
"""

import functools
import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from compiler_opt_perf.corpus.corpus import DESCRIPTION, Corpus, Module
from compiler_opt_perf.policy.problem import PROBLEMS, for_clang
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.executor import Executor
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.seeds import derive_seed
from compiler_opt_perf.studies.common import StudyError
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train.compilation import Compiler, Job, measure_candidate
from compiler_opt_perf.train.labels import LabelJob, module_sizes

_PROBLEM = PROBLEMS["inline-size"]
# Of the modules by size, those that a process with TensorFlow each compiles: that takes long.
_EVERY = 4

_PLAIN = "plain clang"
_TEXT = "our worker, bytes of text"
_LOG = "our worker, log and bytes by function"
_FRESH = "a new process with TensorFlow"


@dataclass(frozen=True)
class _Spent:
    """Seconds of processor time, and of the clock; and what was told besides."""

    processor: float
    clock: float
    of_it_start: float = 0.0


def study(
    corpora: Path, model: Path, toolchain: Toolchain, *, modules: int = 40, rounds: int = 3
) -> str:
    """Compiles some modules in each way.

    Args:
      corpora: a folder with corpora in it, for `inline-size`.
      model: folder of a policy.
      modules: drawn at random, seed 1.
      rounds: of all ways; medians are told.

    Returns:
      The table, in Markdown.

    Raises:
      StudyError: there are no corpora.
      CorpusError: one is damaged.
      CommandError: a module does not compile.
    """
    folders = sorted(path.parent for path in corpora.rglob(DESCRIPTION))
    found = [module for folder in folders for module in Corpus.load(folder).modules]
    if not found:
        raise StudyError(f"{corpora}: no corpus; `make train-inline` leaves some")
    draw = np.random.default_rng(derive_seed(1, "throughput"))
    drawn = [found[i] for i in sorted(draw.permutation(len(found))[:modules].tolist())]
    some = sorted(drawn, key=lambda one: one.bitcode.stat().st_size)[_EVERY // 2 :: _EVERY]
    compiler = Compiler.of(toolchain, _PROBLEM)
    logging.info("%d of %d modules, seed 1", len(drawn), len(found))
    spent: dict[str, list[_Spent]] = {}
    with Pool(1) as pool, tempfile.TemporaryDirectory(prefix="throughput-") as folder:
        ways: dict[str, Callable[[], _Spent]] = {
            _PLAIN: functools.partial(_plain, compiler, drawn, Path(folder)),
            _TEXT: functools.partial(
                _ours, pool, measure_candidate, [Job(compiler, one, model) for one in drawn]
            ),
            _LOG: functools.partial(
                _ours, pool, module_sizes, [LabelJob(compiler, one, model) for one in drawn]
            ),
            f"{_PLAIN}, every {_EVERY}th": functools.partial(_plain, compiler, some, Path(folder)),
            _FRESH: functools.partial(_fresh, compiler, some, model, Path(folder)),
        }
        # The worker starts, and has the compiler's and the modules' files.
        ways[_TEXT]()
        for number in range(rounds):
            for name, way in ways.items():
                spent.setdefault(name, []).append(way())
                logging.info("round %d: %s: %.2f s", number + 1, name, spent[name][-1].processor)
    return _table(spent, len(drawn), len(some))


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

    # What packs tasks and schedules them counts, too.
    own = _of_this_process(compile_all)
    return _Spent(own.processor + sum(seconds), own.clock)


def _timed(function: Callable[[Any], object], job: Any) -> float:
    """Processor seconds of a job. In a worker."""
    before = _processor_seconds()
    function(job)
    return _processor_seconds() - before


def _fresh(compiler: Compiler, modules: Sequence[Module], model: Path, folder: Path) -> _Spent:
    starts: list[float] = []

    def compile_all() -> None:
        for module in modules:
            target, log = folder / "fresh.o", folder / "fresh.log"
            options = for_clang(_PROBLEM.development_options(model=model, log=log))
            words = module.compile_command(compiler.clang, target, options)
            given = {
                "command": words,
                "object": str(target),
                "log": str(log),
                "size": str(stock_tool("llvm-size")),
            }
            (folder / "fresh.json").write_text(json.dumps(given))
            with open(folder / "fresh.json", "rb") as stream:
                done = run_command(
                    [sys.executable, "-m", "compiler_opt_perf.studies.sequence_example"],
                    stdin=stream,
                    env={"LLVM_LITERT_LIBRARY": str(compiler.litert_library)},
                    timeout_s=compiler.timeout_s,
                )
            starts.append(json.loads(done.stdout.splitlines()[-1])["start_s"])

    whole = _of_this_process(compile_all)
    return _Spent(whole.processor, whole.clock, sum(starts))


def _of_this_process(work: Callable[[], None]) -> _Spent:
    """What work costs here and in processes that it waits for."""
    clock, processor = time.monotonic(), _processor_seconds()
    work()
    return _Spent(_processor_seconds() - processor, time.monotonic() - clock)


def _processor_seconds() -> float:
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in usage)


def _table(spent: dict[str, list[_Spent]], modules: int, some: int) -> str:
    lines = [
        "| way | modules | processor ms a module | against plain clang | modules/s by the clock |",
        "|---|---|---|---|---|",
    ]
    for name in (_PLAIN, _TEXT, _LOG, _FRESH):
        plain, count = spent[_PLAIN], modules
        if name == _FRESH:
            plain, count = spent[f"{_PLAIN}, every {_EVERY}th"], some
        own = statistics.median(one.processor for one in spent[name])
        # Of each round, so that what slows a round slows both.
        pairs = zip(spent[name], plain, strict=True)
        ratio = statistics.median(one.processor / other.processor for one, other in pairs)
        clock = statistics.median(one.clock for one in spent[name])
        lines.append(
            f"| {name} | {count} | {1000 * own / count:.0f} | {ratio:.2f} | {count / clock:.2f} |"
        )
    start = statistics.median(one.of_it_start for one in spent[_FRESH]) / some
    lines += [
        "",
        f"The last row is of every {_EVERY}th module by size, and so is the plain clang that it is "
        f"compared with. Of the new process, {1000 * start:.0f} ms are its start and the import of "
        "TensorFlow, which a process that lives on pays once.",
    ]
    return "\n".join(lines)
