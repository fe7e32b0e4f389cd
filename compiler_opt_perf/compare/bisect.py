# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds what makes a module worse: an input, the first of several compilers, or decisions."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from absl import logging

from compiler_opt_perf.compare.baseline import (
    Artifact,
    Detail,
    ModuleRow,
    Setup,
    detail_of,
    digest_of,
)
from compiler_opt_perf.compare.errors import CompareError
from compiler_opt_perf.compare.limits import MetricLimits
from compiler_opt_perf.compare.measure import MeasureJob, fingerprint, measure
from compiler_opt_perf.compare.metrics import METRICS
from compiler_opt_perf.compare.setup import setup_of
from compiler_opt_perf.compare.subject import REPLAYED, Subject, problem_of
from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.run.command import CommandError
from compiler_opt_perf.toolchain.installation import Toolchain

#: The metric of any failure of the compiler: an error, a crash or a time limit.
FAILURES = "failures"


class Question:
    """Whether one module is worse than allowed by one metric.

    Attributes:
      module: is compiled.
      before: its row in the baseline.
      metric: is the same in each compilation: "text", "score", "instructions", "cycles", FAILURES.
      start: the baseline's value.
      allowed: how much worse a module may be.
      asked: compilations so far.
    """

    def __init__(self, before: ModuleRow, module: Module, metric: str, limits: MetricLimits):
        """Asks of one module.

        Args:
          limits: of the metric; the limit of modules counts.

        Raises:
          CompareError: the module did not compile in the baseline, has no such metric there, or is
            another one.
        """
        if not before.is_ok:
            raise CompareError(f"{before.name}: did not compile in the baseline: {before.message}")
        if before.digest != fingerprint(module):
            raise CompareError(f"{module.name}: is another module than in the baseline; record one")
        (self.metric,) = (one for one in METRICS if one.name == metric)
        self.module, self.before, self.asked = module, before, 0
        values = self.metric.values([(before, before)])
        if values is None:
            raise CompareError(f"{module.name}: has no {metric} in the baseline")
        self.start = values[0]
        self.allowed = limits.allowed("module", self.start, 0.0) or 0.0

    def ask(
        self, subject: Subject, decisions: Mapping[str, int] = MappingProxyType({})
    ) -> tuple[float, Detail]:
        """The metric with some decisions given, and the detail of the module.

        Raises:
          CommandError: the module does not compile.
          CompareError: the recorded run cannot be replayed.
          LogError, ObjectFileError, RemarksError: the compiler left a damaged file.
        """
        self.asked += 1
        replay = tuple(name for name in REPLAYED if name == self.metric.name)
        once = dataclasses.replace(subject, repetitions=1, release=None)
        row = measure(MeasureJob(self.module, once, decisions=decisions, replay=replay))
        values = self.metric.values([(self.before, row)])
        if values is None:
            problem = row.unreplayed or f"has no {self.metric.name} to compare"
            raise CompareError(f"{self.module.name}: {problem}")
        return values[1], detail_of(row)

    def value(self, subject: Subject) -> float:
        """The metric; where the module does not compile, 1 of FAILURES, infinite of others.

        Raises as `ask` does, but for CommandError.
        """
        try:
            return self.ask(subject)[0]
        except CommandError as error:
            logging.info("%s: %s", self.module.name, error)
            return 1.0 if self.metric.name == FAILURES else math.inf

    def is_worse(self, value: float) -> bool:
        """Than the limits allow."""
        return value - self.start > self.allowed

    def require_worse(self, value: float) -> None:
        """Raises CompareError where there is nothing to find."""
        if not self.is_worse(value):
            raise CompareError(
                f"{self.module.name}: {self.metric.name} is {value:g}, {self.start:g} in the "
                f"baseline: no worse than the {self.allowed:g} that the limits allow a module; "
                "name one that is, or other limits"
            )


@dataclass(frozen=True)
class InputTrial:
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
        problem = problem_of(path, subject.problem.name, subject.profiles)
        return dataclasses.replace(subject, model=path, problem=problem)
    return dataclasses.replace(subject, toolchain=Toolchain.load(path))


