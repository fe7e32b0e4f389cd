# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A learned model of blocks behind the interface of evaluators: cycles of a recorded run.

A block's cost is how often the run executed it, times what the model says that one of many
executions in a row takes. The model was trained on code without jumps, calls and returns; these
divide a block into pieces, and cost nothing by themselves.
"""

import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import iced_x86
import numpy as np
import numpy.typing as npt
from iced_x86 import FlowControl

from compiler_opt_perf.binary.address_map import MappedFunction, read_address_map
from compiler_opt_perf.binary.disassembly import MachineCode
from compiler_opt_perf.cost.block_code import is_object, linked
from compiler_opt_perf.cost.evaluator import EVALUATORS, UNMAPPED, Context, Cost, CostError
from compiler_opt_perf.learned.correction import Correction, apply
from compiler_opt_perf.learned.graphs import Floats as Floats32
from compiler_opt_perf.learned.instructions import OPCODE
from compiler_opt_perf.learned.model import CostModel
from compiler_opt_perf.learned.profile_inputs import GUESSED, ProfileInputs

#: What ends a piece of a block, by what the report calls it.
_ENDS: dict[int, str] = {
    FlowControl.CONDITIONAL_BRANCH: "conditional_jumps",
    FlowControl.UNCONDITIONAL_BRANCH: "jumps",
    FlowControl.INDIRECT_BRANCH: "indirect_jumps",
    FlowControl.CALL: "calls",
    FlowControl.INDIRECT_CALL: "indirect_calls",
    FlowControl.RETURN: "returns",
}
_OTHER_ENDS = "others"
# The jump that blocks at known rates have (cost.rated_blocks), to the next instruction, and the
# token of its opcode.
_JUMP, _JUMP_TOKEN = b"\x75\x00", f"{OPCODE}jne"


class Piece(NamedTuple):
    """A part of a block without jumps and calls, and what ends it.

    Attributes:
      start, end: bytes from the beginning of the block; as many where there is no instruction.
      addresses: of the instructions, from the beginning of the block.
      ended_by: one of `_ENDS`; None at the end of a block that has nothing of that kind.
    """

    start: int
    end: int
    addresses: tuple[int, ...]
    ended_by: int | None


def pieces(code: bytes) -> Iterator[Piece]:
    """The pieces of a block, in order."""
    start, addresses = 0, []
    for one in iced_x86.Decoder(64, code):
        # What is no instruction stays: the model says that it is none.
        if one.is_invalid or one.flow_control == FlowControl.NEXT:
            addresses.append(one.ip)
            continue
        yield Piece(start, one.ip, tuple(addresses), one.flow_control)
        start, addresses = one.next_ip, []
    if addresses:
        yield Piece(start, len(code), tuple(addresses), None)


class _Block(NamedTuple):
    """An executed block: name of its function, link-time address, code, executions."""

    function: str
    address: int
    code: bytes
    executions: int


class _Cut(NamedTuple):
    """A piece: what it is known by, whether it has code, instructions, what ends it."""

    key: tuple[bytes, bytes]
    has_code: bool
    instructions: int
    ended_by: int | None


class _Part(NamedTuple):
    """An executed piece: name of its function, what it is known by, instructions, executions."""

    function: str
    key: tuple[bytes, bytes]
    instructions: int
    executions: int


@dataclass(frozen=True)
class LearnedReplay:
    """The evaluator; what it has predicted once, it knows.

    Attributes:
      model: of blocks.
      cpu: LLVM's name of the CPU that cycles are of, one of the model's.
      correction: what the sum over blocks is corrected by; None for the sum as it is.
      unit: of costs.
    """

    model: CostModel
    cpu: str
    correction: Correction | None = None
    unit: str = "cycles"
    # By code and what is known of its instructions: cycles, or why there are none.
    _predicted: dict[tuple[bytes, bytes], float | str] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def name(self) -> str:
        """`granite`, `granite-pmu`, `lstm`..."""
        return self.model.config.name

    def cost(self, objects: Sequence[Path], context: Context) -> Cost:
        """Sums up the run; needs its trace and llvm-trace-cost, which finds the executions.

        A model that takes PMU inputs has them from the context's profile, if there is one. Pieces
        that the model refuses cost, by instruction, what the others do on average.

        The report is that of `count`, without its functions, and has `cycles` and `pieces`
        (docs/formats.md).

        Raises, besides what Evaluator.cost does:
          CostError: the model refuses all that was executed; the correction is of another model
            or CPU.
          LearnedError: the model does not know the CPU.
        """
        if context.tool is None or context.trace is None:
            raise CostError(f"the evaluator {self.name} needs llvm-trace-cost and a trace")
        if self.correction is not None:
            self.correction.require(self.name, self.cpu)
        counted = EVALUATORS["count"].cost(objects, context).report
        with tempfile.TemporaryDirectory(prefix="cost-") as folder:
            image = objects[0]
            if len(objects) > 1 or is_object(image):
                image = linked(objects, Path(folder) / "image")
            blocks = list(_executed(counted, image))
            known = None
            if self.model.config.pmu and context.profile is not None:
                known = ProfileInputs(context.profile, image, [(b.address, b.code) for b in blocks])
        parts, ends = self._parts(blocks, known)
        self._predict({part.key for part in parts})
        cost = self._sum(parts, ends, counted)
        return cost if self.correction is None else apply(self.correction, cost, context)

    def block_cycles(
        self, codes: Sequence[bytes], inputs: Sequence[Floats32] | None = None
    ) -> npt.NDArray[np.float64]:
        """Cycles of an execution of each block, [blocks]; NaN where the model refuses a piece.

        Args:
          codes: of the blocks, jumps and calls included.
          inputs: of their instructions, for a model that takes PMU inputs: ProfileInputs.of.

        Raises:
          LearnedError: the model does not know the CPU.
        """
        if inputs is None or not self.model.config.pmu:
            known: Sequence[Floats32 | None] = [None] * len(codes)
        else:
            known = inputs
        cut = [list(self._cut(code, of)) for code, of in zip(codes, known, strict=True)]
        self._predict({one.key for found in cut for one in found if one.has_code})

        def cycles(one: _Cut) -> float:
            predicted = self._predicted[one.key] if one.has_code else 0.0
            return np.nan if isinstance(predicted, str) else predicted

        return np.array([sum(map(cycles, found)) for found in cut], np.float64)

    def _cut(self, code: bytes, inputs: Floats32 | None) -> Iterator[_Cut]:
        """The pieces of a block, with the inputs of their instructions."""
        jumps = inputs is not None and self.model.vocabulary.number(_JUMP_TOKEN) > 0
        first = 0
        for one in pieces(code):
            piece, end = code[one.start : one.end], first + len(one.addresses)
            instructions = end - first
            if jumps and one.ended_by in GUESSED:
                piece, end = piece + _JUMP, end + 1
            rows = b"" if inputs is None else inputs[first:end].tobytes()
            yield _Cut((piece, rows), len(piece) > 0, instructions, one.ended_by)
            first += len(one.addresses) + (one.ended_by is not None)

    def _parts(
        self, blocks: Sequence[_Block], known: ProfileInputs | None
    ) -> tuple[list[_Part], Counter[str]]:
        """The executed pieces, and how often what ends them was executed, by kind."""
        parts: list[_Part] = []
        ends: Counter[str] = Counter()
        for block in blocks:
            inputs = None if known is None else known.of_block(block.address, block.code)
            for one in self._cut(block.code, inputs):
                if one.ended_by is not None:
                    ends[_ENDS.get(one.ended_by, _OTHER_ENDS)] += block.executions
                if one.has_code:
                    parts.append(_Part(block.function, one.key, one.instructions, block.executions))
        return parts, ends

    def _predict(self, keys: set[tuple[bytes, bytes]]) -> None:
        new = sorted(keys - self._predicted.keys())
        pmu = [ProfileInputs.array(inputs) if inputs else None for _, inputs in new]
        found, problems = self.model.predict([code for code, _ in new], self.cpu, pmu)
        for number, (key, cycles) in enumerate(zip(new, found, strict=True)):
            self._predicted[key] = problems.get(number, float(cycles))

    def _sum(
        self, parts: Sequence[_Part], ends: Mapping[str, int], counted: Mapping[str, Any]
    ) -> Cost:
        costs: defaultdict[str, float] = defaultdict(float)
        refused_in: Counter[str] = Counter()
        refused: Counter[str] = Counter()
        instructions = 0
        for part in parts:
            predicted = self._predicted[part.key]
            if isinstance(predicted, str):
                refused[predicted] += part.executions
                refused_in[part.function] += part.executions * part.instructions
            else:
                costs[part.function] += part.executions * predicted
                instructions += part.executions * part.instructions
        if refused and not instructions:
            raise CostError(
                f"the model {self.name} has no prediction of anything that the run executed"
                + "".join(f"; {why}" for why in sorted(refused))
            )
        # A module among others may execute nothing.
        mean = sum(costs.values()) / instructions if instructions else 0.0
        for function, count in refused_in.items():
            costs[function] += mean * count
        own = sum(costs.values())
        unmapped = counted["unmapped"]["executions"]
        if unmapped:
            costs[UNMAPPED] += own * unmapped / counted["executions"]
        total = float(sum(costs.values()))
        report = {name: value for name, value in counted.items() if name != "functions"}
        report |= {
            "model": self.name,
            "cpu": self.cpu,
            "cycles": {"total": total, "charged": mean * sum(refused_in.values())},
            "pieces": {
                "executions": sum(part.executions for part in parts),
                "distinct": len({part.key for part in parts}),
                "refused": dict(sorted(refused.items(), key=lambda one: (-one[1], one[0]))),
                "ended_by": dict(sorted(ends.items())),
            },
        }
        return Cost(total, {name: float(cycles) for name, cycles in costs.items()}, report)


def _executed(counted: Mapping[str, Any], image: Path) -> Iterator[_Block]:
    """The executed blocks of a report of `count`, with their code in the candidate.

    Raises:
      CostError: the report has a block that the candidate lacks.
      BinaryError: the candidate cannot be read, or has no address map.
    """
    named: dict[str, list[MappedFunction]] = {}
    for function in read_address_map(image):
        named.setdefault(function.name, []).append(function)
    code = MachineCode.read(image)
    for row in counted["functions"]:
        blocks = _blocks_of(row, named.get(row["name"], []), code)
        if blocks is None:
            raise CostError(
                f"{image}: function {row['name']}: its blocks are not those that llvm-trace-cost "
                "finds; give files that are not stripped, each once"
            )
        yield from blocks


def _blocks_of(
    row: Mapping[str, Any], functions: list[MappedFunction], code: MachineCode
) -> list[_Block] | None:
    """The executed blocks of a function; of several of a name, the first that fits, once.

    Which one it is, the ids of its blocks tell and how many instructions these have.
    """
    for number, function in enumerate(functions):
        places = {block_id: (address, size) for address, size, block_id in function.blocks}
        found = []
        for block in row["blocks"]:
            address, size = places.get(block["id"], (0, 0))
            content = code.content(address, address + size)
            count = sum(1 for _ in iced_x86.Decoder(64, content))
            if len(functions) > 1 and count * block["executions"] != block["instructions"]:
                break
            if block["id"] not in places:
                break
            found.append(_Block(row["name"], address, content, block["executions"]))
        else:
            del functions[number : number + 1 * (len(functions) > 1)]
            return found
    return None
