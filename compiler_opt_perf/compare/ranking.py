# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How evaluators rank variants of programs: figures and tables (python -m benchmarks rank)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler_opt_perf.cost.ranking import Estimate, Floats, Measured

# The evaluator with which the others are compared.
JUDGED = "mca-pmu"


@dataclass(frozen=True)
class Ranked:
    """The measurements and predictions of one program.

    Attributes:
      name: of the program.
      variants: names of the V variants, the default one first.
      seconds: [R, V, S] measured in R rounds, in S parts.
      layouts: [R], the layout that was run in each round.
      predictions: by evaluator, [V] costs.
      evaluation_s: by evaluator, processor seconds that one evaluation takes.
      run_s: processor seconds of one run.
    """

    name: str
    variants: tuple[str, ...]
    seconds: Floats
    layouts: tuple[int, ...]
    predictions: Mapping[str, Floats]
    evaluation_s: Mapping[str, float]
    run_s: float


@dataclass(frozen=True)
class Table:
    """A table with a caption."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """As Markdown."""
        lines = [self.caption, "", "| " + " | ".join(self.columns) + " |"]
        lines.append("|---" * len(self.columns) + "|")
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        return "\n".join(lines) + "\n"


def results(programs: Sequence[Ranked], measured: Mapping[str, Measured]) -> dict[str, Any]:
    """All figures by program, as JSON; of the evaluators that all programs have.

    Args:
      measured: by program.
    """
    evaluators = [
        name for name in programs[0].predictions if all(name in p.predictions for p in programs)
    ]
    return {
        program.name: _result(program, measured[program.name], evaluators) for program in programs
    }


def _result(program: Ranked, measured: Measured, evaluators: Sequence[str]) -> dict[str, Any]:
    """All figures of one program, as JSON."""
    variants = [
        {
            "name": name,
            "measured": float(np.exp(measured.log_time[i] - measured.log_time[0])),
            "predicted": {e: float(program.predictions[e][i]) for e in evaluators},
        }
        for i, name in enumerate(program.variants)
    ]
    judged = program.predictions[JUDGED]
    pairs = len(variants) * (len(variants) - 1) // 2
    ranks = {}
    for evaluator in evaluators:
        costs = program.predictions[evaluator]
        seconds = program.evaluation_s.get(evaluator)
        ranks[evaluator] = {
            "tau": _triple(measured.tau(costs)),
            "resolved_tau": _triple(measured.resolved_tau(costs)),
            "slope": _triple(measured.slope(costs)),
            "lead_of_" + JUDGED: _triple(measured.lead(judged, costs)),
            "evaluation_in_runs": seconds / program.run_s if seconds is not None else None,
        }
    return {
        "rounds": len(program.seconds),
        "layouts": len(set(program.layouts)),
        "run_s": program.run_s,
        "pairs": pairs,
        "resolved_pairs": measured.resolved_pairs(),
        "variants": variants,
        "evaluators": ranks,
    }


def _triple(estimate: Estimate) -> list[float | None]:
    """Value, low and high end of the interval; None where there are none."""
    known = (estimate.value, estimate.low, estimate.high)
    return [None if np.isnan(value) else value for value in known]


def tables(results: Mapping[str, Any]) -> list[Table]:
    """The tables of a study's results."""
    names = list(results)
    evaluators = list(results[names[0]]["evaluators"])
    facts = []
    for name, r in results.items():
        times = [variant["measured"] for variant in r["variants"]]
        facts.append(
            (
                name,
                f"{r['run_s']:.2f} s",
                str(len(times)),
                str(r["rounds"]),
                str(r["layouts"]),
                f"{_percent(min(times))} to {_percent(max(times))}",
                f"{r['resolved_pairs']} of {r['pairs']}",
            )
        )

    def rows(key: str) -> tuple[tuple[str, ...], ...]:
        return tuple(
            (e, *(_interval(results[name]["evaluators"][e][key]) for name in names))
            for e in evaluators
        )

    def ratios(evaluator: str) -> tuple[str, ...]:
        found = [results[name]["evaluators"][evaluator]["evaluation_in_runs"] for name in names]
        return (evaluator, *("–" if ratio is None else f"{ratio:.2f}" for ratio in found))

    columns = ("evaluator", *names)
    return [
        Table(
            "Programs, and how far the variants lie from the default one.",
            ("program", "one run", "variants", "rounds", "layouts", "measured", "resolved pairs"),
            tuple(facts),
        ),
        Table("Kendall's tau on resolved pairs (95% interval).", columns, rows("resolved_tau")),
        Table("Kendall's tau-b over all pairs (95% interval).", columns, rows("tau")),
        Table(
            f"Lead of {JUDGED}: its tau on resolved pairs less the other's (95% interval).",
            columns,
            tuple(row for row in rows("lead_of_" + JUDGED) if row[0] != JUDGED),
        ),
        Table(
            "How much of a predicted change is time, 1 for all of it (95% interval).",
            columns,
            rows("slope"),
        ),
        Table(
            "Processor time of an evaluation of the default variant, in runs of the program.",
            columns,
            tuple(row for row in map(ratios, evaluators) if set(row[1:]) != {"–"}),
        ),
    ]


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}%"


def _interval(triple: Sequence[float | None]) -> str:
    value, low, high = triple
    if value is None:
        return "–"
    return f"{value:.2f} ({low:.2f} to {high:.2f})"
