# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The network of learned cost models, in plain TensorFlow.

It is a graph network as in GRANITE (Sykora et al., IISWC 2022): nodes receive messages along
edges, in rounds.

Each instruction uses each of several latent resources for some cycles, its claims, and adds a
latency to the dependence chain that it is on. The cycles of the block are the largest sum, over the
resources and the chain. Each CPU has its own claims and latencies (multi-task learning).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.blocks.block_graph import EDGE_KINDS, ROLES
from compiler_opt_perf.blocks.config import CostModelConfig, Granite
from compiler_opt_perf.blocks.graphs import FIRST_INPUTS, PMU_INPUTS, Batch, widened

#: A TensorFlow tensor.
Tensor = Any
Weights = dict[str, npt.NDArray[np.float32]]

#: Added to the variance in layer normalisation.
NORMALISER = 1e-5
# Initial claims and latencies, in cycles.
_FIRST_CLAIM, _FIRST_LATENCY = 0.3, 1.0
# Inputs that are int32 arrays of the batch.
_GRAPH = ("tokens", "forms", "instructions", "sources", "targets", "kinds")


def layout(
    config: CostModelConfig, tokens: int, cpus: int, pmu_inputs: int = len(PMU_INPUTS)
) -> dict[str, tuple[int, ...]]:
    """Name -> shape of each weight."""
    network, width = config.network, config.network.width
    found: dict[str, tuple[int, ...]] = {"tokens": (tokens, width)}
    if config.pmu:
        found["pmu"] = (2 * pmu_inputs, width)
    found["forms"] = (tokens, width)
    for number in range(network.rounds):
        name = f"round{number}"
        found[f"{name}/message"] = (width, 2 * width)
        found[f"{name}/kinds"] = (2 * EDGE_KINDS, width)
        found[f"{name}/gates"] = (2 * EDGE_KINDS, width)
        found[f"{name}/inner"] = (3 * width, 2 * width)
        found[f"{name}/inner_bias"] = (2 * width,)
        found[f"{name}/outer"] = (2 * width, width)
        found[f"{name}/scale"] = (width,)
        found[f"{name}/shift"] = (width,)
    found["head/hidden"] = (width, width)
    found["head/hidden_bias"] = (width,)
    found["head/claims"] = (width, cpus * network.resources)
    found["head/claims_bias"] = (cpus * network.resources,)
    found["head/latencies"] = (width, ROLES * cpus)
    found["head/latencies_bias"] = (ROLES * cpus,)
    return found


def named(shapes: Mapping[str, tuple[int, ...]], flat: Tensor, tf: Any = None) -> dict[str, Tensor]:
    """Splits a flat vector into weights by name: a numpy array, or with `tf` a tensor."""
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    if tf is None:
        parts = np.split(flat, np.cumsum(sizes)[:-1])
        return {n: part.reshape(shapes[n]) for n, part in zip(shapes, parts, strict=True)}
    parts = tf.split(flat, sizes)
    return {n: tf.reshape(part, shapes[n]) for n, part in zip(shapes, parts, strict=True)}


def joined(shapes: Mapping[str, tuple[int, ...]], weights: Weights) -> npt.NDArray[np.float32]:
    """Concatenates weights to the flat vector that `named` splits."""
    return np.concatenate([weights[name].ravel() for name in shapes])


def initial_weights(shapes: Mapping[str, tuple[int, ...]], seed: int) -> Weights:
    """Random initial weights, float32."""
    random = np.random.default_rng(seed)
    weights: Weights = {}
    for name, shape in shapes.items():
        value: npt.NDArray[Any]
        part = name.partition("/")[2]
        if part == "scale":
            value = np.ones(shape)
        elif part == "claims_bias":
            value = np.full(shape, np.log(np.expm1(_FIRST_CLAIM)))
        elif part == "latencies_bias":
            value = np.full(shape, np.log(np.expm1(_FIRST_LATENCY)))
        elif len(shape) == 1:
            value = np.zeros(shape)
        else:
            # Embeddings are looked up by row, so their fan-in is not their number of rows.
            inputs = shape[0] if "/" in name and part not in ("kinds", "gates") else 4
            scale = 0.1 if part in ("outer", "claims", "latencies") else 1.0
            drawn = (2 * FIRST_INPUTS, shape[1]) if name == "pmu" else shape
            value = random.normal(0, scale / np.sqrt(inputs), drawn)
            if name == "pmu":
                value = widened(value.astype(np.float32))
        weights[name] = value.astype(np.float32)
    return weights


