# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How small could any inlining policy make real modules at -Oz?

Rivals of a policy that need no learning, and a bound of what learning can reach:

  - one `-inline-threshold` for all modules, the best of some;
  - the best of them for each module;
  - a search over each module's decisions (training.local_search).

A function that several modules of a program have counts in each as a part: once in all, as in the
linked program. The copies are those of all modules of the program, the default's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
from absl import logging

from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.corpus.program_table import PROGRAMS as ALL_PROGRAMS
from compiler_opt_perf.corpus.programs import program_modules
from compiler_opt_perf.cost.size import FunctionSizes, function_sizes
from compiler_opt_perf.execution.files import sha256, write_json
from compiler_opt_perf.execution.memo import memo
from compiler_opt_perf.execution.pool import Pool
from compiler_opt_perf.execution.seeds import derive_seed
from compiler_opt_perf.policies.problem import PROBLEMS
from compiler_opt_perf.studies.common import saved
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.training.compilation import Compiler, scratch
from compiler_opt_perf.training.labels import Flipper, LabelJob, count_copies
from compiler_opt_perf.training.local_search import SearchJob, search

PROGRAMS = tuple(name for name in ALL_PROGRAMS if name != "llvm")
#: Of -Oz it is 5.
THRESHOLDS = (-50, -25, 0, 15, 25, 50, 80, 120, 225)
#: Decisions of a module that takes part: more take hours, fewer tell nothing.
DECISIONS = range(5, 301)

_PROBLEM = PROBLEMS["inline-size"]
_TIMEOUT_S = 120.0
_MEMORY_MIB = 8192
_SEARCH_TIMEOUT_S = 7200.0


@dataclass(frozen=True)
class _Compiled:
    """A module as the default compiles it, and as it does with each of `THRESHOLDS`."""

    decisions: int
    default: FunctionSizes
    by_threshold: tuple[FunctionSizes, ...]


def study(
    only: Sequence[str],
    output: Path,
    toolchain: Toolchain,
    *,
    modules: int = 4,
    rounds: int = 4,
    seed: int = 1,
) -> str:
    """Searches some modules of each program, unless the folder holds the result of the same search.

    Args:
      only: some of `PROGRAMS`.
      modules: of each program, drawn at random.
      rounds: of the search, at most.

    Returns:
      The table of all programs in the folder, in Markdown.
    """
    output = output.resolve()
    compiler = Compiler(
        clang=toolchain.clang,
        litert_library=toolchain.litert_library,
        problem=_PROBLEM,
        profiles=Profiles(),
        timeout_s=_TIMEOUT_S,
        memory_mib=_MEMORY_MIB,
    )
    given = {"modules": modules, "rounds": rounds, "seed": seed}

    def search_all(name: str, corpus: Sequence[Module], path: Path) -> None:
        write_json(path, {**given, **_study(name, corpus, compiler, modules, rounds, seed)})

    for name in only:
        path = output / f"{name}.json"
        corpus = program_modules(
            name,
            output / name / "build",
            output / name / "corpora",
            opt_level=_PROBLEM.optimization_level,
            stage=_PROBLEM.corpus_stage,
        )
        inputs = {
            **given,
            "corpus": {one.name: one.fingerprint() for one in corpus},
            "thresholds": THRESHOLDS,
            "decisions": (DECISIONS.start, DECISIONS.stop),
            "clang": sha256(toolchain.clang.resolve()),
        }
        make = partial(search_all, name, corpus, path)
        memo(output / name / "searched.json", inputs, NoneType, make, [path])
    return table(saved(output, PROGRAMS))


