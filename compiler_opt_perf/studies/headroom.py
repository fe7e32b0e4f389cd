# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How small could any inlining policy make real modules at -Oz?

Rivals of a policy that need no learning, and a bound of what learning can reach:

  - one `-inline-threshold` for all modules, the best of some;
  - the best of them for each module;
  - a search over each module's decisions (training.local_search).

A function that several modules of a program have counts in each as a part: once in all, as in the
linked program. The copies are those of all modules of the program, the default's. What is left of
the differences when all modules of the program are linked is in a table of its own.
"""

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
from absl import logging

from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.corpus.program_table import PROGRAMS as ALL_PROGRAMS
from compiler_opt_perf.corpus.programs import program_modules
from compiler_opt_perf.cost.linked import linked_text_bytes
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

PROGRAMS = tuple(name for name in ALL_PROGRAMS if not name.startswith("llvm-"))
#: Of -Oz it is 5.
THRESHOLDS = (-50, -25, 0, 15, 25, 50, 80, 120, 225)
#: Decisions of a module that takes part: more take hours, fewer tell nothing.
DECISIONS = range(5, 301)

_PROBLEM = PROBLEMS["inline-size"]
_TIMEOUT_S = 120.0
_SEARCH_TIMEOUT_S = 7200.0


# Objects besides those of `THRESHOLDS`: plain -Oz; in development mode, in which the search
# compiles, as the default decides, and as the search found.
_PLAIN, _BEFORE, _FOUND = "plain", "before", "found"


@dataclass(frozen=True)
class _CompileJob:
    """A module to compile in several ways.

    Attributes:
      objects: folder that receives an object file for each way.
    """

    of: LabelJob
    objects: Path


@dataclass(frozen=True)
class _LinkJob:
    """Object files to link, and ld.lld."""

    objects: tuple[Path, ...]
    linker: Path


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
      The tables of all programs in the folder, in Markdown.
    """
    output = output.resolve()
    compiler = Compiler.of(toolchain, _PROBLEM, timeout_s=_TIMEOUT_S)
    given = {"modules": modules, "rounds": rounds, "seed": seed}

    def search_all(name: str, corpus: Sequence[Module], path: Path) -> None:
        found = _study(name, corpus, compiler, toolchain.ld_lld, modules, rounds, seed)
        write_json(path, {**given, **found})

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
    results = saved(output, PROGRAMS)
    return f"{table(results)}\n\n{linked_table(results)}"


def _study(
    name: str,
    corpus: Sequence[Module],
    compiler: Compiler,
    linker: Path,
    count: int,
    rounds: int,
    seed: int,
) -> dict[str, Any]:
    """The result of one program."""
    jobs = [LabelJob(compiler, module) for module in corpus]
    with Pool() as pool, tempfile.TemporaryDirectory(prefix="headroom-") as scratch_name:
        folders = [Path(scratch_name) / str(i) for i in range(len(jobs))]
        compilations = [_CompileJob(*pair) for pair in zip(jobs, folders, strict=True)]
        limit = _TIMEOUT_S * (3 + len(THRESHOLDS))
        ways = pool.map(_compile, compilations, timeout_s=limit, label=f"{name}: thresholds")
        compiled = [outcome.get() for outcome in ways]
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
        ends = pool.map(search, searches, timeout_s=_SEARCH_TIMEOUT_S, label=f"{name}: search")
        found = [outcome.get() for outcome in ends]
        searched = [
            replace(compilations[i], of=replace(jobs[i], decisions=one.decisions))
            for i, one in zip(drawn, found, strict=True)
        ]
        for outcome in pool.map(_compile_found, searched, timeout_s=limit):
            outcome.get()
        kinds = [_PLAIN, _BEFORE, _FOUND, *map(str, THRESHOLDS)]
        links = [_LinkJob(tuple(_object(one, kind) for one in folders), linker) for kind in kinds]
        sizes = pool.map(_link, links, label=f"{name}: linking")
        linked = {kind: size.get() for kind, size in zip(kinds, sizes, strict=True)}
    rows = []
    for i, best in zip(drawn, found, strict=True):
        rows.append(
            {
                "module": best.module,
                "default": best.default,
                "best": best.best,
                "given": len(best.decisions),
                "rounds": best.rounds,
                "compilations": best.compilations,
                "taken": compiled[i].decisions,
                "by_threshold": [one.weighted(copies) for one in compiled[i].by_threshold],
            }
        )
    return {
        "thresholds": THRESHOLDS,
        "modules_in_all": len(jobs),
        "searched": rows,
        "linked": linked,
    }


