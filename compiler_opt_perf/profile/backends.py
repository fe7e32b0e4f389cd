# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Two ways to count the events of a run: the simulator callgrind, and perf on hardware counters."""

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

# A share of other code that is worth a word.
_MUCH = 0.02


class Backend(Protocol):
    """A way to count the events of a run."""

    def collector(self, run: Run) -> Collector:
        """What the manifest says of how the profile was made. Raises PmuError: no such tool."""

    def count(self, run: Run, binary: Path, scratch: Path) -> Counts:
        """Runs a program and counts events at the instructions of a binary.

        Args:
          run: of the binary, or of a program that loads it.
          binary: executable or shared library, with debug info.
          scratch: an empty folder.

        Raises:
          PmuError: the run failed, or its counts cannot be read.
        """


def choose(name: BackendName, binary: Path, geometry: CacheGeometry, within: str | None) -> Backend:
    """The back-end of a name; "auto" is perf where the machine has the events that matter.

    Args:
      binary: what is profiled.
      geometry: caches to simulate.
      within: count only what calls of this function of the binary execute; for the simulator alone.

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
                "back-end callgrind, for perf cannot count the calls of one function alone"
            )
        return Simulator(geometry, within, entries)
    recipe = _recipe(name)
    return Simulator(geometry) if recipe is None else Hardware(recipe)


@dataclass(frozen=True)
class Simulator:
    """callgrind.

    Attributes:
      geometry: caches to simulate.
      within: count only what calls of this function execute; all when None.
      entries: that function's addresses.
    """

    geometry: CacheGeometry
    within: str | None = None
    entries: Container[int] = ()

    def collector(self, run: Run) -> Collector:
        """As of Backend."""
        return Collector(
            backend="callgrind",
            tool=callgrind.version(),
            command=(run.name, *run.arguments),
            options=callgrind.options(self.geometry, self.within),
            cache_geometry=self.geometry.as_dict(),
            within=self.within or "",
        )

    def count(self, run: Run, binary: Path, scratch: Path) -> Counts:
        """As of Backend; runs a copy without debug info."""
        copied, copy = _copy_without_debug_info(run, binary, scratch / "program")
        dumps = callgrind.simulate(copied, scratch, self.geometry, self.within)
        size = sum(path.stat().st_size for path in dumps)
        with stage(f"reading {size / 1e6:.1f} MB of counts"):
            dump = read_dumps(dumps, copy, self.within)
        if self.within is not None:
            dump.limit_calls(self.entries)
        _log_other_code(binary, dump)
        return event_counts(dump)


def _copy_without_debug_info(run: Run, binary: Path, folder: Path) -> tuple[Run, Path]:
    """The run with a copy of the program, and the copy of the binary, which may be a library.

    Under the same names, for programs look at the name that they are called by.
    """
    folder.mkdir()
    copy = folder / binary.name
    hide_debug_info(binary, copy)
    if run.program == binary:
        return dataclasses.replace(run, program=copy), copy
    program = folder / run.name
    hide_debug_info(run.program, program)
    # For the loader to find the copy of the library, under the name that the program asks for.
    known = soname(binary)
    if known is not None and known != binary.name:
        (folder / known).symlink_to(copy)
    path = os.environ.get("LD_LIBRARY_PATH")
    env = {"LD_LIBRARY_PATH": f"{folder}:{path}" if path else str(folder)}
    return dataclasses.replace(run, program=program, env=env), copy


def _log_other_code(binary: Path, dump: Dump) -> None:
    """Says where time goes that the profile does not cover."""
    everything = sum(dump.objects.values()) + sum(counts[0] for counts in dump.counts.values())
    largest = sorted(dump.objects.items(), key=lambda item: -item[1])[:3]
    for name, instructions in largest:
        if name != "???" and instructions > _MUCH * everything:
            logging.info(
                "%s: %.1f%% of the instructions were executed in %s, which is not profiled",
                binary.name,
                100 * instructions / everything,
                name,
            )
    generated = dump.objects.get("???", 0)
    if generated > _MUCH * everything:
        logging.warning(
            "%s: %.1f%% of the instructions were executed in code that no file holds (generated or "
            "modified while the program ran); it has no source and is left out of the profile",
            binary.name,
            100 * generated / everything,
        )


@dataclass(frozen=True)
class Hardware:
    """perf.

    Attributes:
      recipe: what it records on this machine.
    """

    recipe: perf_record.RecordingPlan

    def collector(self, run: Run) -> Collector:
        """As of Backend."""
        return Collector(
            backend="perf",
            tool=perf_record.version(),
            command=(run.name, *run.arguments),
            options=self.recipe.events,
            cache_geometry={},
        )

    def count(self, run: Run, binary: Path, scratch: Path) -> Counts:
        """As of Backend."""
        with stage("recording"):
            recording = perf_record.record(self.recipe, run, scratch)
        return read_counts(recording, binary)


def read_counts(recording: Path, binary: Path) -> Counts:
    """The counts of a recording of perf. Raises PmuError: it cannot be read."""
    with stage(f"reading {recording}"):
        script = perf_data.read_recording(recording, binary)
    if script.lost:
        logging.warning("%s: perf lost %d samples; use longer periods", recording, script.lost)
    for event, untold in sorted(script.untold.items()):
        samples, _ = script.periods[event]
        logging.log(
            logging.WARNING if untold > _MUCH * samples else logging.INFO,
            "%s: %d of %d samples are loads that do not tell where they found their data; they are "
            "left out of loads and misses",
            event,
            untold,
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


def _recipe(name: BackendName) -> perf_record.RecordingPlan | None:
    """What to record with perf; None for the simulator. Raises PmuError when there is no perf."""
    if name == "callgrind":
        return None
    try:
        recipe = perf_record.host_recipe()
    except PmuError as error:
        if name == "perf":
            raise
        logging.info("back-end callgrind, for perf cannot be used: %s", error)
        return None
    lacking = [event for event in perf_record.NEEDED if event in recipe.missing]
    if name == "auto" and lacking:
        logging.info(
            "back-end callgrind, for this machine cannot count %s (processor: %s)",
            ", ".join(lacking),
            recipe.vendor,
        )
        return None
    if not recipe.events:
        raise PmuError(
            "perf: this machine has no hardware counters, or they are not for this user (a virtual "
            "machine? see sysctl kernel.perf_event_paranoid); use --backend=callgrind"
        )
    logging.info("back-end perf, events for processor %s", recipe.vendor)
    if recipe.missing:
        logging.warning("not counted on this machine: %s", ", ".join(recipe.missing))
    return recipe