def _study(
    name: str, corpus: Sequence[Module], compiler: Compiler, count: int, rounds: int, seed: int
) -> dict[str, Any]:
    """The result of one program."""
    jobs = [LabelJob(compiler, module) for module in corpus]
    with Pool() as pool:
        limit = _TIMEOUT_S * (2 + len(THRESHOLDS))
        outcomes = pool.map(_compile, jobs, timeout_s=limit, label=f"{name}: thresholds")
        compiled = [outcome.get() for outcome in outcomes]
        copies = count_copies(one.default.shared for one in compiled)
        usable = [i for i, one in enumerate(compiled) if one.decisions in DECISIONS]
        if not usable:
            logging.warning(
                "%s: none of %d modules has %d to %d decisions: left out",
                *(name, len(jobs), DECISIONS.start, DECISIONS.stop - 1),
            )
        draw = np.random.default_rng(derive_seed(seed, "modules", name))
        drawn = sorted(draw.permutation(usable)[:count].tolist())
        logging.info("%s: %d of %d usable modules, seed %d", name, len(drawn), len(usable), seed)
        searches = [SearchJob(replace(jobs[i], copies=copies), rounds) for i in drawn]
        found = pool.map(search, searches, timeout_s=_SEARCH_TIMEOUT_S, label=f"{name}: search")
    rows = []
    for i, outcome in zip(drawn, found, strict=True):
        best = outcome.get()
        rows.append(
            {
                "module": best.module,
                "default": best.default,
                "best": best.best,
                "given": len(best.decisions),
                "rounds": len(best.rounds),
                "compilations": best.compilations,
                "taken": compiled[i].decisions,
                "by_threshold": [one.weighted(copies) for one in compiled[i].by_threshold],
            }
        )
    return {"thresholds": THRESHOLDS, "modules_in_all": len(jobs), "searched": rows}


def _compile(job: LabelJob) -> _Compiled:
    """In a pool's worker."""
    with scratch() as folder:
        default, log = Flipper(job, folder).compile({})
        object_file = folder / "module.o"
        by_threshold = []
        for threshold in THRESHOLDS:
            job.compiler.compile(job.module, object_file, [f"-inline-threshold={threshold}"])
            by_threshold.append(function_sizes(object_file))
        return _Compiled(len(log.starts), default, tuple(by_threshold))


def table(results: dict[str, Any]) -> str:
    """Changes against -Oz, in Markdown, a row a program."""
    lines = [
        "| program | modules | decisions | bytes | best constant of all | best of each program | "
        "best of each module | search | decisions given | compilations |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    rows = {name: _Row.of(result) for name, result in results.items() if result["searched"]}
    if not rows:
        return "\n".join(lines)
    joint = sum((row.by_threshold for row in rows.values()), np.zeros(len(THRESHOLDS)))
    constant = int(np.argmin(joint))
    for name, row in [*rows.items(), ("all", _Row.joined(list(rows.values())))]:
        own = "" if name == "all" else _change(row.by_threshold.min(), row.default)
        lines.append(
            f"| {name} | {row.modules} | {row.taken} | {row.default:,.0f} | "
            f"{_change(row.by_threshold[constant], row.default)} | {own} | "
            f"{_change(row.best_of_each, row.default)} | {_change(row.best, row.default)} | "
            f"{row.given} | {row.compilations} |"
        )
    lines += ["", f"The best constant of all is -inline-threshold={THRESHOLDS[constant]}."]
    return "\n".join(lines)


def _change(size: float, default: float) -> str:
    return f"{100 * (size / default - 1):+.2f}%"


@dataclass(frozen=True)
class _Row:
    """Sums over modules."""

    modules: int
    taken: int
    default: float
    by_threshold: np.ndarray[Any, np.dtype[np.float64]]
    best_of_each: float
    best: float
    given: int
    compilations: int

    @classmethod
    def of(cls, result: dict[str, Any]) -> "_Row":
        """Of one program."""
        rows = result["searched"]
        by_threshold = np.array([row["by_threshold"] for row in rows])
        default = np.array([row["default"] for row in rows])
        return cls(
            len(rows),
            sum(row["taken"] for row in rows),
            float(default.sum()),
            by_threshold.sum(axis=0),
            float(np.minimum(default, by_threshold.min(axis=1)).sum()),
            sum(row["best"] for row in rows),
            sum(row["given"] for row in rows),
            sum(row["compilations"] for row in rows),
        )

    @classmethod
    def joined(cls, rows: Sequence["_Row"]) -> "_Row":
        """Of all programs."""
        columns = zip(*(vars(row).values() for row in rows), strict=True)
        return cls(*(sum(column[1:], column[0]) for column in columns))
