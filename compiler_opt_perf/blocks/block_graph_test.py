# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Graphs of blocks whose dependences one can check by hand."""

from typing import NamedTuple

import numpy as np
import pytest

from compiler_opt_perf.blocks.block_graph import (
    ADDRESS,
    CARRIED_MEMORY,
    FORWARDED,
    NEXT,
    OTHER_LINE,
    REGISTER,
    SAME_LINE,
)
from compiler_opt_perf.blocks.graphs import PMU_INPUTS, GraphBuilder, Vocabulary

# Chains that an execution hands to the next: instruction and role, and executions that it spans.
CHAINS = {
    # add rax, rcx
    "4801c8": ({(0, REGISTER)}, 1),
    # xor eax, eax; add eax, ecx: nothing is handed on.
    "31c001c8": (set(), 1),
    # mov rax, [rdi + 24]; mov rdi, [rax + 264]
    "488b4718488bb808010000": ({(0, ADDRESS), (1, ADDRESS)}, 1),
    # add [rbx + 8], rax
    "48014308": ({(0, FORWARDED)}, 1),
    # mov [rsp - 8], rax; mov rax, [rsp - 8]
    "48894424f8488b4424f8": ({(0, REGISTER), (1, FORWARDED)}, 1),
    # mov rax, rbx; mov rbx, rcx; mov rcx, rax: through both registers in two executions.
    "4889d84889cb4889c1": ({(0, REGISTER), (1, REGISTER), (2, REGISTER)}, 2),
    # lea rax, [rcx + 8]: no chain, and an address that is not accessed.
    "488d4108": (set(), 1),
}


class Graph(NamedTuple):
    """One block's: tokens of nodes, nodes of instructions, edges, and the longest chain."""

    tokens: list[str]
    instructions: list[int]
    edges: list[tuple[int, int, int]]
    chain: list[tuple[int, int, float]]


def graph_of(code: str) -> Graph:
    codes = [bytes.fromhex(code)]
    vocabulary = Vocabulary.from_blocks(codes, 1)
    graphs = GraphBuilder(vocabulary).graphs(codes)
    return Graph(
        [vocabulary.tokens[token - 1] for token in graphs.tokens],
        graphs.instructions.tolist(),
        [(source, target, kind) for source, target, kind in graphs.edges.tolist()],
        [(int(place), int(role), weight) for place, role, weight in graphs.chains.tolist()],
    )


def edges_of(graph: Graph, kind: int) -> list[tuple[str, str]]:
    return [
        (graph.tokens[source], graph.tokens[target])
        for source, target, edge in graph.edges
        if edge == kind
    ]


@pytest.mark.compiler
@pytest.mark.parametrize("code", CHAINS)
def test_the_longest_chain(code: str) -> None:
    links, executions = CHAINS[code]
    chain = graph_of(code).chain
    assert {(instruction, role) for instruction, role, _ in chain} == links
    assert all(weight == 1 / executions for *_, weight in chain)


@pytest.mark.compiler
def test_memory_that_the_last_execution_wrote() -> None:
    # push rax; add rsp, 8: the next execution writes there again; pop rax; push rax: it reads it.
    assert not edges_of(graph_of("504883c408"), CARRIED_MEMORY)
    assert edges_of(graph_of("5850"), CARRIED_MEMORY) == [("mem:8", "mem:8")]
    # mov rax, [rbx]; add rbx, 8; mov [rbx], rax: what is stored is what is read next.
    assert edges_of(graph_of("488b034883c308488903"), CARRIED_MEMORY) == [("mem:8", "mem:8")]
    # With another pointer each time, nothing is known: mov rbx, [rbx]; mov [rbx + 8], rax.
    assert not edges_of(graph_of("488b1b48894308"), CARRIED_MEMORY)


