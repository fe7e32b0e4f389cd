# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How evaluators rank variants of programs, as tables."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.ranking import Estimate, Measured
from benchmarks.results import Cell, Table
from compiler_opt_perf.compare.summary import Floats

# The evaluator whose parts are left out, and the one that is shown beside it.
JUDGED, _COUNTED = "mca-pmu", "count"
_WITHOUT = f"{JUDGED} without "
#: Changes of the time, as shares: above the first the predicted change is compared, and what is
#: slower by the second must not be called faster.
_LEAST, _HARM = 0.02, 0.10
_FACTOR = 1.5


@dataclass(frozen=True)
class Ranked:
    """The measurements and predictions of one program and one kind of variants.

    Attributes:
      name: of the program.
      kind: of the variants.
      variants: names of the V variants, the default one first.
      measured: the times of the variants.
      rounds: how many there are.
      run_s: seconds of the fastest run of the default variant.
      predictions: by evaluator, [V] costs.
      evaluation_s: by evaluator, processor seconds of one evaluation; empty if not measured.
    """

    name: str
    kind: str
    variants: tuple[str, ...]
    measured: Measured
    rounds: int
    run_s: float
    predictions: Mapping[str, Floats]
    evaluation_s: Mapping[str, float]

    @property
    def changes(self) -> Floats:
        """[V] logarithms of measured times, relative to the default variant's."""
        logs: Floats = self.measured.log_time - self.measured.log_time[0]
        return logs

    def predicted(self, evaluator: str) -> Floats:
        """[V] logarithms of predicted costs, relative to the default variant's."""
        costs = self.predictions[evaluator]
        with np.errstate(divide="ignore", invalid="ignore"):
            logs: Floats = np.log(costs) - np.log(costs[0])
        return logs

    def tau(self, evaluator: str) -> Estimate:
        """Kendall's tau on resolved pairs."""
        return self.measured.resolved_tau(self.predictions[evaluator])

    def agreements(self, evaluator: str) -> list[bool]:
        """Whether the sign is right, of each change that the times resolve."""
        resolved = self.measured.resolved[0]
        right = np.sign(self.predicted(evaluator)) == np.sign(self.changes)
        return list(map(bool, right[resolved]))

    def close(self, evaluator: str) -> list[bool]:
        """Whether the change is within a factor of the measured one, of each larger change."""
        chosen = self.measured.resolved[0] & (abs(self.changes) > np.log1p(_LEAST))
        ratios = self.predicted(evaluator)[chosen] / self.changes[chosen]
        return [bool(1 / _FACTOR <= ratio <= _FACTOR) for ratio in ratios]

    def harms(self, evaluator: str) -> list[bool]:
        """Whether it is called faster, of each variant that is much slower."""
        slower = self.measured.resolved[0] & (self.changes >= np.log1p(_HARM))
        return list(map(bool, self.predicted(evaluator)[slower] < 0))


def tables(programs: Sequence[Ranked]) -> list[Table]:
    """The tables; an evaluator that a kind lacks for some program has no value there."""
    kinds = {kind: [p for p in programs if p.kind == kind] for kind in _names(programs, "kind")}
    evaluators = list(dict.fromkeys(name for p in programs for name in p.predictions))
    own = [name for name in evaluators if not name.startswith(_WITHOUT)]
    parts = [name for name in evaluators if name.startswith(_WITHOUT)]
    return [
        _facts(programs),
        _taus(
            "tau",
            "Kendall's tau on resolved pairs: all pairs, mean of programs, worst program",
            kinds,
            own,
        ),
        _taus("parts", f"The same where {JUDGED} lacks a part", kinds, [JUDGED, *parts]),
        _by_program(kinds, [name for name in (JUDGED, _COUNTED) if name in own]),
        _shares(
            "signs",
            "Changes that the times resolve, share with the right sign",
            kinds,
            own,
            Ranked.agreements,
        ),
        _shares(
            "close",
            f"Resolved changes above {100 * _LEAST:.0f}%, share predicted within a "
            f"factor of {_FACTOR}",
            kinds,
            own,
            Ranked.close,
        ),
        _shares(
            "harms",
            f"Variants slower by {100 * _HARM:.0f}% or more, share called faster",
            kinds,
            own,
            Ranked.harms,
        ),
        _evaluation(programs, own),
        _intervals(programs, evaluators),
        _variants(programs, evaluators),
    ]


def _names(programs: Iterable[Ranked], attribute: str) -> list[str]:
    return list(dict.fromkeys(getattr(p, attribute) for p in programs))


def _known(programs: Sequence[Ranked], evaluator: str) -> list[Ranked]:
    """All programs if each has the evaluator, else none."""
    return list(programs) if all(evaluator in p.predictions for p in programs) else []


