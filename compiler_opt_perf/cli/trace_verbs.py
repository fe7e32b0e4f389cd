# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs of block traces."""

from pathlib import Path
from typing import Any

from absl import flags

from compiler_opt_perf.cli.options import define_path, html_path
from compiler_opt_perf.cli.verb import Table, UsageError, Verb


def _trace_argument(arguments: list[str]) -> Path:
    if len(arguments) != 1:
        raise UsageError("expected one trace, NAME.bbtrace")
    return Path(arguments[0])


# cop trace show


def _define_show(values: flags.FlagValues) -> None:
    flags.DEFINE_integer("top", 20, "how many functions to show", 1, flag_values=values)
    define_path(values, "html", "write a page with plots to this file instead", required=False)
    define_path(values, "binary", "the program that must be the traced one", required=False)


def _show(values: Any, arguments: list[str]) -> Table | None:
    from compiler_opt_perf.trace.statistics import Statistics
    from compiler_opt_perf.trace.trace_file import Trace

    html = html_path(values)
    trace = Trace.load(_trace_argument(arguments))
    if values.binary:
        trace.verify_binary(Path(values.binary))
    statistics = Statistics.read(trace)
    if html is None:
        return Table(lambda: statistics.text(values.top), lambda: statistics.document(values.top))
    # Loads matplotlib.
    from compiler_opt_perf.pages.trace import write_page

    write_page(statistics, html, values.top)
    print(html)
    return None


# cop trace list


def _define_list(values: flags.FlagValues) -> None:
    flags.DEFINE_integer("stream", 0, "number of the stream (thread)", flag_values=values)
    flags.DEFINE_integer("first", 0, "place of the first block to show", 0, flag_values=values)
    flags.DEFINE_integer("number", 20, "how many blocks to show", 1, flag_values=values)


def _list(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.trace.statistics import format_blocks, list_blocks
    from compiler_opt_perf.trace.trace_file import Trace

    trace = Trace.load(_trace_argument(arguments))
    blocks = list_blocks(trace, values.stream, values.first, values.number)
    return Table(lambda: format_blocks(blocks), lambda: {"stream": values.stream, "blocks": blocks})


# cop trace merge


def _define_merge(values: flags.FlagValues) -> None:
    define_path(values, "output", "the trace of all runs together, NAME.bbtrace")


def _merge(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.trace.edit import merge
    from compiler_opt_perf.trace.trace_file import Trace

    if not arguments:
        raise UsageError("expected traces, as `cop collect --trace` writes them")
    merged = merge([Trace.load(Path(path)) for path in arguments], Path(values.output))
    print(f"{merged.path}: {len(merged.streams)} streams, {merged.total:,} blocks")


# cop trace cut


def _define_cut(values: flags.FlagValues) -> None:
    define_path(values, "output", "the part, NAME.bbtrace")
    flags.DEFINE_multi_integer("stream", None, "keep this stream only", flag_values=values)
    flags.DEFINE_integer(
        "first", 0, "leave out so many blocks at each stream's beginning", 0, flag_values=values
    )
    flags.DEFINE_integer(
        "number", None, "keep so many blocks of each stream then", 1, flag_values=values
    )


def _cut(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.trace.edit import cut
    from compiler_opt_perf.trace.trace_file import Trace

    result = cut(
        Trace.load(_trace_argument(arguments)),
        Path(values.output),
        streams=values.stream,
        first=values.first,
        number=values.number,
    )
    print(f"{result.path}: {len(result.streams)} streams, {result.total:,} blocks")


# cop trace windows


def _define_windows(values: flags.FlagValues) -> None:
    define_path(values, "output", "the histogram, NAME.bbwindows")
    flags.DEFINE_integer("length", 4, "blocks in a window", 1, flag_values=values)


def _windows(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.trace.trace_file import Trace
    from compiler_opt_perf.trace.windows import write_windows

    output = Path(values.output)
    found = write_windows(Trace.load(_trace_argument(arguments)), values.length, output)
    print(
        f"{output}: {len(found.counts):,} distinct windows of {values.length} blocks, "
        f"{int(found.counts.sum()):,} in all"
    )


# cop trace synthesise, cop trace overlap


def _define_synthesise(values: flags.FlagValues) -> None:
    define_path(
        values,
        "binary",
        "program with branch probabilities in its address map, and debug info (docs/trace.md)",
    )
    define_path(values, "profile", "PMU profile of another build of it")
    define_path(values, "output", "the trace, NAME.bbtrace")
    flags.DEFINE_integer("blocks", 1_000_000, "how long", 1, flag_values=values)
    flags.DEFINE_integer("seed", 1, "of the random choices", flag_values=values)


def _synthesise(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.profile.profile import Profile
    from compiler_opt_perf.trace.statistics import Statistics
    from compiler_opt_perf.trace.synthesis import synthesise

    trace = synthesise(
        Path(values.binary),
        Profile.load(Path(values.profile)),
        Path(values.output),
        blocks=values.blocks,
        seed=values.seed,
    )
    statistics = Statistics.read(trace)
    return Table(statistics.summary, statistics.summary_document)


def _define_overlap(values: flags.FlagValues) -> None:
    flags.DEFINE_integer("length", 4, "blocks in a window", 1, flag_values=values)


def _overlap(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.trace.trace_file import Trace
    from compiler_opt_perf.trace.windows import Windows, overlap

    if len(arguments) != 2:
        raise UsageError("expected two traces of one binary")
    windows = [Windows.count(Trace.load(Path(path)), values.length) for path in arguments]
    print(f"{overlap(*windows):.1%} of the windows of {values.length} blocks are common")


VERBS: tuple[Verb, ...] = (
    Verb(
        "trace show",
        "Show what a block trace holds, its threads and its hot functions.",
        "trace show build/demo/zstd.bbtrace --top=10 --html=build/demo/trace.html",
        _define_show,
        _show,
        arguments="NAME.bbtrace",
        json_version=1,
    ),
    Verb(
        "trace list",
        "List the blocks that a thread executed, in order.",
        "trace list build/demo/zstd.bbtrace --stream=0 --first=1000 --number=20",
        _define_list,
        _list,
        arguments="NAME.bbtrace",
        json_version=1,
    ),
    Verb(
        "trace merge",
        "Put the block traces of several runs of one binary into one.",
        "trace merge first.bbtrace second.bbtrace --output=both.bbtrace",
        _define_merge,
        _merge,
        arguments="NAME.bbtrace...",
    ),
    Verb(
        "trace cut",
        "Keep a part of a block trace: some threads, or a stretch of each.",
        "trace cut zstd.bbtrace --output=part.bbtrace --stream=0 --first=1000000 --number=500000",
        _define_cut,
        _cut,
        arguments="NAME.bbtrace",
    ),
    Verb(
        "trace windows",
        "Count the distinct windows of consecutive blocks in a block trace.",
        "trace windows zstd.bbtrace --length=4 --output=zstd.bbwindows",
        _define_windows,
        _windows,
        arguments="NAME.bbtrace",
    ),
    Verb(
        "trace synthesise",
        "Draw a plausible trace of a program that was not traced, from a PMU profile.",
        "trace synthesise --binary=candidate --profile=build/demo/zstd.pmu.json"
        " --output=candidate.bbtrace --blocks=1000000",
        _define_synthesise,
        _synthesise,
        json_version=1,
    ),
    Verb(
        "trace overlap",
        "Tell how alike two traces of one binary are, by their windows of blocks.",
        "trace overlap real.bbtrace drawn.bbtrace --length=4",
        _define_overlap,
        _overlap,
        arguments="FIRST.bbtrace SECOND.bbtrace",
    ),
)
