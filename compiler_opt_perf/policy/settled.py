# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds where a policy decides as the compiler does, whatever its other inputs are.

Release mode asks the policy nowhere else, and computes no features there. The scores are bounded
by interval arithmetic, which may see a difference where there is none, but never the reverse.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.policy.encoding import NUMPY_OPS, rectified
from compiler_opt_perf.policy.export import Policy
from compiler_opt_perf.policy.network import DecisionKind, Network
from compiler_opt_perf.toolchain.model_inputs import ReleaseModel

DoubleArray = npt.NDArray[np.float64]

# The lowest and the highest values of numbers.
Bounds = tuple[DoubleArray, DoubleArray]
# The same of features that are known, by name.
Given = Mapping[str, tuple[float, float]]

# The executions of a call that a mask has a bit for: from -1 on, more than there are.
_EXECUTIONS = 64
# What features are in evictions, and in questions about callee-saved registers.
_EVICTION = {
    **dict.fromkeys(("alternative_is_split", "alternative_is_spill"), (0.0, 0.0)),
    **dict.fromkeys(("alternative_cost", "spill_cost"), (0.0, 0.0)),
    **dict.fromkeys(("hottest_block", "coldest_block", "callee_saved_in_use"), (0.0, 0.0)),
    **dict.fromkeys(("pmu_alternative_executions", "pmu_entries"), (-1.0, -1.0)),
}
_QUESTION = dict.fromkeys(("alternative_is_split", "alternative_is_spill"), (0.0, 1.0))
# The largest logarithm of the cost of an alternative, and how closely its limit is found.
_LARGEST_COST, _COST_STEP = 20.0, 2.0**-8


def input_bounds(network: Network, idle: float | None, given: Given) -> Bounds:
    """The lowest and highest activations that enter a network, where some features are given."""
    # No value of a feature is beyond these, and the encoding is monotone.
    ranges = [given.get(feature.name, (-1e30, 1e30)) for feature in network.scored]
    extremes = np.array(ranges, np.float32).T[..., None]
    low, high = np.asarray(network.encoding.encode(extremes, NUMPY_OPS)[..., 0], np.float64)
    if idle is None:
        return low, high
    return np.append(low, idle), np.append(high, idle)


def sum_bounds(bounds: Bounds, matrix: DoubleArray, bias: DoubleArray) -> Bounds:
    """The bounds of a layer's sums, float64 [outputs], from those of its inputs."""
    low, high = bounds
    positive, negative = np.maximum(matrix, 0.0), np.minimum(matrix, 0.0)
    return bias + low @ positive + high @ negative, bias + high @ positive + low @ negative


def rectified_bounds(bounds: Bounds) -> Bounds:
    """The bounds of neurons' activations from those of their sums."""
    low, high = (np.asarray(rectified(one.astype(np.float32)), np.float64) for one in bounds)
    return low, high


def _score_bounds(policy: Policy, idle: float | None, given: Given) -> Bounds:
    """Numbers that the scores are not below or above, where some features are given."""
    bounds = input_bounds(policy.network, idle, given)
    *hidden, last = policy.network.layers(np.asarray(policy.weights, np.float64))
    for matrix, bias in hidden:
        bounds = rectified_bounds(sum_bounds(bounds, matrix, bias))
    return sum_bounds(bounds, *last)


def may_differ(policy: Policy, model: ReleaseModel) -> str:
    """The macro that is true where the policy may decide otherwise than the compiler."""
    network, conditions = policy.network, []
    names = DecisionKind.__struct_fields__
    if network.asked is not None:
        conditions.append(f"({' || '.join(kinds(network.asked, '({})')) or 'false'})")
    masks = [_differing_executions(policy, default) for default in (0, 1)]
    if min(masks) < 2**_EXECUTIONS - 1:
        without, inlined = (f"UINT64_C(0x{mask:x})" for mask in masks)
        conditions.append(
            f"((((inlining_default) ? {inlined} : {without}) >> ((executions) + 1)) & 1)"
        )
    if not conditions:
        return ""
    return (
        "\n// Elsewhere the policy decides as the compiler does.\n"
        f"#define {model.may_differ}({', '.join(names)}, executions) \\\n"
        f"  ({' && '.join(conditions)})\n"
    )


def _differing_executions(policy: Policy, default: int) -> int:
    """A bit for each value of the executions of a call, from -1 on: the policy may differ there."""
    lead = policy.network.default_lead
    mask = 0
    for bit in range(_EXECUTIONS):
        given = {"inlining_default": default, "pmu_callsite_executions_log2": bit - 1}
        ranges = {name: (value, value) for name, value in given.items()}
        low, high = _score_bounds(policy, None, ranges)
        # To inline, the score must be above the other.
        may_differ = low[1] + lead <= high[0] if default else high[1] > low[0] + lead
        mask |= int(may_differ) << bit
    return mask


def settled(policy: Policy, model: ReleaseModel) -> str:
    """The macros that tell where the policy decides as the compiler does."""
    lead = policy.network.default_lead

    def bounds(given: Given) -> tuple[float, float, float, float]:
        """Of a register's score, and of the score of doing without."""
        (register_low,), (register_high,) = _score_bounds(policy, 0.0, given)
        (idle_low,), (idle_high,) = _score_bounds(policy, 1.0, given)
        return register_low, register_high, idle_low, idle_high

    def takes_register(given: Given) -> bool:
        """Whether the policy takes a callee-saved register that the compiler would."""
        register, _, _, alternative = bounds({**_QUESTION, **given})
        # Among equal scores the register's wins.
        return alternative <= register + lead

    macros = {}
    register_low, register_high, idle_low, idle_high = bounds(_EVICTION)
    if min(register_low, idle_low) + lead > max(register_high, idle_high):
        macros["EVICTS_AS_DEFAULT"] = "true"
    below, limit = -_LARGEST_COST, _LARGEST_COST
    if takes_register({"alternative_cost": (limit, limit)}):
        while limit - below > _COST_STEP:
            middle = (below + limit) / 2
            if takes_register({"alternative_cost": (middle, _LARGEST_COST)}):
                limit = middle
            else:
                below = middle
        macros["COST_LIMIT"] = repr(limit)
    if takes_register({"pmu_alternative_executions": (-1.0, -1.0)}):
        macros["NEEDS_EXECUTIONS"] = "true"
    if not macros:
        return ""
    lines = (f"#define {model.settled}_{name} {value}\n" for name, value in macros.items())
    return "\n// Where the policy decides as the compiler does.\n" + "".join(lines)


def kinds(asked: Iterable[DecisionKind], written: str) -> list[str]:
    """A condition in C++ for each kind of decision.

    Args:
      written: how the value of a name is written, with {} for the name.
    """
    names = DecisionKind.__struct_fields__
    return [
        f"({' && '.join(f'{written.format(name)} == {getattr(kind, name)}' for name in names)})"
        for kind in asked
    ]
