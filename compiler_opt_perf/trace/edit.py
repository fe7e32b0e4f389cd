# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes traces of traces: several runs in one, or a part of a run."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from compiler_opt_perf.run.files import atomic_write
from compiler_opt_perf.run.progress import Progress
from compiler_opt_perf.trace.errors import TraceError
from compiler_opt_perf.trace.native import Numbers
from compiler_opt_perf.trace.trace_file import (
    SUFFIX,
    Stream,
    Trace,
    write_blocks,
    write_end,
    write_start,
)


def merge(traces: Sequence[Trace], output: Path) -> Trace:
    """Writes the streams of several runs of one binary to one trace, in the order given.

    Raises:
      TraceError: they are of different builds, one is damaged, or the output's name is wrong.
      FileWriteError: the disk is full, or the folder cannot be written.
    """
    _require_suffix(output)
    first = traces[0]
    for trace in traces[1:]:
        if trace.description.build_id != first.description.build_id:
            raise TraceError(
                f"{trace.path}: of {trace.description.program} with build-id "
                f"{trace.description.build_id}, but {first.path} is of "
                f"{first.description.build_id}; traces of different builds cannot be merged"
            )
    fragments = any(trace.description.fragments for trace in traces)
    description = dataclasses.replace(first.description, fragments=fragments)
    total = sum(trace.total for trace in traces)
    with atomic_write(output) as temporary, Progress("blocks merged", total) as progress:
        with temporary.open("wb") as out:
            write_start(out, description, first.table)
            number = 0
            for trace in traces:
                for stream in trace.streams.values():
                    write_blocks(
                        out,
                        _counted(trace.pieces(stream), progress),
                        number=number,
                        ends=stream.ended,
                        pid=stream.pid,
                        tid=stream.tid,
                    )
                    number += 1
        write_end(temporary)
    return Trace.load(output, quiet=True)


def cut(
    trace: Trace,
    output: Path,
    *,
    streams: Sequence[int] | None = None,
    first: int = 0,
    number: int | None = None,
) -> Trace:
    """Writes a part of a trace.

    Args:
      streams: numbers of the streams to keep; all when None. They keep their numbers.
      first: how many blocks at the beginning of each stream to leave out.
      number: how many blocks of each stream to keep then; all when None.

    Raises:
      TraceError: there is no such stream, nothing is left, the trace is damaged, or the output's
        name is wrong.
      FileWriteError: the disk is full, or the folder cannot be written.
    """
    _require_suffix(output)
    chosen = list(trace.streams) if streams is None else sorted(set(streams))
    missing = [stream for stream in chosen if stream not in trace.streams]
    if missing:
        raise TraceError(
            f"{trace.path}: has no stream {missing[0]}; there are "
            f"{', '.join(map(str, trace.streams))}"
        )
    kept = 0
    with atomic_write(output) as temporary:
        with temporary.open("wb") as out:
            write_start(out, trace.description, trace.table)
            for index in chosen:
                stream = trace.streams[index]
                end = len(stream) if number is None else min(len(stream), first + number)
                kept += write_blocks(
                    out,
                    part(trace, stream, first, end),
                    number=index,
                    ends=stream.ended or end < len(stream),
                    pid=stream.pid,
                    tid=stream.tid,
                )
        if not kept:
            raise TraceError(
                f"{trace.path}: nothing is left; its longest stream has "
                f"{max(map(len, trace.streams.values()), default=0)} blocks"
            )
        write_end(temporary)
    return Trace.load(output, quiet=True)


def part(trace: Trace, stream: Stream, first: int, end: int) -> Iterator[Numbers]:
    """The numbers of a stream from `first` up to but not including `end`; reads no others."""
    place = 0
    for record in stream.records:
        begins, place = place, place + record.count
        if place > first and begins < end:
            yield trace.numbers(record)[max(0, first - begins) : end - begins]


def _counted(pieces: Iterator[Numbers], progress: Progress) -> Iterator[Numbers]:
    for numbers in pieces:
        progress.advance(len(numbers))
        yield numbers


def _require_suffix(output: Path) -> None:
    if output.suffix != SUFFIX:
        raise TraceError(f"{output}: the name of a block trace must end with {SUFFIX}")
