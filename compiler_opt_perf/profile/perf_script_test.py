# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import itertools
import json
import re
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compiler_opt_perf.binary.disassembly import Disassembly, Kind, disassemble
from compiler_opt_perf.binary.elf import build_id, hide_debug_info
from compiler_opt_perf.binary.symbolize import symbolize
from compiler_opt_perf.profile.backends import read_counts
from compiler_opt_perf.profile.callgrind import CacheGeometry, simulate
from compiler_opt_perf.profile.callgrind_dump import event_counts, read_dump
from compiler_opt_perf.profile.collect import collect, import_recording
from compiler_opt_perf.profile.counts import Counts
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.manifest import Manifest
from compiler_opt_perf.profile.perf_attribution import count
from compiler_opt_perf.profile.perf_events import identify
from compiler_opt_perf.profile.perf_mappings import RecordedBinary, mapped_files
from compiler_opt_perf.profile.perf_script import read_script
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.workload import Run

Show = Callable[[Path], dict[str, Any]]


@pytest.fixture(scope="module")
def fixed(build: Callable[..., Path]) -> Path:
    """The test program at fixed addresses."""
    return build("-no-pie")


@pytest.fixture(scope="module")
def code(fixed: Path) -> Disassembly:
    return disassemble(fixed)


@pytest.fixture(scope="module")
def mapping(fixed: Path) -> str:
    """The line that perf script prints for the program's code, of process 100."""
    return f"  100 PERF_RECORD_MMAP2 100/100: {segment(fixed, 0)}\n"


def segment(binary: Path, bias: int) -> str:
    """The mapping of the executable segment, loaded `bias` bytes above its link-time address."""
    command = ["llvm-readelf-22", "--program-headers", "--elf-output-style=JSON", str(binary)]
    (file,) = json.loads(run_command(command).stdout)
    for header in (entry["ProgramHeader"] for entry in file["ProgramHeaders"]):
        flags = {flag["Name"] for flag in header["Flags"]["Flags"]}
        if header["Type"]["Name"] == "PT_LOAD" and "PF_X" in flags:
            page = header["VirtualAddress"] & ~0xFFF
            offset = header["Offset"] & ~0xFFF
            size = (header["MemSize"] + 0x1FFF) & ~0xFFF
            return (
                f"[{page + bias:#x}({size:#x}) @ {offset:#x} fe:00 2476308 3332914289]: "
                f"r-xp /home/user/{binary.name}"
            )
    raise AssertionError


def of_kind(code: Disassembly, fixed: Path, function: str, kind: Kind) -> int:
    """The address of a function's first instruction of a kind, in its loop."""
    symbols = symbolize(fixed, code.addresses)
    return next(
        address
        for address, found in zip(code.addresses, code.kinds, strict=True)
        if found & kind
        and address in symbols.locations
        and symbols.locations[address].function == function
        and symbols.locations[address].line.offset == 3
    )


def counted(text: str, fixed: Path, code: Disassembly) -> dict[str, dict[int, int]]:
    """For each event, the counts by address."""
    counts = count(read_script(text.splitlines(keepends=True), fixed, "script"), code)
    return by_event(counts)


def by_event(counts: Counts) -> dict[str, dict[int, int]]:
    return {
        event.name: {address: row[n] for address, row in counts.by_address.items() if row[n]}
        for n, event in enumerate(counts.events)
    }


# What perf prints, by vendor


@pytest.mark.parametrize(
    ("event", "name"),
    [
        ("cycles:u", "cycles"),
        ("cpu/mem_load_retired.l3_miss,period=1009/ppu", "mem_load_retired.l3_miss"),
        ("cpu_core/branch_type=any,br_inst_retired.near_taken/ppu", "br_inst_retired.near_taken"),
        ("ibs_op/cnt_ctl=1,period=100000/", "ibs_op"),
        ("L1-dcache-loads/period=100003/u", "L1-dcache-loads"),
        ("br_inst_retired.near_taken:uppp", "br_inst_retired.near_taken"),
        ("cpu-clock", "cpu-clock"),
    ],
)
def test_names_of_events(event: str, name: str) -> None:
    assert identify(event).name == name


@pytest.mark.compiler
def test_intel_precise_events(mapping: str, fixed: Path, code: Disassembly) -> None:
    """PEBS samples with data source and weight, as perf 6.1 prints them."""
    load = of_kind(code, fixed, "chase", Kind.LOAD)
    branch = of_kind(code, fixed, "countSmall", Kind.CONDITIONAL)
    source = "68100142 |OP LOAD|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A "
    missed = "68100842 |OP LOAD|LVL Local RAM or RAM hit|SNP None or Miss|TLB L2 miss|LCK No "
    text = (
        mapping
        + f"  100     100003 cpu/mem_inst_retired.all_loads,period=100003/ppu:  {source}"
        + f"                   7 {load:16x} \n"
        + f"  100       1009 cpu/mem_load_retired.l3_miss,period=1009/ppu:  {missed}"
        + f"                 310 {load:16x} \n"
        + f"  100      10007 cpu/mem_trans_retired.load_latency_gt_4,period=10007/ppu:  {missed}"
        + f"                 310 {load:16x} \n"
        + f"  100      10007 cpu/br_misp_retired.conditional,period=10007/ppu: {branch:16x} \n"
        + "  100       1009 cpu/mem_load_retired.l3_miss,period=1009/ppu:  7f0000001000 \n"
    )
    script = read_script(text.splitlines(keepends=True), fixed, "script")
    counts = count(script, code)
    found = by_event(counts)
    assert found == {
        "loads": {load: 100003},
        "llc-load-misses": {load: 1009},
        "conditional-branch-mispredicts": {branch: 10007},
        "load-latency": {load: 310 * 10007},
        "timed-loads": {load: 10007},
    }
    assert dict(zip(found, counts.periods, strict=True)) == {
        "loads": 100003,
        "llc-load-misses": 1009,
        "load-latency": 10007,
        "timed-loads": 10007,
        "conditional-branch-mispredicts": 10007,
    }
    assert all(counts.precise)
    assert counts.outside[1] == 1009


