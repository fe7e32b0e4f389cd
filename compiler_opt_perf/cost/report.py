# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reports the costs of candidates as text and as JSON values (docs/reference/formats.md)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler_opt_perf.cost.evaluator import RECORDED, Cost, Evaluator, difference_error
from compiler_opt_perf.run.symbol_names import demangled

# Fields of llvm-trace-cost's report that are not shown.
_DETAILS = {"format", "version", "functions", "sample_residuals"}
_MODELLED = ("execution", "l1_miss", "llc_miss", "mispredict", "front_end")


@dataclass(frozen=True)
class CandidateCost:
    """The cost of one compilation of a program.

    Attributes:
      name: the user's name of the candidate; empty if it is the only one.
      files: its object files, or its binary.
      cost: its cost.
    """

    name: str
    files: tuple[Path, ...]
    cost: Cost


def describe(evaluator: Evaluator, candidates: Sequence[CandidateCost], top: int) -> str:
    """Totals and their parts; for several candidates, the differences from the first.

    One candidate is shown with its `top` costliest functions, several with the `top` functions
    that differ most.
    """
    if len(candidates) == 1:
        cost = candidates[0].cost
        lines = [f"{evaluator.name}: {cost.total:,.0f} {evaluator.unit}", *_remarks(cost)]
        costliest = _shown_functions(candidates, top)
        names = demangled([name for name, _ in costliest])
        lines += [f"{value:16,.0f}  {names[name]}" for name, (value,) in costliest]
        return "\n".join(lines) + "\n"
    first, *others = candidates
    width = max(len("candidate"), *(len(candidate.name) for candidate in candidates))
    lines = [
        f"{evaluator.name}: {evaluator.unit}, and differences from {first.name}",
        f"{'candidate':{width}}{'total':>20}{'change':>18}{'':10}{'standard error':>16}",
        f"{first.name:{width}}{first.cost.total:20,.0f}",
    ]
    for candidate in others:
        change, error = (
            candidate.cost.total - first.cost.total,
            difference_error(candidate.cost, first.cost),
        )
        shown = "" if error is None else _percent(error, first.cost.total, sign="")
        lines.append(
            f"{candidate.name:{width}}{candidate.cost.total:20,.0f}{change:+18,.0f}"
            f"{_percent(change, first.cost.total):>10}{shown:>16}".rstrip()
        )
    for candidate in candidates:
        remarks = _remarks(candidate.cost)
        lines += ["", candidate.name, *(f"  {remark}" for remark in remarks)] if remarks else []
    changes = _shown_functions(candidates, top)
    if changes:
        names = demangled([name for name, _ in changes])
        header = f"{first.name:>16}" + "".join(f"{candidate.name[:15]:>16}" for candidate in others)
        lines += ["", f"{header}  function (cost, then changes)"]
        lines += [
            f"{values[0]:16,.0f}"
            + "".join(f"{value - values[0]:+16,.0f}" for value in values[1:])
            + f"  {names[name]}"
            for name, values in changes
        ]
    return "\n".join(lines) + "\n"


def document(evaluator: Evaluator, candidates: Sequence[CandidateCost], top: int) -> dict[str, Any]:
    """The content of `describe` as JSON values."""
    first = candidates[0].cost
    functions = _shown_functions(candidates, top)
    names = demangled([name for name, _ in functions])
    return {
        "evaluator": evaluator.name,
        "unit": evaluator.unit,
        "candidates": [
            {
                "name": candidate.name or None,
                "files": [str(path) for path in candidate.files],
                "total": candidate.cost.total,
                "standard_error": candidate.cost.standard_error,
                "change": candidate.cost.total - first.total,
                "change_standard_error": difference_error(candidate.cost, first),
                "report": {k: v for k, v in candidate.cost.report.items() if k not in _DETAILS},
            }
            for candidate in candidates
        ],
        "functions": [
            {"function": name, "name": names[name], "costs": costs} for name, costs in functions
        ],
    }


def _shown_functions(
    candidates: Sequence[CandidateCost], top: int
) -> list[tuple[str, list[float]]]:
    """The functions to show, with their cost in each candidate (see `describe`)."""
    rows = [
        (name, [candidate.cost.parts.get(name, 0.0) for candidate in candidates])
        for name in {name for candidate in candidates for name in candidate.cost.parts}
    ]
    if len(candidates) == 1:
        return sorted(rows, key=lambda row: (-row[1][0], row[0]))[:top]

    def change(costs: Sequence[float]) -> float:
        return max(abs(cost - costs[0]) for cost in costs)

    different = [row for row in rows if change(row[1])]
    return sorted(different, key=lambda row: (-change(row[1]), row[0]))[:top]


def _percent(part: float, whole: float, sign: str = "+") -> str:
    return f"{part / whole:{sign}.2%}" if whole else "-"


def _remarks(cost: Cost) -> list[str]:
    """Remarks on a total: executions, uncertainty, and parts of the prediction."""
    lines = []
    report: Mapping[str, Any] = cost.report
    if recorded := report.get(RECORDED):
        lines.append(
            f"recorded by itself: {recorded['blocks']:,} blocks, {recorded['seconds']:.1f} s of "
            f"processor time, at most {recorded['peak_mib']:.0f} MiB"
        )
    if other := report.get("elsewhere"):
        lines.append(
            f"instructions in other objects, such as the C library: {other['instructions']:,}, "
            f"{other['cycles'] / cost.total:.1%} of the cycles"
        )
    if "trace" in report:
        own = report["executions"]
        lines.append(
            f"executions of its blocks: {own:,}; instructions {report['instructions']:,.0f}"
        )
        for what, text in (
            ("foreign", "in functions that the code does not have"),
            ("unmapped", "of blocks that its functions do not have, charged the mean"),
            ("added", "of blocks that the traced functions do not have"),
            ("changed", "in functions with other block ids than the traced ones"),
            ("unsupported", "of instructions that the CPU's model does not know"),
        ):
            if executions := report.get(what, {}).get("executions", 0):
                lines.append(f"executions {text}: {executions:,}")
        if different := report.get("different_executions"):
            lines.append(f"executions of blocks that compute something else: {different:,}")
        if cost.standard_error is not None and cost.total:
            lines.append(f"standard error of sampling: {cost.standard_error / cost.total:.2%}")
        if report["trace"]["truncated"]:
            lines.append("the recording was cut off")
    if "pieces" in report:
        all_of_them = report["pieces"]["executions"]
        lines += [
            f"executions of pieces of blocks without prediction, charged the mean: {count:,} "
            f"({count / all_of_them:.2%}): {why}"
            for why, count in report["pieces"]["refused"].items()
        ]
        lines += [
            f"  {name}: {row['cycles']:,.0f} cycles, weight {row['weight']:.3f}"
            for name, row in report.get("correction", {}).items()
        ]
    elif "cycles" in report:
        cycles = report["cycles"]
        lines += [
            f"  {part.replace('_', ' ')}: {cycles[part] / cost.total:.1%}"
            for part in _MODELLED
            if cost.total
        ]
    return lines
