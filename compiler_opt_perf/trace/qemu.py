# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Records a trace: runs a program in QEMU's user mode with the plugin of tools/tracer."""

import contextlib
import os
import shutil
import signal
import struct
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from absl import logging

from compiler_opt_perf.binary.elf import build_id, open_elf
from compiler_opt_perf.run.command import CommandError, run_command, signal_name
from compiler_opt_perf.run.files import atomic_write
from compiler_opt_perf.run.qemu import PROGRAM, qemu_words
from compiler_opt_perf.run.workload import Run, WorkloadError, run_workload
from compiler_opt_perf.trace import native
from compiler_opt_perf.trace.block_table import BlockTable, read_block_table, read_code
from compiler_opt_perf.trace.errors import TraceError
from compiler_opt_perf.trace.trace_file import BLOCKS_IN_RECORD, Trace, TraceDescription
from compiler_opt_perf.trace.trace_writer import (
    require_suffix,
    write_code,
    write_end,
    write_start,
)

# All CPU features of QEMU (AVX2, no AVX-512) except fast string operations: with these, libc copies
# by repeated string instructions, which QEMU executes byte by byte.
_CPU = "max,-erms,-fsrm"
_STDERR_BYTES_SHOWN = 2000
# Remedies by the signal that ended a run.
_REMEDIES: dict[int, str] = {
    signal.SIGILL: "QEMU lacks one of its instructions, such as AVX-512; compile it with at most "
    "-march=x86-64-v3",
    signal.SIGKILL: "if it was the time limit, raise it, or give less work",
}


@dataclass(frozen=True)
class SyncPoints:
    """How a run marks sync points, and the file for its progress at each.

    Attributes:
      library: shared library to preload. It marks a sync point by calling clock_gettime() with a
        third argument that the plugin knows (SYNC_POINT of tools/tracer/qemu_plugin.c).
      output: file that `read_sync_points` reads.
    """

    library: Path
    output: Path


_SYNC_POINT = np.dtype([("blocks", "<u8"), ("elsewhere", "<u8")])


def read_sync_points(path: Path) -> npt.NDArray[np.void]:
    """Reads the progress of a thread at each of its M sync points.

    Returns:
      [M] with the fields `blocks`, executed so far in the binary, and `elsewhere`, instructions
      executed so far outside of it.

    Raises:
      TraceError: the file cannot be read, or is cut off.
    """
    try:
        raw = path.read_bytes()
        return np.frombuffer(raw, _SYNC_POINT)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise TraceError(
            f"{path}: {len(raw):,} bytes: not a file of sync points; record the run again"
        ) from error


def version() -> str:
    """Returns the version of the installed QEMU, such as "qemu-7.2.22".

    Raises:
      TraceError: QEMU is missing or has no plugins.
    """
    words = qemu_words()
    if shutil.which(words[0]) is None:
        raise TraceError(
            f"{PROGRAM}: not found on PATH; install it (apt-get install qemu-user; the statically "
            "linked qemu-user-static has no plugins)"
        )
    if "-plugin" not in run_command([*words, "--help"], timeout_s=60).stdout:
        raise TraceError(
            f"{PROGRAM}: has no plugins; run tools/bootstrap, which unpacks one that has them"
        )
    shown = run_command([*words, "--version"], timeout_s=60).stdout
    return "qemu-" + shown.split("version ")[-1].split()[0]


def _without_randomisation() -> list[str]:
    """Returns a command prefix that fixes addresses; empty where the container forbids it."""
    prefix = ["setarch", "x86_64", "--addr-no-randomize"]
    try:
        run_command([*prefix, "true"], timeout_s=60)
    except CommandError:
        logging.info("this container forbids fixed addresses: runs may differ a little")
        return []
    return prefix


def _plan(binary: Path, table: BlockTable) -> bytes:
    """Returns the block addresses for the plugin, as struct plan of qemu_plugin.c."""
    with open_elf(binary) as file:
        segments = [
            struct.pack("<QQQ", s["p_offset"], s["p_filesz"], s["p_vaddr"])
            for s in file.iter_segments("PT_LOAD")
        ]
    address, number = table.starts()
    counts = struct.pack("<QQ", len(segments), len(address))
    return b"".join([counts, *segments, address.tobytes(), number.tobytes()])


def record(
    binary: Path,
    arguments: Sequence[str],
    output: Path,
    *,
    program: Path | None = None,
    stdin: Path | None = None,
    stdout: Path | None = None,
    cwd: Path | None = None,
    timeout_s: float | None = None,
    expected_status: int = 0,
    sync_points: SyncPoints | None = None,
) -> Trace:
    """Runs `binary` and writes the trace of the run.

    A run killed by a signal or at the time limit leaves a trace marked as incomplete. A failed run
    leaves an existing output as it was.

    Args:
      binary: executable or shared library with an address map and a build-id.
      arguments: command-line arguments of the program.
      output: NAME.bbtrace.
      program: executable to run; the binary itself when None. A shared library needs one.
      stdin: standard input; empty when None.
      stdout: file for standard output; discarded when None.
      cwd: working directory.
      timeout_s: wall-clock limit, seconds.
      expected_status: exit status of a successful run.
      sync_points: marks sync points of the run; None for none.

    Raises:
      TraceError: QEMU is missing, or the run failed.
      BinaryError: the binary has no address map or no build-id.
      FileWriteError: the disk is full, or the output folder cannot be written.
    """
    run = Run(program or binary, arguments, stdin, stdout, cwd, None, timeout_s, expected_status)
    return record_run(run, binary, output, sync_points)


