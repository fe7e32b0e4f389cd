# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Damages files: bytes, lines, JSON fields, arrays, trace records; or replaces the whole file.

Each function takes the sound content and a random generator, and returns damaged content.
"""

import io
import json
import os
import random
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from compiler_opt_perf.trace import native, trace_file

_DEPTH = 100_000
# JSON text of field values of a wrong type, range or form.
_ODD = (
    *("null", "true", "[]", "{}", '""', '"x"', "0", "-1", "1", "1.5", "-0.0", "2147483648"),
    *("4294967295", "4294967296", "18446744073709551615", "18446744073709551616", "1e308"),
    *("NaN", "Infinity", "-Infinity", "1e400", "1" + 400 * "0", "-1" + 400 * "0", 5000 * "9"),
    *('"\\ud800"', '"a\\u0000b"', '"../../x"', '"/dev/zero"', '"/etc/passwd"', '"$\\\\frac{1$"'),
    *('"\\u001b[31m"', '"a\\nb"', '"' + 100_000 * "x" + '"', "[[0]]", "[null]", '{"a": null}'),
    *(_DEPTH * "[", _DEPTH * "[" + _DEPTH * "]", _DEPTH * '{"a":' + "0" + _DEPTH * "}"),
)
_NUMBERS = (
    *(b"-1", b"0", b"4294967295", b"18446744073709551616", b"nan", b"1e400", 5000 * b"9"),
    *(b"x", b"", b"0x", b"1.5"),
)
_LINES = (
    *(b"Segmentation fault", b"\0", b"\xff\xfe\x80", b"", b"#", 1_000_000 * b"x", b"\x1b[31m"),
    *(b"::", b"=" * 1000, b"fn=(1)", b"calls=1 1", b"- - -", 20_000 * b"[", b"\xed\xa0\x80"),
)


class _Raw(str):
    """Text that is written into the JSON unchanged."""


class _Object(list[tuple[str, Any]]):
    """The members of a JSON object, whose names may repeat."""


def damage_bytes(content: bytes, generator: random.Random) -> bytes:
    """Flips, sets, removes, repeats or inserts bytes, or truncates the content."""
    size = len(content)
    kind = generator.choice(["flip", "flip", "set", "set", "cut", "remove", "repeat", "insert"])
    if size == 0 or generator.random() < 0.02:
        return generator.randbytes(generator.choice([0, 1, 100])) if size else b"\0"
    if kind == "cut":
        return content[: generator.randrange(size)]
    at = generator.randrange(size)
    length = min(generator.choice([1, 2, 4, 8, 64]), size - at)
    if kind == "remove":
        return content[:at] + content[at + length :]
    if kind == "repeat":
        return content[: at + length] + content[at:]
    if kind == "insert":
        return content[:at] + generator.randbytes(length) + content[at:]
    result = bytearray(content)
    if kind == "set":
        result[at : at + length] = generator.choice([b"\0", b"\xff", b"\x80", b"\x7f"]) * length
    else:
        for place in generator.choices(range(size), k=generator.choice([1, 2, 8])):
            result[place] ^= 1 << generator.randrange(8)
    return bytes(result)


def damage_text(content: bytes, generator: random.Random) -> bytes:
    """Removes, repeats, swaps or inserts lines, or replaces a number by an odd value."""
    lines = content.split(b"\n")
    at = generator.randrange(len(lines))
    kind = generator.choice(["remove", "repeat", "swap", "insert", "number", "number", "bytes"])
    if kind == "remove":
        del lines[at]
    elif kind == "repeat":
        lines[at:at] = generator.choice([1, 2, 1000]) * [lines[at]]
    elif kind == "swap":
        other = generator.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == "insert":
        lines.insert(at, generator.choice(_LINES))
    elif kind == "number":
        numbers = list(re.finditer(rb"[0-9a-f]*[0-9][0-9a-f]*", content))
        if not numbers:
            return damage_bytes(content, generator)
        number = generator.choice(numbers)
        return content[: number.start()] + generator.choice(_NUMBERS) + content[number.end() :]
    else:
        return damage_bytes(content, generator)
    return b"\n".join(lines)


def damage_json(content: bytes, generator: random.Random) -> bytes:
    """Replaces the value of a field, or removes, repeats or renames a field."""
    if generator.random() < 0.15:
        return damage_text(content, generator)
    value = json.loads(content, object_pairs_hook=_Object)
    places: list[tuple[Any, int]] = []
    _collect(value, places)
    if not places:
        return generator.choice(_ODD).encode()
    inside, at = generator.choice(places)
    odd = _Raw(generator.choice(_ODD))
    kind = generator.choice(["value", "value", "value", "value", "remove", "repeat", "name"])
    member = isinstance(inside, _Object)
    if kind == "remove":
        del inside[at]
    elif kind == "repeat":
        inside.insert(
            at, (inside[at][0], odd) if member and generator.random() < 0.5 else inside[at]
        )
    elif kind == "name" and member:
        inside[at] = (_Raw(generator.choice(['"x"', '"\\ud800"', '""'])), inside[at][1])
    else:
        inside[at] = (inside[at][0], odd) if member else odd
    return _encode(value).encode()


def _collect(value: Any, places: list[tuple[Any, int]]) -> None:
    """Appends (container, index) of each object member and list element to `places`."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            places.append((value, index))
            _collect(item[1] if isinstance(value, _Object) else item, places)


