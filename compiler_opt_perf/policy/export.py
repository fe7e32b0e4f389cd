# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A policy's published form: one folder that every mode of the compiler and the trainer read.

  model.tflite       the network for development mode, of TFLite's built-in operations
  output_spec.json   names the decision tensor, in upstream's layout
  weights.npz        weights and feature statistics: for release and interactive mode and training
  model.json         what it is: problem, features, network, seed, results, checksums

`-ml-inliner-model-under-training` and `-regalloc-model` take the folder.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from compiler_opt_perf.policy.arrays import (
    ArraysError,
    read_arrays,
    require_vector,
    write_arrays,
)
from compiler_opt_perf.policy.encoding import FloatArray, Normalisation, scored_features
from compiler_opt_perf.policy.network import DecisionKind, Network, to_grid
from compiler_opt_perf.policy.problem import PROBLEMS, Feature
from compiler_opt_perf.policy.tflite import write_model
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import (
    atomic_directory,
    files_of,
    has_sha256,
    read_input,
    sha256,
)
from compiler_opt_perf.run.json_text import JsonError, convert, decode

DESCRIPTION_FILE = "model.json"
_WEIGHTS_FILE = "weights.npz"
# The largest network that can be described has some MB.
_MOST_WEIGHT_BYTES = 1 << 24
_FORMAT = "compiler-opt-perf/model"
_VERSION = 5
# It had a SavedModel, too, which is not read any more.
_LAST_VERSION = 4


class ModelError(UserError):
    """A policy's folder that cannot be used."""


@dataclass(frozen=True)
class Policy:
    """A network with its weights and what is known about them.

    Attributes:
      network: shape and feature statistics.
      weights: float32 [network.size].
      description: JSON-able facts: seed, training run, measured results.
    """

    network: Network
    weights: FloatArray
    description: Mapping[str, Any]

    def decide(self, inputs: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
        """Decisions, int64 [rows]; see Network.decide."""
        return self.network.decide(self.weights, inputs)


class _DescribedFeature(msgspec.Struct, frozen=True):
    name: str
    dtype: str
    shape: tuple[int, ...]


class _Description(msgspec.Struct, frozen=True):
    """model.json, after format and version; `Policy.description` has what else is there."""

    problem: str
    with_pmu: bool
    hidden: tuple[int, ...]
    default_lead: float
    features: tuple[_DescribedFeature, ...]
    files: dict[str, str]
    extra_rates: tuple[str, ...] = ()
    asked: tuple[DecisionKind, ...] | None = None


def publish(policy: Policy, directory: Path) -> None:
    """Writes the policy's folder, completely or not at all. The same policy gives the same bytes.

    Raises:
      FileWriteError: the disk is full or the folder cannot be written.
      ValueError: the description is not JSON-able.
    """
    network = policy.network
    weights = to_grid(policy.weights)
    with atomic_directory(directory) as folder:
        write_model(folder, network, weights)
        write_arrays(
            folder / _WEIGHTS_FILE,
            weights=weights,
            center=network.normalisation.center,
            inverse_scale=network.normalisation.inverse_scale,
        )
        files = files_of(folder)
        description = {
            "format": _FORMAT,
            "version": _VERSION,
            "problem": network.problem.name,
            "with_pmu": network.with_pmu,
            "extra_rates": list(network.problem.extra_rates),
            "hidden": list(network.hidden),
            "default_lead": network.default_lead,
            "asked": msgspec.to_builtins(network.asked),
            "features": msgspec.to_builtins(_described_features(network.features)),
            **policy.description,
            "files": {str(path.relative_to(folder)): sha256(path) for path in files},
        }
        (folder / DESCRIPTION_FILE).write_text(
            json.dumps(description, indent=1, allow_nan=False) + "\n", encoding="utf-8"
        )


def load(directory: Path) -> Policy:
    """Reads a folder that `publish` of this version or the last one wrote.

    Raises:
      ModelError: a file is missing, is not what was published, or belongs to another version of
        the feature tables.
    """
    path = directory / DESCRIPTION_FILE
    try:
        content = read_input(path)
        version = decode(content, dict[str, Any], path).get("version")
        known = _LAST_VERSION if version == _LAST_VERSION else _VERSION
        fields = decode(content, dict[str, Any], path, (_FORMAT, known))
        described = convert(fields, _Description, path)
    except OSError as error:
        raise ModelError(
            f"{path}: {error.strerror}; name the folder of a policy, as cop train policy writes"
        ) from error
    except JsonError as error:
        raise ModelError(f"{error}; train again, or copy the policy as a whole") from error
    network, weights = _load_described(directory, path, described)
    own = {"format", "version", *_Description.__struct_fields__}
    return Policy(network, weights, {k: v for k, v in fields.items() if k not in own})


def _load_described(
    directory: Path, path: Path, description: _Description
) -> tuple[Network, FloatArray]:
    problem = PROBLEMS.get(description.problem)
    if problem is None:
        known = ", ".join(PROBLEMS)
        raise ModelError(f"{path}: unknown problem {description.problem!r} (known: {known})")
    problem = problem.with_rates(description.extra_rates)
    expected = _described_features(problem.inputs(description.with_pmu))
    if description.features != expected:
        names = {f.name for f in description.features} ^ {f.name for f in expected}
        raise ModelError(
            f"{path}: features differ from this version's tables "
            f"({', '.join(sorted(names)) or 'shape, type or order'}); train again"
        )
    for name, checksum in description.files.items():
        file = directory / name
        if not file.is_file():
            raise ModelError(f"{file}: missing; copy the folder as a whole or publish again")
        if not has_sha256(file, checksum):
            raise ModelError(f"{file}: differs from its checksum in {path.name}; publish again")
    weights_file = directory / _WEIGHTS_FILE
    try:
        arrays = read_arrays(
            weights_file, ["weights", "center", "inverse_scale"], _MOST_WEIGHT_BYTES
        )
        features = len(scored_features(problem, description.with_pmu))
        require_vector("center", arrays["center"], "float32", features)
        require_vector("inverse_scale", arrays["inverse_scale"], "float32", features)
        normalisation = Normalisation(arrays["center"], arrays["inverse_scale"])
        network = Network(
            problem,
            description.with_pmu,
            description.hidden,
            normalisation,
            description.default_lead,
            description.asked,
        )
        require_vector("weights", arrays["weights"], "float32", network.size)
    except ArraysError as error:
        raise ModelError(f"{weights_file}: damaged ({error}); publish again") from error
    except ValueError as error:
        raise ModelError(f"{path}: $: {error}; publish again") from error
    return network, arrays["weights"]


def _described_features(features: Iterable[Feature]) -> tuple[_DescribedFeature, ...]:
    return tuple(_DescribedFeature(one.name, one.dtype, one.shape) for one in features)
