# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs of PMU profiles."""

import dataclasses
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from click import UsageError

from compiler_opt_perf.cli import options
from compiler_opt_perf.cli.parameters import Argument, Flag
from compiler_opt_perf.cli.verb import Group, Table

if TYPE_CHECKING:
    from compiler_opt_perf.profile.manifest import Manifest

profile = Group("profile", help="PMU profiles: collect, show, compare and check them.")


def _cache(name: str, what: str) -> Flag:
    return Flag(f"simulated {what} cache as SIZE,WAYS,LINE in bytes", name=name)


@profile.verb(
    "collect",
    example="profile collect --binary=zstd/zstd --output=zstd.pmu.json -- "
    "-9 -f -o /dev/null zstd/input",
    json_version=1,
)
def collect(
    binary: Annotated[Path, Flag("program built with debug info for profiling and a build-id")],
    output: Annotated[Path, Flag("the manifest, NAME.pmu.json, with sample profiles beside it")],
    arguments: options.RunArguments = (),
    run: options.Run = None,
    stdin: options.Stdin = None,
    recording: options.Recording = None,
    timeout: options.Timeout = None,
    backend: Annotated[
        Literal["callgrind", "perf", "auto"],
        Flag("simulate, or count in hardware; auto counts when this machine can, and says why not"),
    ] = "callgrind",
    cpu: Annotated[
        str | None,
        Flag("simulate the caches of this processor (a name of docs/collect.md), or of the host"),
    ] = None,
    i1: Annotated[str | None, _cache("I1", "L1 instruction")] = None,
    d1: Annotated[str | None, _cache("D1", "L1 data")] = None,
    ll: Annotated[str | None, _cache("LL", "last-level")] = None,
    within: Annotated[
        str | None,
        Flag(
            "count only what calls of this function execute, with all that it calls: the profile "
            "of a request handler; for the simulator alone"
        ),
    ] = None,
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


@profile.verb("show", example="profile show zstd.pmu.json --top=10", json_version=1)
def show(
    manifest: Annotated[Path, Argument("NAME.pmu.json")],
    top: Annotated[int, options.top("functions and lines")] = 20,
    html: options.Html = None,
) -> Table | None:
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


@profile.verb("diff", example="profile diff before.pmu.json after.pmu.json", json_version=1)
def diff(
    before: Annotated[Path, Argument("BEFORE.pmu.json")],
    after: Annotated[Path, Argument("AFTER.pmu.json")],
    top: Annotated[int, options.top("functions and lines")] = 20,
) -> Table:
    """Show how one PMU profile differs from another, beyond chance."""
    from compiler_opt_perf.profile import documents
    from compiler_opt_perf.profile.profile import Profile
    from compiler_opt_perf.profile.report import diff

    first, second = Profile.load(before), Profile.load(after)
    return Table(lambda: diff(first, second, top), lambda: documents.diff(first, second, top))


@profile.verb(
    "coverage",
    example="profile coverage module.bc --profile=zstd.pmu.json",
    json_version=1,
)
def coverage(
    files: Annotated[
        Sequence[Path], Argument("FILE...", "object files, bitcode files or linked binaries")
    ],
    profile: Annotated[Path, Flag("the PMU profile's manifest")],
) -> Table:
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


@profile.verb(
    "merge",
    example="profile merge first.pmu.json second.pmu.json --output=all.pmu.json",
    json_version=1,
)
def merge(
    manifests: Annotated[Sequence[Path], Argument("NAME.pmu.json...")],
    output: Annotated[Path, Flag("the manifest of all runs together, NAME.pmu.json")],
    force: Annotated[
        bool, Flag("add up profiles of different binaries, caches or back-ends")
    ] = False,
) -> Table:
    """Add up PMU profiles of several runs of one binary."""
    from compiler_opt_perf.profile.merge import merge

    return _summary(merge(manifests, output, allow_different=force))


@profile.verb(
    "check",
    example="profile check zstd.pmu.json --binary=zstd/zstd",
    json_version=1,
)
def check(
    manifest: Annotated[Path, Argument("NAME.pmu.json")],
    binary: Annotated[Path | None, Flag("the program that must be the profiled one")] = None,
) -> Table:
    """Check a PMU profile's files and that it is of this very binary."""
    from compiler_opt_perf.profile import documents
    from compiler_opt_perf.profile.index import check_index
    from compiler_opt_perf.profile.profile import Profile
    from compiler_opt_perf.profile.report import describe_functions

    loaded = Profile.load(manifest)
    check_index(manifest)
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
