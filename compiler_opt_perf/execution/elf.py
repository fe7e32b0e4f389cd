# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Opens ELF files, which may be damaged."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from elftools.common.exceptions import DWARFError, ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile

from compiler_opt_perf.execution.files import open_input

# What pyelftools raises where a file contradicts itself, besides its own exceptions: it follows
# offsets, sizes and numbers of sections as they are in the file.
_DAMAGE = (
    *(ELFError, DWARFError, ConstructError, ValueError, LookupError, TypeError, AttributeError),
    *(ArithmeticError, AssertionError, MemoryError, NotImplementedError),
)


class ElfFileError(Exception):
    """A file that cannot be read as an ELF file; the message names it."""


@contextlib.contextmanager
def open_elf(path: Path) -> Iterator[ELFFile]:
    """The ELF file at `path`, open while it is looked at: nothing of it may be read later.

    Raises:
      ElfFileError: it cannot be read, is no ELF file, or what the body reads of it is damaged.
    """
    try:
        with open_input(path) as stream:
            yield ELFFile(stream)
    except OSError as error:
        raise ElfFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    except _DAMAGE as error:
        raise ElfFileError(f"{path}: not an ELF file, or damaged ({error})") from error
