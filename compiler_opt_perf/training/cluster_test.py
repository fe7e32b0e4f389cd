# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rollouts on a Ray cluster of two nodes, one of which is killed in the middle."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compiler_opt_perf.corpus.corpus import Corpus
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.execution.pool import Pool
from compiler_opt_perf.execution.ray_cluster import LOCAL, RayExecutor
from compiler_opt_perf.policies.problem import PROBLEMS
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.training.compilation import Compiler
from compiler_opt_perf.training.labels import LabelJob, label

PROBLEM = PROBLEMS["inline-size"]


def _label(job: LabelJob) -> tuple[int, int, list[float]]:
    """The process, that of its node, and the differences of the labels."""
    return os.getpid(), os.getppid(), label(job).difference.tolist()


def test_a_cluster_labels_as_processes_do_though_a_node_dies(
    toolchain: Toolchain,
    corpora: dict[str, Corpus],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiler = Compiler(toolchain.clang, toolchain.litert_library, PROBLEM, Profiles(), 60.0, 4096)
    modules = corpora[PROBLEM.name].modules[:4]
    jobs = [LabelJob(compiler, one, most=4, seed=seed) for one in modules for seed in (1, 2)]
    with Pool(2) as pool:
        expected = [outcome.get()[2] for outcome in pool.map(_label, jobs)]
    # One processor a node.
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    workers: dict[int, int] = {}
    killed: list[int] = []
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
            while len(ray.nodes()) < 2:
                assert second.poll() is None, (tmp_path / "log").read_text()
                time.sleep(0.1)

            def kill_the_second(_: LabelJob, value: tuple[int, int, list[float]]) -> None:
                process, node = value[:2]
                workers[node] = process
                if len(workers) == 2 and not killed and os.getpgid(node) != second.pid:
                    # The other one is at work.
                    (worker,) = [pid for name, pid in workers.items() if name != node]
                    os.killpg(second.pid, signal.SIGKILL)
                    os.kill(worker, signal.SIGKILL)
                    killed.append(worker)

            outcomes = executor.map(_label, jobs, keep=kill_the_second)
        finally:
            if not killed:
                os.killpg(second.pid, signal.SIGKILL)
            second.wait()
    assert [outcome.get()[2] for outcome in outcomes] == expected
    assert any(any(differences) for differences in expected)
    assert killed and "running the task again" in caplog.text
