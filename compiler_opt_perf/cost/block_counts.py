# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How often the blocks of a function are executed, from what is known of some of them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import csr_array

from compiler_opt_perf.cost.object_code import FunctionCode

# A call counted at its callers weighs more than single instructions of the callee.
_ENTRY_WEIGHT = 10.0
# Of counts that explain everything alike the smallest are taken: nothing turns in loops unseen.
_WEIGHT_OF_ANY = 1e-4
# A loop that many calls could pass by and few could turn in often is rather entered by all.
_WEIGHT_OF_TURN = 1e-3
# The solver's tolerances are absolute: counts are scaled to at most this.
_LARGEST = 1e4


class FitError(Exception):
    """Counts that cannot be computed."""


@dataclass(frozen=True)
class Observation:
    """Something known of a function: the sum of the counts of `blocks` is within bounds.

    Attributes:
      blocks: numbers of blocks; one that is named twice counts twice.
      low, high: the bounds; high may be infinite.
      weight: what one execution outside of the bounds costs, in the fit.
    """

    blocks: tuple[int, ...]
    low: float
    high: float
    weight: float


@dataclass(frozen=True)
class Fitted:
    """The counts of a function.

    Attributes:
      blocks: [B] float64, executions of each block.
      entered: calls of the function.
      edges: how often one block, by number, was followed by another.
    """

    blocks: npt.NDArray[np.float64]
    entered: float
    edges: Mapping[tuple[int, int], float]


def fit(
    code: FunctionCode, observations: Iterable[Observation], entered: float | None = None
) -> Fitted:
    """Fits counts of blocks and edges to what is known: least absolute deviations.

    What enters a block leaves it. Among all such counts x those are taken that minimise

        sum over r of weight_r * distance(sum over b in blocks_r of x_b, [low_r, high_r])

    for observations r: a linear programme. Absolute deviations, for a line that is wrong about one
    block shall not spoil the others. LLVM's profile inference minimises the same by a minimum-cost
    flow (He, Mestre, Pupyrev, Wang, Yu: Profile Inference Revisited, POPL 2022), but knows one
    count a block.

    Args:
      entered: calls of the function, if they are known.

    Raises:
      FitError: the solver failed.
    """
    size = len(code.sizes)
    edges = [(b, follower) for b, ways in enumerate(code.successors) for follower in ways]
    ends = [b for b, ways in enumerate(code.successors) if not ways]
    # Variables: the blocks' counts, the edges', calls, returns, then deviations.
    first_call = size + len(edges)
    first_return = first_call + len(code.entries)
    first_deviation = first_return + len(ends)
    # Row b says what leaves block b, row size + b what enters it.
    flow: list[tuple[int, int, float]] = []
    for b in range(size):
        flow += [(b, b, -1.0), (size + b, b, -1.0)]
    for edge, (source, target) in enumerate(edges, size):
        flow += [(source, edge, 1.0), (size + target, edge, 1.0)]
    flow += [(size + b, call, 1.0) for call, b in enumerate(code.entries, first_call)]
    flow += [(b, end, 1.0) for end, b in enumerate(ends, first_return)]

    weights: defaultdict[tuple[tuple[int, ...], float, float], float] = defaultdict(float)
    for observation in observations:
        variables = tuple(sorted(observation.blocks))
        weights[variables, observation.low, observation.high] += observation.weight
    if entered is not None:
        weights[tuple(range(first_call, first_return)), entered, entered] += _ENTRY_WEIGHT
    scale = max([low for _, low, _ in weights] + [1.0]) / _LARGEST
    bounds: list[tuple[int, int, float]] = []
    limits: list[float] = []
    back = _back_edges(code)
    costs = [_WEIGHT_OF_ANY] * size
    costs += [_WEIGHT_OF_TURN if edge in back else 0.0 for edge in edges]
    costs += [0.0] * (first_deviation - first_call)
    for (variables, low, high), weight in weights.items():
        for sign, limit in ((-1.0, low), (1.0, high)):
            # Counts are not negative anyway.
            if limit < np.inf and (sign > 0 or limit > 0):
                row = len(limits)
                bounds += [(row, variable, sign) for variable in variables]
                bounds.append((row, len(costs), -1.0))
                limits.append(sign * limit / scale)
                costs.append(weight)
    solved = linprog(
        costs,
        A_ub=_matrix(bounds, len(limits), len(costs)) if limits else None,
        b_ub=limits or None,
        A_eq=_matrix(flow, 2 * size, len(costs)),
        b_eq=np.zeros(2 * size),
        method="highs",
    )
    # It may have counts, too, when it gave up before they were good.
    if solved.x is None or not solved.success:
        raise FitError(f"no counts of {size} blocks: {solved.message}")
    counts = np.maximum(solved.x, 0.0) * scale
    followed: defaultdict[tuple[int, int], float] = defaultdict(float)
    for way, count in zip(edges, counts[size:first_call].tolist(), strict=True):
        followed[way] += count
    return Fitted(counts[:size], float(counts[first_call:first_return].sum()), followed)


def _back_edges(code: FunctionCode) -> set[tuple[int, int]]:
    """Edges to a block through which the way from the entry leads: those by which loops turn."""
    found: set[tuple[int, int]] = set()
    seen: set[int] = set()
    for entry in code.entries:
        if entry in seen:
            continue
        seen.add(entry)
        stack = [(entry, iter(code.successors[entry]))]
        path = {entry}
        while stack:
            block, rest = stack[-1]
            for follower in rest:
                if follower in path:
                    found.add((block, follower))
                elif follower not in seen:
                    seen.add(follower)
                    path.add(follower)
                    stack.append((follower, iter(code.successors[follower])))
                    break
            else:
                path.remove(block)
                stack.pop()
    return found


def _matrix(entries: list[tuple[int, int, float]], rows: int, columns: int) -> csr_array:
    """A sparse matrix; entries of one place are added up."""
    row, column, value = zip(*entries, strict=True)
    return csr_array((value, (row, column)), shape=(rows, columns))
