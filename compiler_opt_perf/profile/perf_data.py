# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads perf recordings: a perf.data, or its text from perf script.

perf itself reads a perf.data, which is untrusted input: a damaged one can overwrite perf's stack.
So perf runs with limits on memory, processor time and file size. It runs in an empty folder,
without the user's settings, and without servers of debug info. It can still read the user's files.
"""

import contextlib
import itertools
import mmap
import os
import shlex
import struct
import tempfile
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import BinaryIO

from absl import logging

from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.perf_events import RecordingHeader
from compiler_opt_perf.profile.perf_mappings import DELETED, RecordedBinary, mapped_files
from compiler_opt_perf.profile.perf_record import version
from compiler_opt_perf.profile.perf_script import FIELDS, Script, read_script
from compiler_opt_perf.profile.perf_stacks import StackBranch
from compiler_opt_perf.run.command import signal_name, start_command
from compiler_opt_perf.run.files import input_lines, open_input

# Magic numbers of perf.data in both byte orders; the last two belong to version 1.
_PERF_DATA = (b"PERFILE2", b"2ELIFREP", b"PERFFILE", b"ELIFFREP")
# Size of a file's header (tools/perf/Documentation/perf.data-file-format.txt in Linux): magic,
# sizes of header and attribute; offset and size of attributes, samples and event types; a bit for
# each feature. Offsets and sizes of the features follow the samples.
_HEADER_BYTES = 104
_PIPE_HEADER_BYTES = 16
# A record's type, flags and size, and the types that are followed by data (tools/lib/perf in
# Linux).
_RECORD = struct.Struct("IHH")
_TRACING_DATA, _AUXTRACE = 66, 71
# Limits on perf while it reads: memory in addition to the recording, which it maps; processor
# time; size of the files that it writes.
_MEMORY_BYTES = 8 << 30
_SECONDS = 3600
_FILE_BYTES = 16 << 20
_SHOWN = 500


def script_command(recording: str = "perf.data", optional: Sequence[str] = ()) -> str:
    """The command that converts a recording to text for `read_recording`."""
    return shlex.join(_reading(_script_argv(optional, "--header"), recording))


def _reading(argv: Sequence[str], recording: str) -> list[str]:
    return [*argv[:2], "-i", recording, *argv[2:]]


def _script_argv(optional: Sequence[str], *more: str) -> list[str]:
    events = ("--show-mmap-events", "--show-task-events", "--show-lost-events")
    # -G leaves out call chains, which split a sample into several lines.
    fields = ",".join((*FIELDS, *optional))
    return ["perf", "script", "-G", *more, *events, "-F", fields]


def is_perf_data(recording: Path) -> bool:
    """Whether `recording` is binary: a perf.data, or a folder of `perf record --threads`.

    Raises:
      OSError: the recording cannot be read.
      PmuError: it is a folder without a recording.
    """
    if recording.is_dir():
        if not (recording / "data").is_file():
            raise PmuError(
                f"{recording}: is a folder, but not one of perf record --threads; name a perf.data "
                "or the text of perf script"
            )
        return True
    with open_input(recording) as stream:
        return stream.read(8) in _PERF_DATA


def read_recording(
    recording: Path, binary: Path, on_stack: Callable[[str, list[StackBranch]], None] | None = None
) -> Script:
    """Reads the samples of a perf.data, or of its text from perf script.

    Args:
      recording: the file, or the folder of `perf record --threads`.
      binary: the binary that ran.
      on_stack: see `read_script`.

    Raises:
      PmuError: the recording cannot be read, or belongs to another binary.
    """
    origin = str(recording)
    try:
        if not is_perf_data(recording):
            recorded = recorded_in_text(recording, binary)
            return read_script(input_lines(recording), binary, origin, on_stack, recorded)
        _require_whole(recording / "data" if recording.is_dir() else recording)
    except OSError as error:
        raise PmuError(
            f"{recording}: cannot be read: {error.strerror}; name a perf.data or the text of perf "
            "script"
        ) from error
    header = RecordingHeader()
    listed = _lines_of(["perf", "evlist", "-v"], recording)
    header_lines = _lines_of(["perf", "script", "--header-only"], recording)
    for line in itertools.chain(header_lines, listed):
        header.read(line)
    fields = [event.fields for event in header.events.values()]
    optional = [
        name
        for name, flags in (("data_src", {"DATA_SRC"}), ("weight", {"WEIGHT", "WEIGHT_STRUCT"}))
        if (all(flags & found for found in fields) if fields else _prints(recording, name))
    ]
    if not fields or any("BRANCH_STACK" in found for found in fields):
        optional.append("brstack")
    recorded = _recorded(recording, binary)
    printed = _lines_of(_script_argv(optional), recording)
    return read_script(printed, binary, origin, on_stack, recorded, header)


def _prints(recording: Path, name: str) -> bool:
    """Whether perf can print the field `name` of a recording that does not list its events."""
    lines = _lines_of(_script_argv((name,)), recording)
    with contextlib.closing(lines), contextlib.suppress(PmuError):
        next(lines, None)
        return True
    return False


def recorded_in_text(recording: Path, binary: Path) -> RecordedBinary:
    """Finds the binary among the files that a text names.

    Raises:
      OSError: the recording cannot be read.
      PmuError: several files may be the binary, or none is.
    """
    return RecordedBinary(binary, mapped_files(input_lines(recording)), str(recording))


def _recorded(recording: Path, binary: Path) -> RecordedBinary:
    """Finds the binary among the files that a perf.data names. Raises PmuError."""
    listed = _lines_of(["perf", "buildid-list"], recording)
    # A line is "1234... /usr/bin/true", with blanks for a build-id that was not recorded.
    files = [(name.strip(), found) for found, _, name in (line.partition(" ") for line in listed)]
    if not any(Path(name.removesuffix(DELETED)).name == binary.name for name, _ in files):
        # buildid-list leaves out files without samples and unreadable files.
        files += mapped_files(_lines_of(_script_argv(()), recording))
    recorded = RecordedBinary(binary, files, str(recording))
    if recorded.paths and not recorded.proven:
        logging.warning(
            "%s: the build-id of %s was not recorded; make sure that %s is the file that ran",
            recording,
            ", ".join(recorded.paths),
            binary,
        )
    return recorded


def _require_whole(recording: Path) -> None:
    """Checks that the file holds all parts that its header names; perf does not check some.

    Raises:
      OSError: the file cannot be read.
      PmuError: the file is cut off.
    """
    with recording.open("rb") as stream:
        if stream.read(8) in _PERF_DATA[2:]:
            raise PmuError(
                f"{recording}: is of version 1 of perf's format, which only old perfs write; "
                "record it again with a newer one"
            )
        size = stream.seek(0, os.SEEK_END)
        if not _is_whole(stream, size):
            raise PmuError(f"{recording}: is cut off after {size} bytes; record it again")


def _is_whole(stream: BinaryIO, size: int) -> bool:
    stream.seek(0)
    header = stream.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES:
        return False
    order = "<" if header.startswith(_PERF_DATA[0]) else ">"
    (_, own, _, *places) = struct.unpack(f"{order}9Q", header[:72])
    if own != _HEADER_BYTES:
        # The header of a recording that was written to a pipe has no offsets.
        return own != _PIPE_HEADER_BYTES or _is_whole_pipe(stream, order, own)
    samples_end = places[2] + places[3]
    features = int.from_bytes(header[72:]).bit_count()
    if samples_end + 16 * features > size:
        return False
    stream.seek(samples_end)
    found = struct.unpack(f"{order}{2 * features}Q", stream.read(16 * features))
    parts = zip(found[::2], found[1::2], strict=True)
    return all(begin + length <= size for begin, length in parts)


def _is_whole_pipe(stream: BinaryIO, order: str, start: int) -> bool:
    """Whether the last record ends at the end of the file."""
    with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        place = start
        while place + _RECORD.size <= len(data):
            kind, _, size = struct.unpack_from(f"{order}IHH", data, place)
            if size < _RECORD.size:
                return True  # Damaged; perf says so.
            # The data after these records are not part of the record's size.
            if kind in (_TRACING_DATA, _AUXTRACE) and place + 16 <= len(data):
                number = "I" if kind == _TRACING_DATA else "Q"
                (payload,) = struct.unpack_from(f"{order}{number}", data, place + 8)
                size += (payload + 7) // 8 * 8
            place += size
        return place == len(data)


def _lines_of(argv: Sequence[str], recording: Path) -> Generator[str, None, None]:
    """Yields the lines that perf prints about a recording. Raises PmuError: perf failed."""
    tool = version()
    files = recording.iterdir() if recording.is_dir() else [recording]
    size = sum(path.stat().st_size for path in files)
    with (
        tempfile.TemporaryDirectory(prefix="pmu-profile-") as folder,
        tempfile.TemporaryFile("w+", errors="replace") as messages,
        start_command(
            [*_reading(argv, str(recording.absolute())), "--force"],
            cwd=Path(folder),
            env=_environment(folder),
            inherit_env=False,
            memory_mib=(_MEMORY_BYTES + 2 * size) >> 20,
            limits=(f"--cpu={_SECONDS}", f"--fsize={_FILE_BYTES}", "--core=0"),
            stderr=messages,
        ) as command,
    ):
        assert command.process.stdout is not None
        yield from command.process.stdout
        status = command.wait().status
        messages.seek(0)
        said = messages.read(_FILE_BYTES).strip()
        if status:
            how = f"status {status}" if status > 0 else signal_name(-status)
            raise PmuError(
                f"{recording}: {tool} cannot read it (damaged, cut off, or recorded by a newer "
                f"perf?): {shlex.join(argv[:2])} ended with {how}: "
                f"{said[-_SHOWN:]}\n  on the machine that recorded it, make "
                f"text: {script_command()}"
            )


def _environment(folder: str) -> dict[str, str]:
    """An environment without perf's user settings, its binary cache, and debug info servers."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": folder,
        "TMPDIR": folder,
        "PERF_CONFIG": os.devnull,
        "PERF_BUILDID_DIR": folder,
        "LC_ALL": "C.UTF-8",
    }
