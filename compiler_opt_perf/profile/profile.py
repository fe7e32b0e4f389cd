# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A collected PMU profile with its counts in memory, and rates at any place of it."""

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

# The table of sources, by function: a file, of which nothing may be known, and a line.
_Sources = dict[str, tuple[CText, Count]]
# One count an event, in the manifest's order.
CountList = list[int]


class Profile:
    """The counts of a PMU profile, by source function and line.

    Counts of inlined copies of a function are those of the function here; `samples` has them apart.

    Attributes:
      manifest: what the profile is of.
      samples: the sample profiles, with inline stacks.
      functions: for each function, by linkage name, the counts of its lines.
      executed: names of all functions with samples; of some all lines are those of functions that
        were inlined into them.
      sources: for each function, where it is; empty when the profile has no table of sources.
      table: the functions of the profiled binary, whether they ran or not; None when the profile
        has no such table.
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
        # What `total` has been asked for.
        self._totals: dict[str, CountList] = {}

    @classmethod
    def load(cls, path: Path) -> "Profile":
        """Reads a manifest and all that it names.

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
        """Whether a function was profiled and has no samples; False when it is not known."""
        return self.table is not None and function in self.table and function not in self.executed

    def total(self, function: str) -> CountList:
        """The counts of all lines of a function."""
        if function not in self._totals:
            lines = self.functions[function].values()
            self._totals[function] = _add_up(lines, len(self.index))
        return self._totals[function]

    def estimate(self, rate: Rate, counts: Sequence[int], towards: float | None) -> RateEstimate:
        """The rate of a place with `counts`, whose surroundings have the rate `towards`."""
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
        """The rate of a line, shrunk towards its function's; the compiler's own estimate."""
        around = self.of_function(rate, function).shrunk
        return self.estimate(rate, self.functions[function][line], around)


def lines_of(function: str, samples: FunctionSamples) -> Iterator[tuple[str, Line, CountList]]:
    """Each line with counts in `samples` and in what is inlined there, with its function."""
    for line, counts in samples.lines.items():
        yield function, line, counts
    for site, inlined in samples.callees.items():
        yield from lines_of(site.callee, inlined)


def names_in(function: str, samples: FunctionSamples) -> Iterator[str]:
    """The function, and all that are inlined there."""
    yield function
    for site, inlined in samples.callees.items():
        yield from names_in(site.callee, inlined)


def read_sources(manifest: Manifest) -> dict[str, DeclaredAt]:
    """The profile's table of sources; empty when it has none. Raises PmuError."""
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
    """The row of `EVENTS` for a manifest's event; one made up for an event of later versions."""
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