def _facts(programs: Sequence[Ranked]) -> Table:
    rows: list[list[Cell]] = []
    for p in programs:
        count, changes = len(p.variants), 100 * np.expm1(p.changes)
        row: list[Cell] = [p.name, p.kind, p.run_s, count, p.rounds]
        row += [float(changes.min()), float(changes.max())]
        rows.append([*row, p.measured.resolved_pairs(), count * (count - 1) // 2])
    columns = {
        "program": "text",
        "kind": "text",
        "a run": "seconds:2",
        "variants": "integer",
        "rounds": "integer",
        "fastest": "percent:+1",
        "slowest": "percent:+1",
        "resolved pairs": "integer",
        "pairs": "integer",
    }
    caption = "Programs; times of the fastest and slowest variant against the default one."
    return Table.of("programs", caption, columns, rows)


def _taus(
    name: str, caption: str, kinds: Mapping[str, Sequence[Ranked]], evaluators: Sequence[str]
) -> Table:
    rows: list[list[Cell]] = []
    for evaluator in evaluators:
        row: list[Cell] = [evaluator]
        for programs in kinds.values():
            known = [(p, p.measured.resolved_pairs()) for p in _known(programs, evaluator)]
            pairs = [count for _, count in known if count]
            found = [p.tau(evaluator).value for p, count in known if count]
            if found:
                # Of a program with few resolved pairs, one value says little.
                pooled = float(np.average(found, weights=pairs))
                row += [pooled, float(np.mean(found)), min(found)]
            else:
                row += [None, None, None]
        rows.append(row)
    columns = {"evaluator": "text"}
    for kind in kinds:
        columns |= {f"{kind}, {part}": "number:2" for part in ("pairs", "mean", "worst")}
    return Table.of(name, f"{caption}.", columns, rows)


def _by_program(kinds: Mapping[str, Sequence[Ranked]], evaluators: Sequence[str]) -> Table:
    found = {
        (p.name, f"{kind}, {evaluator}"): p.tau(evaluator).value
        for kind, programs in kinds.items()
        for p in programs
        for evaluator in evaluators
    }
    heads = list(dict.fromkeys(head for _, head in found))
    rows: list[list[Cell]] = []
    for name in dict.fromkeys(name for name, _ in found):
        values = (found.get((name, head), np.nan) for head in heads)
        rows.append([name, *(None if np.isnan(value) else value for value in values)])
    columns = {"program": "text"} | dict.fromkeys(heads, "number:2")
    return Table.of("tau-by-program", "Kendall's tau on resolved pairs.", columns, rows)


def _shares(
    name: str,
    caption: str,
    kinds: Mapping[str, Sequence[Ranked]],
    evaluators: Sequence[str],
    judged: Callable[[Ranked, str], list[bool]],
) -> Table:
    """A share of variants of all programs, by evaluator and kind, and of how many."""
    rows: list[list[Cell]] = []
    for evaluator in evaluators:
        row: list[Cell] = [evaluator]
        for programs in kinds.values():
            found = [one for p in _known(programs, evaluator) for one in judged(p, evaluator)]
            row += [100 * float(np.mean(found)), len(found)] if found else [None, None]
        rows.append(row)
    columns = {"evaluator": "text"}
    for kind in kinds:
        columns |= {kind: "percent:0", f"{kind}, of": "integer"}
    return Table.of(name, f"{caption}.", columns, rows)


def _evaluation(programs: Sequence[Ranked], evaluators: Sequence[str]) -> Table:
    timed = [p for p in programs if p.evaluation_s]
    rows: list[list[Cell]] = []
    for evaluator in evaluators:
        known = [p.evaluation_s[evaluator] for p in timed if evaluator in p.evaluation_s]
        if known:
            rows.append([evaluator, float(np.median(known)), max(known)])
    columns = {"evaluator": "text", "median": "seconds:2", "worst program": "seconds:2"}
    caption = "Processor time to evaluate the default variant, once its run is recorded."
    return Table.of("evaluation", caption, columns, rows)


def _intervals(programs: Sequence[Ranked], evaluators: Sequence[str]) -> Table:
    rows: list[list[Cell]] = [
        [p.name, p.kind, *(_cell(p.tau(e)) if e in p.predictions else None for e in evaluators)]
        for p in programs
    ]
    columns = {"program": "text", "kind": "text"} | dict.fromkeys(evaluators, "number:2")
    caption = "Kendall's tau on resolved pairs (95% interval)."
    return Table.of("intervals", caption, columns, rows)


def _variants(programs: Sequence[Ranked], evaluators: Sequence[str]) -> Table:
    """Each variant's change against the default one, measured and predicted."""
    rows: list[list[Cell]] = []
    for p in programs:
        ends = (
            100 * np.expm1(end - p.measured.log_time[0])
            for end in (p.measured.low, p.measured.high)
        )
        changes = np.stack([100 * np.expm1(p.changes), *ends], axis=1).round(3).tolist()
        predicted = {e: 100 * np.expm1(p.predicted(e)) for e in evaluators if e in p.predictions}
        for i, (variant, measured) in enumerate(zip(p.variants, changes, strict=True)):
            costs = (predicted[e][i] if e in predicted else np.nan for e in evaluators)
            shown = (round(float(cost), 3) if np.isfinite(cost) else None for cost in costs)
            rows.append([p.name, p.kind, variant, tuple(measured), *shown])
    columns = {"program": "text", "kind": "text", "variant": "text", "measured": "percent:+1"}
    columns |= dict.fromkeys(evaluators, "percent:+1")
    return Table.of("variants", "Changes against the default variant.", columns, rows)


def _cell(estimate: Estimate) -> Cell:
    """The value with its interval; None if there is no value."""
    if np.isnan(estimate.value):
        return None
    return round(estimate.value, 4), round(estimate.low, 4), round(estimate.high, 4)
