# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The hardware path, without hardware: perf's text is written from the block trace of a run."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.trace import branch_records
from compiler_opt_perf.trace.branch_records import import_recording
from compiler_opt_perf.trace.errors import TraceError
from compiler_opt_perf.trace.trace_file import Trace
from compiler_opt_perf.trace.windows import Windows

pytestmark = pytest.mark.compiler

_BASE = 0x555555554000
_DEPTH = 32


def mapping(program: Path) -> str:
    """The line that perf prints when the program's code is mapped."""
    with program.open("rb") as stream:
        code = next(s for s in ELFFile(stream).iter_segments("PT_LOAD") if s["p_flags"] & 1)
    start = code["p_vaddr"] // 4096 * 4096
    offset = code["p_offset"] // 4096 * 4096
    size = (code["p_vaddr"] % 4096 + code["p_filesz"] + 4095) // 4096 * 4096
    return (
        f"  100 PERF_RECORD_MMAP2 100/100: [0x{_BASE + start:x}(0x{size:x}) @ 0x{offset:x} "
        f"fe:00 1 1]: r-xp /somewhere/{program.name}\n"
    )


def taken_branches(trace: Trace) -> Iterator[tuple[int, int]]:
    """From and to of each jump between blocks; calls and returns go from end to beginning.

    A branch ends its block. Its own address is not known here, only that it is in the block.
    """
    table = trace.table
    for stream in trace.streams.values():
        numbers = np.concatenate(list(trace.pieces(stream)))
        start = table.address[numbers].astype(np.int64)
        end = start + table.size[numbers]
        for place in np.flatnonzero(start[1:] != end[:-1]).tolist():
            yield _BASE + int(end[place]) - 1, _BASE + int(start[place + 1])


def test_branch_records_give_fragments_of_the_trace(
    trace: Trace, program: Path, tmp_path: Path
) -> None:
    branches = list(taken_branches(trace))
    text = tmp_path / "perf.txt"
    with text.open("w") as out:
        out.write(mapping(program))
        for last in range(_DEPTH, len(branches), 101):
            stack = reversed(branches[last - _DEPTH : last])
            shown = " ".join(f"0x{source:x}/0x{target:x}/P/-/-/1" for source, target in stack)
            ip = branches[last - 1][1]
            out.write(f"  100  100003 cycles:u:  {ip:x}  {shown}\n")
    output = tmp_path / "fragments.bbtrace"
    fragments = import_recording(text, program, output)
    assert fragments.description.fragments
    samples = len(range(_DEPTH, len(branches), 101))
    (stream,) = fragments.streams.values()
    numbers = np.concatenate(list(fragments.pieces(stream)))
    gaps = numbers == len(trace.table)
    assert gaps.sum() == samples
    assert (~gaps).sum() > samples * (_DEPTH - 1)
    # All that the fragments tell of did happen, in this order, and about as often.
    real = {tuple(row) for row in Windows.count(trace, 4).blocks.tolist()}
    inside = [
        row for row in Windows.count(fragments, 4).blocks.tolist() if len(trace.table) not in row
    ]
    assert len(inside) > 5
    assert all(tuple(row) in real for row in inside)
    whole = np.concatenate(list(trace.pieces(trace.streams[0])))
    hottest = int(np.bincount(whole).argmax())
    share = np.mean(whole == hottest)
    assert np.mean(numbers[~gaps] == hottest) == pytest.approx(share, abs=0.02)


def test_intel_pt_gives_the_whole_trace(trace: Trace, program: Path, tmp_path: Path) -> None:
    (stream,) = trace.streams.values()
    branches = list(taken_branches(trace))[:10_000]
    text = tmp_path / "pt.txt"
    with text.open("w") as out:
        out.write(mapping(program))
        out.write(f"  100/100  branches:uH:                0 => {branches[0][1]:16x}\n")
        for number, (source, target) in enumerate(branches[1:]):
            thread = 100 if number % 2 else 101
            out.write(f"  100/{thread}  branches:uH: {source:16x} => {target:16x}\n")
            # The other thread does the same, one step behind.
            other = 201 - thread
            out.write(f"  100/{other}  branches:uH: {source:16x} => {target:16x}\n")
    result = import_recording(text, program, tmp_path / "pt.bbtrace")
    assert [s.tid for s in result.streams.values()] == [100, 101]
    whole = np.concatenate(list(trace.pieces(stream)))
    found = np.concatenate(list(result.pieces(result.streams[0])))
    # What precedes the first branch and what follows the last is not told.
    begin = int(np.flatnonzero(whole == found[0])[0])
    assert np.array_equal(found, whole[begin : begin + len(found)])
    assert len(found) >= 9_998


