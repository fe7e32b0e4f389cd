# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables of the events and rates of a PMU profile.

Each row of `EVENTS` adds a sample profile to every collected profile. Each row of `RATES` gives
the compiler a rate of two events.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from compiler_opt_perf.run.json_text import Measure

# How the counts of one line's instructions combine. Events occur at single instructions, so their
# counts add up. Each execution of the line executes all of its instructions: take the maximum.
Combination = Literal["sum", "max"]
Cause = Literal["any", "load", "store", "conditional", "indirect"]
KINDS: tuple[Combination, ...] = ("sum", "max")


@dataclass(frozen=True)
class Event:
    """An event that is counted at each instruction.

    Attributes:
      name: its name in the manifest and in the sample profile's file name.
      kind: how the counts of one line's instructions combine.
      unit: the unit of counts.
      callgrind: its column in a callgrind dump; None if callgrind does not count it. An event with
        neither this nor `perf` is computed from other events.
      perf: its sources in perf, best first (docs/collect-in-hardware.md), by kind of source:
        "intel", "amd", "generic": a perf event; of several ("a|b") the first that exists.
        "software": a perf event that is read, but never recorded.
        "latency", "timed": an Intel event whose samples have the load latency as weight; the sum
        of weights, and the number of such loads.
        "branches", "ibs": the quantity to count in branch stacks, or in samples of AMD's IBS.
      period: occurrences between two samples of perf.
      caused_by: the kind of instruction it occurs at. Samples with skid are given to instructions
        of that kind in the same basic block.
      scaled_by_duplication: whether counts are multiplied by the duplication factor in the
        discriminator. An unrolled loop executes each of N copies 1/N times as often as the source
        line, so this corrects maxima (executions); sums need no correction.
      merged: how the counts of one line in several runs combine.
      penalty_cycles: nominal cost of one occurrence on a recent server core, in cycles. Only
        reports use it, to order functions and lines.
    """

    name: str
    kind: Combination
    unit: str
    callgrind: str | None = None
    perf: Mapping[str, str] = field(default_factory=dict)
    period: int = 100_003
    caused_by: Cause = "any"
    scaled_by_duplication: bool = False
    merged: Combination = "sum"
    penalty_cycles: int = 0


@dataclass(frozen=True)
class Rate:
    """A ratio of two events that the compiler estimates at each location.

    Let n / d be the counts of numerator and denominator at a location, n_f / d_f in its function,
    and N / D in the program. The estimate is

        (n + a * p_f) / (d + a),   p_f = (n_f + a * p_0) / (d_f + a),   p_0 = N / D

    A location with few counts shrinks towards its function's rate, and a function with few counts
    towards the program's. The prior weight a is a share of D, so it does not depend on the
    length of the run.

    Attributes:
      name: its name in the manifest.
      numerator, denominator: names of events of kind "sum". A sum must never be divided by a max.
      prior_share: a / D.
      unit: its unit, such as "misses per load".
    """

    name: str
    numerator: str
    denominator: str
    prior_share: Measure
    unit: str = ""

    @property
    def is_mean(self) -> bool:
        """Whether the rate is a mean, such as a latency, rather than a share."""
        return self.unit.startswith("cycles per ")


@dataclass(frozen=True)
class RateRow:
    """A rate that every profile with its two events contains.

    Attributes:
      name, numerator, denominator, unit: see `Rate`.
      prior_trials: the least prior weight a, in independent trials; a rate of fewer trials is
        mostly chance.
    """

    name: str
    numerator: str
    denominator: str
    prior_trials: float
    unit: str = ""

    def with_prior(self, share: float) -> Rate:
        """The rate with `prior_share` set to `share`."""
        return Rate(self.name, self.numerator, self.denominator, share, self.unit)