def transferred(
    config: CostModelConfig,
    start: Weights,
    tokens: Mapping[int, int],
    cpus: Sequence[int],
    fresh: Weights,
) -> Weights:
    """Initial weights from another model of the same network, with other tokens and CPUs.

    Args:
      config: the new model's configuration.
      start: the other model's weights.
      tokens: number of a token in the new model -> in the other, for tokens that both know.
      cpus: for each CPU of the new model, the index of the other's CPU that it starts from.
      fresh: random weights for tokens that the other model lacks. PMU inputs that it lacks start
        without effect.
    """
    found = {}
    for name, value in fresh.items():
        if name in ("tokens", "forms"):
            found[name] = value.copy()
            found[name][list(tokens)] = start[name][list(tokens.values())]
        elif name == "pmu":
            found[name] = start.get(name, np.zeros_like(value))
        elif name.startswith("head/claims"):
            there = start[name].reshape(*value.shape[:-1], -1, config.network.resources)
            found[name] = there[..., cpus, :].reshape(value.shape)
        elif name.startswith("head/latencies"):
            there = start[name].reshape(*value.shape[:-1], ROLES, -1)
            found[name] = there[..., cpus].reshape(value.shape)
        else:
            found[name] = start[name]
    return found


def inputs_of(batch: Batch, config: CostModelConfig) -> dict[str, npt.NDArray[Any]]:
    """Name -> array of each input of the network for a batch."""
    found: dict[str, npt.NDArray[Any]] = {
        "links": batch.chain * ROLES + batch.roles,
        "link_blocks": batch.chain_blocks,
        "link_weights": batch.weights,
        "blocks": np.repeat(np.arange(len(batch.lengths)), batch.lengths).astype(np.int32),
        **{name: getattr(batch, name) for name in _GRAPH},
    }
    if config.pmu:
        found["pmu"] = batch.pmu
    return found


def specs(config: CostModelConfig, tf: Any) -> dict[str, Any]:
    """The TensorFlow types of `inputs_of`, for batches of any size."""
    flat = tf.TensorSpec([None], tf.int32)
    found = dict.fromkeys(("blocks", "links", "link_blocks", *_GRAPH), flat)
    found["link_weights"] = tf.TensorSpec([None], tf.float32)
    if config.pmu:
        found["pmu"] = tf.TensorSpec([None, 2 * len(PMU_INPUTS)], tf.float32)
    return {name: tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in found.items()}


def cycles(
    config: CostModelConfig,
    weights: Mapping[str, Tensor],
    inputs: Mapping[str, Tensor],
    cpus: int,
    tf: Any,
) -> Tensor:
    """Predicts cycles per execution, float32 [blocks, cpus]."""
    network = config.network
    nodes = tf.gather(weights["tokens"], inputs["tokens"])
    known = tf.gather(weights["forms"], inputs["forms"])
    if "pmu" in inputs:
        known += inputs["pmu"] @ weights["pmu"]
    count = tf.shape(nodes)[0]
    nodes += tf.math.unsorted_segment_sum(known, inputs["instructions"], count)
    sources, targets, kinds = inputs["sources"], inputs["targets"], inputs["kinds"]
    for number in range(network.rounds):
        name = f"round{number}"
        forward, backward = tf.split(nodes @ weights[f"{name}/message"], 2, 1)
        parts = [nodes]
        for sent, start, end, first in (
            (forward, sources, targets, 0),
            (backward, targets, sources, EDGE_KINDS),
        ):
            gate = tf.gather(weights[f"{name}/gates"], kinds + first)
            shift = tf.gather(weights[f"{name}/kinds"], kinds + first)
            message = tf.nn.relu(tf.gather(sent, start) * gate + shift)
            parts.append(tf.math.unsorted_segment_sum(message, end, count))
        inner = tf.concat(parts, 1) @ weights[f"{name}/inner"] + weights[f"{name}/inner_bias"]
        nodes += tf.nn.relu(inner) @ weights[f"{name}/outer"]
        centred = nodes - tf.reduce_mean(nodes, 1, keepdims=True)
        variance = tf.reduce_mean(centred * centred, 1, keepdims=True)
        scale = weights[f"{name}/scale"] * tf.math.rsqrt(variance + NORMALISER)
        nodes = centred * scale + weights[f"{name}/shift"]
    of_instructions = tf.gather(nodes, inputs["instructions"])
    return _head(network, weights, inputs, of_instructions, cpus, tf)


def _head(
    network: Granite,
    weights: Mapping[str, Tensor],
    inputs: Mapping[str, Tensor],
    values: Tensor,
    cpus: int,
    tf: Any,
) -> Tensor:
    """Predicts the cycles of blocks from their instructions' states [instructions, width]."""
    hidden = tf.nn.relu(values @ weights["head/hidden"] + weights["head/hidden_bias"])
    claims = tf.nn.softplus(hidden @ weights["head/claims"] + weights["head/claims_bias"])
    sums = tf.math.segment_sum(claims, inputs["blocks"])
    largest = tf.reduce_max(tf.reshape(sums, [-1, cpus, network.resources]), 2)
    latencies = hidden @ weights["head/latencies"] + weights["head/latencies_bias"]
    by_role = tf.reshape(tf.nn.softplus(latencies), [-1, cpus])
    on_chain = tf.gather(by_role, inputs["links"]) * inputs["link_weights"][:, None]
    count = tf.shape(largest)[0]
    chain = tf.math.unsorted_segment_sum(on_chain, inputs["link_blocks"], count)
    return tf.maximum(largest, chain)
