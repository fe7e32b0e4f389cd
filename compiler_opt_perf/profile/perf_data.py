# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads recordings of perf: a perf.data, or the text that perf script made of one.

A perf.data is read by perf itself. It is untrusted input, and perf trusts it: a damaged one can
write over perf's own stack. So perf runs with limits of memory, processor time and file size, in an
empty folder of its own, without the user's settings and without the network. It is not kept from
the user's files.
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
from compiler_opt_perf.profile.perf_events import Facts
from compiler_opt_perf.profile.perf_mappings import DELETED, Recorded, mapped_files
from compiler_opt_perf.profile.perf_record import version
from compiler_opt_perf.profile.perf_script import FIELDS, Hop, Script, read_script
from compiler_opt_perf.run.command import signal_name, start_command
from compiler_opt_perf.run.files import input_lines, open_input

# How a perf.data begins, of either byte order; the last two are of version 1.
_PERF_DATA = (b"PERFILE2", b"2ELIFREP", b"PERFFILE", b"ELIFFREP")
# Of a file with a header of this size (tools/perf/Documentation/perf.data-file-format.txt in
# Linux): magic, sizes of header and attribute; offset and size of attributes, samples and event
# types; a bit for each feature, whose offsets and sizes follow the samples.
_HEADER_BYTES = 104
_PIPE_HEADER_BYTES = 16
# A record's type, flags and size; types of those that data follow (tools/lib/perf in Linux).
_RECORD = struct.Struct("IHH")
_TRACING_DATA, _AUXTRACE = 66, 71
# Limits of a perf that reads a recording: memory besides the recording, which it maps as a whole;
# processor time; what it may write, which is messages alone.
_MEMORY_BYTES = 8 << 30
_SECONDS = 3600
_FILE_BYTES = 16 << 20
_SHOWN = 500


def script_command(recording: str = "perf.data", optional: Sequence[str] = ()) -> str:
    """The command that turns a recording into the text that `read_recording` reads."""
    return shlex.join(_reading(_script_argv(optional, "--header"), recording))


def _reading(argv: Sequence[str], recording: str) -> list[str]:
    return [*argv[:2], "-i", recording, *argv[2:]]


def _script_argv(optional: Sequence[str], *more: str) -> list[str]:
    events = ("--show-mmap-events", "--show-task-events", "--show-lost-events")
    # Without call chains (-G), which make several lines of a sample.
    fields = ",".join((*FIELDS, *optional))
    return ["perf", "script", "-G", *more, *events, "-F", fields]


def is_perf_data(recording: Path) -> bool:
    """Whether it is perf's binary format: a file, or a folder of `perf record --threads`.

    Raises:
      OSError: it cannot be read.
      PmuError: it is a folder without a recording.
    """
    if recording.is_dir():
        if not (recording / "data").is_file():
            raise PmuError(
                f"{recording}: is a folder, and none that perf record --threads writes; name a "
                "perf.data or the text of perf script"
            )
        return True
    with open_input(recording) as stream:
        return stream.read(8) in _PERF_DATA


def read_recording(
    recording: Path, binary: Path, on_stack: Callable[[str, list[Hop]], None] | None = None
) -> Script:
    """The samples of a perf.data, or of a text that perf script made of one.

    Args:
      on_stack: as of `read_script`.

    Raises:
      PmuError: the recording cannot be read, or is not of this binary.
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
    facts = Facts()
    listed = _lines_of(["perf", "evlist", "-v"], recording)
    header = _lines_of(["perf", "script", "--header-only"], recording)
    for line in itertools.chain(header, listed):
        facts.read(line)
    fields = [event.fields for event in facts.events.values()]
    optional = [
        name
        for name, flags in (("data_src", {"DATA_SRC"}), ("weight", {"WEIGHT", "WEIGHT_STRUCT"}))
        if (all(flags & found for found in fields) if fields else _prints(recording, name))
    ]
    if not fields or any("BRANCH_STACK" in found for found in fields):
        optional.append("brstack")
    recorded = _recorded(recording, binary)
    printed = _lines_of(_script_argv(optional), recording)
    return read_script(printed, binary, origin, on_stack, recorded, facts)


def _prints(recording: Path, name: str) -> bool:
    """Whether perf can print that field of a recording that does not list its events."""
    lines = _lines_of(_script_argv((name,)), recording)
    with contextlib.closing(lines), contextlib.suppress(PmuError):
        next(lines, None)
        return True
    return False


def recorded_in_text(recording: Path, binary: Path) -> Recorded:
    """Which of the files that a text names is the binary.

    Raises:
      OSError: it cannot be read.
      PmuError: it may be several.
    """
    return Recorded(binary, mapped_files(input_lines(recording)), str(recording))


def _recorded(recording: Path, binary: Path) -> Recorded:
    """Which of the files of a perf.data is the binary. Raises PmuError."""
    listed = _lines_of(["perf", "buildid-list"], recording)
    # "1234... /usr/bin/true"; blanks in the place of an id that was not recorded.
    files = [(name.strip(), found) for found, _, name in (line.partition(" ") for line in listed)]
    if not any(Path(name.removesuffix(DELETED)).name == binary.name for name, _ in files):
        # It lists those that it has samples of and could read.
        files += mapped_files(_lines_of(_script_argv(()), recording))
    recorded = Recorded(binary, files, str(recording))
    if recorded.paths and not recorded.proven:
        logging.warning(
            "%s: the build-id of %s was not recorded; make sure that it was %s that ran",
            recording,
            ", ".join(recorded.paths),
            binary,
        )
    return recorded


def _require_whole(recording: Path) -> None:
    """Checks that no part which the header names is cut off; perf reads on without some of them.

    Raises OSError; of a part that is missing, PmuError.
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
        # Written to a pipe: it names no places.
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
    """Whether the last record ends where the file does."""
    with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        place = start
        while place + _RECORD.size <= len(data):
            kind, _, size = struct.unpack_from(f"{order}IHH", data, place)
            if size < _RECORD.size:
                return True  # Damaged; perf says so.
            # What follows these is as long as they say, and not part of them.
            if kind in (_TRACING_DATA, _AUXTRACE) and place + 16 <= len(data):
                number = "I" if kind == _TRACING_DATA else "Q"
                (payload,) = struct.unpack_from(f"{order}{number}", data, place + 8)
                size += (payload + 7) // 8 * 8
            place += size
        return place == len(data)


def _lines_of(argv: Sequence[str], recording: Path) -> Generator[str, None, None]:
    """The lines that perf prints of a recording. Raises PmuError: it failed."""
    tool = version()
    files = recording.iterdir() if recording.is_dir() else [recording]
    size = sum(path.stat().st_size for path in files)
    with (
        tempfile.TemporaryDirectory(prefix="pmu-profile-") as folder,
        tempfile.TemporaryFile("w+", errors="replace") as messages,
        start_command(
            [*_reading(argv, str(recording.absolute())), "--force"],
            # A folder of its own.
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
    """Without the user's settings of perf, its cache of binaries and the servers of debug info."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": folder,
        "TMPDIR": folder,
        "PERF_CONFIG": os.devnull,
        "PERF_BUILDID_DIR": folder,
        "LC_ALL": "C.UTF-8",
    }
