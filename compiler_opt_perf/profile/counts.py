# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a back-end hands over: counts of events at the instructions of one binary."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from compiler_opt_perf.binary.symbolize import Symbols
from compiler_opt_perf.profile.events import Event
from compiler_opt_perf.profile.sample_profile import SampleProfile


@dataclass
class Counts:
    """Counts by instruction.

    Attributes:
      events: what was counted.
      at: for each executed instruction of the binary, by link-time address, one count an event;
        zeros for an instruction that is known not to have been executed.
      outside: for each event, the counts of all other code.
      calls: how often the call at one address entered the function at another, both in the binary;
        the caller is None for calls out of other code.
      periods: for each event, how many occurrences one sample stands for; 1 when each was counted.
        Counts are multiplied by it already.
      precise: for each event, whether it is attributed to exactly the instruction that caused it.
      sampled: of what happened only some was seen, so that what was not seen may have happened.
    """

    events: tuple[Event, ...]
    at: dict[int, list[int]]
    outside: list[int]
    calls: dict[tuple[int | None, int], int]
    periods: list[int] = field(default_factory=list)
    precise: list[bool] = field(default_factory=list)
    sampled: bool = False

    def __post_init__(self) -> None:
        self.periods = self.periods or [1] * len(self.events)
        self.precise = self.precise or [True] * len(self.events)

    def add_unexecuted(self, addresses: Iterable[int]) -> bool:
        """Gives zeros to `addresses`, which have no counts, if each execution was counted.

        The profile then says of their lines that they were not executed; about other lines it says
        nothing. Where samples were taken, nothing is known of an instruction without one: nothing
        is added then, and False returned.
        """
        if not self.sampled:
            for address in addresses:
                self.at[address] = [0] * len(self.events)
        return not self.sampled

    def totals(self) -> list[int]:
        """For each event, the counts in the binary."""
        totals = [0] * len(self.events)
        for counts in self.at.values():
            for index, count in enumerate(counts):
                totals[index] += count
        return totals

    def attribute(self, symbols: Symbols) -> SampleProfile:
        """The counts by source location; those of instructions without one are left out."""
        profile = SampleProfile(self.events)
        for address, counts in self.at.items():
            location = symbols.locations.get(address)
            if location is not None:
                profile.add(location, counts)
        profile.add_up_copies()
        for (caller, callee), count in self.calls.items():
            function = symbols.entries.get(callee)
            if function is not None:
                location = symbols.locations.get(caller) if caller is not None else None
                profile.add_call(location, function, count)
        return profile
