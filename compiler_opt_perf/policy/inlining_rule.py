# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A rule of four numbers for inlining by a PMU profile, and the network that decides just so.

The compiler's own policy decides, but for two kinds of calls:

- A call that is often executed is inlined up to a higher cost. It is not if the callee does so much
  work that the overhead of a call does not matter.
- A call that was never executed is inlined only if the callee is about as small as the call. The
  compiler decides if the call is passed the address of a local: while the call stands, the local
  has to be in memory, in the hot code around the call, too.

Calls that the profile knows nothing of are left to the compiler, and without a profile all are.

A network makes the rule a policy like any other: loaded by a flag or compiled in, the same in all
modes. Its weights are not trained but derived; it decides as the rule does about every input
whose costs are multiples of five, as the compiler's all are.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.policy.encoding import (
    ACTIVATION_LIMIT,
    GRID,
    FloatArray,
    Normalisation,
    compress_one,
)
from compiler_opt_perf.policy.network import Network
from compiler_opt_perf.policy.problem import PROBLEMS

_PROBLEM = PROBLEMS["inline-size"]
_COST = "cost_estimate"
_DEFAULT = "inlining_default"
_EXECUTIONS = "pmu_callsite_executions_log2"
_WORK = "pmu_callee_instructions_per_entry"
# For arguments that are addresses of locals: what inlining saves because the local leaves memory,
# and what a use in the callee prevents, such as a call that the address is passed on to.
_LOCALS = ("sroa_savings", "sroa_losses")
_READ = (_COST, _DEFAULT, _EXECUTIONS, _WORK, *_LOCALS)
#: The compiler's costs are multiples of this.
COST_UNIT = 5
# Neurons of the first layer: what speaks against deciding otherwise than the compiler. Each is 0,
# or GRID at least.
_DEAR, _SELDOM, _WORKING, _INLINED, _CHEAP, _RAN, _UNKNOWN, _NOT_INLINED, *_PINS = range(10)
# Neurons of the second layer: inline a call that the compiler would not, and the reverse.
_HOT, _COLD = range(2)


@dataclass(frozen=True)
class InliningRule:
    """The rule.

    Attributes:
      hot: a call is hot from floor(log2(1 + n)) on, of n executions in 10⁹ instructions of the
        program; 1 to 30.
      cost: hot calls are inlined below this cost (LLVM's InlineCost; the compiler's own threshold
        is 225 at -O2); a multiple of `COST_UNIT`, for a network one of 40 to about 5000.
      work: but not if the callee executes as many instructions an entry or more; 1 to 1024.
      cold_cost: calls that are known not to run are not inlined from this cost on; a multiple of
        `COST_UNIT`, for a network as above.
      keep_locals: but the compiler decides about those that are passed a local's address.
    """

    hot: int = 14
    cost: int = 3000
    work: int = 100
    cold_cost: int = 45
    keep_locals: bool = True

    def decide(self, inputs: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
        """1 to inline, or 0; int64 [rows].

        Args:
          inputs: by feature, [rows] each.
        """
        default, cost = inputs[_DEFAULT] > 0, inputs[_COST]
        executions = inputs[_EXECUTIONS]
        hot = (executions >= self.hot) & (cost < self.cost) & (inputs[_WORK] < self.work)
        cold = (executions == 0) & (cost >= self.cold_cost)
        if self.keep_locals:
            cold &= np.all([inputs[name] <= 0 for name in _LOCALS], axis=0)
        return np.asarray(np.where(default, ~cold, hot), np.int64)

    def network(self) -> tuple[Network, FloatArray]:
        """The network and its weights, float32 [size].

        Raises:
          ValueError: a number of the rule is out of range, or the grid does not tell it apart.
        """
        features = _PROBLEM.inputs(with_pmu=True)
        index = {feature.name: number for number, feature in enumerate(features)}
        # Never read, and so far from its centre that it is the largest activation always.
        constant = next(feature.name for feature in features if feature.name not in _READ)
        center = np.zeros(len(features), np.float32)
        scale = np.ones(len(features), np.float32)

        def encoded(name: str, value: int) -> float:
            number = index[name]
            logarithm = compress_one(features[number], value)
            shifted = np.rint((logarithm - center[number]) * scale[number] / GRID) * GRID
            return float(np.clip(shifted, -ACTIVATION_LIMIT, ACTIVATION_LIMIT))

        if not 1 <= self.hot <= 30:
            raise ValueError(f"hot from {self.hot}: expected 1 to 30")
        if not 1 <= self.work <= 1024:
            raise ValueError(f"work of {self.work}: expected 1 to 1024 instructions an entry")
        center[index[constant]] = -32.0
        # From 31 to 8191 within the limits of an activation.
        center[index[_COST]] = 9.0
        # Missing is -2, never executed 0, the most executed 4.95.
        center[index[_EXECUTIONS]] = 1.0
        center[index[_DEFAULT]] = 0.5
        work = compress_one(features[index[_WORK]], self.work)
        center[index[_WORK]], scale[index[_WORK]] = np.floor(work / GRID) * GRID, 64.0

        first = np.zeros((len(features), 10), np.float32)
        first_bias = np.zeros(10, np.float32)

        def neuron(number: int, name: str, sign: int, bias: float) -> None:
            """`sign` x the feature + a bias, of which whole numbers come from the constant."""
            first[index[name], number] = sign
            whole = np.floor(bias)
            first[index[constant], number] = whole / ACTIVATION_LIMIT
            first_bias[number] = bias - whole

        below = encoded(_COST, self.cost - COST_UNIT)
        cold = encoded(_COST, self.cold_cost)
        if encoded(_COST, self.cost) == below or encoded(_COST, self.cold_cost - COST_UNIT) == cold:
            raise ValueError(f"{self}: the grid does not tell a cost from the one below it")
        neuron(_DEAR, _COST, 1, -below)
        neuron(_SELDOM, _EXECUTIONS, -1, encoded(_EXECUTIONS, self.hot))
        neuron(_WORKING, _WORK, 1, 4 * GRID - encoded(_WORK, self.work))
        neuron(_INLINED, _DEFAULT, 1, 0.0)
        neuron(_CHEAP, _COST, -1, cold)
        neuron(_RAN, _EXECUTIONS, 1, -encoded(_EXECUTIONS, 0))
        neuron(_UNKNOWN, _EXECUTIONS, -1, encoded(_EXECUTIONS, 0))
        neuron(_NOT_INLINED, _DEFAULT, -1, 0.0)

        if self.keep_locals:
            for number, name in zip(_PINS, _LOCALS, strict=True):
                neuron(number, name, 1, 0.0)

        second = np.zeros((10, 2), np.float32)
        second[[_DEAR, _SELDOM, _WORKING, _INLINED], _HOT] = -1
        second[[_CHEAP, _RAN, _UNKNOWN, _NOT_INLINED, *_PINS], _COLD] = -1
        # To inline, a score must be above the lead; not to, it may equal it.
        second_bias = np.array([2 * GRID, GRID])
        last = np.zeros((2, 2), np.float32)
        last[_HOT, 1] = last[_COLD, 0] = 1
        parts = (first, first_bias, second, second_bias, last, np.zeros(2))
        weights = np.concatenate([np.ravel(part) for part in parts]).astype(np.float32)
        network = Network(_PROBLEM, True, (10, 2), Normalisation(center, scale), GRID)
        return network, weights

    def as_json(self) -> dict[str, int | bool]:
        """The numbers by name."""
        return dataclasses.asdict(self)
