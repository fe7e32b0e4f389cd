# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Records a trace: runs the program in QEMU's user mode with the plugin of tools/tracer."""

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
from compiler_opt_perf.run.workload import Run, WorkloadError, run_workload
from compiler_opt_perf.trace import native
from compiler_opt_perf.trace.block_table import BlockTable, read_block_table
from compiler_opt_perf.trace.errors import TraceError
from compiler_opt_perf.trace.trace_file import (
    SUFFIX,
    Trace,
    TraceDescription,
    write_end,
    write_start,
)

_QEMU = "qemu-x86_64"
# All that QEMU knows (AVX2, no AVX-512), without fast strings: where the processor has them, libc
# copies with repeated string instructions, which QEMU runs byte by byte.
_CPU = "max,-erms,-fsrm"
_STDERR_BYTES_SHOWN = 2000
# Blocks in a record of a trace, of one thread.
_RECORD = 1 << 16
# By the signal that ended a run.
_REMEDIES: dict[int, str] = {
    signal.SIGILL: "QEMU does not know one of its instructions, AVX-512 for one; compile it with "
    "at most -march=x86-64-v3",
    signal.SIGKILL: "if it was the time limit, give more, or less work",
}


@dataclass(frozen=True)
class Moments:
    """How to note how far a run is at certain moments.

    Attributes:
      library: shared library that is preloaded. It tells of a moment by calling clock_gettime()
        with a third argument that the plugin knows (tools/tracer).
      output: file for the notes of each moment: a thread's blocks so far, and the instructions
        that it executed outside of the binary. `read_moments` reads it.
    """

    library: Path
    output: Path


_MOMENT = np.dtype([("blocks", "<u8"), ("elsewhere", "<u8")])


def read_moments(path: Path) -> npt.NDArray[np.void]:
    """Notes of moments, [M] with the fields blocks and elsewhere.

    Raises:
      TraceError: they cannot be read, or are cut off.
    """
    try:
        raw = path.read_bytes()
        return np.frombuffer(raw, _MOMENT)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise TraceError(
            f"{path}: {len(raw):,} bytes: no notes of moments; record the run anew"
        ) from error


def version() -> str:
    """The installed QEMU, as "qemu-7.2.22".

    Raises:
      TraceError: there is none, or one without plugins.
    """
    path = shutil.which(_QEMU)
    if path is None:
        raise TraceError(
            f"{_QEMU}: not found on PATH; install it (apt-get install qemu-user; the statically "
            "linked qemu-user-static has no plugins)"
        )
    if "-plugin" not in run_command([path, "--help"], timeout_s=60).stdout:
        raise TraceError(f"{path}: has no plugins (linked statically?); install Debian's qemu-user")
    shown = run_command([path, "--version"], timeout_s=60).stdout
    return "qemu-" + shown.split("version ")[-1].split()[0]


def _without_randomisation() -> list[str]:
    """A prefix that makes addresses the same in each run; nothing where that is forbidden."""
    prefix = ["setarch", "x86_64", "--addr-no-randomize"]
    try:
        run_command([*prefix, "true"], timeout_s=60)
    except CommandError:
        logging.info("this container does not let addresses be fixed: runs may differ a little")
        return []
    return prefix


