# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules of thresholds on features of inlining decisions, and networks that decide just so.

A rule is a list of clauses: a decision is taken otherwise than the compiler's own if all guards of
a clause hold. A guard compares a feature with a threshold, or the product or ratio of two; networks
see logarithms, of which a product is a sum. So two layers are enough: one neuron for each guard,
above 0 where it does not hold, and one for each clause, above 0 where none of its guards is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.policy.encoding import (
    ACTIVATION_LIMIT,
    GRID,
    FloatArray,
    Normalisation,
    scored_features,
)
from compiler_opt_perf.policy.network import DecisionKind, Network
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.train.cost_sensitive import Inputs

_PROBLEM = PROBLEMS["inline-size"]
_FEATURES = scored_features(_PROBLEM, with_pmu=False)
_INDEX = {feature.name: number for number, feature in enumerate(_FEATURES)}
# Logarithms are from -16 to 16, activations from -4 to 4.
_SCALE = 2.0**-2
# Never a guard's, and so far from its centre that it is the largest activation always.
_CONSTANT = "load_elimination"
#: The features that guards may be of.
GUARDED = tuple(feature.name for feature in _FEATURES if feature.name != _CONSTANT)

#: Features, each with 1, or with -1 if it divides.
Terms = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Guard:
    """A threshold on a feature, or on the product or ratio of two.

    Attributes:
      terms: one or two features.
      at_least: whether the value must be as large as the threshold, or as small.
      threshold: in the units of the network's inputs, a multiple of `GRID` from -4 to 4.
    """

    terms: Terms
    at_least: bool
    threshold: float

    def holds(self, columns: FloatArray) -> npt.NDArray[np.bool_]:
        """Whether it holds, bool [rows], of what `encoded` returns."""
        values = value_of(self.terms, columns)
        return values >= self.threshold if self.at_least else values <= self.threshold

    def __str__(self) -> str:
        above = " x ".join(name for name, sign in self.terms if sign > 0)
        below = "".join(f" / {name}" for name, sign in self.terms if sign < 0)
        logarithm = self.threshold / _SCALE
        value = np.sign(logarithm) * (2 ** abs(logarithm) - (len(self.terms) == 1))
        return f"{above}{below} {'>=' if self.at_least else '<='} {value:.3g}"


@dataclass(frozen=True)
class Clause:
    """Decisions to take otherwise than the compiler: of one kind, and all guards hold."""

    kind: DecisionKind
    guards: tuple[Guard, ...]

    def __str__(self) -> str:
        verb = "keep" if self.kind.inlining_default else "inline"
        what = "COMDAT" if self.kind.callee_is_comdat else "other"
        language = "C++" if self.kind.callee_is_mangled else "C"
        return f"{verb} {what} functions of {language} if " + " and ".join(map(str, self.guards))


@dataclass(frozen=True)
class Rule:
    """Decides otherwise than the compiler where a clause holds."""

    clauses: tuple[Clause, ...]

    def __str__(self) -> str:
        return "; ".join(map(str, self.clauses)) or "as the compiler"

    def otherwise(self, inputs: Inputs) -> npt.NDArray[np.bool_]:
        """Whether to decide otherwise, bool [rows]."""
        columns = encoded(inputs)
        found = np.zeros(columns.shape[1], bool)
        for clause in self.clauses:
            own = np.asarray(clause.kind.holds(inputs), bool)
            for guard in clause.guards:
                own &= guard.holds(columns)
            found |= own
        return found

    def thresholds(self) -> FloatArray:
        """All of them, clause by clause; float64 [guards]."""
        return np.array([guard.threshold for one in self.clauses for guard in one.guards])

    def with_thresholds(self, thresholds: Sequence[float]) -> "Rule":
        """The same rule with other thresholds, which are rounded to the grid and limited."""
        on_grid = np.clip(np.rint(np.array(thresholds) / GRID) * GRID, -4, 4)
        rest = iter(on_grid.tolist())
        return Rule(
            tuple(
                Clause(
                    one.kind,
                    tuple(Guard(guard.terms, guard.at_least, next(rest)) for guard in one.guards),
                )
                for one in self.clauses
            )
        )

    def network(self) -> tuple[Network, FloatArray]:
        """The network and its weights, float32 [size]; the rule has at least one clause."""
        guards = [
            (number, guard)
            for number, clause in enumerate(self.clauses)
            for guard in (*_kind_guards(clause.kind), *clause.guards)
        ]
        first = np.zeros((len(_FEATURES), len(guards)), np.float32)
        first_bias = np.zeros(len(guards), np.float32)
        second = np.zeros((len(guards), len(self.clauses)), np.float32)
        last = np.zeros((len(self.clauses), 2), np.float32)
        for neuron, (number, guard) in enumerate(guards):
            # How far the value is on the wrong side.
            sign = 1 if guard.at_least else -1
            for name, factor in guard.terms:
                first[_INDEX[name], neuron] = -sign * factor
            whole = np.floor(sign * guard.threshold)
            first[_INDEX[_CONSTANT], neuron] = whole / ACTIVATION_LIMIT
            first_bias[neuron] = sign * guard.threshold - whole
            second[neuron, number] = -1
        for number, clause in enumerate(self.clauses):
            last[number, 1 - clause.kind.inlining_default] = 1
        # To inline, a score must be above the lead of the compiler's decision; not to, it may equal
        # it. A guard that does not hold takes GRID, or more.
        second_bias = [GRID if one.kind.inlining_default else 2 * GRID for one in self.clauses]
        parts = (first, first_bias, second, second_bias, last, np.zeros(2))
        weights = np.concatenate([np.ravel(part) for part in parts]).astype(np.float32)
        network = Network(
            _PROBLEM,
            False,
            (len(guards), len(self.clauses)),
            _NORMALISATION,
            GRID,
            tuple(dict.fromkeys(clause.kind for clause in self.clauses)),
        )
        return network, weights


def encoded(inputs: Inputs) -> FloatArray:
    """The features as rules' networks see them, float32 [features, rows]."""
    return np.asarray(_READER.encode(inputs)[:, :, 0].T)


def value_of(terms: Terms, columns: FloatArray) -> FloatArray:
    """What a guard compares, float32 [rows], of what `encoded` returns."""
    return np.asarray(sum(sign * columns[_INDEX[name]] for name, sign in terms))


def _kind_guards(kind: DecisionKind) -> list[Guard]:
    """That each of the flags is 0, or 1."""
    return [
        Guard(((name, 1),), bool(getattr(kind, name)), 0.5 * _SCALE)
        for name in DecisionKind.__struct_fields__
    ]


_NORMALISATION = Normalisation(
    np.array([-32.0 if feature.name == _CONSTANT else 0.0 for feature in _FEATURES], np.float32),
    np.full(len(_FEATURES), _SCALE, np.float32),
)
_READER = Network(_PROBLEM, False, (1,), _NORMALISATION)
