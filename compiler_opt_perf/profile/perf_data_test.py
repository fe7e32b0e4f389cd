# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Real recordings, by this machine's perf, of the clock alone: it has no counters."""

import contextlib
import os
import re
import shutil
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compiler_opt_perf.binary.disassembly import disassemble
from compiler_opt_perf.profile import perf_data
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.perf_attribution import count
from compiler_opt_perf.profile.perf_data import read_recording, script_command
from compiler_opt_perf.run.command import run_command

pytestmark = pytest.mark.compiler

# What perf records besides an address: options, each of them alone and all of them together.
OPTIONS = {
    "call chains": ("-g",),
    "call chains by copies of the stack": ("--call-graph=dwarf,1024",),
    "addresses of data": ("--data",),
    "physical addresses": ("--phys-data",),
    "weights": ("--weight",),
    "registers": ("--user-regs=ip,sp", "--intr-regs=ip"),
    "times": ("--timestamp",),
    "periods": ("--period",),
    "processors": ("--sample-cpu",),
    "identifiers": ("--sample-identifier",),
    "raw records": ("--raw-samples",),
    "page sizes": ("--data-page-size", "--code-page-size"),
    "switches": ("--switch-events",),
    "namespaces": ("--namespaces", "--all-cgroups"),
    "mappings at the end": ("--tail-synthesize",),
    "build-ids of mappings": ("--buildid-mmap",),
    "statistics": ("--stat",),
}
# What is recorded in another way, which not all others go with.
WAYS = {
    "no build-ids": ("--no-buildid",),
    "no cache of binaries": ("--no-buildid-cache",),
    "threads one by one": ("--per-thread",),
    "all processors": ("--all-cpus",),
    "no inheritance": ("--no-inherit",),
    "compressed": ("--compression-level=1",),
    "at a frequency": ("--freq=2000",),
    "several events": ("--event=page-faults/period=1/u", "--event=dummy"),
    "a group": ("--event={cpu-clock/period=500000/u,dummy}",),
}
ALL = {**OPTIONS, **WAYS, "all": tuple(word for words in OPTIONS.values() for word in words)}

Record = Callable[..., Path]


@pytest.fixture(scope="module")
def record(workload: Path, tmp_path_factory: pytest.TempPathFactory) -> Record:
    """Records a run of the program, to a file or to a pipe."""

    def run(*options: str, pipe: bool = False, program: Path = workload) -> Path:
        recording = tmp_path_factory.mktemp("recording") / "perf.data"
        clock = ["--event=cpu-clock/period=500000/u"]
        if "--event={" in str(options) or "--freq" in str(options):
            clock = ["--event=cpu-clock:u"] if "--freq" in str(options) else []
        command = ["perf", "record", "--quiet", *clock, *options]
        command += ["-o", "-" if pipe else str(recording), "--", str(program), "repeat", "50000"]
        if pipe:
            with recording.open("wb") as stream:
                subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=stream, check=True, timeout=60
                )
        else:
            run_command(command, timeout_s=60)
        return recording

    return run


@pytest.mark.long(25)
@pytest.mark.parametrize("kind", ALL)
def test_whatever_was_recorded(kind: str, record: Record, workload: Path) -> None:
    for pipe in (False, True):
        if pipe and "--tail-synthesize" in ALL[kind]:
            continue
        script = read_recording(record(*ALL[kind], pipe=pipe), workload)
        inside = sum(script.samples["cpu-clock"].values())
        everything = inside + script.outside["cpu-clock"]
        assert everything > 10 * 500_000
        # All processors run others besides.
        assert inside > (0 if kind == "all processors" else 0.5 * everything)


