# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The evaluator that replays a recorded run with a learned cost model of basic blocks.

A block's cost is its number of executions times its predicted cycles, of one of many executions in
a row; a factor corrects for the blocks that the run executed before (neighbours.py). The model was
trained on code without jumps, calls and returns. These divide a block into pieces and cost
nothing.
"""

import hashlib
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import iced_x86
import msgspec
import numpy as np
import numpy.typing as npt
from iced_x86 import FlowControl

from compiler_opt_perf.binary.address_map import MappedFunction, read_address_map
from compiler_opt_perf.binary.disassembly import MachineCode
from compiler_opt_perf.blocks.block_code import is_object, linked
from compiler_opt_perf.blocks.graphs import Floats as Floats32
from compiler_opt_perf.blocks.instructions import OPCODE
from compiler_opt_perf.blocks.model import CostModel
from compiler_opt_perf.blocks.neighbours import (
    Floats,
    Key,
    Place,
    numbered,
    read_windows,
    shares,
)
from compiler_opt_perf.blocks.profile_inputs import (
    GUESSED,
    MISPREDICT,
    ProfileInputs,
    block_inputs,
)
from compiler_opt_perf.cost.correction import Correction, apply
from compiler_opt_perf.cost.evaluator import EVALUATORS, UNMAPPED, Context, Cost, CostError
from compiler_opt_perf.trace.windows import Windows

#: Kinds of instructions that end a piece of a block, with their names in the report.
_ENDS: dict[int, str] = {
    FlowControl.CONDITIONAL_BRANCH: "conditional_jumps",
    FlowControl.UNCONDITIONAL_BRANCH: "jumps",
    FlowControl.INDIRECT_BRANCH: "indirect_jumps",
    FlowControl.CALL: "calls",
    FlowControl.INDIRECT_CALL: "indirect_calls",
    FlowControl.RETURN: "returns",
}
_OTHER_ENDS = "others"
# The jump to the next instruction in blocks that were measured at known rates
# (blocks/rated_blocks.py), and the token of its opcode.
_JUMP, _JUMP_TOKEN = b"\x75\x00", f"{OPCODE}jne"

#: Mispredict rates of a block's exit and of its indirect calls; NaN if unknown.
Guesses = tuple[float, float]


class Piece(NamedTuple):
    """A part of a block without jumps and calls.

    Attributes:
      start, end: offsets in the block, in bytes; equal for an empty piece.
      addresses: offsets of the instructions in the block.
      ended_by: the iced FlowControl that ends the piece; None at the end of a block without one.
    """

    start: int
    end: int
    addresses: tuple[int, ...]
    ended_by: int | None


def pieces(code: bytes) -> Iterator[Piece]:
    """The pieces of a block, in order."""
    start, addresses = 0, []
    for instruction in iced_x86.Decoder(64, code):
        # Invalid instructions stay: the model refuses the piece.
        if instruction.is_invalid or instruction.flow_control == FlowControl.NEXT:
            addresses.append(instruction.ip)
            continue
        yield Piece(start, instruction.ip, tuple(addresses), instruction.flow_control)
        start, addresses = instruction.next_ip, []
    if addresses:
        yield Piece(start, len(code), tuple(addresses), None)


class _ExecutedBlock(NamedTuple):
    """An executed block: function name, id in the function, link-time address, code, executions."""

    function: str
    id: int
    address: int
    code: bytes
    executions: int

    @property
    def place(self) -> Place:
        return self.function, self.id, self.executions


class _Cut(NamedTuple):
    """A piece: key, whether it has code, number of instructions, FlowControl that ends it."""

    key: tuple[bytes, bytes]
    has_code: bool
    instructions: int
    ended_by: int | None


@dataclass(frozen=True)
class LearnedReplay:
    """The evaluator, which caches its predictions.

    Attributes:
      model: the cost model.
      cpu: LLVM's name of the CPU, one of the model's.
      correction: corrects the sum over blocks; None for no correction.
      unit: the unit of costs.
    """

    model: CostModel
    cpu: str
    correction: Correction | None = None
    unit: str = "cycles"
    # (code, PMU inputs) -> cycles, or the reason without a prediction. The cache belongs to the
    # evaluator, not to the process: rounding depends on the blocks that are predicted together,
    # and a training's costs must not depend on what a worker did before.
    _predicted: dict[tuple[bytes, bytes], float | str] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def name(self) -> str:
        """`granite`, `granite-pmu`..."""
        return self.model.config.name

    @property
    def uses_cpu(self) -> bool:
        """Whether `mca-pmu` tells the model which loads wait. It has learned the CPU itself."""
        return self.model.reads("failed_forward")

    @property
    def uses_profile(self) -> bool:
        """Whether the model, or its correction, has inputs of a PMU profile."""
        return self.model.config.pmu or self.correction is not None

    @property
    def learned(self) -> str:
        """Digest of the model and the correction."""
        correction = msgspec.json.encode(self.correction) if self.correction else b""
        return hashlib.sha256(self.model.digest.encode() + correction).hexdigest()

    def cost(self, objects: Sequence[Path], context: Context) -> Cost:
        """Predicts the cycles of the run; needs its trace and llvm-trace-cost.

        A model with PMU inputs takes them from the context's profile, if there is one. Which loads
        wait for stores that cannot be forwarded is what `mca-pmu` finds in the samples. Pieces
        that the model refuses are charged the mean cycles per instruction of the others.

        The report is the one of `count`, with `cycles` and `pieces` (docs/reference/formats.md).

        Raises the errors of Evaluator.cost, and:
          CostError: the model refuses all executed code; the correction is for another model or
            CPU; or the model needs a CPU file.
          LearnedError: the model does not know the CPU.
        """
        if context.tool is None or context.trace is None:
            raise CostError(f"the evaluator {self.name} needs llvm-trace-cost and a trace")
        if self.correction is not None:
            self.correction.require(self.name, self.cpu)
        counted = EVALUATORS["count"].cost(objects, context).report
        simulated = counted
        if self.uses_cpu:
            simulated = EVALUATORS["mca-pmu"].cost(objects, context).report
        with tempfile.TemporaryDirectory(prefix="cost-") as folder:
            image = objects[0]
            if len(objects) > 1 or is_object(image):
                image = linked(objects, Path(folder) / "image")
            blocks = list(_executed(counted, image))
            known = None
            if self.model.config.pmu and context.profile is not None:
                known = ProfileInputs(context.profile, image, [(b.address, b.code) for b in blocks])
        windows = read_windows(context.trace)
        numbers = numbered(windows, [(block.place, n) for n, block in enumerate(blocks)])
        guesses = _guesses(windows, numbers, len(blocks))
        # Reports list the same blocks in the same order.
        waits = [
            one.get("failed_forwards") for row in simulated["functions"] for one in row["blocks"]
        ]
        cut = [
            list(self._cut(b.code, block_inputs(known, b.address, b.code, waited), rates))
            for b, waited, rates in zip(blocks, waits, guesses, strict=True)
        ]
        self._predict({piece.key for cuts in cut for piece in cuts if piece.has_code})
        factors = self._factors(cut, windows, numbers)
        cost = self._sum(blocks, cut, factors, counted)
        return cost if self.correction is None else apply(self.correction, cost, context)

    def _cut(self, code: bytes, inputs: Floats32 | None, guesses: Guesses) -> Iterator[_Cut]:
        """Yields the pieces of a block, with the PMU inputs of their instructions.

        Args:
          code: the block's code.
          inputs: float32 [instructions, len(PMU_INPUTS)]; mispredict rates are changed in place.
          guesses: the block's mispredict rates.
        """
        jumps = inputs is not None and self.model.vocabulary.number(_JUMP_TOKEN) > 0
        first = 0
        for piece in pieces(code):
            content, end = code[piece.start : piece.end], first + len(piece.addresses)
            instructions = end - first
            if jumps and piece.ended_by in GUESSED:
                content, end = content + _JUMP, end + 1
                share = guesses[piece.ended_by == FlowControl.INDIRECT_CALL]
                if inputs is not None and not np.isnan(share):
                    inputs[end - 1, MISPREDICT] = share
            rows = b"" if inputs is None else inputs[first:end].tobytes()
            yield _Cut((content, rows), len(content) > 0, instructions, piece.ended_by)
            first += len(piece.addresses) + (piece.ended_by is not None)

    def _predict(self, keys: set[tuple[bytes, bytes]]) -> None:
        predicted = self._predicted
        new = sorted(keys - predicted.keys())
        pmu = [ProfileInputs.array(inputs) if inputs else None for _, inputs in new]
        found, problems = self.model.predict([code for code, _ in new], self.cpu, pmu)
        for number, (key, cycles) in enumerate(zip(new, found, strict=True)):
            predicted[key] = problems.get(number, float(cycles))

    def _factors(
        self, cut: Sequence[Sequence[_Cut]], windows: Windows, numbers: npt.NDArray[np.int64]
    ) -> Floats:
        """[blocks], each block's cycles after its predecessors over its cycles alone."""
        keys = [(_joined(pieces_of, 0), _joined(pieces_of, 1)) for pieces_of in cut]
        alone = np.array([self._alone(pieces_of) for pieces_of in cut])

        def predict(wanted: set[Key]) -> dict[Key, float]:
            self._predict(wanted)
            known = {key: self._predicted[key] for key in wanted}
            return {key: cycles for key, cycles in known.items() if not isinstance(cycles, str)}

        return shares(windows, numbers, keys, alone, predict)

    def _alone(self, cut: Sequence[_Cut]) -> float:
        """Cycles of an execution of a block alone; NaN if the model refuses a piece."""
        predicted = [self._predicted[piece.key] for piece in cut if piece.has_code]
        return sum(np.nan if isinstance(cycles, str) else cycles for cycles in predicted)

    def _sum(
        self,
        blocks: Sequence[_ExecutedBlock],
        cut: Sequence[Sequence[_Cut]],
        factors: Floats,
        counted: Mapping[str, Any],
    ) -> Cost:
        known = self._predicted
        refused: Counter[str] = Counter()
        ends: Counter[str] = Counter()
        # For each block, cycles of all executions, and executed instructions without prediction.
        cycles, charged = np.zeros(len(blocks)), np.zeros(len(blocks))
        instructions = executions = 0
        for number, (block, pieces_of) in enumerate(zip(blocks, cut, strict=True)):
            for piece in pieces_of:
                if piece.ended_by is not None:
                    ends[_ENDS.get(piece.ended_by, _OTHER_ENDS)] += block.executions
                if not piece.has_code:
                    continue
                executions += block.executions
                predicted = known[piece.key]
                if isinstance(predicted, str):
                    refused[predicted] += block.executions
                    charged[number] += block.executions * piece.instructions
                else:
                    cycles[number] += block.executions * predicted * factors[number]
                    instructions += block.executions * piece.instructions
        if refused and not instructions:
            raise CostError(
                f"the model {self.name} has no prediction for any code that the run executed"
                + "".join(f"; {why}" for why in sorted(refused))
            )
        # One module of a program may execute nothing.
        mean = float(cycles.sum()) / instructions if instructions else 0.0
        cycles += mean * charged
        costs: defaultdict[str, float] = defaultdict(float)
        for block, took in zip(blocks, cycles.tolist(), strict=True):
            costs[block.function] += took
        own = sum(costs.values())
        unmapped = counted["unmapped"]["executions"]
        if unmapped:
            costs[UNMAPPED] += own * unmapped / counted["executions"]
        total = float(sum(costs.values()))
        functions, rest = [], iter(cycles.tolist())
        for row in counted["functions"]:
            own_blocks = [{**block, "cycles": {"execution": next(rest)}} for block in row["blocks"]]
            whole = sum(block["cycles"]["execution"] for block in own_blocks)
            functions.append({**row, "cycles": {"total": whole}, "blocks": own_blocks})
        report = dict(counted) | {
            "functions": functions,
            "model": self.name,
            "cpu": self.cpu,
            "cycles": {"total": total, "charged": mean * float(charged.sum())},
            "pieces": {
                "executions": executions,
                "distinct": len({piece.key for each in cut for piece in each if piece.has_code}),
                "refused": dict(sorted(refused.items(), key=lambda item: (-item[1], item[0]))),
                "ended_by": dict(sorted(ends.items())),
            },
        }
        return Cost(total, dict(costs), report)


