# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.index import check_index, index_of, read_tables
from compiler_opt_perf.profile.manifest import Manifest
from compiler_opt_perf.profile.sample_profile import convert_to_binary
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool


@pytest.fixture(scope="module")
def profile(workload: Path, tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    output = tmp_path_factory.mktemp("profile") / "run.pmu.json"
    return collect(workload, ["repeat", "1"], output, timeout_s=60)


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("run.pmu.index", lambda data: data[:-1] + bytes([data[-1] ^ 1]), "damaged; copy or"),
        ("run.pmu.index", lambda data: data[:-9], "damaged; copy or collect"),
        ("run.pmu.index", lambda data: b"COPINDEX\2" + data[9:], "no index of version 3; collect"),
        ("run.pmu.json", lambda data: data + b"\n", "not of .*run.pmu.json, which was edited"),
    ],
    ids=["flipped", "cut off", "older", "another manifest"],
)
def test_an_index_that_does_not_fit(
    profile: Manifest, name: str, damage: Callable[[bytes], bytes], message: str, tmp_path: Path
) -> None:
    manifest = tmp_path / profile.path.name
    for path in (profile.path, index_of(profile.path)):
        shutil.copy(path, tmp_path)
    check_index(manifest)
    path = tmp_path / name
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(PmuError, match=f"run.pmu.index: {message}"):
        check_index(manifest)


@pytest.mark.compiler
def test_a_profile_that_is_cut_off(profile: Manifest, tmp_path: Path) -> None:
    whole = profile.file(profile.event("loads")).read_bytes()
    cut = tmp_path / "cut.afdo"
    for size in range(1, len(whole), 7):
        cut.write_bytes(whole[:size])
        try:
            read_tables(cut)
        except PmuError as error:
            assert str(cut) in str(error)
        else:
            # Only what the index does not need may be missing.
            assert size > len(whole) // 2


def test_no_sample_profile(tmp_path: Path) -> None:
    text = tmp_path / "text.afdo"
    text.write_text("main:1:1\n 1: 1\n")
    with pytest.raises(PmuError, match="not a sample profile as llvm-profdata writes it"):
        read_tables(text)


@pytest.mark.compiler
@pytest.mark.parametrize(
    "options",
    [["--use-md5"], ["--compress-all-sections"], ["--split-layout"]],
    ids=["hashes", "compressed", "split"],
)
def test_a_layout_that_compilers_do_not_read(options: Sequence[str], tmp_path: Path) -> None:
    file = tmp_path / "a.afdo"
    text = "main:2:1\n 1: 1\n 2: inner:1\n  1: 1\nother:1:1\n 1: 1\n"
    (tmp_path / "text").write_text(text)
    merge: list[str | Path] = [stock_tool("llvm-profdata"), "merge", "--sample", "--extbinary"]
    run_command([*merge, tmp_path / "text", "-o", file])
    read_tables(file)
    run_command([*merge, *options, tmp_path / "text", "-o", file])
    with pytest.raises(PmuError, match="is of a kind that compilers do not read"):
        read_tables(file)


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [(1, 1, 1 << 37), (32, 1, 4), (2, 1, 1 << 35), (4, 1, 1 << 33), (3, 0, 33)],
    ids=["types of virtual tables", "any section", "names", "offsets", "unknown section"],
)
def test_what_later_versions_add_is_refused(
    kind: int, field: int, value: int, tmp_path: Path
) -> None:
    """It may change the meaning of all that follows."""
    file = tmp_path / "a.afdo"
    (tmp_path / "text").write_text("main:1:1\n 1: 1\n")
    convert_to_binary(tmp_path / "text", file)
    content = bytearray(file.read_bytes())
    # The magic and the version take 9 bytes and 1; the number of sections and their table follow.
    (number,) = struct.unpack_from("<Q", content, 10)
    entries = [18 + 32 * index for index in range(number)]
    (entry,) = (e for e in entries if struct.unpack_from("<Q", content, e)[0] == kind)
    struct.pack_into("<Q", content, entry + 8 * field, value)
    file.write_bytes(content)
    with pytest.raises(PmuError, match=f"at byte {entry} is of a kind that compilers do not read"):
        read_tables(file)
