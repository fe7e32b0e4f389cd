# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The perf events whose meaning is known: names, codes, and units of branch stacks."""

from dataclasses import dataclass
from typing import Literal

# Units that sampled events count, best measure of execution counts first.
Unit = Literal["taken branches", "branches", "instructions", "cycles"]
UNITS: tuple[Unit, ...] = ("taken branches", "branches", "instructions", "cycles")

# Event types of <linux/perf_event.h>.
_HARDWARE, _SOFTWARE, _CACHE = 0, 1, 3
# An event's code; a pair if it needs a second register, IA32_PEBS_LD_LAT_THRESHOLD or
# MSR_PEBS_FRONTEND.
Code = int | tuple[int, int]


@dataclass(frozen=True)
class KnownEvent:
    """A perf event whose meaning is known.

    Attributes:
      name: its name in `Event.perf`.
      unit: the unit that scales branch stacks sampled at the event. None if such stacks show a
        biased part of the program, as stacks at mispredicts do.
      spellings: further names in lower case, with dots between their parts.
      intel, amd: codes in the vendor's core PMU.
      kernel: (type, code) of the kernel's generic events.
    """

    name: str
    unit: Unit | None = None
    spellings: tuple[str, ...] = ()
    intel: tuple[Code, ...] = ()
    amd: tuple[Code, ...] = ()
    kernel: tuple[tuple[int, int], ...] = ()