def test_a_lost_decoder_leaves_a_gap(trace: Trace, program: Path, tmp_path: Path) -> None:
    branches = list(taken_branches(trace))[:40]
    lines = [f"  100/100  branches:u: {s:16x} => {t:16x}\n" for s, t in branches]
    lines.insert(
        20, " instruction trace error type 1 cpu 0 pid 100 tid 100 ip 0 code 7: Overflow\n"
    )
    text = tmp_path / "pt.txt"
    text.write_text(mapping(program) + "".join(lines))
    result = import_recording(text, program, tmp_path / "pt.bbtrace")
    (stream,) = result.streams.values()
    numbers = np.concatenate(list(result.pieces(stream)))
    assert (numbers == len(trace.table)).sum() == 1


def test_nothing_to_read(program: Path, tmp_path: Path) -> None:
    text = tmp_path / "perf.txt"
    text.write_text(mapping(program) + f"  100  100003 cycles:u:  {_BASE + 0x1000:x}\n")
    with pytest.raises(TraceError, match="no branches in program"):
        import_recording(text, program, tmp_path / "t.bbtrace")
    with pytest.raises(TraceError, match="cannot be read"):
        import_recording(tmp_path / "absent", program, tmp_path / "t.bbtrace")
    text.write_text("what is this\n")
    with pytest.raises(PmuError, match="neither a sample"):
        import_recording(text, program, tmp_path / "t.bbtrace")
    assert not (tmp_path / "t.bbtrace").exists()


def test_a_binary_recording_is_not_searched_for_lines(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have gigabytes, and no line of Intel PT as perf script prints them."""

    def fail(path: Path) -> Iterator[str]:
        raise AssertionError(f"{path} is read as text")

    monkeypatch.setattr(branch_records, "input_lines", fail)
    recording = tmp_path / "perf.data"
    recording.write_bytes(b"PERFILE2" + bytes(100))
    with pytest.raises(PmuError, match=r"perf\.data: .*cannot read it"):
        import_recording(recording, program, tmp_path / "t.bbtrace")


@pytest.mark.parametrize("event", ["nobody_ever_heard_of_it:u", "br_misp_retired.cond:upp"])
def test_stacks_that_say_nothing_of_the_whole_run(
    event: str, trace: Trace, program: Path, tmp_path: Path
) -> None:
    branches = list(taken_branches(trace))[:20]
    stack = " ".join(f"0x{s:x}/0x{t:x}/P/-/-/1" for s, t in reversed(branches))
    text = tmp_path / "perf.txt"
    sample = f"  100  100003 {event}:  {branches[0][0]:x}  {stack}\n"
    text.write_text(mapping(program) + 9 * sample)
    with pytest.raises(
        TraceError, match=rf"its branch stacks are of {event.partition(':')[0]}, which"
    ):
        import_recording(text, program, tmp_path / "t.bbtrace")
    # Beside others they are not taken, however many there are.
    fewer = " ".join(f"0x{s:x}/0x{t:x}/P/-/-/1" for s, t in reversed(branches[:5]))
    text.write_text(text.read_text() + f"  100  100003 cycles:u:  {branches[0][0]:x}  {fewer}\n")
    found = import_recording(text, program, tmp_path / "t.bbtrace")
    text.write_text(mapping(program) + text.read_text().splitlines(keepends=True)[-1])
    assert found.total == import_recording(text, program, tmp_path / "u.bbtrace").total


def test_nonsense_is_left_out(
    trace: Trace, program: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    branches = list(taken_branches(trace))[:20]
    # Twice a forward branch from one place: the code between would run backwards.
    place = next(i for i, (source, target) in enumerate(branches) if target > source)
    source, target = branches[place]
    branches.insert(place, (source, target + 1))
    stack = " ".join(f"0x{s:x}/0x{t:x}/P/-/-/1" for s, t in reversed(branches))
    text = tmp_path / "perf.txt"
    text.write_text(mapping(program) + f"  100  100003 cycles:u:  {branches[0][0]:x}  {stack}\n")
    import_recording(text, program, tmp_path / "t.bbtrace")
    assert "left out 1 impossible stretches between two branches" in caplog.text
