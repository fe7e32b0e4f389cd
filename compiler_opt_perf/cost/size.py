# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Native size: the bytes of machine code in an object file."""

from pathlib import Path

from elftools.elf.constants import SH_FLAGS

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
