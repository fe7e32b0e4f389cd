# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cache geometries for callgrind: of known processors and of this machine."""

from pathlib import Path

from compiler_opt_perf.profile.callgrind import Cache, CacheGeometry
from compiler_opt_perf.profile.errors import PmuError

_KIB, _MIB = 1024, 1024 * 1024
_HOST_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def _geometry(i1: tuple[int, int], d1: tuple[int, int], ll: tuple[float, int]) -> CacheGeometry:
    """The geometry of caches given as (KiB, ways), (KiB, ways), (MiB, ways), with 64-byte lines."""
    return CacheGeometry(
        Cache(i1[0] * _KIB, i1[1], 64),
        Cache(d1[0] * _KIB, d1[1], 64),
        Cache(int(ll[0] * _MIB), ll[1], 64),
    )


# First-level caches, and one core's share of the last level, from the vendors' optimisation
# manuals. callgrind simulates no second level. With a non-inclusive last level (Intel since
# Skylake-SP, AMD's Zen) a core has somewhat more cache than simulated.
CPUS = {
    "skylake-server": _geometry((32, 8), (32, 8), (1.375, 11)),
    "icelake-server": _geometry((32, 8), (48, 12), (1.5, 12)),
    "sapphire-rapids": _geometry((32, 8), (48, 12), (1.875, 15)),
    "alder-lake": _geometry((32, 8), (48, 12), (3, 12)),
    "zen2": _geometry((32, 8), (32, 8), (4, 16)),
    "zen3": _geometry((32, 8), (32, 8), (4, 16)),
    "zen4": _geometry((32, 8), (32, 8), (4, 16)),
}


def geometry_of(name: str, host_caches: Path = _HOST_CACHES) -> CacheGeometry:
    """The caches of a processor of the table `CPUS`, or of this machine ("host").

    Raises:
      PmuError: the processor is unknown, or this machine does not report its caches.
    """
    if name == "host":
        return host_geometry(host_caches)
    if name not in CPUS:
        raise PmuError(f"processor {name!r}: known are host, {', '.join(CPUS)}; or give --LL=...")
    return CPUS[name]


def host_geometry(caches: Path = _HOST_CACHES) -> CacheGeometry:
    """The caches that this machine's kernel reports, with one core's share of the last level.

    callgrind needs a power of two as number of sets, so the number is rounded down.

    Raises:
      PmuError: the kernel does not report the caches.
    """
    found: dict[tuple[int, str], Cache] = {}
    try:
        threads = _count((caches.parent / "topology" / "thread_siblings_list").read_text())
        for index in sorted(caches.glob("index[0-9]*")):

            def field(name: str, index: Path = index) -> str:
                return (index / name).read_text().strip()

            level, ways = int(field("level")), int(field("ways_of_associativity"))
            line = int(field("coherency_line_size"))
            size = int(field("size").removesuffix("K")) * _KIB
            if level > 1:
                # The number of cores that share it: its threads, divided by the threads per core.
                size //= max(1, _count(field("shared_cpu_list")) // threads)
            sets = size // (ways * line)
            found[level, field("type")] = Cache(
                (1 << (sets.bit_length() - 1)) * ways * line, ways, line
            )
        last = max(level for level, _ in found)
        return CacheGeometry(found[1, "Instruction"], found[1, "Data"], found[last, "Unified"])
    except (OSError, ValueError, KeyError) as error:
        raise PmuError(
            f"{caches}: this machine does not report its caches ({error}); name a processor "
            f"(--cpu={next(iter(CPUS))}) or give --I1=, --D1= and --LL="
        ) from error


def _count(cpus: str) -> int:
    """The number of CPUs in a kernel's list: "0-3,8" has 5."""
    total = 0
    for part in cpus.strip().split(","):
        first, _, last = part.partition("-")
        total += int(last or first) - int(first) + 1
    return total