@pytest.mark.parametrize("options", [(), ("--threads",)])
def test_a_recording_in_the_current_folder(
    options: tuple[str, ...], record: Record, workload: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """perf itself runs in another folder."""
    recording = record(*options)
    monkeypatch.chdir(recording.parent)
    assert read_recording(Path("perf.data"), workload) == read_recording(recording, workload)


def test_what_perf_cannot_read_is_refused_with_a_remedy(record: Record, workload: Path) -> None:
    """What each sample holds is at the end then, which perf learns too late."""
    recording = record("--tail-synthesize", pipe=True)
    with pytest.raises(
        PmuError, match=r"cannot read it .*\n  on the machine that recorded it, make"
    ):
        read_recording(recording, workload)


def test_recordings_of_threads_are_folders(record: Record, workload: Path, tmp_path: Path) -> None:
    script = read_recording(record("--threads"), workload)
    assert sum(script.samples["cpu-clock"].values()) > 10 * 500_000
    with pytest.raises(PmuError, match="is a folder, but not one of perf record --threads"):
        read_recording(tmp_path, workload)


def test_recording_that_does_not_list_its_events(
    record: Record, workload: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = record("--data", "--weight", pipe=True)
    expected = read_recording(recording, workload)
    asked: list[list[str]] = []
    real = perf_data._lines_of

    def without_lists(argv: list[str], path: Path) -> Iterator[str]:
        asked.append(argv)
        return iter(()) if "evlist" in argv or "--header-only" in argv else real(argv, path)

    monkeypatch.setattr(perf_data, "_lines_of", without_lists)
    # No closing of what is no generator.
    monkeypatch.setattr(perf_data, "_prints", lambda path, name: name != "data_src")
    assert read_recording(recording, workload) == expected
    assert asked[-1][-1] == "pid,event,ip,period,weight,brstack"
    monkeypatch.undo()
    assert perf_data._prints(recording, "weight")
    assert not perf_data._prints(record(), "weight")


def test_a_pipe_that_was_cut_off(record: Record, workload: Path) -> None:
    recording = record(pipe=True)
    data = recording.read_bytes()
    # All records have a multiple of 8 bytes.
    for size in (17, len(data) // 3 | 1, len(data) // 2 | 7, len(data) - 1):
        recording.write_bytes(data[:size])
        with pytest.raises(PmuError, match=rf"is cut off after {size} bytes; record it again"):
            read_recording(recording, workload)


def test_recording_of_another_user(record: Record, workload: Path) -> None:
    recording = record()
    expected = read_recording(recording, workload)
    os.chown(recording, 12345, 12345)
    assert read_recording(recording, workload) == expected


def test_version_1(record: Record, workload: Path) -> None:
    recording = record()
    recording.write_bytes(b"PERFFILE" + recording.read_bytes()[8:])
    with pytest.raises(PmuError, match="is of version 1 of perf's format"):
        read_recording(recording, workload)


# Build-ids


def test_build_ids_of_recordings(
    record: Record, workload: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """perf writes them with zeros, without, and of programs of that name elsewhere."""
    for options, pipe in (((), False), (("--buildid-mmap",), True)):
        recording = record(*options, pipe=pipe)
        assert read_recording(recording, workload).samples
    assert "was not recorded" not in caplog.text
    recording = record("--no-buildid")
    assert read_recording(recording, workload).samples
    assert f"the build-id of {workload} was not recorded; make sure" in caplog.text


@pytest.mark.parametrize(("style", "size"), [("md5", 16), ("fast", 8), ("0xabcd0123", 4)])
def test_short_build_ids(style: str, size: int, record: Record, build: Callable[..., Path]) -> None:
    linker = "-fuse-ld=lld " if style == "fast" else ""
    program = build(*linker.split(), f"-Wl,--build-id={style}")
    recording = record(program=program)
    listed = run_command(["perf", "buildid-list", "-i", recording]).stdout
    (found,) = re.findall(rf"^([0-9a-f]+) +{program}$", listed, re.MULTILINE)
    data = recording.read_bytes()
    assert read_recording(recording, program).samples
    # perf before 5.10 does not say how long it is: the zeros are part of it then. The size is in
    # the byte after its 20 bytes, and a bit of the record says that it is there.
    place = data.index(bytes.fromhex(found).ljust(20, b"\0"))
    assert data[place + 20] == size
    old = bytearray(data)
    old[place + 20] = 0
    flags = place - 8
    old[flags : flags + 2] = struct.pack(
        "<H", struct.unpack_from("<H", data, flags)[0] & ~(1 << 15)
    )
    recording.write_bytes(old)
    listed = run_command(["perf", "buildid-list", "-i", recording]).stdout
    assert f"{found.ljust(40, '0')} {program}" in listed
    assert read_recording(recording, program).samples


def test_two_programs_of_one_name(
    record: Record, build: Callable[..., Path], tmp_path: Path
) -> None:
    one, other = build(), build("-O1")
    script = tmp_path / "both.sh"
    script.write_text(f"#!/bin/sh\n{one} repeat 50000 && {other} repeat 50000\n")
    script.chmod(0o755)
    recording = record(program=script)
    found = [read_recording(recording, program) for program in (one, other)]
    for mine, theirs in (found, found[::-1]):
        inside = sum(mine.samples["cpu-clock"].values())
        assert 0 < inside <= theirs.outside["cpu-clock"]
    text = tmp_path / "script.txt"
    text.write_text(run_command(script_command(str(recording)).split()).stdout)
    assert [read_recording(text, program) for program in (one, other)] == found
    moved = tmp_path / "elsewhere" / "workload"
    moved.parent.mkdir()
    shutil.copy(one, moved)
    with pytest.raises(PmuError, match="several programs called workload ran, and"):
        read_recording(text, moved)
    assert read_recording(recording, moved) == found[0]


def test_a_program_that_is_replaced_while_it_runs(
    record: Record, workload: Path, build: Callable[..., Path], tmp_path: Path
) -> None:
    program = tmp_path / "workload"
    shutil.copy(workload, program)
    with subprocess.Popen([program, "repeat", "2000000000"]) as process:
        while (Path("/proc") / str(process.pid) / "exe").resolve() != program:
            time.sleep(0.01)
        program.unlink()
        shutil.copy(build("-O1"), program)
        recording = record(f"--pid={process.pid}")
        process.kill()
    assert "workload (deleted)" in run_command(script_command(str(recording)).split()).stdout
    assert sum(read_recording(recording, workload).samples["cpu-clock"].values()) > 0


# A perf that reads what may be damaged


def test_perf_reads_with_limits(
    record: Record, workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A perf of ours that tells how it was started."""
    recording = record()
    real = shutil.which("perf")
    tool = tmp_path / "bin" / "perf"
    tool.parent.mkdir()
    tool.write_text(
        f"#!/bin/sh\n[ $1 = --version ] || {{ pwd; ls -A; ulimit -a; env; }} >> {tmp_path}/$1\n"
        f'exec {real} "$@"\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("DEBUGINFOD_URLS", "https://example.org")
    monkeypatch.chdir(tmp_path)
    read_recording(recording, workload)
    for verb in ("evlist", "script", "buildid-list"):
        told = (tmp_path / verb).read_text()
        assert re.search(r"^time.*\(seconds\)? *3600$", told, re.MULTILINE)
        assert re.search(r"^core.* 0$", told, re.MULTILINE)
        assert not re.search(r"^(file|vmemory|virtual|process).*memory.* unlimited$", told, re.M)
        assert re.search(r"^file.* \d+$", told, re.MULTILINE)
        folder = told.splitlines()[0]
        assert "pmu-profile-" in folder
        assert not Path(folder).exists()
        assert f"HOME={folder}" in told
        assert "PERF_CONFIG=/dev/null" in told
        assert "DEBUGINFOD" not in told


def test_perf_at_its_limit(record: Record, workload: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = record()
    monkeypatch.setattr(perf_data, "_MEMORY_BYTES", 1 << 20)
    with pytest.raises(PmuError, match=r"cannot read it .* ended with") as caught:
        read_recording(recording, workload)
    assert "make text: perf script" in str(caught.value)


def test_damage_anywhere_is_survived(record: Record, workload: Path) -> None:
    """perf may crash; then that is what is said."""
    recording = record()
    data = recording.read_bytes()
    for place in range(0, len(data), len(data) // 24):
        damaged = bytearray(data)
        damaged[place : place + 8] = b"\xff" * 8
        recording.write_bytes(damaged)
        with contextlib.suppress(PmuError):
            read_recording(recording, workload)


def test_counts_of_a_recording_with_call_chains(record: Record, workload: Path) -> None:
    chains = read_recording(record("-g"), workload)
    code = disassemble(workload)
    assert [event.name for event in count(chains, code).events] == ["cpu-time"]
