# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prepares blocks that are measured with known rates of misses, mispredictions and failed
forwarding.

The harness is part of the block's code. It loads each pointer that rated_block.h chooses from a
list in the first-level cache. Then a jump to the next instruction is mispredicted at a known rate.
A store before the jump writes one byte of what the block loads, at a known rate.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import iced_x86
from iced_x86 import Register, RegisterExt

from compiler_opt_perf.blocks.block_code import MOST_BYTES, Block, request
from compiler_opt_perf.blocks.chosen_pointers import (
    READS,
    ChosenPointer,
    Store,
    sources_of,
    stack_stores,
)
from compiler_opt_perf.run.seeds import derive_seed

#: Levels in which missing loads find their data, in the order of measure_blocks.c.
LEVELS = ("l2", "l3", "memory")
_MISSES = ("l1_miss", "l2_miss", "l3_miss")
#: Reasons why a block cannot be measured at known rates.
NO_SOURCE, TOO_FEW_COPIES = "no load whose address can be chosen", "too large for the first level"
NO_STORE = "no load that a store can be put before"
# The most lines of both loops: half of the first-level cache.
_HOT_LINES = 256
# Numbers of copies: the shorter loop must fill the core's reorder window of some 250 to 500
# instructions, and rates are multiples of 1 / copies.
_WINDOW, _LEAST_WINDOW, _FEWEST, _MOST_COPIES = 512, 320, 16, 128
# What cells hold, as in block_context.h.
_STORED = (0x14000FC0).to_bytes(8, "little")


def _number(register: int) -> int:
    return int(RegisterExt.number(cast(Any, register)))


def _listed(source: ChosenPointer) -> bool:
    return source.parent is None


@dataclass(frozen=True)
class _Glue:
    """The harness code before each copy.

    Attributes:
      code: machine code.
      places: for each pointer, offset of the displacement and end of its load; -1 without a load.
      store: offset of the store's displacement; -1 without a store.
      jump: as `places`, for the comparison that the jump depends on.
    """

    code: bytes
    places: list[tuple[int, int]]
    store: int
    jump: tuple[int, int]


def _glue(sources: Sequence[ChosenPointer], store: tuple[int, Store] | None = None) -> _Glue:
    code = b""
    places = []
    for source in sources:
        if not _listed(source):
            places.append((-1, -1))
            continue
        # mov register, [rip + entry of the list]
        number = _number(source.register)
        code += bytes([0x48 | number >> 3 << 2, 0x8B, 0x05 | (number & 7) << 3]) + bytes(4)
        places.append((len(code) - 4, len(code)))
    place = -1
    if store is not None:
        # mov byte [register + displacement], what is there
        number, displaced = _number(store[0]), store[1].spare.to_bytes(4, "little", signed=True)
        code += b"\x41" * (number >> 3) + bytes([0xC6, 0x80 | number & 7])
        code += b"\x24" * (number & 7 == Register.RSP - Register.RAX)
        place = len(code)
        code += displaced + _STORED[store[1].byte % 8 :][:1]
    # cmp byte [rip + entry of the list], 0; jne to the next instruction
    start = len(code)
    code += b"\x80\x3d" + bytes(5) + b"\x75\x00"
    return _Glue(code, places, place, (start + 2, start + 7))


@dataclass(frozen=True)
class Rates:
    """The wanted rates.

    Attributes:
      level: the one of LEVELS that misses go to.
      miss, mispredict: rates.
      failed_forward: rate of a load's failed forwarding; None without a store before the block.
    """

    level: str
    miss: float
    mispredict: float
    failed_forward: float | None = None


