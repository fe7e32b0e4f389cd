# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rollouts on a Ray cluster of two nodes, one of which is killed in the middle."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from compiler_opt_perf.corpus.corpus import Corpus
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.ray_cluster import LOCAL, RayExecutor
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train.compilation import Compiler
from compiler_opt_perf.train.labels import LabelJob, label

pytestmark = pytest.mark.compiler

PROBLEM = PROBLEMS["inline-size"]


@dataclass(frozen=True)
class _Job:
    """A module to label on two nodes.

    Attributes:
      met: folder in which every node at work leaves a file. Tasks wait for that of the other node,
        which could be done with all of them before this one has started its worker.
      victim: process group of the node that is killed by its first task.
    """

    of: LabelJob
    met: str
    victim: int


def _label(job: _Job) -> list[float]:
    """The differences of the labels."""
    # The fork server's parent is the worker of Ray, whose parent is the node.
    worker = _parent(os.getppid())
    met, node = Path(job.met), _parent(worker)
    (met / str(node)).touch()
    start = time.monotonic()
    while len(list(met.iterdir())) < 2 and time.monotonic() < start + 60:
        time.sleep(0.05)
    if os.getpgid(node) == job.victim:
        os.killpg(job.victim, signal.SIGKILL)
        os.kill(worker, signal.SIGKILL)
        time.sleep(60)
    return _differences(job.of)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _differences(job: LabelJob) -> list[float]:
    return [float(one) for one in label(job).difference]


def test_a_cluster_labels_as_processes_do_though_a_node_dies(
    toolchain: Toolchain,
    corpora: dict[str, Corpus],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiler = Compiler(toolchain.clang, toolchain.litert_library, PROBLEM, Profiles(), 60.0, 4096)
    modules = corpora[PROBLEM.name].modules[:4]
    jobs = [LabelJob(compiler, one, most=4, seed=seed) for one in modules for seed in (1, 2)]
    with Pool(2) as pool:
        expected = [outcome.get() for outcome in pool.map(_differences, jobs)]
    # One processor a node.
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    met = tmp_path / "met"
    met.mkdir()
    with RayExecutor(LOCAL) as executor:
        import ray

        address = ray.get_runtime_context().gcs_address
        command = [
            os.fspath(Path(sys.executable).with_name("ray")),
            "start",
            f"--address={address}",
        ]
        command += ["--num-cpus=1", "--object-store-memory=80000000", "--block"]
        with open(tmp_path / "log", "w") as log:
            second = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        try:
            while executor.workers < 2:
                assert second.poll() is None, (tmp_path / "log").read_text()
                time.sleep(0.1)
            together = [_Job(job, str(met), second.pid) for job in jobs]
            outcomes = executor.map(_label, together)
            ended = second.poll()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(second.pid, signal.SIGKILL)
            second.wait()
    assert [outcome.get() for outcome in outcomes] == expected
    assert any(any(differences) for differences in expected)
    # Ray gave its task to the other node.
    assert ended == -signal.SIGKILL
