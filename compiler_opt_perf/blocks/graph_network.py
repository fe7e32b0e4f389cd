# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The graph network of networks.py in numpy, for predictions without TensorFlow's slow start.

Results equal `networks.cycles` up to rounding.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.blocks.block_graph import EDGE_KINDS, ROLES, send_messages
from compiler_opt_perf.blocks.config import Granite
from compiler_opt_perf.blocks.graphs import Batch
from compiler_opt_perf.blocks.networks import NORMALISER

Floats = npt.NDArray[np.float32]


def graph_cycles(
    network: Granite, weights: Mapping[str, Floats], cpus: int, batch: Batch
) -> Floats:
    """Predicts cycles per execution, float32 [blocks, cpus]."""
    width = network.width
    nodes = weights["tokens"][batch.tokens]
    known = weights["forms"][batch.forms]
    if "pmu" in weights:
        known += batch.pmu @ weights["pmu"]
    # Each instruction has a node of its own, so no index is repeated.
    nodes[batch.instructions] += known
    # Columns: node states, messages along edges, messages against edges.
    joined = np.empty((len(nodes), 3 * width), np.float32)
    directions = (
        (batch.sources, batch.targets, batch.kinds),
        (batch.targets, batch.sources, batch.kinds + np.int32(EDGE_KINDS)),
    )
    for number in range(network.rounds):
        own = {
            name.partition("/")[2]: value
            for name, value in weights.items()
            if name.startswith(f"round{number}/")
        }
        sent = nodes @ own["message"]
        joined[:, :width] = nodes
        joined[:, width:] = 0
        for side, (start, end, kinds) in enumerate(directions):
            columns = slice(side * width, (side + 1) * width)
            received = joined[:, width:][:, columns]
            send_messages(sent[:, columns], own["gates"], own["kinds"], start, end, kinds, received)
        inner = joined @ own["inner"]
        inner += own["inner_bias"]
        np.maximum(inner, 0, out=inner)
        nodes += inner @ own["outer"]
        nodes -= nodes.mean(1, keepdims=True)
        variance = np.einsum("ij,ij->i", nodes, nodes)[:, None] / np.float32(width)
        nodes *= 1 / np.sqrt(variance + np.float32(NORMALISER))
        nodes *= own["scale"]
        nodes += own["shift"]
    return _head(network, weights, batch, nodes[batch.instructions], cpus)


def _head(
    network: Granite, weights: Mapping[str, Floats], batch: Batch, values: Floats, cpus: int
) -> Floats:
    """Predicts the cycles of blocks from their instructions' states.

    Args:
      network: the network's configuration.
      weights: weights by name.
      batch: the blocks.
      values: float32 [instructions, width].
      cpus: number of CPUs.
    """
    hidden = np.maximum(values @ weights["head/hidden"] + weights["head/hidden_bias"], 0)
    claims = _softplus(hidden @ weights["head/claims"] + weights["head/claims_bias"])
    first = np.cumsum(batch.lengths) - batch.lengths
    sums = np.add.reduceat(claims, first, axis=0)
    cycles: Floats = sums.reshape(-1, cpus, network.resources).max(2)
    latencies = hidden @ weights["head/latencies"] + weights["head/latencies_bias"]
    by_role = _softplus(latencies).reshape(-1, cpus)
    chain = np.zeros_like(cycles)
    links = by_role[batch.chain * ROLES + batch.roles] * batch.weights[:, None]
    np.add.at(chain, batch.chain_blocks, links)
    return np.maximum(cycles, chain, out=cycles)


def _softplus(values: Floats) -> Floats:
    found: Floats = np.logaddexp(np.float32(0), values)
    return found
