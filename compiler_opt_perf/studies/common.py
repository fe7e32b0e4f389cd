# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What studies share besides their workloads."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from compiler_opt_perf.execution.command import CompletedCommand, run_command
from compiler_opt_perf.execution.pool import Pool

_TIMEOUT_S = 1800.0


class StudyError(Exception):
    """A study that cannot go on; the message says why and what to do."""


def run_all(
    commands: Iterable[Sequence[str | Path]], cwd: Path | None = None, label: str | None = None
) -> list[CompletedCommand]:
    """Runs commands on all cores; with a `label`, shows how far it is.

    Raises:
      CommandError: one of them failed; all have ended.
    """
    with Pool() as pool:
        outcomes = pool.map(_run, [(tuple(command), cwd) for command in commands], label=label)
    return [outcome.get() for outcome in outcomes]


def _run(job: tuple[Sequence[str | Path], Path | None]) -> CompletedCommand:
    command, cwd = job
    return run_command(command, cwd=cwd, timeout_s=_TIMEOUT_S)


def saved(folder: Path, names: Iterable[str], suffix: str = ".json") -> dict[str, Any]:
    """The results in `folder`, NAME + suffix, of those programs that have any."""
    files = {name: folder / f"{name}{suffix}" for name in names}
    return {name: json.loads(path.read_text()) for name, path in files.items() if path.is_file()}
