# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Graphs of many blocks as flat arrays, from which batches are taken."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import iced_x86
import numpy as np
import numpy.typing as npt

from compiler_opt_perf.blocks.block_graph import INSTRUCTION_VALUES, block_graphs
from compiler_opt_perf.blocks.instructions import (
    OPCODE,
    Describer,
    GraphInstruction,
    register_token,
)

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]

#: PMU inputs of an instruction: cache miss rates by level, mispredict rate, log2(1 + executions),
#: rate of loads that waited because a store could not be forwarded to them.
PMU_INPUTS = ("l1_miss", "l2_miss", "l3_miss", "mispredict", "executions", "failed_forward")
#: The number of inputs of the first models. Weights of those added since begin at zero, and draw
#: no random numbers, so that a training reproduces the published models.
FIRST_INPUTS = 5
# Tokens that no graph has. Initial weights are drawn at random for each token; without these, a
# training would not reproduce the published models.
_UNUSED = ("<D>", "<S>")


def widened(weights: Floats) -> Floats:
    """The weights of all PMU inputs, where those that a model lacks have no effect.

    Args:
      weights: float32 [2 * inputs, width], of its inputs, the first of PMU_INPUTS, as in Batch.pmu.

    Returns:
      float32 [2 * len(PMU_INPUTS), width].
    """
    values, known = np.split(weights, 2)
    more = np.zeros((len(PMU_INPUTS) - len(values), weights.shape[1]), weights.dtype)
    return np.concatenate([values, more, known, more])


class Vocabulary:
    """Numbers tokens from 1; 0 is an unknown token. Blocks with unknown opcodes are refused.

    Attributes:
      tokens: the known tokens, in order.
      numbers: token -> number.
    """

    def __init__(self, tokens: Sequence[str]):
        self.tokens = tuple(tokens)
        self.numbers = {token: number for number, token in enumerate(self.tokens, 1)}

    def __len__(self) -> int:
        """Number of tokens, including the unknown token."""
        return len(self.tokens) + 1

    def number(self, token: str) -> int:
        """The token's number; 0 if it is unknown."""
        return self.numbers.get(token, 0)

    @classmethod
    def from_blocks(cls, codes: Iterable[bytes], least: int) -> "Vocabulary":
        """The tokens of blocks: all opcodes, and other tokens that `least` blocks have."""
        describer = Describer()
        counts: dict[str, int] = {}
        for code in codes:
            seen: set[str] = set()
            for instruction, _ in describer.block(code):
                described = instruction.described
                seen.update((described.opcode, described.form, *described.immediates, *_UNUSED))
                seen.update(
                    token
                    for _, token in (*described.reads, *described.writes, *described.addresses)
                )
                for access in described.accesses:
                    seen.update(register_token(r) for r in (access.base, access.index) if r)
                    if access.reads or access.writes:
                        seen.add(access.token)
            for token in seen:
                counts[token] = counts.get(token, 0) + 1
        kept = (t for t, n in counts.items() if n >= least or t.startswith(OPCODE))
        return cls(sorted(kept))


@dataclass(frozen=True)
class Batch:
    """Blocks as flat arrays.

    Attributes:
      tokens: int32 [nodes].
      node_blocks: int32 [nodes], the node's block, ascending.
      instructions: int32 [instructions], their nodes.
      forms: int32 [instructions], tokens of operand forms.
      pmu: float32 [instructions, 2 * len(PMU_INPUTS)]: values, 0 where unknown, then 1 where
        known.
      sources, targets, kinds: int32 [edges]: nodes, nodes, kinds of edges.
      lengths: int32 [blocks], number of instructions.
      chain, chain_blocks, roles, weights: [links], the longest loop-carried dependence chains:
        instruction, its block, how the chain enters it, and 1 / (number of executions that the
        chain spans).
    """

    tokens: Ints
    node_blocks: Ints
    instructions: Ints
    forms: Ints
    pmu: Floats
    sources: Ints
    targets: Ints
    kinds: Ints
    lengths: Ints
    chain: Ints
    chain_blocks: Ints
    roles: Ints
    weights: Floats


