# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A rule of two numbers for the first use of callee-saved registers, and its network.

The compiler's own policy takes a callee-saved register whenever one is free, however seldom the
live range is used. The rule splits or spills the live range instead, if what that adds is little
both by the compiler's estimate and by the executions of a PMU profile. What the profile knows
nothing of is left to the compiler, and so are all evictions.

A network makes the rule a policy like any other, as that of `inlining_rule`. It decides as the rule
does but for numbers so close to one of the rule's that the grid does not tell them apart.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler_opt_perf.policy.encoding import (
    GRID,
    FloatArray,
    Normalisation,
    compress_one,
    scored_features,
)
from compiler_opt_perf.policy.network import Network
from compiler_opt_perf.policy.problem import PROBLEMS

_PROBLEM = PROBLEMS["regalloc-evict"]
_COST, _EXECUTIONS = "alternative_cost", "pmu_alternative_executions"
_IS_QUESTION = ("alternative_is_split", "alternative_is_spill")
# So that a bias and the mark of the idle column reach the largest number of the rule.
_EXECUTIONS_SCALE = 0.25
# Neurons of the first layer: what speaks against the alternative. Each is 0, or GRID at least.
_DEAR, _OFTEN, _UNKNOWN, _NO_QUESTION, _NOT_IDLE = range(5)


@dataclass(frozen=True)
class CalleeSavedRule:
    """The rule: instructions that the alternative adds per entry of the function, below both.

    Attributes:
      price: by block frequencies; 2 to 1024.
      measured: by the profile; 0.25 to 30.
    """

    price: float = 16.0
    measured: float = 8.0

    def __call__(self, inputs: Mapping[str, Any]) -> Any:
        """Whether to take the alternative to a callee-saved register.

        Args:
          inputs: by feature, of the alternative's column; numbers or arrays.
        """
        known = inputs[_EXECUTIONS]
        cheap = inputs[_COST] < np.log2(self.price)
        return cheap & (known >= 0) & (known < self._executions)

    @property
    def _executions(self) -> float:
        """The feature's value from which on there are too many."""
        return float(np.log2(1 + 1024 * self.measured))

    def network(self) -> tuple[Network, FloatArray]:
        """The network and its weights, float32 [size].

        Raises:
          ValueError: a number of the rule is out of range.
        """
        if not 2 <= self.price <= 1024:
            raise ValueError(f"price of {self.price}: expected 2 to 1024 instructions an entry")
        if not 0.25 <= self.measured <= 30:
            raise ValueError(f"measured {self.measured}: expected 0.25 to 30 instructions an entry")
        features = scored_features(_PROBLEM, with_pmu=True)
        index = {feature.name: number for number, feature in enumerate(features)}
        idle = len(features)
        center = np.zeros(len(features), np.float32)
        scale = np.ones(len(features), np.float32)

        def encoded(name: str, value: float) -> float:
            logarithm = compress_one(features[index[name]], value)
            return float(np.rint(logarithm * scale[index[name]] / GRID) * GRID)

        center[index[_COST]] = encoded(_COST, float(np.log2(self.price)))
        scale[index[_EXECUTIONS]] = _EXECUTIONS_SCALE

        first = np.zeros((idle + 1, 5), np.float32)
        bias = np.zeros(5, np.float32)
        first[index[_COST], _DEAR] = 1
        bias[_DEAR] = GRID
        first[index[_EXECUTIONS], _OFTEN] = 1
        # A bias is 1 at most; where the alternative is, so is the idle column's mark.
        above = encoded(_EXECUTIONS, self._executions) - GRID
        first[idle, _OFTEN], bias[_OFTEN] = -above / 2, -above / 2
        # Missing is -2, before it is scaled, and 0 executions are 0.
        first[index[_EXECUTIONS], _UNKNOWN], bias[_UNKNOWN] = -1, -_EXECUTIONS_SCALE
        for name in _IS_QUESTION:
            first[index[name], _NO_QUESTION] = -1
        first[idle, _NOT_IDLE] = -1
        bias[[_NO_QUESTION, _NOT_IDLE]] = 1

        # The alternative's score must be above the lead; among equal ones the register's wins.
        second, second_bias = np.full((5, 1), -1.0), np.array([2 * GRID])
        parts = (first, bias, second, second_bias, np.ones((1, 1)), np.zeros(1))
        weights = np.concatenate([np.ravel(part) for part in parts]).astype(np.float32)
        return Network(_PROBLEM, True, (5, 1), Normalisation(center, scale), GRID), weights

    def as_json(self) -> dict[str, float]:
        """The numbers by name."""
        return dataclasses.asdict(self)
