# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs of the regression gate, for build bots."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click import UsageError

from compiler_opt_perf.cli import options
from compiler_opt_perf.cli.options import cpu_of, model_folder, required_model_folder
from compiler_opt_perf.cli.verb import Group, Table
from compiler_opt_perf.run.files import sha256, write_json, write_text

if TYPE_CHECKING:
    from compiler_opt_perf.compare.baseline import Setup
    from compiler_opt_perf.compare.measure import Candidate
    from compiler_opt_perf.compare.record import Work
    from compiler_opt_perf.compare.setup import EffortKind
    from compiler_opt_perf.corpus.profiles import Profiles

gate = Group("gate", help="The regression gate: a baseline, and candidates that must keep it.")

#: The status of a candidate that is worse than the limits allow.
EXIT_WORSE = 3

baseline_argument = options.path_argument(
    "baseline", "BASELINE.json", "as `cop gate record` writes it"
)
_WORK = options.path_flag(
    "--work",
    "folder for what an interrupted run has done, which the next one goes on from; by default "
    "beside the baseline, and removed at the end",
)


def _work(folder: Path | None, workers: int, baseline: Path) -> "Work":
    from compiler_opt_perf.compare.record import Work

    beside = baseline.with_name(f"{baseline.name}.work")
    return Work(folder or beside, workers or None)


@gate.command(
    "record",
    example="gate record --corpus=build/demo/corpus/inline-size/held_out --problem=inline-size"
    " --model=build/demo/inline-size/policy --profile=build/demo/zstd.pmu.json"
    " --output=build/baseline.json",
)
@options.problem
@options.flag(
    "--corpus",
    type=options.PATH,
    multiple=True,
    required=True,
    help="folder of a corpus, as `cop corpus extract` writes it; once for each",
)
@options.path_flag("--model", "the policy's folder, as `cop train policy` writes it", required=True)
@options.output("the baseline to write, JSON")
@options.toolchain()
@options.toolchain(
    None,
    "--release-toolchain",
    "folder or name of the patched tools that have the policy compiled in; with it, release mode "
    "is compared with development mode",
)
@options.profiles
@options.flag(
    "--trace",
    multiple=True,
    help="PROGRAM=RUN: block trace or window histogram of a recorded run of the program, which its "
    "modules are compiled for (docs/cost.md) and replayed with; for regalloc-evict",
)
@options.cpu("for the cycles of these runs")
@options.flag(
    "--compile-time",
    type=click.Choice(["auto", "instructions", "processor-time", "none"]),
    default="auto",
    help="what to measure of the compiler's work, as cop compare policy does; none leaves it out",
)
@options.flag(
    "--repetitions",
    type=click.IntRange(2, 1000),
    default=3,
    help="compilations of each module, so that the noise is known",
)
@options.flag(
    "--timeout",
    type=click.FloatRange(0.001),
    default=300.0,
    help="seconds that one compilation may take",
)
@options.flag(
    "--memory",
    type=click.IntRange(1),
    default=8192,
    help="MiB of address space that one compilation may take",
)
@options.workers
@_WORK
def record(
    problem: str,
    corpus: Sequence[Path],
    model: Path,
    output: Path,
    toolchain: Path,
    release_toolchain: Path | None,
    profile: Sequence[str],
    trace: Sequence[str],
    cpu: str | None,
    compile_time: "EffortKind",
    repetitions: int,
    timeout: float,
    memory: int,
    workers: int,
    work: Path | None,
) -> None:
    """Measure a compiler with a policy on corpora: the baseline that candidates must keep."""
    from compiler_opt_perf.compare.baseline import write_baseline
    from compiler_opt_perf.compare.measure import Candidate
    from compiler_opt_perf.compare.record import load_corpora, problem_of, record
    from compiler_opt_perf.corpus.profiles import Profiles
    from compiler_opt_perf.toolchain.installation import Toolchain

    model = required_model_folder(model).absolute()
    candidate = Candidate(
        problem_of(model, problem),
        Toolchain.load(toolchain),
        None if release_toolchain is None else Toolchain.load(release_toolchain),
        model,
        Profiles.parse(profile).absolute(),
        repetitions,
        timeout,
        memory,
        _traces(trace),
        cpu_of(cpu),
    )
    if candidate.traces and not candidate.problem.keeps_blocks:
        raise UsageError(
            f"--trace: decisions of {problem} change the functions and blocks that a recorded run "
            "is of"
        )
    if candidate.cpu is not None and not candidate.traces:
        raise UsageError("--cpu is for the cycles of recorded runs: give --trace, too")
    modules, memory_of_work = load_corpora(corpus), _work(work, workers, output)
    measured = record(candidate, corpus, modules, compile_time, memory_of_work)
    write_baseline(measured, output)
    failed = sum(not run.is_ok for run in measured.modules)
    print(f"{output}: {len(measured.modules)} modules, {failed} of which do not compile")


