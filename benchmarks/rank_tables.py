# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How evaluators rank variants of programs, as tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.ranking import Estimate, Measured
from benchmarks.results import Cell, Table
from compiler_opt_perf.compare.summary import Floats

# The evaluator with which the others are compared.
JUDGED = "mca-pmu"


@dataclass(frozen=True)
class Ranked:
    """The measurements and predictions of one program.

    Attributes:
      name: of the program.
      variants: names of the V variants, the default one first.
      measured: the times of the variants.
      rounds: how many there are.
      layouts: how many take turns in them.
      predictions: by evaluator, [V] costs.
      evaluation_s: by evaluator, processor seconds of one evaluation.
      run_s: processor seconds of one run.
    """

    name: str
    variants: tuple[str, ...]
    measured: Measured
    rounds: int
    layouts: int
    predictions: Mapping[str, Floats]
    evaluation_s: Mapping[str, float]
    run_s: float

    def changes(self) -> list[float]:
        """[V] measured times as changes from the default variant's, in percent."""
        logs = self.measured.log_time
        return [100 * float(change) for change in np.expm1(logs - logs[0])]


def tables(programs: Sequence[Ranked]) -> list[Table]:
    """The tables, for the evaluators that all programs have."""
    evaluators = [
        name for name in programs[0].predictions if all(name in p.predictions for p in programs)
    ]

    def ranks(
        name: str, caption: str, estimate: Callable[[Measured, Floats, Floats], Estimate]
    ) -> Table:
        """A row an evaluator, a column a program."""
        rows: list[list[Cell]] = []
        for evaluator in evaluators:
            found = [
                estimate(p.measured, p.predictions[evaluator], p.predictions[JUDGED])
                for p in programs
            ]
            mean = float(np.mean([one.value for one in found]))
            rows.append([evaluator, *map(_cell, found), None if np.isnan(mean) else mean])
        columns = {"evaluator": "text", **{p.name: "number:2" for p in programs}}
        columns["mean"] = "number:2"
        return Table.of(name, f"{caption} (95% interval).", columns, rows)

    return [
        _facts(programs),
        ranks(
            "tau",
            "Kendall's tau on pairs whose order the times resolve",
            lambda measured, costs, _: measured.resolved_tau(costs),
        ),
        ranks(
            "tau-all-pairs",
            "Kendall's tau-b over all pairs",
            lambda measured, costs, _: measured.tau(costs),
        ),
        ranks(
            "lead",
            f"Tau of {JUDGED} on resolved pairs less that of the evaluator",
            lambda measured, costs, judged: measured.lead(judged, costs),
        ),
        ranks(
            "slope",
            "Change of time for a predicted change of one",
            lambda measured, costs, _: measured.slope(costs),
        ),
        _evaluation(programs, evaluators),
        _variants(programs, evaluators),
    ]


def _facts(programs: Sequence[Ranked]) -> Table:
    rows: list[list[Cell]] = []
    for p in programs:
        count, changes = len(p.variants), p.changes()
        row: list[Cell] = [p.name, p.run_s, count, p.rounds, p.layouts, min(changes), max(changes)]
        rows.append([*row, p.measured.resolved_pairs(), count * (count - 1) // 2])
    columns = {
        "program": "text",
        "a run": "seconds:2",
        "variants": "integer",
        "rounds": "integer",
        "layouts": "integer",
        "fastest": "percent:+1",
        "slowest": "percent:+1",
        "resolved pairs": "integer",
        "pairs": "integer",
    }
    caption = "Programs; times of the fastest and slowest variant against the default one."
    return Table.of("programs", caption, columns, rows)


def _evaluation(programs: Sequence[Ranked], evaluators: Sequence[str]) -> Table:
    rows: list[list[Cell]] = []
    for evaluator in evaluators:
        seconds = [p.evaluation_s.get(evaluator) for p in programs]
        if any(one is not None for one in seconds):
            pairs = zip(seconds, programs, strict=True)
            rows.append([evaluator, *(None if s is None else s / p.run_s for s, p in pairs)])
    columns = {"evaluator": "text", **{p.name: "number:2" for p in programs}}
    caption = "Processor time to evaluate the default variant, in runs of the program."
    return Table.of("evaluation", caption, columns, rows)


def _variants(programs: Sequence[Ranked], evaluators: Sequence[str]) -> Table:
    """Each variant's change against the default one, measured and predicted."""
    rows: list[list[Cell]] = []
    for p in programs:
        logs = p.measured.log_time
        ends = (np.expm1(end - logs[0]) for end in (p.measured.low, p.measured.high))
        low, high = (100 * end for end in ends)
        for i, (variant, change) in enumerate(zip(p.variants, p.changes(), strict=True)):
            measured = (round(change, 3), round(float(low[i]), 3), round(float(high[i]), 3))
            predicted = [100 * (p.predictions[e][i] / p.predictions[e][0] - 1) for e in evaluators]
            rows.append([p.name, variant, measured, *(round(float(one), 3) for one in predicted)])
    columns = {"program": "text", "variant": "text", "measured": "percent:+1"}
    columns |= dict.fromkeys(evaluators, "percent:+1")
    return Table.of("variants", "Changes against the default variant.", columns, rows)


def _cell(estimate: Estimate) -> Cell:
    """The value with its interval; None if there is no value."""
    if np.isnan(estimate.value):
        return None
    return round(estimate.value, 4), round(estimate.low, 4), round(estimate.high, 4)
