# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Two ways to count the events of a run: the simulator callgrind, and perf on hardware counters."""

import contextlib
import dataclasses
import os
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from absl import logging

from compiler_opt_perf.binary.disassembly import disassemble
from compiler_opt_perf.binary.elf import function_entries, hide_debug_info, soname
from compiler_opt_perf.profile import callgrind, perf_data, perf_record
from compiler_opt_perf.profile.callgrind import CacheGeometry
from compiler_opt_perf.profile.callgrind_dump import Dump, event_counts, read_dumps
from compiler_opt_perf.profile.counts import Counts
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.manifest import Collector
from compiler_opt_perf.profile.perf_attribution import count
from compiler_opt_perf.run.progress import stage
from compiler_opt_perf.run.workload import Run

BackendName = Literal["callgrind", "perf", "auto"]

# A share of counts outside the profile above which the user is told.
_LARGE_SHARE = 0.02


class Backend(Protocol):
    """A way to count the events of a run."""

    def collector(self, run: Run) -> Collector:
        """Describes the tool for the manifest. Raises PmuError: the tool is missing."""

    def count(self, run: Run, binary: Path, scratch: Path) -> Counts:
        """Runs a program and counts events at the instructions of a binary.

        Args:
          run: the run to count; its program is the binary, or loads it.
          binary: executable or shared library, with debug info.
          scratch: an empty folder for temporary files.

        Raises:
          PmuError: the run failed, or its counts cannot be read.
        """


def choose(name: BackendName, binary: Path, geometry: CacheGeometry, within: str | None) -> Backend:
    """Chooses a back-end; "auto" takes perf if this machine counts `perf_record.NEEDED`.

    Args:
      name: "callgrind", "perf" or "auto".
      binary: the binary to profile.
      geometry: caches to simulate.
      within: count only while this function of the binary is active; only callgrind can.

    Raises:
      PmuError: there is no perf, or it cannot count here.
      BinaryError: the binary has no such function.
    """
    if within is not None:
        entries = function_entries(binary, within)
        if name == "perf":
            raise PmuError(
                "perf cannot count the calls of one function alone; use --backend=callgrind"
            )
        if name == "auto":
            logging.info(
                "back-end callgrind, because perf cannot count the calls of one function alone"
            )
        return Simulator(geometry, within, entries)
    plan = _plan(name)
    return Simulator(geometry) if plan is None else Hardware(plan)


@dataclass(frozen=True)
class Simulator:
    """The back-end that simulates the program in valgrind's callgrind.

    Attributes:
      geometry: caches to simulate.
      within: count only while this function is active; None counts the whole run.
      entries: the entry addresses of that function.
    """

    geometry: CacheGeometry
    within: str | None = None
    entries: Container[int] = ()

    def collector(self, run: Run) -> Collector:
        """See Backend."""
        return Collector(
            backend="callgrind",
            tool=callgrind.version(),
            command=(run.name, *run.arguments),
            options=callgrind.options(self.geometry, self.within),
            cache_geometry=self.geometry.as_dict(),
            within=self.within or "",
        )

    def count(self, run: Run, binary: Path, scratch: Path) -> Counts:
        """See Backend; runs a copy without debug info."""
        copied, copy = _copy_without_debug_info(run, binary, scratch / "tree")
        dumps = callgrind.simulate(copied, scratch, self.geometry, self.within)
        size = sum(path.stat().st_size for path in dumps)
        with stage(f"reading {size / 1e6:.1f} MB of counts"):
            dump = read_dumps(dumps, copy, self.within)
        if self.within is not None:
            dump.limit_calls(self.entries)
        _log_other_code(binary, dump)
        return event_counts(dump)


def _copy_without_debug_info(run: Run, binary: Path, tree: Path) -> tuple[Run, Path]:
    """Copies program and binary without debug info, under the same names.

    The names stay because some programs depend on the name that they are called by.

    Args:
      tree: the folder to make.

    Returns:
      The run of the copied program, and the copy of the binary.
    """
    # The loader looks for a library by its SONAME.
    library_name = soname(binary)
    folder = _folder_as_of(run.program, tree, {run.name, binary.name, library_name})
    copy = folder / binary.name
    hide_debug_info(binary, copy)
    if run.program == binary:
        return dataclasses.replace(run, program=copy), copy
    program = folder / run.name
    hide_debug_info(run.program, program)
    if library_name is not None and library_name != binary.name:
        (folder / library_name).symlink_to(copy)
    path = os.environ.get("LD_LIBRARY_PATH")
    env = {"LD_LIBRARY_PATH": f"{folder}:{path}" if path else str(folder)}
    return dataclasses.replace(run, program=program, env=env), copy


