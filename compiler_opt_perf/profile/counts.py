# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Counts of events at the instructions of one binary: the result of a back-end."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from compiler_opt_perf.binary.symbolize import Symbols
from compiler_opt_perf.profile.events import Event
from compiler_opt_perf.profile.sample_profile import SampleProfile


@dataclass
class Counts:
    """Counts by instruction.

    Attributes:
      events: the counted events.
      by_address: link-time address of an instruction -> one count per event. Executed instructions
        have counts; zeros mark an instruction that was not executed.
      outside: for each event, the counts in other code.
      calls: (address of the call instruction, address of the callee) -> number of calls, both in
        the binary. The caller is None for calls from other code.
      periods: for each event, the occurrences that one sample stands for; 1 if each was counted.
        Counts are already multiplied by it.
      precise: for each event, whether counts belong to exactly the instruction that caused them.
      sampled: whether events were sampled, so that an instruction without samples may have run.
    """

    events: tuple[Event, ...]
    by_address: dict[int, list[int]]
    outside: list[int]
    calls: dict[tuple[int | None, int], int]
    periods: list[int] = field(default_factory=list)
    precise: list[bool] = field(default_factory=list)
    sampled: bool = False

    def __post_init__(self) -> None:
        self.periods = self.periods or [1] * len(self.events)
        self.precise = self.precise or [True] * len(self.events)

    def add_unexecuted(self, addresses: Iterable[int]) -> bool:
        """Marks `addresses`, which have no counts, as not executed, if each execution was counted.

        Does nothing and returns False if events were sampled: an instruction without a sample may
        still have been executed.
        """
        if not self.sampled:
            for address in addresses:
                self.by_address[address] = [0] * len(self.events)
        return not self.sampled

    def totals(self) -> list[int]:
        """For each event, the sum of counts in the binary."""
        totals = [0] * len(self.events)
        for counts in self.by_address.values():
            for index, count in enumerate(counts):
                totals[index] += count
        return totals

    def attribute(self, symbols: Symbols) -> SampleProfile:
        """Adds up counts by source location; instructions without a location are left out."""
        profile = SampleProfile(self.events)
        for address, counts in self.by_address.items():
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