def _plan(binary: Path, table: BlockTable) -> bytes:
    """The addresses that the plugin looks for, as struct plan of qemu_plugin.c."""
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
    moments: Moments | None = None,
) -> Trace:
    """Runs `binary` and writes the trace of the run.

    A run that is killed, by a signal or at the time limit, leaves a trace that says so. One that
    fails leaves what was there before.

    Args:
      binary: executable or shared library with an address map and a build-id.
      arguments: of the run.
      output: NAME.bbtrace.
      program: what is run; the binary itself when None. A shared library needs one.
      stdin: the program's standard input; empty when None.
      stdout: where its standard output goes; discarded when None.
      cwd: the working directory it runs in.
      timeout_s: wall-clock limit of the run, in seconds.
      expected_status: the exit status of a run as it should be.
      moments: what tells moments of the run, and where to note them; None for no such notes.

    Raises:
      TraceError: QEMU is missing, or the run failed.
      BinaryError: the binary has no address map or no build-id.
      FileWriteError: the disk is full, or the output folder cannot be written.
    """
    run = Run(program or binary, arguments, stdin, stdout, cwd, None, timeout_s, expected_status)
    if output.suffix != SUFFIX:
        raise TraceError(f"{output}: the name of a block trace must end with {SUFFIX}")
    table = read_block_table(binary)
    if not os.access(run.program, os.X_OK):
        raise TraceError(f"{run.program}: cannot be executed; make it executable (chmod +x)")
    description = TraceDescription(binary.name, build_id(binary), (run.name, *arguments), version())
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
        parameters = {
            "file": plugin,
            "plan": folder / "plan",
            "binary": binary.resolve(),
            "trace": unfinished,
            "messages": folder / "messages",
        }
        told = []
        if moments is not None:
            moments.output.unlink(missing_ok=True)
            parameters["moments"] = moments.output.absolute()
            told = ["-E", f"LD_PRELOAD={moments.library}"]
        # QEMU takes a doubled comma for one that separates nothing.
        written = ",".join(f"{k}={v}".replace(",", ",,") for k, v in parameters.items())
        argv = [
            *_without_randomisation(),
            *(_QEMU, "-seed", "1", "-cpu", _CPU, *told, "-plugin", written),
            # Programs look at the name that they are called by.
            *("-0", str(run.program), *run.command),
        ]
        logging.info("%s: running under %s", run.name, description.tool)
        status = _run(run, argv, unfinished, folder / "stderr")
        messages = (folder / "messages").read_text(errors="replace").splitlines()
        _judge(run, status, messages, folder / "stderr")
        write_end(unfinished)
        has_blocks = bool(Trace.load(unfinished).streams)
        if status < 0:
            _judge_signal(run, -status, has_blocks, folder / "stderr")
        elif not has_blocks:
            raise TraceError(
                f"{binary}: none of its blocks was seen to run; is it what was run? (A program "
                "with an RPATH loads a library from there. Programs that it starts are not traced.)"
            )
    return Trace.load(output, quiet=True)


def _run(run: Run, argv: Sequence[str], trace: Path, diagnostics: Path) -> int:
    """Runs `argv` and says now and then how far it is. Returns its status; negative: a signal."""
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


def _judge(run: Run, status: int, messages: Sequence[str], diagnostics: Path) -> None:
    """Raises a TraceError when the run gave no trace to keep; logs what the user should know."""
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
            f"does the same command work without it?{_shown(diagnostics)}"
        )


def _judge_signal(run: Run, number: int, has_blocks: bool, diagnostics: Path) -> None:
    """Logs that a signal ended the run; raises a TraceError when it left no block in the trace."""
    remedy = _REMEDIES.get(number, "does the same command work without QEMU?")
    if has_blocks:
        logging.warning(
            "%s: ended by %s; the trace is kept (%s)%s",
            run.name,
            signal_name(number),
            remedy,
            _shown(diagnostics),
        )
        return
    raise TraceError(
        f"{run.program}: ended by {signal_name(number)} before one of its threads had executed "
        f"{_RECORD:,} blocks of the traced code, which are written at once: no block was seen to "
        f"run. {remedy[0].upper()}{remedy[1:]}{_shown(diagnostics)}"
    )


def _shown(diagnostics: Path) -> str:
    """The last of what the run printed as diagnostics, on lines of their own."""
    printed = diagnostics.read_bytes()[-_STDERR_BYTES_SHOWN:].decode(errors="replace").strip()
    return f"\n  {printed}".replace("\n", "\n  ") if printed else ""
