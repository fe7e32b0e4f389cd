# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How few instructions could any policy for evictions make real programs execute?

The functions that execute 95% of a program's instructions are searched, each by itself
(`eviction_search`), from the compiler's own rule and from the best constant price of callee-saved
registers. The decisions of all functions together are then linked into the program; callgrind
counts what that executes as users compile it; `mca-pmu` tells its cycles, and the clock its time
on an input by which nothing was chosen. Builds and the run are those of `evictions`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any

import msgspec
import numpy as np
from absl import logging

from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.execution.executor import Executor
from compiler_opt_perf.execution.files import sha256, write_json
from compiler_opt_perf.execution.llvm import stock_tool
from compiler_opt_perf.execution.memo import memo, note, numbered, recall
from compiler_opt_perf.execution.pool import Pool
from compiler_opt_perf.execution.seeds import derive_seed
from compiler_opt_perf.studies.common import Timing, saved
from compiler_opt_perf.studies.eviction_builds import (
    CONSTANTS,
    DEFAULT,
    LEVELS,
    Decisions,
    Executed,
    Level,
)
from compiler_opt_perf.studies.eviction_search import Found, SearchJob, search
from compiler_opt_perf.studies.rounds import HEAD, changes_table, described, to_first
from compiler_opt_perf.studies.variants import Variant
from compiler_opt_perf.studies.workloads import COUNTED, ONLY_ONCE
from compiler_opt_perf.toolchain.installation import Toolchain

PROGRAMS = tuple(COUNTED)
_HOT = 0.95
_SEARCHED = "searched"
_COLUMNS = ("searched from the default", "best constant", "searched from the best constant")
_SEARCH_TIMEOUT_S = 7200.0


class Searched(msgspec.Struct, frozen=True):
    """What is found from one way to begin.

    Attributes:
      start: name of the variant that the search begins at.
      functions: those that were searched.
      before, after: the linked program's, at the start and with the decisions found.
    """

    start: str
    functions: list[Found]
    before: Executed
    after: Executed


@dataclass(frozen=True)
class Limits:
    """How far to search.

    Attributes:
      rounds: how often all decisions of a function are deviated from.
      most: decisions of a function that are tested in a round.
      seed: of the draw of these.
    """

    rounds: int = 2
    most: int = 200
    seed: int = 1


def study(
    programs: Sequence[str],
    output: Path,
    toolchain: Toolchain,
    limits: Limits,
    *,
    level: str = "O2",
    cpu: Path | None = None,
    timing: Timing | None = None,
) -> dict[str, Any]:
    """Searches some of the `PROGRAMS`.

    Args:
      output: folder for builds and results; that of the study `evictions` has builds already.
      level: one of `LEVELS`.
      cpu: CPU file, for predicted cycles; None for none.
      timing: of the input by which nothing was chosen; None: nothing is timed.

    Returns:
      All results in the folder, by program and level, for `tables`.

    Raises:
      CommandError: a compiler or a run failed.
      LogError: the compiler left a damaged log.
      StudyError: programs of several ways compute different things, or a damaged result.
    """
    output = output.resolve()
    with Pool() as pool:
        for program in programs:
            build = Level(program, level, output / program / level, toolchain, pool, cpu)
            found = msgspec.to_builtins(searched(build, pool, limits))
            ways = _ways(build, found["searches"])
            if cpu:
                found["cycles"] = {
                    name: build.predicted(variant, "mca-pmu", given).total
                    for name, (variant, given) in ways.items()
                }
            if timing and program not in ONLY_ONCE:
                found["timed"] = build.timed("search-rounds", ways, timing)
            write_json(output / f"{program} {level} search.json", found)
    names = [f"{program} {level}" for level in LEVELS for program in PROGRAMS]
    return saved(output, names, " search.json")


def _ways(
    build: Level, searches: Sequence[Mapping[str, Any]]
) -> dict[str, tuple[Variant, Decisions]]:
    """By name, each start and what was found from there; the default is the first."""
    known = {one.name: one for one in (DEFAULT, *CONSTANTS)}
    numbers = _modules(build)
    ways: dict[str, tuple[Variant, Decisions]] = {DEFAULT.name: (DEFAULT, {})}
    for one in searches:
        start = known[one["start"]]
        ways[start.name] = (start, {})
        given = _given(
            {own["function"]: own["decisions"] for own in one["functions"]},
            {name: own[0] for name, own in numbers.items()},
        )
        found = _from(start)
        ways[found.name] = (found, given)
    return ways


def _from(start: Variant) -> Variant:
    """What is compiled by the decisions that were found from a start."""
    return Variant(f"{start.name}, {_SEARCHED}", start.options)


