# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The stage that learns labels of single decisions around those of the policy so far.

As training.dataset_aggregation does for whole programs: boosted trees learn all labels so far, and
the network learns what the trees say of all logged decisions (training.cost_sensitive). Copies of
functions in other modules are not counted as parts: the reward is that of the objects.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.train.algorithm import ROWS, Arrays, Step
from compiler_opt_perf.train.config import Labels
from compiler_opt_perf.train.label_files import groups_of, labelled_rows, logged_rows
from compiler_opt_perf.train.labels import LabelJob, label
from compiler_opt_perf.train.stages import Setting

_LABELLED, _LOGGED = ROWS + "labelled.", ROWS + "logged."
# Compilations for a label, at most: batches that do not come apart are halved.
_COMPILATIONS = 3


@dataclass(frozen=True)
class LabelStage:
    """Labels of the training modules' decisions, trees fitted to them, and a network to these."""

    at: Setting
    settings: Labels

    def start(self, weights: npt.NDArray[Any]) -> Arrays:
        """The policy, and no labels."""
        features = [feature.name for feature in self.at.network.features]
        state: dict[str, npt.NDArray[Any]] = {"weights": weights.astype(np.float64)}
        for name in (*features, "module"):
            state[_LABELLED + name] = np.zeros(0, np.int64)
        state[_LABELLED + "gain"] = np.zeros(0)
        return state | {_LOGGED + name: np.zeros(0, np.int64) for name in features}

    def iterate(self, state: Arrays, number: int) -> Step:
        """Labels of some modules, and a policy fitted to all so far."""
        # Loads LightGBM.
        from compiler_opt_perf.train import cost_sensitive

        at, settings = self.at, self.settings
        state = self._with_labels(state, number)
        labelled, logged = _under(state, _LABELLED), _under(state, _LOGGED)
        gain, modules = labelled.pop("gain"), labelled.pop("module")
        names = at.run.split.names["training"]
        trees = cost_sensitive.Trees.fit(
            at.run.problem,
            labelled,
            gain,
            groups_of([names[module] for module in modules]),
            settings.trees,
            at.seed("trees", number),
        )
        weights = cost_sensitive.distil(
            trees,
            logged,
            at.network,
            steps=settings.steps,
            batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            seed=at.seed("network", number),
        ).astype(np.float64)
        facts = {"labels": len(gain), "labels_that_pay": int((gain > 0).sum())}
        return Step({**state, "weights": weights}, (weights,), facts)

    def _with_labels(self, state: Arrays, number: int) -> dict[str, npt.NDArray[Any]]:
        """The state with the labels of an iteration's modules."""
        at, problem = self.at, self.at.run.problem
        with at.model(state["weights"]) as model:
            jobs = [
                LabelJob(
                    at.run.compiler,
                    one.module,
                    model,
                    most=self.settings.sites,
                    seed=at.seed("sites", number, one.module.name),
                )
                for one in at.draw(self.settings.modules, number)
            ]
            count = _COMPILATIONS * self.settings.sites + 1
            found = at.compile(label, jobs, at.label(number), count)
        inputs, gain, _ = labelled_rows(problem, found)
        names = at.run.split.names["training"]
        modules = [np.full(len(one.keys), names.index(one.module)) for one in found]
        new: dict[str, npt.NDArray[Any]] = {}
        new |= {_LABELLED + name: values for name, values in inputs.items()}
        new |= {_LABELLED + "gain": gain, _LABELLED + "module": np.concatenate(modules)}
        new |= {_LOGGED + name: values for name, values in logged_rows(problem, found).items()}
        return {
            name: np.concatenate([array, new[name]]) if name in new else array
            for name, array in state.items()
        }


def _under(state: Arrays, prefix: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays whose names begin so, by the rest of the name."""
    return {
        name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)
    }
