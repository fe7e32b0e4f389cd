# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import ctypes
import gc
import random
import re
import shutil
import struct
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
from absl import logging

from compiler_opt_perf.trace.conftest import Build
from compiler_opt_perf.trace.errors import TraceError
from compiler_opt_perf.trace.trace_file import BLOCKS, BLOCKS_IN_RECORD, CODE, INDEX, Trace
from compiler_opt_perf.trace.trace_writer import write_blocks, write_end, write_start
from compiler_opt_perf.trace.windows import samples

pytestmark = pytest.mark.compiler


@pytest.fixture
def copy(trace: Trace, tmp_path: Path) -> Path:
    path = tmp_path / "copy.bbtrace"
    shutil.copy(trace.path, path)
    return path


def everything(trace: Trace) -> list[list[int]]:
    streams = trace.streams.values()
    return [[n for piece in trace.pieces(s) for n in piece.tolist()] for s in streams]


def test_any_numbers_come_back(trace: Trace, tmp_path: Path) -> None:
    seed = 5
    logging.info("seed %d", seed)
    generator = np.random.default_rng(seed)
    path = tmp_path / "t.bbtrace"
    wanted = [
        generator.integers(0, len(trace.table), length, np.uint32, endpoint=True)
        for length in (1, BLOCKS_IN_RECORD, 2 * BLOCKS_IN_RECORD + 3)
    ]
    with path.open("wb") as stream:
        write_start(stream, trace.description, trace.table)
        for number, numbers in enumerate(wanted):
            pieces = np.array_split(numbers, 7)
            write_blocks(stream, pieces, number=number, ends=number != 1, pid=1, tid=number)
    write_end(path)
    again = Trace.load(path)
    assert again.complete
    assert everything(again) == [numbers.tolist() for numbers in wanted]
    assert [stream.ended for stream in again.streams.values()] == [True, False, True]
    assert [len(stream.records) for stream in again.streams.values()] == [1, 1, 3]
    assert again.description == trace.description


def test_index_leads_to_the_records(trace: Trace) -> None:
    data = trace.path.read_bytes()
    magic, size, place = struct.unpack("<IIQ", data[-16:])
    assert (magic, size) == (0x184D2A5B, 8)
    (index,) = (record for record in trace.records if record.kind == INDEX)
    assert index.offset == place
    raw = trace.content(index)
    rows = list(struct.iter_unpack("<QQII", raw[4:]))
    assert len(rows) == struct.unpack_from("<I", raw)[0]
    records = [record for record in trace.records if record.kind == BLOCKS]
    assert [row[0] for row in rows] == [record.offset for record in records]
    assert [row[1] for row in rows] == [0, 65536, 131072][: len(rows)]
    assert len(rows) > 1


def test_the_file_is_one_of_zstd(trace: Trace) -> None:
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_findFrameCompressedSize.restype = ctypes.c_size_t
    data = trace.path.read_bytes()
    place = frames = 0
    while place < len(data):
        size = library.ZSTD_findFrameCompressedSize(data[place:], len(data) - place)
        assert not library.ZSTD_isError(ctypes.c_size_t(size))
        place += size
        frames += 1
    assert frames == 2 * len(trace.records) + 1