@pytest.mark.compiler
def test_amd_ibs(mapping: str, fixed: Path, code: Disassembly) -> None:
    """IBS op samples: what they were is told by the data source alone."""
    load = of_kind(code, fixed, "chase", Kind.LOAD)
    store = of_kind(code, fixed, "unrolled", Kind.STORE)
    sources = [
        ("19a1002 |OP LOAD|LVL L1 hit|SNP N/A|TLB L1 hit|LCK No|BLK  N/A", load),
        ("19a1042 |OP LOAD|LVL L2 hit|SNP N/A|TLB L1 hit|LCK No|BLK  N/A", load),
        ("19a1082 |OP LOAD|LVL Local RAM hit|SNP N/A|TLB L2 hit|LCK No|BLK  N/A", load),
        ("19a1082 |OP LOAD|LVL Remote RAM (1 hop) hit|SNP N/A|TLB L2 hit|LCK No|BLK  N/A", load),
        ("19a1003 |OP LOAD|LVL LFB or LFB hit|SNP N/A|TLB L1 hit|LCK No|BLK  N/A", load),
        ("19a1004 |OP STORE|LVL L1 hit|SNP N/A|TLB L1 hit|LCK No|BLK  N/A", store),
        ("19a1021 |OP No|LVL N/A|SNP N/A|TLB N/A|LCK N/A|BLK  N/A", store),
    ]
    lines = [
        f"  100     100000 ibs_op/cnt_ctl=1,period=100000/:  {source}    9 {address:16x} \n"
        for source, address in sources
    ]
    lines.append("  100     100000 ibs_op/cnt_ctl=1,period=100000/:        0 ffffffff81000000 \n")
    assert counted(mapping + "".join(lines), fixed, code) == {
        "loads": {load: 500_000},
        "l1-load-misses": {load: 400_000},
        "llc-load-misses": {load: 200_000},
        # Of the sample that was neither load nor store its weight is not a load's.
        "load-latency": {load: 9 * 500_000},
        "timed-loads": {load: 500_000},
        "stores": {store: 100_000},
    }


def loop_of(code: Disassembly, fixed: Path, function: str) -> tuple[int, int]:
    """First and last instruction of a function's loop: the target and the backward branch."""
    symbols = symbolize(fixed, code.addresses)
    listing = run_command(["llvm-objdump-22", "-d", "--no-show-raw-insn", fixed]).stdout
    for found in re.finditer(r"^ +([0-9a-f]+):\s+j\w+\s+0x([0-9a-f]+)", listing, re.MULTILINE):
        source, target = int(found[1], 16), int(found[2], 16)
        location = symbols.locations.get(source)
        if location is not None and location.function == function and target < source:
            return target, source
    raise AssertionError


@pytest.mark.compiler
def test_branch_stacks(mapping: str, fixed: Path, code: Disassembly) -> None:
    """LBR samples of a loop: executions, calls and mispredicts; newer perf prints more fields."""
    first, last = loop_of(code, fixed, "chase")
    back = f"{last:#x}/{first:#x}"
    stack = " ".join([f"{back}/M/-/-/4", *[f"{back}/P/-/-/3"] * 30, f"{back}/P/-/-/0/COND/-"])
    event = "cpu/br_inst_retired.near_taken,period=3100,branch_type=any/ppu"
    text = mapping + f"  100       3100 {event}: {first:16x}  {stack} \n"
    counts = count(read_script(text.splitlines(keepends=True), fixed, "script"), code)
    found = by_event(counts)
    body = [a for a in code.addresses if first <= a <= last]
    # 31 ranges stand for 3100 taken branches.
    assert found["executions"] == dict.fromkeys(body, 3100) == found["instructions"]
    assert found["conditional-branches"] == {last: 3100}
    assert found["conditional-branch-mispredicts"] == {last: round(3100 / 32)}
    assert found["indirect-branches"] == {}
    assert counts.periods[0] == 3100


@pytest.mark.compiler
def test_indirect_mispredicts(mapping: str, fixed: Path, code: Disassembly) -> None:
    """The call by pointer, from branch records."""
    call = of_kind(code, fixed, "indirect", Kind.INDIRECT)
    (entry,) = [
        a for a, name in symbolize(fixed, code.addresses).entries.items() if name == "seldom"
    ]
    after = code.addresses[code.addresses.index(call) + 1]
    returned = next(
        a
        for a, kind in zip(code.addresses, code.kinds, strict=True)
        if a >= entry and kind & Kind.BRANCH
    )
    back = f"{returned:#x}/{after:#x}/P/-/-/1"
    stack = f"{call:#x}/{entry:#x}/M/-/-/9 {back} {call:#x}/{entry:#x}/P/-/-/1 {back}"
    event = "cpu/ex_ret_brn_tkn,period=4000,branch_type=any/u"
    text = mapping + f"  100       4000 {event}: {entry:16x}  {stack} \n"
    found = counted(text, fixed, code)
    assert found["indirect-branch-mispredicts"] == {call: 1000}
    assert found["conditional-branch-mispredicts"] == {}


