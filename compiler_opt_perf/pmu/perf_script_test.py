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
from compiler_opt_perf.binary.elf import hide_debug_info
from compiler_opt_perf.binary.symbolize import symbolize
from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.execution.workload import Run
from compiler_opt_perf.pmu.callgrind import CacheGeometry, simulate
from compiler_opt_perf.pmu.callgrind_dump import event_counts, read_dump
from compiler_opt_perf.pmu.collect import collect, import_recording
from compiler_opt_perf.pmu.counts import Counts
from compiler_opt_perf.pmu.errors import PmuError
from compiler_opt_perf.pmu.manifest import Manifest
from compiler_opt_perf.pmu.perf_attribution import count
from compiler_opt_perf.pmu.perf_script import base_name, read_script

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
        event.name: {address: row[n] for address, row in counts.at.items() if row[n]}
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
    assert base_name(event) == name


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


def test_recordings_at_a_frequency_are_not_exact(
    mapping: str, fixed: Path, code: Disassembly
) -> None:
    """perf begins with a period of 1 and never has another one twice."""
    load = of_kind(code, fixed, "chase", Kind.LOAD)
    periods = [1, 1, 1, 900, 5100, 8997]
    text = mapping + "".join(f"  100 {period} cycles:u: {load:16x}\n" for period in periods)
    counts = count(read_script(text.splitlines(keepends=True), fixed, "script"), code)
    assert counts.periods == [sum(periods) // len(periods)]
    unseen = next(address for address in code.addresses if address not in counts.at)
    assert not counts.add_unexecuted([unseen])
    assert unseen not in counts.at
    ones = mapping + f"  100 1 cycles:u: {load:16x}\n"
    counts = count(read_script(ones.splitlines(keepends=True), fixed, "script"), code)
    assert not counts.add_unexecuted([unseen])


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


# Malformed input


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("hello world\n", r"script:2: neither a sample with the fields pid, event, ip, period"),
        ("  100 cycles:u: 401000\n", r"script:2: neither a sample"),
        ("  100 10 cycles:u: 401000 0x1/0x2\n", r"script:2: (neither a sample|not a branch stack)"),
        ("  100 10 cycles:u: nowhere\n", r"script:2: neither a sample"),
        ("\0\0\0\0\n", r"script:2: neither a sample"),
    ],
)
def test_malformed_line(line: str, message: str, mapping: str, fixed: Path) -> None:
    with pytest.raises(PmuError, match=message):
        read_script([mapping, line], fixed, "script")


def test_other_recordings(mapping: str, fixed: Path, code: Disassembly) -> None:
    with pytest.raises(PmuError, match="script: empty; was anything recorded"):
        read_script([], fixed, "script")
    other = "  1 PERF_RECORD_MMAP2 1/1: [0x400000(0x1000) @ 0 fe:00 1 2]: r-xp /bin/sleep\n"
    with pytest.raises(PmuError, match=r"workload was never mapped; there were /bin/sleep\."):
        read_script([other], fixed, "script")
    script = read_script([mapping, "  100 10 page-faults: 401000\n"], fixed, "script")
    with pytest.raises(PmuError, match="the recording holds page-faults, which are no events"):
        count(script, code)


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