def searched(build: Level, pool: Executor, limits: Limits) -> dict[str, Any]:
    """A program's results.

    Returns:
      `default`: instructions that callgrind counts of the default variant; `share`: of those that
      the trace accounts for, the searched functions'; `searches`: by way to begin (`Searched`).
    """
    constants = [one for one in (DEFAULT, *CONSTANTS) if build.executed(one) is not None]
    default = build.executed(DEFAULT)
    assert default is not None
    best = min(constants, key=lambda one: _counted(build, one))
    functions = _extracted(build, _hot(default.functions))
    share = sum(default.functions[name] for name in functions) / sum(default.functions.values())
    starts = [DEFAULT] if best is DEFAULT else [DEFAULT, best]
    found = _search(build, pool, starts, functions, limits)
    modules = {name: number for name, (number, _) in functions.items()}
    return {
        "default": default.counted,
        "share": share,
        "searches": [_linked(build, start, found[start.name], modules) for start in starts],
    }


def _counted(build: Level, variant: Variant) -> int:
    found = build.executed(variant)
    assert found is not None
    return found.counted


def _hot(functions: Mapping[str, float]) -> list[str]:
    """Those with most instructions that make up `_HOT` of all together."""
    total, reached, hot = sum(functions.values()), 0.0, []
    for name in sorted(functions, key=lambda name: (-functions[name], name)):
        if reached >= _HOT * total:
            break
        hot.append(name)
        reached += functions[name]
    return hot


def _extracted(build: Level, names: Sequence[str]) -> dict[str, tuple[int, Path]]:
    """The module of each function, by number, and the IR of it alone.

    A function that none or several modules define is left out: of these the trace has one count.
    """
    bitcode, defined = build.bitcode(), _modules(build)
    folder = build.folder / "functions"
    folder.mkdir(exist_ok=True)
    found = {}
    for place, name in enumerate(names):
        if len(defined.get(name, ())) != 1:
            logging.warning(
                "%s: %s: defined in %d modules, left out",
                *(build.name, name, len(defined.get(name, ()))),
            )
            continue
        (number,) = defined[name]
        target = folder / f"{place}.bc"
        argv: list[str | Path] = [
            stock_tool("llvm-extract"),
            f"--func={name}",
            bitcode[number],
            "-o",
            target,
        ]
        inputs = {"bitcode": sha256(bitcode[number]), "function": name}
        memo(folder / f"{place}.json", inputs, NoneType, partial(_run, argv), [target])
        found[name] = (number, target)
    return found


def _modules(build: Level) -> dict[str, list[int]]:
    """By name of a function, the numbers of the modules that define it."""
    defined: dict[str, list[int]] = {}
    for number, path in enumerate(build.bitcode()):
        tool: list[str | Path] = [stock_tool("llvm-nm"), "--defined-only", "--format=just-symbols"]
        for name in run_command([*tool, path], timeout_s=60).stdout.splitlines():
            defined.setdefault(name, []).append(number)
    return defined


def _run(argv: Sequence[str | Path]) -> None:
    run_command(argv, timeout_s=600)


def _search(
    build: Level,
    pool: Executor,
    starts: Sequence[Variant],
    functions: Mapping[str, tuple[int, Path]],
    limits: Limits,
) -> dict[str, list[Found]]:
    """What is found of each function, by the start's name; those that were found are kept."""
    context, notes = build.judge().context, build.folder / "searches"
    notes.mkdir(exist_ok=True)
    common = {
        "clang": sha256(build.toolchain.clang.resolve()),
        "trace": sha256(build.trace()),
        "limits": vars(limits),
    }
    jobs = {
        (start.name, name): SearchJob(
            build.toolchain,
            name,
            path,
            context,
            start.options,
            limits.rounds,
            limits.most,
            derive_seed(limits.seed, "deviations", name),
        )
        for start in starts
        for name, (_, path) in functions.items()
    }

    def inputs(job: SearchJob) -> dict[str, Any]:
        own = {"function": job.function, "options": job.options, "bitcode": sha256(job.bitcode)}
        return common | own

    def keep(job: SearchJob, found: Found) -> None:
        note(numbered(notes, inputs(job)), inputs(job), Found, found)

    known = {
        key: recall(numbered(notes, inputs(job)), inputs(job), Found) for key, job in jobs.items()
    }
    missing = [key for key, one in known.items() if one is None]
    outcomes = pool.map(
        search,
        [jobs[key] for key in missing],
        timeout_s=_SEARCH_TIMEOUT_S,
        label=f"{build.name}: search",
        keep=keep,
    )
    known |= {key: outcome.get() for key, outcome in zip(missing, outcomes, strict=True)}
    return {
        start.name: [one for (name, _), one in known.items() if one and name == start.name]
        for start in starts
    }


