# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs: each turns flags into one call of the package.

Imports of the floors below are inside the functions, so that `cop --help` and the light verbs do
not wait for TensorFlow.
"""

import dataclasses
import math
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from compiler_opt_perf.cli import cost_verbs, study_verbs, trace_verbs
from compiler_opt_perf.cli.verb import UsageError, Verb, no_arguments
from compiler_opt_perf.execution.files import write_json
from compiler_opt_perf.execution.json_text import JsonError, parse_json
from compiler_opt_perf.policies.problem import PROBLEMS
from compiler_opt_perf.toolchain.layout import BUILD

if TYPE_CHECKING:
    from compiler_opt_perf.training.config import Config


def _path(values: Any, name: str) -> Path | None:
    text = getattr(values, name)
    return Path(text) if text else None


def _required_path(values: Any, name: str) -> Path:
    return Path(getattr(values, name))


def _define_path(values: flags.FlagValues, name: str, help: str, required: bool = True) -> None:
    flags.DEFINE_string(name, None, help, flag_values=values, required=required)


def _define_problem(values: flags.FlagValues) -> None:
    flags.DEFINE_enum(
        "problem", None, sorted(PROBLEMS), "what is decided", flag_values=values, required=True
    )


def _define_toolchain(values: flags.FlagValues, name: str, default: str) -> None:
    flags.DEFINE_string(
        name, str(BUILD / "toolchain" / default), "folder of the patched tools", flag_values=values
    )


# cop toolchain build


def _define_toolchain_build(values: flags.FlagValues) -> None:
    flags.DEFINE_string(
        "set",
        "dev",
        "name of the model set: dev has no models, mock upstream's mock models, any other name the "
        "models given",
        flag_values=values,
    )
    _define_path(values, "inline_model", "SavedModel of an inline-size policy", required=False)
    _define_path(values, "evict_model", "SavedModel of a regalloc-evict policy", required=False)


def _toolchain_build(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.toolchain.build import build

    models = _path(values, "inline_model"), _path(values, "evict_model")
    print(build(values.set, *models).directory)


# cop flags


def _define_flags(values: flags.FlagValues) -> None:
    flags.DEFINE_string(
        "set", None, "name of the model set, or its folder", flag_values=values, required=True
    )
    _define_path(values, "profile", "PMU profile manifest, NAME.pmu.json", required=False)
    for name, problem in (("inline_model", "inline-size"), ("evict_model", "regalloc-evict")):
        help = f"folder of a {problem} policy, for development mode instead of the set's own"
        _define_path(values, name, help, required=False)
    _define_path(
        values,
        "config",
        "write a configuration file of clang's, NAME.cfg, and print the one flag that names it",
        required=False,
    )
    flags.DEFINE_boolean("link", False, "print the flags of links", flag_values=values)
    flags.DEFINE_boolean(
        "cmake", False, "print what to give to cmake; needs --config", flag_values=values
    )


def _flags(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.execution.files import write_text
    from compiler_opt_perf.policies.compiler_flags import compiler_flags, shell_line
    from compiler_opt_perf.toolchain.installation import Toolchain

    config = _path(values, "config")
    if values.cmake and config is None:
        raise UsageError("--cmake needs --config=NAME.cfg, the file that compilations shall read")
    if values.link and config is not None:
        raise UsageError("with --config, compilations and links get the same flag; omit --link")
    folder = Path(values.set) if "/" in values.set else BUILD / "toolchain" / values.set
    models = {
        "inline-size": _path(values, "inline_model"),
        "regalloc-evict": _path(values, "evict_model"),
    }
    result = compiler_flags(Toolchain.load(folder), models, _path(values, "profile"))
    if config is None:
        print(shell_line(result.link_words() if values.link else result.compile_words()))
        return
    write_text(config, result.configuration())
    if values.cmake:
        definitions = result.cmake_definitions(config).items()
        print(shell_line(f"-D{name}={value}" for name, value in definitions))
    else:
        print(shell_line([f"--config={config.absolute()}"]))


# cop program build


def _define_program_build(values: flags.FlagValues) -> None:
    _define_path(values, "output", "folder for the binary, compile_commands.json and an input")
    _define_path(
        values, "source", "unpacked source package; fetched from Debian when absent", required=False
    )


def _program_build(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.corpus.programs import PROGRAMS, build_program, find_program
    from compiler_opt_perf.execution.llvm import stock_tool
    from compiler_opt_perf.toolchain.debian import debian_source

    if len(arguments) != 1:
        raise UsageError(f"expected one program: {', '.join(sorted(PROGRAMS))}")
    program = find_program(arguments[0])
    tree = _path(values, "source") or debian_source(program.source_package)
    output = _required_path(values, "output")
    print(build_program(program, tree, output, clang=stock_tool("clang")).binary)


# cop collect


def _define_collect(values: flags.FlagValues) -> None:
    _define_path(values, "binary", "program built with debug info for profiling and a build-id")
    _define_path(
        values,
        "output",
        "the manifest, NAME.pmu.json, with sample profiles beside it; or the trace, NAME.bbtrace",
    )
    flags.DEFINE_boolean(
        "trace",
        False,
        "record the executed blocks in their order instead; the program needs an address map "
        "(clang -fbasic-block-address-map), but no debug info",
        flag_values=values,
    )
    _define_path(
        values, "run", "executable to run, if the binary is a shared library", required=False
    )
    _define_path(values, "stdin", "file that the program reads", required=False)
    flags.DEFINE_enum(
        "backend",
        "callgrind",
        ["callgrind", "perf", "auto"],
        "simulate, or count in hardware; auto counts when this machine can, and says why not",
        flag_values=values,
    )
    _define_path(
        values,
        "recording",
        "run nothing: read this perf.data (or perf script text) of a run of the program",
        required=False,
    )
    flags.DEFINE_string(
        "cpu",
        None,
        "simulate the caches of this processor (a name of docs/collect.md), or of the host",
        flag_values=values,
    )
    for name, what in (("I1", "L1 instruction"), ("D1", "L1 data"), ("LL", "last-level")):
        flags.DEFINE_string(
            name, None, f"simulated {what} cache as SIZE,WAYS,LINE in bytes", flag_values=values
        )
    flags.DEFINE_string(
        "within",
        None,
        "count only what calls of this function execute, with all that it calls: the profile of a "
        "request handler; for the simulator alone",
        flag_values=values,
    )
    flags.DEFINE_float("timeout", None, "limit of the run, seconds", flag_values=values)


def _collect(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.pmu.callgrind import Cache, CacheGeometry
    from compiler_opt_perf.pmu.collect import collect, import_recording
    from compiler_opt_perf.pmu.cpus import geometry_of
    from compiler_opt_perf.pmu.report import summarize

    if values.timeout is not None and not 0 < values.timeout < math.inf:
        raise UsageError(f"--timeout={values.timeout:g}: expected seconds, more than 0")
    if values.trace:
        _collect_trace(values, arguments)
        return
    binary, output = _required_path(values, "binary"), _required_path(values, "output")
    recording = _path(values, "recording")
    if recording is not None:
        no_arguments(arguments)
        if values.within is not None:
            raise UsageError("--within is for runs; a recording tells no function's calls apart")
        print(summarize(import_recording(recording, binary, output)), end="")
        return
    texts = {"i1": values.I1, "d1": values.D1, "ll": values.LL}
    caches = {name: Cache.parse(text) for name, text in texts.items() if text is not None}
    geometry = geometry_of(values.cpu) if values.cpu else CacheGeometry()
    manifest = collect(
        binary,
        arguments,
        output,
        program=_path(values, "run"),
        backend=values.backend,
        geometry=dataclasses.replace(geometry, **caches),
        within=values.within,
        stdin=_path(values, "stdin"),
        timeout_s=values.timeout,
    )
    print(summarize(manifest), end="")


def _collect_trace(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.traces.branch_records import import_recording
    from compiler_opt_perf.traces.qemu import record
    from compiler_opt_perf.traces.statistics import Statistics

    for name in ("backend", "cpu", "I1", "D1", "LL", "within"):
        if values[name].present:
            raise UsageError(f"--{name} is for PMU profiles; a block trace has no use for it")
    binary, output = _required_path(values, "binary"), _required_path(values, "output")
    recording = _path(values, "recording")
    if recording is not None:
        no_arguments(arguments)
        trace = import_recording(recording, binary, output)
    else:
        trace = record(
            binary,
            arguments,
            output,
            program=_path(values, "run"),
            stdin=_path(values, "stdin"),
            timeout_s=values.timeout,
        )
    print(Statistics.of(trace).summary(), end="")


# cop profile show, cop profile check


def _manifest_argument(arguments: list[str]) -> Path:
    if len(arguments) != 1:
        raise UsageError("expected one manifest, NAME.pmu.json")
    return Path(arguments[0])


def _define_top(values: flags.FlagValues) -> None:
    flags.DEFINE_integer("top", 20, "how many functions and lines to show", flag_values=values)


def _define_profile_show(values: flags.FlagValues) -> None:
    _define_top(values)
    _define_path(values, "html", "write a page with plots to this file instead", required=False)


def _profile_show(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.pmu.page import write_page
    from compiler_opt_perf.pmu.profile import Profile
    from compiler_opt_perf.pmu.report import show

    path = _manifest_argument(arguments)
    html = _path(values, "html")
    profile = Profile.load(path)
    if html is None:
        print(show(profile, values.top), end="")
    else:
        write_page(profile, html, values.top)
        print(html)


def _profile_diff(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.pmu.profile import Profile
    from compiler_opt_perf.pmu.report import diff

    if len(arguments) != 2:
        raise UsageError("expected two manifests: BEFORE.pmu.json AFTER.pmu.json")
    before, after = (Profile.load(Path(path)) for path in arguments)
    print(diff(before, after, values.top), end="")


def _define_profile_coverage(values: flags.FlagValues) -> None:
    _define_path(values, "profile", "the PMU profile's manifest")


def _profile_coverage(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.pmu.coverage import coverage, describe
    from compiler_opt_perf.pmu.profile import Profile

    if not arguments:
        raise UsageError("expected object files, bitcode files or linked binaries")
    profile = Profile.load(_required_path(values, "profile"))
    for name in arguments:
        print(describe(coverage(profile, Path(name)), name), end="")


def _define_profile_merge(values: flags.FlagValues) -> None:
    _define_path(values, "output", "the manifest of all runs together, NAME.pmu.json")
    flags.DEFINE_boolean(
        "allow_different",
        False,
        "add up profiles of different binaries, caches or back-ends",
        flag_values=values,
    )


def _profile_merge(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.pmu.merge import merge
    from compiler_opt_perf.pmu.report import summarize

    if not arguments:
        raise UsageError("expected manifests, as `cop collect` writes them")
    manifest = merge(
        [Path(path) for path in arguments],
        _required_path(values, "output"),
        allow_different=values.allow_different,
    )
    print(summarize(manifest), end="")


def _define_profile_check(values: flags.FlagValues) -> None:
    _define_path(values, "binary", "the program that must be the profiled one", required=False)


def _profile_check(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.pmu.profile import Profile
    from compiler_opt_perf.pmu.report import describe_functions

    path = _manifest_argument(arguments)
    profile = Profile.load(path)
    manifest = profile.manifest
    binary = _path(values, "binary")
    if binary is not None:
        manifest.verify_binary(binary)
    checked = f" and {binary} is the profiled program" if binary else ""
    print(f"{path}: {len(manifest.events)} sample profiles are intact{checked}")
    print(f"{path}: functions: {describe_functions(profile.table, profile.executed)}")


# cop corpus


def _define_corpus_extract(values: flags.FlagValues) -> None:
    _define_problem(values)
    _define_path(values, "output", "folder for the corpora train/ and held_out/")
    flags.DEFINE_float("held_out", 0.3, "share of modules kept from training", flag_values=values)
    flags.DEFINE_integer("seed", 1, "of the split", flag_values=values)
    flags.DEFINE_string(
        "link_flags", "", "options of ThinLTO links that change the code", flag_values=values
    )


def _corpus_extract(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.corpus.extract import extract_corpus
    from compiler_opt_perf.execution.llvm import stock_tool

    builds: dict[str, Path] = {}
    for word in arguments:
        name, equals, path = word.partition("=")
        if not equals or not path or name in builds:
            raise UsageError(
                f"{word!r}: expected PROGRAM=compile_commands.json or PROGRAM=FOLDER of a build, "
                "each program once"
            )
        builds[name] = Path(path)
    if not builds:
        raise UsageError("expected at least one PROGRAM=compile_commands.json or PROGRAM=FOLDER")
    if not 0 < values.held_out < 1:
        raise UsageError(f"--held-out={values.held_out}: expected a share between 0 and 1")
    problem = PROBLEMS[values.problem]
    output = _required_path(values, "output")
    try:
        link_flags = shlex.split(values.link_flags)
    except ValueError as error:
        raise UsageError(f"--link-flags={values.link_flags}: {error}") from None
    train, held_out = extract_corpus(
        builds,
        output,
        clang=stock_tool("clang"),
        opt_level=problem.optimization_level,
        stage=problem.corpus_stage,
        held_out_share=values.held_out,
        link_flags=link_flags,
        seed=values.seed,
    )
    print(f"{output}: {train} training modules, {held_out} held-out modules")


def _define_corpus_show(values: flags.FlagValues) -> None:
    del values


def _corpus_show(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.corpus.corpus import Corpus, describe

    if len(arguments) != 1:
        raise UsageError("expected the folder of one corpus, with its corpus_description.json")
    print(describe(Corpus.load(Path(arguments[0]))), end="")


# cop train


# A policy was published, and should not be used.
_STATUS_WORSE = 4


def _define_train(values: flags.FlagValues) -> None:
    from compiler_opt_perf.training.config import Config

    _define_problem(values)
    _define_path(values, "corpus", "training corpus")
    _define_path(values, "profile", "PMU profile manifest; no PMU features without", required=False)
    _define_path(values, "output", "folder for checkpoint, training curve and the policy")
    _define_toolchain(values, "toolchain", "dev")
    flags.DEFINE_list(
        "extra_rates", [], "rates of the profile that become features besides", flag_values=values
    )
    flags.DEFINE_enum(
        "evaluator",
        None,
        ["count", "mca", "mca-pmu"],
        "cost to make smaller; the problem's own by default",
        flag_values=values,
    )
    _define_path(values, "trace", "block trace or windows, for --evaluator", required=False)
    _define_path(values, "cpu", "CPU file, for evaluators that count cycles", required=False)
    flags.DEFINE_integer("seed", 1, "of every random choice", flag_values=values)
    flags.DEFINE_integer("generations", 50, "of evolution strategies", flag_values=values)
    flags.DEFINE_float("budget", 0, "stop after so many seconds; 0: no limit", flag_values=values)
    flags.DEFINE_multi_string(
        "setting",
        [],
        f"NAME=VALUE, e.g. pairs=16; those that there are, with defaults:\n{Config.describe()}\n ",
        flag_values=values,
    )


def _train(values: Any, arguments: list[str]) -> int:
    from compiler_opt_perf.corpus.corpus import Corpus
    from compiler_opt_perf.cost.evaluator import Context
    from compiler_opt_perf.toolchain.installation import Toolchain
    from compiler_opt_perf.training.train import train

    config = _training_config(values)
    trace, cpu = _path(values, "trace"), _path(values, "cpu")
    if values.evaluator is None and (trace or cpu):
        raise UsageError("--trace and --cpu are for --evaluator")
    profile = _path(values, "profile")
    if values.extra_rates and profile is None:
        raise UsageError("--extra-rates: name the profile that has them with --profile")
    corpus = Corpus.load(_required_path(values, "corpus"))
    toolchain = Toolchain.load(_required_path(values, "toolchain"))
    problem = PROBLEMS[values.problem].with_rates(_extra_rates(values.extra_rates, profile))
    # Modules are compiled side by side already.
    context = Context(toolchain.trace_cost, trace, cpu, profile, threads=1)
    output = _required_path(values, "output")
    result = train(problem, corpus, toolchain, profile, output, config, values.evaluator, context)
    failed = f", fails on {', '.join(result.test_failed)}" if result.test_failed else ""
    print(
        f"{result.policy}: {result.reward} {100 * result.test_change:+.2f}% on the test modules"
        f"{failed} after {result.generations} generations "
        f"({100 * result.validation_change:+.2f}% on the modules that it was chosen by, warm start "
        f"{100 * result.warm_start_change:+.2f}%): {result.verdict}"
    )
    return _STATUS_WORSE if result.is_worse else 0


def _training_config(values: Any) -> "Config":
    from compiler_opt_perf.training.config import Config, ConfigError

    changes = {
        "seed": values.seed,
        "generations": values.generations,
        "budget_s": values.budget,
    }
    for word in values.setting:
        name, _, text = word.partition("=")
        try:
            changes[name] = parse_json(text)
        except JsonError as error:
            raise UsageError(f"--setting={word}: expected NAME=VALUE: {error}") from None
    try:
        return Config().changed(changes)
    except ConfigError as error:
        raise UsageError(str(error)) from None


def _extra_rates(rates: Sequence[str], profile: Path | None) -> Sequence[str]:
    from compiler_opt_perf.pmu.manifest import Manifest

    known = [rate.name for rate in Manifest.load(profile).rates] if rates and profile else []
    for rate in rates:
        if rate not in known or rates.count(rate) > 1:
            raise UsageError(
                f"--extra-rates={','.join(rates)}: expected rates of {profile}, each once; it has "
                f"{', '.join(known)}"
            )
    return rates


# cop interact


def _define_interact(values: flags.FlagValues) -> None:
    _define_problem(values)
    _define_path(values, "model", "folder of a policy, evaluated in Python", required=False)
    _define_path(
        values,
        "decide",
        "Python file with a function decide(observation) that returns the decision",
        required=False,
    )
    _define_path(values, "profile", "PMU profile manifest", required=False)
    _define_toolchain(values, "toolchain", "dev")
    flags.DEFINE_float("timeout", None, "limit of the compilation, seconds", flag_values=values)


def _interact(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.policies.export import load
    from compiler_opt_perf.policies.interactive import (
        InteractiveHost,
        Observation,
        load_decisions,
        policy_decisions,
    )
    from compiler_opt_perf.policies.problem import for_clang
    from compiler_opt_perf.toolchain.installation import Toolchain

    if not arguments:
        raise UsageError("expected arguments of clang after --, for example -- -Oz -c file.c")
    problem = PROBLEMS[values.problem]
    model, file = _path(values, "model"), _path(values, "decide")
    if model is not None and file is None:
        policy = load(model)
        if policy.network.problem.name != problem.name:
            raise UsageError(
                f"--model={model}: a policy for {policy.network.problem.name}, not {problem.name}"
            )
        problem = policy.network.problem
        choose = policy_decisions(policy)
    elif file is not None and model is None:
        choose = load_decisions(file)
    else:
        raise UsageError("expected one of --model=FOLDER and --decide=FILE.py")

    def decide(observation: Observation) -> int:
        decision = choose(observation)
        where = f" in {observation.function}" if observation.function else ""
        print(f"{observation.number}{where}: {problem.decision}={decision}")
        return decision

    clang = Toolchain.load(_required_path(values, "toolchain")).clang
    with InteractiveHost(problem, decide) as host:
        options = problem.interactive_options(host.channel, profile=_path(values, "profile"))
        done = host.run([clang, *arguments, *for_clang(options)], timeout_s=values.timeout)
    print(done.stderr, end="", file=sys.stderr)


# cop compare, cop report


def _define_compare(values: flags.FlagValues) -> None:
    _define_problem(values)
    _define_path(values, "corpus", "corpus of modules that the policy was not trained on")
    _define_path(values, "model", "the policy's folder, as `cop train` writes it")
    _define_path(values, "profile", "PMU profile manifest", required=False)
    _define_path(values, "output", "where to write the comparison, JSON")
    flags.DEFINE_string(
        "toolchain",
        str(BUILD / "toolchain" / "release"),
        "folder of the patched tools that have the policy compiled in, for release mode",
        flag_values=values,
    )
    flags.DEFINE_string(
        "development_toolchain",
        str(BUILD / "toolchain" / "dev"),
        "folder of the patched tools for development and interactive mode; may be the same",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "compile_time",
        "auto",
        ["auto", "instructions", "processor-time"],
        "what to measure of compilations: instructions are counted by the processor or else by "
        "QEMU, which takes 15 to 30 times as long; auto counts if either can, else takes times",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "repetitions",
        None,
        "measured pairs of compilations a module; by default 3 if the processor counts, 1 if QEMU "
        "does, 7 for times",
        lower_bound=1,
        flag_values=values,
    )
    flags.DEFINE_integer(
        "seed", 1, "of the order of measured compilations, and of intervals", flag_values=values
    )


def _compare(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.corpus.corpus import Corpus
    from compiler_opt_perf.policies.export import load
    from compiler_opt_perf.report.comparison import compare
    from compiler_opt_perf.report.modes import Modes, require_compiled_in
    from compiler_opt_perf.report.page import print_comparison
    from compiler_opt_perf.report.summary import to_json
    from compiler_opt_perf.toolchain.installation import Toolchain

    model = _required_path(values, "model")
    policy, problem = None, PROBLEMS[values.problem]
    # A candidate from elsewhere has no description; one of ours must be whole and of this problem.
    if (model / "model.json").exists():
        policy = load(model)
        problem = policy.network.problem
        if problem.name != values.problem:
            raise UsageError(f"--model={model}: a policy for {problem.name}, not {values.problem}")
    corpus = Corpus.load(_required_path(values, "corpus"))
    release = Toolchain.load(_required_path(values, "toolchain"))
    require_compiled_in(release, problem, model)
    development = Toolchain.load(_required_path(values, "development_toolchain"))
    modes = Modes(
        problem,
        release_clang=release.clang,
        development_clang=development.clang,
        litert_library=development.litert_library,
        model=model,
        policy=policy,
        profile=_path(values, "profile"),
    )
    comparison = compare(
        modes,
        corpus,
        compile_time=values.compile_time,
        repetitions=values.repetitions,
        seed=values.seed,
    )
    output = _required_path(values, "output")
    write_json(output, to_json(comparison))
    print_comparison(comparison)
    print(f"Written: {output}")


def _define_report(values: flags.FlagValues) -> None:
    _define_path(values, "output", "the page to write, HTML")
    flags.DEFINE_multi_string(
        "training", [], "PROBLEM=FOLDER of a training run whose curve to show", flag_values=values
    )


def _report(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.report.page import read_comparison, read_curve, write_page

    if not arguments:
        raise UsageError("expected comparisons, as `cop compare` writes them")
    curves = {}
    for word in values.training:
        name, equals, folder = word.partition("=")
        if not equals or name not in PROBLEMS:
            raise UsageError(f"--training={word}: expected PROBLEM=FOLDER")
        curves[name] = read_curve(Path(folder) / "curve.jsonl")
    output = _required_path(values, "output")
    write_page([read_comparison(Path(path)) for path in arguments], curves, output)
    print(output)


VERBS: tuple[Verb, ...] = (
    Verb(
        "toolchain build",
        "Fetch LLVM's source, apply the patches, build clang and the tools with a set of models.",
        "toolchain build --set=mine --inline-model=build/demo/inline-size/policy",
        _define_toolchain_build,
        _toolchain_build,
    ),
    Verb(
        "flags",
        "Print the compiler's or linker's flags for policies and profile, or write them to a file.",
        "flags --set=mine --profile=build/demo/zstd.pmu.json --config=mine.cfg --cmake",
        _define_flags,
        _flags,
    ),
    Verb(
        "program build",
        "Build a real program from Debian's sources, ready to be profiled and extracted from.",
        "program build zstd --output=build/demo/zstd",
        _define_program_build,
        _program_build,
        arguments="PROGRAM",
    ),
    Verb(
        "collect",
        "Run a program in the simulator or under perf, and write its PMU profile or block trace.",
        "collect --binary=build/demo/zstd/zstd --output=build/demo/zstd.pmu.json"
        " -- -9 -f -o /dev/null build/demo/zstd/input",
        _define_collect,
        _collect,
        arguments="[-- ARGUMENT...]",
    ),
    Verb(
        "profile show",
        "Show what a PMU profile holds, and the functions and lines that lose most time.",
        "profile show build/demo/zstd.pmu.json --top=10",
        _define_profile_show,
        _profile_show,
        arguments="NAME.pmu.json",
    ),
    Verb(
        "profile diff",
        "Show how one PMU profile differs from another, beyond chance.",
        "profile diff before.pmu.json after.pmu.json",
        _define_top,
        _profile_diff,
        arguments="BEFORE.pmu.json AFTER.pmu.json",
    ),
    Verb(
        "profile coverage",
        "Show how much of an object or bitcode file would find data in a PMU profile.",
        "profile coverage module.bc --profile=build/demo/zstd.pmu.json",
        _define_profile_coverage,
        _profile_coverage,
        arguments="FILE...",
    ),
    Verb(
        "profile merge",
        "Add up PMU profiles of several runs of one binary.",
        "profile merge first.pmu.json second.pmu.json --output=all.pmu.json",
        _define_profile_merge,
        _profile_merge,
        arguments="NAME.pmu.json...",
    ),
    Verb(
        "profile check",
        "Check a PMU profile's files and that it is of this very binary.",
        "profile check build/demo/zstd.pmu.json --binary=build/demo/zstd/zstd",
        _define_profile_check,
        _profile_check,
        arguments="NAME.pmu.json",
    ),
    *trace_verbs.VERBS,
    *cost_verbs.VERBS,
    Verb(
        "corpus extract",
        "Extract IR modules with their command lines, split into training and held-out ones.",
        "corpus extract --problem=inline-size --output=build/demo/corpus/inline-size"
        " zstd=build/demo/zstd/compile_commands.json",
        _define_corpus_extract,
        _corpus_extract,
        arguments="PROGRAM=compile_commands.json|FOLDER...",
    ),
    Verb(
        "corpus show",
        "Show how many modules of which programs a corpus holds, and how they are compiled.",
        "corpus show build/demo/corpus/inline-size/train",
        _define_corpus_show,
        _corpus_show,
        arguments="FOLDER",
    ),
    Verb(
        "train",
        "Train a policy: warm start from the compiler's decisions, then evolution strategies.",
        "train --problem=inline-size --corpus=build/demo/corpus/inline-size/train"
        " --profile=build/demo/zstd.pmu.json --output=build/demo/inline-size",
        _define_train,
        _train,
        statuses={_STATUS_WORSE: "the published policy is worse than the default on test modules"},
    ),
    Verb(
        "interact",
        "Compile with a policy, or with a decision function of your own, that runs in Python.",
        "interact --problem=inline-size --model=build/demo/inline-size/policy"
        " -- -Oz -c file.c -o file.o",
        _define_interact,
        _interact,
        arguments="-- CLANG-ARGUMENT...",
    ),
    Verb(
        "compare",
        "Compare a policy with the compiler's default on modules: size, score, compile time.",
        "compare --problem=inline-size --corpus=build/demo/corpus/inline-size/held_out"
        " --model=build/demo/inline-size/policy --profile=build/demo/zstd.pmu.json"
        " --output=build/demo/inline-size.json",
        _define_compare,
        _compare,
    ),
    Verb(
        "report",
        "Write one HTML page with tables and plots from comparisons and training curves.",
        "report build/demo/inline-size.json --training=inline-size=build/demo/inline-size"
        " --output=build/demo/report.html",
        _define_report,
        _report,
        arguments="COMPARISON.json...",
    ),
    *study_verbs.VERBS,
)
