# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs of the regression gate, for build bots."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import click
from click import UsageError

from compiler_opt_perf.cli import options
from compiler_opt_perf.cli.options import cpu_of, model_folder, problem_name, required_model_folder
from compiler_opt_perf.cli.parameters import TOOLCHAIN, Argument, Flag
from compiler_opt_perf.cli.verb import Group, Table
from compiler_opt_perf.run.files import sha256, write_json, write_text

if TYPE_CHECKING:
    from compiler_opt_perf.compare.baseline import Setup
    from compiler_opt_perf.compare.record import Work
    from compiler_opt_perf.compare.subject import Subject
    from compiler_opt_perf.corpus.profiles import Profiles

gate = Group("gate", help="The regression gate: a baseline, and candidates that must keep it.")

#: The status of a candidate that is worse than the limits allow.
EXIT_WORSE = 3

BaselineFile = Annotated[Path, Argument("BASELINE.json", "as `cop gate record` writes it")]
_Work = Annotated[
    Path | None,
    Flag(
        "folder for what an interrupted run has done, which the next one goes on from; by default "
        "beside the baseline, and removed at the end"
    ),
]
# What is compared with a baseline.
CandidateToolchain = Annotated[
    Path | None,
    Flag(
        "folder or name of the candidate's patched tools; by default the baseline's", type=TOOLCHAIN
    ),
]
CandidateRelease = Annotated[
    Path | None,
    Flag("those that have the policy compiled in; by default the baseline's", type=TOOLCHAIN),
]
CandidateModel = Annotated[Path | None, Flag("the candidate's policy; by default the baseline's")]
CandidateProfiles = Annotated[
    Sequence[str],
    Flag("PMU profile manifest of all modules, or PROGRAM=MANIFEST; by default the baseline's"),
]
CandidateCorpora = Annotated[
    Sequence[Path],
    Flag("folder of a corpus, where the baseline's are not in their place any more"),
]
Limits = Annotated[Path | None, Flag("limits, TOML; by default those of `cop gate limits`")]


def _work(folder: Path | None, workers: int, baseline: Path) -> "Work":
    from compiler_opt_perf.compare.record import Work

    beside = baseline.with_name(f"{baseline.name}.work")
    return Work(folder or beside, workers or None)


