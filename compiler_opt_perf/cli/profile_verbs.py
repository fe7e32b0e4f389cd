# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs of PMU profiles."""

import dataclasses
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click import UsageError

from compiler_opt_perf.cli import options
from compiler_opt_perf.cli.verb import Group, Table

if TYPE_CHECKING:
    from compiler_opt_perf.profile.backends import BackendName
    from compiler_opt_perf.profile.manifest import Manifest

profile = Group("profile", help="PMU profiles: collect, show, compare and check them.")


def _cache(name: str, what: str) -> options.Decorator:
    help = f"simulated {what} cache as SIZE,WAYS,LINE in bytes"
    return options.flag(f"--{name}", help=help)


@profile.command(
    "collect",
    example="profile collect --binary=build/demo/zstd/zstd --output=build/demo/zstd.pmu.json"
    " -- -9 -f -o /dev/null build/demo/zstd/input",
    json_version=1,
)
@options.run_arguments
@options.path_flag(
    "--binary", "program built with debug info for profiling and a build-id", required=True
)
@options.output("the manifest, NAME.pmu.json, with sample profiles beside it")
@options.run_flags
@options.flag(
    "--backend",
    type=click.Choice(["callgrind", "perf", "auto"]),
    default="callgrind",
    help="simulate, or count in hardware; auto counts when this machine can, and says why not",
)
@options.flag(
    "--cpu",
    help="simulate the caches of this processor (a name of docs/collect.md), or of the host",
)
@_cache("I1", "L1 instruction")
@_cache("D1", "L1 data")
@_cache("LL", "last-level")
@options.flag(
    "--within",
    help="count only what calls of this function execute, with all that it calls: the profile of a "
    "request handler; for the simulator alone",
)
def collect(
    arguments: Sequence[str],
    binary: Path,
    output: Path,
    run: Path | None,
    stdin: Path | None,
    recording: Path | None,
    timeout: float | None,
    backend: "BackendName",
    cpu: str | None,
    i1: str | None,
    d1: str | None,
    ll: str | None,
    within: str | None,
) -> Table:
    """Run a program in the simulator or under perf, and write its PMU profile."""
    from compiler_opt_perf.profile.callgrind import Cache, CacheGeometry
    from compiler_opt_perf.profile.collect import collect, import_recording
    from compiler_opt_perf.profile.cpus import geometry_of

    check_run(arguments, recording, timeout)
    if recording is not None:
        if within is not None:
            raise UsageError("--within is for runs; a recording tells no function's calls apart")
        return _summary(import_recording(recording, binary, output))
    texts = {"i1": i1, "d1": d1, "ll": ll}
    caches = {name: Cache.parse(text) for name, text in texts.items() if text is not None}
    geometry = geometry_of(cpu) if cpu else CacheGeometry()
    manifest = collect(
        binary,
        arguments,
        output,
        program=run,
        backend=backend,
        geometry=dataclasses.replace(geometry, **caches),
        within=within,
        stdin=stdin,
        timeout_s=timeout,
    )
    return _summary(manifest)


def check_run(arguments: Sequence[str], recording: Path | None, timeout: float | None) -> None:
    """Refuses flags of a run that cannot be. Raises UsageError."""
    if timeout is not None and not 0 < timeout < math.inf:
        raise UsageError(f"--timeout={timeout:g}: expected seconds, more than 0")
    if recording is not None and arguments:
        raise UsageError(f"unexpected argument {arguments[0]!r}: with --recording, nothing is run")


def _summary(manifest: "Manifest") -> Table:
    from compiler_opt_perf.profile import documents
    from compiler_opt_perf.profile.report import summarize

    return Table(
        lambda: f"{summarize(manifest)}\n{_next_steps(manifest.path)}",
        lambda: documents.summary(manifest),
    )


def _next_steps(path: Path) -> str:
    """What to do with a new profile: commands that work as they are."""
    from compiler_opt_perf.profile.manifest import SUFFIX

    configuration = path.with_name(f"{path.name.removesuffix(SUFFIX)}.cfg")
    show = ["cop", "profile", "show", str(path)]
    use = ["cop", "policy", "flags", "--toolchain=dev", "--autofdo"]
    use += [f"--profile={path}", f"--output={configuration}"]
    return (
        f"next: what costs most: {shlex.join(show)}\n"
        f"      compile with it: {shlex.join(use)}\n"
        "      or with policies, which docs/models.md weighs against each other\n"
    )


