# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the modules in a build's output folder, as LLVM's `extract_ir` does.

- A ThinLTO link in one process with `-Wl,--save-temps=import` and
  `-Wl,--thinlto-emit-index-files` writes `NAME.3.import.bc`, the module after imports, and
  `NAME.thinlto.bc`, its index.
- Otherwise objects `NAME.o` hold bitcode and command line in sections. Compilations with
  `-Xclang -fembed-bitcode=all` write these, and distributed ThinLTO builds with
  `-mllvm -lto-embed-bitcode=post-merge-pre-opt`, whose commands name the index.
"""

from dataclasses import dataclass
from pathlib import Path

from absl import logging

from compiler_opt_perf.binary.elf import BinaryError, open_elf
from compiler_opt_perf.corpus.corpus import BITCODE_MAGIC, CorpusError, is_module_name
from compiler_opt_perf.run.files import read_input

# Suffixes of lld's files.
_IMPORTED = ".3.import.bc"
_INDEX = ".thinlto.bc"
_INDEX_OPTION = "-fthinlto-index="
_BITCODE_SECTION = ".llvmbc"
_COMMAND_SECTION = ".llvmcmd"
_NAMES_SHOWN = 10
_REMEDY = (
    "compile with -Xclang -fembed-bitcode=all, or link ThinLTO with -Wl,--save-temps=import "
    "-Wl,--thinlto-emit-index-files, or give compile_commands.json"
)


@dataclass(frozen=True)
class BuiltModule:
    """A module in the output of a build.

    Attributes:
      name: its name in the corpus, which begins with the program's name.
      path: the bitcode file, or the object file with bitcode in a section.
      command: original arguments of -cc1; empty for modules of a link, which keeps none.
      index: the module's index of the thin link; None for builds without ThinLTO.
    """

    name: str
    path: Path
    command: tuple[str, ...]
    index: Path | None

    def bitcode(self) -> bytes:
        """Reads the module's bitcode. Raises CorpusError when the file no longer holds any."""
        try:
            data = _section(self.path, _BITCODE_SECTION) if self.command else read_input(self.path)
        except (BinaryError, OSError) as error:
            raise CorpusError(f"{self.path}: bitcode cannot be read: {error}") from error
        if data is None or not data.startswith(BITCODE_MAGIC):
            raise CorpusError(f"{self.path}: holds no LLVM bitcode; build it again")
        return data


def find_modules(program: str, folder: Path) -> list[BuiltModule]:
    """Finds the modules of the build in `folder`.

    Raises:
      CorpusError: there are no modules, an index is missing, or two modules get the same name.
    """
    folder = folder.absolute()
    linked = sorted(folder.rglob(f"*{_IMPORTED}"))
    modules = [_linked_module(program, folder, path) for path in linked]
    if not linked:
        objects = sorted(path for path in folder.rglob("*.o") if path.is_file())
        embedded = [_embedded_module(program, folder, path) for path in objects]
        modules = [module for module in embedded if module is not None]
        without = [path for path, module in zip(objects, embedded, strict=True) if module is None]
        if modules and without:
            logging.warning(
                "%s: %d of %d objects hold no bitcode and are left out: %s",
                folder,
                len(without),
                len(objects),
                ", ".join(str(path.relative_to(folder)) for path in without[:_NAMES_SHOWN])
                + (", ..." if len(without) > _NAMES_SHOWN else ""),
            )
    if not modules:
        raise CorpusError(f"{folder}: holds no modules of a build; {_REMEDY}")
    names: dict[str, Path] = {}
    for module in modules:
        if not is_module_name(module.name):
            raise CorpusError(f"{module.path}: {module.name!r} cannot be the name of a module")
        if module.name in names:
            raise CorpusError(
                f"{module.path} and {names[module.name]} would have the same name in the corpus"
            )
        names[module.name] = module.path
    return modules


def _linked_module(program: str, folder: Path, path: Path) -> BuiltModule:
    module = path.with_name(path.name.removesuffix(_IMPORTED))
    index = module.with_name(module.name + _INDEX)
    if not index.is_file():
        raise CorpusError(f"{index}: not found beside {path.name}; {_REMEDY}")
    return BuiltModule(_name(program, folder, module), path, (), index)


def _embedded_module(program: str, folder: Path, path: Path) -> BuiltModule | None:
    """Reads the module embedded in an object file; None when the file has no bitcode."""
    try:
        section = _section(path, _COMMAND_SECTION)
        bitcode = _section(path, _BITCODE_SECTION)
    except BinaryError:
        # For example, objects for link-time optimisation are bitcode files.
        return None
    if section is None or bitcode is None:
        return None
    try:
        words = section.decode("utf-8").rstrip("\0").split("\0")
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{path}: {_COMMAND_SECTION} is not UTF-8 ({error}); build it again"
        ) from error
    if words[:1] != ["-cc1"] or words.count("-cc1") > 1:
        raise CorpusError(
            f"{path}: {_COMMAND_SECTION} does not hold the command of one compilation; take the "
            "objects that the compiler wrote, not the output of `ld -r`"
        )
    indices = [word.removeprefix(_INDEX_OPTION) for word in words if word.startswith(_INDEX_OPTION)]
    index = None
    if indices:
        # The path is relative to where the compiler ran: the build's folder, or the object's.
        candidates = [folder / indices[-1], path.parent / indices[-1]]
        index = next((file for file in candidates if file.is_file()), None)
        if index is None:
            raise CorpusError(
                f"{path}: its command names {indices[-1]}, the thin link's index, which is not in "
                f"{folder}; give the folder that the compiler ran in"
            )
    command = tuple(word for word in words[1:] if not word.startswith(_INDEX_OPTION))
    return BuiltModule(_name(program, folder, path), path, command, index)


def _name(program: str, folder: Path, path: Path) -> str:
    return f"{program}/{path.relative_to(folder)}".removesuffix(".o")


def _section(path: Path, name: str) -> bytes | None:
    with open_elf(path) as elf:
        section = elf.get_section_by_name(name)
        # Compilers never compress these sections. A damaged file could claim any size.
        if section is None or section.compressed or section["sh_type"] == "SHT_NOBITS":
            return None
        return bytes(section.data())
