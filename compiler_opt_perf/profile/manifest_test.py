# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compiler_opt_perf.binary.elf import BinaryError, build_id
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.events import RATES
from compiler_opt_perf.profile.manifest import Manifest

pytestmark = pytest.mark.compiler


@pytest.fixture
def copy(profile: Manifest, tmp_path: Path) -> Path:
    """A copy of a real profile that a test may damage."""
    for file in profile.path.parent.iterdir():
        shutil.copy(file, tmp_path)
    return tmp_path / profile.path.name


def test_saved_is_loaded(copy: Path, profile: Manifest) -> None:
    loaded = Manifest.load(copy)
    assert loaded == profile
    loaded.save()
    assert copy.read_bytes() == profile.path.read_bytes()
    # All but those of events that only hardware counts.
    assert [rate.name for rate in loaded.rates] == [
        row.name for row in RATES if row.numerator != "load-latency"
    ]
    assert loaded.event("loads").kind == "sum"
    assert loaded.collector.cache_geometry["LL"] == "2097152,16,64"


def test_binary_is_the_profiled_one(
    profile: Manifest, workload: Path, build: Callable[..., Path]
) -> None:
    profile.verify_binary(workload)
    other = build("-DOTHER")
    assert build_id(other) == build_id(workload)  # Same code, same flags: the same program.
    changed = build("-O1")
    with pytest.raises(PmuError) as caught:
        profile.verify_binary(changed)
    assert build_id(changed) in str(caught.value)
    assert build_id(workload) in str(caught.value)
    with pytest.raises(BinaryError, match="has no build-id"):
        profile.verify_binary(build("-Wl,--build-id=none"))


def test_optional_fields(copy: Path) -> None:
    document = json.loads(copy.read_text())
    for event in document["events"]:
        for name in ("flattened", "outside"):
            del event[name]
    for name in ("sources", "functions"):
        del document[name]
    copy.write_text(json.dumps(document))
    manifest = Manifest.load(copy)
    event = manifest.event("loads")
    assert (event.flattened, event.outside) == (None, 0)
    assert (manifest.sources, manifest.functions, manifest.read_functions()) == (None, None, None)


