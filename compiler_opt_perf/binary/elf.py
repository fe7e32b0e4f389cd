# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ELF files, which may be damaged: a binary's identity, its functions and its debug info."""

import contextlib
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from elftools.common.exceptions import DWARFError, ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection

from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import make_executable, open_input
from compiler_opt_perf.run.llvm import LLVM_MAJOR, stock_tool

# What a program must be compiled with for its instructions to be found again in another
# compilation. The last option undoes a side effect of the second: without it the inliner defers
# decisions as under PGO, and the profiled code would not be the code of an ordinary build.
PROFILING_FLAGS = "-g -fdebug-info-for-profiling -mllvm -enable-npm-pgo-inline-deferral=false"

# What pyelftools raises where a file contradicts itself, besides its own exceptions: it follows
# offsets, sizes and numbers of sections as they are in the file.
_DAMAGE = (
    *(ELFError, DWARFError, ConstructError, ValueError, LookupError, TypeError, AttributeError),
    *(ArithmeticError, AssertionError, MemoryError, NotImplementedError),
)


class BinaryError(UserError):
    """A binary that cannot be read, or lacks what is needed of it.

    The message names the file, what is wrong and what to do about it.
    """


# Elf64_Sym, and numbers in it, of the ELF specification.
_SYMBOL = struct.Struct("<IBBHQQ")
_STB_LOCAL = 0
STT_OBJECT, STT_FUNC, STT_SECTION, STT_FILE, STT_TLS = 1, 2, 3, 4, 6
_ELFCOMPRESS_ZSTD = 2
# Section numbers from here on are no sections.
SHN_LORESERVE = 0xFF00


@contextlib.contextmanager
def open_elf(path: Path) -> Iterator[ELFFile]:
    """The ELF file at `path`, open while it is looked at: nothing of it may be read later.

    Raises:
      BinaryError: it cannot be read, is no ELF file, or what the body reads of it is damaged.
    """
    try:
        with open_input(path) as stream:
            yield ELFFile(stream)
    except OSError as error:
        raise BinaryError(f"{path}: cannot be read: {error.strerror or error}") from error
    except _DAMAGE as error:
        raise BinaryError(_why_not(path, error)) from error


def _why_not(path: Path, error: Exception) -> str:
    """Why a file was not read as ELF."""
    with contextlib.suppress(OSError), open_input(path) as stream:
        if stream.read(2) == b"#!":
            # Of a program that is not installed yet, libtool leaves a script.
            real = path.parent / ".libs" / path.name
            hint = f"; the program itself is {real}" if real.is_file() else ""
            return f"{path}: not an ELF file, but a script{hint}"
    return f"{path}: not an ELF file, or damaged ({error})"


def is_x86_64(file: ELFFile) -> bool:
    """Whether it is of that machine, with addresses of 64 bits."""
    return bool(file["e_machine"] == "EM_X86_64" and file.elfclass == 64)


def build_id(binary: Path) -> str:
    """The build-id that the linker gave to `binary`, as lower-case hexadecimal digits.

    Raises:
      BinaryError: no such file, not an ELF file, or one without a build-id.
    """
    with open_elf(binary) as file:
        for section in file.iter_sections():
            if isinstance(section, NoteSection):
                for note in section.iter_notes():
                    if note["n_type"] == "NT_GNU_BUILD_ID":
                        return str(note["n_desc"])
    raise BinaryError(
        f"{binary}: has no build-id, which ties a profile to the binary it was made of; "
        "link it with -Wl,--build-id"
    )


class Symbol(NamedTuple):
    """A symbol of a binary.

    Attributes:
      name: linkage name.
      kind: STT_FUNC or another number of that kind.
      is_local: whether other files cannot see it.
      section: number of its section; 0 when it is defined elsewhere.
      address: link-time address.
    """

    name: str
    kind: int
    is_local: bool
    section: int
    address: int


def read_symbols(file: ELFFile, table: str) -> Iterator[Symbol]:
    """The symbols of the table of that name, ".symtab" or ".dynsym"; none where there is none.

    (pyelftools takes ten times as long, which for a large program is a minute.)
    """
    section = file.get_section_by_name(table)
    if not isinstance(section, SymbolTableSection):
        return
    names = section.stringtable.data()
    data = section.data()
    whole = len(data) - len(data) % _SYMBOL.size
    for name, info, _, index, address, _ in _SYMBOL.iter_unpack(data[:whole]):
        text = names[name : names.find(b"\0", name)].decode("utf-8", "surrogateescape")
        yield Symbol(text, info & 0xF, info >> 4 == _STB_LOCAL, index, address)


