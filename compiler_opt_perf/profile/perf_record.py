# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The hardware back-end: records a program's events with Linux perf."""

import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.events import EVENTS, Event
from compiler_opt_perf.profile.workload import run_under
from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.workload import Run

# Without these a profile says too little to be worth more than a simulated one.
NEEDED = ("executions", "loads", "llc-load-misses", "conditional-branch-mispredicts")

_SHOWN = 2000


@dataclass(frozen=True)
class _Source:
    """A way to record what `Event.perf` calls a source.

    Attributes:
      name: key of `Event.perf`.
      vendor: of the processors that have it; None for all.
      spec: perf's event specification, of the core's PMU, and the name and period of one event.
    """

    name: str
    vendor: str | None
    spec: str

    def fits(self, name: str, vendor: str) -> bool:
        """Whether this is a way to record that source on a vendor's processors."""
        return self.name == name and self.vendor in (vendor, None)


# Of each source, the rows are tried from top to bottom, and the first that opens is recorded.
# Recorded once, for all events that name the source.
_SHARED_SOURCES = (
    _Source(
        "branches",
        "Intel",
        "{pmu}/br_inst_retired.near_taken,period=100003,branch_type=any/ppu",
    ),
    _Source("branches", "AMD", "{pmu}/ex_ret_brn_tkn,period=100003,branch_type=any/u"),
    # Counts branches that are not taken, too; the reader makes up for it.
    _Source("branches", None, "branches/period=100003,branch_type=any/u"),
    # Counts in steps of 16 ops. Of all privilege levels: IBS cannot leave out the kernel, whose
    # samples are then outside of the binary.
    _Source("ibs", "AMD", "ibs_op/cnt_ctl=1,period=100000/"),
)
# Recorded for one event.
_SOURCES = (
    _Source("intel", "Intel", "{pmu}/{event},period={period}/ppu"),
    _Source("latency", "Intel", "{pmu}/{event},period={period}/ppu"),
    _Source("timed", "Intel", "{pmu}/{event},period={period}/ppu"),
    # They are events of branches, and are reported late (skid): the stack says which branch it was.
    _Source("amd", "AMD", "{pmu}/{event},period={period},branch_type=any/u"),
    _Source("amd", "AMD", "{pmu}/{event},period={period}/u"),
    _Source("generic", None, "{event}/period={period}/u"),
)


@dataclass(frozen=True)
class RecordingPlan:
    """What perf records on a kind of processor.

    Attributes:
      vendor: "Intel", "AMD" or "generic".
      events: perf's event specifications.
      options: further options of `perf record`.
      missing: names of our events that this machine cannot count.
    """

    vendor: str
    events: tuple[str, ...]
    options: tuple[str, ...]
    missing: tuple[str, ...]

    def command(self, recording: Path) -> list[str]:
        """The command line up to the program."""
        chosen = [word for event in self.events for word in ("-e", event)]
        return ["perf", "record", "--quiet", *self.options, *chosen, "-o", str(recording), "--"]


def version() -> str:
    """The installed perf, as "perf-6.1.187".

    Raises:
      PmuError: there is none.
    """
    if shutil.which("perf") is None:
        raise PmuError("perf: not found on PATH; install it (apt-get install linux-perf)")
    try:
        return "perf-" + run_command(["perf", "--version"], timeout_s=60).stdout.split()[-1]
    except CommandError as error:
        raise PmuError(f"perf: does not run on this kernel: {error}") from error


def cpu_vendor() -> str:
    """The processor's maker: "Intel", "AMD", or "generic" for others."""
    text = Path("/proc/cpuinfo").read_text(errors="replace")
    found = re.search(r"^vendor_id\s*: (\S+)", text, re.MULTILINE)
    return {"GenuineIntel": "Intel", "AuthenticAMD": "AMD"}.get(
        found[1] if found else "", "generic"
    )


