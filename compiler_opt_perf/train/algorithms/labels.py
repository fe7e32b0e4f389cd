# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Learns counterfactual labels of single decisions, with dataset aggregation.

A label tells what a decision would change in bytes, taken the other way (train.labels).

Ross, Gordon and Bagnell, "A Reduction of Imitation Learning and Structured Prediction to No-Regret
Online Learning", AISTATS 2011: labels around the compiler's own decisions tell nothing of the
states that another policy comes to. So each iteration labels decisions around those of the policy
before, and fits a policy to all labels so far: boosted trees learn the labels, and a network learns
what the trees say of all logged decisions (train.cost_sensitive).

The labels of a module are kept in a file: an interrupted iteration labels no module twice.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from absl import logging
from msgspec import Meta

from compiler_opt_perf.policy.encoding import GRID, Normalisation, fit_normalisation
from compiler_opt_perf.policy.network import MAX_DEFAULT_LEAD, WEIGHT_LIMIT, DecisionKind, Network
from compiler_opt_perf.run.files import write_text
from compiler_opt_perf.run.json_text import FieldError
from compiler_opt_perf.run.seeds import derive_seed
from compiler_opt_perf.train.algorithm import (
    Algorithm,
    Arrays,
    Count,
    Proposal,
    Rate,
    StageSettings,
    Step,
    Steps,
)
from compiler_opt_perf.train.cost_sensitive import KINDS, Trees, TreeSettings, distil
from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.label_files import (
    Labels,
    labelled_rows,
    logged_rows,
    read_labels,
)
from compiler_opt_perf.train.labels import LabelFile, LabelJob, keep_labels, label_file
from compiler_opt_perf.train.measure import MeasuredModule, Measurement, cheapest

_Margin = Annotated[float, Meta(ge=0, le=MAX_DEFAULT_LEAD, multiple_of=2 * GRID)]
# Compilations for a label, at most: batches that do not come apart are halved.
_COMPILATIONS = 3


class LabelSettings(StageSettings, frozen=True, kw_only=True, tag="labels"):
    """Learns counterfactual labels of single decisions, weighed by cost."""

    packages = ("lightgbm",)

    modules: Annotated[
        int, Meta(ge=0, le=10**9, description="that are labelled in an iteration; 0: all")
    ] = 8
    sites: Annotated[Count, Meta(description="decisions of a module that are labelled")] = 24
    margins: Annotated[
        tuple[_Margin, ...],
        Meta(
            max_length=32,
            description="of the compiler's own decision, a policy each: validation chooses; "
            "[]: that of the training alone",
        ),
    ] = ()
    inlined_margin: Annotated[
        _Margin | None,
        Meta(
            description="with margins: the one of calls that the compiler would inline, if another"
        ),
    ] = None
    mask: Annotated[
        bool,
        Meta(
            description="leave to the compiler the kinds of decisions in which trees keep less "
            "than trees.least_share"
        ),
    ] = False
    trees: TreeSettings = TreeSettings()
    steps: Annotated[Steps, Meta(description="gradient steps of the network")] = 2000
    batch_size: Annotated[Count, Meta(description="decisions in a gradient step")] = 512
    learning_rate: Annotated[Rate, Meta(description="Adam's, decaying to a tenth")] = 0.01

    def __post_init__(self) -> None:
        if self.inlined_margin is not None and not self.margins:
            raise FieldError("inlined_margin", f"{self.inlined_margin:g}: expected margins, too")


def words(kind: DecisionKind) -> str:
    """Decisions of a kind, taken the other way, for people."""
    verb = "not to inline" if kind.inlining_default else "to inline"
    where = "functions in COMDATs" if kind.callee_is_comdat else "static and external functions"
    return f"{verb} {where} of {'C++' if kind.callee_is_mangled else 'C'}"


def student_state(network: Network, weights: npt.NDArray[Any], kinds: Sequence[int]) -> Arrays:
    """A policy as a state: its weights, and the parts of its network that labels change.

    Args:
      kinds: numbers (`KINDS`) of the kinds of decisions that the policy is asked about.
    """
    return {
        "weights": weights.astype(np.float64),
        "center": network.normalisation.center,
        "inverse_scale": network.normalisation.inverse_scale,
        "margin": np.array(network.default_lead, np.float64),
        "kinds": np.isin(np.arange(len(KINDS)), kinds),
    }


def with_margins(
    weights: npt.NDArray[Any], margin: float, inlined_margin: float | None
) -> tuple[float, npt.NDArray[Any]]:
    """The lead and the weights of a policy with margins.

    A network has one lead: the biases of both scores make two of it.

    Args:
      inlined_margin: of calls that the compiler would inline; None: as of the others.

    Raises:
      TrainingError: the margins differ by more than the biases can hold.
    """
    if inlined_margin is None:
        return margin, weights
    shifted = weights.copy()
    # Half on each, on the grid: a bias alone has not room enough.
    shift = (margin - inlined_margin) / 2
    half = np.rint(shift / 2 / GRID) * GRID
    shifted[-2:] += (half, half - shift)
    if np.abs(shifted[-2:]).max() > WEIGHT_LIMIT:
        message = f"margins of {margin:g} and {inlined_margin:g} differ by more than the weights of"
        raise TrainingError(f"{message} this network can hold; take a larger inlined_margin")
    return (margin + inlined_margin) / 2, shifted


