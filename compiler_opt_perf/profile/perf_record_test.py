# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compiler_opt_perf.profile import perf_record
from compiler_opt_perf.profile.collect import collect, import_recording
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.events import EVENTS, Event
from compiler_opt_perf.profile.manifest import Manifest
from compiler_opt_perf.profile.perf_data import read_recording, script_command
from compiler_opt_perf.profile.perf_events import identify
from compiler_opt_perf.profile.perf_record import RecordingPlan, find_plan, opens, version
from compiler_opt_perf.profile.profile import Profile
from compiler_opt_perf.profile.report import show as show_profile
from compiler_opt_perf.profile.report import summarize
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.workload import Run

Show = Callable[[Path], dict[str, Any]]

# What perf can record on a machine without counters: its clock.
CLOCK = RecordingPlan("generic", ("cpu-clock/period=1000000/u",), (), ())


@pytest.fixture(scope="module")
def recording(workload: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real perf.data of the test program."""
    folder = tmp_path_factory.mktemp("recording")
    return perf_record.record(CLOCK, Run(workload, ["repeat", "100000"], timeout_s=60), folder)


# Which events, by processor


def names(plan: RecordingPlan) -> list[str]:
    return [identify(event).name for event in plan.events]


def test_intel() -> None:
    plan = find_plan("Intel", lambda event: "br_misp_retired.cond," not in event)
    assert names(plan) == [
        "br_inst_retired.near_taken",
        "cycles",
        "mem_inst_retired.all_loads",
        "mem_load_retired.l1_miss",
        "mem_load_retired.l3_miss",
        "mem_trans_retired.load_latency_gt_4",
        "mem_inst_retired.all_stores",
        "br_misp_retired.conditional",
        "frontend_retired.l1i_miss",
    ]
    assert plan.events[0] == ("cpu/br_inst_retired.near_taken,period=100003,branch_type=any/ppu")
    assert plan.events[4] == "cpu/mem_load_retired.l3_miss,period=1009/ppu"
    assert plan.options == ("--weight",)
    assert plan.missing == ()


def test_intel_with_two_kinds_of_cores() -> None:
    plan = find_plan("Intel", lambda event: True, "cpu_core")
    assert all(event.startswith("cpu_core/") for event in plan.events)
    assert "br_misp_retired.cond" in names(plan)


def test_intel_without_precise_events() -> None:
    plan = find_plan("Intel", lambda event: not event.endswith("/ppu"))
    assert "LLC-load-misses" in names(plan)
    assert "branches" in names(plan)


def test_amd() -> None:
    plan = find_plan("AMD", lambda event: True)
    assert names(plan)[:2] == ["ex_ret_brn_tkn", "ibs_op"]
    # Branch records leave out branches that were wrongly predicted to be taken.
    (mispredicts,) = [event for event in plan.events if "ex_ret_msprd" in event]
    assert mispredicts == ("cpu/ex_ret_msprd_brnch_instr_dir_msmtch,period=10007,branch_type=any/u")
    # Indirect branches are taken, so that branch records hold all of them.
    assert "ex_ret_brn_ind_misp" not in names(plan)
    assert "branch-misses" not in names(plan)
    assert plan.events[1] == "ibs_op/cnt_ctl=1,period=100000/"
    assert plan.options == ("--data", "--weight")
    assert plan.missing == ()
    command = plan.command(Path("perf.data"))
    assert command[:3] == ["perf", "record", "--quiet"]
    assert command[-3:] == ["-o", "perf.data", "--"]


def test_amd_before_branch_stacks() -> None:
    plan = find_plan("AMD", lambda event: "branch_type" not in event)
    assert names(plan)[0] == "ibs_op"
    assert "instructions" in names(plan)
    assert "cpu/ex_ret_msprd_brnch_instr_dir_msmtch,period=10007/u" in plan.events
    assert {"ex_ret_ind_brch_instr", "ex_ret_brn_ind_misp"} <= set(names(plan))
    assert plan.missing == ("conditional-branches",)


def test_amd_of_which_perf_knows_no_events() -> None:
    plan = find_plan("AMD", lambda event: "ex_ret" not in event and "branch" not in event[:8])
    assert names(plan)[0] == "ibs_op"
    assert {"conditional-branches", "indirect-branch-mispredicts"} <= set(plan.missing)


def test_other_processor() -> None:
    plan = find_plan("generic", lambda event: "branch_type" not in event)
    assert names(plan) == [event.perf["generic"] for event in EVENTS if "generic" in event.perf]


def test_nothing_opens() -> None:
    plan = find_plan("Intel", lambda event: False)
    assert plan.events == ()
    assert set(perf_record.NEEDED) <= set(plan.missing)


def test_software_clock_is_not_taken_for_hardware() -> None:
    assert not opens("cpu-clock/period=100003/u")
    assert not opens("no-such-event/period=100003/u")


# A real recording


@pytest.mark.compiler
def test_recording_becomes_a_profile(
    recording: Path, workload: Path, show: Show, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="absl"):
        manifest = import_recording(recording, workload, tmp_path / "w.pmu.json")
    # The loader's samples; in a fast run the clock may not meet it.
    stated = re.findall(r"cpu-clock: ([\d.]+)% of its \d+ counts are in other", caplog.text)
    event = manifest.events[0]
    share = 100 * event.outside / (event.total + event.outside)
    assert list(map(float, stated)) == ([pytest.approx(share, abs=0.06)] if share else [])
    assert Manifest.load(manifest.path) == manifest
    (event,) = manifest.events
    assert (event.name, event.period, event.precise) == ("cpu-time", 1_000_000, False)
    assert event.total > 0.5 * (event.total + event.outside)
    # Some processors tell the clock's interrupts at instructions that have no line.
    assert event.located / event.total > 0.5
    profile = Profile.load(manifest.path)
    assert show_profile(profile, 3) == summarize(manifest, profile.executed)
    functions = show(manifest.file(event))
    # Of all that `repeated` calls, these take the time.
    hot = sum(
        functions[name]["total"] for name in ("outer", "choose", "often") if name in functions
    )
    assert hot > 0.5 * event.located


@pytest.mark.compiler
def test_a_perf_event_is_one_row(
    workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Page faults, which any machine can count: recorded for real."""
    row = Event("page-faults", "sum", "faults", perf={"generic": "page-faults"}, period=1)
    for module in ("perf_record", "perf_attribution"):
        monkeypatch.setattr(f"compiler_opt_perf.profile.{module}.EVENTS", (*EVENTS, row))
    plan = find_plan("generic", lambda event: event.startswith("page-faults"))
    assert plan.events == ("page-faults/period=1/u",)
    monkeypatch.setattr(perf_record, "host_plan", lambda: plan)
    path = tmp_path / "w.pmu.json"
    manifest = collect(workload, ["measure"], path, backend="perf", timeout_s=60)
    # The ring's 8 MiB are written first by the function that makes it.
    assert manifest.event("page-faults").located > 1000
    assert "\npage-faults  " in show_profile(Profile.load(path), 3)


@pytest.mark.compiler
def test_text_is_read_as_the_recording_is(recording: Path, workload: Path, tmp_path: Path) -> None:
    argv = script_command(str(recording)).split()
    (tmp_path / "script.txt").write_text(run_command(argv).stdout)
    assert read_recording(tmp_path / "script.txt", workload) == read_recording(recording, workload)


@pytest.mark.compiler
def test_recording_of_another_binary(
    recording: Path, build: Callable[..., Path], tmp_path: Path
) -> None:
    other = build("-O1")
    with pytest.raises(PmuError, match=r"it recorded .*/workload with build-id .* but"):
        import_recording(recording, other, tmp_path / "w.pmu.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.compiler
@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.9, 0.999])
def test_damaged_recording(recording: Path, workload: Path, tmp_path: Path, share: float) -> None:
    data = recording.read_bytes()
    (tmp_path / "perf.data").write_bytes(data[: int(len(data) * share)])
    with pytest.raises(PmuError, match=r"perf\.data: .*"):
        import_recording(tmp_path / "perf.data", workload, tmp_path / "w.pmu.json")


