# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kills a training again and again, for tests."""

import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler_opt_perf.run.seeds import derive_seed
from compiler_opt_perf.run.tensorflow_environment import import_tensorflow

# Audit events of Python that come before files change; "open" does if it is for writing.
_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def kill_and_resume(
    function: Callable[..., object],
    arguments: Sequence[object],
    output: Path,
    *,
    kills: int,
    most: int,
    seed: int,
) -> int:
    """Starts a function as often as it takes; its first processes are killed, the last one ends.

    A process is killed by SIGKILL when it is about to change files of `output` (to open one for
    writing, to rename or remove one, ...) for the n-th time, so that nothing depends on the
    machine's speed.

    Args:
      function: of a module; it goes on where the process before was killed.
      output: its folder; temporary files go beside it.
      kills: how many processes are killed.
      most: n is drawn from 1 to this, for each of them.
      seed: of the draws.

    Returns:
      How many processes were killed, less than `kills` if it was done before.

    Raises:
      AssertionError: a process ended otherwise.
    """
    draw = random.Random(derive_seed(seed, "kills"))
    points = [draw.randint(1, most) for _ in range(kills)]
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    # It forks, which a process with TensorFlow's threads must not.
    starter = context.Process(target=_start, args=(function, arguments, output, points, sender))
    starter.start()
    sender.close()
    try:
        killed: int = receiver.recv()
    except EOFError:
        raise AssertionError("a process ended otherwise; it wrote why") from None
    finally:
        starter.join()
    return killed


def _start(
    function: Callable[..., object],
    arguments: Sequence[object],
    output: Path,
    points: Sequence[int],
    sender: Any,
) -> None:
    tempfile.tempdir = os.environ["TMPDIR"] = str(output.parent)
    # Once for all processes; loaded, but not used, it has no threads.
    import_tensorflow()

    for killed, point in enumerate((*points, 0)):
        child = os.fork()
        if not child:
            _run(function, arguments, output, point)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            sender.send(killed)
            return
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            raise SystemExit(1)


def _run(
    function: Callable[..., object], arguments: Sequence[object], output: Path, point: int
) -> None:
    left = point

    def count(event: str, details: tuple[Any, ...]) -> None:
        nonlocal left
        if event in _CHANGES or (event == "open" and (details[2] or 0) & _WRITING):
            # Temporary files elsewhere are not read by the next process.
            path = details[0] if isinstance(details[0], str | os.PathLike) else ""
            left -= Path(path).is_relative_to(output)
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    try:
        function(*arguments)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def checkpoint_without_times(path: Path) -> dict[str, bytes]:
    """The content of a checkpoint, array by array."""
    with np.load(path) as arrays:
        found = {name: arrays[name] for name in arrays.files}
    record = json.loads(found.pop("record").tobytes())
    record["curve"] = [_without_time(point) for point in record["curve"]]
    content = {
        name: repr((one.dtype, one.shape)).encode() + one.tobytes() for name, one in found.items()
    }
    return {**content, "record": json.dumps(record).encode()}


def curve_without_times(path: Path) -> list[dict[str, Any]]:
    """The points of a curve."""
    return [_without_time(json.loads(line)) for line in path.read_text().splitlines()]


def _without_time(point: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in point.items() if name != "elapsed_s"}
