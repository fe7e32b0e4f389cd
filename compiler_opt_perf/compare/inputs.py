# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which of several changed inputs makes a module worse, and which of several compilers was first.

One input at a time is taken from the candidate, with all others as in the baseline.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler_opt_perf.compare.baseline import Artifact, Setup, digest_of
from compiler_opt_perf.compare.errors import CompareError
from compiler_opt_perf.compare.question import Question
from compiler_opt_perf.compare.setup import setup_of
from compiler_opt_perf.compare.subject import Subject, problem_of
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.toolchain.installation import Toolchain


@dataclass(frozen=True)
class Trial:
    """A module with one of the candidate's inputs, or by one of several compilers.

    Attributes:
      what: the input, or the compiler's folder.
      subject: all that the module was compiled with.
      value: of the metric; infinite where the module does not compile.
      is_worse: than the limits allow.
    """

    what: str
    subject: Subject
    value: float
    is_worse: bool


def differing(before: Setup, after: Setup, program: str) -> dict[str, Artifact | None]:
    """The baseline's inputs of a program's modules that differ from the candidate's, by name."""
    theirs = _inputs(after, program)
    return {
        name: one
        for name, one in _inputs(before, program).items()
        if digest_of(one) != digest_of(theirs[name])
    }


def _inputs(setup: Setup, program: str) -> dict[str, Artifact | None]:
    profile = setup.profiles.get(program, setup.profiles.get(""))
    return {"compiler": setup.compiler, "policy": setup.policy, "profile": profile}


def as_before(candidate: Subject, changed: Mapping[str, Artifact | None], program: str) -> Subject:
    """The candidate with these inputs of the baseline.

    Raises:
      CompareError: an input has changed in its place, as a compiler that was built anew.
      ToolchainError: the baseline's compiler lacks a tool.
    """
    for name, artifact in changed.items():
        candidate = _with(candidate, name, None if artifact is None else Path(artifact.path))
    found = _inputs(setup_of(candidate, [], None), program)
    for name, artifact in changed.items():
        if artifact is not None and digest_of(found[name]) != artifact.digest:
            raise CompareError(
                f"{artifact.path}: is not the {name} that the baseline was recorded with any more; "
                "keep that elsewhere than the candidate's, so that one can be put in for the other"
            )
    return candidate


def _with(subject: Subject, name: str, path: Path | None) -> Subject:
    if name == "profile":
        return dataclasses.replace(subject, profiles=Profiles(path))
    assert path is not None
    if name == "policy":
        problem = problem_of(path, subject.problem.name)
        return dataclasses.replace(subject, model=path, problem=problem)
    return dataclasses.replace(subject, toolchain=Toolchain.load(path))


def swap(
    question: Question, before: Subject, candidate: Subject, names: Iterable[str]
) -> list[Trial]:
    """Takes one input at a time from the candidate; raises as `Question.value` does.

    Args:
      before: the candidate with the baseline's inputs.
      names: of the inputs that differ.
    """
    taken: dict[str, Path | None] = {
        "compiler": candidate.toolchain.directory,
        "policy": candidate.model,
        "profile": candidate.profiles.of(question.module.program),
    }
    return [_tried(question, name, _with(before, name, taken[name])) for name in names]


def first_worse(
    question: Question, candidate: Subject, toolchains: Sequence[Path]
) -> tuple[Trial, Trial]:
    """The last of several compilers that is not worse, and the next, which is: a binary search.

    Args:
      toolchains: in order; the first is not worse, the last is, and worse ones follow worse ones.

    Raises:
      CompareError: the first is worse, or the last is not.
      ToolchainError: a toolchain lacks a tool.
    """

    def tried(number: int) -> Trial:
        folder = toolchains[number]
        return _tried(question, str(folder), _with(candidate, "compiler", folder))

    low, high = 0, len(toolchains) - 1
    good, bad = tried(low), tried(high)
    question.require_worse(bad.value)
    if good.is_worse:
        raise CompareError(f"{good.what}: {question.metric.name} is worse: begin with an older one")
    while high - low > 1:
        middle = tried((low + high) // 2)
        if middle.is_worse:
            high, bad = (low + high) // 2, middle
        else:
            low, good = (low + high) // 2, middle
    return good, bad


def _tried(question: Question, what: str, subject: Subject) -> Trial:
    value = question.value(subject)
    return Trial(what, subject, value, question.is_worse(value))
