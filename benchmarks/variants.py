# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Variants of register allocation, whose code `rank` compares."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from compiler_opt_perf.policy.interactive import Decide, Observation

# clang's message where a variant has fewer registers than an instruction needs.
TOO_FEW_REGISTERS = "ran out of registers during register allocation"


def _imitated(observation: Observation) -> int:
    """Nearly the default policy: the lightest live range gives way to a heavier one."""
    features = observation.features
    mask = features["mask"].reshape(-1) > 0
    # NaN is infinity divided by infinity, of live ranges that cannot be spilled.
    weight = np.nan_to_num(features["use_def_density"].reshape(-1), nan=np.inf)
    hints = np.nan_to_num(features["nr_broken_hints"].reshape(-1))
    free = features["is_free"].reshape(-1) > 0
    own = len(mask) - 1
    others = np.flatnonzero(mask[:own])
    if not len(others):
        return own
    best = min(others.tolist(), key=lambda i: (not free[i], hints[i], weight[i]))
    return own if mask[own] and not free[best] and weight[best] >= weight[own] else int(best)


def _heaviest(observation: Observation) -> int:
    """The opposite: the heaviest live range gives way."""
    mask = observation.features["mask"].reshape(-1) > 0
    weight = np.nan_to_num(observation.features["use_def_density"].reshape(-1), nan=2.0)
    return int(np.argmax(np.where(mask, weight, -1.0)))


def _largest(observation: Observation) -> int:
    """The longest live range gives way."""
    mask = observation.features["mask"].reshape(-1) > 0
    size = np.nan_to_num(observation.features["liverange_size"].reshape(-1), nan=0.0)
    return int(np.argmax(np.where(mask, size, -1.0)))


def _never(observation: Observation) -> int:
    """No live range gives way unless one has to."""
    mask = observation.features["mask"].reshape(-1) > 0
    return len(mask) - 1 if mask[-1] else _imitated(observation)


RULES: dict[str, Callable[[Observation], int]] = {
    "imitated": _imitated,
    "heaviest": _heaviest,
    "largest": _largest,
    "never": _never,
}


@dataclass(frozen=True)
class Variant:
    """One way to allocate registers.

    Attributes:
      options: of the code generator.
      rule: name of the rule that decides evictions; None for the compiler's own policy.
      random: share of decisions that are drawn at random instead, uniformly from the admissible.
      seed: of the draws.
    """

    name: str
    options: tuple[str, ...] = ()
    rule: str | None = None
    random: float = 0.0
    seed: int = 1

    def decide(self, module: str) -> Decide:
        """The decision function for one module; its draws do not depend on other modules."""
        assert self.rule is not None
        rule = RULES[self.rule]
        draws = random.Random(f"{self.seed} {module}")

        def decide(observation: Observation) -> int:
            if draws.random() < self.random:
                return int(draws.choice(np.flatnonzero(observation.features["mask"]).tolist()))
            return rule(observation)

        return decide


def _random(share: float, seed: int) -> Variant:
    return Variant(f"random {share:g} ({seed})", rule="imitated", random=share, seed=seed)


VARIANTS: tuple[Variant, ...] = (
    Variant("default"),
    Variant("basic", ("-regalloc=basic",)),
    Variant("spill for size", ("-split-spill-mode=size",)),
    Variant("reversed local", ("-greedy-reverse-local-assignment",)),
    Variant("no region splitting", ("-grow-region-complexity-budget=0",)),
    Variant("first use of saved registers", ("-regalloc-csr-first-time-cost=1000",)),
    Variant("no coalescing", ("-join-liveintervals=0",)),
    Variant("12 registers", ("-stress-regalloc=12",)),
    Variant("10 registers", ("-stress-regalloc=10",)),
    Variant("8 registers", ("-stress-regalloc=8",)),
    Variant("imitated", rule="imitated"),
    Variant("never", rule="never"),
    Variant("largest", rule="largest"),
    Variant("heaviest", rule="heaviest"),
    *(_random(share, 1) for share in (0.05, 0.1, 0.2, 0.5, 1.0)),
)
DEFAULT = VARIANTS[0]