EVENTS = (
    Event(
        "executions",
        "max",
        "executions",
        callgrind="Ir",
        perf={"branches": "executions"},
        scaled_by_duplication=True,
    ),
    Event(
        "instructions",
        "sum",
        "instructions",
        callgrind="Ir",
        perf={"branches": "executions", "generic": "instructions"},
    ),
    Event("cycles", "sum", "cycles", perf={"intel": "cycles", "generic": "cycles"}),
    # The only event that perf can sample without hardware counters.
    Event("cpu-time", "sum", "nanoseconds", perf={"software": "cpu-clock"}),
    Event(
        "loads",
        "sum",
        "loads",
        callgrind="Dr",
        perf={"intel": "mem_inst_retired.all_loads", "ibs": "load", "generic": "L1-dcache-loads"},
        caused_by="load",
    ),
    Event(
        "l1-load-misses",
        "sum",
        "misses",
        callgrind="D1mr",
        perf={
            "intel": "mem_load_retired.l1_miss",
            "ibs": "l1 miss",
            "generic": "L1-dcache-load-misses",
        },
        period=10_007,
        caused_by="load",
        penalty_cycles=12,
    ),
    Event(
        "llc-load-misses",
        "sum",
        "misses",
        callgrind="DLmr",
        perf={"intel": "mem_load_retired.l3_miss", "ibs": "llc miss", "generic": "LLC-load-misses"},
        period=1009,
        caused_by="load",
        penalty_cycles=200,
    ),
    # Only of loads that perf times: on AMD those that miss the first level, on Intel those that
    # take more than 4 cycles.
    Event(
        "load-latency",
        "sum",
        "cycles",
        perf={"latency": "mem_trans_retired.load_latency_gt_4", "ibs": "latency"},
        period=10_007,
        caused_by="load",
    ),
    Event(
        "timed-loads",
        "sum",
        "loads",
        perf={"timed": "mem_trans_retired.load_latency_gt_4", "ibs": "timed"},
        period=10_007,
        caused_by="load",
    ),
    Event(
        "stores",
        "sum",
        "stores",
        callgrind="Dw",
        perf={
            "intel": "mem_inst_retired.all_stores",
            "ibs": "store",
            "generic": "L1-dcache-stores",
        },
        caused_by="store",
    ),
    Event(
        "conditional-branches",
        "sum",
        "branches",
        callgrind="Bc",
        perf={"branches": "conditional"},
        caused_by="conditional",
    ),
    Event(
        "conditional-branch-mispredicts",
        "sum",
        "mispredicts",
        callgrind="Bcm",
        perf={
            "intel": "br_misp_retired.cond|br_misp_retired.conditional",
            # Branch stacks lack branches that were wrongly predicted taken; this event counts all.
            "amd": "ex_ret_msprd_brnch_instr_dir_msmtch|ex_ret_brn_cond_misp|ex_ret_cond_misp",
            "branches": "mispredicts",
            "generic": "branch-misses",
        },
        period=10_007,
        caused_by="conditional",
        penalty_cycles=16,
    ),
    Event(
        "indirect-branches",
        "sum",
        "branches",
        callgrind="Bi",
        perf={"branches": "indirect", "amd": "ex_ret_ind_brch_instr"},
        caused_by="indirect",
    ),
    # callgrind predicts an instruction's last target, so each change of target is a mispredict.
    Event(
        "indirect-branch-mispredicts",
        "sum",
        "mispredicts",
        callgrind="Bim",
        perf={
            "branches": "indirect mispredicts",
            "intel": "br_misp_retired.indirect",
            "amd": "ex_ret_brn_ind_misp",
        },
        period=10_007,
        caused_by="indirect",
        penalty_cycles=16,
    ),
    Event(
        "icache-misses",
        "sum",
        "misses",
        callgrind="I1mr",
        perf={"intel": "frontend_retired.l1i_miss", "generic": "L1-icache-load-misses"},
        period=10_007,
        penalty_cycles=12,
    ),
    # Computed from executions (hot_code.py). Code that is hot in two runs counts once.
    Event("hot-code-bytes", "sum", "bytes", merged="max"),
)

RATES = (
    RateRow("llc-miss-probability", "llc-load-misses", "loads", 16.0, "misses per load"),
    RateRow(
        "branch-mispredict-rate",
        "conditional-branch-mispredicts",
        "conditional-branches",
        16.0,
        "mispredicts per conditional branch",
    ),
    RateRow(
        "indirect-mispredict-rate",
        "indirect-branch-mispredicts",
        "indirect-branches",
        16.0,
        "mispredicts per indirect branch",
    ),
    RateRow("icache-miss-rate", "icache-misses", "instructions", 1000.0, "misses per instruction"),
    RateRow(
        "llc-misses-per-instruction",
        "llc-load-misses",
        "instructions",
        1000.0,
        "misses per instruction",
    ),
    RateRow(
        "mispredicts-per-instruction",
        "conditional-branch-mispredicts",
        "instructions",
        1000.0,
        "mispredicts per instruction",
    ),
    RateRow("loads-per-instruction", "loads", "instructions", 16.0, "loads per instruction"),
    RateRow("stores-per-instruction", "stores", "instructions", 16.0, "stores per instruction"),
    RateRow("l1-miss-probability", "l1-load-misses", "loads", 16.0, "misses per load"),
    RateRow("load-latency", "load-latency", "timed-loads", 16.0, "cycles per timed load"),
)


def event_named(name: str) -> Event:
    """The event called `name`. Raises KeyError."""
    return {event.name: event for event in EVENTS}[name]
