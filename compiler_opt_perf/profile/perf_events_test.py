# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import re

import pytest

from compiler_opt_perf.profile.events import EVENTS
from compiler_opt_perf.profile.perf_event_table import unit_of
from compiler_opt_perf.profile.perf_events import RecordingHeader, identify

INTEL = "# cpuid : GenuineIntel,6,85,7\n"
AMD = "# cpuid : AuthenticAMD,25,17,1\n"
MAPPINGS = "# pmu mappings: cpu = 4, software = 1, ibs_fetch = 9, ibs_op = 10, cpu_atom = 11\n"

# One event, as people, tools and perf write it. Each also in capitals and with modifiers.
SPELLINGS = {
    "br_inst_retired.near_taken": (
        "br_inst_retired.near_taken",
        "br_inst_retired:near_taken",
        "skl::br_inst_retired:near_taken",
        "cpu/br_inst_retired.near_taken/",
        "cpu/br_inst_retired.near_taken,period=100003,branch_type=any/",
        "cpu/branch_type=any,br_inst_retired.near_taken/",
        "cpu_core/br_inst_retired.near_taken/",
        "cpu_atom/br_inst_retired.near_taken/",
        "r20c4",
        "cpu/r20c4/",
        "cpu/event=0xc4,umask=0x20/",
        "cpu_core/event=0xc4,umask=0x20,period=0x186a3/",
        "cpu/config=0x20c4/",
        "raw 0x20c4",
    ),
    "ex_ret_brn_tkn": (
        "ex_ret_brn_tkn",
        "retired_taken_branch_instructions",
        "amd64_fam19h_zen4::retired_taken_branch_instructions",
        "cpu/branch-brs/",
        "cpu/ex_ret_brn_tkn,period=4000,branch_type=any/",
    ),
    "br_inst_exec.taken": ("br_inst_exec:taken", "br_inst_exec.taken"),
    "mem_load_retired.l3_miss": (
        "mem_load_retired.l3_miss",
        "mem_load_uops_retired:l3_miss",
        "r20d1",
        "cpu/event=0xd1,umask=0x20/",
    ),
    "mem_inst_retired.all_loads": ("mem_inst_retired.all_loads", "mem_uops_retired.all_loads"),
    "br_misp_retired.cond": ("br_misp_retired.cond", "r11c5", "cpu/event=0xc5,umask=0x11/"),
    "cycles": ("cycles", "cpu-cycles", "cpu_clk_unhalted:thread_p", "cpu_core/cycles/"),
    "instructions": ("instructions", "inst_retired.any_p", "cpu/instructions/"),
    "branches": ("branches", "branch-instructions", "branches/period=100003,branch_type=any/"),
    "branch-misses": ("branch-misses", "br_misp_retired.all_branches"),
    "LLC-load-misses": ("LLC-load-misses", "LLC-load-misses/period=1009/"),
    "ibs_op": ("ibs_op//", "ibs_op/cnt_ctl=1,period=100000/"),
    "mem_trans_retired.load_latency_gt_4": ("cpu/event=0xcd,umask=0x1,ldlat=4/",),
}
# These count something else, or nobody knows what.
OTHERS = (
    *("nobody_ever_heard_of_it", "taken", "instances", "br_inst_retired.near_taken_of_mine"),
    *("r1234", "cpu/event=0xc4,umask=0x21/", "cpu/event=0xc4,umask=0x20,cmask=1/"),
    # On Intel all branches, on AMD those that are taken; then of Skylake and of Ice Lake.
    *("rc4", "cpu/event=0xc4/", "r01c5", "r4088"),
    # Another unit's counters, other latencies, other front-end events, another kind of samples.
    *("uncore_imc/event=0xc4,umask=0x20/", "cpu/event=0xcd,umask=0x1,ldlat=30/", "r1cd", "r1c6"),
    *(
        "cpu/event=0123/",
        f"cpu/event={'9' * 5000}/",
        "cpu/event=0x/",
        "cpu//",
        "//",
        f"r{'f' * 40}",
    ),
    *("cpu/mem-loads,ldlat=30/", "ibs_fetch//", "ref-cycles", "page-faults", "instruction-tlb"),
)


_LATENCY = "foo: type: 4, size: 128, config: 0x1cd, { bp_addr, config1 }: "
_FRONTEND = "foo: type: 4, size: 128, config: 0x1c6, { bp_addr, config1 }: "


def modified(spelling: str, modifiers: str) -> str:
    return spelling + (modifiers if spelling.endswith("/") else f":{modifiers}")


@pytest.mark.parametrize("modifiers", ["", "u", "uppp", "uH", "k", "P"])
@pytest.mark.parametrize(
    ("name", "spelling"), [(name, one) for name, all_ in SPELLINGS.items() for one in all_]
)
def test_every_spelling_is_the_same_event(name: str, spelling: str, modifiers: str) -> None:
    for shown in (spelling, re.sub(r"(?<![\d=])[a-z_.]{5,}(?![a-z_.]*=)", _capitals, spelling)):
        found = identify(modified(shown, modifiers) if modifiers else shown)
        assert found.known is not None
        assert found.name == name
        assert found.precise == ("p" in modifiers.lower() or name == "ibs_op")
        assert found.levels == ((set(modifiers) & set("ukh")) or set("ukh"))