@gate.verb(
    "record",
    example="gate record --corpus=corpus/held_out "
    "--model=trainings/inline-size/policy --profile=zstd.pmu.json "
    "--output=build/baseline.json",
)
def record(
    corpus: Annotated[
        Sequence[Path], Flag("folder of a corpus, as `cop corpus extract` writes it; once for each")
    ],
    model: Annotated[
        Path,
        Flag(
            "the policy: a folder, as `cop train policy` writes it, or the name of one in models/"
        ),
    ],
    output: Annotated[Path, Flag("the baseline to write, JSON")],
    problem: options.ProblemOfModel = None,
    toolchain: options.Toolchain = options.DEV,
    release_toolchain: Annotated[
        Path | None,
        Flag(
            "folder or name of the patched tools that have the policy compiled in; with it, "
            "release mode is compared with development mode",
            type=TOOLCHAIN,
        ),
    ] = None,
    profile: options.Profiles = (),
    trace: Annotated[
        Sequence[str],
        Flag(
            "PROGRAM=RUN: block trace or window histogram of a recorded run of the program, "
            "which its modules are compiled for (docs/cost.md) and replayed with; for "
            "regalloc-evict"
        ),
    ] = (),
    cpu: Annotated[str | None, options.cpu("for the cycles of these runs")] = None,
    compile_time: Annotated[
        Literal["auto", "instructions", "processor-time", "none"],
        Flag(
            "what to measure of the compiler's work, as cop compare policy does; none leaves it out"
        ),
    ] = "auto",
    repetitions: Annotated[
        int, Flag("compilations of each module, so that the noise is known", low=2, high=1000)
    ] = 3,
    timeout: Annotated[
        float, Flag("seconds that one compilation may take", type=click.FloatRange(0.001))
    ] = 300.0,
    memory: Annotated[
        int, Flag("MiB of address space that one compilation may take", low=1)
    ] = 8192,
    workers: options.Workers = 0,
    work: _Work = None,
) -> None:
    """Measure a compiler with a policy on corpora: the baseline that candidates must keep."""
    from compiler_opt_perf.compare.baseline import write_baseline
    from compiler_opt_perf.compare.errors import CompareError
    from compiler_opt_perf.compare.record import load_corpora, record
    from compiler_opt_perf.compare.subject import Subject, problem_of
    from compiler_opt_perf.corpus.profiles import Profiles
    from compiler_opt_perf.toolchain.installation import Toolchain

    model = required_model_folder(model).absolute()
    problem = problem_name(problem, model)
    profiles = Profiles.parse(profile).absolute()
    candidate = Subject(
        problem_of(model, problem, profiles),
        Toolchain.load(toolchain),
        None if release_toolchain is None else Toolchain.load(release_toolchain),
        model,
        profiles,
        repetitions=repetitions,
        timeout_s=timeout,
        memory_mib=memory,
        traces=_traces(trace),
        cpu=cpu_of(cpu),
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
    failed = [run for run in measured.modules if not run.is_ok]
    if failed and len(failed) == len(measured.modules):
        raise CompareError(
            f"none of the {len(failed)} modules compiles, so there is no baseline to keep; "
            f"{failed[0].name}: {failed[0].message}"
        )
    write_baseline(measured, output)
    print(f"{output}: {len(measured.modules)} modules, {len(failed)} of which do not compile")
    if failed:
        print(f"the first of these, {failed[0].name}: {failed[0].message}")


def _traces(words: Sequence[str]) -> dict[str, Path]:
    """The recorded runs by program. Raises UsageError."""
    from compiler_opt_perf.corpus.profiles import by_program

    common, programs = by_program("--trace", words)
    if common is not None:
        raise UsageError(f"--trace={common}: expected PROGRAM=FILE: of which program is it?")
    return {program: path.absolute() for program, path in programs.items()}


@gate.verb(
    "check",
    example="gate check build/baseline.json --model=build/candidate/policy --junit=build/gate.xml",
    statuses={EXIT_WORSE: "the candidate is worse than the limits allow"},
    json_version=1,
)
def check(
    baseline: BaselineFile,
    toolchain: CandidateToolchain = None,
    release_toolchain: CandidateRelease = None,
    model: CandidateModel = None,
    profile: CandidateProfiles = (),
    corpus: CandidateCorpora = (),
    limits: Limits = None,
    junit: Annotated[Path | None, Flag("write the result to this file, too, JUnit XML")] = None,
    markdown: Annotated[Path | None, Flag("write the result to this file, too, Markdown")] = None,
    lnt: Annotated[Path | None, Flag("write a report for LNT's server to this file, too")] = None,
    measured: Annotated[
        Path | None,
        Flag("write what was measured to this file, too: `cop gate accept` makes it the baseline"),
    ] = None,
    store: Annotated[
        Path | None, Flag("add the result to this history, JSON lines; bots may share one")
    ] = None,
    workers: options.Workers = 0,
    work: _Work = None,
) -> Table:
    """Compare a candidate (compiler, policy, profile, or all) with a baseline, within limits."""
    import msgspec

    from compiler_opt_perf.compare import check_tables as tables
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
) -> "Subject":
    """What the flags name, and the baseline's where they name nothing. Raises CompareError."""
    from compiler_opt_perf.compare.setup import same_runs
    from compiler_opt_perf.compare.subject import Subject, problem_of
    from compiler_opt_perf.toolchain.installation import Toolchain

    same_runs(setup)
    model = (model_folder(model) or Path(setup.policy.path)).absolute()
    profiles = _profiles(profile, setup)
    if release is None and setup.release is not None:
        release = Path(setup.release.path)
    return Subject(
        problem_of(model, setup.problem, profiles),
        Toolchain.load(toolchain or Path(setup.compiler.path)),
        None if release is None else Toolchain.load(release),
        model,
        profiles,
        repetitions=setup.repetitions,
        timeout_s=setup.timeout_s,
        memory_mib=setup.memory_mib,
        traces={program: Path(one.path) for program, one in setup.traces.items()},
        cpu=None if setup.cpu is None else Path(setup.cpu.path),
    )


def _profiles(words: Sequence[str], setup: "Setup") -> "Profiles":
    """The profiles that flags name; other programs keep the baseline's profiles."""
    from compiler_opt_perf.corpus.profiles import Profiles

    given = Profiles.parse(words).absolute()
    if given.common is not None:
        return given
    before = {program: Path(one.path) for program, one in setup.profiles.items()}
    common = before.pop("", None)
    return Profiles(common, {**before, **given.programs})


@gate.verb("limits", example="gate limits")
def limits() -> None:
    """Print the limits that cop gate check has by default, a TOML file to be changed."""
    from compiler_opt_perf.compare.limits import DEFAULT

    print(DEFAULT.read_text(encoding="utf-8"), end="")


@gate.verb(
    "accept",
    example="gate accept build/measured.json --output=build/baseline.json "
    "--store=build/gate.jsonl --reason='smaller by 2%, one module is larger'",
)
def accept(
    measured: Annotated[
        Path, Argument("MEASURED.json", "as `cop gate check --measured` writes it")
    ],
    output: Annotated[Path, Flag("the baseline to write")],
    reason: Annotated[str, Flag("why the candidate may be as it is, for the history")],
    store: Annotated[Path, Flag("the history, JSON lines; bots may share one")],
) -> None:
    """Make what a check measured the baseline, and say why in the history."""
    from compiler_opt_perf.compare.history import accept

    event = accept(measured, output, store, reason)
    print(f"{output}: accepted; changed: {', '.join(event.changed) or 'nothing'}")


@gate.verb(
    "history",
    example="gate history build/gate.jsonl --last=50 --html=build/gate.html",
    json_version=1,
)
def history(
    store: Annotated[Path, Argument("HISTORY.jsonl", "as `cop gate check --store` writes it")],
    last: Annotated[int, Flag("events to show, the latest", low=1)] = 20,
    html: options.Html = None,
) -> Table | None:
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
