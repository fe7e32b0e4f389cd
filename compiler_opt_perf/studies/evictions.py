# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What do rivals of an eviction policy execute that need no learning, and do rewards know it?

Programs are compiled by some register allocations of the same optimised IR, at -O2 and at -O2 with
an instrumented profile. Callgrind counts what each executes, in a run of the program; from one
recorded run of the default one, `count` predicts it, and RegAllocScore tells what the compiler
thinks. Of the same variants, `mca-pmu` can tell cycles, and the clock times on an input by which
nothing was chosen. Results are kept and not repeated.
"""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import kendalltau

from compiler_opt_perf.execution.files import write_json
from compiler_opt_perf.execution.pool import Pool
from compiler_opt_perf.studies.common import Timing, saved
from compiler_opt_perf.studies.eviction_builds import (
    CONSTANTS,
    DEFAULT,
    LEVELS,
    MEASURED,
    Decisions,
    Executed,
    Level,
    variants,
)
from compiler_opt_perf.studies.rounds import HEAD, changes_table, described, to_first
from compiler_opt_perf.studies.variants import Variant
from compiler_opt_perf.studies.workloads import COUNTED, ONLY_ONCE
from compiler_opt_perf.toolchain.installation import Toolchain

PROGRAMS = tuple(COUNTED)
#: Names of all variants.
RULES = tuple(one.name for one in (*variants(1), MEASURED))
_WAYS = ("regalloc-score", "regalloc-score-calls", "allocation-score", "count")


def study(
    programs: Sequence[str],
    output: Path,
    toolchain: Toolchain,
    *,
    levels: Sequence[str] = tuple(LEVELS),
    rules: Sequence[str] = RULES,
    seed: int = 1,
    cpu: Path | None = None,
    timing: Timing | None = None,
) -> dict[str, Any]:
    """Studies some of the `PROGRAMS` at some of the `LEVELS`.

    Args:
      output: folder for builds and results.
      rules: names of the variants to compile; the default is always among them.
      seed: of the variant that decides at random.
      cpu: CPU file, for predicted cycles; None for none.
      timing: of the input by which nothing was chosen; None: nothing is timed.

    Returns:
      All results in the folder, by program and level ("lua O2"), for `tables`.

    Raises:
      CommandError: a compiler or a run failed.
      StudyError: variants compute different things, or a damaged result in the folder.
    """
    output = output.resolve()
    with Pool() as pool:
        for program, level in itertools.product(programs, levels):
            build = Level(program, level, output / program / level, toolchain, pool, cpu)
            chosen = [one for one in (*variants(seed), MEASURED) if one.name in rules]
            chosen = chosen if DEFAULT in chosen else [DEFAULT, *chosen]
            counted = {one.name: build.executed(one) for one in chosen}
            known = [one for one in chosen if counted[one.name] is not None]
            found = summary(counted)
            if cpu:
                found["cycles"] = {
                    one.name: build.predicted(one, "mca-pmu").total
                    for one in known
                    if one is not MEASURED
                }
            if timing and program not in ONLY_ONCE:
                ways: dict[str, tuple[Variant, Decisions]]
                ways = {one.name: (one, {}) for one in known}
                found["timed"] = build.timed("rules-rounds", ways, timing)
            write_json(output / f"{program} {level}.json", found)
    names = [f"{program} {level}" for level in LEVELS for program in PROGRAMS]
    return saved(output, names)


def summary(found: Mapping[str, Executed | None]) -> dict[str, Any]:
    """A program's results at one level, as they are kept.

    Returns:
      `variants`: by name, `counted` and, but for `MEASURED`, the evaluators' costs;
      `best_of_each_function`: what is predicted when each function has the constant that is best
      for it.
    """
    rows: dict[str, dict[str, Any]] = {}
    for name, executed in found.items():
        if executed is not None:
            rows[name] = {
                "counted": executed.counted,
                "regalloc-score": executed.score,
                "regalloc-score-calls": executed.score_calls,
                "allocation-score": executed.allocation,
                "count": executed.predicted,
            }
    constants = [found.get(one.name) for one in (DEFAULT, *CONSTANTS)]
    known = [one.functions for one in constants if one is not None]
    best = sum(min(one.get(name, 0.0) for one in known) for name in known[0])
    return {"variants": rows, "best_of_each_function": best}


def tables(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The results in Markdown: changes of instructions, of cycles, of time, then how rewards agree.

    Cycles and times are there if some program has any; those of a program have 95% intervals over
    layouts, means over programs some over other programs of the kind.
    """
    names = list(
        dict.fromkeys(
            name for row in results.values() for name in row["variants"] if name != DEFAULT.name
        )
    )
    head = ["program", "instructions", *names, "best constant", "best of each function"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    constants = [one.name for one in CONSTANTS]
    for level in LEVELS:
        rows = {name: row for name, row in results.items() if name.split(" ")[1] == level}
        ratios: dict[str, list[float]] = {}
        for name, row in rows.items():
            default = row["variants"][DEFAULT.name]
            changes = {
                one: kind["counted"] / default["counted"] for one, kind in row["variants"].items()
            }
            best = min([DEFAULT.name, *constants], key=lambda one: changes.get(one, np.inf))
            changes["best constant"] = changes[best]
            # Only predicted: as a share of what the run counts, too.
            saved_by_function = row["best_of_each_function"] - default["count"]
            changes["best of each function"] = 1 + saved_by_function / default["counted"]
            cells = [name, f"{default['counted']:,}"]
            for one in head[2:]:
                cells.append(_change(changes[one]) if one in changes else "–")
                if one in changes:
                    ratios.setdefault(one, []).append(changes[one])
            cells[head.index("best constant")] += f" ({best.removeprefix('csr ')})"
            lines.append(f"| {' | '.join(cells)} |")
        if len(rows) > 1:
            means = [
                _change(float(np.exp(np.mean(np.log(ratios[one])))))
                if len(ratios.get(one, ())) == len(rows)
                else "–"
                for one in head[2:]
            ]
            lines.append(f"| geometric mean, {level} | | {' | '.join(means)} |")
    for level in LEVELS:
        rows = {name: row for name, row in results.items() if name.endswith(f" {level}")}
        for table in (_cycles_table(rows), _timed_table(rows)):
            lines += ["", *table] if table else []
    return "\n".join([*lines, "", *_agreement(results)]) + "\n"


def _cycles_table(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    known = {name: row["cycles"] for name, row in results.items() if "cycles" in row}
    rows = {name: [f"{own[DEFAULT.name]:,.0f}"] for name, own in known.items()}
    changes = {name: to_first(own) for name, own in known.items()}
    return changes_table(["cycles (mca-pmu)"], rows, changes, RULES[1:])


def _timed_table(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    known = {name: row["timed"] for name, row in results.items() if "timed" in row}
    rows = {name: described(row) for name, row in known.items()}
    changes = {name: row["changes"] for name, row in known.items()}
    return changes_table(HEAD, rows, changes, RULES[1:])


def _agreement(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Kendall's tau-b of each way to predict with the counted instructions."""
    lines = [f"| program | variants | {' | '.join(f'τ of `{way}`' for way in _WAYS)} | error |"]
    lines.append("|---" * (len(_WAYS) + 3) + "|")
    for name, row in results.items():
        known = [one for one in row["variants"].values() if one["count"] is not None]
        if len(known) < 2:
            continue
        columns = {way: _column(known, way) for way in ("counted", *_WAYS)}
        taus = [float(kendalltau(columns[way], columns["counted"]).statistic) for way in _WAYS]
        # Differences to the default, the first, which another object's instructions cancel in.
        differences = [columns[way] - columns[way][0] for way in ("count", "counted")]
        error = np.abs(differences[0] - differences[1]).max() / columns["counted"][0]
        cells = [*(f"{tau:.2f}" for tau in taus), f"{100 * error:.2f}%"]
        lines.append(f"| {name} | {len(known)} | {' | '.join(cells)} |")
    return lines


def _column(rows: Sequence[Mapping[str, Any]], way: str) -> npt.NDArray[np.float64]:
    return np.array([row[way] for row in rows], np.float64)


def _change(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.2f}%"
