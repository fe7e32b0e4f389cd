# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Addresses, and dying workers of Ray; train/cluster_test.py kills a machine."""

import os
import signal
import time
from pathlib import Path

import pytest

from compiler_opt_perf.run.executor import WorkerError
from compiler_opt_perf.run.ray_cluster import LOCAL, ClusterError, RayExecutor


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "no Ray cluster can be used there: Connection refused; start one with"),
        ("here", "--address=here: expected auto, local or HOST:PORT"),
        ("here:99999", "expected auto, local or HOST:PORT"),
    ],
)
def test_a_cluster_that_is_not_there_is_named(address: str, message: str) -> None:
    with pytest.raises(ClusterError, match=message), RayExecutor(address):
        pass


def _kill_rays_worker(marker: Path) -> str:
    """Kills the worker of Ray, the parent of the fork server, as often as the marker says."""
    times = int(marker.read_text())
    if times:
        marker.write_text(str(times - 1))
        server = Path(f"/proc/{os.getppid()}/stat").read_text()
        os.kill(int(server.rpartition(")")[2].split()[1]), signal.SIGKILL)
        time.sleep(60.0)
    return "survived"


@pytest.mark.long(15)
def test_ray_tries_a_task_again_whose_worker_dies(tmp_path: Path) -> None:
    markers = [tmp_path / str(times) for times in (0, 2, 9)]
    for marker in markers:
        marker.write_text(marker.name)
    with RayExecutor(LOCAL, 2) as executor:
        outcomes = executor.map(_kill_rays_worker, markers)
    assert [one.value for one in outcomes] == ["survived", "survived", None]
    assert markers[2].read_text() == "6"
    with pytest.raises(WorkerError, match="its worker died 3 times"):
        outcomes[2].get()
