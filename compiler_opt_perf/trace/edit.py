# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Merges traces of several runs, and cuts parts out of a trace."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from compiler_opt_perf.run.progress import Progress
from compiler_opt_perf.trace.errors import TraceError
from compiler_opt_perf.trace.native import Numbers
from compiler_opt_perf.trace.trace_file import Trace
from compiler_opt_perf.trace.trace_writer import new_trace, require_suffix, write_blocks


def merge(traces: Sequence[Trace], output: Path) -> Trace:
    """Writes the streams of several runs of one binary to one trace, in the order given.

    Raises:
      TraceError: the builds differ, a trace is damaged, or the output's name is wrong.
      FileWriteError: the disk is full, or the folder cannot be written.
    """
    require_suffix(output)
    first = traces[0]
    for trace in traces[1:]:
        if trace.description.build_id != first.description.build_id:
            raise TraceError(
                f"{trace.path}: a trace of {trace.description.program} with build-id "
                f"{trace.description.build_id}, but {first.path} has build-id "
                f"{first.description.build_id}; traces of different builds cannot be merged"
            )
    fragments = any(trace.description.fragments for trace in traces)
    description = dataclasses.replace(first.description, fragments=fragments)
    total = sum(trace.total for trace in traces)
    streams = [(trace, stream) for trace in traces for stream in trace.streams.values()]
    with (
        new_trace(output, description, first.table) as out,
        Progress("blocks merged", total) as progress,
    ):
        for number, (trace, stream) in enumerate(streams):
            write_blocks(
                out,
                _counted(trace.pieces(stream), progress),
                number=number,
                ends=stream.ended,
                pid=stream.pid,
                tid=stream.tid,
            )
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
      trace: the trace to cut.
      output: NAME.bbtrace.
      streams: numbers of the streams to keep; all when None. The numbers stay.
      first: number of blocks to skip at the beginning of each stream.
      number: number of blocks to keep after these in each stream; all when None.

    Raises:
      TraceError: a stream is missing, nothing is left, the trace is damaged, or the output's name
        is wrong.
      FileWriteError: the disk is full, or the folder cannot be written.
    """
    require_suffix(output)
    chosen = list(trace.streams) if streams is None else sorted(set(streams))
    kept_streams = [trace.stream(index) for index in chosen]
    kept = 0
    with new_trace(output, trace.description, trace.table) as out:
        for stream in kept_streams:
            end = len(stream) if number is None else min(len(stream), first + number)
            kept += write_blocks(
                out,
                trace.part(stream, first, end),
                number=stream.number,
                ends=stream.ended or end < len(stream),
                pid=stream.pid,
                tid=stream.tid,
            )
        if not kept:
            raise TraceError(
                f"{trace.path}: nothing is left; its longest stream has "
                f"{max(map(len, trace.streams.values()), default=0)} blocks"
            )
    return Trace.load(output, quiet=True)


def _counted(pieces: Iterator[Numbers], progress: Progress) -> Iterator[Numbers]:
    for numbers in pieces:
        progress.advance(len(numbers))
        yield numbers
