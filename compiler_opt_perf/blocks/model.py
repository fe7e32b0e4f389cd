# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A learned cost model, and its published form, one folder:

  model.json     description: network, vocabulary, CPUs, data, results, checksums
  weights.npz    the weights by name, float32

The same model gives the same bytes.
"""

import functools
import hashlib
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from absl import logging

from compiler_opt_perf.blocks.config import CostModelConfig, LearnedError
from compiler_opt_perf.blocks.graphs import (
    PMU_INPUTS,
    Floats,
    GraphBuilder,
    Vocabulary,
    widened,
)
from compiler_opt_perf.blocks.networks import Weights, layout
from compiler_opt_perf.blocks.runtime import predictions
from compiler_opt_perf.policy.arrays import ArraysError, read_arrays, write_arrays
from compiler_opt_perf.run.executor import Executor
from compiler_opt_perf.run.files import (
    atomic_directory,
    files_of,
    has_sha256,
    read_input,
    sha256,
)
from compiler_opt_perf.run.json_text import JsonError, convert, decode

_FORMAT = "compiler-opt-perf/cost-model"
_VERSION = 1
DESCRIPTION_FILE = "model.json"
_WEIGHTS_FILE = "weights.npz"
# Published models have less than 1 MB.
_MOST_WEIGHT_BYTES = 1 << 28
# The number of blocks that are predicted at once, and the most instructions in the cache.
_AT_ONCE, _MOST_INSTRUCTIONS = 4096, 500_000


class _Description(msgspec.Struct, frozen=True):
    """The required fields of model.json, without format and version."""

    config: CostModelConfig
    cpus: tuple[str, ...]
    pmu_inputs: tuple[str, ...]
    vocabulary: tuple[str, ...]
    files: dict[str, str]


@dataclass(frozen=True)
class CostModel:
    """A network with its weights and its description.

    Attributes:
      config: network, training and split of the data.
      vocabulary: known tokens.
      cpus: LLVM's names of the CPUs that it was trained for.
      weights: name -> float32 array.
      description: further JSON fields of model.json: data, results.
    """

    config: CostModelConfig
    vocabulary: Vocabulary
    cpus: tuple[str, ...]
    weights: Weights
    description: Mapping[str, Any]

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of everything that predictions depend on."""
        known = json.dumps(
            [msgspec.to_builtins(self.config), self.vocabulary.tokens, self.cpus], sort_keys=True
        )
        found = hashlib.sha256(known.encode())
        for name, value in sorted(self.weights.items()):
            found.update(name.encode() + value.tobytes())
        return found.hexdigest()

    def reads(self, pmu_input: str) -> bool:
        """Whether predictions depend on one of PMU_INPUTS."""
        number = PMU_INPUTS.index(pmu_input)
        rows = self.weights["pmu"][[number, number + len(PMU_INPUTS)]] if self.config.pmu else 0
        return bool(np.any(rows))

    def require_cpu(self, cpu: str) -> int:
        """The index of a CPU. Raises LearnedError: the model was not trained for it."""
        if cpu not in self.cpus:
            raise LearnedError(
                f"the model was trained for {', '.join(self.cpus)}, not for {cpu}: give "
                f"--cpu={self.cpus[0]} if that is meant, or train one for {cpu}: measure 1,000 "
                "blocks there (cop cost measure-blocks), then cop train cost-model --warm-start"
            )
        return self.cpus.index(cpu)

    def predict(
        self,
        codes: Sequence[bytes],
        cpu: str,
        pmu: Sequence[Floats | None] | None = None,
        executor: Executor | None = None,
    ) -> tuple[npt.NDArray[np.float64], dict[int, str]]:
        """Predicts cycles per execution, for many executions in a row.

        Args:
          codes: machine code of each block.
          cpu: LLVM's name of the CPU.
          pmu: PMU inputs of their instructions, as in GraphBuilder.graphs.
          executor: workers that share many blocks; they do not change the results.

        Returns:
          float64 [blocks], NaN without a prediction; and index of a block -> reason without one.

        Raises:
          LearnedError: the model does not know the CPU.
        """
        number = self.require_cpu(cpu)
        starts = range(0, len(codes), _AT_ONCE)
        parts = [
            _Part(self, codes[n : n + _AT_ONCE], pmu and pmu[n : n + _AT_ONCE]) for n in starts
        ]
        before = time.monotonic()
        if executor is None or len(parts) == 1:
            outcomes = [_predict(part) for part in parts]
        else:
            label = f"predicting parts of {_AT_ONCE:,} blocks"
            outcomes = [outcome.get() for outcome in executor.map(_predict, parts, label=label)]
        if len(parts) > 1:
            seconds = time.monotonic() - before
            rate = len(codes) / seconds
            logging.info("%d blocks in %.1f s, %.0f a second", len(codes), seconds, rate)
        cycles = [found[:, number] for found, _ in outcomes]
        problems = {
            start + place: why
            for start, (_, refused) in zip(starts, outcomes, strict=True)
            for place, why in refused.items()
        }
        return np.concatenate([np.zeros(0), *cycles]), problems


