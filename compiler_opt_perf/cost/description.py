# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a cost consists of, as text."""

from compiler_opt_perf.cost.evaluator import Cost, Evaluator


def describe(evaluator: Evaluator, cost: Cost, top: int) -> str:
    """A few lines on a cost: the total, what it consists of, the costliest parts."""
    lines = [f"{evaluator.name}: {cost.total:,.0f} {evaluator.unit}"]
    report = cost.report
    if "change" in report:
        share = report["change"] / report["measured"]
        lines.append(f"change: {report['change']:+,.0f} of {report['measured']:,} ({share:+.2%})")
        for name, entry in report["entries"].items():
            was, now = entry["base_instructions"], entry["instructions"]
            lines.append(
                f"entry {name}: {entry['calls']:,.0f} calls of {now:,.1f} instructions; "
                f"of {was:,.1f} in the profiled binary"
            )
    if "trace" in report:
        own = report["executions"]
        lines.append(
            f"executions of its blocks: {own:,}; instructions {report['instructions']:,.0f}"
        )
        for what, text in (
            ("foreign", "of functions that the code does not have"),
            ("unmapped", "of blocks that its functions do not have, charged the mean"),
            ("added", "of blocks that the traced functions do not have"),
            ("changed", "of functions with other block ids than the traced ones"),
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
    if "cycles" in report:
        cycles = report["cycles"]
        lines += [
            f"  {part.replace('_', ' ')}: {cycles[part] / cost.total:.1%}"
            for part in ("execution", "l1_miss", "llc_miss", "mispredict", "front_end")
            if cost.total
        ]
    costliest = sorted(cost.parts.items(), key=lambda item: (-item[1], item[0]))[:top]
    lines += [f"{value:16,.0f}  {name}" for name, value in costliest]
    return "\n".join(lines) + "\n"
