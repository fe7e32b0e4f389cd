# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A learned model of blocks behind the interface of evaluators: cycles of a recorded run.

A block's cost is how often the run executed it, times what the model says that one of many
executions in a row takes, scaled by what it says of the block behind those that the run executed
before it (neighbours.py). The model was trained on code without jumps, calls and returns; these
divide a block into pieces, and cost nothing by themselves.
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
from compiler_opt_perf.blocks.profile_inputs import GUESSED, MISPREDICT, ProfileInputs
from compiler_opt_perf.cost.correction import Correction, apply
from compiler_opt_perf.cost.evaluator import EVALUATORS, UNMAPPED, Context, Cost, CostError
from compiler_opt_perf.trace.windows import Windows

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

#: Shares of a block's exits and of its indirect calls that are mispredicted; NaN where unknown.
Guesses = tuple[float, float]


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
    """An executed block: its function's name, its id there, link-time address, code, executions."""

    function: str
    id: int
    address: int
    code: bytes
    executions: int

    @property
    def place(self) -> Place:
        return self.function, self.id, self.executions


class _Cut(NamedTuple):
    """A piece: what it is known by, whether it has code, instructions, what ends it."""

    key: tuple[bytes, bytes]
    has_code: bool
    instructions: int
    ended_by: int | None


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
    # The model knows the CPU.
    uses_cpu: bool = False
    # By code and what is known of its instructions: cycles, or why there are none. Not of the
    # process: a block's cycles differ by rounding with what is predicted beside it, and a candidate
    # of a training must cost the same whatever its worker did before.
    _predicted: dict[tuple[bytes, bytes], float | str] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def name(self) -> str:
        """`granite`, `granite-pmu`..."""
        return self.model.config.name

    @property
    def learned(self) -> str:
        """Digest of the model and the correction."""
        correction = msgspec.json.encode(self.correction) if self.correction else b""
        return hashlib.sha256(self.model.digest.encode() + correction).hexdigest()

    def cost(self, objects: Sequence[Path], context: Context) -> Cost:
        """Sums up the run; needs its trace and llvm-trace-cost, which finds the executions.

        A model that takes PMU inputs has them from the context's profile, if there is one. Pieces
        that the model refuses cost, by instruction, what the others do on average.

        The report is that of `count`, with `cycles` and `pieces` (docs/reference/formats.md).

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
        windows = read_windows(context.trace)
        numbers = numbered(windows, [(one.place, n) for n, one in enumerate(blocks)])
        guesses = _guesses(windows, numbers, len(blocks))
        cut = [
            list(
                self._cut(
                    one.code,
                    None if known is None else known.of_block(one.address, one.code),
                    rates,
                )
            )
            for one, rates in zip(blocks, guesses, strict=True)
        ]
        self._predict({one.key for pieces_of in cut for one in pieces_of if one.has_code})
        factors = self._factors(cut, windows, numbers)
        cost = self._sum(blocks, cut, factors, counted)
        return cost if self.correction is None else apply(self.correction, cost, context)

    def _cut(self, code: bytes, inputs: Floats32 | None, guesses: Guesses) -> Iterator[_Cut]:
        """The pieces of a block, with the inputs of their instructions.

        Args:
          guesses: shares of its exits and of its indirect calls that are mispredicted.
        """
        jumps = inputs is not None and self.model.vocabulary.number(_JUMP_TOKEN) > 0
        first = 0
        for one in pieces(code):
            piece, end = code[one.start : one.end], first + len(one.addresses)
            instructions = end - first
            if jumps and one.ended_by in GUESSED:
                piece, end = piece + _JUMP, end + 1
                share = guesses[one.ended_by == FlowControl.INDIRECT_CALL]
                if inputs is not None and not np.isnan(share):
                    inputs[end - 1, MISPREDICT] = share
            rows = b"" if inputs is None else inputs[first:end].tobytes()
            yield _Cut((piece, rows), len(piece) > 0, instructions, one.ended_by)
            first += len(one.addresses) + (one.ended_by is not None)

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
        """What each block takes in the company of others, by what it takes alone, [blocks]."""
        keys = [(_joined(one, 0), _joined(one, 1)) for one in cut]
        alone = np.array([self._alone(one) for one in cut])

        def predict(wanted: set[Key]) -> dict[Key, float]:
            self._predict(wanted)
            known = {key: self._predicted[key] for key in wanted}
            return {key: cycles for key, cycles in known.items() if not isinstance(cycles, str)}

        return shares(windows, numbers, keys, alone, predict)

    def _alone(self, cut: Sequence[_Cut]) -> float:
        """Cycles of an execution of a block by itself; NaN where the model refuses a piece."""
        found = [self._predicted[one.key] for one in cut if one.has_code]
        return sum(np.nan if isinstance(one, str) else one for one in found)

    def _sum(
        self,
        blocks: Sequence[_Block],
        cut: Sequence[Sequence[_Cut]],
        factors: Floats,
        counted: Mapping[str, Any],
    ) -> Cost:
        known = self._predicted
        refused: Counter[str] = Counter()
        ends: Counter[str] = Counter()
        # By block: cycles of all executions, and instructions without prediction.
        cycles, charged = np.zeros(len(blocks)), np.zeros(len(blocks))
        instructions = executions = 0
        for number, (block, pieces_of) in enumerate(zip(blocks, cut, strict=True)):
            for one in pieces_of:
                if one.ended_by is not None:
                    ends[_ENDS.get(one.ended_by, _OTHER_ENDS)] += block.executions
                if not one.has_code:
                    continue
                executions += block.executions
                predicted = known[one.key]
                if isinstance(predicted, str):
                    refused[predicted] += block.executions
                    charged[number] += block.executions * one.instructions
                else:
                    cycles[number] += block.executions * predicted * factors[number]
                    instructions += block.executions * one.instructions
        if refused and not instructions:
            raise CostError(
                f"the model {self.name} has no prediction of anything that the run executed"
                + "".join(f"; {why}" for why in sorted(refused))
            )
        # A module among others may execute nothing.
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
            own_blocks = [{**one, "cycles": {"execution": next(rest)}} for one in row["blocks"]]
            whole = sum(one["cycles"]["execution"] for one in own_blocks)
            functions.append({**row, "cycles": {"total": whole}, "blocks": own_blocks})
        report = dict(counted) | {
            "functions": functions,
            "model": self.name,
            "cpu": self.cpu,
            "cycles": {"total": total, "charged": mean * float(charged.sum())},
            "pieces": {
                "executions": executions,
                "distinct": len({one.key for each in cut for one in each if one.has_code}),
                "refused": dict(sorted(refused.items(), key=lambda one: (-one[1], one[0]))),
                "ended_by": dict(sorted(ends.items())),
            },
        }
        return Cost(total, dict(costs), report)


def _guesses(windows: Windows, numbers: npt.NDArray[np.int64], blocks: int) -> list[Guesses]:
    """What the simulated predictor mispredicted of each block; NaN where it was not asked.

    Callgrind's own, whose rates a profile has, remembers little: in an interpreter it is wrong nine
    times as often as a core.

    Args:
      numbers: as `neighbours.numbered` returns them.
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
    """Code, or inputs, of all pieces of a block."""
    return b"".join(one.key[part] for one in cut)


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
            found.append(_Block(row["name"], block["id"], address, content, block["executions"]))
        else:
            del functions[number : number + 1 * (len(functions) > 1)]
            return found
    return None
