# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes a window histogram: make_windows.py OUT [--trace] COUNT:BLOCK,BLOCK,...

A block is FUNCTION.ID; the last block of a window is the one that was executed COUNT times. With
--trace, writes a block trace in which each sequence of blocks comes COUNT times in a row. So does
+COUNT:BLOCK,... in a part of the run that is added to a histogram. ?EXITS/WRONG/CALLS/WRONG:BLOCK
adds what a branch predictor made of a block. N*BLOCK is that block N times. FUNCTION@K is another
function of the same name.
"""

import json
import struct
import sys

HEAD = struct.Struct("<10I")


def record(kind: int, raw: bytes, count: int = 0) -> bytes:
    # A frame of one uncompressed block: magic, descriptor, content size, block header.
    assert len(raw) < 1 << 17
    payload = struct.pack("<IBII", 0xFD2FB528, 0xA0, len(raw), 1 | len(raw) << 3)[:-1] + raw
    return HEAD.pack(0x184D2A5B, 32, kind, 0, len(payload), len(raw), count, 0, 0, 0) + payload


def uleb(value: int) -> bytes:
    out = bytearray()
    while True:
        byte, value = value & 0x7F, value >> 7
        out.append(byte | (0x80 if value else 0))
        if not value:
            return bytes(out)


ids: dict[str, list[int]] = {}
windows, samples, branches = [], [], {}
length = 1
arguments = sys.argv[2:]
is_trace = arguments[0] == "--trace"
for argument in arguments[is_trace:]:
    count, text = argument.split(":")
    blocks = []
    for block in text.split(","):
        repeats, _, block = block.rpartition("*")
        name, _, number = block.rpartition(".")
        blocks += int(repeats or 1) * [(name, int(number))]
    for name, number in blocks:
        known = ids.setdefault(name, [])
        if number not in known:
            known.append(number)
    if argument.startswith("?"):
        branches[blocks[0]] = [int(number) for number in count[1:].split("/")]
        continue
    if argument.startswith("+"):
        samples.append(int(count) * blocks)
        continue
    windows.append((int(count), blocks))
    length = max(length, len(blocks))

functions = list(ids)
table = [(f, i) for f, name in enumerate(functions) for i in sorted(ids[name])]
numbers = {(functions[f], i): number for number, (f, i) in enumerate(table)}
ends, names = [], b""
for name in functions:
    names += name.partition("@")[0].encode()
    ends.append(len(names))
raw_table = struct.pack("<2I", len(functions), len(table))
raw_table += b"".join(struct.pack("<Q", 16 * n) for n in range(len(table)))
raw_table += struct.pack(f"<{len(table)}I", *([16] * len(table)))
raw_table += struct.pack(f"<{len(table)}I", *(i for _, i in table))
raw_table += struct.pack(f"<{len(table)}I", *(f for f, _ in table))
raw_table += b"".join(struct.pack("<Q", 16 * n) for n in range(len(functions)))
raw_table += struct.pack(f"<{len(ends)}I", *ends) + names


def deltas(sequence: list[int]) -> bytes:
    previous, out = 0, b""
    for number in sequence:
        delta, previous = number - previous, number
        out += uleb(((delta << 1) ^ (delta >> 31)) & 0xFFFFFFFF)
    return out


if is_trace:
    trace = [numbers[b] for count, blocks in windows for _ in range(count) for b in blocks]
    data = record(3, deltas(trace), len(trace))
else:
    data = record(
        5,
        b"".join(
            uleb(count)
            + deltas([len(table)] * (length - len(blocks)) + [numbers[block] for block in blocks])
            for count, blocks in windows
        ),
        len(windows),
    )
    if branches:
        rows = sorted((numbers[block], row) for block, row in branches.items())
        befores = [0, *(number for number, _ in rows)]
        raw = b"".join(
            b"".join(map(uleb, [number - before, *row]))
            for (number, row), before in zip(rows, befores, strict=False)
        )
        data += record(6, raw, len(rows))
    for sample in samples:
        data += record(3, deltas([numbers[block] for block in sample]), len(sample))
description = {
    "format": "compiler-opt-perf/block-" + ("trace" if is_trace else "windows"),
    "version": 1,
    "program": {"path": "test", "build_id": "00"},
    "window": length,
    "total": sum(count for count, _ in windows),
}
out = record(1, json.dumps(description).encode()) + record(2, raw_table)
out += data
index = len(out)
out += record(4, struct.pack("<I", 0))
out += struct.pack("<2IQ", 0x184D2A5B, 8, index)
with open(sys.argv[1], "wb") as file:
    file.write(out)
