# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Installs or packs a set of the patched tools for other machines.

  bin/        the stripped tools; links among them are relative
  lib/clang/  clang's own headers and libraries
  lib/        LiteRT, which evaluates models in development mode; LLVM's shared library if a tool
              needs it
  models/     the models that are compiled in
  README.md   the content and how to use it

The folder can be moved, and needs neither this project nor an installed LLVM.
"""

import os
import shutil
import tarfile
import tempfile
from pathlib import Path

from absl import logging
from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.files import atomic_write, copy_folder, write_text
from compiler_opt_perf.run.llvm import LLVM_PREFIX, LLVM_VERSION, stock_tool
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import ToolchainError

SUFFIX = ".tar.xz"
_TITLE = f"# LLVM {LLVM_VERSION} with machine-learned policies"


def is_installed(folder: Path) -> bool:
    """Whether `install` wrote the folder."""
    readme = folder / "README.md"
    return readme.is_file() and readme.read_text(errors="replace").startswith(_TITLE)


def install(toolchain: Toolchain, folder: Path, usage: str) -> None:
    """Copies the tools and the files that they need to an existing folder.

    Args:
      toolchain: the set.
      folder: the existing folder, which is empty.
      usage: how to use the set, in Markdown.

    Raises:
      ToolchainError: a tool cannot be stripped.
      OSError: the disk is full.
    """
    needed: set[str] = set()
    for name in ("bin", "lib"):
        (folder / name).mkdir()
    source = toolchain.directory
    for tool in sorted((source / "bin").iterdir()):
        target = folder / "bin" / tool.name
        if tool.is_symlink() and os.readlink(tool) in os.listdir(source / "bin"):
            target.symlink_to(os.readlink(tool))
        else:
            needed |= _copy_stripped(tool.resolve(), target)
    needed |= _copy_stripped(toolchain.litert_library, folder / "lib" / "libLiteRt.so")
    # A program looks for LLVM's shared library in ../lib.
    for name in sorted(needed):
        library = LLVM_PREFIX / "lib" / name
        if library.exists():
            needed |= _copy_stripped(library.resolve(), folder / "lib" / name)
    shutil.copytree((source / "lib" / "clang").resolve(), folder / "lib" / "clang")
    if (source / "models").is_dir():
        copy_folder(source / "models", folder / "models")
    system = sorted(name for name in needed if not (folder / "lib" / name).exists())
    write_text(
        folder / "README.md",
        f"{_TITLE}\n\n{usage.strip()}\n\nThe tools run wherever this folder lies. In development "
        "mode, give `-mllvm -litert-library=lib/libLiteRt.so` of this folder with its whole path. "
        f"Of the system they need\n{', '.join(system)}.\n",
    )


def pack(toolchain: Toolchain, output: Path, usage: str, level: int = 6) -> None:
    """Packs the files that `install` copies as an archive with one folder, NAME.

    The same files give the same archive, byte by byte.

    Args:
      toolchain: the set.
      output: the archive, NAME.tar.xz.
      usage: how to use the set, in Markdown.
      level: compression level, 0 (fast) to 9 (small).

    Raises:
      ToolchainError: the output has another suffix, or a tool cannot be stripped.
      FileWriteError: the disk is full.
    """
    if not output.name.endswith(SUFFIX) or output.name == SUFFIX:
        raise ToolchainError(f"{output}: expected NAME{SUFFIX}")
    name = output.name.removesuffix(SUFFIX)
    with (
        atomic_write(output) as temporary,
        tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as scratch,
    ):
        folder, archive = Path(scratch) / name, Path(scratch) / "a.tar"
        folder.mkdir()
        install(toolchain, folder, usage)
        with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
            for path in [folder, *sorted(folder.rglob("*"))]:
                tar.add(path, path.relative_to(scratch), recursive=False, filter=_anonymous)
        shutil.rmtree(folder)
        logging.info("compressing %d MB", archive.stat().st_size // 10**6)
        # Blocks of a fixed size make the archive independent of the number of threads.
        options = [f"-{level}", "--threads=0", "--block-size=32MiB"]
        run_command(["xz", "--quiet", *options, archive], env={"XZ_OPT": ""})
        os.replace(archive.with_name("a.tar.xz"), temporary)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Removes owner and time from a member of the archive."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    return member


def _copy_stripped(source: Path, target: Path) -> set[str]:
    """Copies a file and strips an ELF file's symbols; returns the libraries that it needs."""
    try:
        with open(source, "rb") as stream:
            sections = ELFFile(stream).iter_sections()
            dynamic = [section for section in sections if isinstance(section, DynamicSection)]
            needed = {tag.needed for section in dynamic for tag in section.iter_tags("DT_NEEDED")}
    except ELFError:
        shutil.copy(source, target)
        return set()
    try:
        run_command([stock_tool("llvm-strip"), "-o", target, source], timeout_s=600)
    except CommandError as error:
        raise ToolchainError(f"{source}: cannot be stripped: {error}") from error
    return needed