class _Part(NamedTuple):
    """Blocks that are predicted at once; see CostModel.predict."""

    model: CostModel
    codes: Sequence[bytes]
    pmu: Sequence[Floats | None] | None


def _predict(part: _Part) -> tuple[npt.NDArray[np.float64], dict[int, str]]:
    """Cycles, float64 [blocks, cpus], and reasons without a prediction, as CostModel.predict."""
    model = part.model
    builder = _builder(model.vocabulary.tokens)
    problems = {n: why for n, code in enumerate(part.codes) if (why := builder.problem(code))}
    good = [n for n in range(len(part.codes)) if n not in problems]
    found = np.full((len(part.codes), len(model.cpus)), np.nan)
    if good:
        known = None if part.pmu is None else [part.pmu[n] for n in good]
        graphs = builder.graphs([part.codes[n] for n in good], known)
        blocks = np.arange(len(good))
        found[good] = predictions(model.config, model.weights, len(model.cpus), graphs, blocks)
    if len(builder) > _MOST_INSTRUCTIONS:
        _builder.cache_clear()
    return found, problems


@functools.lru_cache(maxsize=2)
def _builder(tokens: tuple[str, ...]) -> GraphBuilder:
    """A graph builder per vocabulary, whose cache serves later predictions."""
    return GraphBuilder(Vocabulary(tokens))


def counted(problems: Mapping[int, str]) -> dict[str, int]:
    """Reason -> number of blocks without prediction, most frequent first."""
    counts = Counter(problems.values())
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def publish(model: CostModel, directory: Path) -> None:
    """Writes the model's folder, completely or not at all.

    Raises:
      FileWriteError: the disk is full or the folder cannot be written.
    """
    with atomic_directory(directory) as folder:
        write_arrays(folder / _WEIGHTS_FILE, compressed=False, **model.weights)
        files = files_of(folder)
        description = {
            "format": _FORMAT,
            "version": _VERSION,
            "name": model.config.name,
            "cpus": list(model.cpus),
            **model.description,
            "config": msgspec.to_builtins(model.config),
            "pmu_inputs": list(PMU_INPUTS),
            "versions": {name: version(name) for name in ("numpy", "tensorflow-cpu", "iced-x86")},
            "files": {str(path.relative_to(folder)): sha256(path) for path in files},
            "vocabulary": list(model.vocabulary.tokens),
        }
        (folder / DESCRIPTION_FILE).write_text(
            json.dumps(description, indent=1, allow_nan=False) + "\n", encoding="utf-8"
        )


def load(directory: Path) -> CostModel:
    """Reads a folder that `publish` wrote.

    Raises:
      LearnedError: a file is missing, damaged or changed.
    """
    path = directory / DESCRIPTION_FILE
    try:
        fields = decode(read_input(path), dict[str, Any], path, (_FORMAT, _VERSION))
        described = convert(fields, _Description, path)
    except OSError as error:
        raise LearnedError(
            f"{path}: {error.strerror}; a cost model is a folder written by cop train cost-model"
        ) from error
    except JsonError as error:
        raise LearnedError(f"{error}; train again, or copy the model as a whole") from error
    inputs = len(described.pmu_inputs)
    # Models from before an input was added lack the last ones.
    if described.pmu_inputs != PMU_INPUTS[:inputs]:
        raise LearnedError(f"{path}: $.pmu_inputs: other inputs than this version's; train again")
    for name, checksum in described.files.items():
        file = directory / name
        if not file.is_file():
            raise LearnedError(f"{file}: missing; copy the folder as a whole, or train again")
        if not has_sha256(file, checksum):
            raise LearnedError(f"{file}: differs from its checksum in {path.name}; train again")
    vocabulary = Vocabulary(described.vocabulary)
    shapes = layout(described.config, len(vocabulary), len(described.cpus), inputs)
    file = directory / _WEIGHTS_FILE
    try:
        weights = read_arrays(file, shapes, _MOST_WEIGHT_BYTES)
        for name, shape in shapes.items():
            if weights[name].shape != shape or weights[name].dtype != np.float32:
                raise ArraysError(f"{name} is {weights[name].dtype} {weights[name].shape}")
            if not np.isfinite(weights[name]).all():
                raise ArraysError(f"{name} has values that are not finite")
    except ArraysError as error:
        raise LearnedError(f"{file}: damaged ({error}); train again") from error
    if described.config.pmu:
        weights["pmu"] = widened(weights["pmu"])
    own = {"format", "version", "name", "versions", *_Description.__struct_fields__}
    description = {key: value for key, value in fields.items() if key not in own}
    return CostModel(described.config, vocabulary, described.cpus, weights, description)
