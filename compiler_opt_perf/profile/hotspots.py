# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the most costly functions and lines of a PMU profile."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler_opt_perf.binary.symbolize import DeclaredAt, Line
from compiler_opt_perf.profile.events import Rate
from compiler_opt_perf.profile.profile import CountList, Profile
from compiler_opt_perf.profile.rates import RateEstimate
from compiler_opt_perf.run.symbol_names import printable

# Larger files are not read: they are no hand-written sources.
_LARGEST_SOURCE = 16 << 20


@dataclass(frozen=True)
class Hotspot:
    """A function or line, with its cost.

    Attributes:
      function: linkage name.
      line: the line; None for a whole function.
      source: the function's first line, or the line itself; None when unknown.
      counts: counts in the order of the manifest's events.
      cost: nominal cycles lost to misses and mispredicts; see Event.penalty_cycles.
      estimates: one estimate for each of `shown_rates`.
    """

    function: str
    line: Line | None
    source: DeclaredAt | None
    counts: CountList
    cost: int
    estimates: tuple[RateEstimate, ...]


def cost(profile: Profile, counts: Sequence[int]) -> int:
    """The cost of the misses and mispredicts in `counts`, in nominal cycles."""
    events = profile.samples.events
    return sum(event.penalty_cycles * n for event, n in zip(events, counts, strict=True))


def shown_rates(profile: Profile) -> tuple[Rate, ...]:
    """The first rate of each event that has a cost."""
    costly = {event.name for event in profile.samples.events if event.penalty_cycles}
    first: dict[str, Rate] = {}
    for rate in profile.manifest.rates:
        if rate.numerator in costly:
            first.setdefault(rate.numerator, rate)
    return tuple(first.values())


def top_functions(profile: Profile, number: int) -> list[Hotspot]:
    """The most costly functions, costliest first; inlined copies count for the inlined function."""
    totals = {name: profile.total(name) for name in profile.functions}
    chosen = sorted(totals, key=lambda name: (-cost(profile, totals[name]), name))[:number]
    return [
        Hotspot(
            name,
            None,
            profile.sources.get(name),
            totals[name],
            cost(profile, totals[name]),
            tuple(profile.of_function(rate, name) for rate in shown_rates(profile)),
        )
        for name in chosen
        if cost(profile, totals[name])
    ]


def top_lines(profile: Profile, number: int) -> list[Hotspot]:
    """The most costly source lines, costliest first; discriminators of one line are added up."""
    places: dict[tuple[str, int], CountList] = {}
    for name, lines in profile.functions.items():
        for line, counts in lines.items():
            known = places.setdefault((name, line.offset), [0] * len(counts))
            for index, count in enumerate(counts):
                known[index] += count
    chosen = sorted(places, key=lambda place: (-cost(profile, places[place]), place))[:number]
    hotspots = []
    for name, offset in chosen:
        counts = places[name, offset]
        if not cost(profile, counts):
            break
        source = profile.sources.get(name)
        hotspots.append(
            Hotspot(
                name,
                Line(offset, 0),
                DeclaredAt(source.file, source.line + offset) if source else None,
                counts,
                cost(profile, counts),
                tuple(
                    profile.estimate(rate, counts, profile.of_function(rate, name).shrunk)
                    for rate in shown_rates(profile)
                ),
            )
        )
    return hotspots


class SourceText:
    """Reads lines of source files that are still where they were compiled."""

    def __init__(self) -> None:
        self._files: dict[str, list[str]] = {}

    def line(self, source: DeclaredAt | None) -> str:
        """The line's text without indentation; empty if the file cannot be read."""
        if source is None:
            return ""
        if source.file not in self._files:
            # The profile names the file, so it may be any file on this machine.
            text = ""
            try:
                path = Path(source.file)
                if path.is_file() and path.stat().st_size <= _LARGEST_SOURCE:
                    text = path.read_text(encoding="utf-8", errors="replace")
            except OSError:
                pass
            self._files[source.file] = text.splitlines()
        lines = self._files[source.file]
        if not 0 < source.line <= len(lines):
            return ""
        return printable(lines[source.line - 1].expandtabs().strip())
