# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How many bytes of code a program needs most of the time: the event "hot-code-bytes"."""

from collections.abc import Mapping

from compiler_opt_perf.profile.counts import Counts
from compiler_opt_perf.profile.events import event_named

# The hot code is what executes this share of all executed instructions.
_HOT_SHARE = 0.99


def hot_instructions(executions: Mapping[int, int]) -> set[int]:
    """The fewest addresses that have 99% of all executions; of equals, the lowest first."""
    wanted = _HOT_SHARE * sum(executions.values())
    hot = set()
    for address, count in sorted(executions.items(), key=lambda item: (-item[1], item[0])):
        if wanted <= 0:
            break
        hot.add(address)
        wanted -= count
    return hot


def add_hot_code(counts: Counts, sizes: Mapping[int, int]) -> None:
    """Adds the event "hot-code-bytes": the size of each hot instruction, and zero for the others.

    Nothing is added to counts without executions. A function's total / 64 is the number of its hot
    cache lines, as if they held nothing else.

    Args:
      sizes: bytes of each executed instruction, by address.
    """
    names = [event.name for event in counts.events]
    if "executions" not in names:
        return
    executions = names.index("executions")
    hot = hot_instructions({address: row[executions] for address, row in counts.at.items()})
    for address, row in counts.at.items():
        row.append(sizes.get(address, 0) if address in hot else 0)
    counts.events = (*counts.events, event_named("hot-code-bytes"))
    counts.outside.append(0)
    counts.periods.append(1)
    counts.precise.append(counts.precise[executions])
