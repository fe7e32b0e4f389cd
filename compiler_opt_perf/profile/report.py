# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Text reports of PMU profiles: summary, hotspots, and differences of two profiles."""

import math
import textwrap
from collections.abc import Collection, Sequence

from compiler_opt_perf.profile.changes import changed_rates
from compiler_opt_perf.profile.events import Rate
from compiler_opt_perf.profile.function_table import FunctionTable
from compiler_opt_perf.profile.hotspots import (
    Hotspot,
    SourceText,
    cost,
    shown_rates,
    top_functions,
    top_lines,
)
from compiler_opt_perf.profile.manifest import Manifest
from compiler_opt_perf.profile.profile import Profile
from compiler_opt_perf.profile.rates import RateEstimate
from compiler_opt_perf.run.symbol_names import demangled, printable, shortened

# Widths in columns: of the report, of its indentation, and of a location in a plot.
_WIDTH = 100
_INDENT = 9
PLOT_WIDTH = 72
# Rates below this one matter to nobody, whatever their digits.
_LEAST_RATE = 1e-4


def summarize(manifest: Manifest, executed: Collection[str] | None = None) -> str:
    """Summarises a profile: program, command, total of each event, and rates of the program.

    Rates are computed from counts with a source location, which the compiler sees.

    Args:
      manifest: the profile's manifest.
      executed: names of the functions with samples; None if unknown.

    Raises:
      PmuError: the function table is damaged.
    """
    program, collector = manifest.program, manifest.collector
    caches = "".join(f", {name} {cache}" for name, cache in collector.cache_geometry.items())
    runs = f" and {collector.runs - 1} more" if collector.runs > 1 else ""
    within = f", {collector.scope} only" if collector.within else ""
    lines = [
        f"program    {program.path}, build-id {program.build_id}",
        *_wrapped(f"command    {' '.join(collector.command)}{runs}{within}"),
        *_wrapped(f"collector  {collector.tool} ({collector.backend}){caches}"),
        f"functions  {describe_functions(manifest.read_functions(), executed)}",
        "",
        f"{'event':32}{'in the program':>16}{'located':>10}{'elsewhere':>16}",
    ]
    for event in manifest.events:
        sampled = f"  1 of {event.period:,}" if event.period > 1 else ""
        skid = "" if event.precise else ", by block"
        lines.append(
            f"{event.name:32}{event.total:16,}{_percent(event.located, event.total):>10}"
            f"{event.outside:16,}{sampled}{skid}"
        )
    lines += ["", f"{'rate':32}{'value':>16}"]
    for rate in manifest.rates:
        numerator = manifest.event(rate.numerator).located
        denominator = manifest.event(rate.denominator).located
        unit = f"  {rate.unit}" if rate.unit else ""
        lines.append(f"{rate.name:32}{rate_value(rate, numerator, denominator):>16}{unit}")
    return "\n".join(map(printable, lines)) + "\n"


def describe_functions(table: FunctionTable | None, executed: Collection[str] | None) -> str:
    """The number of profiled and of unexecuted functions, in words."""
    if table is None:
        return "unexecuted ones are unknown"
    text = f"{len(table):,} profiled"
    if executed is not None:
        text += f", {table.unexecuted(executed):,} of them did not run"
    return f"{text}; {table.with_checksum:,} with a checksum of their control flow"


def penalties(profile: Profile) -> str:
    """The nominal costs of events in cycles, which order hotspots, in words."""
    return ", ".join(
        f"{event.name} {event.penalty_cycles}"
        for event in profile.samples.events
        if event.penalty_cycles
    )


def show(profile: Profile, number: int) -> str:
    """The summary, and the `number` most costly functions and lines.

    A profile without events that have a cost, such as one of time only, has no hotspots.
    """
    if not penalties(profile):
        return summarize(profile.manifest, profile.executed)
    functions, lines = top_functions(profile, number), top_lines(profile, number)
    texts = SourceText()
    names = demangled(sorted({spot.function for spot in functions + lines}))
    rates = [rate.name for rate in shown_rates(profile)]
    everything = cost(profile, profile.samples.located)
    summary = summarize(profile.manifest, profile.executed)
    out = [summary, *_wrapped(f"cost in nominal cycles: {penalties(profile)}"), ""]
    for title, spots in (("functions", functions), ("lines", lines)):
        out += [f"most costly {title}; rates with 95% confidence interval", ""]
        for spot in spots:
            # A share below 0.01% is wider than its column.
            share = f"{_percent(spot.cost, everything):>{_INDENT - 2}}  "
            out.append(share + place(spot, names[spot.function], _WIDTH - len(share)))
            text = texts.line(spot.source) if spot.line is not None else ""
            if text:
                out.append(f"{'':{_INDENT}}| {_cut(text, _WIDTH - _INDENT - 2)}")
            occurred = [
                f"{rate} {interval(estimate)}"
                for rate, estimate in zip(rates, spot.estimates, strict=True)
                if estimate.numerator
            ]
            out += _packed(occurred)
        out.append("")
    return "\n".join(out)


