# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs of studies: each runs one of `compiler_opt_perf.studies` and prints its tables."""

from pathlib import Path
from typing import Any

from absl import flags

from compiler_opt_perf.cli.options import (
    cpu_of,
    define_cpu,
    define_path,
    define_processor,
    define_some,
    define_toolchain,
)
from compiler_opt_perf.cli.verb import Table, Verb
from compiler_opt_perf.toolchain.layout import BUILD, set_folder


def _define_output(values: flags.FlagValues, name: str) -> None:
    flags.DEFINE_string("output", str(BUILD / name), "folder for results", flag_values=values)


def _define_set(values: flags.FlagValues, help: str) -> None:
    flags.DEFINE_string("set", "mock", help, flag_values=values)


# cop study collect


def _define_collect(values: flags.FlagValues) -> None:
    from compiler_opt_perf.studies.collect import PROGRAMS

    _define_output(values, "bench-collect")
    define_some(values, "only", PROGRAMS, "programs to measure")
    flags.DEFINE_bool(
        "collect",
        True,
        "collect anew; with --nocollect, show what the folder holds",
        flag_values=values,
    )


def _collect(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.studies.collect import study

    print(study(values.only if values.collect else (), Path(values.output)))


# cop study hits


def _define_hits(values: flags.FlagValues) -> None:
    from compiler_opt_perf.studies.hits import PROGRAMS

    _define_output(values, "bench-hits")
    # A part of the compiler takes long and tells little more.
    default = [name for name in PROGRAMS if name != "clang"]
    define_some(values, "only", PROGRAMS, "programs to measure", default)
    _define_set(values, "model set of the compiler to use")
    flags.DEFINE_bool(
        "measure",
        True,
        "compile and look up anew; with --nomeasure, show what the folder holds",
        flag_values=values,
    )


def _hits(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.studies.hits import study
    from compiler_opt_perf.toolchain.installation import Toolchain

    tools = Toolchain.load(set_folder(values.set))
    print(study(values.only if values.measure else (), Path(values.output), tools))


# cop study inline-speed


def _define_inline_speed(values: flags.FlagValues) -> None:
    from compiler_opt_perf.studies.inline_builds import WAYS
    from compiler_opt_perf.studies.inline_speed import PROGRAMS

    _define_output(values, "bench-inline-speed")
    define_some(values, "only", PROGRAMS, "programs to study")
    define_some(values, "ways", tuple(WAYS), "of compiling them; the default is always among them")
    flags.DEFINE_bool("judge", True, "count with inputs that were not profiled", flag_values=values)
    help = "simulate caches and a branch predictor in the profiled run, too"
    flags.DEFINE_bool("cycles", False, help, flag_values=values)
    flags.DEFINE_integer(
        "rounds", 0, "timed runs of each way, on an otherwise idle machine", 0, flag_values=values
    )
    help = "folder to publish the shipped rule to, as a policy with these results"
    flags.DEFINE_string("publish", None, help, flag_values=values)
    define_processor(values)
    define_toolchain(values, "toolchain", "mock")


def _inline_speed(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.policy.shipped_rules import publish_rule
    from compiler_opt_perf.studies.inline_speed import changes, study, tables
    from compiler_opt_perf.toolchain.installation import Toolchain

    results = study(
        values.only,
        Path(values.output),
        Toolchain.load(Path(values.toolchain)),
        ways=values.ways,
        judge=values.judge,
        cycles=values.cycles,
        rounds=values.rounds,
        processor=values.processor,
    )
    if values.publish:
        publish_rule("inline-size", Path(values.publish), {"programs": changes(results)})
    return Table(lambda: tables(results), lambda: {"results": results})


# cop study policies


def _define_policies(values: flags.FlagValues) -> None:
    from compiler_opt_perf.studies.policies import PROGRAMS, WAYS
    from compiler_opt_perf.studies.rounds import ROUNDS
    from compiler_opt_perf.studies.variant_builds import LAYOUTS

    _define_output(values, "bench-inline-speed")
    define_some(values, "only", PROGRAMS, "programs to study")
    define_some(values, "ways", WAYS, "of compiling them; the default is always among them")
    flags.DEFINE_integer("rounds", ROUNDS, "timed runs of each way", 4, flag_values=values)
    flags.DEFINE_integer("layouts", LAYOUTS, "that take turns in them", 3, flag_values=values)
    define_processor(values)
    define_toolchain(values, "toolchain", "mock")


def _policies(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.studies.policies import study, tables
    from compiler_opt_perf.toolchain.installation import Toolchain

    results = study(
        values.only,
        Path(values.output),
        Toolchain.load(Path(values.toolchain)),
        ways=values.ways,
        rounds=values.rounds,
        layouts=values.layouts,
        processor=values.processor,
    )
    return Table(lambda: tables(results), lambda: {"results": results})


# cop study throughput


def _define_throughput(values: flags.FlagValues) -> None:
    flags.DEFINE_string(
        "corpora",
        str(BUILD / "train-inline" / "corpora"),
        "folder of corpora for inline-size, as `make train-inline` leaves it",
        flag_values=values,
    )
    flags.DEFINE_string("model", "models/inline-size", "folder of a policy", flag_values=values)
    define_toolchain(values, "toolchain", "mock")
    flags.DEFINE_integer("modules", 40, "at random", 1, flag_values=values)
    flags.DEFINE_integer("rounds", 3, "of all ways in turn; medians count", 1, flag_values=values)


def _throughput(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.studies.throughput import study
    from compiler_opt_perf.toolchain.installation import Toolchain

    toolchain = Toolchain.load(Path(values.toolchain))
    counts = {name: values[name].value for name in ("modules", "rounds")}
    print(study(Path(values.corpora), Path(values.model), toolchain, **counts))


# cop study rank


def _define_rank(values: flags.FlagValues) -> None:
    from compiler_opt_perf.studies.rank import PROGRAMS, STEPS
    from compiler_opt_perf.studies.rounds import ROUNDS
    from compiler_opt_perf.studies.variant_builds import LAYOUTS

    _define_output(values, "bench-rank")
    define_some(values, "only", PROGRAMS, "programs to study")
    steps = "; ".join(f"{name}: {what}" for name, what in STEPS.items())
    define_some(values, "steps", tuple(STEPS), f"what to do ({steps})")
    flags.DEFINE_integer(
        "rounds", ROUNDS, f"runs of each variant, {LAYOUTS} layouts in turn", 4, flag_values=values
    )
    define_processor(values)
    define_cpu(values, "measured if not given")
    help = "folder of a learned cost model to compare, too, as models/cost-znver3; once for each"
    flags.DEFINE_multi_string("model", [], help, flag_values=values)
    define_toolchain(values, "toolchain", "mock")


def _rank(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.studies.rank import study
    from compiler_opt_perf.toolchain.installation import Toolchain

    report = study(
        values.only,
        Path(values.output),
        Toolchain.load(Path(values.toolchain)),
        steps=values.steps,
        rounds=values.rounds,
        processor=values.processor,
        cpu=cpu_of(values),
        models=[Path(folder) for folder in values.model],
    )
    if report:
        print(report)


# cop study cycles


def _define_cycles(values: flags.FlagValues) -> None:
    from compiler_opt_perf.studies.cycles import PROGRAMS, ROUNDS

    _define_output(values, "bench-cycles")
    define_some(values, "only", PROGRAMS, "programs to measure")
    flags.DEFINE_string(
        "cpu", "host", "host, a CPU that there is a file of, or a CPU file", flag_values=values
    )
    define_toolchain(values, "toolchain", "mock")
    define_path(values, "model", "folder of a learned cost model")
    flags.DEFINE_integer("rounds", ROUNDS, "how often each program runs", 1, flag_values=values)
    define_processor(values)
    define_path(
        values,
        "plot",
        "SVG file to write: predicted against measured cycles of parts",
        required=False,
    )


def _cycles(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.blocks.cpu_files import cpu_file
    from compiler_opt_perf.blocks.model import load
    from compiler_opt_perf.studies.cycles import study
    from compiler_opt_perf.toolchain.installation import Toolchain

    report = study(
        values.only,
        Path(values.output),
        Toolchain.load(Path(values.toolchain)),
        load(Path(values.model)),
        cpu=cpu_file(values.cpu),
        rounds=values.rounds,
        processor=values.processor,
        plot=Path(values.plot) if values.plot else None,
    )
    print(report, end="")


# cop study series


def _define_series(values: flags.FlagValues) -> None:
    _define_output(values, "bench-series")


def _series(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.studies.series import study

    print(study(Path(values.output)), end="")


VERBS: tuple[Verb, ...] = (
    Verb(
        "study collect",
        "Measure PMU collection on real programs: how slow, how large, how much has a location.",
        "study collect --only=zstd,lua --output=build/bench-collect",
        _define_collect,
        _collect,
    ),
    Verb(
        "study hits",
        "Measure which lookups in a PMU profile other compilations find, and why others fail.",
        "study hits --only=zstd,lua --output=build/bench-hits",
        _define_hits,
        _hits,
    ),
    Verb(
        "study inline-speed",
        "Tell what a PMU profile adds to inlining for speed, beside AutoFDO and PGO.",
        "study inline-speed --only=lua --rounds=20 --output=build/bench-inline-speed",
        _define_inline_speed,
        _inline_speed,
        json_version=1,
    ),
    Verb(
        "study policies",
        "Time programs by the policies in models/ and without, and count their instructions.",
        "study policies --only=lua --rounds=48 --layouts=24 --output=build/bench-inline-speed",
        _define_policies,
        _policies,
        json_version=2,
    ),
    Verb(
        "study throughput",
        "Measure how many modules a second are compiled in a training, and in other ways.",
        "study throughput --corpora=build/train-inline/corpora --modules=40",
        _define_throughput,
        _throughput,
    ),
    Verb(
        "study rank",
        "Tell whether predicted costs rank compilations of a program as their measured times do.",
        "study rank --only=zstd,lua --steps=build,record,evaluate --output=build/bench-rank",
        _define_rank,
        _rank,
    ),
    Verb(
        "study cycles",
        "Compare predicted with measured cycles of runs and their parts, and fit a correction.",
        "study cycles --model=models/cost-znver3 --only=lua,zlib",
        _define_cycles,
        _cycles,
    ),
    Verb(
        "study series",
        "Check every part of the patch series: that it applies, compiles and passes its tests.",
        "study series --output=build/bench-series",
        _define_series,
        _series,
    ),
)