class GraphBuilder:
    """Builds graphs of blocks with one vocabulary; caches decoded instructions."""

    def __init__(self, vocabulary: Vocabulary):
        self.vocabulary = vocabulary
        self._describer = Describer()
        # Bytes of an instruction -> its number.
        self._known: dict[bytes, int] = {}
        # Number of an instruction -> reason why blocks with it have no prediction.
        self._problems: dict[int, str] = {}
        # Rows of `instructions` for block_graphs, concatenated.
        self._instructions: list[int] = []
        # id() of each Described -> its record's index.
        self._described: dict[int, int] = {}
        self._records: list[int] = []
        self._offsets: list[int] = []
        self._latencies: list[float] = []
        self._forms: list[int] = []
        # Blocks that `problem` decoded, for the next call of `graphs`.
        self._looked: dict[bytes, _Looked] = {}

    def __len__(self) -> int:
        """Number of cached instructions, constants included."""
        return len(self._known)

    def problem(self, code: bytes) -> str:
        """The reason why a block has no graph; empty if it has one."""
        if not code:
            return "no instructions"
        looked = self._look(code)
        if looked is None:
            return "no instruction"
        if self._problems:
            for number in looked.numbers:
                if number in self._problems:
                    return self._problems[number]
        self._looked[code] = looked
        return ""

    def graphs(
        self, codes: Sequence[bytes], pmu: Sequence[Floats | None] | None = None
    ) -> "Graphs":
        """Builds the graphs of blocks; a block without instructions has an empty graph.

        Args:
          codes: machine code of each block.
          pmu: for each block float32 [instructions, len(PMU_INPUTS)], NaN where unknown; or None.

        Raises:
          CommandError: block_graph.c does not compile.
          MemoryError: memory runs out.
        """
        numbers: list[int] = []
        ends: list[int] = []
        starts = [0]
        for code in codes:
            looked = self._looked.pop(code, None) or self._look(code) or _Looked([], [])
            numbers += looked.numbers
            ends += looked.ends
            starts.append(len(numbers))
        instructions = np.array(self._instructions, np.int64).reshape(-1, INSTRUCTION_VALUES)
        chosen = np.array(numbers, np.int32)
        tokens, places, edges, links, counts = block_graphs(
            np.array(self._records, np.int64),
            np.array(self._offsets, np.int64),
            np.array(self._latencies, np.float64),
            instructions,
            chosen,
            np.array(ends, np.int32),
            np.array(starts, np.int64),
        )
        values = np.full((len(chosen), len(PMU_INPUTS)), np.nan, np.float32)
        for start, end, known in zip(starts, starts[1:], pmu or [None] * len(codes), strict=False):
            if known is not None:
                values[start:end] = known
        described = instructions[chosen, 0]
        return Graphs(
            tokens=tokens,
            forms=np.array(self._forms, np.int32)[described],
            instructions=places,
            pmu=values,
            edges=edges,
            chains=links,
            starts=np.concatenate([np.zeros((1, 4), np.int64), np.cumsum(counts, 0)]),
        )

    def _look(self, code: bytes) -> "_Looked | None":
        """Decodes a block; None if it has an invalid instruction."""
        numbers: list[int] = []
        ends: list[int] = []
        end = 0
        decoder = iced_x86.Decoder(64, code)
        for instruction in decoder:
            start, end = end, end + instruction.len
            content = code[start:end]
            number = self._known.get(content)
            if number is None:
                if instruction.is_invalid:
                    return None
                number = self._add(self._describer.instruction(instruction, content, decoder))
                self._known[content] = number
            numbers.append(number)
            ends.append(end)
        return _Looked(numbers, ends)

    def _add(self, instruction: GraphInstruction) -> int:
        """Adds a new instruction; returns its number."""
        description = instruction.described
        added = len(self._instructions) // INSTRUCTION_VALUES
        if not self.vocabulary.number(description.opcode):
            self._problems[added] = f"unknown opcode: {description.opcode.removeprefix(OPCODE)}"
        described = self._described.get(id(description))
        if described is None:
            described = self._described[id(description)] = len(self._offsets)
            number = self.vocabulary.number
            self._offsets.append(len(self._records))
            self._records += description.record(number)
            self._latencies.append(description.latency)
            self._forms.append(number(description.form))
        self._instructions += (
            *(described, instruction.displacement, instruction.from_next),
            *(instruction.grows, instruction.by),
        )
        return added


class _Looked(NamedTuple):
    """A decoded block: numbers of its instructions, and the end offset of each."""

    numbers: list[int]
    ends: list[int]


@dataclass(frozen=True)
class Graphs:
    """Graphs of many blocks; `take` makes a batch of some of them.

    Attributes:
      tokens, forms, instructions: see Batch; nodes are numbered within their block.
      edges: int32 [edges, 3], source, target, kind.
      pmu: float32 [instructions, len(PMU_INPUTS)], NaN where unknown.
      chains: float32 [links, 3], instruction, role, weight.
      starts: int64 [blocks + 1, 4], the first node, instruction, edge and link of each block.
    """

    tokens: Ints
    forms: Ints
    instructions: Ints
    pmu: Floats
    edges: Ints
    chains: Floats
    starts: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Number of instructions of each block."""
        return np.diff(self.starts[:, 1])

    def take(self, blocks: npt.NDArray[np.int64]) -> Batch:
        """A batch of the blocks with these indices, in this order."""
        first, counts = self.starts[blocks], self.starts[blocks + 1] - self.starts[blocks]
        base = np.concatenate([[0], np.cumsum(counts[:-1, 0])])
        nodes, instructions, edges, links = (
            _ranges(first[:, part], counts[:, part]) for part in range(4)
        )
        chain = self.chains[links]
        before = np.cumsum(counts[:, 1]) - counts[:, 1]
        edge_base = np.repeat(base, counts[:, 2])
        pmu = self.pmu[instructions]
        known = np.isfinite(pmu)
        chosen = self.edges[edges]
        return Batch(
            tokens=self.tokens[nodes],
            node_blocks=np.repeat(np.arange(len(blocks)), counts[:, 0]).astype(np.int32),
            instructions=(self.instructions[instructions] + np.repeat(base, counts[:, 1])).astype(
                np.int32
            ),
            forms=self.forms[instructions],
            pmu=np.concatenate([np.where(known, pmu, 0), known], 1).astype(np.float32),
            sources=(chosen[:, 0] + edge_base).astype(np.int32),
            targets=(chosen[:, 1] + edge_base).astype(np.int32),
            kinds=np.ascontiguousarray(chosen[:, 2]),
            lengths=counts[:, 1].astype(np.int32),
            chain=(chain[:, 0] + np.repeat(before, counts[:, 3])).astype(np.int32),
            chain_blocks=np.repeat(np.arange(len(blocks)), counts[:, 3]).astype(np.int32),
            roles=chain[:, 1].astype(np.int32),
            weights=chain[:, 2],
        )


def _ranges(starts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Concatenates the ranges [start, start + count)."""
    before = np.cumsum(counts) - counts
    found: npt.NDArray[np.int64] = np.arange(counts.sum()) + np.repeat(starts - before, counts)
    return found
