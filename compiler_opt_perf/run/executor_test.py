# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Results and errors do not depend on the kind of worker."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from compiler_opt_perf.run.executor import Executor, WorkerError
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.ray_cluster import LOCAL, RayExecutor


@pytest.fixture(
    scope="module", params=["processes", pytest.param("ray", marks=pytest.mark.long(15))]
)
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    with Pool(2) if request.param == "processes" else RayExecutor(LOCAL, 2) as workers:
        yield workers


def _square(value: int) -> int:
    if value == 13:
        raise ValueError("thirteen")
    # Later items end first, so that order is not an accident.
    time.sleep(0.05 / (value + 1))
    return value * value


def test_outcomes_come_in_the_items_order(executor: Executor) -> None:
    kept: dict[int, int] = {}
    outcomes = executor.map(_square, [3, 13, 4, 5], keep=kept.__setitem__, label="squares")
    assert [one.value for one in outcomes] == [9, None, 16, 25]
    assert kept == {3: 9, 4: 16, 5: 25}
    with pytest.raises(ValueError, match="thirteen"):
        outcomes[1].get()


def _die(marker: Path) -> str:
    """Kills its worker as often as the marker says."""
    times = int(marker.read_text())
    if times:
        marker.write_text(str(times - 1))
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


def test_a_task_whose_worker_dies_is_tried_again(executor: Executor, tmp_path: Path) -> None:
    markers = [tmp_path / str(times) for times in (0, 1, 9)]
    for marker in markers:
        marker.write_text(marker.name)
    outcomes = executor.map(_die, markers)
    assert [one.value for one in outcomes] == ["survived", "survived", None]
    assert markers[2].read_text() == "6"
    with pytest.raises(WorkerError, match="its worker died 3 times"):
        outcomes[2].get()


def _hang(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def test_a_hanging_task_ends_at_its_limit(executor: Executor) -> None:
    outcomes = executor.map(_hang, [60.0, 0.01], timeout_s=5.0)
    assert outcomes[1].get() == 0.01
    with pytest.raises(WorkerError, match="killed after its limit of 5.0 s"):
        outcomes[0].get()