@pytest.mark.compiler
def test_stores_to_a_line() -> None:
    # mov [rbx], rax; mov [rbx + 8], rax, and the latter to the next execution's first.
    same = graph_of("48890348894308")
    assert len(edges_of(same, SAME_LINE)) == 2 and not edges_of(same, OTHER_LINE)
    # mov [rbx], rax; mov [rbx + 64], rax
    other = graph_of("48890348894340")
    assert len(edges_of(other, OTHER_LINE)) == 2 and not edges_of(other, SAME_LINE)


@pytest.mark.compiler
def test_instructions_that_write_all_registers_depend_on_none() -> None:
    # vzeroupper
    assert graph_of("c5f877").tokens == ["op:vzeroupper"]


@pytest.mark.compiler
def test_batches_are_the_blocks() -> None:
    codes = [bytes.fromhex(code) for code in CHAINS]
    vocabulary = Vocabulary.from_blocks(codes, 1)
    graphs = GraphBuilder(vocabulary).graphs(codes)
    chosen = np.array([5, 2, 0])
    batch = graphs.take(chosen)
    names = [vocabulary.tokens[token - 1] for token in batch.tokens]
    expected = [graph_of(list(CHAINS)[block]) for block in chosen]
    assert names == [token for graph in expected for token in graph.tokens]
    assert list(batch.lengths) == [3, 2, 1]
    assert [names[node] for node in batch.instructions] == [
        graph.tokens[node] for graph in expected for node in graph.instructions
    ]
    told = [
        (names[source], names[target])
        for source, target, kind in zip(batch.sources, batch.targets, batch.kinds, strict=True)
        if kind == NEXT
    ]
    assert told == [edge for graph in expected for edge in edges_of(graph, NEXT)]
    assert not batch.pmu.any()
    assert sorted(set(batch.chain.tolist())) == [0, 1, 2, 3, 4, 5]


@pytest.mark.compiler
def test_what_is_known_of_a_run_is_marked() -> None:
    codes = [bytes.fromhex(code) for code in CHAINS]
    builder = GraphBuilder(Vocabulary.from_blocks(codes, 1))
    known = np.full((2, len(PMU_INPUTS)), np.nan, np.float32)
    known[1, 0] = 0.25
    batch = builder.graphs([codes[0], codes[2]], [None, known]).take(np.array([0, 1]))
    assert batch.pmu.shape == (3, 2 * len(PMU_INPUTS))
    assert batch.pmu[2, 0] == 0.25 and batch.pmu[2, len(PMU_INPUTS)] == 1
    assert np.count_nonzero(batch.pmu) == 2


def test_what_has_no_graph() -> None:
    builder = GraphBuilder(Vocabulary.from_blocks([bytes.fromhex("4801c8")], 1))
    assert builder.problem(b"") == "no instructions"
    assert builder.problem(b"\x06") == "no instruction"
    assert builder.problem(bytes.fromhex("480fafc1")) == "unknown opcode: imul"
    # Another register is no other opcode.
    assert not builder.problem(bytes.fromhex("4801d9"))


@pytest.mark.compiler
def test_graphs_of_what_is_refused_disturb_no_others() -> None:
    """A training has the blocks of all programs, and uses those without a problem."""
    codes = [bytes.fromhex(code) for code in ("4801c8", "480fafc1", "06", "488b4718488bb808010000")]
    builder = GraphBuilder(Vocabulary.from_blocks([codes[0], codes[3]], 1))
    assert [bool(builder.problem(code)) for code in codes] == [False, True, True, False]
    graphs = builder.graphs(codes)
    assert graphs.lengths.tolist() == [1, 1, 0, 2]
    good = builder.graphs([codes[0], codes[3]])
    one, other = graphs.take(np.array([0, 3])), good.take(np.array([0, 1]))
    for name in ("tokens", "forms", "sources", "targets", "kinds", "chain", "weights"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
    # An opcode that is not known is token 0, whatever came before it.
    assert graphs.take(np.array([1])).tokens[0] == 0