def _encode(value: Any) -> str:
    if isinstance(value, _Raw):
        return str(value)
    if isinstance(value, _Object):
        members = (f"{_encode(name)}: {_encode(item)}" for name, item in value)
        return "{" + ", ".join(members) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_encode, value)) + "]"
    return json.dumps(value)


def damage_json_lines(content: bytes, generator: random.Random) -> bytes:
    """Damages one line of a file with one JSON value per line."""
    lines = content.splitlines(keepends=True)
    at = generator.randrange(len(lines))
    if generator.random() < 0.3 or not lines[at].startswith((b"{", b"[")):
        return damage_text(content, generator)
    try:
        lines[at] = damage_json(lines[at], generator) + b"\n"
    except ValueError:
        return damage_bytes(content, generator)
    return b"".join(lines)


def damage_arrays(content: bytes, generator: random.Random) -> bytes:
    """Damages one array of a numpy archive: its shape, type or values; or removes it.

    Or replaces it by a decompression bomb, on which a reader that unpacks it without a size check
    runs out of memory.
    """
    kind = generator.choice(["shape", "type", "values", "content", "remove", "bomb", "bytes"])
    if kind == "bomb":
        return _bomb(content, generator)
    if kind == "bytes":
        return damage_bytes(content, generator)
    with np.load(io.BytesIO(content)) as archive:
        arrays = dict(archive)
    name = generator.choice(sorted(arrays))
    array = arrays.pop(name)
    if kind == "shape":
        arrays[name] = generator.choice(
            [array[None], array.ravel()[:1], array.ravel()[:0], np.tile(array, 2)]
        )
    elif kind == "type" and array.dtype.kind not in "UV":
        arrays[name] = generator.choice([array.astype("U"), array.astype(complex), array != 0])
    elif kind == "values":
        odd = generator.choice([0.0, -1.0, 1e30, float("nan"), float("inf")])
        arrays[name] = np.full(array.shape, odd)
    elif kind == "content":
        data = damage_json if array.dtype == np.uint8 else damage_bytes
        raw = data(array.tobytes(), generator)
        raw = raw[: len(raw) // array.itemsize * array.itemsize]
        arrays[name] = np.frombuffer(raw, array.dtype)
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def _bomb(content: bytes, generator: random.Random) -> bytes:
    """Replaces one array of the archive: its header, and perhaps its content, has over 256 MB."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as sound:
        names = sorted(sound.namelist())
        chosen = generator.choice(names)
        claimed = generator.choice([1 << 28, 1 << 32, 1 << 50])
        # At most 256 MB are written, because larger contents would take long to compress.
        actual = generator.choice([0, 100, min(claimed, 1 << 28)])
        text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({claimed},)}}\n".encode()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in names:
                if name != chosen:
                    archive.writestr(name, sound.read(name))
                    continue
                with archive.open(name, "w") as member:
                    member.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text)
                    for start in range(0, actual, 1 << 20):
                        member.write(bytes(min(1 << 20, actual - start)))
    return stream.getvalue()


def damage_trace(content: bytes, generator: random.Random) -> bytes:
    """Damages the content of one trace record, or a field of its head, or any byte.

    The content is decompressed, damaged and compressed again: a damaged compressed byte would only
    fail decompression.
    """
    kind = generator.choice(["content", "content", "content", "head", "bytes"])
    if kind == "bytes":
        return damage_bytes(content, generator)
    head = trace_file.HEAD
    records = []
    at = 0
    # The trailer is shorter than a record's head.
    while at + head.size <= len(content):
        fields = list(head.unpack_from(content, at))
        end = at + head.size + fields[4]
        records.append((fields, content[at + head.size : end]))
        at = end
    rest = content[at:]
    chosen = generator.randrange(len(records))
    stream = io.BytesIO()
    for number, (fields, payload) in enumerate(records):
        if number != chosen:
            stream.write(head.pack(*fields) + payload)
        elif kind == "head":
            fields[generator.randrange(len(fields))] = generator.choice(
                [0, 1, 2, 5, 1 << 20, 0x7FFFFFFF, 0xFFFFFFFF, generator.randrange(1 << 32)]
            )
            stream.write(head.pack(*fields) + payload)
        else:
            raw = native.decompress(payload, fields[5])
            is_json = fields[2] == trace_file.DESCRIPTION
            raw = damage_json(raw, generator) if is_json else damage_bytes(raw, generator)
            payload = native.compress(raw)
            fields[4:6] = len(payload), len(raw)
            stream.write(head.pack(*fields) + payload)
    return stream.getvalue() + rest


DAMAGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "bytes": damage_bytes,
    "text": damage_text,
    "json": damage_json,
    "json lines": damage_json_lines,
    "arrays": damage_arrays,
    "trace": damage_trace,
}


#: Kinds of objects that can replace a file.
REPLACEMENTS = ("nothing", "folder", "loop", "sparse", "endless", "pipe", "link")


def replace_file(path: Path, kind: str) -> None:
    """Replaces a file by one of REPLACEMENTS."""
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "sparse":
        with path.open("wb") as stream:
            stream.truncate(20 << 30)
    elif kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "loop":
        path.symlink_to(path.name)
