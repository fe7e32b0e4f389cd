# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs of block traces."""

from collections.abc import Sequence
from pathlib import Path

import click

from compiler_opt_perf.cli import options
from compiler_opt_perf.cli.profile_verbs import check_run
from compiler_opt_perf.cli.verb import Group, Table

trace = Group("trace", help="Traces of the blocks that a program executes.")

_TRACE = options.path_argument("path", "NAME.bbtrace")
_LENGTH = options.flag("--length", type=click.IntRange(1), default=4, help="blocks in a window")


@trace.command(
    "record",
    example="trace record --binary=build/demo/zstd/zstd --output=build/demo/zstd.bbtrace"
    " -- -9 -f -o /dev/null build/demo/zstd/input",
    json_version=1,
)
@options.run_arguments
@options.path_flag(
    "--binary",
    "program with an address map (clang -fbasic-block-address-map); needs no debug info",
    required=True,
)
@options.output("the trace, NAME.bbtrace")
@options.run_flags
def record(
    arguments: Sequence[str],
    binary: Path,
    output: Path,
    run: Path | None,
    stdin: Path | None,
    recording: Path | None,
    timeout: float | None,
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
    statistics = Statistics.of(recorded)
    return Table(statistics.summary, statistics.summary_document)


@trace.command(
    "show",
    example="trace show build/demo/zstd.bbtrace --top=10 --html=build/demo/trace.html",
    json_version=1,
)
@_TRACE
@options.top("functions")
@options.html
@options.path_flag("--binary", "the program that must be the traced one")
def show(path: Path, top: int, html: Path | None, binary: Path | None) -> Table | None:
    """Show what a block trace holds, its threads and its hot functions."""
    from compiler_opt_perf.trace.statistics import Statistics
    from compiler_opt_perf.trace.trace_file import Trace

    loaded = Trace.load(path)
    if binary:
        loaded.verify_binary(binary)
    statistics = Statistics.of(loaded)
    if html is None:
        return Table(lambda: statistics.text(top), lambda: statistics.document(top))
    # Loads matplotlib.
    from compiler_opt_perf.pages.trace import write_page

    write_page(statistics, html, top)
    print(html)
    return None


@trace.command(
    "list",
    example="trace list build/demo/zstd.bbtrace --stream=0 --first=1000 --number=20",
    json_version=1,
)
@_TRACE
@options.flag("--stream", default=0, help="number of the stream (thread)")
@options.flag("--first", type=click.IntRange(0), default=0, help="place of the first block to show")
@options.flag("--number", type=click.IntRange(1), default=20, help="how many blocks to show")
def list_blocks(path: Path, stream: int, first: int, number: int) -> Table:
    """List the blocks that a thread executed, in order."""
    from compiler_opt_perf.trace.statistics import listed, listing
    from compiler_opt_perf.trace.trace_file import Trace

    blocks = listed(Trace.load(path), stream, first, number)
    return Table(lambda: listing(blocks), lambda: {"stream": stream, "blocks": blocks})


@trace.command("merge", example="trace merge first.bbtrace second.bbtrace --output=both.bbtrace")
@options.path_argument("paths", "NAME.bbtrace...")
@options.output("the trace of all runs together, NAME.bbtrace")
def merge(paths: Sequence[Path], output: Path) -> None:
    """Put the block traces of several runs of one binary into one."""
    from compiler_opt_perf.trace.edit import merge
    from compiler_opt_perf.trace.trace_file import Trace

    merged = merge([Trace.load(path) for path in paths], output)
    print(f"{merged.path}: {len(merged.streams)} streams, {merged.total:,} blocks")


@trace.command(
    "cut",
    example="trace cut zstd.bbtrace --output=part.bbtrace --stream=0 --first=1000000"
    " --number=500000",
)
@_TRACE
@options.output("the part, NAME.bbtrace")
@options.flag("--stream", type=int, multiple=True, help="keep this stream only")
@options.flag(
    "--first",
    type=click.IntRange(0),
    default=0,
    help="leave out so many blocks at each stream's beginning",
)
@options.flag("--number", type=click.IntRange(1), help="keep so many blocks of each stream then")
def cut(path: Path, output: Path, stream: Sequence[int], first: int, number: int | None) -> None:
    """Keep a part of a block trace: some threads, or a stretch of each."""
    from compiler_opt_perf.trace.edit import cut
    from compiler_opt_perf.trace.trace_file import Trace

    result = cut(Trace.load(path), output, streams=stream or None, first=first, number=number)
    print(f"{result.path}: {len(result.streams)} streams, {result.total:,} blocks")


@trace.command("windows", example="trace windows zstd.bbtrace --length=4 --output=zstd.bbwindows")
@_TRACE
@options.output("the histogram, NAME.bbwindows")
@_LENGTH
def windows(path: Path, output: Path, length: int) -> None:
    """Count the distinct windows of consecutive blocks in a block trace."""
    from compiler_opt_perf.trace.trace_file import Trace
    from compiler_opt_perf.trace.windows import write_windows

    found = write_windows(Trace.load(path), length, output)
    print(
        f"{output}: {len(found.counts):,} distinct windows of {length} blocks, "
        f"{int(found.counts.sum()):,} in all"
    )


@trace.command(
    "synthesise",
    example="trace synthesise --binary=candidate --profile=build/demo/zstd.pmu.json"
    " --output=candidate.bbtrace --blocks=1000000",
    json_version=1,
)
@options.path_flag(
    "--binary",
    "program with branch probabilities in its address map, and debug info (docs/trace.md)",
    required=True,
)
@options.path_flag("--profile", "PMU profile of another build of it", required=True)
@options.output("the trace, NAME.bbtrace")
@options.flag("--blocks", type=click.IntRange(1), default=1_000_000, help="blocks to draw")
@options.seed("of the random choices")
def synthesise(binary: Path, profile: Path, output: Path, blocks: int, seed: int) -> Table:
    """Draw a plausible trace of a program that was not traced, from a PMU profile."""
    from compiler_opt_perf.profile.profile import Profile
    from compiler_opt_perf.trace.statistics import Statistics
    from compiler_opt_perf.trace.synthesis import synthesise

    drawn = synthesise(binary, Profile.load(profile), output, blocks=blocks, seed=seed)
    statistics = Statistics.of(drawn)
    return Table(statistics.summary, statistics.summary_document)


@trace.command("overlap", example="trace overlap real.bbtrace drawn.bbtrace --length=4")
@options.path_argument("first", "FIRST.bbtrace")
@options.path_argument("second", "SECOND.bbtrace")
@_LENGTH
def overlap(first: Path, second: Path, length: int) -> None:
    """Tell how alike two traces of one binary are, by their windows of blocks."""
    from compiler_opt_perf.trace.synthesis import overlap
    from compiler_opt_perf.trace.trace_file import Trace
    from compiler_opt_perf.trace.windows import Windows

    counted = [Windows.count(Trace.load(path), length) for path in (first, second)]
    print(f"{overlap(*counted):.1%} of the windows of {length} blocks are common")
