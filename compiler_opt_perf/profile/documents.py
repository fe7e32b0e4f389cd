# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The reports of `report.py` and `coverage.py` as JSON values (docs/reference/formats.md)."""

from collections.abc import Collection, Sequence
from typing import Any

from compiler_opt_perf.profile.changes import Change, changed_rates
from compiler_opt_perf.profile.coverage import Coverage, Lookups
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
from compiler_opt_perf.run.symbol_names import demangled

Json = dict[str, Any]


def summary(manifest: Manifest, executed: Collection[str] | None = None) -> Json:
    """`report.summarize` as JSON. Raises PmuError: the function table is damaged."""
    collector = manifest.collector
    return {
        "profile": str(manifest.path),
        "program": {"path": manifest.program.path, "build_id": manifest.program.build_id},
        "collector": {
            "backend": collector.backend,
            "tool": collector.tool,
            "command": list(collector.command),
            "cache_geometry": dict(collector.cache_geometry),
            "runs": collector.runs,
            "within": collector.within or None,
        },
        "functions": functions(manifest.read_functions(), executed),
        "events": [
            {
                "name": event.name,
                "total": event.total,
                "located": event.located,
                "outside": event.outside,
                "period": event.period,
                "precise": event.precise,
            }
            for event in manifest.events
        ],
        "rates": [
            {
                "name": rate.name,
                "numerator": manifest.event(rate.numerator).located,
                "denominator": manifest.event(rate.denominator).located,
                "unit": rate.unit,
            }
            for rate in manifest.rates
        ],
    }


def functions(table: FunctionTable | None, executed: Collection[str] | None) -> Json | None:
    """`report.describe_functions` as JSON; None if the profile has no function table."""
    if table is None:
        return None
    return {
        "profiled": len(table),
        "unexecuted": None if executed is None else table.unexecuted(executed),
        "with_checksum": table.with_checksum,
    }


def show(profile: Profile, number: int) -> Json:
    """`report.show` as JSON: the summary, and the `number` most costly functions and lines."""
    events = profile.samples.events
    costly = {event.name: event.penalty_cycles for event in events if event.penalty_cycles}
    hot, lines = [], []
    if costly:
        hot, lines = top_functions(profile, number), top_lines(profile, number)
    names = demangled(sorted({spot.function for spot in (*hot, *lines)}))
    texts = SourceText()
    return {
        **summary(profile.manifest, profile.executed),
        "penalty_cycles": costly,
        "cost_cycles": cost(profile, profile.samples.located),
        "hot_functions": [_hotspot(profile, spot, names, texts) for spot in hot],
        "hot_lines": [_hotspot(profile, spot, names, texts) for spot in lines],
    }


def _hotspot(profile: Profile, spot: Hotspot, names: dict[str, str], texts: SourceText) -> Json:
    value = {
        "function": spot.function,
        "name": names[spot.function],
        "file": spot.source.file if spot.source else None,
        "line": spot.source.line if spot.source else None,
        "cost_cycles": spot.cost,
        "rates": {
            rate.name: _estimate(estimate)
            for rate, estimate in zip(shown_rates(profile), spot.estimates, strict=True)
        },
    }
    if spot.line is not None:
        value |= {"offset": spot.line.offset, "text": texts.line(spot.source) or None}
    return value


def _estimate(estimate: RateEstimate) -> Json | None:
    """A rate with its 95% confidence interval; None if the denominator is zero."""
    if estimate.raw is None:
        return None
    return {
        "numerator": estimate.numerator,
        "denominator": estimate.denominator,
        "low": estimate.low,
        "high": estimate.high,
    }


def diff(before: Profile, after: Profile, number: int) -> Json:
    """`report.diff` as JSON, with the `number` changes of largest weight."""
    changes = changed_rates(before, after)
    names = demangled(sorted({change.function for change in changes[:number]}))
    return {
        "before": summary(before.manifest),
        "after": summary(after.manifest),
        "changed_functions": len(changes),
        "changes": [_change(change, names) for change in changes[:number]],
        "functions_only_before": len(before.functions.keys() - after.functions.keys()),
        "functions_only_after": len(after.functions.keys() - before.functions.keys()),
    }


def _change(change: Change, names: dict[str, str]) -> Json:
    return {
        "function": change.function,
        "name": names[change.function],
        "event": change.rate.numerator,
        "rate": change.rate.name,
        "before": _estimate(change.before),
        "after": _estimate(change.after),
        "weight": change.weight,
    }


def coverages(found: Sequence[tuple[str, Coverage]]) -> Json:
    """`coverage.describe` as JSON, for each file."""
    return {"files": [_coverage(name, coverage) for name, coverage in found]}


def _coverage(name: str, found: Coverage) -> Json:
    return {
        "file": name,
        "warning": found.functions.warning,
        "functions": {
            "total": found.functions.total,
            "executed": found.functions.executed,
            "unexecuted": found.functions.unexecuted,
            "unknown": found.functions.unknown,
            "own": found.functions.own,
            "own_known": found.functions.own_known,
            "comparable": found.functions.comparable,
            "moved": found.functions.moved,
            "changed": found.functions.changed,
        },
        "instructions": _lookups(found.instructions),
        "unexecuted_instructions": found.unexecuted,
        "counts": {event.name: _lookups(lookups) for event, lookups in found.counts},
    }


def _lookups(lookups: Lookups) -> Json:
    return {
        "total": lookups.total,
        "exact": lookups.exact,
        "flattened": lookups.flattened,
        "missing": lookups.missing,
    }
