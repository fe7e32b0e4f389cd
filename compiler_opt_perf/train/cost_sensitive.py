# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cost-sensitive imitation: learns from labels of both ways of a decision which one costs less.

In two steps. Boosted trees (LightGBM) classify each labelled decision, whether deciding otherwise
than the compiler pays; a label weighs what the wrong way costs (Zadrozny, Langford and Abe 2003),
so that the classifier with the least loss is the policy with the least cost. Trees learn this from
some thousand labels and hold on programs that they never saw, where a network fitted to the labels
themselves learns them by heart. Then a network is fitted to the trees' judgement of all logged
decisions, many more than have labels (distillation, Bucila et al. 2006): it runs in
the compiler in a fraction of a microsecond, with the same decisions everywhere.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from compiler_opt_perf.policy.encoding import FloatArray
from compiler_opt_perf.policy.network import DecisionKind, Network
from compiler_opt_perf.run.seeds import derive_seed
from compiler_opt_perf.train.gradient_descent import descend

if TYPE_CHECKING:
    import lightgbm

Inputs = Mapping[str, npt.NDArray[Any]]
#: All kinds of decisions, by number: `strata`.
KINDS = tuple(itertools.starmap(DecisionKind, itertools.product((0, 1), repeat=3)))

# LightGBM fits a tree to a share of the labels, which is none of a single one.
_LEAST_LABELS = 2
_Whole = Annotated[int, Meta(ge=1, le=10**9)]
_Positive = Annotated[float, Meta(gt=0, le=10**9)]


class TreeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How boosted trees are fitted to labels.

    Attributes:
      ensembles: number of sets of trees that vote, each with a seed of its own.
      trees: trees in a set.
      leaves: leaves of a tree.
      leaf_rows: labels in a leaf, at least.
      learning_rate: share of each tree that counts.
      largest: bytes. An advantage above this weighs no more, a loss by its logarithm: a few
        labels shall not decide alone, but a large loss counts more than a small one.
      least_share: kinds of decisions (`strata`) of which trees that have not seen a program keep
        less than this share of what could be saved are left to the compiler.
    """

    ensembles: Annotated[int, Meta(ge=1, le=100)] = 3
    trees: _Whole = 200
    leaves: Annotated[int, Meta(ge=2, le=1024)] = 15
    leaf_rows: _Whole = 20
    learning_rate: _Positive = 0.05
    largest: _Positive = 10.0
    least_share: Annotated[float, Meta(ge=-1, le=1)] = 0.1


class Trees:
    """Boosted trees that tell when to decide otherwise than the compiler.

    Attributes:
      kept: by stratum (see `strata`), the share of what deciding otherwise could save there that
        trees kept which had not seen its program, or module; strata below the settings'
        `least_share` are left to the compiler.
    """

    def __init__(
        self,
        features: Sequence[str],
        boosters: Sequence["lightgbm.Booster"],
        kept: dict[int, float],
    ):
        self._features = features
        self._boosters = boosters
        self.kept = kept

    @classmethod
    def fit(
        cls,
        inputs: Inputs,
        advantage: npt.NDArray[np.float64],
        groups: npt.NDArray[np.int64],
        settings: TreeSettings,
        seed: int,
    ) -> "Trees":
        """Fits trees to labels.

        Args:
          inputs: by feature, [rows] each; the trees read all of them.
          advantage: [rows], of deciding otherwise: cost of the compiler's own decision less cost
            of the other one.
          groups: [rows], the number of the program, or of the module, that each row is of. With
            one group nothing is kept: nothing is unseen.
          seed: for the samples of rows and features that each tree is fitted to.
        """
        features = tuple(inputs)
        rows = _matrix(features, inputs)
        # Each group judged by trees that know only the others.
        judged = np.zeros(len(advantage))
        for group in np.unique(groups):
            others = groups != group
            boosters = _boosters(rows[others], advantage[others], settings, seed)
            if boosters:
                judged[~others] = _votes(boosters, rows[~others])
        kept = {}
        stratum_of = strata(inputs)
        for stratum in np.unique(stratum_of):
            own = advantage[stratum_of == stratum]
            saved = own[judged[stratum_of == stratum] > 0.5].sum()
            kept[int(stratum)] = float(saved / max(own[own > 0].sum(), 1.0))
        kept = {stratum: share for stratum, share in kept.items() if share >= settings.least_share}
        return cls(features, _boosters(rows, advantage, settings, seed), kept)

    def otherwise(self, inputs: Inputs) -> npt.NDArray[np.float64]:
        """The probability, weighed by cost, that deciding otherwise pays; [rows]."""
        rows = _matrix(self._features, inputs)
        if not self._boosters:
            return np.zeros(len(rows))
        admitted = np.isin(strata(inputs), list(self.kept))
        return np.where(admitted, _votes(self._boosters, rows), 0.0)


def strata(inputs: Inputs) -> npt.NDArray[np.int64]:
    """The kinds of decisions that are learnt or left alone as a whole (`DecisionKind`), [rows].

    The numbers of `KINDS`.
    """
    return np.asarray(
        sum(number * kind.holds(inputs) for number, kind in enumerate(KINDS)), np.int64
    )


def label_weights(advantage: npt.NDArray[np.float64], largest: float) -> npt.NDArray[np.float64]:
    """What the wrong decision of each label weighs, [rows]; `largest` as in `TreeSettings`."""
    size = np.abs(advantage)
    excess = np.log(np.maximum(size, largest) / largest)
    return np.asarray(np.minimum(size, largest) * np.where(advantage < 0, 1.0 + excess, 1.0))


def _boosters(
    rows: npt.NDArray[np.float64],
    advantage: npt.NDArray[np.float64],
    settings: TreeSettings,
    seed: int,
) -> list["lightgbm.Booster"]:
    """The ensembles; none when too few labels tell a difference."""
    # Not at the top: pool workers import the modules of their jobs, and need no LightGBM.
    import lightgbm

    weight = label_weights(advantage, settings.largest)
    told = weight > 0
    boosters: list[lightgbm.Booster] = []
    if told.sum() < _LEAST_LABELS:
        return boosters
    for ensemble in range(settings.ensembles):
        parameters = {
            "objective": "binary",
            "learning_rate": settings.learning_rate,
            "num_leaves": settings.leaves,
            "min_data_in_leaf": settings.leaf_rows,
            "bagging_fraction": 0.8,
            "bagging_freq": 1,
            "feature_fraction": 0.5,
            "seed": derive_seed(seed, "ensemble", ensemble) % 2**31,
            # The same seed gives the same trees.
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": 1,
            "verbose": -1,
        }
        data = lightgbm.Dataset(
            rows[told],
            (advantage[told] > 0).astype(np.int64),
            weight=weight[told] / weight[told].mean(),
        )
        boosters.append(lightgbm.train(parameters, data, settings.trees))
    return boosters


def _votes(
    boosters: Sequence["lightgbm.Booster"], rows: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    votes = [np.asarray(one.predict(rows, num_threads=1)) for one in boosters]
    return np.asarray(np.mean(votes, axis=0))


def _matrix(features: Sequence[str], inputs: Inputs) -> npt.NDArray[np.float64]:
    return np.stack([inputs[name] for name in features], axis=1).astype(np.float64)


def distil(
    trees: Trees,
    inputs: Inputs,
    network: Network,
    *,
    steps: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
) -> FloatArray:
    """Fits a network to what the trees say (train.gradient_descent).

    Args:
      inputs: features of logged decisions by name, [rows] each.
      seed: for initial weights and batches.

    Returns:
      The weights, float32 [network.size], not yet on the grid.
    """
    otherwise = trees.otherwise(inputs)[:, None]
    targets = np.where(network.is_default(inputs) > 0, 1.0 - otherwise, otherwise)
    return descend(
        network,
        inputs,
        targets,
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
    )
