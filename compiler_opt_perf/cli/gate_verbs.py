# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs of the regression gate, for build bots."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from absl import flags

from compiler_opt_perf.cli.options import (
    cpu_of,
    define_cpu,
    define_path,
    define_problem,
    define_profiles,
    define_toolchain,
    model_folder,
    optional_path,
    required_model_folder,
)
from compiler_opt_perf.cli.verb import Table, UsageError, Verb
from compiler_opt_perf.run.files import sha256, write_json, write_text

if TYPE_CHECKING:
    from compiler_opt_perf.compare.baseline import Setup
    from compiler_opt_perf.compare.record import Work
    from compiler_opt_perf.compare.subject import Subject
    from compiler_opt_perf.corpus.profiles import Profiles

#: The status of a candidate that is worse than the limits allow.
EXIT_WORSE = 3
_REPETITIONS = 3
_TIMEOUT_S = 300.0
_MEMORY_MIB = 8192


def _define_work(values: flags.FlagValues) -> None:
    flags.DEFINE_integer(
        "workers", 0, "processes that compile; 0: one a core", lower_bound=0, flag_values=values
    )
    flags.DEFINE_string(
        "work",
        None,
        "folder for what an interrupted run has done, which the next one goes on from; by default "
        "beside the baseline, and removed at the end",
        flag_values=values,
    )


def _work(values: Any, baseline: Path) -> "Work":
    from compiler_opt_perf.compare.record import Work

    beside = baseline.with_name(f"{baseline.name}.work")
    return Work(optional_path(values, "work") or beside, values.workers or None)


# cop gate record


def _define_record(values: flags.FlagValues) -> None:
    define_problem(values)
    define_path(values, "model", "the policy's folder, as `cop train` writes it")
    define_path(values, "output", "the baseline to write, JSON")
    define_toolchain(values, "toolchain", "dev")
    define_path(
        values,
        "release_toolchain",
        "folder of the patched tools that have the policy compiled in; with it, release mode is "
        "compared with development mode",
        required=False,
    )
    define_profiles(values)
    flags.DEFINE_multi_string(
        "trace",
        [],
        "PROGRAM=RUN: block trace or window histogram of a recorded run of the program, which its "
        "modules are compiled for (docs/cost.md) and replayed with; for regalloc-evict",
        flag_values=values,
    )
    define_cpu(values, "for the cycles of these runs")
    flags.DEFINE_enum(
        "compile_time",
        "auto",
        ["auto", "instructions", "processor-time", "none"],
        "what to measure of the compiler's work, as cop compare does; none leaves it out",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "repetitions",
        _REPETITIONS,
        "compilations of each module, so that the noise is known",
        lower_bound=2,
        upper_bound=1000,
        flag_values=values,
    )
    flags.DEFINE_float(
        "timeout",
        _TIMEOUT_S,
        "seconds that one compilation may take",
        lower_bound=0.001,
        flag_values=values,
    )
    flags.DEFINE_integer(
        "memory",
        _MEMORY_MIB,
        "MiB of address space that one compilation may take",
        lower_bound=1,
        flag_values=values,
    )
    _define_work(values)