def require_debug_info(binary: Path) -> None:
    """Checks that `binary` carries debug info, so that a long run is not made for nothing.

    Raises:
      BinaryError: it is stripped or was compiled without debug info.
    """
    with open_elf(binary) as file:
        names = {section.name for section in file.iter_sections()}
    if ".zdebug_line" in names:
        raise BinaryError(
            f"{binary}: its debug info is compressed in the old way (.zdebug, -gz=zlib-gnu), which "
            "LLVM does not read any more; link it with -gz=zlib or -gz=zstd, or convert it: "
            f"objcopy --decompress-debug-sections {binary}"
        )
    if ".debug_line" not in names:
        raise BinaryError(
            f"{binary}: has no debug info (stripped, or compiled without); "
            f"compile it with {PROFILING_FLAGS} and do not strip it"
        )


def has_flow_sensitive_discriminators(binary: Path) -> bool:
    """Whether `binary` was compiled with -enable-fs-discriminator.

    The compiler marks it by a symbol, as llvm-profgen asks for it; without a symbol table, it can't
    be told.

    Raises:
      BinaryError: no such file, or not an ELF file.
    """
    with open_elf(binary) as file:
        return any(
            symbol.name == "__llvm_fs_discriminator__" for symbol in read_symbols(file, ".symtab")
        )


def function_entries(binary: Path, function: str) -> list[int]:
    """Link-time addresses of the functions of that linkage name; static ones may share one.

    Raises:
      BinaryError: no such file, not an ELF file, or one without such a function.
    """
    with open_elf(binary) as file:
        entries = [
            symbol.address
            for symbol in read_symbols(file, ".symtab")
            if symbol.name == function and symbol.kind == STT_FUNC
        ]
    if not entries:
        raise BinaryError(
            f"{binary}: has no function {function}; check its linkage name (nm), or declare it "
            "noinline if it is inlined everywhere"
        )
    return entries


@contextlib.contextmanager
def _readable_debug_info(binary: Path) -> Iterator[Path]:
    """The binary, or a copy of its debug info, if that is compressed as pyelftools cannot read.

    Raises:
      BinaryError: it is not an ELF file, or its debug info is damaged.
    """
    with open_elf(binary) as file:
        compressed = [
            section.header["sh_offset"]
            for section in file.iter_sections()
            if section.name.startswith(".debug_") and section.compressed
        ]
        kinds = set()
        for offset in compressed:
            file.stream.seek(offset)
            kinds.add(int.from_bytes(file.stream.read(4), "little"))
    if _ELFCOMPRESS_ZSTD not in kinds:
        yield binary
        return
    with tempfile.TemporaryDirectory(prefix="debug-info-") as folder:
        copy = Path(folder) / binary.name
        options = "--decompress-debug-sections", "--only-section=.debug_*"
        try:
            run_command([stock_tool("llvm-objcopy"), *options, binary.absolute(), copy])
        except CommandError as error:
            raise BinaryError(
                f"{binary}: its debug info cannot be decompressed: {error}"
            ) from error
        yield copy


def require_split_debug_info(binary: Path) -> None:
    """Checks that the files of split debug info (-gsplit-dwarf) are where the binary says.

    Raises:
      BinaryError: .dwo files are missing, and there is no .dwp beside the binary.
    """
    if binary.with_name(binary.name + ".dwp").exists():
        return
    missing = []
    with _readable_debug_info(binary) as path, open_elf(path) as file:
        if not file.has_dwarf_info() or file.get_section_by_name(".debug_info") is None:
            return
        for unit in file.get_dwarf_info(follow_links=False).iter_CUs():
            attributes = unit.get_top_DIE().attributes
            name = attributes.get("DW_AT_dwo_name") or attributes.get("DW_AT_GNU_dwo_name")
            if name is not None:
                folder = attributes.get("DW_AT_comp_dir")
                part = Path(os.fsdecode(folder.value if folder else b""), os.fsdecode(name.value))
                if not part.exists():
                    missing.append(part)
    if missing:
        raise BinaryError(
            f"{binary}: {len(missing)} files of its split debug info are missing, the first is "
            f"{missing[0]}; put them there, or make {binary.name}.dwp beside the binary "
            f"(llvm-dwp-{LLVM_MAJOR} -e)"
        )


def soname(binary: Path) -> str | None:
    """The name by which programs load a shared library; None when it gives itself none."""
    with open_elf(binary) as file:
        dynamic = file.get_section_by_name(".dynamic")
        if dynamic is not None:
            for tag in dynamic.iter_tags("DT_SONAME"):
                return str(tag.soname)
    return None


def hide_debug_info(binary: Path, output: Path) -> None:
    """Copies `binary` to `output`, with its debug info under names that no tool looks for.

    Nothing moves: the copy's instructions are where the original's are. (llvm-objcopy
    --strip-debug would do as well, but refuses statically linked executables.)

    Raises:
      BinaryError: no such file, or not an ELF file.
    """
    with open_elf(binary) as file:
        names = file.get_section(file["e_shstrndx"])["sh_offset"]
        hidden = [
            section["sh_name"]
            for section in file.iter_sections()
            if section.name.startswith((".debug_", ".zdebug_", ".gnu_debug"))
        ]
    shutil.copyfile(binary, output)
    make_executable(output)
    with output.open("r+b") as stream:
        for name in hidden:
            stream.seek(names + name)
            stream.write(b"_")