def rated(block: Block, rates: Rates, seed: int) -> Block:
    """Prepares a block to be measured at known rates.

    Rates are rounded to multiples that the number of copies can have.

    Args:
      block: the block.
      rates: the wanted rates.
      seed: seed of the measurement.

    Returns:
      The block with harness code, `request` and `pmu`; or, if it cannot be measured at known rates,
      the unchanged block with the reason in `refused`.
    """
    line, reason = request(block.code)
    sources = sources_of(block.code) if line else []
    # The register of a pointer, and a store through it.
    stores: list[tuple[int, Store]] = []
    failed = rates.failed_forward
    if line and failed is not None:
        stores = [(source.register, store) for source in sources for store in source.stores]
        stores += [(Register.RSP, store) for store in stack_stores(block.code)]
    chosen = stores[seed % len(stores)] if stores else None
    # All copies have one stack: what one stores, the next ones load.
    if failed is not None and chosen is not None and chosen[0] == Register.RSP:
        failed = float(failed >= 0.5)
    glue = _glue(sources, chosen)
    code = glue.code + block.code
    if not reason and len(code) > MOST_BYTES:
        reason = "too long"
    if not reason and not sources and failed is None:
        reason = NO_SOURCE
    if not reason and failed is not None and chosen is None:
        reason = NO_STORE
    if reason:
        return replace(block, refused=reason)
    instructions = list(iced_x86.Decoder(64, code))
    jump = sum(map(_listed, sources)) + (chosen is not None) + 1
    lines = sum(source.lines for source in sources)
    copies = max(_FEWEST, -(-_WINDOW // len(instructions)))
    copies = min(copies, _MOST_COPIES, _HOT_LINES // (2 * max(lines, 1)))
    if copies < _FEWEST or copies * len(instructions) < _LEAST_WINDOW:
        return replace(block, refused=TOO_FEW_COPIES)
    cold = round(rates.miss * copies)
    random_jumps = round(2 * rates.mispredict * copies)
    failing = round((failed or 0) * copies)
    level = LEVELS.index(rates.level) + 1 if cold else 0
    operands = []
    for word in line.split()[1:]:
        place, end, target = map(int, word.split(":"))
        operands.append(f"{place + len(glue.code)}:{end + len(glue.code)}:{target}")
    head = f"{level} {copies} {cold} {random_jumps} {seed} {glue.jump[0]}:{glue.jump[1]}"
    described = [
        f"{-1 if source.parent is None else source.parent}:{source.delay:d}:{source.offset}:"
        f"{place}:{end}:{_number(source.register)}:{source.first}:{source.lines}"
        for source, (place, end) in zip(sources, glue.places, strict=True)
    ]
    missing = {jump + 1 + number for source in sources for number in source.misses}
    fails = set()
    if chosen is not None:
        described.append(f"+ {failing}:{glue.store}:{chosen[1].byte}")
        fails = {jump + 1 + number for number in chosen[1].fails}
    shares = [
        *(
            (name, missing, cold / copies if level >= n else 0.0)
            for n, name in enumerate(_MISSES, 1)
        ),
        ("failed_forward", fails, failing / copies),
    ]
    pmu = _known(instructions, shares, jump, random_jumps / (2 * copies))
    request_line = " ".join([code.hex(), *operands, "/", head, *described])
    return replace(block, code=code, request=request_line, pmu=pmu)


def _known(
    instructions: Sequence[iced_x86.Instruction],
    shares: Sequence[tuple[str, set[int], float]],
    jump: int,
    mispredict: float,
) -> tuple[tuple[str, tuple[float | None, ...]], ...]:
    """The PMU inputs of a prepared block's instructions (docs/reference/formats.md).

    Args:
      instructions: of the block.
      shares: name of an input of loads, the instructions that have its rate, and the rate.
      jump: the instruction that is mispredicted.
      mispredict: its rate.
    """
    info = iced_x86.InstructionInfoFactory()
    loads = [
        any(part.access in READS for part in info.info(instruction).used_memory())
        for instruction in instructions
    ]
    found: dict[str, tuple[float | None, ...]] = {}
    for name, places, share in shares:
        found[name] = tuple(
            (share if place in places else 0.0) if load else None
            for place, load in enumerate(loads)
        )
    found["mispredict"] = tuple(
        mispredict if place == jump else None for place in range(len(instructions))
    )
    return tuple(found.items())


def at_rates(
    blocks: Sequence[Block],
    misses: Sequence[float],
    mispredicts: Sequence[float],
    seed: int,
    failed_forwards: Sequence[float | None] = (None,),
) -> Iterator[Block]:
    """Yields each block prepared at each miss rate and each rate of failed forwarding.

    Level and mispredict rate are drawn, once for each miss rate.

    Duplicates are left out: a block that cannot be prepared, and equal rounded rates.

    Args:
      blocks: the blocks.
      misses: miss rates.
      mispredicts: mispredict rates to draw from.
      seed: seed of the draws.
      failed_forwards: rates of failed forwarding; None for no store before the block.
    """
    for block in blocks:
        seen = set()
        for miss in misses:
            own = derive_seed(seed, "rated block", block.code.hex(), str(miss))
            drawn = random.Random(own)
            drawn_rates = Rates(drawn.choice(LEVELS), miss, drawn.choice(list(mispredicts)))
            for failed in failed_forwards:
                rates = replace(drawn_rates, failed_forward=failed)
                measured = rated(block, rates, own % (1 << 62) + 1)
                key = (measured.refused, measured.pmu)
                if key not in seen:
                    seen.add(key)
                    yield measured
