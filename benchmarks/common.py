# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps that benchmarks share: commands, counted runs, profiles and kept results."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

from compiler_opt_perf.binary.elf import hide_debug_info
from compiler_opt_perf.cost import recording
from compiler_opt_perf.profile.callgrind import CacheGeometry
from compiler_opt_perf.profile.callgrind_dump import Dump, read_dump
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.run.command import CompletedCommand, run_command
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import read_input, sha256
from compiler_opt_perf.run.json_text import JsonError, decode
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.memo import memo
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.toolchain.layout import REPO_ROOT
from compiler_opt_perf.trace.qemu import SyncPoints, record
from compiler_opt_perf.trace.windows import write_windows

T = TypeVar("T")

TIMEOUT_S = 1800.0
#: A program whose cold call keeps a local of the hot loop in memory; its argument is the rounds.
PASSED_LOCAL = REPO_ROOT / "compiler_opt_perf" / "train" / "testdata" / "passed_local.cpp"
#: Blocks before each one that evaluators look at.
WINDOW = recording.WINDOW


class BenchmarkError(UserError):
    """A benchmark that cannot go on; the message says why and what to do."""


def run_all(
    commands: Iterable[Sequence[str | Path]], cwd: Path | None = None, label: str | None = None
) -> list[CompletedCommand]:
    """Runs commands on all cores; with a `label`, shows progress.

    Raises:
      CommandError: one of them failed; by then all have ended.
    """
    with Pool() as pool:
        outcomes = pool.map(_run, [(tuple(command), cwd) for command in commands], label=label)
    return [outcome.get() for outcome in outcomes]


def _run(job: tuple[Sequence[str | Path], Path | None]) -> CompletedCommand:
    command, cwd = job
    return run_command(command, cwd=cwd, timeout_s=TIMEOUT_S)


def counted_run(binary: Path, arguments: Sequence[str], folder: Path, *options: str) -> Dump:
    """Counts with callgrind what a run executes in the program's own object.

    Args:
      folder: for the dump, and for a copy of the binary. A program's behaviour may depend on its
        path, so programs to compare need the same folder.
      options: further ones of callgrind.
    """
    copy = folder / "copy" / binary.name
    copy.parent.mkdir(exist_ok=True)
    hide_debug_info(binary, copy)
    path = folder / "callgrind.out"
    argv: list[str | Path] = ["valgrind", "--tool=callgrind", "--dump-instr=yes", "--vgdb=no"]
    argv += ["--skip-plt=no", f"--callgrind-out-file={path}", *options]
    run_command([*argv, copy, *arguments], timeout_s=TIMEOUT_S)
    return read_dump(path, copy)


def counters_profile(binary: Path, arguments: Sequence[str], raw: Path, merged: Path) -> None:
    """Runs a program that is built with -fprofile-generate; writes its merged profile."""
    run_command([binary, *arguments], timeout_s=TIMEOUT_S, env={"LLVM_PROFILE_FILE": str(raw)})
    run_command([stock_tool("llvm-profdata"), "merge", raw, "-o", merged])


def traced(
    binary: Path, arguments: Sequence[str], folder: Path, inputs: Any, library: Path | None = None
) -> Path:
    """Records a block trace of a run, once; returns its windows.

    Args:
      folder: for run.bbwindows and the note of what was done.
      inputs: all that the run depends on besides the binary.
      library: of a `Stopwatch`; its moments are noted in run.moments, and run.bbtrace is kept.
    """
    trace, windows, noted = (folder / f"run.{end}" for end in ("bbtrace", "bbwindows", "moments"))

    def trace_run() -> None:
        points = SyncPoints(library, noted) if library else None
        write_windows(record(binary, arguments, trace, sync_points=points), WINDOW, windows)
        if library is None:
            trace.unlink()

    files = [windows, *([trace, noted] if library else [])]
    memo(folder / "traced.json", _recorded(binary, inputs), NoneType, trace_run, files)
    return windows


def profiled(
    binary: Path,
    arguments: Sequence[str],
    folder: Path,
    inputs: Any,
    caches: CacheGeometry | None = None,
) -> Path:
    """Collects the PMU profile of a run, once; returns its manifest.

    Args:
      folder: for run.pmu.json and the note of what was done.
      inputs: all that the run depends on besides the binary.
      caches: to simulate; None for the default ones.
    """
    profile = folder / "run.pmu.json"
    inputs = _recorded(binary, inputs)
    if caches is not None:
        inputs["caches"] = caches.as_dict()

    def collect_run() -> None:
        collect(binary, arguments, profile, geometry=caches, timeout_s=TIMEOUT_S)

    memo(folder / "profiled.json", inputs, NoneType, collect_run, [profile])
    return profile


def _recorded(binary: Path, inputs: Any) -> dict[str, Any]:
    """All that what is recorded of a run depends on."""
    return {"run": inputs, "binary": sha256(binary), "window": WINDOW}


def read_result(path: Path, kind: type[T]) -> T:
    """The result that a step wrote to `path`. Raises OSError; if it is damaged, BenchmarkError."""
    try:
        return decode(read_input(path), kind, path)
    except JsonError as error:
        raise BenchmarkError(f"{error}; remove it to do that step again") from error


def saved(folder: Path, names: Iterable[str], suffix: str = ".json") -> dict[str, dict[str, Any]]:
    """By name, the results in files FOLDER/NAME + suffix, of those that exist."""
    paths = {name: folder / f"{name}{suffix}" for name in names}
    return {n: read_result(path, dict[str, Any]) for n, path in paths.items() if path.is_file()}
