# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs of PMU profiles."""

import dataclasses
import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from compiler_opt_perf.cli.options import define_path, html_path, optional_path
from compiler_opt_perf.cli.verb import Table, UsageError, Verb, no_arguments

if TYPE_CHECKING:
    from compiler_opt_perf.profile.manifest import Manifest

# cop collect


def _define_collect(values: flags.FlagValues) -> None:
    define_path(values, "binary", "program built with debug info for profiling and a build-id")
    define_path(
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
    define_path(
        values, "run", "executable to run, if the binary is a shared library", required=False
    )
    define_path(values, "stdin", "file that the program reads", required=False)
    flags.DEFINE_enum(
        "backend",
        "callgrind",
        ["callgrind", "perf", "auto"],
        "simulate, or count in hardware; auto counts when this machine can, and says why not",
        flag_values=values,
    )
    define_path(
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


def _collect(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.profile.callgrind import Cache, CacheGeometry
    from compiler_opt_perf.profile.collect import collect, import_recording
    from compiler_opt_perf.profile.cpus import geometry_of

    if values.timeout is not None and not 0 < values.timeout < math.inf:
        raise UsageError(f"--timeout={values.timeout:g}: expected seconds, more than 0")
    if values.trace:
        return _collect_trace(values, arguments)
    binary, output = Path(values.binary), Path(values.output)
    recording = optional_path(values, "recording")
    if recording is not None:
        no_arguments(arguments)
        if values.within is not None:
            raise UsageError("--within is for runs; a recording tells no function's calls apart")
        return _summary(import_recording(recording, binary, output))
    texts = {"i1": values.I1, "d1": values.D1, "ll": values.LL}
    caches = {name: Cache.parse(text) for name, text in texts.items() if text is not None}
    geometry = geometry_of(values.cpu) if values.cpu else CacheGeometry()
    manifest = collect(
        binary,
        arguments,
        output,
        program=optional_path(values, "run"),
        backend=values.backend,
        geometry=dataclasses.replace(geometry, **caches),
        within=values.within,
        stdin=optional_path(values, "stdin"),
        timeout_s=values.timeout,
    )
    return _summary(manifest)


def _summary(manifest: "Manifest") -> Table:
    from compiler_opt_perf.profile import documents
    from compiler_opt_perf.profile.report import summarize

    return Table(
        lambda: f"{summarize(manifest)}\n{_next_steps(manifest.path)}",
        lambda: documents.summary(manifest),
    )


def _next_steps(profile: Path) -> str:
    """What to do with a new profile: commands that work as they are."""
    from compiler_opt_perf.profile.manifest import SUFFIX

    configuration = profile.with_name(f"{profile.name.removesuffix(SUFFIX)}.cfg")
    show = ["cop", "profile", "show", str(profile)]
    use = ["cop", "flags", "--set=dev", "--autofdo"]
    use += [f"--profile={profile}", f"--config={configuration}"]
    return (
        f"next: what costs most: {shlex.join(show)}\n"
        f"      compile with it: {shlex.join(use)}\n"
        "      or with policies, which docs/models.md weighs against each other\n"
    )


def _collect_trace(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.trace.branch_records import import_recording
    from compiler_opt_perf.trace.qemu import record
    from compiler_opt_perf.trace.statistics import Statistics

    for name in ("backend", "cpu", "I1", "D1", "LL", "within"):
        if values[name].present:
            raise UsageError(f"--{name} is for PMU profiles; a block trace has no use for it")
    binary, output = Path(values.binary), Path(values.output)
    recording = optional_path(values, "recording")
    if recording is not None:
        no_arguments(arguments)
        trace = import_recording(recording, binary, output)
    else:
        trace = record(
            binary,
            arguments,
            output,
            program=optional_path(values, "run"),
            stdin=optional_path(values, "stdin"),
            timeout_s=values.timeout,
        )
    statistics = Statistics.read(trace)
    return Table(statistics.summary, statistics.summary_document)


# cop profile show, cop profile check


def _manifest_argument(arguments: list[str]) -> Path:
    if len(arguments) != 1:
        raise UsageError("expected one manifest, NAME.pmu.json")
    return Path(arguments[0])


def _define_top(values: flags.FlagValues) -> None:
    flags.DEFINE_integer("top", 20, "how many functions and lines to show", flag_values=values)


def _define_profile_show(values: flags.FlagValues) -> None:
    _define_top(values)
    define_path(values, "html", "write a page with plots to this file instead", required=False)


def _profile_show(values: Any, arguments: list[str]) -> Table | None:
    from compiler_opt_perf.profile import documents
    from compiler_opt_perf.profile.profile import Profile
    from compiler_opt_perf.profile.report import show

    path = _manifest_argument(arguments)
    html = html_path(values)
    profile = Profile.load(path)
    if html is None:
        return Table(lambda: show(profile, values.top), lambda: documents.show(profile, values.top))
    # Loads matplotlib.
    from compiler_opt_perf.pages.profile import write_page

    write_page(profile, html, values.top)
    print(html)
    return None


def _profile_diff(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.profile import documents
    from compiler_opt_perf.profile.profile import Profile
    from compiler_opt_perf.profile.report import diff

    if len(arguments) != 2:
        raise UsageError("expected two manifests: BEFORE.pmu.json AFTER.pmu.json")
    before, after = (Profile.load(Path(path)) for path in arguments)
    return Table(
        lambda: diff(before, after, values.top),
        lambda: documents.diff(before, after, values.top),
    )


def _define_profile_coverage(values: flags.FlagValues) -> None:
    define_path(values, "profile", "the PMU profile's manifest")


def _profile_coverage(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.profile import documents
    from compiler_opt_perf.profile.coverage import coverage, describe
    from compiler_opt_perf.profile.profile import Profile

    if not arguments:
        raise UsageError("expected object files, bitcode files or linked binaries")
    profile = Profile.load(Path(values.profile))
    found = [(name, coverage(profile, Path(name))) for name in arguments]
    return Table(
        lambda: "".join(describe(one, name) for name, one in found),
        lambda: documents.coverages(found),
    )


def _define_profile_merge(values: flags.FlagValues) -> None:
    define_path(values, "output", "the manifest of all runs together, NAME.pmu.json")
    flags.DEFINE_boolean(
        "allow_different",
        False,
        "add up profiles of different binaries, caches or back-ends",
        flag_values=values,
    )


def _profile_merge(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.profile.merge import merge

    if not arguments:
        raise UsageError("expected manifests, as `cop collect` writes them")
    manifest = merge(
        [Path(path) for path in arguments],
        Path(values.output),
        allow_different=values.allow_different,
    )
    return _summary(manifest)


def _define_profile_check(values: flags.FlagValues) -> None:
    define_path(values, "binary", "the program that must be the profiled one", required=False)


def _profile_check(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.profile import documents
    from compiler_opt_perf.profile.profile import Profile
    from compiler_opt_perf.profile.report import describe_functions

    path = _manifest_argument(arguments)
    profile = Profile.load(path)
    manifest = profile.manifest
    binary = optional_path(values, "binary")
    if binary is not None:
        manifest.verify_binary(binary)
    checked = f" and {binary} is the profiled program" if binary else ""
    functions = describe_functions(profile.table, profile.executed)
    return Table(
        lambda: (
            f"{path}: {len(manifest.events)} sample profiles are intact{checked}\n"
            f"{path}: functions: {functions}\n"
        ),
        lambda: {
            "profile": str(path),
            "sample_profiles": len(manifest.events),
            "binary": None if binary is None else str(binary),
            "functions": documents.functions(profile.table, profile.executed),
        },
    )


VERBS: tuple[Verb, ...] = (
    Verb(
        "collect",
        "Run a program in the simulator or under perf, and write its PMU profile or block trace.",
        "collect --binary=build/demo/zstd/zstd --output=build/demo/zstd.pmu.json"
        " -- -9 -f -o /dev/null build/demo/zstd/input",
        _define_collect,
        _collect,
        arguments="[-- ARGUMENT...]",
        json_version=1,
    ),
    Verb(
        "profile show",
        "Show what a PMU profile holds, and the functions and lines that lose most time.",
        "profile show build/demo/zstd.pmu.json --top=10",
        _define_profile_show,
        _profile_show,
        arguments="NAME.pmu.json",
        json_version=1,
    ),
    Verb(
        "profile diff",
        "Show how one PMU profile differs from another, beyond chance.",
        "profile diff before.pmu.json after.pmu.json",
        _define_top,
        _profile_diff,
        arguments="BEFORE.pmu.json AFTER.pmu.json",
        json_version=1,
    ),
    Verb(
        "profile coverage",
        "Show how much of an object or bitcode file would find data in a PMU profile.",
        "profile coverage module.bc --profile=build/demo/zstd.pmu.json",
        _define_profile_coverage,
        _profile_coverage,
        arguments="FILE...",
        json_version=1,
    ),
    Verb(
        "profile merge",
        "Add up PMU profiles of several runs of one binary.",
        "profile merge first.pmu.json second.pmu.json --output=all.pmu.json",
        _define_profile_merge,
        _profile_merge,
        arguments="NAME.pmu.json...",
        json_version=1,
    ),
    Verb(
        "profile check",
        "Check a PMU profile's files and that it is of this very binary.",
        "profile check build/demo/zstd.pmu.json --binary=build/demo/zstd/zstd",
        _define_profile_check,
        _profile_check,
        arguments="NAME.pmu.json",
        json_version=1,
    ),
)
