# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The size of machine code in an object file, in total and by function, and of a stripped file."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from elftools.elf.constants import SH_FLAGS
from elftools.elf.sections import SymbolTableSection

from compiler_opt_perf.binary.elf import BinaryError, open_elf
from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.llvm import stock_tool


class ObjectFileError(UserError):
    """An object file cannot be measured."""


def text_bytes(object_file: Path) -> int:
    """The sum of the sizes of all executable sections, in bytes.

    Raises:
      ObjectFileError: the file is missing, empty or not ELF.
    """
    try:
        with open_elf(object_file) as file:
            sections = file.iter_sections()
            return sum(s["sh_size"] for s in sections if s["sh_flags"] & SH_FLAGS.SHF_EXECINSTR)
    except BinaryError as error:
        raise ObjectFileError(str(error)) from error


def stripped_bytes(program: Path) -> int:
    """The size of a program's file without symbols and debug info, in bytes.

    Raises:
      ObjectFileError: the file is missing or not ELF.
    """
    # As strip and the linker's --strip-all do it; --strip-all takes more.
    words: list[str | Path] = [stock_tool("llvm-objcopy"), "--strip-all-gnu", program.absolute()]
    with tempfile.TemporaryDirectory(prefix="stripped-") as folder:
        stripped = Path(folder) / "program"
        try:
            run_command([*words, stripped])
        except CommandError as error:
            raise ObjectFileError(f"{program}: not an ELF file, or damaged ({error})") from error
        return stripped.stat().st_size


class FunctionSizes(dict[str, int]):
    """Symbol of each function of an object file -> its size in bytes.

    Attributes:
      shared: functions that are weak or in COMDATs. Other objects may have copies, but the linked
        program has one.
      aliases: further symbol of a function -> the symbol that it is counted by.
    """

    shared: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = MappingProxyType({})

    def weighted(self, copies: Mapping[str, int]) -> float:
        """The sum in bytes, with each size divided by the function's number of `copies`."""
        return sum(size / copies.get(name, 1) for name, size in sorted(self.items()))


def function_sizes(object_file: Path) -> FunctionSizes:
    """The sizes of the functions in an object file's symbol table.

    A function with several symbols, such as a constructor of complete and of base objects, counts
    once, by its alphabetically first symbol.

    Raises:
      ObjectFileError: the file is missing, empty or not ELF.
    """
    try:
        with open_elf(object_file) as file:
            sizes, shared = FunctionSizes(), set()
            places = {}
            for section in file.iter_sections():
                if not isinstance(section, SymbolTableSection):
                    continue
                for symbol in section.iter_symbols():
                    if symbol["st_info"]["type"] != "STT_FUNC" or symbol["st_shndx"] == "SHN_UNDEF":
                        continue
                    places[symbol.name] = symbol["st_shndx"], symbol["st_value"]
                    sizes[symbol.name] = symbol["st_size"]
                    if symbol["st_info"]["bind"] == "STB_WEAK":
                        shared.add(symbol.name)
            first: dict[tuple[int, int], str] = {}
            for name in sorted(places):
                first.setdefault(places[name], name)
            sizes.aliases = {name: kept for name in places if (kept := first[places[name]]) != name}
            for name in sizes.aliases:
                del sizes[name]
            sizes.shared = frozenset(shared & sizes.keys())
            return sizes
    except BinaryError as error:
        raise ObjectFileError(str(error)) from error
