# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The events of a PMU profile and the rates made of them, as tables.

To add an event, add a row to `EVENTS`; it then has a sample profile of its own in every collected
profile. To give the compiler a rate of two events, add a row to `RATES`.
"""

from dataclasses import dataclass
from typing import Literal

# How the instructions of one source line are combined. An event is an occurrence on one of them,
# so events add up. Executions of the line do not: each of its instructions sees all of them.
Kind = Literal["sum", "max"]
KINDS: tuple[Kind, ...] = ("sum", "max")


@dataclass(frozen=True)
class Event:
    """Something counted at each instruction.

    Attributes:
      name: as in the manifest and in the profile's file name.
      kind: how counts of one line's instructions are combined.
      callgrind: the column of a callgrind dump that holds it; None when the simulator has none.
      unit: what one count stands for.
      penalty_cycles: nominal cycles that one occurrence costs a recent server core. Reports order
        functions and lines by it; nothing else depends on it.
      scaled_by_duplication: whether a count is multiplied by the duplication factor of its
        discriminator. An unrolled loop executes each of its N copies 1/N times as often as the
        source line, so this is right for executions, and wrong for sums.
    """

    name: str
    kind: Kind
    callgrind: str | None
    unit: str
    penalty_cycles: int = 0
    scaled_by_duplication: bool = False


@dataclass(frozen=True)
class Rate:
    """A ratio of two events that the compiler estimates at each location.

    With n of N numerator and d of D denominator counts at a location (capitals: of the program),
    and n_f of d_f in its function, the estimate is

        (n + a * p_f) / (d + a),   p_f = (n_f + a * p_0) / (d_f + a),   p_0 = N / D

    so that few counts are drawn towards the function's rate, and few counts in the function
    towards the program's.

    Attributes:
      name: as in the manifest.
      numerator, denominator: names of events of kind "sum". A sum must never be divided by a max.
      prior_strength: a, in counts of the denominator.
    """

    name: str
    numerator: str
    denominator: str
    prior_strength: float


EVENTS = (
    Event("executions", "max", "Ir", "executions", scaled_by_duplication=True),
    Event("instructions", "sum", "Ir", "instructions"),
    Event("cycles", "sum", None, "cycles"),
    Event("loads", "sum", "Dr", "loads"),
    Event("l1-load-misses", "sum", "D1mr", "misses", penalty_cycles=12),
    Event("llc-load-misses", "sum", "DLmr", "misses", penalty_cycles=200),
    Event("stores", "sum", "Dw", "stores"),
    Event("conditional-branches", "sum", "Bc", "branches"),
    Event("conditional-branch-mispredicts", "sum", "Bcm", "mispredicts", penalty_cycles=16),
    Event("indirect-branches", "sum", "Bi", "branches"),
    Event("icache-misses", "sum", "I1mr", "misses", penalty_cycles=12),
    # Bim, the mispredicted indirect branches, is left out: callgrind's predictor for them is so
    # crude (77% wrong in an interpreter) that its counts would mislead.
)

RATES = (
    Rate("llc-miss-probability", "llc-load-misses", "loads", 16.0),
    Rate("branch-mispredict-rate", "conditional-branch-mispredicts", "conditional-branches", 16.0),
    Rate("icache-miss-rate", "icache-misses", "instructions", 1000.0),
)
