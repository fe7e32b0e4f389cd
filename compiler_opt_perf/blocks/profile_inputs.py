# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Looks up PMU inputs of learned cost models: a profile's rates of a binary's instructions."""

import functools
from collections.abc import Sequence
from pathlib import Path

import iced_x86
import numpy as np
from iced_x86 import FlowControl, OpAccess, Register

from compiler_opt_perf.binary.symbolize import Line, Location, symbolize
from compiler_opt_perf.blocks.graphs import PMU_INPUTS, Floats
from compiler_opt_perf.profile.events import Rate
from compiler_opt_perf.profile.profile import Profile
from compiler_opt_perf.run.files import sha256

_READS = {OpAccess.READ, OpAccess.COND_READ, OpAccess.READ_WRITE, OpAccess.READ_COND_WRITE}
# Inputs of loads, with their rate in the profile. Profiles have one last level, whose misses count
# as misses of the second and third level.
_OF_LOADS = {
    "l1_miss": "l1-miss-probability",
    "l2_miss": "llc-miss-probability",
    "l3_miss": "llc-miss-probability",
}
#: Jumps and calls that a core predicts, with their mispredict rate in the profile.
GUESSED: dict[int, str] = {
    FlowControl.CONDITIONAL_BRANCH: "branch-mispredict-rate",
    FlowControl.INDIRECT_BRANCH: "indirect-mispredict-rate",
    FlowControl.INDIRECT_CALL: "indirect-mispredict-rate",
}
#: Index of the mispredict rate in PMU_INPUTS.
MISPREDICT = PMU_INPUTS.index("mispredict")
_LOADS = [PMU_INPUTS.index(name) for name in _OF_LOADS]
_FAILED_FORWARD = PMU_INPUTS.index("failed_forward")


@functools.lru_cache(maxsize=2)
def _loaded(manifest: Path, digest: str) -> Profile:
    """Loads a profile once per process, for all candidates of a training.

    Args:
      manifest: the profile's manifest.
      digest: the manifest's digest, as a cache key: the manifest holds its files' checksums.
    """
    return Profile.load(manifest)


class ProfileInputs:
    """PMU inputs of the instructions of some blocks; each instruction has its line's rates."""

    def __init__(self, profile: Path, binary: Path, blocks: Sequence[tuple[int, bytes]]):
        """Looks up the loads and jumps of blocks.

        Args:
          profile: manifest of a PMU profile of the program, from any build.
          binary: the linked binary, with debug info.
          blocks: address and code of each block.

        Raises:
          PmuError: the profile cannot be read.
          BinaryError: the binary has no debug info.
        """
        # Profile.load reports a missing file.
        digest = sha256(profile) if profile.is_file() else ""
        self._profile = _loaded(profile, digest)
        self._rates = {rate.name: rate for rate in self._profile.manifest.rates}
        # (rate, function, line) -> value; most instructions share their line with others.
        self._found: dict[tuple[str, str, Line], float] = {}
        wanted, hits = _wanted(blocks)
        locations = symbolize(binary, wanted).locations if wanted else {}
        # Address of a load or jump -> its inputs, [len(PMU_INPUTS)].
        self._rows: dict[int, Floats] = {}
        for address, names in wanted.items():
            row = np.full(len(PMU_INPUTS), np.nan, np.float32)
            location = locations.get(address)
            if location is not None:
                for place, name in names.items():
                    row[place] = self._rate(name, location)
            self._rows[address] = row
        for address in hits:
            self._rows[address] = np.full(len(PMU_INPUTS), np.nan, np.float32)
            self._rows[address][_LOADS] = 0.0
        self._unknown = np.full(len(PMU_INPUTS), np.nan, np.float32)

    def rows(self, addresses: Sequence[int]) -> Floats:
        """The PMU inputs at addresses, float32 [addresses, len(PMU_INPUTS)], NaN where unknown.

        Only loads and jumps with a source line have inputs.
        """
        rows = [self._rows.get(address, self._unknown) for address in addresses]
        return np.array(rows, np.float32).reshape(len(rows), len(PMU_INPUTS))

    def block_rows(self, address: int, code: bytes) -> Floats:
        """The PMU inputs of a block's instructions, jumps and calls included; see `rows`."""
        return self.rows([address + instruction.ip for instruction in iced_x86.Decoder(64, code)])

    @staticmethod
    def array(raw: bytes) -> Floats:
        """The result of `rows` from its bytes."""
        return np.frombuffer(raw, np.float32).reshape(-1, len(PMU_INPUTS))

    def _rate(self, name: str, location: Location) -> float:
        sites = location.call_sites
        key = name, sites[-1].callee if sites else location.function, location.line
        if key not in self._found:
            self._found[key] = self._look_up(*key)
        return self._found[key]

    def _look_up(self, name: str, function: str, line: Line) -> float:
        rate: Rate | None = self._rates.get(name)
        lines = self._profile.functions.get(function)
        if rate is None or lines is None:
            return np.nan
        if line in lines:
            found = self._profile.of_line(rate, function, line).shrunk
        else:
            found = self._profile.of_function(rate, function).shrunk
        return np.nan if found is None else min(found, 1.0)


def block_inputs(
    profile: ProfileInputs | None,
    address: int,
    code: bytes,
    waited: Sequence[tuple[int, float]] | None,
) -> Floats | None:
    """The PMU inputs of a block's instructions, jumps and calls included; None if unknown.

    Args:
      profile: what the profile tells; None without one.
      address, code: those of the block.
      waited: offset of a load, and share of executions in which it waited for a store that could
        not be forwarded; 0 for loads that are missing. None if unknown.
    """
    rows = None if profile is None else profile.block_rows(address, code)
    if waited is None:
        return rows
    info = iced_x86.InstructionInfoFactory()
    instructions = list(iced_x86.Decoder(64, code))
    if rows is None:
        rows = np.full((len(instructions), len(PMU_INPUTS)), np.nan, np.float32)
    shares = dict(waited)
    for row, instruction in zip(rows, instructions, strict=True):
        if any(part.access in _READS for part in info.info(instruction).used_memory()):
            row[_FAILED_FORWARD] = shares.get(instruction.ip, 0.0)
    return rows


def _wanted(blocks: Sequence[tuple[int, bytes]]) -> tuple[dict[int, dict[int, str]], list[int]]:
    """Finds loads and jumps: address -> index of the input -> name of its rate.

    Loads from the stack only are returned apart, because they hit. The misses of their line belong
    to its other loads, such as the load of a value that is spilled there.
    """
    info = iced_x86.InstructionInfoFactory()
    loads = dict(zip(_LOADS, _OF_LOADS.values(), strict=True))
    found: dict[int, dict[int, str]] = {}
    hits = []
    for address, code in blocks:
        for instruction in iced_x86.Decoder(64, code):
            if instruction.flow_control in GUESSED:
                found[address + instruction.ip] = {MISPREDICT: GUESSED[instruction.flow_control]}
            elif instruction.flow_control == FlowControl.NEXT:
                read = [
                    part for part in info.info(instruction).used_memory() if part.access in _READS
                ]
                if read and all(_is_stack(part) for part in read):
                    hits.append(address + instruction.ip)
                elif read:
                    found[address + instruction.ip] = loads
    return found, hits


def _is_stack(memory: iced_x86.UsedMemory) -> bool:
    return bool(memory.base == Register.RSP and memory.index == Register.NONE)