@pytest.mark.compiler
def test_amd_mispredicts_of_all_conditional_branches(
    mapping: str, fixed: Path, code: Disassembly
) -> None:
    """Samples with skid go to the branch before them, taken or not."""
    branches = [
        i
        for i, kind in enumerate(code.kinds)
        if kind & Kind.CONDITIONAL and code.kinds[i + 1] & Kind.BRANCH == Kind(0)
    ]
    index = next(i for i in branches if not code.kinds[i - 1] & Kind.BRANCH)
    branch, before, after = (code.addresses[i] for i in (index, index - 1, index + 1))
    load = of_kind(code, fixed, "chase", Kind.LOAD)
    event = "  100 10007 cpu/ex_ret_msprd_brnch_instr_dir_msmtch,period=10007,branch_type=any/u:"
    samples = [
        # It was passed without being taken: a branch wrongly predicted to be taken.
        f"{event} {after:x} 0x7f0000000000/{before:#x}/P/-/-/1\n",
        # It was taken, and the sample is where it leads.
        f"{event} {load:x} {branch:#x}/{load:#x}/M/-/-/1\n",
        # Neither: only the block is known.
        f"{event} {load:x} 0x7f0000000000/{load:#x}/P/-/-/1\n",
        f"{event} 7f0000000000 {branch:#x}/0x7f0000000000/P/-/-/1\n",
    ]
    counts = count(read_script([mapping, *samples], fixed, "script"), code)
    found = by_event(counts)["conditional-branch-mispredicts"]
    assert found.pop(branch) == 2 * 10007
    place = code.index(load)
    assert place is not None
    assert set(found) <= {code.addresses[m] for m in code.members(place)}
    assert sum(found.values()) == pytest.approx(10007, abs=8)
    assert counts.outside == [10007]
    assert counts.precise == [False]


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("event", "per_range"),
    [
        ("branches:u", lambda code, first, last: 1),
        ("instructions:u", lambda code, first, last: code.index(last) - code.index(first) + 1),
        ("cycles:u", lambda code, first, last: 5),
    ],
)
def test_branch_stacks_of_other_events(
    event: str, per_range: Callable[..., int], mapping: str, fixed: Path, code: Disassembly
) -> None:
    first, last = loop_of(code, fixed, "chase")
    stack = " ".join([f"{last:#x}/{first:#x}/P/-/-/5"] * 16)
    text = mapping + f"  100       6000 {event}: {first:16x}  {stack} \n"
    found = counted(text, fixed, code)
    assert found["executions"][last] == 6000 // per_range(code, first, last)


@pytest.mark.compiler
def test_several_events_with_stacks_tell_of_one_run(
    mapping: str, fixed: Path, code: Disassembly
) -> None:
    """Each is an estimate of the whole: their sum would be twice the run."""
    first, last = loop_of(code, fixed, "chase")
    stack = " ".join([f"{last:#x}/{first:#x}/M/-/-/5"] * 16)
    length = code.addresses.index(last) - code.addresses.index(first) + 1
    samples = {
        event: f"  100 {6000 * occurrences} {event}: {first:16x}  {stack} \n"
        for event, occurrences in (("cycles:u", 5), ("instructions:u", length), ("branches:u", 1))
    }
    alone = [counted(mapping + sample, fixed, code) for sample in samples.values()]
    together = counted(mapping + "".join(samples.values()), fixed, code)
    for name in ("executions", "conditional-branches", "conditional-branch-mispredicts"):
        for one in alone:
            assert one[name][last] == together[name][last] == 6000


@pytest.mark.compiler
def test_of_several_events_the_best_is_taken(mapping: str, fixed: Path, code: Disassembly) -> None:
    first, last = loop_of(code, fixed, "chase")
    stack = " ".join([f"{last:#x}/{first:#x}/P/-/-/5"] * 16)
    text = mapping + 9 * f"  100 70 cycles:u: {first:16x}  {stack} \n"
    text += f"  100 4000 br_inst_retired.near_taken:upp: {first:16x}  {stack} \n"
    counts = count(read_script(text.splitlines(keepends=True), fixed, "script"), code)
    assert by_event(counts)["executions"][last] == 4000
    assert counts.periods[0] == 4000
    # One that tells nothing of this binary leaves it to the others.
    elsewhere = " ".join(["0x7f0000000010/0x7f0000000000/P/-/-/1"] * 16)
    text = text.replace(f"upp: {first:16x}  {stack}", f"upp: {first:16x}  {elsewhere}")
    assert counted(text, fixed, code)["executions"][last] == round(9 * 70 / 5)


