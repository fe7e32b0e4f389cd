# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the modules that a build left in its folder, as LLVM's `extract_ir` does.

- After a ThinLTO link in one process with `-Wl,--save-temps=import` and
  `-Wl,--thinlto-emit-index-files`: `NAME.3.import.bc`, what the module is after the thin link's
  imports, and `NAME.thinlto.bc`, its index.
- Otherwise objects, `NAME.o`, with bitcode and command line in sections: of compilations with
  `-Xclang -fembed-bitcode=all`, or of a distributed ThinLTO build's with
  `-mllvm -lto-embed-bitcode=post-merge-pre-opt`, whose commands name the index.
"""

from dataclasses import dataclass
from pathlib import Path

from absl import logging

from compiler_opt_perf.binary.elf import BinaryError, open_elf
from compiler_opt_perf.corpus.corpus import BITCODE_MAGIC, CorpusError, is_module_name
from compiler_opt_perf.run.files import read_input

# lld's names.
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
    """A module that a build left.

    Attributes:
      name: in the corpus, with the program's name in front.
      path: the bitcode file, or the object file that has it in a section.
      command: arguments of -cc1 as they were; empty for modules of a link, which keeps none.
      index: what the thin link wrote for the module; None for builds without ThinLTO.
    """

    name: str
    path: Path
    command: tuple[str, ...]
    index: Path | None

    def bitcode(self) -> bytes:
        """The module's bitcode. Raises CorpusError when the file no longer holds any."""
        try:
            data = _section(self.path, _BITCODE_SECTION) if self.command else read_input(self.path)
        except (BinaryError, OSError) as error:
            raise CorpusError(f"{self.path}: bitcode cannot be read: {error}") from error
        if data is None or not data.startswith(BITCODE_MAGIC):
            raise CorpusError(f"{self.path}: holds no LLVM bitcode; build it again")
        return data


def find_modules(program: str, folder: Path) -> list[BuiltModule]:
    """The modules of the build in `folder`, by name.

    Raises:
      CorpusError: it holds none, an index is missing, or two would have the same name.
    """
    folder = folder.absolute()
    linked = sorted(folder.rglob(f"*{_IMPORTED}"))
    modules = [_linked_module(program, folder, path) for path in linked]
    if not linked:
        objects = sorted(path for path in folder.rglob("*.o") if path.is_file())
        found = [_embedded_module(program, folder, path) for path in objects]
        modules = [module for module in found if module is not None]
        without = [path for path, module in zip(objects, found, strict=True) if module is None]
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
    """The module embedded in an object file; None when the file has no bitcode."""
    try:
        section = _section(path, _COMMAND_SECTION)
        bitcode = _section(path, _BITCODE_SECTION)
    except BinaryError:
        # Objects for link-time optimisation are bitcode themselves, for example.
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
            "objects that the compiler wrote, not what `ld -r` made of them"
        )
    indices = [word.removeprefix(_INDEX_OPTION) for word in words if word.startswith(_INDEX_OPTION)]
    index = None
    if indices:
        # Relative to where the compiler ran: the folder of the build, or the object's own.
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
        # Compilers compress none of these, and a small file could say that it is of any size.
        if section is None or section.compressed or section["sh_type"] == "SHT_NOBITS":
            return None
        return bytes(section.data())
