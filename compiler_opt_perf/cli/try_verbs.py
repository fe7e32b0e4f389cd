# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verb that tries a user's own program."""

from pathlib import Path
from typing import Annotated

from click import UsageError

from compiler_opt_perf.cli import options
from compiler_opt_perf.cli.options import model_folder, required_model_folder
from compiler_opt_perf.cli.parameters import Flag
from compiler_opt_perf.cli.verb import Table, Verb
from compiler_opt_perf.run.rounds import LEAST_ROUNDS
from compiler_opt_perf.toolchain.layout import REPO_ROOT

_MODELS = REPO_ROOT / "models"


def try_program(
    build: Annotated[str, Flag("command of the shell that builds the program from its sources")],
    run: Annotated[
        str | None, Flag("command of the shell that runs the program; this run is profiled")
    ] = None,
    run2: Annotated[
        str | None, Flag("the same on another input, which tells whether a gain is general")
    ] = None,
    source: Annotated[
        Path, Flag("the program's tree: it is copied, and both commands run in copies")
    ] = Path("."),
    output: Annotated[
        Path | None, Flag("folder for builds and results; SOURCE-try, beside the tree, by default")
    ] = None,
    binary: Annotated[
        str | None,
        Flag("the program's path in the tree, if it is not the first one in --run"),
    ] = None,
    size: Annotated[bool, Flag("compare sizes at -Oz, instead of times at -O2")] = False,
    pgo: Annotated[bool, Flag("try PGO, with ThinLTO and without, too")] = False,
    small_cold: Annotated[
        bool, Flag("try AutoFDO and PGO with cold code compiled for size, too")
    ] = False,
    thinlto: Annotated[bool, Flag("with --size: try all with ThinLTO, too")] = False,
    rounds: Annotated[
        int, Flag("timed rounds: more of them tell smaller changes", low=LEAST_ROUNDS)
    ] = 15,
    toolchain: options.Toolchain = options.DEV,
    inline_model: Annotated[
        Path | None,
        Flag("policy for inlining; models/inline-speed by default, with --size inline-size"),
    ] = None,
    evict_model: Annotated[
        Path | None,
        Flag("policy for evictions, as regalloc-evict; by default only one in the compiler"),
    ] = None,
    force: Annotated[bool, Flag("do all again, instead of going on")] = False,
    html: options.Html = None,
) -> Table | None:
    """Build your program in several ways, time each, and say which one to take."""
    if run is None and not size:
        raise UsageError("--run='...' is needed; only with --size can it be left out")
    if run is None and (run2 is not None or binary is None):
        raise UsageError("without --run, give --binary=PATH, and no --run2")
    if size and pgo:
        raise UsageError("--pgo is for speed and --size for size: give one of them")
    if size and small_cold:
        raise UsageError("--small-cold is for builds by a profile: leave out --size")
    if thinlto and not size:
        raise UsageError("--thinlto needs --size; for speed, --pgo tries ThinLTO")
    import msgspec

    from compiler_opt_perf.toolchain.installation import Toolchain
    from compiler_opt_perf.trial.build import Project
    from compiler_opt_perf.trial.result import describe
    from compiler_opt_perf.trial.runs import GivenRun
    from compiler_opt_perf.trial.trial import Request, try_ways
    from compiler_opt_perf.trial.ways import PGO, SIZE, SIZE_THINLTO, SPEED, with_small_cold

    inline = inline_model or _MODELS / ("inline-size" if size else "inline-speed")
    models = {
        "inline-size": required_model_folder(inline, "--inline-model"),
        "regalloc-evict": model_folder(evict_model, "--evict-model"),
    }
    ways = [*SIZE, *SIZE_THINLTO * thinlto] if size else [*SPEED, *PGO * pgo]
    if small_cold:
        ways = with_small_cold(ways)
    source = source.absolute()
    if not source.is_dir():
        raise UsageError(f"--source={source}: no such folder")
    request = Request(
        project=Project(source, build, "-Oz" if size else "-O2"),
        runs=[
            GivenRun(flag, line)
            for flag, line in (("run", run), ("run2", run2))
            if line is not None
        ],
        binary=binary,
        toolchain=Toolchain.load(toolchain),
        models=models,
        ways=ways,
        by_size=size,
        rounds=rounds,
    )
    if output is None:
        output = source.resolve().with_name(f"{source.resolve().name}-try")
    trial = try_ways(request, output, force=force)
    if html is not None:
        # Loads matplotlib.
        from compiler_opt_perf.pages.comparison import write_page
        from compiler_opt_perf.pages.sections import trial_section

        write_page([], html, [trial_section(trial)])
        print(html)
        return None
    return Table(lambda: describe(trial), lambda: msgspec.to_builtins(trial))


VERB = Verb(
    "try",
    try_program,
    "try --source=zstd-1.5.7 --build='make -j2' --run='programs/zstd -9 -c big.tar' "
    "--run2='programs/zstd -3 -c other.tar'",
    {},
    2,
)