def _linked(
    build: Level, start: Variant, found: list[Found], modules: Mapping[str, int]
) -> Searched:
    """Links what was found from one start."""
    given = _given({one.function: one.decisions for one in found}, modules)
    before = build.executed(start)
    after = build.executed(_from(start), given)
    assert before is not None and after is not None
    return Searched(start.name, found, before, after)


def _given(decisions: Mapping[str, Mapping[str, int]], modules: Mapping[str, int]) -> Decisions:
    """Decisions of functions, by number of the module."""
    by_module: dict[int, dict[str, int]] = {}
    for function, own in decisions.items():
        if own:
            by_module.setdefault(modules[function], {}).update(own)
    return by_module


def tables(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Changes of instructions, predicted cycles and time against the default, in Markdown."""
    found = [_counted_table(results)]
    cycles = {name: row["cycles"] for name, row in results.items() if "cycles" in row}
    timed = {name: row["timed"] for name, row in results.items() if "timed" in row}
    changes = {name: to_first(own) for name, own in cycles.items()}
    rows = {name: [f"{own[DEFAULT.name]:,.0f}"] for name, own in cycles.items()}
    found.append(_changes_table(["cycles (mca-pmu)"], rows, changes))
    changes = {name: row["changes"] for name, row in timed.items()}
    rows = {name: described(row) for name, row in timed.items()}
    found.append(_changes_table(HEAD, rows, changes))
    return "\n".join(filter(None, found))


def _changes_table(
    head: Sequence[str],
    rows: Mapping[str, Sequence[str]],
    changes: Mapping[str, Mapping[str, Sequence[float]]],
) -> str:
    """As `changes_table`, of the changes by way, with the name of the best constant."""
    rows = {name: [*cells, _constant(changes[name]) or "–"] for name, cells in rows.items()}
    own = {name: _of_columns(one) for name, one in changes.items()}
    lines = changes_table([*head, "constant"], rows, own, _COLUMNS)
    return "".join(f"{line}\n" for line in lines)


def _of_columns(changes: Mapping[str, Sequence[float]]) -> dict[str, Sequence[float]]:
    """The changes of a program's ways, by column."""
    first, constant = f"{DEFAULT.name}, {_SEARCHED}", _constant(changes)
    # Without a better constant, the search from it is the one from the default.
    best = [changes[constant], changes[f"{constant}, {_SEARCHED}"]] if constant else None
    values = [changes[first], *(best or ([0.0], changes[first]))]
    return dict(zip(_COLUMNS, values, strict=True))


def _constant(ways: Iterable[str]) -> str | None:
    """The name of the best constant among the ways; None if that is the default."""
    return next((one for one in ways if one != DEFAULT.name and _SEARCHED not in one), None)


def _counted_table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Instructions: a row for each way to begin."""
    head = [
        *("program", "instructions", "from", "functions", "share"),
        *("decisions", "compilations", "given"),
        *("predicted, alone", "predicted, linked", "callgrind: start", "callgrind: search"),
    ]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    ends: list[list[float]] = []
    for name, result in results.items():
        default, searches = result["default"], result["searches"]
        share = f"{100 * result['share']:.0f}%"
        if not searches:
            lines.append(f"| {name} | {default:,} | – | 0 | {share} |" + " |" * (len(head) - 5))
            continue
        ends.append([])
        for one in searches:
            functions, before, after = (one[kind] for kind in ("functions", "before", "after"))
            whole = searches[0]["before"]["predicted"]
            gained = sum(each["best"] - each["default"] for each in functions)
            ratios = [
                (before["predicted"] + gained) / whole,
                after["predicted"] / whole,
                before["counted"] / default,
                after["counted"] / default,
            ]
            ends[-1].append(ratios[-1])
            cells = [
                *(name, f"{default:,}", one["start"], str(len(functions)), share),
                *(str(sum(each[kind] for each in functions)) for kind in ("asked", "compilations")),
                str(sum(len(each["decisions"]) for each in functions)),
                *(f"{100 * (ratio - 1):+.2f}%" for ratio in ratios),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    if len(ends) > 1:
        own = 100 * (np.exp(np.mean([np.log(each[0]) for each in ends])) - 1)
        best = 100 * (np.exp(np.mean([np.log(min(each)) for each in ends])) - 1)
        lines += [
            "",
            f"Geometric means of the counted: {own:+.2f}% from the default, {best:+.2f}% from the "
            "better start of each program.",
        ]
    return "\n".join(lines) + "\n"
