# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of tools/bootstrap; the programs that would change the machine are stand-ins."""

import importlib.metadata
import itertools
import re
import shutil
import subprocess
import sysconfig
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest


def _stand_in(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def _run(root: Path, stand_ins: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [root / "tools" / "bootstrap"],
        env={"PATH": f"{stand_ins}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def _copy(repo_root: Path, destination: Path) -> Path:
    (destination / "tools").mkdir(parents=True)
    shutil.copy(repo_root / "tools" / "bootstrap", destination / "tools")
    return destination


def test_without_root_it_prints_one_command_and_stops(repo_root: Path, tmp_path: Path) -> None:
    root = _copy(repo_root, tmp_path / "repo")
    stand_ins = tmp_path / "bin"
    _stand_in(stand_ins, "id", "echo 1000")
    _stand_in(stand_ins, "dpkg-query", "echo 'installed make'")
    _stand_in(stand_ins, "apt-get", f"touch {tmp_path}/apt-was-called")
    result = _run(root, stand_ins)
    assert result.returncode == 3
    commands = [line for line in result.stderr.splitlines() if "apt-get" in line]
    assert len(commands) == 1
    for package in ("llvm-22-dev", "libclang-22-dev", "liblld-22-dev", "valgrind", "python3-venv"):
        assert f" {package}" in commands[0]
    assert " make" not in commands[0]
    assert not (tmp_path / "apt-was-called").exists()
    assert not (root / "build" / "venv").exists()


def test_a_failing_apt_is_shown_with_its_log(repo_root: Path, tmp_path: Path) -> None:
    root = _copy(repo_root, tmp_path / "repo")
    stand_ins = tmp_path / "bin"
    _stand_in(stand_ins, "id", "echo 0")
    _stand_in(stand_ins, "dpkg-query", "exit 1")
    _stand_in(stand_ins, "apt-get", f"echo $@ >{tmp_path}/apt; echo E: no space left >&2; exit 100")
    result = _run(root, stand_ins)
    assert result.returncode == 1
    assert "E: no space left" in result.stderr
    assert "build/bootstrap-apt.log" in result.stderr
    assert "dpkg --configure -a" in result.stderr
    assert "DPkg::Lock::Timeout=300" in (tmp_path / "apt").read_text()


@pytest.mark.long(5)
def test_a_second_run_does_nothing(repo_root: Path) -> None:
    first = subprocess.run([repo_root / "tools" / "bootstrap"], capture_output=True, timeout=600)
    assert first.returncode == 0
    logs = [repo_root / "build" / f"bootstrap-{kind}.log" for kind in ("apt", "pip")]
    before = [log.stat().st_mtime_ns for log in logs if log.exists()]
    second = subprocess.run(
        [repo_root / "tools" / "bootstrap"], capture_output=True, text=True, timeout=600
    )
    assert second.stdout.count("\n") == 1
    assert "ready" in second.stdout
    assert [log.stat().st_mtime_ns for log in logs if log.exists()] == before


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _pins(lines: Iterable[str]) -> dict[str, str]:
    """Versions by name of package."""
    pins = (re.match(r"([\w.-]+)==(\S+)$", line) for line in lines)
    return {_normal(pin[1]): pin[2] for pin in pins if pin}


def test_lock_and_project_agree(repo_root: Path) -> None:
    project = tomllib.loads((repo_root / "pyproject.toml").read_text())["project"]
    direct = [
        *project["dependencies"],
        *itertools.chain(*project["optional-dependencies"].values()),
    ]
    wanted = _pins(direct)
    assert len(wanted) == len(direct)
    locked = _pins((repo_root / "requirements.txt").read_text().splitlines())
    assert {name: locked.get(name) for name in wanted} == wanted


def test_the_environment_is_as_locked(repo_root: Path) -> None:
    locked = _pins((repo_root / "requirements.txt").read_text().splitlines())
    # Not the folders that Ray puts on the path.
    installed = importlib.metadata.distributions(path=[sysconfig.get_path("purelib")])
    here = {_normal(one.name): one.version for one in installed}
    # The first is of Python's own venv.
    del here["pip"], here["compiler-opt-perf"]
    assert here.items() <= locked.items()


def test_an_unknown_extra_is_refused(repo_root: Path, tmp_path: Path) -> None:
    result = subprocess.run(
        [_copy(repo_root, tmp_path / "repo") / "tools" / "bootstrap", "--with=torch"],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 2
    assert result.stderr == (
        "error: --with=torch: unknown; there are --with=tensorflow and --with=ray\n"
    )
    assert not (tmp_path / "repo" / "build").exists()
