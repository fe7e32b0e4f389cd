# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A PMU profile in memory, with its rates by program, function and line."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from compiler_opt_perf.binary.symbolize import DeclaredAt, Line
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.events import EVENTS, Event, Rate
from compiler_opt_perf.profile.function_table import FunctionTable
from compiler_opt_perf.profile.manifest import EventFile, Manifest
from compiler_opt_perf.profile.rates import RateEstimate, shrink, trial_size, wilson
from compiler_opt_perf.profile.sample_profile import FunctionSamples, SampleProfile
from compiler_opt_perf.run.files import read_input
from compiler_opt_perf.run.json_text import Count, CText, JsonError, decode

_COLLECT_AGAIN = "collect the profile again"

# The table of sources: linkage name -> (file, first line); the file may be empty.
_Sources = dict[str, tuple[CText, Count]]
# One count per event, in the manifest's order.
CountList = list[int]


class Profile:
    """The counts of a PMU profile, by source function and line.

    Inlined copies of a function are added to the function; `samples` keeps them apart.

    Attributes:
      manifest: the profile's manifest.
      samples: the sample profiles, with inline stacks.
      functions: linkage name -> line -> counts, without functions that have no lines of their own.
      executed: names of all functions with samples, also without lines of their own.
      sources: linkage name -> file and first line; empty if the profile has no such table.
      table: the functions of the profiled binary; None if the profile has no such table.
      index: name of an event -> its index in counts.
    """

    def __init__(
        self,
        manifest: Manifest,
        samples: SampleProfile,
        sources: dict[str, DeclaredAt] | None = None,
        table: FunctionTable | None = None,
    ):
        self.manifest = manifest
        self.samples = samples
        self.sources = sources or {}
        self.table = table
        self.functions: dict[str, dict[Line, CountList]] = {}
        self.executed: set[str] = set()
        for name, function in samples.functions.items():
            self.executed.update(names_in(name, function))
            for innermost, line, counts in lines_of(name, function):
                lines = self.functions.setdefault(innermost, {})
                known = lines.setdefault(line, [0] * len(counts))
                for index, count in enumerate(counts):
                    known[index] += count
        self.index = {event.name: index for index, event in enumerate(manifest.events)}
        # Results of `total`.
        self._totals: dict[str, CountList] = {}

    @classmethod
    def load(cls, path: Path) -> "Profile":
        """Reads a manifest and the files that it names.

        Raises:
          PmuError: a file is missing, damaged, or not in its format.
          CommandError: llvm-profdata refused a sample profile.
        """
        manifest = Manifest.load(path)
        samples = SampleProfile([known_event(event) for event in manifest.events])
        for event, record in zip(samples.events, manifest.events, strict=True):
            samples.read(event, manifest.file(record))
        return cls(manifest, samples, read_sources(manifest), manifest.read_functions())

    def did_not_run(self, function: str) -> bool:
        """Whether a function was profiled and did not run; False if the profile does not know."""
        return self.table is not None and function in self.table and function not in self.executed

    def total(self, function: str) -> CountList:
        """The counts of all lines of a function."""
        if function not in self._totals:
            lines = self.functions[function].values()
            self._totals[function] = _add_up(lines, len(self.index))
        return self._totals[function]

    def estimate(self, rate: Rate, counts: Sequence[int], towards: float | None) -> RateEstimate:
        """Estimates the rate of a location with `counts`, shrunk towards the rate `towards`."""
        numerator = counts[self.index[rate.numerator]]
        denominator = counts[self.index[rate.denominator]]
        low, high = 0.0, 1.0
        if denominator:
            raw = min(numerator / denominator, 1.0)
            trials = denominator / trial_size(
                raw,
                self.manifest.event(rate.numerator).period,
                self.manifest.event(rate.denominator).period,
            )
            low, high = wilson(raw * trials, trials)
        strength = rate.prior_share * self.manifest.event(rate.denominator).total
        shrunk = shrink(numerator, denominator, towards, strength)
        return RateEstimate(numerator, denominator, shrunk, low, high)

    def of_program(self, rate: Rate) -> RateEstimate:
        """The rate of the whole program."""
        return self.estimate(rate, self.samples.located, None)

    def of_function(self, rate: Rate, function: str) -> RateEstimate:
        """The rate of a function, shrunk towards the program's."""
        return self.estimate(rate, self.total(function), self.of_program(rate).raw)

    def of_line(self, rate: Rate, function: str, line: Line) -> RateEstimate:
        """The rate of a line, shrunk towards its function's. The compiler computes the same."""
        around = self.of_function(rate, function).shrunk
        return self.estimate(rate, self.functions[function][line], around)


def lines_of(function: str, samples: FunctionSamples) -> Iterator[tuple[str, Line, CountList]]:
    """Yields (function, line, counts) for each line in `samples`, inlined functions included."""
    for line, counts in samples.lines.items():
        yield function, line, counts
    for site, inlined in samples.callees.items():
        yield from lines_of(site.callee, inlined)


def names_in(function: str, samples: FunctionSamples) -> Iterator[str]:
    """Yields the function's name and the names of functions inlined into it."""
    yield function
    for site, inlined in samples.callees.items():
        yield from names_in(site.callee, inlined)


def read_sources(manifest: Manifest) -> dict[str, DeclaredAt]:
    """Reads the profile's table of sources; empty if it has none. Raises PmuError."""
    if manifest.sources is None:
        return {}
    path = manifest.path.parent / manifest.sources.file
    try:
        table = decode(read_input(path), _Sources, path)
    except OSError as error:
        raise PmuError(f"{path}: cannot be read: {error.strerror}; {_COLLECT_AGAIN}") from error
    except JsonError as error:
        raise PmuError(f"{error}; {_COLLECT_AGAIN}") from error
    return {name: DeclaredAt(*place) for name, place in table.items()}


def known_event(record: EventFile) -> Event:
    """The row of `EVENTS` for a manifest's event; a new row for an event of a later version."""
    for event in EVENTS:
        if event.name == record.name:
            return event
    return Event(record.name, record.kind, record.unit)


def _add_up(lists: Iterable[CountList], size: int) -> CountList:
    total = [0] * size
    for counts in lists:
        for index, count in enumerate(counts):
            total[index] += count
    return total
