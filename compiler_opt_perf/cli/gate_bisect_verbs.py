# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verb that finds what makes a module worse."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags, logging

from compiler_opt_perf.cli.gate_verbs import candidate_of, define_candidate
from compiler_opt_perf.cli.options import define_path, optional_path
from compiler_opt_perf.cli.verb import UsageError, Verb
from compiler_opt_perf.compare.errors import CompareError
from compiler_opt_perf.run.symbol_names import printable, printable_lines
from compiler_opt_perf.toolchain.layout import ToolchainError

if TYPE_CHECKING:
    from compiler_opt_perf.compare.baseline import Setup
    from compiler_opt_perf.compare.bisect import Question
    from compiler_opt_perf.compare.subject import Subject

_MOST_COMPILATIONS = 400


def _define_bisect(values: flags.FlagValues) -> None:
    define_path(values, "module", "name of the module that is worse")
    define_path(values, "output", "folder to write, which shows by itself what was found")
    define_candidate(values)
    flags.DEFINE_enum(
        "metric",
        "text",
        ["text", "score", "instructions", "cycles", "failures"],
        "what is worse; failures are errors, crashes and time limits alike",
        flag_values=values,
    )
    flags.DEFINE_list(
        "toolchains",
        [],
        "folders of several patched tools, the oldest first: the first that makes the module worse "
        "is what is found, with the candidate's policy and profile",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "most",
        _MOST_COMPILATIONS,
        "compilations, after which the fewest decisions so far are what was found",
        lower_bound=2,
        flag_values=values,
    )


def _bisect(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.compare.baseline import read_baseline
    from compiler_opt_perf.compare.bisect import Question, first_worse
    from compiler_opt_perf.compare.limits import DEFAULT, MetricLimits, read_limits
    from compiler_opt_perf.compare.record import load_corpora
    from compiler_opt_perf.compare.reproducer import write_inputs
    from compiler_opt_perf.compare.setup import policy_of

    if len(arguments) != 1:
        raise UsageError("expected one baseline, as `cop gate record` writes it")
    if values.toolchains and (values.toolchain or len(values.toolchains) < 2):
        raise UsageError("--toolchains: expected two or more, the oldest first, and no --toolchain")
    baseline = read_baseline(Path(arguments[0]))
    limits = read_limits(optional_path(values, "limits") or DEFAULT)
    candidate = candidate_of(values, baseline.setup)
    # It is copied in the end.
    policy_of(candidate.model)
    corpora = [Path(word) for word in values.corpus or baseline.setup.corpora]
    modules = {module.name: module for module in load_corpora(corpora)}
    before = {row.name: row for row in baseline.modules}.get(values.module)
    if before is None or values.module not in modules:
        raise UsageError(f"--module={values.module}: the baseline and its corpora have no such one")
    limit = limits.get(values.metric, MetricLimits())
    question = Question(before, modules[values.module], values.metric, limit)
    output = Path(values.output)
    if values.toolchains:
        good, bad = first_worse(question, candidate, [Path(one) for one in values.toolchains])
        write_inputs(question, good, bad, output)
        print(
            f"{values.module}: {values.metric} {good.value:g} by {good.what}, {bad.value:g} by "
            f"{bad.what}: the first that makes it worse ({question.asked} compilations)."
        )
    else:
        _find(question, candidate, baseline.setup, values.most, output)
    print(f"{output}: run reproduce.sh")


def _find(
    question: "Question", candidate: "Subject", setup: "Setup", most: int, output: Path
) -> None:
    """Tells the changed inputs apart, and finds the decisions that are to blame, if any are."""
    from compiler_opt_perf.compare.bisect import (
        FAILURES,
        Trial,
        as_before,
        bisect,
        differing,
        swap,
    )
    from compiler_opt_perf.compare.reproducer import summary, write_decisions, write_inputs
    from compiler_opt_perf.compare.setup import setup_of

    name, metric = question.module.name, question.metric.name
    value = question.value(candidate)
    question.require_worse(value)
    print(f"{name}: {metric} {question.start:g} -> {value:g}.")
    changed = differing(setup, setup_of(candidate, [], None), question.module.program)
    try:
        before = as_before(candidate, changed, question.module.program)
        trials = swap(question, before, candidate, changed)
    except (CompareError, ToolchainError) as error:
        # Decisions can be told apart without what is not there any more.
        if metric == FAILURES:
            raise
        logging.warning("%s", error)
        trials = []
    for trial in trials:
        verdict = "worse" if trial.is_worse else "no worse"
        print(f"  the candidate's {trial.what} alone: {trial.value:g}, {verdict}")
    causes = [trial for trial in trials if trial.is_worse]
    if len(trials) > 1 and not causes:
        print("  no input alone is the cause, but several together")
    if metric == FAILURES or {one.what for one in causes} == {"compiler"}:
        whole = Trial("the whole candidate", candidate, value, True)
        start = Trial("all as in the baseline", before, question.start, False)
        write_inputs(question, start, causes[0] if causes else whole, output)
        return
    found = bisect(question, candidate, most)
    write_decisions(found, candidate, output)
    print(printable_lines(summary(found)))
    for key, decision in found.causes.items():
        print(f"  {found.baseline[key]} -> {decision} {printable(key)}")


VERBS: tuple[Verb, ...] = (
    Verb(
        "gate bisect",
        "Find what makes a module worse: an input, the first of several compilers, or the fewest "
        "decisions; and write a folder that shows it.",
        "gate bisect build/baseline.json --model=build/candidate/policy --module=zstd/lib/zstd"
        " --output=build/worse",
        _define_bisect,
        _bisect,
        arguments="BASELINE.json",
    ),
)
