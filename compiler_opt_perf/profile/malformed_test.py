# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every kind of text that the package reads, damaged in every way: the error names file and line.

Damaged binary files (perf.data, sample profiles) are in the tests of their readers.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from compiler_opt_perf.binary.elf import hide_debug_info
from compiler_opt_perf.profile.callgrind import CacheGeometry, simulate
from compiler_opt_perf.profile.callgrind_dump import read_dump
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.events import event_named
from compiler_opt_perf.profile.manifest import Manifest
from compiler_opt_perf.profile.perf_data import read_recording
from compiler_opt_perf.profile.sample_profile import SampleProfile, convert_to_text
from compiler_opt_perf.run.command import CommandError
from compiler_opt_perf.run.workload import Run

pytestmark = pytest.mark.compiler

# What perf 6.1 prints of each vendor's samples, after the line that says where the program is.
_MAPPED = "  100 PERF_RECORD_MMAP2 100/100: [0x1000(0x2000) @ 0x1000 fe:00 2 3]: r-xp /b/workload\n"
_SOURCE = "68100842 |OP LOAD|LVL Local RAM or RAM hit|SNP None|TLB L2 miss|LCK No"
_SCRIPTS = {
    "Intel, loads": (
        f"  100   1009 cpu/mem_load_retired.l3_miss,period=1009/ppu:  {_SOURCE}   310   1180 \n"
    ),
    "Intel, branch records": (
        "  100 100003 cpu/br_inst_retired.near_taken,period=100003,branch_type=any/ppu:   1180 "
        " 0x1190/0x1180/P/-/-/3 0x1190/0x1180/M/-/-/19 \n"
    ),
    "Intel, mispredicts": "  100  10007 cpu/br_misp_retired.cond,period=10007/ppu:   1190 \n",
    "AMD, IBS": f"  100 100000 ibs_op/cnt_ctl=1,period=100000/:  {_SOURCE}     9   1180 \n",
    "AMD, branch records": (
        "  100 100003 cpu/ex_ret_brn_tkn,period=100003,branch_type=any/u:   1180 "
        " 0x1190/0x1180/P/-/-/0/COND/- 0x1190/0x1180/M/-/-/0/COND/- \n"
    ),
    "AMD, mispredicts": (
        "  100 10007 cpu/ex_ret_msprd_brnch_instr_dir_msmtch,period=10007,branch_type=any/u:  1194 "
        " 0x1190/0x1180/M/-/-/0 \n"
    ),
    "generic": "  100 1009 LLC-load-misses/period=1009/u:  1184 \n",
}


@pytest.fixture(scope="module")
def texts(
    workload: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, Callable[[Path], object]]]:
    """For each kind of text: an undamaged file, and its reader."""
    folder = tmp_path_factory.mktemp("texts")
    result: dict[str, tuple[Path, Callable[[Path], object]]] = {}
    for kind, sample in _SCRIPTS.items():
        path = folder / f"{len(result)}.txt"
        path.write_text(_MAPPED + 9 * sample)
        result[kind] = path, lambda path: read_recording(path, workload)

    program = folder / "workload"
    hide_debug_info(workload, program)
    (dump,) = simulate(Run(program, ["threads"], timeout_s=60), folder, CacheGeometry())
    result["callgrind"] = dump, lambda path: read_dump(path, program)

    manifest = collect(workload, ["threads"], folder / "w.pmu.json", timeout_s=60)
    result["manifest"] = manifest.path, Manifest.load
    event = event_named("executions")
    profile, text = folder / "executions.txt", folder / "text"
    convert_to_text(manifest.file(manifest.event("executions")), profile)
    result["sample profile"] = profile, lambda path: SampleProfile([event]).read_text(event, path)
    result["sample profile, LLVM's reader"] = profile, lambda path: convert_to_text(path, text)
    return result


def foreign_line(lines: list[str]) -> int:
    middle = len(lines) // 2
    lines.insert(middle, "Segmentation fault\n")
    return middle


def binary_line(lines: list[str]) -> int:
    middle = len(lines) // 2
    lines.insert(middle, "\1\2\x7f\3\n")
    return middle


def word_for_a_number(lines: list[str]) -> int:
    """In the middle, the last number of a line that ends with one; else the first of a sample."""
    for index in range(len(lines) // 2, len(lines)):
        if "calls=" in lines[index - 1] + lines[index]:
            continue  # The costs of a call are its callee's; they are not read.
        words = lines[index].rstrip(" \n,").split(" ")
        if words[-1].isalnum() and words[-1][0].isdigit():
            lines[index] = " ".join([*words[:-1], "many"]) + "\n"
            return index
        if "/-/-/" in lines[index]:
            lines[index] = lines[index].replace("0x1190/", "many/")
            return index
    raise AssertionError


def cut_off(lines: list[str]) -> int:
    """The last line that holds something, after a third."""
    del lines[len(lines) * 3 // 4 :]
    while len(lines[-1].strip()) < 4:
        del lines[-1]
    content = lines[-1].strip()
    indent = lines[-1][: lines[-1].index(content)]
    lines[-1] = indent + content[: len(content) // 3 or 1]
    return len(lines) - 1


KINDS = (*_SCRIPTS, "callgrind", "manifest", "sample profile", "sample profile, LLVM's reader")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "damage", [foreign_line, binary_line, word_for_a_number, cut_off], ids=lambda one: one.__name__
)
def test_damage_is_found_at_its_line(
    kind: str,
    damage: Callable[[list[str]], int],
    texts: dict[str, tuple[Path, Callable[[Path], object]]],
) -> None:
    whole, read = texts[kind]
    read(whole)
    lines = whole.read_text().splitlines(keepends=True)
    number = damage(lines) + 1
    # Beside the original, for a manifest names files in its folder.
    damaged = whole.with_name(f"damaged.{whole.name}")
    damaged.write_text("".join(lines))
    with pytest.raises((PmuError, CommandError)) as caught:
        read(damaged)
    assert f"{damaged}:{number}:" in str(caught.value)
