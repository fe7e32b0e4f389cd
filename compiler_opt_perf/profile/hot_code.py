# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Computes the event "hot-code-bytes": the size of a program's hot code."""

from collections.abc import Mapping

from compiler_opt_perf.profile.counts import Counts
from compiler_opt_perf.profile.events import event_named

# Hot code executes this share of all executed instructions.
_HOT_SHARE = 0.99


def hot_instructions(executions: Mapping[int, int]) -> set[int]:
    """The smallest set of addresses with 99% of all executions; lower addresses win ties."""
    wanted = _HOT_SHARE * sum(executions.values())
    hot = set()
    for address, count in sorted(executions.items(), key=lambda item: (-item[1], item[0])):
        if wanted <= 0:
            break
        hot.add(address)
        wanted -= count
    return hot


def add_hot_code(counts: Counts, sizes: Mapping[int, int]) -> None:
    """Adds the event "hot-code-bytes": the size of each hot instruction, zero for the others.

    Counts without executions stay as they are. A function's total / 64 is the least number of
    cache lines that hold its hot code.

    Args:
      counts: counts by instruction; changed in place.
      sizes: address of each executed instruction -> its size in bytes.
    """
    names = [event.name for event in counts.events]
    if "executions" not in names:
        return
    executions = names.index("executions")
    hot = hot_instructions({address: row[executions] for address, row in counts.by_address.items()})
    for address, row in counts.by_address.items():
        row.append(sizes.get(address, 0) if address in hot else 0)
    counts.events = (*counts.events, event_named("hot-code-bytes"))
    counts.outside.append(0)
    counts.periods.append(1)
    counts.precise.append(counts.precise[executions])
