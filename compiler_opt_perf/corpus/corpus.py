# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A corpus: IR modules and the command lines that compile them.

The layout on disk is that of LLVM's `mlgo-utils` (llvm/utils/mlgo-utils).
`corpus_description.json` lists module names. Each module has `NAME.bc` (bitcode) and `NAME.cmd`
(arguments of `clang -cc1`, separated by NUL). Modules of a ThinLTO build also have
`NAME.thinlto.bc`, their index of the thin link. One command for all modules can replace the `.cmd`
files.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec

from compiler_opt_perf.corpus.options import OptionError, code_arguments, driver_arguments
from compiler_opt_perf.run.content import Content
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import open_input, read_input, sha256, write_json
from compiler_opt_perf.run.json_text import CText, JsonError, decode
from compiler_opt_perf.run.seeds import derive_seed

# IR before any optimisation, for inlining policies.
FRONTEND = "frontend"
# IR as the code generator gets it, for register-allocation policies. Their compilations skip the
# middle end, which their decisions cannot change, and take a third of the time.
OPTIMIZED = "optimized"
#: Stages of the IR in a corpus.
STAGES = (FRONTEND, OPTIMIZED)
# Names the thin link's index; the corpus has a copy of it.
_INDEX_OPTION = "-fthinlto-index="
# LLVM's extract_ir writes this instead of a command for a ThinLTO link in one process.
_UNSPECIFIED = "<UNSPECIFIED>"
_LONGEST_NAME = 240

DESCRIPTION = "corpus_description.json"
BITCODE_MAGIC = b"BC\xc0\xde"


class CorpusError(UserError):
    """A corpus cannot be read, or lacks a requested module."""


class CorpusDescription(msgspec.Struct, frozen=True):
    """The content of `corpus_description.json`.

    Attributes:
      modules: module names.
      has_thinlto: whether the modules are of a ThinLTO build.
      global_command_override: one command for all modules; None when each has its own.
    """

    modules: tuple[str, ...]
    has_thinlto: bool = False
    global_command_override: tuple[CText, ...] | None = None


@dataclass(frozen=True)
class Module:
    """One module.

    Attributes:
      name: a relative path without suffix, for example "zstd/lib/common/zstd_common".
      bitcode: the IR file.
      command: `-cc1` arguments without input, output and input language; or driver options with
        -c, from a corpus with one command for all modules.
      thinlto_index: the module's index of the thin link, whose imports the bitcode has already;
        None without ThinLTO.
    """

    name: str
    bitcode: Content
    command: tuple[str, ...]
    thinlto_index: Content | None = None

    @property
    def program(self) -> str:
        """The program that it belongs to: the first part of its name."""
        return self.name.split("/")[0]

    @property
    def inputs(self) -> tuple[Path, ...]:
        """Files that its compilation reads."""
        return (self.bitcode, *([] if self.thinlto_index is None else [self.thinlto_index]))

    def fingerprint(self) -> list[str]:
        """Returns what its compilation depends on besides the compiler: checksums and command."""
        return [*map(sha256, self.inputs), *self.command]

    def compile_command(self, clang: Path, output: Path, extra: Iterable[str] = ()) -> list[str]:
        """Returns the command that compiles this module to the object file `output`.

        Args:
          extra: further arguments of -cc1.
        """
        words = [str(clang), *self.command]
        if self.command[0] != "-cc1":
            extra = [part for word in extra for part in ("-Xclang", word)]
        if self.thinlto_index is not None:
            words += [f"{_INDEX_OPTION}{self.thinlto_index}", "-mllvm", "-thinlto-assume-merged"]
        return [*words, *extra, "-o", str(output), "-x", "ir", str(self.bitcode)]


