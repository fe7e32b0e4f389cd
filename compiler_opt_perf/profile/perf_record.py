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

# A hardware profile without these events is worth less than a simulated one.
NEEDED = ("executions", "loads", "llc-load-misses", "conditional-branch-mispredicts")

_SHOWN = 2000


@dataclass(frozen=True)
class _Source:
    """A way to record a source of `Event.perf`.

    Attributes:
      name: the source's key in `Event.perf`.
      vendor: the vendor of the processors that have it; None for all.
      spec: perf's event specification, a format string with {pmu}, {event} and {period}.
    """

    name: str
    vendor: str | None
    spec: str

    def fits(self, name: str, vendor: str) -> bool:
        """Whether this records the source `name` on a vendor's processors."""
        return self.name == name and self.vendor in (vendor, None)


# The rows of one source are tried from top to bottom; the first that perf can open is recorded.
# One recording of a shared source serves all events.
_SHARED_SOURCES = (
    _Source(
        "branches",
        "Intel",
        "{pmu}/br_inst_retired.near_taken,period=100003,branch_type=any/ppu",
    ),
    _Source("branches", "AMD", "{pmu}/ex_ret_brn_tkn,period=100003,branch_type=any/u"),
    # Counts untaken branches too, for which the reader corrects.
    _Source("branches", None, "branches/period=100003,branch_type=any/u"),
    # Its period is a multiple of 16 ops. IBS cannot exclude the kernel, whose samples fall outside
    # the binary.
    _Source("ibs", "AMD", "ibs_op/cnt_ctl=1,period=100000/"),
)
# Sources that are recorded for each event.
_SOURCES = (
    _Source("intel", "Intel", "{pmu}/{event},period={period}/ppu"),
    _Source("latency", "Intel", "{pmu}/{event},period={period}/ppu"),
    _Source("timed", "Intel", "{pmu}/{event},period={period}/ppu"),
    # Branch events with skid: the branch stack identifies the branch.
    _Source("amd", "AMD", "{pmu}/{event},period={period},branch_type=any/u"),
    _Source("amd", "AMD", "{pmu}/{event},period={period}/u"),
    _Source("generic", None, "{event}/period={period}/u"),
)


@dataclass(frozen=True)
class RecordingPlan:
    """The events that perf records on a kind of processor.

    Attributes:
      vendor: "Intel", "AMD" or "generic".
      events: perf's event specifications.
      options: further options of `perf record`.
      missing: names of the events of `EVENTS` that this machine cannot count.
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
      PmuError: perf is not installed.
    """
    if shutil.which("perf") is None:
        raise PmuError("perf: not found on PATH; install it (apt-get install linux-perf)")
    try:
        return "perf-" + run_command(["perf", "--version"], timeout_s=60).stdout.split()[-1]
    except CommandError as error:
        raise PmuError(f"perf: does not run on this kernel: {error}") from error


def cpu_vendor() -> str:
    """The processor's vendor: "Intel", "AMD", or "generic" for others."""
    text = Path("/proc/cpuinfo").read_text(errors="replace")
    found = re.search(r"^vendor_id\s*: (\S+)", text, re.MULTILINE)
    return {"GenuineIntel": "Intel", "AuthenticAMD": "AMD"}.get(
        found[1] if found else "", "generic"
    )


def opens(event: str) -> bool:
    """Whether perf can record `event` with a hardware counter of this machine."""
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
    # Without a hardware counter perf silently records the clock: type 1, software.
    return not re.search(r"\btype: 1(,| \()", listed)


def find_plan(vendor: str, opens: Callable[[str], bool], pmu: str = "cpu") -> RecordingPlan:
    """Chooses perf events that this machine can record, for as many of `EVENTS` as possible.

    Args:
      vendor: the result of `cpu_vendor`.
      opens: tells whether the machine can record a perf event.
      pmu: perf's name of the core PMU; "cpu_core" on processors with two kinds of cores.
    """
    chosen: list[str] = []

    def record_first(specs: Iterable[str]) -> bool:
        """Chooses the first specification that opens; several events may share it."""
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
    # These options of perf add data source and latency to the samples of all events.
    options: tuple[str, ...] = ()
    if any(spec.startswith("ibs_op") for spec in chosen):
        options = ("--data", "--weight")
    elif "load-latency" in have:
        options = ("--weight",)
    return RecordingPlan(vendor, tuple(chosen), options, missing)


def _specs(event: Event, vendor: str, pmu: str, shared: Collection[str]) -> Iterator[str]:
    """Yields event specifications for one event, best first.

    Args:
      event: the event.
      vendor, pmu: see `find_plan`.
      shared: shared sources that are recorded; the sources after one of them are worse.
    """
    for source, names in event.perf.items():
        if source in shared:
            return
        for row in _SOURCES:
            if row.fits(source, vendor):
                for name in names.split("|"):
                    yield row.spec.format(pmu=pmu, event=name, period=event.period)


def host_plan() -> RecordingPlan:
    """The plan for this machine. Raises PmuError: perf is not installed."""
    version()
    hybrid = Path("/sys/bus/event_source/devices/cpu_core").exists()
    return find_plan(cpu_vendor(), opens, "cpu_core" if hybrid else "cpu")


def record(plan: RecordingPlan, run: Run, directory: Path) -> Path:
    """Runs a program under `perf record`; returns the path of perf.data, in `directory`.

    Threads and forked processes are recorded, too.

    Raises:
      PmuError: perf may not record, or the run failed or timed out.
    """
    recording = directory.resolve() / "perf.data"
    diagnostics = directory / "stderr"
    finished = run_under("perf", run, [*plan.command(recording), *run.command], diagnostics)
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
