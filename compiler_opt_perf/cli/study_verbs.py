# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs of studies: each runs one of `compiler_opt_perf.studies` and prints its tables."""

from collections.abc import Callable, Mapping, Sequence
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
    optional_path,
)
from compiler_opt_perf.cli.verb import Table, UsageError, Verb
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


# cop study trace


def _define_trace(values: flags.FlagValues) -> None:
    from compiler_opt_perf.studies.trace import PROGRAMS

    _define_output(values, "bench-trace")
    define_some(values, "only", PROGRAMS, "programs to measure")


def _trace(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.studies.trace import study

    print(study(values.only, Path(values.output)))


# cop study cost


def _define_cost(values: flags.FlagValues) -> None:
    from compiler_opt_perf.studies.cost import ENTRIES

    _define_output(values, "bench-cost")
    define_some(values, "only", tuple(ENTRIES), "programs to study")
    define_toolchain(values, "toolchain", "mock")


def _cost(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.studies.cost import study
    from compiler_opt_perf.toolchain.installation import Toolchain

    print(
        study(
            values.only,
            Path(values.output),
            Toolchain.load(Path(values.toolchain)),
        )
    )


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


# cop study compile


def _define_compile(values: flags.FlagValues) -> None:
    from compiler_opt_perf.studies.compile import MODULES

    flags.DEFINE_string(
        "profiles",
        str(BUILD / "bench-collect"),
        "folder of profiles, as cop study collect leaves them",
        short_name="p",
        flag_values=values,
    )
    _define_output(values, "bench-compile")
    define_some(values, "only", MODULES, "names of modules")
    _define_set(values, "model set of the compiler to measure")
    flags.DEFINE_string(
        "reference", None, "clang built without the PMU patches", flag_values=values
    )
    flags.DEFINE_integer("runs", 5, "timed runs; 0 counts instructions only", 0, flag_values=values)


def _compile(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.studies.compile import study

    study(
        values.only,
        Path(values.output),
        profiles=Path(values.profiles),
        clang=set_folder(values.set) / "bin" / "clang",
        reference=optional_path(values, "reference"),
        runs=values.runs,
    )


# cop study inference


def _define_inference(values: flags.FlagValues) -> None:
    flags.DEFINE_integer("decisions", 20000, "to time in a round", 1, flag_values=values)


def _inference(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.studies.inference import study

    if not arguments:
        raise UsageError("expected folders of policies that training published")
    study([Path(argument) for argument in arguments], values.decisions)


# cop study headroom


def _define_headroom(values: flags.FlagValues) -> None:
    from compiler_opt_perf.studies.headroom import PROGRAMS

    _define_output(values, "bench-headroom")
    define_some(values, "only", PROGRAMS, "programs to search")
    define_toolchain(values, "toolchain", "mock")
    flags.DEFINE_integer("modules", 4, "of each program, at random", 1, flag_values=values)
    flags.DEFINE_integer("rounds", 4, "of flips of all decisions", 1, flag_values=values)
    flags.DEFINE_integer("seed", 1, "of the draw of modules", 0, flag_values=values)


def _headroom(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.studies.headroom import study
    from compiler_opt_perf.toolchain.installation import Toolchain

    toolchain = Toolchain.load(Path(values.toolchain))
    counts = {name: values[name].value for name in ("modules", "rounds", "seed")}
    print(study(values.only, Path(values.output), toolchain, **counts))


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
    from compiler_opt_perf.studies.inline_speed import publish_rule, study, tables
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
        publish_rule(Path(values.publish), results)
    return Table(lambda: tables(results), lambda: {"results": results})


# cop study inline-reward, cop study policies


def _define_timed(
    values: flags.FlagValues, programs: Sequence[str], ways: Sequence[str], of: str
) -> None:
    """Flags of a study that times `ways` of compiling programs; `of` says what they are."""
    from compiler_opt_perf.studies.rounds import ROUNDS
    from compiler_opt_perf.studies.variant_builds import LAYOUTS

    _define_output(values, "bench-inline-speed")
    define_some(values, "only", programs, "programs to study")
    define_some(values, "ways", ways, f"{of}; the default is always among them")
    flags.DEFINE_integer("rounds", ROUNDS, "timed runs of each way", 4, flag_values=values)
    flags.DEFINE_integer("layouts", LAYOUTS, "that take turns in them", 3, flag_values=values)
    define_processor(values)
    define_toolchain(values, "toolchain", "mock")


def _timed(
    values: Any,
    study: Callable[..., dict[str, Any]],
    tables: Callable[[Mapping[str, Any]], str],
) -> Table:
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


def _define_inline_reward(values: flags.FlagValues) -> None:
    from compiler_opt_perf.studies.inline_reward import PROGRAMS, VARIANTS

    _define_timed(values, PROGRAMS, VARIANTS, "of inlining")


def _inline_reward(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.studies.inline_reward import study, tables

    return _timed(values, study, tables)


def _define_policies(values: flags.FlagValues) -> None:
    from compiler_opt_perf.studies.policies import PROGRAMS, WAYS

    _define_timed(values, PROGRAMS, WAYS, "of compiling them")


def _policies(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.studies.policies import study, tables

    return _timed(values, study, tables)


# cop study ablation


def _define_ablation(values: flags.FlagValues) -> None:
    help = "folder of results of `cop study inline-speed` and `inline-reward`"
    flags.DEFINE_string("inlining", str(BUILD / "bench-inline-speed"), help, flag_values=values)
    help = "folder of results of `cop study callee-saved-policy` and `callee-saved-time`"
    flags.DEFINE_string("evictions", str(BUILD / "bench-evictions"), help, flag_values=values)
    define_path(values, "plot", "SVG file to write: the table as a plot", required=False)


def _ablation(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.studies.ablation import study, table

    results = study(Path(values.inlining), Path(values.evictions))
    if values.plot:
        # Loads matplotlib.
        from compiler_opt_perf.pages.ablation import write_plot

        write_plot(Path(values.plot), results)
    return Table(lambda: table(results), lambda: {"results": results})


# cop study labels


def _define_labels(values: flags.FlagValues) -> None:
    flags.DEFINE_string(
        "training",
        str(BUILD / "train-inline" / "run"),
        "folder of a training by `cop imitate`",
        flag_values=values,
    )


def _labels(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.studies.labels import study

    print(study(Path(values.training)), end="")


# cop study throughput


def _define_throughput(values: flags.FlagValues) -> None:
    flags.DEFINE_string(
        "corpora",
        str(BUILD / "train-inline" / "corpora"),
        "folder of corpora for inline-size, as `cop imitate` leaves it",
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


# cop study algorithms


def _define_algorithms(values: flags.FlagValues) -> None:
    from compiler_opt_perf.studies.algorithms import RECIPES

    _define_output(values, "bench-algorithms")
    define_some(values, "only", tuple(RECIPES), "recipes of `cop train` to compare")
    flags.DEFINE_string(
        "recipe",
        "models/inline-size/recipe.toml",
        "of `cop imitate`, for the split by program",
        flag_values=values,
    )
    flags.DEFINE_string(
        "modules",
        str(BUILD / "train-inline"),
        "folder of a training by `cop imitate`; programs that it lacks are compiled into it",
        flag_values=values,
    )
    flags.DEFINE_integer("compilations", 600, "for each", 1, flag_values=values)
    flags.DEFINE_integer("each", 4, "modules of a program, at most", 1, flag_values=values)
    flags.DEFINE_integer("largest", 60, "KiB of IR of a module, at most", 1, flag_values=values)
    flags.DEFINE_integer("seed", 1, "of every random choice", 0, flag_values=values)
    define_toolchain(values, "toolchain", "mock")


def _algorithms(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.studies.algorithms import study
    from compiler_opt_perf.toolchain.installation import Toolchain

    print(
        study(
            values.only,
            Path(values.output),
            Toolchain.load(Path(values.toolchain)),
            recipe=Path(values.recipe),
            modules=Path(values.modules),
            **{name: values[name].value for name in ("compilations", "each", "largest", "seed")},
        )
    )


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


# cop study blocks


def _define_blocks(values: flags.FlagValues) -> None:
    flags.DEFINE_multi_string(
        "again", [], "file with the same blocks, measured once more", flag_values=values
    )
    flags.DEFINE_string(
        "cpu", "host", "host, a CPU that there is a file of, or a CPU file", flag_values=values
    )
    define_toolchain(values, "toolchain", "mock")
    flags.DEFINE_integer(
        "most", 8000, "blocks of each file to predict, drawn at random", 1, flag_values=values
    )
    flags.DEFINE_integer("seed", 1, "of that draw", 0, flag_values=values)
    define_path(
        values,
        "model",
        "folder of a learned cost model: compare it, too, on blocks that it was not trained on",
        required=False,
    )


def _blocks(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.cost.cpu_files import cpu_file
    from compiler_opt_perf.studies.blocks import study
    from compiler_opt_perf.toolchain.installation import Toolchain

    if not arguments:
        raise UsageError(
            "expected files of measured blocks, as cop cost measure-blocks writes them"
        )
    report = study(
        [Path(argument) for argument in arguments],
        [Path(path) for path in values.again],
        tool=Toolchain.load(Path(values.toolchain)).trace_cost,
        cpu=cpu_file(values.cpu),
        most=values.most,
        seed=values.seed,
        model=optional_path(values, "model"),
    )
    print(report, end="")


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
    from compiler_opt_perf.cost.cpu_files import cpu_file
    from compiler_opt_perf.learned.model import load
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
        "study trace",
        "Measure block traces of real programs: how slow, how large, how exact.",
        "study trace --only=zstd,lua --output=build/bench-trace",
        _define_trace,
        _trace,
    ),
    Verb(
        "study cost",
        "Compare predicted instruction counts of compilations with those that callgrind counts.",
        "study cost --only=zstd,lua --output=build/bench-cost",
        _define_cost,
        _cost,
    ),
    Verb(
        "study hits",
        "Measure which lookups in a PMU profile other compilations find, and why others fail.",
        "study hits --only=zstd,lua --output=build/bench-hits",
        _define_hits,
        _hits,
    ),
    Verb(
        "study compile",
        "Measure what a large PMU profile costs a compilation.",
        "study compile --only=lvm --runs=0 --output=build/bench-compile",
        _define_compile,
        _compile,
    ),
    Verb(
        "study inference",
        "Measure what one decision of a policy costs the compiler; others compare with the first.",
        "study inference build/demo/regalloc-evict/policy --decisions=20000",
        _define_inference,
        _inference,
        arguments="POLICY...",
    ),
    Verb(
        "study headroom",
        "Search inlining decisions of real modules: how small could any policy make them at -Oz?",
        "study headroom --only=cppunit,bzip2 --modules=2 --output=build/bench-headroom",
        _define_headroom,
        _headroom,
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
        "study inline-reward",
        "Fit what inlining costs beside instructions to times, on an otherwise idle machine.",
        "study inline-reward --only=lua,tcc,jsoncpp --rounds=20 --output=build/bench-inline-speed",
        _define_inline_reward,
        _inline_reward,
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
        "study ablation",
        "Show what each kind of PMU data adds, by several rewards, of results of other studies.",
        "study ablation --inlining=build/bench-inline-speed --evictions=build/bench-evictions",
        _define_ablation,
        _ablation,
        json_version=3,
    ),
    Verb(
        "study labels",
        "Tell what labels of single decisions teach about programs that were never seen.",
        "study labels --training=build/train-inline/run",
        _define_labels,
        _labels,
    ),
    Verb(
        "study throughput",
        "Measure how many modules a second are compiled in a training, and in other ways.",
        "study throughput --corpora=build/train-inline/corpora --modules=40",
        _define_throughput,
        _throughput,
    ),
    Verb(
        "study algorithms",
        "Compare the algorithms of `cop train` on the same modules and the same budget.",
        "study algorithms --only=ppo,labels --compilations=600 --output=build/bench-algorithms",
        _define_algorithms,
        _algorithms,
    ),
    Verb(
        "study rank",
        "Tell whether predicted costs rank compilations of a program as their measured times do.",
        "study rank --only=zstd,lua --steps=build,record,evaluate --output=build/bench-rank",
        _define_rank,
        _rank,
    ),
    Verb(
        "study blocks",
        "Compare predicted with measured cycles of basic blocks, and two measurings of the same.",
        "study blocks lua.blocks --again=lua-again.blocks --most=2000",
        _define_blocks,
        _blocks,
        arguments="FILE...",
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
