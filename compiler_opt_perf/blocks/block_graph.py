# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Blocks as graphs of instructions and values, made by block_graph.c.

The graph follows Sykora et al. (GRANITE, IISWC 2022). Nodes are instructions and values of
registers, memory and immediates. Edges say which instruction follows, reads or writes. A block is
measured many times in a row, so the graph also has:

- carried values: a value that is read before it is written comes from the execution before;
- memory dependences: equal base, index and displacement name the same memory;
- an edge from each store to the next one, to the same or to another cache line;
- the longest loop-carried dependence chain.
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
#: Edges from a store to the next store, to the same or to another cache line.
SAME_LINE, OTHER_LINE = 8, 9
EDGE_KINDS = 10
#: How the longest dependence chain enters an instruction.
ROLES = 3
REGISTER, ADDRESS, FORWARDED = range(ROLES)

_SOURCE = Path(__file__).with_suffix(".c")
#: Number of columns of `instructions` in `block_graphs`.
INSTRUCTION_VALUES = 5
# Parts of a block's graph: nodes, instructions, edges, links of the chain.
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
    """Builds the graphs of blocks.

    Args:
      records: concatenated records of instructions without constants
        (`instructions.Described.record`).
      offsets: int64 [records], where each record begins.
      latencies: float64 [records], rough cycles, to find the longest dependence chain.
      instructions: int64 [distinct instructions, INSTRUCTION_VALUES]: index of the record;
        displacement; whether it is relative to the next instruction; the register that grows by a
        constant (0 for none); this constant in bytes.
      numbers: int32 [instructions of all blocks], index in `instructions`.
      ends: int32 [instructions of all blocks], offset of the next instruction in the block.
      starts: int64 [blocks + 1], the first instruction of each block.

    Returns:
      tokens: int32 [nodes].
      places: int32 [instructions], their nodes within the block.
      edges: int32 [edges, 3], source, target, kind.
      links: float32 [links, 3], links of the longest chains: instruction, role, and
        1 / (number of executions that the chain spans).
      counts: int64 [blocks, 4], number of nodes, instructions, edges and links of each block.

    Raises:
      MemoryError: memory runs out.
    """
    library = _library()
    state = library.graphs_new()
    if not state:
        raise MemoryError
    try:
        given: tuple[npt.NDArray[Any], ...] = (
            *(np.ascontiguousarray(array, np.int64) for array in (records, offsets)),
            np.ascontiguousarray(latencies, np.float64),
            np.ascontiguousarray(instructions, np.int64),
            *(np.ascontiguousarray(array, np.int32) for array in (numbers, ends)),
            np.ascontiguousarray(starts, np.int64),
        )
        if not library.graphs_add(state, *(array.ctypes.data for array in given), len(starts) - 1):
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
    """Adds relu(sent * gate + shift) of each edge to `received` of its target, in order.

    Args:
      sent, received: float32 [nodes, width]; rows may be strided.
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