@profile.command("show", example="profile show build/demo/zstd.pmu.json --top=10", json_version=1)
@options.path_argument("manifest", "NAME.pmu.json")
@options.top("functions and lines")
@options.html
def show(manifest: Path, top: int, html: Path | None) -> Table | None:
    """Show what a PMU profile holds, and the functions and lines that lose most time."""
    from compiler_opt_perf.profile import documents
    from compiler_opt_perf.profile.profile import Profile
    from compiler_opt_perf.profile.report import show

    loaded = Profile.load(manifest)
    if html is None:
        return Table(lambda: show(loaded, top), lambda: documents.show(loaded, top))
    # Loads matplotlib.
    from compiler_opt_perf.pages.profile import write_page

    write_page(loaded, html, top)
    print(html)
    return None


@profile.command("diff", example="profile diff before.pmu.json after.pmu.json", json_version=1)
@options.path_argument("before", "BEFORE.pmu.json")
@options.path_argument("after", "AFTER.pmu.json")
@options.top("functions and lines")
def diff(before: Path, after: Path, top: int) -> Table:
    """Show how one PMU profile differs from another, beyond chance."""
    from compiler_opt_perf.profile import documents
    from compiler_opt_perf.profile.profile import Profile
    from compiler_opt_perf.profile.report import diff

    first, second = Profile.load(before), Profile.load(after)
    return Table(lambda: diff(first, second, top), lambda: documents.diff(first, second, top))


@profile.command(
    "coverage",
    example="profile coverage module.bc --profile=build/demo/zstd.pmu.json",
    json_version=1,
)
@options.path_argument("files", "FILE...", "object files, bitcode files or linked binaries")
@options.path_flag("--profile", "the PMU profile's manifest", required=True)
def coverage(files: Sequence[Path], profile: Path) -> Table:
    """Show how much of an object or bitcode file would find data in a PMU profile."""
    from compiler_opt_perf.profile import documents
    from compiler_opt_perf.profile.coverage import coverage, describe
    from compiler_opt_perf.profile.profile import Profile

    loaded = Profile.load(profile)
    found = [(str(path), coverage(loaded, path)) for path in files]
    return Table(
        lambda: "".join(describe(one, name) for name, one in found),
        lambda: documents.coverages(found),
    )


@profile.command(
    "merge",
    example="profile merge first.pmu.json second.pmu.json --output=all.pmu.json",
    json_version=1,
)
@options.path_argument("manifests", "NAME.pmu.json...")
@options.output("the manifest of all runs together, NAME.pmu.json")
@options.force("add up profiles of different binaries, caches or back-ends")
def merge(manifests: Sequence[Path], output: Path, force: bool) -> Table:
    """Add up PMU profiles of several runs of one binary."""
    from compiler_opt_perf.profile.merge import merge

    return _summary(merge(manifests, output, allow_different=force))


@profile.command(
    "check",
    example="profile check build/demo/zstd.pmu.json --binary=build/demo/zstd/zstd",
    json_version=1,
)
@options.path_argument("manifest", "NAME.pmu.json")
@options.path_flag("--binary", "the program that must be the profiled one")
def check(manifest: Path, binary: Path | None) -> Table:
    """Check a PMU profile's files and that it is of this very binary."""
    from compiler_opt_perf.profile import documents
    from compiler_opt_perf.profile.profile import Profile
    from compiler_opt_perf.profile.report import describe_functions

    loaded = Profile.load(manifest)
    if binary is not None:
        loaded.manifest.verify_binary(binary)
    checked = f" and {binary} is the profiled program" if binary else ""
    functions = describe_functions(loaded.table, loaded.executed)
    return Table(
        lambda: (
            f"{manifest}: {len(loaded.manifest.events)} sample profiles are intact{checked}\n"
            f"{manifest}: functions: {functions}\n"
        ),
        lambda: {
            "profile": str(manifest),
            "sample_profiles": len(loaded.manifest.events),
            "binary": None if binary is None else str(binary),
            "functions": documents.functions(loaded.table, loaded.executed),
        },
    )