def record_run(
    run: Run, binary: Path, output: Path, sync_points: SyncPoints | None = None
) -> Trace:
    """Makes a run, and writes its trace as `record` does."""
    require_suffix(output)
    table = read_block_table(binary)
    if not os.access(run.program, os.X_OK):
        raise TraceError(f"{run.program}: cannot be executed; make it executable (chmod +x)")
    description = TraceDescription(
        binary.name, build_id(binary), (run.name, *run.arguments), version()
    )
    plugin = native.library("qemu_plugin")
    with (
        tempfile.TemporaryDirectory(prefix="block-trace-") as scratch,
        atomic_write(output.absolute()) as unfinished,
    ):
        folder = Path(scratch)
        (folder / "plan").write_bytes(_plan(binary, table))
        (folder / "messages").touch()
        with unfinished.open("wb") as stream:
            write_start(stream, description, table)
            write_code(stream, range(len(table)), read_code(binary, table))
        parameters = {
            "file": plugin,
            "plan": folder / "plan",
            "binary": binary.resolve(),
            "trace": unfinished,
            "messages": folder / "messages",
        }
        environment = []
        if sync_points is not None:
            sync_points.output.unlink(missing_ok=True)
            parameters["sync_points"] = sync_points.output.absolute()
            environment = ["-E", f"LD_PRELOAD={sync_points.library}"]
        # In QEMU's options, a comma separates and a doubled one stands for itself.
        plugin_option = ",".join(f"{k}={v}".replace(",", ",,") for k, v in parameters.items())
        argv = [
            *_without_randomisation(),
            *(*qemu_words(), "-seed", "1", "-cpu", _CPU, *environment, "-plugin", plugin_option),
            # Some programs act by their own name.
            *("-0", str(run.program), *run.command),
        ]
        logging.info("%s: running under %s; %s", run.name, description.tool, run.started)
        status = _run(run, argv, unfinished, folder / "stderr")
        messages = (folder / "messages").read_text(errors="replace").splitlines()
        _check_run(run, status, messages, folder / "stderr")
        write_end(unfinished)
        has_blocks = bool(Trace.load(unfinished).streams)
        if status < 0:
            _check_signal(run, -status, has_blocks, folder / "stderr")
        elif not has_blocks:
            raise TraceError(
                f"{binary}: none of its blocks ran; did the program run another file? (A program "
                "with an RPATH loads its libraries from there. Programs that it starts are not "
                "traced.)"
            )
    return Trace.load(output, quiet=True)


def _run(run: Run, argv: Sequence[str], trace: Path, diagnostics: Path) -> int:
    """Runs `argv` and logs progress. Returns the exit status, or minus the signal that ended it."""
    try:
        finished = run_workload(
            run, argv, diagnostics, lambda seconds: _report(run.name, trace, seconds)
        )
    except WorkloadError as error:
        raise TraceError(str(error)) from error
    if finished.timed_out:
        logging.warning("%s: killed after its limit of %g s", run.name, run.timeout_s)
    return finished.status


def _report(name: str, trace: Path, seconds: float) -> None:
    with contextlib.suppress(TraceError):
        blocks = Trace.load(trace, quiet=True).total
        logging.info(
            "%s: %.0f s, %.1f million blocks, %.1f million/s, %.1f MB",
            name,
            seconds,
            blocks / 1e6,
            blocks / 1e6 / seconds,
            trace.stat().st_size / 1e6,
        )


def _check_run(run: Run, status: int, messages: Sequence[str], diagnostics: Path) -> None:
    """Raises TraceError if the run gave no trace; logs warnings for the user."""
    errors = [line.removeprefix("error: ") for line in messages if line.startswith("error: ")]
    if errors:
        raise TraceError(f"{run.program}: the trace could not be written: {errors[0]}")
    started = messages.count("execve")
    if started:
        logging.warning(
            "%s: tried %d times to start another program; such programs run, but are not traced",
            run.name,
            started,
        )
    if status >= 0 and status != run.expected_status:
        raise TraceError(
            f"{run.program}: exit status {status} under QEMU, expected {run.expected_status}; "
            f"does the same command work without it?{_stderr_tail(diagnostics)}"
        )


def _check_signal(run: Run, number: int, has_blocks: bool, diagnostics: Path) -> None:
    """Logs that a signal ended the run; raises TraceError when the trace has no block."""
    remedy = _REMEDIES.get(number, "does the same command work without QEMU?")
    if has_blocks:
        logging.warning(
            "%s: ended by %s; the trace is kept (%s)%s",
            run.name,
            signal_name(number),
            remedy,
            _stderr_tail(diagnostics),
        )
        return
    raise TraceError(
        f"{run.program}: ended by {signal_name(number)} before a thread had executed "
        f"{BLOCKS_IN_RECORD:,} blocks of the traced code, the smallest unit that is written: the "
        f"trace is empty. {remedy[0].upper()}{remedy[1:]}{_stderr_tail(diagnostics)}"
    )


def _stderr_tail(diagnostics: Path) -> str:
    """Returns the end of the run's standard error, on indented lines."""
    printed = diagnostics.read_bytes()[-_STDERR_BYTES_SHOWN:].decode(errors="replace").strip()
    return f"\n  {printed}".replace("\n", "\n  ") if printed else ""
