# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import logging
import shutil
from pathlib import Path

import pytest

from compiler_opt_perf.blocks import cpu_files
from compiler_opt_perf.blocks.cpu_files import FOLDER, CpuFileError, caches, cpu_file, names
from compiler_opt_perf.profile.callgrind import CacheGeometry


def test_a_cpu_is_a_name_or_a_file(tmp_path: Path) -> None:
    assert "znver4" in names() and "emeraldrapids" in names()
    for name in names():
        assert cpu_file(name) == FOLDER / f"{name}.json"
    path = tmp_path / "cpu.json"
    shutil.copy(FOLDER / "znver4.json", path)
    assert cpu_file(str(path)) == path


def test_an_unknown_cpu_is_told_those_that_there_are(tmp_path: Path) -> None:
    for name in ("znver99", str(tmp_path / "missing.json"), str(tmp_path)):
        with pytest.raises(CpuFileError) as caught:
            cpu_file(name)
        assert f"--cpu={name}: neither a file nor a known CPU" in str(caught.value)
        assert all(one in str(caught.value) for one in ("host", "cop cost calibrate", *names()))


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("znver4", "znver4"),
        ("emeraldrapids", "emeraldrapids"),
        ("sapphirerapids", "sapphirerapids"),
    ],
)
def test_the_file_of_this_machine(
    host: str, expected: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cpu_files, "host_cpu", lambda: host)
    with caplog.at_level(logging.INFO, "absl"):
        assert cpu_file("host") == FOLDER / f"{expected}.json"
    assert f"taking {expected}" in caplog.text


def test_the_last_level_is_that_of_the_file(tmp_path: Path) -> None:
    assert caches(FOLDER / "znver5.json").ll.size == 16 << 20
    assert caches(FOLDER / "znver3.json") == CacheGeometry()
    path = tmp_path / "cpu.json"
    path.write_text('{"mcpu": "znver5", "last_level": "3000,16,64"}')
    with pytest.raises(CpuFileError, match=r"cpu\.json: last_level: cache 3000,16,64: .*sets"):
        caches(path)


@pytest.mark.compiler
def test_a_machine_without_a_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # LLVM tells the machine's name, whatever it is.
    assert cpu_files.host_cpu().isprintable()
    monkeypatch.setattr(cpu_files, "host_cpu", lambda: "z80")
    with pytest.raises(CpuFileError, match="this machine is a z80, for which there is no CPU file"):
        cpu_file("host")
