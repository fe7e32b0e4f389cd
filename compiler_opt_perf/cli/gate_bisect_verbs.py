# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verb that finds what makes a module worse."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from absl import logging
from click import UsageError

from compiler_opt_perf.cli.gate_verbs import (
    BaselineFile,
    CandidateCorpora,
    CandidateModel,
    CandidateProfiles,
    CandidateRelease,
    CandidateToolchain,
    Limits,
    candidate_of,
)

# As a name of this module, too: who takes the group from here has its verb with it.
from compiler_opt_perf.cli.gate_verbs import gate as gate
from compiler_opt_perf.cli.parameters import WORDS, Flag
from compiler_opt_perf.compare.errors import CompareError
from compiler_opt_perf.run.symbol_names import printable, printable_lines
from compiler_opt_perf.toolchain.layout import ToolchainError

if TYPE_CHECKING:
    from compiler_opt_perf.compare.baseline import Setup
    from compiler_opt_perf.compare.bisect import Question
    from compiler_opt_perf.compare.subject import Subject


@gate.verb(
    "bisect",
    example="gate bisect build/baseline.json --model=build/candidate/policy "
    "--module=zstd/lib/zstd --output=build/worse",
)
def bisect(
    baseline: BaselineFile,
    module: Annotated[str, Flag("name of the module that is worse")],
    output: Annotated[Path, Flag("folder to write, which shows by itself what was found")],
    toolchain: CandidateToolchain = None,
    release_toolchain: CandidateRelease = None,
    model: CandidateModel = None,
    profile: CandidateProfiles = (),
    corpus: CandidateCorpora = (),
    limits: Limits = None,
    metric: Annotated[
        Literal["text", "score", "instructions", "cycles", "failures"],
        Flag("what is worse; failures are errors, crashes and time limits alike"),
    ] = "text",
    toolchains: Annotated[
        Sequence[str],
        Flag(
            "folders of several patched tools, the oldest first: the first that makes the module "
            "worse is what is found, with the candidate's policy and profile",
            type=WORDS,
        ),
    ] = (),
    most: Annotated[
        int, Flag("compilations, after which the fewest decisions so far are what was found", low=2)
    ] = 400,
) -> None:
    """Find what makes a module worse: an input, the first of several compilers, or the fewest
    decisions; and write a folder that shows it."""
    from compiler_opt_perf.compare.baseline import read_baseline
    from compiler_opt_perf.compare.bisect import Question, first_worse
    from compiler_opt_perf.compare.limits import DEFAULT, MetricLimits, read_limits
    from compiler_opt_perf.compare.record import load_corpora
    from compiler_opt_perf.compare.reproducer import write_inputs
    from compiler_opt_perf.compare.setup import policy_of

    if toolchains and (toolchain or len(toolchains) < 2):
        raise UsageError("--toolchains: expected two or more, the oldest first, and no --toolchain")
    recorded = read_baseline(baseline)
    allowed = read_limits(limits or DEFAULT)
    candidate = candidate_of(recorded.setup, toolchain, release_toolchain, model, profile)
    # It is copied in the end.
    policy_of(candidate.model)
    corpora = corpus or [Path(word) for word in recorded.setup.corpora]
    modules = {one.name: one for one in load_corpora(corpora)}
    before = {row.name: row for row in recorded.modules}.get(module)
    if before is None or module not in modules:
        raise UsageError(f"--module={module}: the baseline and its corpora have no such one")
    question = Question(before, modules[module], metric, allowed.get(metric, MetricLimits()))
    if toolchains:
        good, bad = first_worse(question, candidate, [Path(one) for one in toolchains])
        write_inputs(question, good, bad, output)
        print(
            f"{module}: {metric} {good.value:g} by {good.what}, {bad.value:g} by {bad.what}: the "
            f"first that makes it worse ({question.asked} compilations)."
        )
    else:
        _find(question, candidate, recorded.setup, most, output)
    print(f"{output}: run reproduce.sh")


def _find(
    question: "Question", candidate: "Subject", setup: "Setup", most: int, output: Path
) -> None:
    """Tells the changed inputs apart, and finds the decisions that are to blame, if any are."""
    from compiler_opt_perf.compare.bisect import (
        FAILURES,
        InputTrial,
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
        whole = InputTrial("the whole candidate", candidate, value, True)
        start = InputTrial("all as in the baseline", before, question.start, False)
        write_inputs(question, start, causes[0] if causes else whole, output)
        return
    found = bisect(question, candidate, most)
    write_decisions(found, candidate, output)
    print(printable_lines(summary(found)))
    for key, decision in found.causes.items():
        print(f"  {found.baseline[key]} -> {decision} {printable(key)}")
