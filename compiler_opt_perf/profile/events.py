# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The events of a PMU profile and the rates made of them, as tables.

To add an event, add a row to `EVENTS`; it then has a sample profile of its own in every collected
profile. To give the compiler a rate of two events, add a row to `RATES`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from compiler_opt_perf.run.json_text import Measure

# How the instructions of one source line are combined. An event is an occurrence on one of them,
# so events add up. Executions of the line do not: each of its instructions sees all of them.
Combination = Literal["sum", "max"]
Cause = Literal["any", "load", "store", "conditional", "indirect"]
KINDS: tuple[Combination, ...] = ("sum", "max")


@dataclass(frozen=True)
class Event:
    """Something counted at each instruction.

    Attributes:
      name: as in the manifest and in the profile's file name.
      kind: how counts of one line's instructions are combined.
      unit: what one count stands for.
      callgrind: the column of a callgrind dump that holds it; None when the simulator has none. An
        event with neither this nor `perf` is computed from others.
      perf: where perf has it from, the best first (docs/collect-in-hardware.md). "intel", "amd" and
        "generic" name perf events, of several ("a|b") the first that the processor has, "software"
        one that is read but never recorded. "latency" and "timed" name one of Intel's whose samples
        have a load's latency as their weight: the sum of these, and how many there are. "branches"
        and "ibs" say what of branch stacks, and of samples of AMD's IBS, is counted.
      period: events between two samples of perf.
      caused_by: the kind of instruction it occurs at. Samples of an event that is not precise are
        given to instructions of that kind in the same basic block.
      scaled_by_duplication: whether a count is multiplied by the duplication factor of its
        discriminator. An unrolled loop executes each of its N copies 1/N times as often as the
        source line, so this is right for executions, and wrong for sums.
      merged: how the counts of one line in several runs are combined.
      penalty_cycles: nominal cycles that one occurrence costs a recent server core. Reports order
        functions and lines by it; nothing else depends on it.
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

    With n of N numerator and d of D denominator counts at a location (capitals: of the program),
    and n_f of d_f in its function, the estimate is

        (n + a * p_f) / (d + a),   p_f = (n_f + a * p_0) / (d_f + a),   p_0 = N / D

    so that few counts are drawn towards the function's rate, and few counts in the function
    towards the program's. a is a share of the denominator's total in the program: a run twice as
    long draws no less.

    Attributes:
      name: as in the manifest.
      numerator, denominator: names of events of kind "sum". A sum must never be divided by a max.
      prior_share: a, as a share of the program's total of the denominator.
      unit: what it is a rate of.
    """

    name: str
    numerator: str
    denominator: str
    prior_share: Measure
    unit: str = ""

    @property
    def is_mean(self) -> bool:
        """Whether it is a mean, such as a latency, and no share."""
        return self.unit.startswith("cycles per ")


@dataclass(frozen=True)
class RateRow:
    """A rate that is in every profile that has its two events.

    Attributes:
      name, numerator, denominator, unit: as of `Rate`.
      prior_trials: how many observed trials a weighs at least, however few there are in all: a
        rate of fewer is mostly chance.
    """

    name: str
    numerator: str
    denominator: str
    prior_trials: float
    unit: str = ""

    def with_prior(self, share: float) -> Rate:
        """The rate, with a as that share of the denominator's total."""
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
    # Not cycles, but all that perf can sample where there are no counters.
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
    # Of the loads that perf samples: on AMD those that miss the first level, on Intel those of more
    # than 4 cycles.
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
            # Branch stacks hold no branch that was wrongly predicted to be taken; this counts all.
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
    # callgrind predicts the last target of the instruction: each change of the target is wrong.
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
    # Computed from the executions; see hot_code.py. Two runs of the same code need it once.
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
    """The row of `EVENTS` of that name. Raises KeyError."""
    return {event.name: event for event in EVENTS}[name]