# Sources: tools/perf/pmu-events and the manual of perf list in Linux, libpfm's tables, Intel's and
# AMD's manuals. Codes with several meanings at one vendor are left out: 0x01c5 counts mispredicted
# conditional branches up to Skylake, and only taken ones since Ice Lake; 0x4088 counts taken
# branches on Nehalem, and others since Sandy Bridge.
KNOWN = (
    KnownEvent(
        "br_inst_retired.near_taken",
        "taken branches",
        ("br_inst_retired.near_taken_pebs", "br_inst_retired.near_taken_ps"),
        intel=(0x20C4,),
    ),
    KnownEvent("br_inst_exec.taken", "taken branches"),
    KnownEvent(
        "ex_ret_brn_tkn",
        "taken branches",
        ("retired_taken_branch_instructions", "branch-brs"),
        amd=(0xC4,),
    ),
    KnownEvent(
        "branches",
        "branches",
        (
            "branch-instructions",
            *("br_inst_retired.all_branches", "br_inst_retired.all_branches_pebs"),
            *("br_inst_exec.all_branches", "br_inst_exec.any", "br_inst_retired.any"),
            *("ex_ret_brn", "retired_branch_instructions"),
        ),
        intel=(0xC4, 0x04C4, 0xFF88),
        amd=(0xC2,),
        kernel=((_HARDWARE, 4),),
    ),
    KnownEvent(
        "instructions",
        "instructions",
        (
            *("inst_retired.any", "inst_retired.any_p", "inst_retired.prec_dist"),
            *("instructions_retired", "ex_ret_instr", "retired_instructions"),
        ),
        intel=(0xC0, 0x01C0, 0x0100),
        amd=(0xC0,),
        kernel=((_HARDWARE, 1),),
    ),
    KnownEvent(
        "cycles",
        "cycles",
        (
            *("cpu-cycles", "cpu_clk_unhalted.thread", "cpu_clk_unhalted.thread_p"),
            *("cpu_clk_unhalted.core", "cpu_clk_unhalted.core_p", "cpu_clk_unhalted"),
            *("unhalted_core_cycles", "ls_not_halted_cyc", "cycles_not_in_halt"),
        ),
        intel=(0x3C,),
        amd=(0x76,),
        kernel=((_HARDWARE, 0),),
    ),
    KnownEvent("cpu-clock", None, ("task-clock",), kernel=((_SOFTWARE, 0), (_SOFTWARE, 1))),
    KnownEvent(
        "mem_inst_retired.all_loads",
        None,
        ("mem_uops_retired.all_loads", "mem_uop_retired.any_loads"),
        intel=(0x81D0,),
    ),
    KnownEvent(
        "mem_inst_retired.all_stores",
        None,
        ("mem_uops_retired.all_stores", "mem_uop_retired.any_stores"),
        intel=(0x82D0,),
    ),
    KnownEvent(
        "mem_load_retired.l1_miss",
        None,
        ("mem_load_uops_retired.l1_miss",),
        intel=(0x08D1,),
    ),
    KnownEvent(
        "mem_load_retired.l3_miss",
        None,
        (
            *("mem_load_uops_retired.l3_miss", "mem_load_uops_retired.llc_miss"),
            "mem_load_retired.llc_miss",
        ),
        intel=(0x20D1,),
    ),
    KnownEvent("mem_trans_retired.load_latency_gt_4", intel=((0x01CD, 4),)),
    KnownEvent("frontend_retired.l1i_miss", intel=((0x01C6, 0x12),)),
    KnownEvent("br_misp_retired.cond", intel=(0x11C5,)),
    KnownEvent("br_misp_retired.conditional"),
    KnownEvent("br_misp_retired.indirect", intel=(0x80C5,)),
    KnownEvent(
        "branch-misses",
        None,
        (
            *("br_misp_retired.all_branches", "br_misp_retired.all_branches_pebs"),
            *("ex_ret_brn_misp", "retired_branch_instructions_mispredicted"),
        ),
        intel=(0xC5, 0x04C5),
        amd=(0xC3,),
        kernel=((_HARDWARE, 5),),
    ),
    KnownEvent(
        "ex_ret_msprd_brnch_instr_dir_msmtch",
        None,
        ("retired_mispredicted_branch_instructions_direction_mismatch",),
        amd=(0x1_0000_00C7,),
    ),
    KnownEvent("ex_ret_brn_cond_misp"),
    KnownEvent(
        "ex_ret_cond_misp",
        None,
        ("retired_conditional_branch_instructions_mispredicted",),
        amd=(0xD2,),
    ),
    KnownEvent(
        "ex_ret_ind_brch_instr", None, ("retired_indirect_branch_instructions",), amd=(0xCC,)
    ),
    KnownEvent(
        "ex_ret_brn_ind_misp",
        None,
        ("retired_indirect_branch_instructions_mispredicted",),
        amd=(0xCA,),
    ),
    KnownEvent("ibs_op"),
    KnownEvent("L1-dcache-loads", None, ("l1-dcache-load",), kernel=((_CACHE, 0x00000),)),
    KnownEvent(
        "L1-dcache-load-misses", None, ("l1-dcache-load-miss",), kernel=((_CACHE, 0x10000),)
    ),
    KnownEvent("L1-dcache-stores", None, ("l1-dcache-store",), kernel=((_CACHE, 0x00100),)),
    KnownEvent(
        "L1-icache-load-misses", None, ("l1-icache-load-miss",), kernel=((_CACHE, 0x10001),)
    ),
    KnownEvent("LLC-load-misses", None, ("llc-load-miss",), kernel=((_CACHE, 0x10002),)),
)
BY_NAME = {name: row for row in KNOWN for name in (row.name.lower(), *row.spellings)}
BY_CODE = {
    vendor: {
        (code if isinstance(code, tuple) else (code, 0)): row
        for row in KNOWN
        for code in getattr(row, vendor.lower())
    }
    for vendor in ("Intel", "AMD")
}
BY_KERNEL = {key: row for row in KNOWN for key in row.kernel}
# CPUID vendor -> vendor in BY_CODE.
VENDORS = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD"}


def unit_of(name: str) -> Unit | None:
    """The unit that scales an event's branch stacks; None if they cannot be scaled."""
    row = BY_NAME.get(name.lower())
    return row.unit if row else None