def _compile(job: _CompileJob) -> _Compiled:
    """In a pool's worker."""
    job.objects.mkdir()
    compiler, module = job.of.compiler, job.of.module
    with scratch() as folder:
        default, log = Flipper(job.of, folder).compile({})
        shutil.move(folder / "module.o", job.objects / f"{_BEFORE}.o")
    compiler.compile(module, job.objects / f"{_PLAIN}.o", [])
    by_threshold = []
    for threshold in THRESHOLDS:
        target = job.objects / f"{threshold}.o"
        compiler.compile(module, target, [f"-inline-threshold={threshold}"])
        by_threshold.append(function_sizes(target))
    return _Compiled(len(log.starts), default, tuple(by_threshold))


def _compile_found(job: _CompileJob) -> None:
    """In a pool's worker."""
    with scratch() as folder:
        Flipper(job.of, folder).compile(job.of.decisions)
        shutil.move(folder / "module.o", job.objects / f"{_FOUND}.o")


def _object(folder: Path, kind: str) -> Path:
    """The object of a kind; that of a module that was not searched is as before."""
    path = folder / f"{kind}.o"
    return path if path.exists() else folder / f"{_BEFORE}.o"


def _link(job: _LinkJob) -> int:
    """In a pool's worker."""
    return linked_text_bytes(job.objects, job.linker)


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


def linked_table(results: dict[str, Any]) -> str:
    """Bytes of text of the linked programs against plain -Oz, in Markdown, a row a program.

    The last column tells what of the bytes that the search saved in its modules is saved in the
    linked program.
    """
    lines = [
        "| linked program | bytes | best constant of all | best constant of the program | "
        "saved in the searched modules | of these when linked |",
        "|---|---|---|---|---|---|",
    ]
    if not results:
        return "\n".join(lines)
    changes = {name: _linked_changes(result["linked"]) for name, result in results.items()}
    constant = int(np.argmin(np.sum([np.log1p(row) for row in changes.values()], axis=0)))
    for name, row in changes.items():
        searched, linked = results[name]["searched"], results[name]["linked"]
        saved_bytes = sum(one["default"] - one["best"] for one in searched)
        best = int(np.argmin(row))
        lines.append(
            f"| {name} | {linked[_PLAIN]:,} | {100 * row[constant]:+.2f}% | "
            f"{100 * row[best]:+.2f}% ({THRESHOLDS[best]}) | {saved_bytes:,.0f} | "
            f"{linked[_BEFORE] - linked[_FOUND]:,} |"
        )
    mean = np.expm1(np.mean([np.log1p(row) for row in changes.values()], axis=0))
    of_each = np.expm1(np.mean([np.log1p(min(0.0, row.min())) for row in changes.values()]))
    lines += [
        f"| geometric mean | | {100 * mean[constant]:+.2f}% | {100 * of_each:+.2f}% | | |",
        "",
        f"The best constant of all linked programs is -inline-threshold={THRESHOLDS[constant]}.",
    ]
    return "\n".join(lines)


def _linked_changes(linked: dict[str, int]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Of each threshold, [thresholds]."""
    return np.array([linked[str(one)] / linked[_PLAIN] - 1 for one in THRESHOLDS])


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