def _guesses(windows: Windows, numbers: npt.NDArray[np.int64], blocks: int) -> list[Guesses]:
    """Each block's mispredict rates from the branch predictor that was simulated on the trace.

    A profile's rates come from callgrind's predictor, which has little history: in an interpreter
    it mispredicts nine times as often as a core.

    Args:
      windows: the window histogram.
      numbers: the result of `neighbours.numbered`.
      blocks: number of blocks of the candidate.
    """
    found = np.full((blocks, 2), np.nan)
    if windows.branches is not None:
        counts = windows.branches.astype(np.float64)
        inside = numbers[:-1] >= 0
        with np.errstate(invalid="ignore"):
            rates = counts[inside][:, [1, 3]] / counts[inside][:, [0, 2]]
        found[numbers[:-1][inside]] = rates
    return [(exits, calls) for exits, calls in found.tolist()]


def _joined(cut: Sequence[_Cut], part: int) -> bytes:
    """The code (part 0) or the PMU inputs (part 1) of all pieces of a block."""
    return b"".join(piece.key[part] for piece in cut)


def _executed(counted: Mapping[str, Any], image: Path) -> Iterator[_ExecutedBlock]:
    """Yields the executed blocks in a report of `count`, with their code in the candidate.

    Raises:
      CostError: the candidate lacks a block of the report.
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
                f"{image}: function {row['name']}: its blocks differ from llvm-trace-cost's; give "
                "unstripped files, each once"
            )
        yield from blocks


def _blocks_of(
    row: Mapping[str, Any], functions: list[MappedFunction], code: MachineCode
) -> list[_ExecutedBlock] | None:
    """The executed blocks of a function; None if no function fits.

    Among several functions of one name, the first fits whose block ids and numbers of
    instructions match the report; it is removed from `functions`.
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
            found.append(
                _ExecutedBlock(row["name"], block["id"], address, content, block["executions"])
            )
        else:
            del functions[number : number + 1 * (len(functions) > 1)]
            return found
    return None
