# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The policy that a training begins with.

An untrained network that is a residual on the compiler's own decision: it compiles to the very
objects of the default. Or a published policy.
"""

import dataclasses
import hashlib
import json
from pathlib import Path

import msgspec
import numpy as np
from absl import logging

from compiler_opt_perf.policy import export
from compiler_opt_perf.policy.encoding import fit_normalisation
from compiler_opt_perf.policy.export import ModelError, Policy
from compiler_opt_perf.policy.network import Network
from compiler_opt_perf.policy.problem import Problem
from compiler_opt_perf.run.seeds import derive_seed
from compiler_opt_perf.train.algorithms.cloning import Cloning
from compiler_opt_perf.train.checkpoint import Checkpoint
from compiler_opt_perf.train.config import Config
from compiler_opt_perf.train.driver import Training, validated
from compiler_opt_perf.train.env import default_decisions
from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.measure import CandidateMeasurer

_HIDDEN = (16, 8)
_MARGIN = 0.25


def read_policy(folder: Path, problem: Problem, with_pmu: bool, config: Config) -> Policy:
    """A published policy to begin with, asked about all decisions (`Network.asked`).

    A training may learn of any kind of decision that it is worth asking about.

    Raises:
      TrainingError: damaged, for another problem, with other features, or of another network than
        the configuration asks for.
    """
    try:
        policy = export.load(folder)
    except ModelError as error:
        raise TrainingError(f"--warm-start: {error}") from error
    network, place = policy.network, f"--warm-start={folder}"
    if isinstance(config.stages[0], Cloning):
        raise TrainingError(f"{place}: cloning begins anew; take a recipe with another first stage")
    if network.problem.name != problem.name:
        raise TrainingError(f"{place}: a policy for {network.problem.name}, not {problem.name}")
    if network.with_pmu != with_pmu:
        what = "PMU features; give" if network.with_pmu else "no PMU features; leave away"
        raise TrainingError(f"{place}: it reads {what} --profile")
    if network.problem != problem:
        rates = ",".join(network.problem.extra_rates) or "none"
        raise TrainingError(f"{place}: its extra rates are {rates}; give --extra-rates the same")
    for name, own in (("hidden", network.hidden), ("margin", network.default_lead)):
        asked = getattr(config, name)
        if asked is not None and asked != own:
            value = json.dumps(own, separators=(",", ":"))
            raise TrainingError(
                f"{place}: its network has {name}={value}, the recipe asks for another one; "
                f"take {name} out of the recipe, or give --setting={name}={value}"
            )
    return dataclasses.replace(policy, network=dataclasses.replace(network, asked=None))


def digest(policy: Policy) -> str:
    """SHA-256 of what a training that begins with the policy depends on."""
    normalisation = policy.network.normalisation
    arrays = (policy.weights, normalisation.center, normalisation.inverse_scale)
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def resolved(config: Config, policy: Policy | None) -> Config:
    """The configuration with the shape of its network, which may be that of a policy."""
    if policy is not None:
        network = policy.network
        return msgspec.structs.replace(config, hidden=network.hidden, margin=network.default_lead)
    hidden = _HIDDEN if config.hidden is None else config.hidden
    margin = _MARGIN if config.margin is None else config.margin
    return msgspec.structs.replace(config, hidden=hidden, margin=margin)


def begin(run: Training) -> tuple[Checkpoint, CandidateMeasurer]:
    """The state before the first iteration, and the measurer that measured it.

    A network without a margin decides at random until cloning has trained it: it is not measured.

    Raises:
      TrainingError: the compiler fails on a validation module.
    """
    if run.warm_start is None:
        config = run.config
        assert config.hidden is not None and config.margin is not None
        seed = derive_seed(config.seed, "rows")
        inputs, _ = default_decisions(run.compiler, run.split.training, config.rows, seed)
        normalisation = fit_normalisation(inputs, run.problem, run.with_pmu)
        network = Network(run.problem, run.with_pmu, config.hidden, normalisation, config.margin)
        weights = network.initial_weights(derive_seed(config.seed, "initial weights"))
    else:
        network, weights = run.warm_start.network, run.warm_start.weights
    measurer = run.measurer()
    change = None
    if not isinstance(run.config.stages[0], Cloning):
        label = f"{run.problem.name}: start"
        (measured,) = validated(run, measurer, [(network, weights)], label)
        if measured.failed:
            raise TrainingError(
                f"the compiler fails on validation modules ({', '.join(measured.failed)}) with the "
                "policy to begin with; remove the cause that the warnings above tell (with a time "
                "limit: raise timeout_s), or take these modules out of the corpus"
            )
        change = measured.change
        logging.info("start: %s on the validation modules", measured)
    record = {
        "modules": run.split.names,
        "stage": 0,
        "iteration": 0,
        "start_change": change,
        "best_change": change,
        "best_generation": 0,
        "curve": [],
    }
    state = {"weights": weights.astype(np.float64)}
    checkpoint = Checkpoint(state, weights, network.normalisation, record)
    checkpoint = checkpoint.with_best(network, weights)
    point = {"generation": 0, "validation_of_mean": change}
    return run.save(checkpoint, measurer, point), measurer
