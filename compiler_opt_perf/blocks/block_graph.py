# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Blocks as graphs of instructions and values, made by block_graph.c.

The graph is that of Sykora et al. (GRANITE, IISWC 2022): nodes are instructions, and the values of
registers, memory and immediates; edges say which instruction follows, reads or writes. A block is
measured many times in a row, so that more is told:

- a value that is read before it is written comes from the execution before ("carried");
- an address that is made of the same values and the same distance names the same memory;
- a store is followed by one to the same line of the cache, or to another one;
- the longest chain of dependences that an execution hands to the next.
"""

import ctypes
import functools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.toolchain.native_library import native_library

#: Kinds of edges; each is followed in both directions.
NEXT, INPUT, OUTPUT, BASE, INDEX, CARRIED_INPUT, CARRIED_ADDRESS, CARRIED_MEMORY = range(8)
#: From a store to the next one, which writes to the same line of the cache or to another one.
SAME_LINE, OTHER_LINE = 8, 9
EDGE_KINDS = 10
#: How the longest chain of dependences enters an instruction.
ROLES = 3
REGISTER, ADDRESS, FORWARDED = range(ROLES)

_SOURCE = Path(__file__).with_suffix(".c")
#: What `block_graphs` wants of an instruction.
INSTRUCTION_VALUES = 5
# What a block has of each: nodes, instructions, edges, links of the chain.
_PARTS = 4

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


@functools.cache
def _library() -> Any:
    loaded = ctypes.CDLL(str(native_library(_SOURCE)))
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64
    sending = (pointer, number, pointer, pointer, number, *[pointer] * 3, number, pointer, number)
    functions: tuple[tuple[str, Any, tuple[Any, ...]], ...] = (
        ("graphs_new", pointer, ()),
        ("graphs_delete", None, (pointer,)),
        ("graphs_add", ctypes.c_int, (*[pointer] * 8, number)),
        ("graphs_size", size, (pointer, ctypes.c_int)),
        ("graphs_data", pointer, (pointer, ctypes.c_int)),
        ("send_messages", None, sending),
    )
    for function, result, arguments in functions:
        getattr(loaded, function).restype = result
        getattr(loaded, function).argtypes = arguments
    return loaded


def block_graphs(
    records: Longs,
    offsets: Longs,
    latencies: npt.NDArray[np.float64],
    instructions: Longs,
    numbers: Ints,
    ends: Ints,
    starts: Longs,
) -> tuple[Ints, Ints, Ints, npt.NDArray[np.float32], Longs]:
    """The graphs of blocks.

    Args:
      records: what instructions are, apart from their constants, one after the other
        (`instructions.Described.record`).
      offsets: where each record begins.
      latencies: of each, in cycles, roughly: which dependence may be the longest.
      instructions: int64 [distinct instructions, INSTRUCTION_VALUES]: number of the record,
        displacement, whether that is counted from the next instruction, the register that grows by
        a constant (0 for none), and by how many bytes.
      numbers: of each instruction of the blocks, which of `instructions` it is.
      ends: of each, where the next one begins, bytes from the beginning of the block.
      starts: int64 [blocks + 1], the first instruction of each block.

    Returns:
      tokens: int32 [nodes].
      places: int32 [instructions], their nodes within the block.
      edges: int32 [edges, 3], source, target, kind.
      links: float32 [links, 3], of the longest chains: instruction, role, and one by the number of
        executions that the chain spans.
      counts: int64 [blocks, 4], how many of each a block has.

    Raises:
      MemoryError: memory runs out.
    """
    library = _library()
    state = library.graphs_new()
    if not state:
        raise MemoryError
    try:
        given: tuple[npt.NDArray[Any], ...] = (
            *(np.ascontiguousarray(one, np.int64) for one in (records, offsets)),
            np.ascontiguousarray(latencies, np.float64),
            np.ascontiguousarray(instructions, np.int64),
            *(np.ascontiguousarray(one, np.int32) for one in (numbers, ends)),
            np.ascontiguousarray(starts, np.int64),
        )
        if not library.graphs_add(state, *(one.ctypes.data for one in given), len(starts) - 1):
            raise MemoryError

        def part(number: int, type: Any, width: int) -> Any:
            items = library.graphs_size(state, number)
            if not items:
                return np.empty((0, width), type)
            bytes_ = items * width * np.dtype(type).itemsize
            data = ctypes.string_at(library.graphs_data(state, number), bytes_)
            return np.frombuffer(data, type).reshape(items, width)

        return (
            part(0, np.int32, 1)[:, 0],
            part(1, np.int32, 1)[:, 0],
            part(2, np.int32, 3),
            part(3, np.float32, 3),
            part(4, np.int64, 1).reshape(-1, _PARTS),
        )
    finally:
        library.graphs_delete(state)


def send_messages(
    sent: npt.NDArray[np.float32],
    gates: npt.NDArray[np.float32],
    shifts: npt.NDArray[np.float32],
    sources: Ints,
    targets: Ints,
    kinds: Ints,
    received: npt.NDArray[np.float32],
) -> None:
    """Adds to `received` of each target relu(sent * gate + shift), in the order of edges.

    Args:
      sent, received: float32 [nodes, width]; rows are as far apart as they like.
      gates, shifts: float32 [kinds, width].
      sources, targets, kinds: int32 [edges].
    """
    width = gates.shape[1]
    assert sent.strides[1] == received.strides[1] == 4 and sent.shape[1] == width
    _library().send_messages(
        *(sent.ctypes.data, sent.strides[0] // 4, gates.ctypes.data, shifts.ctypes.data, width),
        *(sources.ctypes.data, targets.ctypes.data, kinds.ctypes.data, len(sources)),
        *(received.ctypes.data, received.strides[0] // 4),
    )
