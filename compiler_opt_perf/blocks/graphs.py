# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Graphs of many blocks as flat arrays, of which batches are cut."""

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

#: What is known of an instruction of a run: shares of its loads that miss a level of the cache, of
#: its executions that are mispredicted, and log2(1 + executions).
PMU_INPUTS = ("l1_miss", "l2_miss", "l3_miss", "mispredict", "executions")
# Tokens that no graph has. First weights are drawn at random for each token: without these tokens,
# a training would not give the published models again.
_UNUSED = ("<D>", "<S>")


class Vocabulary:
    """Tokens by number. 0 is what the training never saw; opcodes are refused then.

    Attributes:
      tokens: those that are known, in order.
      numbers: of the tokens, from 1.
    """

    def __init__(self, tokens: Sequence[str]):
        self.tokens = tuple(tokens)
        self.numbers = {token: number for number, token in enumerate(self.tokens, 1)}

    def __len__(self) -> int:
        """With the unknown one."""
        return len(self.tokens) + 1

    def number(self, token: str) -> int:
        """The token's number, 0 if it is unknown."""
        return self.numbers.get(token, 0)

    @classmethod
    def of(cls, codes: Iterable[bytes], least: int) -> "Vocabulary":
        """The tokens of blocks: all opcodes, and others that at least so many blocks have."""
        describer = Describer()
        counts: dict[str, int] = {}
        for code in codes:
            seen: set[str] = set()
            for instruction, _ in describer.block(code):
                one = instruction.described
                seen.update((one.opcode, one.form, *one.immediates, *_UNUSED))
                seen.update(token for _, token in (*one.reads, *one.writes, *one.addresses))
                for access in one.accesses:
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
      node_blocks: int32 [nodes], rising.
      instructions: int32 [instructions], their nodes.
      forms: int32 [instructions], tokens.
      pmu: float32 [instructions, 2 * len(PMU_INPUTS)]: values, 0 where unknown, and whether known.
      sources, targets, kinds: int32 [edges]; nodes and kinds.
      lengths: int32 [blocks], instructions.
      chain, chain_blocks, roles, weights: [links] each: the instructions on the longest chain of
        dependences that one execution hands to the next, their blocks, how the chain enters them,
        and one by the number of executions that the chain spans.
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
    """Makes graphs of blocks, by one vocabulary; what it has looked at once, it knows."""

    def __init__(self, vocabulary: Vocabulary):
        self.vocabulary = vocabulary
        self._describer = Describer()
        # Of instructions by their bytes: the number.
        self._known: dict[bytes, int] = {}
        # Why no block with an instruction of that number has a prediction.
        self._problems: dict[int, str] = {}
        # Of each number what block_graphs wants, one after the other.
        self._instructions: list[int] = []
        # What instructions are apart from their constants, numbered in the order of coming.
        self._described: dict[int, int] = {}
        self._records: list[int] = []
        self._offsets: list[int] = []
        self._latencies: list[float] = []
        self._forms: list[int] = []
        # Blocks that were looked at for problems, and of which graphs will be asked for.
        self._looked: dict[bytes, _Looked] = {}

    def __len__(self) -> int:
        """Instructions that it knows, each with its constants."""
        return len(self._known)

    def problem(self, code: bytes) -> str:
        """Why there is no graph of a block; empty if there is one."""
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
        """The graphs of blocks; of one without instructions, an empty one.

        Args:
          pmu: float32 [instructions, len(PMU_INPUTS)] of each, NaN where unknown.

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
        """The instructions of a block; None where a byte begins none."""
        numbers: list[int] = []
        ends: list[int] = []
        end = 0
        decoder = iced_x86.Decoder(64, code)
        for one in decoder:
            start, end = end, end + one.len
            content = code[start:end]
            number = self._known.get(content)
            if number is None:
                if one.is_invalid:
                    return None
                number = self._add(self._describer.instruction(one, content, decoder))
                self._known[content] = number
            numbers.append(number)
            ends.append(end)
        return _Looked(numbers, ends)

    def _add(self, instruction: GraphInstruction) -> int:
        """The number of an instruction that was not there before."""
        one = instruction.described
        added = len(self._instructions) // INSTRUCTION_VALUES
        if not self.vocabulary.number(one.opcode):
            self._problems[added] = f"unknown opcode: {one.opcode.removeprefix(OPCODE)}"
        described = self._described.get(id(one))
        if described is None:
            described = self._described[id(one)] = len(self._offsets)
            number = self.vocabulary.number
            self._offsets.append(len(self._records))
            self._records += one.record(number)
            self._latencies.append(one.latency)
            self._forms.append(number(one.form))
        self._instructions += (
            *(described, instruction.displacement, instruction.from_next),
            *(instruction.grows, instruction.by),
        )
        return added


class _Looked(NamedTuple):
    """Instructions of a block: their numbers, and where the next one begins."""

    numbers: list[int]
    ends: list[int]


@dataclass(frozen=True)
class Graphs:
    """Graphs of many blocks; `take` makes a batch of some.

    Attributes: as in Batch, but that nodes are numbered within their block, and
      edges: int32 [edges, 3], source, target, kind.
      pmu: float32 [instructions, len(PMU_INPUTS)], NaN where unknown.
      chains: float32 [links, 3], instruction, role, weight.
      starts: int64 [blocks + 1, 4], where nodes, instructions, edges and links of a block begin.
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
        """Instructions of each block."""
        return np.diff(self.starts[:, 1])

    def take(self, blocks: npt.NDArray[np.int64]) -> Batch:
        """The blocks of these numbers, in this order."""
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
    """The numbers from each start on, as many as its count."""
    before = np.cumsum(counts) - counts
    found: npt.NDArray[np.int64] = np.arange(counts.sum()) + np.repeat(starts - before, counts)
    return found