class LabelStage(Algorithm[LabelSettings]):
    """Labels decisions of training modules, fits trees to the labels and a network to the trees."""

    def start(self, weights: npt.NDArray[Any]) -> Arrays:
        """The state of the policy that the first iteration labels around."""
        return student_state(self.env.network, weights, range(len(KINDS)))

    def iterate(self, state: Arrays, number: int) -> Step:
        """Labels some modules, and fits policies to all labels so far."""
        env, settings = self.env, self.settings
        self._label(state, number)
        labels = [one for past in range(1, number + 1) for one in self._read(past) if one]
        with_pmu = env.network.with_pmu
        inputs, advantage, groups = labelled_rows(env.problem, labels, with_pmu=with_pmu)
        seed = self._seed("trees", number)
        trees = Trees.fit(inputs, advantage, groups, settings.trees, seed)
        self._tell(trees, number, len(advantage))
        logged = logged_rows(env.problem, labels, with_pmu=with_pmu)
        network = Network(
            env.problem,
            with_pmu,
            env.network.hidden,
            fit_normalisation(logged, env.problem, with_pmu),
            env.margin,
            self._asked(sorted(trees.kept)),
        )
        weights = distil(
            trees,
            logged,
            network,
            steps=settings.steps,
            batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            seed=self._seed("network", number),
        )
        following = student_state(network, weights, sorted(trees.kept))
        facts = {"labels": len(advantage), "labels_that_pay": int((advantage > 0).sum())}
        proposals = []
        for margin in settings.margins or (env.margin,):
            lead, own = with_margins(weights, margin, settings.inlined_margin)
            proposals.append(Proposal(self._network(following, lead), own))
        return Step(following, tuple(proposals), facts)

    def validated(self, state: Arrays, measured: Sequence[Measurement]) -> Arrays:
        """The state with the margins of the best policy: the next iteration labels around it."""
        best, settings = cheapest(measured), self.settings
        if best is None or not settings.margins:
            return state
        margin = settings.margins[best]
        lead, weights = with_margins(state["weights"], margin, settings.inlined_margin)
        return {**state, "margin": np.array(lead, np.float64), "weights": weights}

    def _asked(self, kinds: Sequence[int]) -> tuple[DecisionKind, ...] | None:
        return tuple(KINDS[number] for number in kinds) if self.settings.mask else None

    def _network(self, state: Arrays, margin: float) -> Network:
        return Network(
            self.env.problem,
            self.env.network.with_pmu,
            self.env.network.hidden,
            Normalisation(state["center"], state["inverse_scale"]),
            margin,
            self._asked(np.flatnonzero(state["kinds"]).tolist()),
        )

    def _seed(self, name: str, number: int, *module: str) -> int:
        """Iterations count on from stage to stage, from 0: models/inline-size has these seeds."""
        return derive_seed(self.env.seed_of_training, name, self.env.before + number - 1, *module)

    def _modules(self, number: int) -> list[MeasuredModule]:
        return self.env.draw(self.settings.modules, number)

    def _file(self, module: MeasuredModule, number: int) -> Path:
        folder = self.env.labels / str(self.env.before + number - 1)
        return folder / f"{module.module.name}.npz"

    def _label(self, state: Arrays, number: int) -> None:
        """Labels the iteration's modules, as far as that is not done."""
        env = self.env
        network, weights = self._network(state, float(state["margin"])), state["weights"]
        # Without a policy the compiler decides the same, and faster.
        is_default = decides_as_default(network, weights)
        with nullcontext() if is_default else env.model(network, weights) as model:
            files = []
            for one in self._modules(number):
                path = self._file(one, number)
                if path.exists() or _failed(path).exists():
                    continue
                copies = env.copies.get(one.module.program, {})
                parts = one.default.costs.parts
                job = LabelJob(
                    env.compiler,
                    one.module,
                    model,
                    # Copies of the default's functions: a function that a flip adds counts whole.
                    copies={name: copies[name] for name in parts if name in copies},
                    most=self.settings.sites,
                    seed=self._seed("labels", number, one.module.name),
                )
                files.append(LabelFile(job, path))
            most = _COMPILATIONS * self.settings.sites + 1
            found = env.compile(label_file, files, number, most, keep_labels)
        for file, labels in zip(files, found, strict=True):
            if labels is None:
                # Tried again later, it could have labels that what was learnt since does not know.
                write_text(_failed(file.path), "the compiler failed\n")
        env.count(self._read(number))

    def _read(self, number: int) -> list[Labels | None]:
        """The labels of an iteration's modules; None where the compiler failed. LabelsError."""
        paths = [self._file(one, number) for one in self._modules(number)]
        return [None if _failed(path).exists() else read_labels(path) for path in paths]

    def _tell(self, trees: Trees, number: int, labels: int) -> None:
        learnt = ", ".join(
            f"{words(KINDS[one])} ({100 * share:.0f}%)" for one, share in trees.kept.items()
        )
        logging.info("%s %d: learnt %s", self.env.name, number, learnt or "nothing")
        if not trees.kept:
            logging.warning(
                "%s %d: in no kind of decisions do trees save %.0f%% of what there is to save in "
                "programs, or modules, that they have not seen: the policy decides as the default "
                "does. %d labels may be too few; raise labels.sites, or name more programs",
                *(self.env.name, number, 100 * self.settings.trees.least_share, labels),
            )


def decides_as_default(network: Network, weights: npt.NDArray[Any]) -> bool:
    """Whether a policy never decides otherwise than the compiler, because its last layer is 0."""
    matrix, bias = network.layers(weights)[-1]
    return network.default_lead > 0 and not matrix.any() and not bias.any()


def _failed(path: Path) -> Path:
    """The note that a module has no labels, in the place of their file."""
    return path.with_suffix(".failed")