def _traces(words: Sequence[str]) -> dict[str, Path]:
    """The recorded runs by program. Raises UsageError."""
    from compiler_opt_perf.corpus.profiles import by_program

    common, programs = by_program("--trace", words)
    if common is not None:
        raise UsageError(f"--trace={common}: expected PROGRAM=FILE: of which program is it?")
    return {program: path.absolute() for program, path in programs.items()}


#: Flags of what is compared with a baseline.
candidate_flags = options.all_of(
    options.toolchain(
        None, help="folder or name of the candidate's patched tools; by default the baseline's"
    ),
    options.toolchain(
        None,
        "--release-toolchain",
        "those that have the policy compiled in; by default the baseline's",
    ),
    options.path_flag("--model", "the candidate's policy; by default the baseline's"),
    options.flag(
        "--profile",
        multiple=True,
        help="PMU profile manifest of all modules, or PROGRAM=MANIFEST; by default the baseline's",
    ),
    options.flag(
        "--corpus",
        type=options.PATH,
        multiple=True,
        help="folder of a corpus, where the baseline's are not in their place any more",
    ),
    options.path_flag("--limits", "limits, TOML; by default those of `cop gate limits`"),
)


@gate.command(
    "check",
    example="gate check build/baseline.json --model=build/candidate/policy --junit=build/gate.xml",
    statuses={EXIT_WORSE: "the candidate is worse than the limits allow"},
    json_version=1,
)
@baseline_argument
@candidate_flags
@options.path_flag("--junit", "write the result to this file, too, JUnit XML")
@options.path_flag("--markdown", "write the result to this file, too, Markdown")
@options.path_flag("--lnt", "write a report for LNT's server to this file, too")
@options.path_flag(
    "--measured",
    "write what was measured to this file, too: `cop gate accept` makes it the baseline",
)
@options.path_flag("--store", "add the result to this history, JSON lines; bots may share one")
@options.workers
@_WORK
def check(
    baseline: Path,
    toolchain: Path | None,
    release_toolchain: Path | None,
    model: Path | None,
    profile: Sequence[str],
    corpus: Sequence[Path],
    limits: Path | None,
    junit: Path | None,
    markdown: Path | None,
    lnt: Path | None,
    measured: Path | None,
    store: Path | None,
    workers: int,
    work: Path | None,
) -> Table:
    """Compare a candidate (compiler, policy, profile, or all) with a baseline, within limits."""
    import msgspec

    from compiler_opt_perf.compare import gate_tables as tables
    from compiler_opt_perf.compare.baseline import read_baseline, write_baseline
    from compiler_opt_perf.compare.check import check, to_json
    from compiler_opt_perf.compare.history import add, event_of
    from compiler_opt_perf.compare.limits import DEFAULT, read_limits
    from compiler_opt_perf.compare.record import load_corpora, record, same_modules
    from compiler_opt_perf.compare.setup import effort_of

    before, digest = read_baseline(baseline), sha256(baseline)
    allowed = read_limits(limits or DEFAULT)
    corpora = corpus or [Path(word) for word in before.setup.corpora]
    candidate = candidate_of(before.setup, toolchain, release_toolchain, model, profile)
    modules = load_corpora(corpora)
    same_modules(before, modules)
    memory = _work(work, workers, baseline)
    after = record(candidate, corpora, modules, effort_of(before.setup), memory)
    result = check(before, after, allowed)
    for path, write in ((junit, tables.junit), (markdown, tables.markdown)):
        if path is not None:
            write_text(path, write(result))
    if lnt:
        write_json(lnt, tables.lnt(after))
    if measured:
        write_baseline(msgspec.structs.replace(after, against=digest), measured)
    if store:
        add(store, event_of("check", result, after))
    return Table(
        lambda: tables.describe(result),
        lambda: to_json(result),
        EXIT_WORSE if result.worse else 0,
    )


