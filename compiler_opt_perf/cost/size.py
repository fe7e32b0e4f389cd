# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Native size: the bytes of machine code in an object file, in all and by function."""

from collections.abc import Mapping
from pathlib import Path

from elftools.elf.constants import SH_FLAGS
from elftools.elf.sections import SymbolTableSection

from compiler_opt_perf.binary.elf import BinaryError, open_elf


class ObjectFileError(Exception):
    """An object file that cannot be measured."""


def text_bytes(object_file: Path) -> int:
    """Sum of the sizes of all executable sections, in bytes (`.text` of `size -A`, summed).

    Raises:
      ObjectFileError: missing, empty or not ELF.
    """
    try:
        with open_elf(object_file) as file:
            sections = file.iter_sections()
            return sum(s["sh_size"] for s in sections if s["sh_flags"] & SH_FLAGS.SHF_EXECINSTR)
    except BinaryError as error:
        raise ObjectFileError(str(error)) from error


class FunctionSizes(dict[str, int]):
    """Bytes of each function of an object file, by its symbol.

    Attributes:
      shared: those that are in COMDATs or weak: other objects may have them too, the linked
        program has one.
    """

    shared: frozenset[str] = frozenset()

    def weighted(self, copies: Mapping[str, int]) -> float:
        """Their sum, in bytes; of functions with `copies` in the program, one copy's part."""
        return sum(size / copies.get(name, 1) for name, size in sorted(self.items()))


def function_sizes(object_file: Path) -> FunctionSizes:
    """The sizes of the functions in an object file's symbol table.

    Raises:
      ObjectFileError: missing, empty or not ELF.
    """
    try:
        with open_elf(object_file) as file:
            sizes, shared = FunctionSizes(), set()
            for section in file.iter_sections():
                if not isinstance(section, SymbolTableSection):
                    continue
                for symbol in section.iter_symbols():
                    if symbol["st_info"]["type"] != "STT_FUNC" or symbol["st_shndx"] == "SHN_UNDEF":
                        continue
                    sizes[symbol.name] = symbol["st_size"]
                    if symbol["st_info"]["bind"] == "STB_WEAK":
                        shared.add(symbol.name)
            sizes.shared = frozenset(shared)
            return sizes
    except BinaryError as error:
        raise ObjectFileError(str(error)) from error