def test_a_truncated_trace_is_read_to_its_last_whole_record(
    trace: Trace, copy: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")
    records = [record for record in trace.records if record.kind == BLOCKS]
    end = trace.path.stat().st_size
    for size, whole in (
        (end - 1, len(records)),
        (records[-1].offset + 50, len(records) - 1),
        (records[1].offset + 7, 1),
        (records[0].offset, 0),
    ):
        with copy.open("r+b") as stream:
            stream.truncate(size)
        caplog.clear()
        cut = Trace.load(copy)
        assert not cut.complete
        assert "cut off" in caplog.text
        read = everything(cut)
        assert sum(map(len, read)) == sum(record.count for record in records[:whole])
        if read:
            assert read[0] == everything(trace)[0][: len(read[0])]
    with copy.open("r+b") as stream:
        # The code comes behind the block table.
        stream.truncate(next(r.offset for r in trace.records if r.kind == CODE) - 3)
    with pytest.raises(TraceError, match="cut off before the end of the block table"):
        Trace.load(copy)


def test_damage_is_found_wherever_it_is(trace: Trace, copy: Path) -> None:
    data = bytearray(trace.path.read_bytes())
    seed = 7
    logging.info("seed %d", seed)
    generator = random.Random(seed)
    last = next(record for record in trace.records if record.kind == INDEX).offset
    found = 0
    for place in [0, 4, *(generator.randrange(last) for _ in range(150))]:
        damaged = bytearray(data)
        damaged[place] ^= 1 << generator.randrange(8)
        copy.write_bytes(damaged)
        try:
            read = Trace.load(copy, quiet=True)
            same = everything(read) == everything(trace) and read.complete
            list(samples(read))
            # What is left are the numbers of processes, threads and streams, and flags.
            assert same or any(
                record.offset + 12 <= place < record.offset + 40 for record in trace.records
            )
        except TraceError as error:
            assert str(copy) in str(error)
            found += 1
    assert found > 120


def test_a_damaged_record_is_named(trace: Trace, copy: Path) -> None:
    record = next(record for record in trace.records if record.kind == BLOCKS)
    data = bytearray(copy.read_bytes())
    data[record.offset + 40 + record.payload_bytes // 2] ^= 0x55
    copy.write_bytes(data)
    damaged = Trace.load(copy)
    message = f"byte {record.offset}: the compressed data is damaged"
    with pytest.raises(TraceError, match=message):
        everything(damaged)


def test_other_files(program: Path, tmp_path: Path, trace: Trace, copy: Path) -> None:
    with pytest.raises(TraceError, match="not a block trace"):
        Trace.load(program)
    empty = tmp_path / "empty.bbtrace"
    empty.touch()
    with pytest.raises(TraceError, match="not a block trace"):
        Trace.load(empty)
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        Trace.load(tmp_path / "absent.bbtrace")
    with copy.open("wb") as stream:
        write_start(stream, trace.description, trace.table, more={"version": 2})
    with pytest.raises(TraceError, match=r"\$\.version: expected 1, found 2: another version"):
        Trace.load(copy)
    with copy.open("wb") as stream:
        write_start(stream, trace.description, trace.table, "compiler-opt-perf/block-windows")
    with pytest.raises(TraceError, match=r"\$\.format: .*found .compiler-opt-perf/block-w"):
        Trace.load(copy)


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"program": "x"}, "program: expected `object`"),
        ({"program": {"path": "x"}}, "program.build_id: is missing"),
        ({"program": {"path": "x", "build_id": 5}}, "program.build_id: expected `str`, found 5"),
        ({"command": "x"}, "command: expected `array`"),
        ({"command": None}, "command: expected `array`, found null"),
        ({"command": ["x", 1]}, "command[1]: expected `str`, found 1"),
        ({"tool": {}}, "tool: expected `str`, found {}"),
        ({"fragments": 0}, "fragments: expected `bool`, found 0"),
        ({"format": []}, 'format: expected "compiler-opt-perf/block-trace", found []'),
        ({"tool": {}, "version": 2}, "version: expected 1, found 2"),
    ],
    ids=str,
)
def test_damaged_descriptions_are_named(
    trace: Trace, copy: Path, more: dict[str, object], place: str
) -> None:
    with copy.open("wb") as stream:
        write_start(stream, trace.description, trace.table, more=more)
    with pytest.raises(TraceError, match=re.escape(f"copy.bbtrace: description: $.{place}")):
        Trace.load(copy)


def test_no_memory_for_what_a_damaged_head_claims(
    trace: Trace, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = next(record for record in trace.records if record.kind == BLOCKS)
    # Bytes of the content, and how many block numbers these are: at most what a head can say.
    for place, value in ((20, 1 << 31), (24, 2**32 - 1)):
        data = bytearray(trace.path.read_bytes())
        struct.pack_into("<I", data, record.offset + place, value)
        copy.write_bytes(data)
        tracemalloc.start()
        with pytest.raises(TraceError, match=rf"byte {record.offset}: the .* is (dam|mal)"):
            everything(Trace.load(copy))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 100_000_000
    data = bytearray(trace.path.read_bytes())
    # Content that is read as bytes, and not as block numbers, the greatest that a head may claim.
    struct.pack_into("<I", data, trace.records[1].offset + 20, 1 << 31)
    copy.write_bytes(data)
    buffer = ctypes.create_string_buffer

    def allocate(size: int) -> object:
        assert size < 100_000_000
        return buffer(size)

    monkeypatch.setattr(ctypes, "create_string_buffer", allocate)
    with pytest.raises(TraceError, match="is damaged"):
        Trace.load(copy)


def test_a_trace_closes_its_file(trace: Trace, copy: Path) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", ResourceWarning)
        Trace.load(copy)
        copy.write_bytes(trace.path.read_bytes()[:100])
        with pytest.raises(TraceError):
            Trace.load(copy)
        gc.collect()
    assert not [str(one.message) for one in seen]


def test_another_build(trace: Trace, program: Path, build: Build) -> None:
    trace.verify_binary(program)
    with pytest.raises(TraceError, match="mean nothing in another build"):
        trace.verify_binary(build("-O1"))


def test_a_number_beyond_the_table(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "t.bbtrace"
    with path.open("wb") as stream:
        write_start(stream, trace.description, trace.table)
        numbers = np.array([1, len(trace.table) + 1], np.uint32)
        write_blocks(stream, [numbers], number=0, ends=True)
    write_end(path)
    with pytest.raises(TraceError, match="larger than the block table"):
        everything(Trace.load(path))
