# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads a binary's build-id, symbols and debug info from ELF files, which may be damaged."""

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

# These flags let a profile match instructions of another compilation. The second makes the inliner
# defer decisions as under PGO: the code would differ from an ordinary build. The last undoes that.
PROFILING_FLAGS = "-g -fdebug-info-for-profiling -mllvm -enable-npm-pgo-inline-deferral=false"

# pyelftools raises these for damaged files: it trusts their offsets, sizes and section numbers.
_DAMAGE = (
    *(ELFError, DWARFError, ConstructError, ValueError, LookupError, TypeError, AttributeError),
    *(ArithmeticError, AssertionError, MemoryError, NotImplementedError),
)


class BinaryError(UserError):
    """A binary cannot be read or lacks needed data; the message names file, cause and remedy."""


# Elf64_Sym and its constants, from the ELF specification.
_SYMBOL = struct.Struct("<IBBHQQ")
_STB_LOCAL = 0
STT_OBJECT, STT_FUNC, STT_SECTION, STT_FILE, STT_TLS = 1, 2, 3, 4, 6
_ELFCOMPRESS_ZSTD = 2
# Section numbers from here on are reserved: they name no sections.
SHN_LORESERVE = 0xFF00


@contextlib.contextmanager
def open_elf(path: Path) -> Iterator[ELFFile]:
    """Opens the ELF file at `path`; the body must read all that it needs.

    Raises:
      BinaryError: the file cannot be read, is not ELF, or is damaged where the body reads it.
    """
    try:
        with open_input(path) as stream:
            yield ELFFile(stream)
    except OSError as error:
        raise BinaryError(f"{path}: cannot be read: {error.strerror or error}") from error
    except _DAMAGE as error:
        raise BinaryError(_why_not(path, error)) from error


def _why_not(path: Path, error: Exception) -> str:
    """Returns the message for a file that could not be read as ELF."""
    with contextlib.suppress(OSError), open_input(path) as stream:
        if stream.read(2) == b"#!":
            # libtool puts a script in the place of a program that is not installed yet.
            real = path.parent / ".libs" / path.name
            hint = f"; the program itself is {real}" if real.is_file() else ""
            return f"{path}: not an ELF file, but a script{hint}"
    return f"{path}: not an ELF file, or damaged ({error})"


def is_x86_64(file: ELFFile) -> bool:
    """Whether the file is for x86-64 with 64-bit addresses (not x32)."""
    return bool(file["e_machine"] == "EM_X86_64" and file.elfclass == 64)


def build_id(binary: Path) -> str:
    """Returns the build-id of `binary` in lower-case hexadecimal digits.

    Raises:
      BinaryError: the file is missing, not ELF, or has no build-id.
    """
    with open_elf(binary) as file:
        for section in file.iter_sections():
            if isinstance(section, NoteSection):
                for note in section.iter_notes():
                    if note["n_type"] == "NT_GNU_BUILD_ID":
                        return str(note["n_desc"])
    raise BinaryError(
        f"{binary}: has no build-id, which ties a profile to its binary; "
        "link it with -Wl,--build-id"
    )


class Symbol(NamedTuple):
    """A symbol of a binary.

    Attributes:
      name: linkage name.
      kind: STT_FUNC or another STT constant.
      is_local: whether its binding is STB_LOCAL.
      section: number of its section; 0 when undefined here.
      address: link-time address.
    """

    name: str
    kind: int
    is_local: bool
    section: int
    address: int


def read_symbols(file: ELFFile, table: str) -> Iterator[Symbol]:
    """Reads the symbols of `table`, ".symtab" or ".dynsym"; yields none without such a table.

    pyelftools takes ten times as long: a minute for a large program.
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
    """Checks before a long run that `binary` has debug info.

    Raises:
      BinaryError: the binary is stripped, was compiled without debug info, or has it in an old
        compression.
    """
    with open_elf(binary) as file:
        names = {section.name for section in file.iter_sections()}
    if ".zdebug_line" in names:
        raise BinaryError(
            f"{binary}: its debug info is compressed in the old way (.zdebug, -gz=zlib-gnu), which "
            "LLVM no longer reads; link it with -gz=zlib or -gz=zstd, or convert it: "
            f"objcopy --decompress-debug-sections {binary}"
        )
    if ".debug_line" not in names:
        raise BinaryError(
            f"{binary}: has no debug info (stripped, or compiled without); "
            f"compile it with {PROFILING_FLAGS} and do not strip it"
        )


def has_flow_sensitive_discriminators(binary: Path) -> bool:
    """Whether `binary` was compiled with -enable-fs-discriminator.

    The compiler adds a symbol for llvm-profgen. Returns False for a binary without symbol table.

    Raises:
      BinaryError: the file is missing or not ELF.
    """
    with open_elf(binary) as file:
        return any(
            symbol.name == "__llvm_fs_discriminator__" for symbol in read_symbols(file, ".symtab")
        )


def function_entries(binary: Path, function: str) -> list[int]:
    """Returns link-time addresses of all functions with a linkage name; static ones may share it.

    Raises:
      BinaryError: the file is missing, not ELF, or has no such function.
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
    """Yields the binary, or a decompressed copy of debug info that pyelftools cannot read (zstd).

    Raises:
      BinaryError: the file is not ELF, or its debug info is damaged.
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
    """Checks that the .dwo files of split debug info (-gsplit-dwarf) are where the binary says.

    Raises:
      BinaryError: .dwo files are missing, and no .dwp lies beside the binary.
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
    """Returns DT_SONAME, the name by which programs load a shared library; None without one."""
    with open_elf(binary) as file:
        dynamic = file.get_section_by_name(".dynamic")
        if dynamic is not None:
            for tag in dynamic.iter_tags("DT_SONAME"):
                return str(tag.soname)
    return None


def hide_debug_info(binary: Path, output: Path) -> None:
    """Copies `binary` to `output`, with debug sections renamed so that no tool finds them.

    No instruction moves. (llvm-objcopy --strip-debug refuses statically linked executables.)

    Raises:
      BinaryError: the file is missing or not ELF.
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
