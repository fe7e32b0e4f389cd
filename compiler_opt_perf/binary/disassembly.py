# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The instructions of an x86-64 binary: what they can do, and which blocks they form."""

import bisect
import enum
import itertools
import re
import subprocess
import tempfile
from array import array
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from compiler_opt_perf.binary.elf import BinaryError
from compiler_opt_perf.execution.llvm import stock_tool


class Kind(enum.Flag):
    """What an instruction can do; an instruction may be of several kinds, or of none."""

    LOAD = enum.auto()
    STORE = enum.auto()
    BRANCH = enum.auto()
    CONDITIONAL = enum.auto()
    INDIRECT = enum.auto()


_NONE = Kind(0)
_INSTRUCTION = re.compile(r" *([0-9a-f]+):\s+(.*)")
_TARGET = re.compile(r"0x([0-9a-f]+)(?: <|$)")
_PREFIX = re.compile(r"^(?:(?:lock|rep|repe|repne|notrack|bnd|data16|cs|addr32)\s+)+")
_LONGEST_INSTRUCTION = 15
# These name memory, but do not access it.
_NO_ACCESS = re.compile(r"lea|nop|prefetch|clflush|clwb|endbr")
# These write to their last operand without reading it; all others with memory there do both, or
# only read it.
_WRITES_ONLY = re.compile(r"v?(?:mov|extract|pextr|set|st|cvtps2ph|maskmov)")
_READS_ONLY = re.compile(
    r"v?(?:cmp(?!xchg)|test|ucomis|comis|ptest|bt[lqw]?$|push|call|jmp|mul|imul|div|idiv)"
)


def kind_of(text: str) -> Kind:
    """The kind of one instruction, given in AT&T syntax as llvm-objdump prints it."""
    mnemonic, _, operands = _PREFIX.sub("", text.partition("#")[0].strip()).partition("\t")
    operands = operands.strip()
    kind = _NONE
    if mnemonic.startswith(("j", "loop")) and not mnemonic.startswith("jmp"):
        return Kind.BRANCH | Kind.CONDITIONAL
    if mnemonic.startswith(("jmp", "call")):
        kind |= Kind.BRANCH
        if operands.startswith("*"):
            kind |= Kind.INDIRECT
    if mnemonic.startswith("ret"):
        return Kind.BRANCH | Kind.LOAD
    if mnemonic.startswith(("push", "call")):
        kind |= Kind.STORE
    if mnemonic.startswith(("pop", "leave")):
        kind |= Kind.LOAD
    if _NO_ACCESS.match(mnemonic) or ("(" not in operands and "%fs:" not in operands):
        return kind
    if mnemonic.startswith(("movs", "stos", "lods", "cmps", "scas")) and operands.count("(") > 1:
        return Kind.LOAD | Kind.STORE
    last = _last_operand(operands)
    if ("(" not in last and "%fs:" not in last) or _READS_ONLY.match(mnemonic):
        return kind | Kind.LOAD
    if _WRITES_ONLY.match(mnemonic):
        return kind | Kind.STORE
    return kind | Kind.LOAD | Kind.STORE