@dataclass(frozen=True)
class Corpus:
    """A set of modules, ordered by name."""

    directory: Path
    modules: tuple[Module, ...]

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Reads the corpus in `directory`.

        Raises:
          CorpusError: a file is missing or malformed.
        """
        path = directory / DESCRIPTION
        try:
            description = decode(read_input(path), CorpusDescription, path)
        except FileNotFoundError:
            inside = sorted(str(path.parent) for path in directory.glob(f"*/{DESCRIPTION}"))
            remedy = (
                f"{directory} is a folder of corpora; name one of them: {', '.join(inside)}"
                if inside
                else "`cop corpus extract` makes corpora"
            )
            raise CorpusError(f"{path}: not found; {remedy}") from None
        except OSError as error:
            raise CorpusError(f"{path}: {error.strerror}") from error
        except JsonError as error:
            raise CorpusError(f"{error}; extract the corpus again") from error
        names = description.modules
        for name in names:
            if not is_module_name(name):
                raise CorpusError(
                    f"{path}: {name!r} is not a module name: expected a path inside the corpus, "
                    "without '..'; extract the corpus again"
                )
        repeated = sorted(name for name, count in Counter(names).items() if count > 1)
        if repeated:
            raise CorpusError(f"{path}: module {repeated[0]} is listed twice")
        thinlto = description.has_thinlto
        command = None
        if description.global_command_override is not None:
            command = _common_command(description.global_command_override, path, thinlto)
        modules = (_load_module(directory, name, command, thinlto) for name in sorted(names))
        return cls(directory, tuple(modules))

    def subset(self, names: Iterable[str]) -> Self:
        """Returns the corpus of these modules only. Raises CorpusError for an unknown name."""
        by_name = {module.name: module for module in self.modules}
        wanted = sorted(set(names))
        unknown = [name for name in wanted if name not in by_name]
        if unknown:
            raise CorpusError(f"{self.directory}: no module named {', '.join(unknown)}")
        return type(self)(self.directory, tuple(by_name[name] for name in wanted))


def is_module_name(name: str) -> bool:
    """Whether `name` is a normalised path that stays inside a folder.

    It must not look like an option or a response file ("@file"), as the folder may be the current
    one.
    """
    parts = name.split("/")
    return (
        not {"", ".", ".."} & set(parts)
        and name.isprintable()
        and not name.startswith(("-", "@"))
        and len(max(parts, key=len).encode()) < _LONGEST_NAME
    )


def _common_command(override: tuple[str, ...], path: Path, thinlto: bool) -> tuple[str, ...]:
    """Checks the command for all modules. Raises CorpusError at a forbidden option."""
    if override == (_UNSPECIFIED,):
        raise CorpusError(
            f"{path}: global_command_override is not filled in, as LLVM's extract_ir leaves it; "
            'write the options of the link there, for example ["-c", "-O2"]'
        )
    return _allowed(override, path, thinlto)


def _allowed(words: Sequence[str], path: Path, thinlto: bool) -> tuple[str, ...]:
    """Returns the options of a command that concern the code, without a thin link's index.

    Args:
      words: "-cc1" and its arguments, or options of clang's driver.

    Raises:
      CorpusError: an option is not allowed, or names an index in a corpus without ThinLTO.
    """
    indices = [word for word in words if word.startswith(_INDEX_OPTION)]
    if indices and not thinlto:
        raise CorpusError(
            f"{path}: {indices[0]} is of a ThinLTO build, but {DESCRIPTION} does not set "
            "has_thinlto; extract the corpus again"
        )
    rest = [word for word in words if word not in indices]
    try:
        if rest[:1] == ["-cc1"]:
            return ("-cc1", *code_arguments(rest[1:]))
        return ("-c", *driver_arguments(rest))
    except OptionError as error:
        raise CorpusError(
            f"{path}: {error}; take it out, or extract the corpus again from a build without it"
        ) from error


def _load_module(
    directory: Path, name: str, override: tuple[str, ...] | None, thinlto: bool
) -> Module:
    """Loads the module `name`; `override` is the command for all modules, if there is one."""
    bitcode = directory / f"{name}.bc"
    command = directory / f"{name}.cmd"
    index = directory / f"{name}.thinlto.bc" if thinlto else None
    try:
        magic = _magic(bitcode)
        # The index is empty for a module without imports and exports.
        index_magic = BITCODE_MAGIC if index is None else _magic(index) or BITCODE_MAGIC
        text = b"" if override is not None else read_input(command)
        words = text.decode("utf-8").rstrip("\0").split("\0")
    except OSError as error:
        raise CorpusError(
            f"{error.filename}: {error.strerror}; {DESCRIPTION} lists module {name}: "
            "extract the corpus again"
        ) from error
    except UnicodeDecodeError as error:
        raise CorpusError(f"{command}: not UTF-8 ({error}); extract the corpus again") from error
    if magic != BITCODE_MAGIC:
        raise CorpusError(f"{bitcode}: not LLVM bitcode; extract the corpus again")
    if index_magic != BITCODE_MAGIC:
        raise CorpusError(f"{index}: no index of a thin link; extract the corpus again")
    if override is None:
        if words[:1] != ["-cc1"]:
            raise CorpusError(
                f"{command}: expected arguments that begin with -cc1, separated by NUL"
            )
        override = _allowed(words, command, thinlto)
    return Module(name, bitcode, override, index)


def _magic(path: Path) -> bytes:
    with open_input(path) as stream:
        return stream.read(len(BITCODE_MAGIC))


def write_description(directory: Path, names: Iterable[str], *, thinlto: bool = False) -> None:
    """Writes `corpus_description.json`. Called last, so that an unfinished corpus does not load."""
    write_json(directory / DESCRIPTION, {"has_thinlto": thinlto, "modules": sorted(names)})


def summary(corpus: Corpus) -> dict[str, Any]:
    """Summarises a corpus as JSON values: sizes, and modules by program and level."""
    modules = corpus.modules
    return {
        "folder": str(corpus.directory),
        "modules": len(modules),
        "bytes": sum(path.stat().st_size for module in modules for path in module.inputs),
        "programs": dict(Counter(module.program for module in modules)),
        "levels": dict(
            Counter(
                next((word for word in reversed(module.command) if word.startswith("-O")), "-O0")
                for module in modules
            )
        ),
        "passes_run": sum("-disable-llvm-passes" not in module.command for module in modules),
        "thinlto": sum(module.thinlto_index is not None for module in modules),
    }


def describe(summary: Mapping[str, Any]) -> str:
    """Formats the summary for `cop corpus show`: sizes, programs and commands, a line each."""

    def parts(counts: Mapping[str, int]) -> str:
        return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"

    return (
        f"modules    {summary['modules']}, {summary['bytes']:,} bytes\n"
        f"programs   {parts(summary['programs'])}\n"
        f"levels     {parts(summary['levels'])}\n"
        f"passes     run on {summary['passes_run']} modules; the others are optimised already\n"
        f"ThinLTO    {summary['thinlto']} modules with the index of a thin link\n"
    )


def split_names(
    names: Iterable[str], held_out_share: float, seed: int
) -> tuple[list[str], list[str]]:
    """Splits module names into training and held-out ones.

    Stratified by program (the first path component), so that both sides have each program with
    several modules.

    Args:
      held_out_share: share in (0, 1) of each program's modules; at least one module of two.
      seed: seed of the shuffle.
    """
    programs: dict[str, list[str]] = {}
    for name in sorted(names):
        programs.setdefault(name.split("/")[0], []).append(name)
    training: list[str] = []
    held_out: list[str] = []
    for program, members in programs.items():
        random.Random(derive_seed(seed, "split", program)).shuffle(members)
        count = min(max(round(len(members) * held_out_share), 1), len(members) - 1)
        held_out += members[:count]
        training += members[count:]
    return sorted(training), sorted(held_out)