def at(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """A change: sets the field at "a.0.b" to `value`, or deletes it when that is ..."""

    def change(document: Any) -> None:
        *parents, last = [int(key) if key.isdigit() else key for key in path.split(".")]
        for key in parents:
            document = document[key]
        if value is ...:
            del document[last]
        else:
            document[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            at("format", "something"),
            r'\$\.format: expected "compiler-opt-perf/pmu-profile", found "something": this',
        ),
        (at("format", ...), "format: is missing"),
        (
            at("version", 2),
            r"\$\.version: expected 4, found 2: another version of this program wrote it; collect",
        ),
        (at("version", "1"), 'version: expected 4, found "1"'),
        (at("version", True), "version: expected 4, found true"),
        (at("program", ...), "program: is missing"),
        (at("program.build_id", 5), r"\$\.program\.build_id: expected `str`, found 5"),
        (at("program", []), r"program: expected `object`, found \[\]"),
        (at("collector.command", ["a", 1]), r"collector\.command\[1\]: expected `str`, found 1"),
        (
            at("collector.cache_geometry.I1", 1),
            r'collector\.cache_geometry\["I1"\]: expected `str`',
        ),
        (at("events", []), "events: expected `array` of length >= 1"),
        (at("events", {}), r"events: expected `array`, found {}"),
        (at("events.1", 3), r"events\[1\]: expected `object`, found 3"),
        (
            at("events.2.kind", "mean"),
            r'\$\.events\[2\]\.kind: .*sum\|max.*, found "mean"; collect the profile again',
        ),
        (at("events.2.total", -1), r"events\[2\]\.total: expected `int` >= 0, found -1"),
        (at("events.2.total", 1.5), r"events\[2\]\.total: expected `int`, found 1\.5"),
        (at("events.2.total", 0), r"events\[2\]\.located: expected at most the total 0"),
        (at("events.2.period", 0), r"events\[2\]\.period: expected `int` >= 1"),
        (at("events.2.precise", 1), r"events\[2\]\.precise: expected `bool`, found 1"),
        (at("events.2.name", "executions"), r"events\[2\]\.name: .*'executions' is repeated"),
        (at("events.2.file", "gone.afdo"), r"gone\.afdo: cannot be read: No such file"),
        (at("events.2.bytes", 7), r"event 'loads': .*has \d+ bytes, expected 7 \(truncated"),
        (at("events.2.bytes", ...), r"events\[2\]\.bytes: is missing"),
        (at("events.2.xxh3", "0" * 16), r"event 'loads': .*checksum \(xxh3\) differs"),
        (at("events.2.xxh3", ...), r"events\[2\]\.xxh3: is missing"),
        (at("events.2.flattened.bytes", 7), r"event 'loads', flattened: .*expected 7 \(trunc"),
        (at("events.2.flattened.xxh3", ...), r"events\[2\]\.flattened\.xxh3: is missing"),
        (at("rates.0.name", "branch-mispredict-rate"), r"rates\[1\]\.name: .* is repeated"),
        (at("rates.0.numerator", "cycles"), r'rates\[0\]\.numerator: expected one of.*"cycles"'),
        (at("rates.0.denominator", "executions"), r"rates\[0\]\.denominator: .*of kind 'max'"),
        (
            at("rates.0.prior_share", float("nan")),
            r"\$\.rates\[0\]\.prior_share: expected `float` >= 0",
        ),
        (at("rates.0.prior_share", -1), "prior_share: expected `float` >= 0"),
        (at("rates.0.prior_share", ...), r"rates\[0\]\.prior_share: is missing"),
        (at("events.2.name", "a/b"), r"events\[2\]\.name: expected a name of printable characters"),
        (at("events.2.name", "a\0"), r"events\[2\]\.name: expected a name of printable characters"),
        (at("events.2.name", ""), r"events\[2\]\.name: expected a name of printable characters"),
        (at("rates.0.name", "\x1b[31m"), r"rates\[0\]\.name: expected a name of printable"),
        (at("events.2.file", "a\0b"), r"events\[2\]\.file: expected `str` matching"),
        (at("events.2.file", ""), r"events\[2\]\.file: expected `str` matching"),
        (at("events.2.file", "/dev/zero"), r"event 'loads': /dev/zero: is no regular file"),
        (
            at("events.2.period", 10**300),
            r"events\[2\]\.period: expected `int` <= 9223372036854775807",
        ),
        (at("events.2.total", 2**64), r"events\[2\]\.total: expected `int` <= 9223372036854775807"),
        (at("rates.0.prior_share", 10**400), r"prior_share: number out of range, found 1000"),
        (at("functions.file", "gone"), r"functions: .*gone: cannot be read: No such file"),
        (at("functions.bytes", 7), r"functions: .*has \d+ bytes, expected 7 \(truncated"),
        (at("functions.xxh3", ...), r"functions\.xxh3: is missing"),
        (at("functions", 1), r"functions: expected `object \| null`, found 1"),
    ],
)
def test_wrong_field(copy: Path, change: Callable[[dict[str, Any]], None], message: str) -> None:
    document = json.loads(copy.read_text())
    change(document)
    copy.write_text(json.dumps(document))
    with pytest.raises(PmuError, match=message) as caught:
        Manifest.load(copy)
    assert str(caught.value).startswith(str(copy))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda data: data[: len(data) // 2],
            r"workload\.pmu\.json:\d+:\d+: not JSON: .*truncated",
        ),
        (lambda data: b"", r"workload\.pmu\.json:1:1: not JSON"),
        (lambda data: data.replace(b":", b"", 1), r"workload\.pmu\.json:2:\d+: not JSON"),
        (lambda data: b"\xff\xfe" + data, "not JSON: byte 0 is not UTF-8"),
        (lambda data: b"[" * 100000, "not JSON: nested too deep"),
        (lambda data: b"[1" + b"0" * 5000 + b"]", "not JSON: a number has too many digits"),
        (lambda data: data.replace(b'"workload"', rb'"\ud800"'), "not JSON: .*lone surrogate"),
        (lambda data: b"[1]", r"\$: expected `object`, found \[1\]"),
    ],
    ids=["half", "empty", "colon", "encoding", "nested", "digits", "half", "list"],
)
def test_damaged_manifest(copy: Path, damage: Callable[[bytes], bytes], message: str) -> None:
    copy.write_bytes(damage(copy.read_bytes()))
    with pytest.raises(PmuError, match=message):
        Manifest.load(copy)


def test_another_file_of_a_profile_is_not_its_manifest(copy: Path) -> None:
    with pytest.raises(PmuError, match=r"not JSON: .*; name the manifest, NAME\.pmu\.json$"):
        Manifest.load(copy.with_name("workload.loads.afdo"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], r"has \d+ bytes, expected \d+ \(truncated"),
        (lambda data: b"", "has 0 bytes"),
        (lambda data: data + b"\n", r"has \d+ bytes"),
        (lambda data: bytes([data[0] ^ 1]) + data[1:], r"its checksum \(xxh3\) differs"),
    ],
    ids=["short", "empty", "long", "flipped"],
)
def test_damaged_sample_profile(copy: Path, damage: Callable[[bytes], bytes], message: str) -> None:
    file = copy.with_name("workload.loads.afdo")
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(PmuError, match=rf"event 'loads': {file}: {message}"):
        Manifest.load(copy)


def test_files_are_looked_at_before_they_are_read(copy: Path) -> None:
    file = copy.with_name("workload.stores.afdo")
    size = file.stat().st_size
    file.unlink()
    # Reading a pipe that nobody writes to would never end.
    os.mkfifo(file)
    with pytest.raises(PmuError, match=r"event 'stores': .*is no regular file"):
        Manifest.load(copy)
    file.unlink()
    with file.open("wb") as stream:
        stream.truncate(1 << 36)
    with pytest.raises(PmuError, match=rf"has {1 << 36} bytes, expected {size}"):
        Manifest.load(copy)


def test_missing_files(copy: Path) -> None:
    copy.with_name("workload.stores.afdo").unlink()
    with pytest.raises(PmuError, match=r"event 'stores': .*cannot be read"):
        Manifest.load(copy)
    copy.unlink()
    with pytest.raises(PmuError, match=r"workload\.pmu\.json: cannot be read: No such file"):
        Manifest.load(copy)
