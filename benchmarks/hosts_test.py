# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import os
import subprocess
from pathlib import Path

import pytest

from benchmarks import hosts
from benchmarks.common import BenchmarkError


def test_without_debootstrap_the_remedy_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BenchmarkError, match="apt-get install debootstrap, .* as root"):
        hosts.study(tmp_path, ["trixie"], ["demo"], share=[])


def _may_mount() -> bool:
    """Whether this process may mount: only root, and not in every container."""
    return os.geteuid() == 0 and not subprocess.call(
        ["unshare", "--mount", "true"], stderr=subprocess.DEVNULL
    )


@pytest.mark.skipif(not _may_mount(), reason="only root may mount, and not in every container")
def test_a_command_sees_the_system_and_its_checkout_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("proc", "dev", "sys", "compiler-opt-perf", "bin"):
        (tmp_path / folder).mkdir()
    # This machine's programs and libraries, instead of a system of debootstrap's.
    for name in ("usr", "lib", "lib64"):
        (tmp_path / name).mkdir()
    mounts = "".join(
        f"mount --rbind /{name} {tmp_path}/{name}\n" for name in ("usr", "lib", "lib64", "bin")
    )
    monkeypatch.setattr(hosts, "_IN_SYSTEM", mounts + hosts._IN_SYSTEM)
    monkeypatch.setenv("PIP_CERT", "certificate")
    monkeypatch.setenv("SECRET", "something")
    script = (
        "pwd; ls /; echo $PIP_CERT $SECRET; head -c 1 /dev/zero | wc -c; test -r /proc/self/stat"
    )
    run = subprocess.run(
        hosts.in_system(tmp_path, "bash", "-ec", script), capture_output=True, text=True
    )
    assert (run.returncode, run.stderr) == (0, "")
    here, *names, certificate, count = run.stdout.split()
    assert here == "/compiler-opt-perf"
    assert set(names) == {path.name for path in tmp_path.iterdir()}
    assert (certificate, count) == ("certificate", "1")
    assert not list((tmp_path / "proc").iterdir()), "nothing stays mounted"
