# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The split of modules: to train on, to choose policies by, and to test the result on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler_opt_perf.run.seeds import derive_seed
from compiler_opt_perf.train.config import Config, Programs
from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.measure import MeasuredModule

#: One to train on, one to choose by and one to test on.
LEAST_MODULES = 3


@dataclass(frozen=True)
class Split:
    """The usable modules of a corpus, each for one purpose.

    Attributes:
      training: stages learn from some of them in each iteration.
      validation: the weights of any iteration that cost least on them are kept.
      test: the published policy is measured on them, once; they influence neither training nor
        choice.
    """

    training: tuple[MeasuredModule, ...]
    validation: tuple[MeasuredModule, ...]
    test: tuple[MeasuredModule, ...]

    @property
    def names(self) -> dict[str, list[str]]:
        """Names of the modules, by purpose."""
        return {
            purpose: [measured.module.name for measured in modules]
            for purpose, modules in vars(self).items()
        }


def usable_modules(
    measured: Sequence[MeasuredModule], *, adds_up: bool
) -> tuple[list[MeasuredModule], dict[str, str]]:
    """The modules on which policies can differ, and by name why each other one is left out.

    Args:
      adds_up: costs are compared as multiples of the default's, which must not be 0
        (`Reward.adds_up`). A score of 0 can be made worse.
    """
    usable = []
    left_out = {}
    for one in measured:
        if one.default.decisions == 0:
            left_out[one.module.name] = "has nothing to decide"
        elif adds_up and one.default.costs.total <= 0:
            # All functions of such a module are defined elsewhere (gnu_inline).
            replayed = one.default.costs.executions is not None
            left_out[one.module.name] = (
                "is not executed in the recorded run" if replayed else "compiles to no code"
            )
        else:
            usable.append(one)
    return usable, left_out


def split_modules(
    usable: Sequence[MeasuredModule], left_out: Mapping[str, str], config: Config
) -> Split:
    """Draws the modules for each purpose from the seed, at least one for each.

    Each iteration compiles all validation modules: modules with more than `max_decisions` are
    taken for validation only when there are no others. Where the configuration names programs,
    nothing is drawn.

    Raises:
      TrainingError: fewer than three modules, or none for a purpose, or of a program that the
        configuration does not name.
    """
    if len(usable) < LEAST_MODULES:
        reasons = "".join(f"\n  {name}: {reason}" for name, reason in sorted(left_out.items())[:10])
        more = f"\n  and {len(left_out) - 10} more" if len(left_out) > 10 else ""
        remedy = "extract more sources" if usable or not left_out else "remove the cause"
        raise TrainingError(
            f"only {len(usable)} usable modules, a training needs at least {LEAST_MODULES}: one "
            f"each to train on, to choose policies by and to test them on; {remedy}"
            + (f". Left out:{reasons}{more}" if left_out else "")
        )
    if config.programs is not None:
        return _by_program(usable, config.programs)
    random = np.random.default_rng(derive_seed(config.seed, "split"))
    order = random.permutation(len(usable)).tolist()
    testing = _count(len(usable), config.test_share, LEAST_MODULES - 1)
    choosing = _count(len(usable), config.validation_share, LEAST_MODULES - 2 + testing)
    test, rest = order[:testing], order[testing:]
    rest.sort(key=lambda i: usable[i].default.decisions > config.max_decisions)
    purposes = (rest[choosing:], rest[:choosing], test)
    return Split(*(tuple(usable[i] for i in sorted(chosen)) for chosen in purposes))


def _by_program(usable: Sequence[MeasuredModule], programs: Programs) -> Split:
    """The modules of the programs that are named for each purpose."""
    unnamed = {one.module.program for one in usable} - set(programs.all)
    if unnamed:
        raise TrainingError(
            f"programs: {', '.join(sorted(unnamed))}: for no purpose; name each program of the "
            "corpus for training, validation or test"
        )
    purposes = {
        purpose: tuple(one for one in usable if one.module.program in names)
        for purpose, names in programs.by_purpose.items()
    }
    empty = [purpose for purpose, modules in purposes.items() if not modules]
    if empty:
        raise TrainingError(f"programs: no usable module for {' and '.join(empty)}")
    return Split(**purposes)


def _count(modules: int, share: float, others: int) -> int:
    """How many modules a share is: at least one, leaving at least `others`."""
    return min(max(round(modules * share), 1), modules - others)