def _record(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.compare.baseline import write_baseline
    from compiler_opt_perf.compare.record import load_corpora, record
    from compiler_opt_perf.compare.subject import Subject, problem_of
    from compiler_opt_perf.corpus.profiles import Profiles
    from compiler_opt_perf.toolchain.installation import Toolchain

    if not arguments:
        raise UsageError("expected folders of corpora, as `cop corpus extract` writes them")
    model = required_model_folder(values, "model").absolute()
    release = optional_path(values, "release_toolchain")
    candidate = Subject(
        problem_of(model, values.problem),
        Toolchain.load(Path(values.toolchain)),
        None if release is None else Toolchain.load(release),
        model,
        Profiles.parse(values.profile).absolute(),
        repetitions=values.repetitions,
        timeout_s=values.timeout,
        memory_mib=values.memory,
        traces=_traces(values),
        cpu=cpu_of(values),
    )
    if candidate.traces and not candidate.problem.keeps_blocks:
        raise UsageError(
            f"--trace: decisions of {values.problem} change the functions and blocks that a "
            "recorded run is of"
        )
    if candidate.cpu is not None and not candidate.traces:
        raise UsageError("--cpu is for the cycles of recorded runs: give --trace, too")
    corpora, output = [Path(word) for word in arguments], Path(values.output)
    modules, work = load_corpora(corpora), _work(values, output)
    measured = record(candidate, corpora, modules, values.compile_time, work)
    write_baseline(measured, output)
    failed = sum(not run.is_ok for run in measured.modules)
    print(f"{output}: {len(measured.modules)} modules, {failed} of which do not compile")


def _traces(values: Any) -> dict[str, Path]:
    """The recorded runs by program. Raises UsageError."""
    from compiler_opt_perf.corpus.profiles import by_program

    common, programs = by_program("--trace", values.trace)
    if common is not None:
        raise UsageError(f"--trace={common}: expected PROGRAM=FILE: of which program is it?")
    return {program: path.absolute() for program, path in programs.items()}


# cop gate check


def define_candidate(values: flags.FlagValues) -> None:
    """Flags of what is compared with a baseline."""
    what = "of the candidate; by default that of the baseline"
    for name, of in (
        ("toolchain", "folder of the patched tools"),
        ("release_toolchain", "folder of the tools that have the policy compiled in"),
        ("model", "the policy's folder"),
    ):
        define_path(values, name, f"{of} {what}", required=False)
    flags.DEFINE_multi_string(
        "profile",
        [],
        "PMU profile manifest of all modules, or PROGRAM=MANIFEST; without, those of the baseline",
        flag_values=values,
    )
    flags.DEFINE_multi_string(
        "corpus",
        [],
        "folder of a corpus, where the baseline's are not in their place any more",
        flag_values=values,
    )
    define_path(
        values, "limits", "limits, TOML; by default those of `cop gate limits`", required=False
    )


def _define_check(values: flags.FlagValues) -> None:
    define_candidate(values)
    define_path(values, "junit", "write the result to this file, too, JUnit XML", required=False)
    define_path(values, "markdown", "write the result to this file, too, Markdown", required=False)
    define_path(values, "lnt", "write a report for LNT's server to this file, too", required=False)
    define_path(
        values,
        "measured",
        "write what was measured to this file, too: `cop gate accept` makes it the baseline",
        required=False,
    )
    define_path(
        values,
        "store",
        "add the result to this history, JSON lines; bots may share one",
        required=False,
    )
    _define_work(values)


def _check(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.compare import check_tables as tables
    from compiler_opt_perf.compare.baseline import read_baseline, write_baseline
    from compiler_opt_perf.compare.check import check, to_json
    from compiler_opt_perf.compare.history import add, event_of
    from compiler_opt_perf.compare.limits import DEFAULT, read_limits
    from compiler_opt_perf.compare.record import load_corpora, record, same_modules
    from compiler_opt_perf.compare.setup import effort_of

    if len(arguments) != 1:
        raise UsageError("expected one baseline, as `cop gate record` writes it")
    path = Path(arguments[0])
    baseline, digest = read_baseline(path), sha256(path)
    limits = read_limits(optional_path(values, "limits") or DEFAULT)
    corpora = [Path(word) for word in values.corpus or baseline.setup.corpora]
    candidate = candidate_of(values, baseline.setup)
    modules = load_corpora(corpora)
    same_modules(baseline, modules)
    work = _work(values, path)
    measured = record(candidate, corpora, modules, effort_of(baseline.setup), work)
    result = check(baseline, measured, limits)
    for name, write in (("junit", tables.junit), ("markdown", tables.markdown)):
        output = optional_path(values, name)
        if output is not None:
            write_text(output, write(result))
    if values.lnt:
        write_json(Path(values.lnt), tables.lnt(measured))
    if values.measured:
        write_baseline(msgspec.structs.replace(measured, against=digest), Path(values.measured))
    if values.store:
        add(Path(values.store), event_of("check", result, measured))
    return Table(
        lambda: tables.describe(result),
        lambda: to_json(result),
        EXIT_WORSE if result.worse else 0,
    )


def candidate_of(values: Any, setup: "Setup") -> "Subject":
    """What the flags name, and the baseline's where they name nothing. Raises CompareError."""
    from compiler_opt_perf.compare.setup import same_runs
    from compiler_opt_perf.compare.subject import Subject, problem_of
    from compiler_opt_perf.toolchain.installation import Toolchain

    same_runs(setup)
    model = (model_folder(values, "model") or Path(setup.policy.path)).absolute()
    release = optional_path(values, "release_toolchain")
    if release is None and setup.release is not None:
        release = Path(setup.release.path)
    return Subject(
        problem_of(model, setup.problem),
        Toolchain.load(Path(values.toolchain or setup.compiler.path)),
        None if release is None else Toolchain.load(release),
        model,
        _profiles(values, setup),
        repetitions=setup.repetitions,
        timeout_s=setup.timeout_s,
        memory_mib=setup.memory_mib,
        traces={program: Path(one.path) for program, one in setup.traces.items()},
        cpu=None if setup.cpu is None else Path(setup.cpu.path),
    )


def _profiles(values: Any, setup: "Setup") -> "Profiles":
    """Those of the flags; programs that these do not name keep the baseline's."""
    from compiler_opt_perf.corpus.profiles import Profiles

    given = Profiles.parse(values.profile).absolute()
    if given.common is not None:
        return given
    before = {program: Path(one.path) for program, one in setup.profiles.items()}
    common = before.pop("", None)
    return Profiles(common, {**before, **given.programs})


# cop gate limits


def _define_nothing(values: flags.FlagValues) -> None:
    del values


def _limits(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.compare.limits import DEFAULT

    print(DEFAULT.read_text(encoding="utf-8"), end="")


VERBS: tuple[Verb, ...] = (
    Verb(
        "gate record",
        "Measure a compiler with a policy on corpora: the baseline that candidates must keep.",
        "gate record build/demo/corpus/inline-size/held_out --problem=inline-size"
        " --model=build/demo/inline-size/policy --profile=build/demo/zstd.pmu.json"
        " --output=build/baseline.json",
        _define_record,
        _record,
        arguments="CORPUS...",
    ),
    Verb(
        "gate check",
        "Compare a candidate (compiler, policy, profile, or all) with a baseline, within limits.",
        "gate check build/baseline.json --model=build/candidate/policy --junit=build/gate.xml",
        _define_check,
        _check,
        arguments="BASELINE.json",
        statuses={EXIT_WORSE: "the candidate is worse than the limits allow"},
        json_version=1,
    ),
    Verb(
        "gate limits",
        "Print the limits that cop gate check has by default, a TOML file to be changed.",
        "gate limits",
        _define_nothing,
        _limits,
    ),
)