@pytest.mark.compiler
def test_missing_recording(workload: Path, tmp_path: Path) -> None:
    with pytest.raises(PmuError, match=r"perf\.data: cannot be read: No such file"):
        import_recording(tmp_path / "perf.data", workload, tmp_path / "w.pmu.json")


@pytest.mark.compiler
def test_failing_program_under_perf(workload: Path, tmp_path: Path) -> None:
    with pytest.raises(PmuError) as caught:
        perf_record.record(CLOCK, Run(workload, ["fail", "x"], timeout_s=60), tmp_path)
    assert "exit status 3 under perf, expected 0" in str(caught.value)
    assert "no such level: x" in str(caught.value)
    with pytest.raises(PmuError, match="killed after its limit of 1 s under perf"):
        perf_record.record(CLOCK, Run(workload, ["hang"], timeout_s=1), tmp_path)


# Choosing


@pytest.mark.compiler
def test_auto_says_which_and_why(
    workload: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    lacking = RecordingPlan("Intel", ("cycles",), (), ("loads", "llc-load-misses"))
    monkeypatch.setattr(perf_record, "host_plan", lambda: lacking)
    with caplog.at_level("INFO", logger="absl"):
        manifest = collect(workload, ["threads"], tmp_path / "w.pmu.json", backend="auto")
    assert manifest.collector.backend == "callgrind"
    assert "cannot count loads, llc-load-misses (processor: Intel)" in caplog.text


@pytest.mark.compiler
def test_auto_without_perf(
    workload: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    real = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "perf" else real(name))
    with caplog.at_level("INFO", logger="absl"):
        manifest = collect(workload, ["threads"], tmp_path / "w.pmu.json", backend="auto")
    assert manifest.collector.backend == "callgrind"
    assert "perf cannot be used: perf: not found on PATH; install it" in caplog.text
    with pytest.raises(PmuError, match="perf: not found on PATH"):
        collect(workload, ["threads"], tmp_path / "w.pmu.json", backend="perf")


@pytest.mark.compiler
def test_perf_where_all_is_there(
    workload: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(perf_record, "host_plan", lambda: CLOCK)
    with caplog.at_level("INFO", logger="absl"):
        manifest = collect(
            workload, ["repeat", "100000"], tmp_path / "w.pmu.json", backend="auto", timeout_s=60
        )
    assert manifest.collector.backend == "perf"
    assert manifest.collector.tool == version()
    assert manifest.collector.options == CLOCK.events
    assert "back-end perf, events for processor generic" in caplog.text


@pytest.mark.compiler
def test_perf_without_counters(
    workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = find_plan("Intel", lambda event: False)
    monkeypatch.setattr(perf_record, "host_plan", lambda: nothing)
    with pytest.raises(PmuError, match=r"no hardware counters.*use --backend=callgrind"):
        collect(workload, ["threads"], tmp_path / "w.pmu.json", backend="perf")