@pytest.mark.compiler
def test_recordings_at_a_frequency_are_not_exact(
    mapping: str, fixed: Path, code: Disassembly
) -> None:
    """perf begins with a period of 1 and never has another one twice."""
    load = of_kind(code, fixed, "chase", Kind.LOAD)
    periods = [1, 1, 1, 900, 5100, 8997]
    text = mapping + "".join(f"  100 {period} cycles:u: {load:16x}\n" for period in periods)
    counts = count(read_script(text.splitlines(keepends=True), fixed, "script"), code)
    assert counts.periods == [sum(periods) // len(periods)]
    unseen = next(address for address in code.addresses if address not in counts.by_address)
    assert not counts.add_unexecuted([unseen])
    assert unseen not in counts.by_address
    ones = mapping + f"  100 1 cycles:u: {load:16x}\n"
    counts = count(read_script(ones.splitlines(keepends=True), fixed, "script"), code)
    assert not counts.add_unexecuted([unseen])


@pytest.mark.compiler
def test_memory_grows_with_the_code_not_with_the_run(
    mapping: str, fixed: Path, code: Disassembly
) -> None:
    first, last = loop_of(code, fixed, "chase")
    stack = " ".join([f"{last:#x}/{first:#x}/P/-/-/5"] * 32)
    sample = f"  100 4000 br_inst_retired.near_taken:upp: {first:16x}  {stack} \n"
    lines = itertools.chain([mapping], itertools.repeat(sample, 5000))
    tracemalloc.start()
    script = read_script(lines, fixed, "script")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert script.stacks["br_inst_retired.near_taken"].number == 5000
    # Less than 200 bytes a sample; the samples' text alone has 900 each.
    assert peak < 1_000_000


@pytest.mark.compiler
def test_branches_to_and_from_other_code(mapping: str, fixed: Path, code: Disassembly) -> None:
    first, last = loop_of(code, fixed, "chase")
    entry = next(iter(symbolize(fixed, code.addresses).entries))
    stack = (
        f"{last:#x}/{first:#x}/P/-/-/1 0x7f0000000010/{first:#x}/P/-/-/1 "
        f"{last:#x}/0x7f0000000000/P/-/-/1 0x7f0000000099/{entry:#x}/P/-/-/1"
    )
    text = mapping + f"  100       30 br_inst_retired.near_taken:uppp: {first:16x} {stack}\n"
    counts = count(read_script(text.splitlines(keepends=True), fixed, "script"), code)
    assert by_event(counts)["executions"][last] >= 10
    assert (None, entry) in counts.calls
    assert counts.outside[0] > 0


@pytest.mark.compiler
def test_events_with_skid_are_spread_over_their_block(
    mapping: str, fixed: Path, code: Disassembly
) -> None:
    load = of_kind(code, fixed, "chase", Kind.LOAD)
    index = code.index(load)
    assert index is not None
    members = code.members(index)
    late = code.addresses[members[-1]]
    assert late != load
    able = [m for m in members if code.kinds[m] & Kind.LOAD]
    text = mapping + f"  100   1009 LLC-load-misses/period=1009/u: {late:x} \n"
    text += f"  100   {1000 * len(members)} instructions:u: {late:x} \n"
    counts = count(read_script(text.splitlines(keepends=True), fixed, "script"), code)
    found = by_event(counts)
    assert found["llc-load-misses"] == {code.addresses[m]: round(1009 / len(able)) for m in able}
    assert found["executions"] == {code.addresses[m]: 1000 for m in members}
    assert not any(counts.precise)


@pytest.mark.compiler
def test_every_process_has_its_own_mapping(fixed: Path, code: Disassembly) -> None:
    load = of_kind(code, fixed, "chase", Kind.LOAD)
    lines = [
        f"  100 PERF_RECORD_MMAP2 100/100: {segment(fixed, 0x5000_0000)}\n",
        f"  200 PERF_RECORD_MMAP2 200/200: {segment(fixed, 0x7000_0000)}\n",
        "  100   10 cpu-clock:u: 1\n",
        f"  100   10 cpu-clock:u: {load + 0x5000_0000:x}\n",
        "  100 PERF_RECORD_FORK(300:300):(100:100)\n",
        f"  300/301   5 cpu-clock:u: {load + 0x5000_0000:x}\n",
        f"  200   3 cpu-clock:u: {load + 0x7000_0000:x}\n",
        f"  200   3 cpu-clock:u: {load + 0x5000_0000:x}\n",
        "  300 PERF_RECORD_COMM exec: sh:300/300\n",
        f"  300   7 cpu-clock:u: {load + 0x5000_0000:x}\n",
        "  100 PERF_RECORD_LOST 100/100: id 5 lost 12\n",
        "\n",
    ]
    script = read_script(lines, fixed, "script")
    assert script.samples["cpu-clock"] == {load: 18}
    assert script.outside["cpu-clock"] == 20
    assert script.lost == 12


# What entries of branch stacks say of themselves


def stack_of(first: int, last: int, flags: str = "P/-/-/5", number: int = 16) -> list[str]:
    """A stack of a loop's backward branch."""
    return [f"{last:#x}/{first:#x}/{flags}"] * number


def sampled(event: str, address: int, stack: list[str]) -> str:
    return f"  100 6000 {event}: {address:16x}  {' '.join(stack)} \n"


TAKEN = "br_inst_retired.near_taken:uppp"


@pytest.fixture(scope="module")
def loop(code: Disassembly, fixed: Path) -> tuple[int, int]:
    """First and last instruction of a loop."""
    return loop_of(code, fixed, "chase")


@pytest.mark.compiler
@pytest.mark.parametrize("place", [0, 1, 7, 16])
@pytest.mark.parametrize(
    "damage",
    ["{1:#x}/{0:#x}/M/-/-/0//SPEC_WRONG_PATH", "{0:#x}/{1:#x}/P/-/-/0/COND/SPEC_WRONG_PATH"],
)
def test_wrong_paths_are_cut_out(
    damage: str,
    place: int,
    mapping: str,
    loop: tuple[int, int],
    fixed: Path,
    code: Disassembly,
) -> None:
    good = stack_of(*loop, "P/-/-/0/COND/SPEC_CORRECT_PATH")
    bad = [*good[:place], damage.format(*loop), *good[place:]]
    expected = counted(mapping + sampled(TAKEN, loop[0], good), fixed, code)
    assert expected["executions"][loop[1]] == 6000
    assert counted(mapping + sampled(TAKEN, loop[0], bad), fixed, code) == expected


@pytest.mark.compiler
def test_the_newest_branch_twice(
    mapping: str,
    loop: tuple[int, int],
    fixed: Path,
    code: Disassembly,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, last = loop
    after = code.addresses[code.addresses.index(last) + 1]
    forward = f"{first:#x}/{after:#x}/P/-/-/5"
    once = [forward, *stack_of(first, last)]
    expected = counted(mapping + sampled(TAKEN, after, once), fixed, code)
    assert counted(mapping + sampled(TAKEN, after, [forward, *once]), fixed, code) == expected
    assert "impossible" not in caplog.text
    # A branch that leads back to itself may follow itself.
    longer = counted(mapping + sampled(TAKEN, first, stack_of(first, last, number=17)), fixed, code)
    assert longer["executions"][last] == 6000


@pytest.mark.compiler
def test_branches_that_are_not_taken(
    mapping: str, loop: tuple[int, int], fixed: Path, code: Disassembly
) -> None:
    """They tell of mispredicts, and do not end what was executed in one go."""
    first, last = loop
    good = stack_of(*loop)
    after = code.addresses[code.addresses.index(last) + 1]
    for flags, mispredicts in (("PN", 0), ("MN", 6000 / 16), ("N", 0)):
        mixed = [good[0], f"{last:#x}/{after:#x}/{flags}/-/-/1", *good[1:]]
        found = counted(mapping + sampled(TAKEN, first, mixed), fixed, code)
        expected = counted(mapping + sampled(TAKEN, first, good), fixed, code)
        assert found.pop("conditional-branch-mispredicts").get(last, 0) == mispredicts
        del expected["conditional-branch-mispredicts"]
        assert found == expected
    none = mapping + sampled("branches:u", first, [f"{last:#x}/{after:#x}/PN/-/-/1"] * 4)
    with pytest.raises(PmuError, match="but no event that PMU profiles use"):
        counted(none, fixed, code)


@pytest.mark.compiler
def test_stacks_that_do_not_tell_mispredicts(
    mapping: str, loop: tuple[int, int], fixed: Path, code: Disassembly
) -> None:
    """Nothing is known then; a rate of 0 would be something."""
    found = counted(mapping + sampled(TAKEN, loop[0], stack_of(*loop, "-/-/-/0")), fixed, code)
    assert found["executions"][loop[1]] == 6000
    assert not {name for name in found if "mispredict" in name}


@pytest.mark.compiler
def test_stacks_of_cycles_without_cycle_counts(
    mapping: str,
    loop: tuple[int, int],
    fixed: Path,
    code: Disassembly,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stack = stack_of(*loop, "M/-/-/0")
    text = mapping + sampled("cycles:u", loop[0], stack)
    found = counted(text, fixed, code)
    body = [a for a in code.addresses if loop[0] <= a <= loop[1]]
    # Right in proportion: each as often, and mispredicted each time.
    assert set(found["executions"]) == set(body)
    assert len(set(found["executions"].values())) == 1
    assert sum(found["executions"].values()) == pytest.approx(6000, abs=len(body))
    branches, mispredicts = (
        found[name][loop[1]] for name in ("conditional-branches", "conditional-branch-mispredicts")
    )
    assert mispredicts == pytest.approx(branches, abs=1)
    assert "have no cycle counts on this processor: executions are right relative" in caplog.text
    # Beside events that they would be set in proportion to, they are left out.
    load = of_kind(code, fixed, "chase", Kind.LOAD)
    caplog.clear()
    found = counted(f"{text}  100 1009 mem_load_retired.l3_miss:upp: {load:x}\n", fixed, code)
    assert set(found) == {"cycles", "llc-load-misses"}
    assert "they are left out; record branch stacks of taken branches" in caplog.text
    # Instructions tell how many there were.
    found = counted(f"{text}  100 777 instructions:u: {load:x}\n", fixed, code)
    assert sum(found["executions"].values()) == pytest.approx(777, abs=len(body))
    # What is no event of profiles changes nothing.
    found = counted(f"{text}  100 1 page-faults:u: {load:x}\n", fixed, code)
    assert sum(found["executions"].values()) == pytest.approx(6000, abs=len(body))


@pytest.mark.compiler
@pytest.mark.parametrize("kinds", ["CALL_STACK", "ANY_CALL", "USER|COND", "IND_CALL"])
def test_stacks_of_some_kinds_of_branches(
    kinds: str,
    mapping: str,
    loop: tuple[int, int],
    fixed: Path,
    code: Disassembly,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Between two of them other branches were executed."""
    header = f"# event : name = cycles:u, , id = {{ 1 }}, type = 0, branch_sample_type = {kinds}\n"
    text = header + mapping + sampled("cycles:u", loop[0], stack_of(*loop))
    assert set(counted(text, fixed, code)) == {"cycles"}
    assert "they hold only some kinds of branches" in caplog.text
    whole = counted(text.replace(kinds, "USER|ANY"), fixed, code)
    assert whole["executions"][loop[1]] == 1200


@pytest.mark.compiler
def test_events_that_nobody_knows(
    mapping: str,
    loop: tuple[int, int],
    fixed: Path,
    code: Disassembly,
    caplog: pytest.LogCaptureFixture,
) -> None:
    unknown = sampled("nobody_ever_heard_of_it:upp", loop[0], stack_of(*loop))
    with pytest.raises(
        PmuError, match=r"nobody_ever_heard_of_it, but no event .* name it: perf record"
    ):
        counted(mapping + unknown, fixed, code)
    # Beside others it changes nothing, and is named.
    alone = mapping + sampled(TAKEN, loop[0], stack_of(*loop))
    assert counted(alone + unknown, fixed, code) == counted(alone, fixed, code)
    assert "unknown event nobody_ever_heard_of_it" in caplog.text
    # The header says it.
    known = (
        "# ========\n# cpuid : GenuineIntel,6,85,7\n# cmdline : perf record -- sh -c echo\necho a\n"
        "# event : name = nobody_ever_heard_of_it:upp, , id = { 1 }, type = 4, size = 128, "
        "config = 0x20c4, precise_ip = 2\n# ========\n"
    )
    assert counted(known + mapping + unknown, fixed, code) == counted(alone, fixed, code)


@pytest.mark.compiler
def test_all_spellings_give_one_profile(
    mapping: str, loop: tuple[int, int], fixed: Path, code: Disassembly
) -> None:
    load = of_kind(code, fixed, "chase", Kind.LOAD)
    found = [
        counted(
            mapping
            + sampled(taken, loop[0], stack_of(*loop, "M/-/-/5"))
            + f"  100 1009 {miss}: {load:x}\n",
            fixed,
            code,
        )
        for taken, miss in (
            ("br_inst_retired.near_taken:upp", "mem_load_retired.l3_miss:upp"),
            ("BR_INST_RETIRED.NEAR_TAKEN:upp", "MEM_LOAD_RETIRED.L3_MISS:upp"),
            ("cpu/event=0xc4,umask=0x20/upp", "cpu/event=0xd1,umask=0x20/upp"),
            ("r20c4:upp", "r20d1:upp"),
            ("br_inst_retired:near_taken:u:precise=2", "mem_load_retired:l3_miss:u:precise=2"),
        )
    ]
    assert found[0]["llc-load-misses"] == {load: 1009}
    assert all(one == found[0] for one in found)


@pytest.mark.compiler
def test_one_event_under_two_names_counts_once(
    mapping: str, fixed: Path, code: Disassembly, caplog: pytest.LogCaptureFixture
) -> None:
    load = of_kind(code, fixed, "chase", Kind.LOAD)

    def total(*events: str) -> int:
        text = mapping + "".join(f"  100 1000 {event}: {load:x}\n" for event in events)
        return sum(counted(text, fixed, code)["cycles"].values())

    one = total("cycles:u")
    assert total("cycles:u", "cpu-cycles:u") == total("cycles:u", "cycles") == one
    assert "cpu-cycles:u counts the same as cycles:u: it is left out" in caplog.text
    assert total("cycles:u", "cycles:k") == total("cpu_core/cycles/u", "cpu_atom/cycles/u")
    assert total("cycles:u", "cycles:k") == pytest.approx(2 * one, rel=0.01)


@pytest.mark.compiler
def test_loads_of_unknown_levels_are_no_hits(
    mapping: str, fixed: Path, code: Disassembly, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load = of_kind(code, fixed, "chase", Kind.LOAD)
    text = mapping
    for level in ("L3 hit", "CXL hit", "Some new thing hit", "N/A"):
        text += f"  100 1000 ibs_op//: 19a1002 |OP LOAD|LVL {level}|SNP N/A|BLK  N/A  9 {load:x}\n"
    found = counted(text, fixed, code)
    assert found["loads"] == found["l1-load-misses"] == {load: 2000}
    assert found["llc-load-misses"] == {load: 1000}
    assert found["timed-loads"] == {load: 4000}
    (tmp_path / "perf.txt").write_text(text)
    read_counts(tmp_path / "perf.txt", fixed)
    assert "ibs_op: 2 of 4 samples are loads without a memory level" in caplog.text


# Which mappings are the binary's, and what they hide


@pytest.mark.compiler
def test_a_mapping_hides_the_part_that_it_covers(
    mapping: str, fixed: Path, code: Disassembly, caplog: pytest.LogCaptureFixture
) -> None:
    begin = int(re.search(r"\[0x([0-9a-f]+)", mapping)[1], 16)  # type: ignore[index]
    address = code.addresses[len(code.addresses) // 2]
    sample = f"  100 5 cpu-clock:u: {address:x}\n"

    def samples(start: int, size: int, name: str, *, first: str = mapping) -> int:
        line = (
            f"  100 PERF_RECORD_MMAP2 100/100: [{start:#x}({size:#x}) @ 0 fe:00 2 3]: r-xp {name}\n"
        )
        script = read_script([first, line, sample], fixed, "script")
        return sum(script.samples["cpu-clock"].values())

    for start, size, seen in (
        (address + 1, 16, 5),
        (address - 16, 16, 5),
        (begin, address - begin, 5),
        (address, 1, 0),
        (address - 8, 16, 0),
        (begin - 4096, 1 << 30, 0),
    ):
        for name in ("//anon", "/usr/lib/libc.so.6", "/memfd:jit (deleted)"):
            assert samples(start, size, name) == seen
    # Of the file itself the newest mapping counts.
    where = read_script([mapping, mapping, sample], fixed, "script")
    assert where.samples["cpu-clock"] == {address: 5}
    hidden = [mapping, mapping.replace("/home/user/workload", "//anon"), sample]
    with pytest.raises(PmuError, match=r"1 of the recording's 1 samples are in //anon, which the"):
        counted("".join(hidden), fixed, code)
    half = f"  100 PERF_RECORD_MMAP2 100/100: [{address:#x}(0x10) @ 0 00:00 0 0]: r-xp //anon\n"
    other = f"  100 5 cpu-clock:u: {code.addresses[0]:x}\n"
    assert counted(mapping + half + sample + other, fixed, code)["cpu-time"]
    assert "50.0% of the samples are in //anon" in caplog.text


@pytest.mark.compiler
def test_a_program_that_was_replaced_while_it_ran(mapping: str, fixed: Path) -> None:
    sample = "  100 5 cpu-clock:u: 1\n"
    lines = [mapping.replace("\n", " (deleted)\n"), sample]
    assert read_script(lines, fixed, "script").periods == {"cpu-clock": (1, 5)}
    deleted = "/home/user/workload (deleted)"
    assert RecordedBinary(fixed, mapped_files(lines), "script").paths == {deleted}
    # The one in its place is another build.
    files = [(deleted, ""), ("/home/user/workload", build_id(fixed))]
    recorded = RecordedBinary(fixed, files, "script")
    assert not recorded.takes(deleted, "")
    assert recorded.takes("/home/user/workload", "")


@pytest.mark.compiler
def test_build_ids_as_perf_writes_them(fixed: Path) -> None:
    """Padded, cut, unknown; upper and lower limits of what is the same."""
    mine = build_id(fixed)
    path = "/home/user/workload"
    for same in (mine, mine + "00000000", mine[:32], mine[:32] + "00000000"):
        recorded = RecordedBinary(fixed, [(path, same), ("/other/workload", "ab" * 20)], "script")
        assert recorded.proven
        assert recorded.takes(path, "")
        assert recorded.takes("/anywhere/workload (deleted)", same)
        assert not recorded.takes("/other/workload", "")
        assert not recorded.takes(path, "ab" * 20)
        assert not recorded.takes("/home/user/other", same)
    for unknown in ("", "0" * 40):
        recorded = RecordedBinary(fixed, [(path, unknown)], "script")
        assert not recorded.proven
        assert recorded.takes(path, unknown)
    # What is known to be another one is not taken for one that is not known.
    assert RecordedBinary(fixed, [(path, "ab" * 20), ("/b/workload", "")], "script").paths == {
        "/b/workload"
    }
    for other in ("ab" * 20, mine[:8], mine[:12] + "00" * 14):
        with pytest.raises(PmuError, match=r"it recorded .* with build-id .*; name the binary"):
            RecordedBinary(fixed, [(path, other)], "script")


@pytest.mark.compiler
def test_two_programs_of_one_name(mapping: str, fixed: Path, code: Disassembly) -> None:
    """By folder; where that does not tell, neither is taken."""
    folders = fixed.parts[-3:-1]
    mine, other = f"/srv/{'/'.join(folders)}/workload", "/srv/other/workload"
    address = code.addresses[0]
    lines = [
        mapping.replace("/home/user/workload", mine),
        mapping.replace("/home/user/workload", other).replace("100", "200", 3),
        f"  100 5 cpu-clock:u: {address:x}\n",
        f"  200 7 cpu-clock:u: {address:x}\n",
    ]
    recorded = RecordedBinary(fixed, mapped_files(lines), "script")
    script = read_script(lines, fixed, "script", recorded=recorded)
    assert script.samples["cpu-clock"] == {address: 5}
    assert script.outside["cpu-clock"] == 7
    with pytest.raises(PmuError, match=r"several programs called workload ran.*/a/w.*, /b/w"):
        RecordedBinary(fixed, [("/a/workload", ""), ("/b/workload", "")], "script")
    # An id in the text itself tells.
    text = "".join(lines).replace("fe:00 2476308 3332914289", f"<{build_id(fixed)}>", 1)
    text = text.replace("fe:00 2476308 3332914289", f"<{'ab' * 20}>")
    marked = text.splitlines(keepends=True)
    recorded = RecordedBinary(fixed, mapped_files(marked), "script")
    script = read_script(marked, fixed, "script", recorded=recorded)
    assert script.samples["cpu-clock"] == {address: 5}


# Call chains


@pytest.mark.compiler
def test_call_chains_in_text(
    mapping: str, loop: tuple[int, int], fixed: Path, code: Disassembly
) -> None:
    """Samples of several lines, of which the first address is the sample's."""
    source = "68100842 |OP LOAD|LVL Local RAM or RAM hit|SNP None or Miss|TLB L2 miss|LCK No "
    stack = " ".join(stack_of(*loop))
    chain = f"\t{loop[0]:16x}\n\t{0x1234:16x} main+0x5 (/bin/x)\n"
    for head, tail in ((" ", ""), (f"  {source}   310 ", ""), (" ", f"  {stack} \n")):
        event = "cycles:u" if tail else "mem_load_retired.l3_miss:upp"
        flat = f"  100 1009 {event}:{head}  {loop[0]:x}  {tail.strip()}\n"
        several = f"  100 1009 {event}:{head}\n{chain}{tail}\n"
        expected = counted(mapping + flat, fixed, code)
        assert expected
        assert counted(mapping + 2 * several, fixed, code) == counted(
            mapping + 2 * flat, fixed, code
        )
    script = read_script([mapping, "  100 7 cycles:u: \n", "\n"], fixed, "script")
    assert script.outside["cycles"] == 7


# Malformed input


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("hello world\n", r"script:2: neither a sample with the fields pid, event, ip, period"),
        ("  100 cycles:u: 401000\n", r"script:2: neither a sample"),
        ("  100 10 cycles:u: 401000 0x1/0x2\n", r"script:2: (neither a sample|not a branch stack)"),
        ("  100 10 cycles:u: nowhere\n", r"script:2: neither a sample"),
        (f"  100 {'9' * 5000} cycles:u: 401000\n", r"script:2: neither a sample"),
        (f"  {'9' * 5000} 10 cycles:u: 401000\n", r"script:2: neither a sample"),
        (f"  100 10 cycles:u: 1 0x1/0x2/P/-/-/{'9' * 5000}\n", r"script:2: not a branch stack"),
        ("\0\0\0\0\n", r"script:2: neither a sample"),
        (
            "128 0x8660 [0x60]: PERF_RECORD_SAMPLE(IP, 0x4002): 4/4: 0x5\n",
            r"perf script -D.*without",
        ),
    ],
)
def test_malformed_line(line: str, message: str, mapping: str, fixed: Path) -> None:
    with pytest.raises(PmuError, match=message):
        read_script([mapping, line], fixed, "script")


@pytest.mark.compiler
def test_other_recordings(mapping: str, fixed: Path, code: Disassembly) -> None:
    with pytest.raises(PmuError, match="script: empty; was anything recorded"):
        read_script([], fixed, "script")
    other = "  1 PERF_RECORD_MMAP2 1/1: [0x400000(0x1000) @ 0 fe:00 1 2]: r-xp /bin/sleep\n"
    with pytest.raises(PmuError, match=r"workload was never mapped; there were /bin/sleep\."):
        read_script([other], fixed, "script")
    with pytest.raises(PmuError, match="holds page-faults, but no event that PMU profiles use"):
        counted(f"{mapping}  100 10 page-faults: {code.addresses[0]:x}\n", fixed, code)
    with pytest.raises(PmuError, match="the recording has no samples"):
        counted(mapping, fixed, code)
    elsewhere = "0x7f0000000010/0x7f0000000000/P/-/-/1"
    with pytest.raises(PmuError, match="none of the recording's 1 samples is in workload"):
        counted(f"{mapping}  1 9 {TAKEN}: 7f00  {elsewhere} {elsewhere}\n", fixed, code)


# Agreement with the simulator


def trace(binary: Path, folder: Path) -> Iterator[int]:
    """Start addresses of all blocks that a run of `binary` executes, by valgrind's lackey."""
    stripped = folder / "workload"
    hide_debug_info(binary, stripped)
    log = folder / "lackey"
    run_command(
        [
            "valgrind",
            "--tool=lackey",
            "--trace-superblocks=yes",
            "--basic-counts=no",
            # One block each: no following of jumps, no unrolling of loops.
            "--vex-guest-chase=no",
            "--vex-iropt-unroll-thresh=0",
            f"--log-file={log}",
            stripped,
            "repeat",
            "10",
        ],
        timeout_s=300,
    )
    with log.open() as lines:
        for line in lines:
            if line.startswith("SB "):
                yield int(line[3:], 16)


def taken_branches(blocks: Iterator[int], code: Disassembly) -> Iterator[tuple[int, int]]:
    """Source and target of each taken branch of a trace; other code is one block each."""
    addresses = [*code.addresses, 1 << 63]
    for block, following in itertools.pairwise(blocks):
        index = code.index(block)
        if index is None:
            if code.index(following) is not None:
                yield block, following
            continue
        start = index
        # A block without a branch ends where valgrind's translation is full; a shorter one that is
        # followed by an address inside it went there by its branch.
        while not code.kinds[index] & Kind.BRANCH:
            if index - start > 30 and addresses[index + 1] == following:
                break
            index += 1
        fallthrough = addresses[index + 1]
        if code.kinds[index] & Kind.BRANCH and following != fallthrough:
            yield addresses[index], following


@pytest.fixture(scope="module")
def branch_stacks(
    fixed: Path, code: Disassembly, mapping: str, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A run of the program as perf would print it on a processor with 32 branch records."""
    folder = tmp_path_factory.mktemp("trace")
    path = folder / "script"
    taken = list(taken_branches(trace(fixed, folder), code))
    with path.open("w") as stream:
        stream.write(mapping)
        for start in range(0, len(taken) - 1, 31):
            stack = taken[start : start + 32][::-1]
            entries = " ".join(f"{source:#x}/{target:#x}/P/-/-/0" for source, target in stack)
            stream.write(
                f"  100  {len(stack) - 1:9} cpu/br_inst_retired.near_taken,period=31/ppu: "
                f"{stack[0][1]:16x}  {entries} \n"
            )
    return path


@pytest.mark.compiler
def test_executions_agree_with_the_simulator(
    branch_stacks: Path, fixed: Path, code: Disassembly, tmp_path: Path
) -> None:
    with branch_stacks.open() as lines:
        sampled = by_event(count(read_script(lines, fixed, "script"), code))
    stripped = tmp_path / "workload"
    hide_debug_info(fixed, stripped)
    (dump,) = simulate(Run(stripped, ["repeat", "10"], timeout_s=120), tmp_path, CacheGeometry())
    simulated = by_event(event_counts(read_dump(dump, stripped)))
    for event in ("executions", "conditional-branches", "indirect-branches"):
        addresses = sampled[event].keys() | simulated[event].keys()
        # Stacks overlap by one branch, so that everything is seen once.
        hot = [a for a in addresses if simulated[event].get(a, 0) > 100]
        assert hot
        for address in hot:
            assert sampled[event].get(address, 0) == pytest.approx(
                simulated[event][address], rel=0.01, abs=2
            ), f"{event} at {address:#x}"


@pytest.mark.compiler
def test_both_back_ends_write_the_same_format(
    branch_stacks: Path, fixed: Path, tmp_path: Path, show: Show
) -> None:
    counted = import_recording(branch_stacks, fixed, tmp_path / "perf.pmu.json")
    assert Manifest.load(counted.path) == counted
    simulated = collect(fixed, ["repeat", "10"], tmp_path / "simulated.pmu.json", timeout_s=120)
    assert counted.collector.backend == "perf"
    assert counted.program == simulated.program
    theirs = {event.name: event for event in simulated.events}
    mine = {event.name for event in counted.events}
    # Branch stacks tell nothing of memory.
    assert not mine - theirs.keys()
    assert theirs.keys() - mine == {
        *("loads", "stores", "l1-load-misses", "llc-load-misses", "icache-misses"),
    }
    for event in counted.events:
        if event.name not in theirs:
            continue
        assert (event.kind, event.unit) == (theirs[event.name].kind, theirs[event.name].unit)
    for function in ("outer", "choose", "unrolled", "often", "repeated"):
        pair = [show(one.file(one.event("executions")))[function] for one in (counted, simulated)]
        assert {line["line"] for line in pair[0]["body"]} == {
            line["line"] for line in pair[1]["body"]
        }
        assert pair[0]["total"] == pytest.approx(pair[1]["total"], rel=0.002)
        assert pair[0]["head"] == pytest.approx(pair[1]["head"], rel=0.04, abs=1)
        hot = [
            show(one.file(one.event("hot-code-bytes"))).get(function)
            for one in (counted, simulated)
        ]
        assert (hot[0] or {}).get("body") == (hot[1] or {}).get("body")
