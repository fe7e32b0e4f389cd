# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import pytest

from compiler_opt_perf.profile.cpus import CPUS, geometry_of
from compiler_opt_perf.profile.errors import PmuError


def machine(folder: Path, caches: list[tuple[int, str, str, int, str]], threads: str) -> Path:
    """A folder as /sys/devices/system/cpu/cpu0/cache is."""
    topology, cache = folder / "topology", folder / "cache"
    topology.mkdir()
    (topology / "thread_siblings_list").write_text(threads + "\n")
    for number, (level, kind, size, ways, shared) in enumerate(caches):
        index = cache / f"index{number}"
        index.mkdir(parents=True)
        for name, value in (
            ("level", level),
            ("type", kind),
            ("size", size),
            ("ways_of_associativity", ways),
            ("coherency_line_size", 64),
            ("shared_cpu_list", shared),
        ):
            (index / name).write_text(f"{value}\n")
    return cache


def test_named_processors() -> None:
    assert str(geometry_of("icelake-server").d1) == "49152,12,64"
    assert str(geometry_of("skylake-server").ll) == "1441792,11,64"
    assert len(CPUS) >= 5
    with pytest.raises(PmuError, match=r"processor 'vax': known are host, skylake-server.*--LL"):
        geometry_of("vax")


def test_host_with_shared_last_level(tmp_path: Path) -> None:
    # 16 cores of two threads share 32 MiB; two of these cores' L2 are not simulated.
    cache = machine(
        tmp_path,
        [
            (1, "Data", "48K", 12, "0,16"),
            (1, "Instruction", "32K", 8, "0,16"),
            (2, "Unified", "2048K", 16, "0,16"),
            (3, "Unified", "32768K", 16, "0-31"),
        ],
        "0,16",
    )
    found = geometry_of("host", cache)
    assert found.as_dict() == {"I1": "32768,8,64", "D1": "49152,12,64", "LL": "2097152,16,64"}


def test_host_whose_sets_are_no_power_of_two(tmp_path: Path) -> None:
    cache = machine(
        tmp_path,
        [
            (1, "Data", "32K", 8, "0"),
            (1, "Instruction", "32K", 8, "0"),
            (3, "Unified", "36608K", 11, "0-1"),
        ],
        "0",
    )
    assert str(geometry_of("host", cache).ll) == f"{16384 * 11 * 64},11,64"


def test_host_that_does_not_tell(tmp_path: Path) -> None:
    with pytest.raises(PmuError, match="does not report its caches"):
        geometry_of("host", tmp_path / "cache")
    cache = machine(tmp_path, [(1, "Data", "32K", 8, "0")], "0")
    with pytest.raises(PmuError, match="does not report its caches"):
        geometry_of("host", cache)


def test_this_machine() -> None:
    """Either the kernel tells caches that can be simulated, or the message says what to do."""
    try:
        found = geometry_of("host")
    except PmuError as error:
        assert "--cpu=" in str(error)
    else:
        assert found.d1.size >= 16 * 1024
        assert found.ll.size >= found.d1.size