def opens(event: str) -> bool:
    """Whether perf can record `event` here, in hardware."""
    with tempfile.TemporaryDirectory(prefix="pmu-profile-") as folder:
        recording = Path(folder) / "perf.data"
        try:
            run_command(
                ["perf", "record", "--quiet", "-e", event, "-o", recording, "--", "true"],
                timeout_s=60,
            )
            listed = run_command(["perf", "evlist", "-v", "-i", recording], timeout_s=60).stdout
        except CommandError:
            return False
    # Without a hardware counter perf silently takes the clock instead: type 1, software.
    return not re.search(r"\btype: 1(,| \()", listed)


def find_recipe(vendor: str, opens: Callable[[str], bool], pmu: str = "cpu") -> RecordingPlan:
    """Chooses events that the machine has, for as many of `EVENTS` as possible.

    Args:
      vendor: as from `cpu_vendor`.
      opens: whether the machine can record a perf event.
      pmu: perf's name of the cores' counters; "cpu_core" on processors with two kinds of cores.
    """
    chosen: list[str] = []

    def record_first(specs: Iterable[str]) -> bool:
        """Chooses the first that opens. One perf event may be the source of several of ours."""
        for spec in specs:
            if spec in chosen:
                return True
            if opens(spec):
                chosen.append(spec)
                return True
        return False

    shared = {
        name
        for name in dict.fromkeys(row.name for row in _SHARED_SOURCES)
        if record_first(
            row.spec.format(pmu=pmu) for row in _SHARED_SOURCES if row.fits(name, vendor)
        )
    }
    have = {event.name for event in EVENTS if not shared.isdisjoint(event.perf)}
    for event in EVENTS:
        if record_first(_specs(event, vendor, pmu, shared)):
            have.add(event.name)
    if "instructions" in have:
        have.add("executions")
    missing = tuple(
        event.name
        for event in EVENTS
        if event.name not in have
        and "software" not in event.perf
        and (event.perf or event.callgrind)
    )
    # Data sources and latencies of loads, for all events or none.
    options: tuple[str, ...] = ()
    if any(spec.startswith("ibs_op") for spec in chosen):
        options = ("--data", "--weight")
    elif "load-latency" in have:
        options = ("--weight",)
    return RecordingPlan(vendor, tuple(chosen), options, missing)


def _specs(event: Event, vendor: str, pmu: str, shared: Collection[str]) -> Iterator[str]:
    """What may be recorded for one event, the best first.

    Args:
      vendor, pmu: as of `find_recipe`.
      shared: sources that are recorded. What comes after one of them is worse than what there is.
    """
    for source, names in event.perf.items():
        if source in shared:
            return
        for row in _SOURCES:
            if row.fits(source, vendor):
                for name in names.split("|"):
                    yield row.spec.format(pmu=pmu, event=name, period=event.period)


def host_recipe() -> RecordingPlan:
    """The recipe for this machine. Raises PmuError when there is no perf."""
    version()
    hybrid = Path("/sys/bus/event_source/devices/cpu_core").exists()
    return find_recipe(cpu_vendor(), opens, "cpu_core" if hybrid else "cpu")


def record(recipe: RecordingPlan, run: Run, directory: Path) -> Path:
    """Runs a program under `perf record`; returns the path of perf.data, in `directory`.

    Threads and forked processes are recorded, too.

    Raises:
      PmuError: perf is not allowed to, or the run failed or hung.
    """
    recording = directory.resolve() / "perf.data"
    diagnostics = directory / "stderr"
    finished = run_under("perf", run, [*recipe.command(recording), *run.command], diagnostics)
    if finished.status != run.expected_status or not recording.exists():
        printed = diagnostics.read_bytes()[-_SHOWN:].decode(errors="replace").strip()
        hint = ""
        if any(word in printed for word in ("perf_event_paranoid", "Permission", "No permission")):
            hint = "; allow it with: sysctl kernel.perf_event_paranoid=1"
        shown = "".join(f"\n  {line}" for line in printed.splitlines())
        raise PmuError(
            f"{run.name}: exit status {finished.status} under perf, expected "
            f"{run.expected_status}{hint}{shown}\n  the command: {shlex.join(run.command)}"
        )
    return recording
