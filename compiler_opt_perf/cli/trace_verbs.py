# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs of block traces."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from compiler_opt_perf.cli import options
from compiler_opt_perf.cli.parameters import Argument, Flag
from compiler_opt_perf.cli.profile_verbs import check_run
from compiler_opt_perf.cli.verb import Group, Table

trace = Group("trace", help="Traces of the blocks that a program executes.")

_Trace = Annotated[Path, Argument("NAME.bbtrace")]
_Length = Annotated[int, Flag("blocks in a window", low=1)]


@trace.verb(
    "record",
    example="trace record --binary=zstd/zstd --output=zstd.bbtrace -- -9 "
    "-f -o /dev/null zstd/input",
    json_version=1,
)
def record(
    binary: Annotated[
        Path,
        Flag("program with an address map (clang -fbasic-block-address-map); needs no debug info"),
    ],
    output: Annotated[Path, Flag("the trace, NAME.bbtrace")],
    arguments: options.RunArguments = (),
    run: options.Run = None,
    stdin: options.Stdin = None,
    recording: options.Recording = None,
    timeout: options.Timeout = None,
) -> Table:
    """Run a program in QEMU, or read a recording, and write its executed blocks in order."""
    from compiler_opt_perf.trace.branch_records import import_recording
    from compiler_opt_perf.trace.qemu import record
    from compiler_opt_perf.trace.statistics import Statistics

    check_run(arguments, recording, timeout)
    if recording is not None:
        recorded = import_recording(recording, binary, output)
    else:
        recorded = record(binary, arguments, output, program=run, stdin=stdin, timeout_s=timeout)
    statistics = Statistics.read(recorded)
    return Table(statistics.summary, statistics.summary_document)


@trace.verb(
    "show",
    example="trace show zstd.bbtrace --top=10 --html=trace.html",
    json_version=1,
)
def show(
    path: _Trace,
    top: Annotated[int, options.top("functions")] = 20,
    html: options.Html = None,
    binary: Annotated[Path | None, Flag("the program that must be the traced one")] = None,
) -> Table | None:
    """Show what a block trace holds, its threads and its hot functions."""
    from compiler_opt_perf.trace.statistics import Statistics
    from compiler_opt_perf.trace.trace_file import Trace

    loaded = Trace.load(path)
    if binary:
        loaded.verify_binary(binary)
    statistics = Statistics.read(loaded)
    if html is None:
        return Table(lambda: statistics.text(top), lambda: statistics.document(top))
    # Loads matplotlib.
    from compiler_opt_perf.pages.trace import write_page

    write_page(statistics, html, top)
    print(html)
    return None


@trace.verb(
    "list",
    example="trace list zstd.bbtrace --stream=0 --first=1000 --number=20",
    json_version=1,
)
def list_blocks(
    path: _Trace,
    stream: Annotated[int, Flag("number of the stream (thread)")] = 0,
    first: Annotated[int, Flag("place of the first block to show", low=0)] = 0,
    number: Annotated[int, Flag("how many blocks to show", low=1)] = 20,
) -> Table:
    """List the blocks that a thread executed, in order."""
    from compiler_opt_perf.trace.statistics import format_blocks, list_blocks
    from compiler_opt_perf.trace.trace_file import Trace

    blocks = list_blocks(Trace.load(path), stream, first, number)
    return Table(lambda: format_blocks(blocks), lambda: {"stream": stream, "blocks": blocks})


@trace.verb("merge", example="trace merge first.bbtrace second.bbtrace --output=both.bbtrace")
def merge(
    paths: Annotated[Sequence[Path], Argument("NAME.bbtrace...")],
    output: Annotated[Path, Flag("the trace of all runs together, NAME.bbtrace")],
) -> None:
    """Put the block traces of several runs of one binary into one."""
    from compiler_opt_perf.trace.edit import merge
    from compiler_opt_perf.trace.trace_file import Trace

    merged = merge([Trace.load(path) for path in paths], output)
    print(f"{merged.path}: {len(merged.streams)} streams, {merged.total:,} blocks")


@trace.verb(
    "cut",
    example="trace cut zstd.bbtrace --output=part.bbtrace --stream=0 --first=1000000 "
    "--number=500000",
)
def cut(
    path: _Trace,
    output: Annotated[Path, Flag("the part, NAME.bbtrace")],
    stream: Annotated[Sequence[int], Flag("keep this stream only")] = (),
    first: Annotated[int, Flag("leave out so many blocks at each stream's beginning", low=0)] = 0,
    number: Annotated[int | None, Flag("keep so many blocks of each stream then", low=1)] = None,
) -> None:
    """Keep a part of a block trace: some threads, or a stretch of each."""
    from compiler_opt_perf.trace.edit import cut
    from compiler_opt_perf.trace.trace_file import Trace

    result = cut(Trace.load(path), output, streams=stream or None, first=first, number=number)
    print(f"{result.path}: {len(result.streams)} streams, {result.total:,} blocks")


@trace.verb("windows", example="trace windows zstd.bbtrace --length=4 --output=zstd.bbwindows")
def windows(
    path: _Trace,
    output: Annotated[Path, Flag("the histogram, NAME.bbwindows")],
    length: _Length = 4,
) -> None:
    """Count the distinct windows of consecutive blocks in a block trace."""
    from compiler_opt_perf.trace.trace_file import Trace
    from compiler_opt_perf.trace.windows import write_windows

    found = write_windows(Trace.load(path), length, output)
    print(
        f"{output}: {len(found.counts):,} distinct windows of {length} blocks, "
        f"{int(found.counts.sum()):,} in all"
    )


@trace.verb(
    "synthesise",
    example="trace synthesise --binary=candidate --profile=zstd.pmu.json "
    "--output=candidate.bbtrace --blocks=1000000",
    json_version=1,
)
def synthesise(
    binary: Annotated[
        Path,
        Flag(
            "program with branch probabilities in its address map, and debug info (docs/trace.md)"
        ),
    ],
    profile: Annotated[Path, Flag("PMU profile of another build of it")],
    output: Annotated[Path, Flag("the trace, NAME.bbtrace")],
    blocks: Annotated[int, Flag("blocks to draw", low=1)] = 1000000,
    seed: Annotated[int, Flag("of the random choices")] = 1,
) -> Table:
    """Draw a plausible trace of a program that was not traced, from a PMU profile."""
    from compiler_opt_perf.profile.profile import Profile
    from compiler_opt_perf.trace.statistics import Statistics
    from compiler_opt_perf.trace.synthesis import synthesise

    drawn = synthesise(binary, Profile.load(profile), output, blocks=blocks, seed=seed)
    statistics = Statistics.read(drawn)
    return Table(statistics.summary, statistics.summary_document)


@trace.verb("overlap", example="trace overlap real.bbtrace drawn.bbtrace --length=4")
def overlap(
    first: Annotated[Path, Argument("FIRST.bbtrace")],
    second: Annotated[Path, Argument("SECOND.bbtrace")],
    length: _Length = 4,
) -> None:
    """Tell how alike two traces of one binary are, by their windows of blocks."""
    from compiler_opt_perf.trace.trace_file import Trace
    from compiler_opt_perf.trace.windows import Windows, overlap

    counted = [Windows.count(Trace.load(path), length) for path in (first, second)]
    print(f"{overlap(*counted):.1%} of the windows of {length} blocks are common")