def _folder_as_of(program: Path, tree: Path, copied: Container[str | None]) -> Path:
    """A folder in `tree` for a copy of the program, which finds its files from there as before.

    What lies beside the program and beside its folder is linked, as interpreters look for their
    library in such places. The path is as long for all programs.

    Args:
      copied: names that are not linked.
    """
    home = program.absolute().parent
    folder = tree / "program"
    folder.mkdir(parents=True)
    for source, target, left_out in ((home.parent, tree, {folder.name}), (home, folder, copied)):
        # A folder that cannot be read is of no use to the program either.
        with contextlib.suppress(PermissionError):
            for name in os.listdir(source):
                if name not in left_out:
                    (target / name).symlink_to(source / name)
    return folder


def _log_other_code(binary: Path, dump: Dump) -> None:
    """Logs the share of instructions executed in code that the profile does not cover."""
    everything = sum(dump.objects.values()) + sum(counts[0] for counts in dump.counts.values())
    largest = sorted(dump.objects.items(), key=lambda item: -item[1])[:3]
    for name, instructions in largest:
        if name != "???" and instructions > _LARGE_SHARE * everything:
            logging.info(
                "%s: %.1f%% of the instructions were executed in %s, which is not profiled",
                binary.name,
                100 * instructions / everything,
                name,
            )
    generated = dump.objects.get("???", 0)
    if generated > _LARGE_SHARE * everything:
        logging.warning(
            "%s: %.1f%% of the instructions were executed in code generated or modified at run "
            "time; it has no source lines and is left out of the profile",
            binary.name,
            100 * generated / everything,
        )


@dataclass(frozen=True)
class Hardware:
    """The back-end that counts in hardware with perf.

    Attributes:
      plan: the perf events to record on this machine.
    """

    plan: perf_record.RecordingPlan

    def collector(self, run: Run) -> Collector:
        """See Backend."""
        return Collector(
            backend="perf",
            tool=perf_record.version(),
            command=(run.name, *run.arguments),
            options=self.plan.events,
            cache_geometry={},
        )

    def count(self, run: Run, binary: Path, scratch: Path) -> Counts:
        """See Backend."""
        with stage("recording"):
            recording = perf_record.record(self.plan, run, scratch)
        return read_counts(recording, binary)


def read_counts(recording: Path, binary: Path) -> Counts:
    """Reads the counts of a perf recording. Raises PmuError: the recording cannot be read."""
    with stage(f"reading {recording}"):
        script = perf_data.read_recording(recording, binary)
    if script.lost:
        logging.warning("%s: perf lost %d samples; use longer periods", recording, script.lost)
    for event, without_level in sorted(script.without_level.items()):
        samples, _ = script.periods[event]
        logging.log(
            logging.WARNING if without_level > _LARGE_SHARE * samples else logging.INFO,
            "%s: %d of %d samples are loads without a memory level; they are left out of loads and "
            "misses",
            event,
            without_level,
            samples,
        )
    for event, outside in sorted(script.outside.items()):
        everything = outside + sum(script.samples[event].values())
        logging.info(
            "%s: %.1f%% of its %d counts are in other code (libraries, the kernel)",
            event,
            100 * outside / everything,
            everything,
        )
    with stage(f"disassembling {binary.name}"):
        code = disassemble(binary)
    return count(script, code)


def _plan(name: BackendName) -> perf_record.RecordingPlan | None:
    """What perf shall record; None for callgrind. Raises PmuError: perf was named, but fails."""
    if name == "callgrind":
        return None
    try:
        plan = perf_record.host_plan()
    except PmuError as error:
        if name == "perf":
            raise
        logging.info("back-end callgrind, because perf cannot be used: %s", error)
        return None
    lacking = [event for event in perf_record.NEEDED if event in plan.missing]
    if name == "auto" and lacking:
        logging.info(
            "back-end callgrind, because this machine cannot count %s (processor: %s)",
            ", ".join(lacking),
            plan.vendor,
        )
        return None
    if not plan.events:
        raise PmuError(
            "perf: this machine has no hardware counters, or this user may not read them (virtual "
            "machine? see sysctl kernel.perf_event_paranoid); use --backend=callgrind"
        )
    logging.info("back-end perf, events for processor %s", plan.vendor)
    if plan.missing:
        logging.warning("not counted on this machine: %s", ", ".join(plan.missing))
    return plan