def _capitals(found: re.Match[str]) -> str:
    # Names of counters and of terms have small letters always.
    kept = ("cpu_core", "cpu_atom", "period", "branch_type", "event", "umask", "config")
    return found[0] if found[0] in kept or "ibs_op" in found[0] else found[0].upper()


@pytest.mark.parametrize("modifiers", ["", "u", "upp"])
@pytest.mark.parametrize("event", OTHERS)
def test_what_is_not_in_the_table_says_nothing(event: str, modifiers: str) -> None:
    found = identify(modified(event, modifiers) if modifiers else event)
    assert found.known is None
    assert unit_of(found.name) is None


def test_every_event_of_profiles_is_known() -> None:
    names = {
        name
        for event in EVENTS
        for source, names in event.perf.items()
        if source not in ("branches", "ibs")
        for name in names.split("|")
    }
    assert len(names) > 15
    for name in names:
        assert identify(name).name == name
        assert identify(name).known is not None


@pytest.mark.parametrize(
    ("listed", "maker", "name"),
    [
        ("foo: type: 4, size: 128, config: 0x20c4, ", INTEL, "br_inst_retired.near_taken"),
        ("foo: type: 4 (PERF_TYPE_RAW), config: 0x20c4 (x), ", INTEL, "br_inst_retired.near_taken"),
        ("foo: type: 4, size: 128, config: 0x20c4, ", "", "br_inst_retired.near_taken"),
        ("foo: type: 4, size: 128, config: 0x20c4, ", AMD, None),
        ("foo: type: 4, size: 128, config: 0x20c4, ", "# cpuid : 0x41d0c\n", None),
        ("rc4: type: 4, size: 128, config: 0xc4, ", AMD, "ex_ret_brn_tkn"),
        ("rc4: type: 4, size: 128, config: 0xc4, ", INTEL, "branches"),
        ("rc4: type: 4, size: 128, config: 0xc4, ", "", None),
        ("ex_ret_brn_tkn: type: 4, size: 128, config: 0xc4, ", "", "ex_ret_brn_tkn"),
        ("foo: type: 11, size: 128, config: 0x20c4, ", INTEL, "br_inst_retired.near_taken"),
        ("foo: type: 12, size: 128, config: 0x20c4, ", INTEL, None),
        ("foo: type: 10, size: 128, config: 0x80000, ", AMD, "ibs_op"),
        ("foo: type: 0, size: 128, ", AMD, "cycles"),
        ("foo: type: 0 (PERF_TYPE_HARDWARE), config: 0x400000001 (x), ", INTEL, "instructions"),
        ("foo: type: 3, size: 128, config: 0x10002, ", INTEL, "LLC-load-misses"),
        ("foo: type: 1, size: 128, ", INTEL, "cpu-clock"),
        (_LATENCY + "0x4, ", INTEL, "mem_trans_retired.load_latency_gt_4"),
        (_LATENCY + "0x1e, ", INTEL, None),
        (_FRONTEND + "0x12, ", INTEL, "frontend_retired.l1i_miss"),
        # A name that the code contradicts.
        ("cycles: type: 4, size: 128, config: 0x20c4, ", INTEL, "br_inst_retired.near_taken"),
    ],
)
def test_the_recorded_code_decides(listed: str, maker: str, name: str | None) -> None:
    """As `perf evlist -v` and as the header of a text have it."""
    printed, _, attributes = listed.partition(": ")
    header_line = (
        f"# event : name = {printed}, , id = {{ 1, 2 }}, {attributes.replace(': ', ' = ')}"
    )
    for line in (listed, header_line):
        header = RecordingHeader()
        for part in (maker, MAPPINGS, line + "sample_type: IP|TID, precise_ip: 2, exclude_hv: 1\n"):
            header.read(part)
        found = identify(printed, header)
        assert (found.known.name if found.known else None) == name
        if line == listed:
            assert found.precise


def test_events_that_are_listed_with_other_modifiers() -> None:
    """As perf 6.1 does for what came through a pipe."""
    header = RecordingHeader(vendor="Intel")
    header.read("rc4:uH: type: 4, size: 128, config: 0xc4, \n")
    assert identify("rc4:u", header).name == "branches"
    header.read("rc4:k: type: 4, size: 128, config: 0x20c4, \n")
    assert identify("rc4:u", header).known is not None
    assert identify("rc4:k", header).name == "br_inst_retired.near_taken"


@pytest.mark.parametrize(
    ("filter_", "all_branches"),
    [
        ("", True),
        ("branch_sample_type: ANY, ", True),
        ("branch_sample_type: USER|ANY|TYPE_SAVE, ", True),
        ("branch_sample_type: USER|CALL_STACK|NO_FLAGS|NO_CYCLES, ", False),
        ("branch_sample_type: ANY_CALL|ANY_RETURN, ", False),
        ("branch_sample_type: USER|COND, ", False),
        ("branch_sample_type: USER|ANY|IN_TX, ", False),
    ],
)
def test_which_branches_stacks_hold(filter_: str, all_branches: bool) -> None:
    header = RecordingHeader()
    header.read(
        f"cycles:u: type: 0, size: 128, sample_type: IP|BRANCH_STACK, {filter_}inherit: 1\n"
    )
    assert header.events["cycles:u"].all_branches == all_branches
    assert header.events["cycles:u"].fields == {"IP", "BRANCH_STACK"}