def _wrapped(line: str) -> list[str]:
    """Wraps a line of the summary; continuation lines are indented to its second column."""
    return textwrap.wrap(
        line, _WIDTH, subsequent_indent=" " * 11, break_long_words=False, break_on_hyphens=False
    )


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _packed(cells: Sequence[str]) -> list[str]:
    """Packs as many cells into each line as fit."""
    lines: list[str] = []
    for cell in cells:
        if lines and len(lines[-1]) + 3 + len(cell) <= _WIDTH:
            lines[-1] += f"   {cell}"
        else:
            lines.append(f"{'':{_INDENT}}{cell}")
    return lines


def place(spot: Hotspot, name: str, width: int) -> str:
    """A hotspot's function, with file and line if known.

    The function's name is shortened to fit `width` columns, but keeps at least 20.
    """
    if spot.source is not None:
        file = printable(spot.source.file.rpartition("/")[2])
        detail = f" ({file}:{spot.source.line})"
    else:
        detail = "" if spot.line is None else f", line {spot.line.offset} of the function"
    return shortened(name, max(width - len(detail), 20)) + detail


def interval(estimate: RateEstimate) -> str:
    """A rate with confidence interval and denominator: "12% [10, 15] of 1.23M"."""
    if estimate.raw is None:
        return "-"
    known = _short(estimate) if estimate.high >= _LEAST_RATE else f"below {_LEAST_RATE:.2%}"
    return f"{known} of {_compact(estimate.denominator)}"


def diff(before: Profile, after: Profile, number: int) -> str:
    """The differences of two profiles: totals, rates, and rates of functions.

    Only functions whose rates differ significantly are listed.
    """
    old, new = before.manifest, after.manifest
    out = [f"before  {old.path}: {old.program.path}, build-id {old.program.build_id}"]
    out.append(f"after   {new.path}: {new.program.path}, build-id {new.program.build_id}")
    if old.collector.cache_geometry != new.collector.cache_geometry:
        out.append("note    the simulated caches differ, so misses cannot be compared")
    if old.collector.backend != new.collector.backend:
        out.append("note    one was counted by perf, the other simulated")
    if old.collector.scope != new.collector.scope:
        out.append(f"note    counted {old.collector.scope} before, {new.collector.scope} after")
    out += ["", f"{'event':32}{'before':>18}{'after':>18}{'change':>10}"]
    known = {event.name for event in old.events}
    for event in new.events:
        if event.name in known:
            earlier = old.event(event.name).total
            relative = f"{100 * (event.total / earlier - 1):+.2f}%" if earlier else "-"
            out.append(f"{event.name:32}{earlier:18,}{event.total:18,}{relative:>10}")
    missing = known ^ {event.name for event in new.events}
    if missing:
        out.append(f"only in one profile: {', '.join(sorted(missing))}")
    out += ["", f"{'rate':32}{'before':>18}{'after':>18}"]
    for rate in new.rates:
        values = [
            rate_value(
                rate, part.event(rate.numerator).located, part.event(rate.denominator).located
            )
            for part in (old, new)
            if {rate.numerator, rate.denominator} <= {event.name for event in part.events}
        ]
        if len(values) == 2:
            out.append(f"{rate.name:32}{values[0]:>18}{values[1]:>18}")
    changes = changed_rates(before, after)
    out += ["", f"functions whose rates differ by more than chance: {len(changes)}"]
    names = demangled(sorted({change.function for change in changes[:number]}))
    for change in changes[:number]:
        out.append(
            f"{change.weight:+14,.0f} {change.rate.numerator}: "
            f"{change.rate.name} {_short(change.before)} -> {_short(change.after)}"
            f"  {names[change.function]}"
        )
    absent = [
        (name, len(set(mine.functions) - set(other.functions)))
        for name, mine, other in (("before", before, after), ("after", after, before))
    ]
    out += [f"functions only in {name}: {count}" for name, count in absent if count]
    return "\n".join(out) + "\n"


def _short(estimate: RateEstimate) -> str:
    """A rate and its interval in percent, with the digits that the interval's width leaves."""
    value, low, high = (100 * share for share in (estimate.raw or 0, estimate.low, estimate.high))
    # At most three that are significant.
    digits = 2 - math.floor(math.log10(high)) if high > 0 else 0
    if high > low:
        digits = min(digits, -math.floor(math.log10(high - low)))
    digits = max(digits, 0)
    return f"{value:.{digits}f}% [{low:.{digits}f}, {high:.{digits}f}]"


def _compact(count: int) -> str:
    """A count with three digits: 1.23M."""
    for size, unit in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return str(count)


def rate_value(rate: Rate, numerator: int, denominator: int) -> str:
    """A rate in words: a share in percent, a mean such as a latency as a number."""
    if rate.is_mean:
        return f"{numerator / denominator:.3g}" if denominator else "-"
    return _percent(numerator, denominator)


def _percent(part: int, whole: int) -> str:
    if not whole:
        return "-"
    share = 100 * part / whole
    return "<0.001%" if 0 < share < 0.001 else f"{share:.3g}%"