def swap(
    question: Question, before: Subject, candidate: Subject, names: Iterable[str]
) -> list[InputTrial]:
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
) -> tuple[InputTrial, InputTrial]:
    """The last of several compilers that is not worse, and the next, which is: a binary search.

    Args:
      toolchains: in order; the first is not worse, the last is, and worse ones follow worse ones.

    Raises:
      CompareError: the first is worse, or the last is not.
      ToolchainError: a toolchain lacks a tool.
    """

    def tried(number: int) -> InputTrial:
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


def _tried(question: Question, what: str, subject: Subject) -> InputTrial:
    value = question.value(subject)
    return InputTrial(what, subject, value, question.is_worse(value))


@dataclass(frozen=True)
class Bisection:
    """The decisions that make a module worse.

    Attributes:
      question: what is worse.
      after: the metric with the candidate.
      differing: number of decisions that baseline and candidate take differently.
      baseline: decisions by key, as the baseline takes them; those that it does not know, as the
        candidate does.
      causes: the fewest decisions of the candidate that are worse than allowed, with all others as
        in the baseline. It is empty where the baseline's decisions are worse, too.
      value: the metric with these.
      minimal: whether none of them can be left out.
      compilations: how many it took.
    """

    question: Question
    after: float
    differing: int
    baseline: Mapping[str, int]
    causes: Mapping[str, int]
    value: float
    minimal: bool
    compilations: int


class _ExhaustedError(Exception):
    """No further compilation is allowed."""


def bisect(question: Question, candidate: Subject, most: int) -> Bisection:
    """Finds the fewest decisions that make one module worse, by delta debugging.

    Some decisions are taken as the candidate does, all others as in the baseline (-mlgo-decisions).

    Args:
      question: of a metric that decisions can make worse.
      most: compilations, after which the fewest decisions so far are returned.

    Raises:
      CompareError: the module is not worse than allowed; and as `Question.ask` raises.
    """
    module = question.module
    after, detail = question.ask(candidate)
    question.require_worse(after)
    mine = detail_of(question.before).decisions
    known = {**detail.decisions, **mine}
    differing = [
        key for key, decision in detail.decisions.items() if mine.get(key, decision) != decision
    ]

    @functools.cache
    def is_worse_with(keys: frozenset[str]) -> bool:
        if question.asked >= most:
            raise _ExhaustedError
        chosen = {key: detail.decisions[key] for key in keys}
        try:
            return question.is_worse(question.ask(candidate, {**known, **chosen})[0])
        except CommandError as error:
            # An eviction may rule another out. The compiler refuses the mix, which tells nothing.
            logging.info("%s: %d decisions cannot be mixed: %s", module.name, len(keys), error)
            return False

    def is_worse(keys: Sequence[str]) -> bool:
        return is_worse_with(frozenset(keys))

    best = list(differing)
    minimal = True

    def keep(keys: Sequence[str]) -> None:
        best[:] = keys
        logging.info("%s: %d decisions are enough", module.name, len(keys))

    try:
        if is_worse([]):
            best = []
        else:
            minimize(differing, is_worse, keep)
    except _ExhaustedError:
        minimal = False
    causes = {key: detail.decisions[key] for key in best}
    value, _ = question.ask(candidate, {**known, **causes})
    return Bisection(question, after, len(differing), known, causes, value, minimal, question.asked)


def minimize(
    items: Sequence[str],
    fails: Callable[[Sequence[str]], bool],
    keep: Callable[[Sequence[str]], None] = lambda items: None,
) -> list[str]:
    """The fewest items that fail together: none of them can be left out.

    This is ddmin of Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input",
    IEEE TSE 28(2), 2002.

    Args:
      items: fail together.
      fails: whether some items fail; it is asked often for the same items.
      keep: is told each smaller set that fails.
    """
    left, parts = list(items), 2
    while len(left) > 1:
        size = -(-len(left) // parts)
        chunks = [left[i : i + size] for i in range(0, len(left), size)]
        rests = [[one for one in left if one not in set(chunk)] for chunk in chunks]
        found = next((chunk for chunk in chunks if fails(chunk)), None)
        if found is not None:
            left, parts = found, 2
        else:
            # With two parts, the rest of one is the other.
            rest = next((rest for rest in rests if fails(rest)), None) if len(chunks) > 2 else None
            if rest is not None:
                left, parts = rest, max(parts - 1, 2)
            elif parts >= len(left):
                break
            else:
                parts = min(2 * parts, len(left))
                continue
        keep(left)
    return left