def candidate_of(
    setup: "Setup",
    toolchain: Path | None,
    release: Path | None,
    model: Path | None,
    profile: Sequence[str],
) -> "Candidate":
    """What the flags name, and the baseline's where they name nothing. Raises GateError."""
    from compiler_opt_perf.compare.measure import Candidate
    from compiler_opt_perf.compare.record import problem_of
    from compiler_opt_perf.compare.setup import same_runs
    from compiler_opt_perf.toolchain.installation import Toolchain

    same_runs(setup)
    model = (model_folder(model) or Path(setup.policy.path)).absolute()
    if release is None and setup.release is not None:
        release = Path(setup.release.path)
    return Candidate(
        problem_of(model, setup.problem),
        Toolchain.load(toolchain or Path(setup.compiler.path)),
        None if release is None else Toolchain.load(release),
        model,
        _profiles(profile, setup),
        setup.repetitions,
        setup.timeout_s,
        setup.memory_mib,
        {program: Path(one.path) for program, one in setup.traces.items()},
        None if setup.cpu is None else Path(setup.cpu.path),
    )


def _profiles(words: Sequence[str], setup: "Setup") -> "Profiles":
    """Those of the flags; programs that these do not name keep the baseline's."""
    from compiler_opt_perf.corpus.profiles import Profiles

    given = Profiles.parse(words).absolute()
    if given.common is not None:
        return given
    before = {program: Path(one.path) for program, one in setup.profiles.items()}
    common = before.pop("", None)
    return Profiles(common, {**before, **given.programs})


@gate.command("limits", example="gate limits")
def limits() -> None:
    """Print the limits that cop gate check has by default, a TOML file to be changed."""
    from compiler_opt_perf.compare.limits import DEFAULT

    print(DEFAULT.read_text(encoding="utf-8"), end="")


@gate.command(
    "accept",
    example="gate accept build/measured.json --output=build/baseline.json"
    " --store=build/gate.jsonl --reason='smaller by 2%, one module is larger'",
)
@options.path_argument("measured", "MEASURED.json", "as `cop gate check --measured` writes it")
@options.output("the baseline to write")
@options.flag("--reason", required=True, help="why the candidate may be as it is, for the history")
@options.path_flag("--store", "the history, JSON lines; bots may share one", required=True)
def accept(measured: Path, output: Path, reason: str, store: Path) -> None:
    """Make what a check measured the baseline, and say why in the history."""
    from compiler_opt_perf.compare.history import accept

    event = accept(measured, output, store, reason)
    print(f"{output}: accepted; changed: {', '.join(event.changed) or 'nothing'}")


@gate.command(
    "history",
    example="gate history build/gate.jsonl --last=50 --html=build/gate.html",
    json_version=1,
)
@options.path_argument("store", "HISTORY.jsonl", "as `cop gate check --store` writes it")
@options.flag("--last", type=click.IntRange(1), default=20, help="events to show, the latest")
@options.html
def history(store: Path, last: int, html: Path | None) -> Table | None:
    """Show the checks of a history, and what was accepted, with the reasons."""
    from compiler_opt_perf.compare.history import describe, document, events

    found = events(store)[-last:]
    if html is not None:
        # Loads matplotlib.
        from compiler_opt_perf.pages.gate import write_page

        write_page(found, html)
        print(html)
        return None
    return Table(lambda: describe(found), lambda: document(found))