def _last_operand(operands: str) -> str:
    """The last of the comma-separated operands; commas in parentheses separate nothing."""
    depth = 0
    for index in range(len(operands) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(operands[index], 0)
        if operands[index] == "," and depth == 0:
            return operands[index + 1 :]
    return operands


@dataclass
class Disassembly:
    """The instructions of a binary.

    Attributes:
      addresses: link-time addresses, ascending.
      kinds: of each.
      blocks: for each instruction, the number of the basic block that it is in.
    """

    addresses: list[int]
    kinds: list[Kind]
    blocks: list[int]

    def index(self, address: int) -> int | None:
        """The number of the instruction at `address`; None when none begins there."""
        place = bisect.bisect_left(self.addresses, address)
        if place < len(self.addresses) and self.addresses[place] == address:
            return place
        return None

    def containing(self, address: int) -> int | None:
        """The number of the instruction that holds `address`; None before the first."""
        place = bisect.bisect_right(self.addresses, address) - 1
        return place if place >= 0 else None

    def members(self, index: int) -> Sequence[int]:
        """The numbers of all instructions in the block of instruction `index`."""
        block = self.blocks[index]
        first = bisect.bisect_left(self.blocks, block)
        return range(first, bisect.bisect_right(self.blocks, block))


def disassemble(binary: Path) -> Disassembly:
    """Disassembles all executable sections of `binary`.

    Blocks begin at functions, after branches, and where direct branches lead.

    Raises:
      BinaryError: llvm-objdump failed, or there are no x86-64 instructions.
    """
    addresses: list[int] = []
    kinds: list[Kind] = []
    leaders: set[int] = set()
    for function in _functions(binary):
        leaders.add(_address(function[0]))
        after_branch = False
        for line in function:
            address, text = _address(line), line.partition(":")[2].strip()
            kind = kind_of(text)
            if after_branch:
                leaders.add(address)
            addresses.append(address)
            kinds.append(kind)
            after_branch = bool(kind & Kind.BRANCH)
            if after_branch and not kind & Kind.INDIRECT:
                target = _TARGET.search(text)
                if target is not None:
                    leaders.add(int(target[1], 16))
    order = sorted(range(len(addresses)), key=addresses.__getitem__)
    addresses = [addresses[i] for i in order]
    kinds = [kinds[i] for i in order]
    blocks = list(itertools.accumulate(int(address in leaders) for address in addresses))
    return Disassembly(addresses, kinds, blocks)


def split_by_execution(
    binary: Path, executed: Set[int]
) -> tuple[list[dict[int, int]], "array[int]"]:
    """The functions of `binary` that hold one of the addresses `executed`, and the others.

    Returns:
      For each executed function, by address the size of each of its instructions in bytes; and the
      addresses of all instructions of other functions.

    Raises as `disassemble`.
    """
    found: list[dict[int, int]] = []
    others = array("Q")
    wanted = sorted(executed)
    last = -1
    for function in _functions(binary):
        begin = _address(function[0])
        if found and last in found[-1] and begin > last:
            found[-1][last] = min(begin - last, _LONGEST_INSTRUCTION)
        last = _address(function[-1])
        place = bisect.bisect_left(wanted, begin)
        if place < len(wanted) and wanted[place] <= last:
            addresses = [_address(line) for line in function]
            sizes = {here: after - here for here, after in itertools.pairwise(addresses)}
            # Until it is known what follows; at the end of a section nothing does.
            sizes[last] = _LONGEST_INSTRUCTION
            found.append(sizes)
        else:
            others.extend(map(_address, function))
    return found, others


def _functions(binary: Path) -> Iterator[list[str]]:
    """The disassembler's lines, one an instruction, of each function or other labelled part."""
    found_any = False
    function: list[str] = []
    with tempfile.TemporaryFile("w+") as messages:
        command = [str(stock_tool("llvm-objdump")), "-d", "--no-show-raw-insn", str(binary)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=messages, text=True, errors="replace"
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                # Not all that is indented is an instruction: long comments have lines of their own.
                if (line[0] == " " and ":" in line[:18]) or _INSTRUCTION.match(line):
                    function.append(line)
                elif line.endswith(">:\n") or line.startswith("Disassembly"):
                    if function:
                        found_any = True
                        yield function
                        function = []
                elif "file format" in line and "elf64-x86-64" not in line:
                    process.kill()
                    raise BinaryError(f"{binary}: not an x86-64 binary: {line.strip()}")
        if function:
            found_any = True
            yield function
        if process.returncode or not found_any:
            messages.seek(0)
            raise BinaryError(
                f"{binary}: llvm-objdump found no instructions: {messages.read().strip()[-300:]}"
            )


def _address(line: str) -> int:
    return int(line.partition(":")[0], 16)
