# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A training's folder and what its policy does differently, in tables: text, cells and JSON."""

import json
from dataclasses import asdict
from typing import Any

import numpy as np

from compiler_opt_perf.compare.decision_names import decided, names_in, place
from compiler_opt_perf.compare.training_run import CHANGE, SHARE, TrainingRun, unit_of
from compiler_opt_perf.run.table import markdown, percent
from compiler_opt_perf.train.differences import Differences
from compiler_opt_perf.train.linked import COLUMNS, ProgramResult, cells

MODULE_COLUMNS = ("module", "bytes", "with the policy", "change", "decisions", "different")
SITE_COLUMNS = ("decision", "the policy's", "the compiler's", "bytes that it changes", "module")
_NAME_WIDTH = 90


def shown(field: str, value: float) -> str:
    """A value of a curve in its unit."""
    unit = unit_of(field)
    if unit == CHANGE:
        return percent(value)
    if unit == SHARE:
        return f"{100 * value:.1f}%"
    return f"{value:,d}" if isinstance(value, int) else f"{value:.5g}"


def latest(run: TrainingRun) -> str:
    """The last step so far, in a sentence; empty where there is none."""
    if not run.curve:
        return ""
    point = run.curve[-1]
    values = ", ".join(f"{name} {shown(name, one)}" for name, one in point.values.items())
    return f"generation {point.step}: {values}"


def headline(run: TrainingRun) -> str:
    """What the training is of, and how it ended or how far it is."""
    seed = run.settings.get("seed")
    text = f"{run.path}: {run.problem}, {run.modules} modules, seed {seed}\n"
    if run.results is None:
        done = f"{len(run.curve)} generations" if run.curve else "no generation"
        return f"{text}not ended; {done} so far, run its command again to go on\n"
    result = run.results
    return (
        f"{text}{result.reward} {percent(result.test_change)} on the test, "
        f"{percent(result.validation_change)} where it was chosen: {result.verdict}\n"
    )


def programs(run: TrainingRun) -> list[list[str]]:
    """The results on test programs, a row each of COLUMNS."""
    if run.results is None:
        return []
    return [
        cells(ProgramResult(name, own.linked, own.objects))
        for name, own in run.results.programs.items()
    ]


def labels(run: TrainingRun) -> list[str]:
    """A sentence for each round of labels."""
    return [
        f"round {number}: {len(own):,} labels; {np.count_nonzero(own < 0):,} decisions are better "
        f"taken the other way, {np.count_nonzero(own > 0):,} worse, "
        f"{np.count_nonzero(own == 0):,} change nothing"
        for number, own in run.labels.items()
    ]


def settings(run: TrainingRun) -> list[tuple[str, str]]:
    """Name and value of each setting and version."""
    return [
        *((name, json.dumps(value)) for name, value in run.settings.items()),
        *run.versions.items(),
    ]


def modules(differences: Differences, by: str) -> list[list[str]]:
    """Rows of MODULE_COLUMNS, what changes most first.

    Args:
      by: "module" or "program".
    """
    rows: dict[str, list[float]] = {}
    for one in differences.modules:
        name = one.module if by == "module" else one.program
        row = rows.setdefault(name, [0.0] * 4)
        numbers = (one.default, one.policy, one.decisions, len(one.sites))
        rows[name] = [a + b for a, b in zip(row, numbers, strict=True)]
    return [
        [
            name,
            f"{before:,.0f}",
            f"{after:,.0f}",
            percent(after / before - 1.0) if before else "",
            f"{decisions:,.0f}",
            f"{different:,.0f}",
        ]
        for name, (before, after, decisions, different) in sorted(
            rows.items(), key=lambda item: (item[1][1] - item[1][0], item[0])
        )
    ]


def sites(differences: Differences, number: int) -> tuple[list[list[str]], int]:
    """Rows of SITE_COLUMNS: those that save most, and at the end those that cost most.

    Args:
      number: of rows, at most.

    Returns:
      The rows, and how many there are in all.
    """
    found = differences.sites
    tried = [one for one in found if one.change is not None] or list(found)
    if len(tried) > number:
        tried = tried[: (number + 1) // 2] + tried[len(tried) - number // 2 :]
    names = names_in([one.key for one in tried], _NAME_WIDTH)
    rows = [
        [
            place(one.key, names),
            decided(differences.problem, one.decision),
            decided(differences.problem, one.default),
            "" if one.change is None else f"{one.change:+,.0f}",
            one.module,
        ]
        for one in tried
    ]
    return rows, len(found)


def summary(differences: Differences, shown: int) -> str:
    """One sentence that sums up the table of decisions."""
    found = differences.sites
    tried = [one.change for one in found if one.change is not None]
    text = f"{len(found):,} decisions differ"
    if tried:
        text += (
            f"; {len(tried):,} of them were taken back one at a time: "
            f"{sum(one < 0 for one in tried):,} save {-sum(min(one, 0) for one in tried):,.0f} "
            f"bytes, {sum(one > 0 for one in tried):,} cost "
            f"{sum(max(one, 0) for one in tried):,.0f}"
        )
    return text + (f"; {shown} are shown" if shown < len(tried or found) else "")


def describe(run: TrainingRun, differences: Differences | None, top: int) -> str:
    """The whole as text."""
    parts = [headline(run)]
    parts += [f"{line}\n" for line in [latest(run)] if line]
    parts += [f"{line}\n" for line in labels(run)]
    if rows := programs(run):
        parts.append("\n" + markdown(COLUMNS, rows))
    if differences is not None:
        rows, _ = sites(differences, top)
        parts.append("\n" + markdown(MODULE_COLUMNS, modules(differences, "module")))
        parts.append(f"\n{summary(differences, len(rows))}\n")
        parts.append(markdown(SITE_COLUMNS, rows) if rows else "")
    parts.append("\n" + "".join(f"{name}={value}\n" for name, value in settings(run)))
    return "".join(parts)


def document(run: TrainingRun, differences: Differences | None) -> dict[str, Any]:
    """The same as JSON values."""
    result = run.results
    return {
        "folder": str(run.path),
        "problem": run.problem,
        "modules": run.modules,
        "ended": result is not None,
        "results": None
        if result is None
        else {
            "reward": result.reward,
            "verdict": result.verdict,
            "test_change": result.test_change,
            "validation_change": result.validation_change,
            "programs": [
                {"name": name, "linked": list(own.linked), "objects": list(own.objects)}
                for name, own in result.programs.items()
            ],
        },
        "curve": [{"generation": one.step, **one.values} for one in run.curve],
        "labels": [
            {
                "round": number,
                "number": len(own),
                "would_save": int(np.count_nonzero(own < 0)),
                "would_cost": int(np.count_nonzero(own > 0)),
            }
            for number, own in run.labels.items()
        ],
        "differences": None
        if differences is None
        else {
            "modules": [
                {
                    "module": one.module,
                    "default": one.default,
                    "policy": one.policy,
                    "decisions": one.decisions,
                }
                for one in differences.modules
            ],
            "sites": [asdict(one) for one in differences.sites],
            "failed": dict(differences.failed),
        },
        "settings": dict(run.settings),
        "versions": dict(run.versions),
    }
