# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A corpus: IR modules and the command lines that compile them.

The layout on disk is the one of LLVM's `mlgo-utils` (llvm/utils/mlgo-utils): a
`corpus_description.json` that lists module names, and for each module `NAME.bc` (bitcode) and
`NAME.cmd` (arguments of `clang -cc1`, separated by NUL).
"""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from compiler_opt_perf.execution.files import write_json
from compiler_opt_perf.execution.json_text import JsonError, parse_json
from compiler_opt_perf.execution.seeds import derive_seed

# A corpus is data from elsewhere, which compiling must not let out of its folder. Options of `-cc1`
# that run code of others are refused, with those of -mllvm that write files ...
_REFUSED = {"-load", "-add-plugin", "-plugin"}
_REFUSED_PREFIXES = (
    *("-load=", "--load", "-fplugin", "-fpass-plugin=", "-plugin-arg", "-fthinlto-index="),
    *("-pass-remarks-output", "-info-output-file", "-dot-cfg", "-cfg-dot"),
)
# ... and those that write other files than the object file are left out. Those of dependencies are
# an error without the file.
_WRITES_VALUE = {
    *("-o", "-opt-record-file", "-dependency-file", "-MT", "-MQ", "-header-include-file"),
    *("-serialize-diagnostic-file", "-diagnostic-log-file", "-split-dwarf-output"),
    *("-dependency-dot", "-module-dependency-dir", "-dwarf-debug-flags"),
}
_WRITES = {"-MP", "-MG", "-MV", "-sys-header-deps"}
_WRITES_PREFIXES = (
    *("-stats-file=", "-ftime-trace", "-coverage-notes-file=", "-coverage-data-file="),
    *("-fopt-record-file=", "-print-stats"),
)
_LONGEST_NAME = 240

DESCRIPTION = "corpus_description.json"
BITCODE_MAGIC = b"BC\xc0\xde"


class CorpusError(Exception):
    """A corpus that cannot be read, or that has not what was asked of it."""


@dataclass(frozen=True)
class Module:
    """One module.

    Attributes:
      name: a relative path without suffix, for example "zstd/lib/common/zstd_common".
      bitcode: the IR file.
      command: `-cc1` arguments without input, output and input language.
    """

    name: str
    bitcode: Path
    command: tuple[str, ...]

    def compile_command(self, clang: Path, output: Path, extra: Iterable[str] = ()) -> list[str]:
        """The command that compiles this module to the object file `output`."""
        return [
            str(clang),
            *self.command,
            *extra,
            "-o",
            str(output),
            "-x",
            "ir",
            str(self.bitcode),
        ]


@dataclass(frozen=True)
class Corpus:
    """A set of modules, ordered by name."""

    directory: Path
    modules: tuple[Module, ...]

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Reads the corpus in `directory`.

        Raises:
          CorpusError: names the file that is missing or malformed.
        """
        path = directory / DESCRIPTION
        try:
            description = parse_json(path.read_bytes())
        except FileNotFoundError:
            raise CorpusError(
                f"{path}: not found; make a corpus with `cop corpus extract --output={directory}`"
            ) from None
        except OSError as error:
            raise CorpusError(f"{path}: {error.strerror}") from error
        except JsonError as error:
            raise CorpusError(
                f"{path}{error.place}: not JSON: {error}; extract the corpus again"
            ) from error
        names = description.get("modules") if isinstance(description, dict) else None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise CorpusError(f'{path}: expected {{"modules": [names]}}; extract the corpus again')
        for name in names:
            if not is_module_name(name):
                raise CorpusError(
                    f"{path}: {name!r} is no name of a module: expected a path inside the corpus, "
                    "without '..'; extract the corpus again"
                )
        repeated = sorted(name for name, count in Counter(names).items() if count > 1)
        if repeated:
            raise CorpusError(f"{path}: module {repeated[0]} is there twice")
        if description.get("has_thinlto"):
            raise CorpusError(
                f"{path}: is of a ThinLTO build (has_thinlto); its modules would be compiled "
                "without what the thin link imported. Extract it from objects of a build without"
            )
        override = description.get("global_command_override")
        if override is not None and not (
            isinstance(override, list) and all(isinstance(word, str) for word in override)
        ):
            raise CorpusError(f"{path}: global_command_override: expected a list of strings")
        if override is not None and override[:1] != ["-cc1"]:
            raise CorpusError(
                f"{path}: global_command_override: expected arguments that begin with -cc1; LLVM's "
                "extract_ir leaves them to be filled in"
            )
        command = None if override is None else _confined(override, path)
        modules = (_load_module(directory, name, command) for name in sorted(names))
        return cls(directory, tuple(modules))

    def subset(self, names: Iterable[str]) -> Self:
        """The corpus of these modules only. Raises CorpusError for an unknown name."""
        by_name = {module.name: module for module in self.modules}
        wanted = sorted(set(names))
        unknown = [name for name in wanted if name not in by_name]
        if unknown:
            raise CorpusError(f"{self.directory}: no module named {', '.join(unknown)}")
        return type(self)(self.directory, tuple(by_name[name] for name in wanted))


def is_module_name(name: str) -> bool:
    """Whether `name` is a path that stays inside a folder, in its only spelling."""
    parts = name.split("/")
    return (
        not {"", ".", ".."} & set(parts)
        and name.isprintable()
        and len(max(parts, key=len).encode()) < _LONGEST_NAME
    )


def without_side_outputs(words: Iterable[str]) -> list[str]:
    """The arguments of `clang -cc1` without those that name files to write."""
    kept = []
    rest = iter(words)
    for word in rest:
        if word in _WRITES_VALUE:
            next(rest, None)
        elif word not in _WRITES and not word.startswith(_WRITES_PREFIXES):
            kept.append(word)
    return kept


def _confined(words: Sequence[str], path: Path) -> tuple[str, ...]:
    """A command that writes its output alone. Raises CorpusError when it would load code."""
    for word in words:
        if word in _REFUSED or word.startswith(_REFUSED_PREFIXES):
            raise CorpusError(
                f"{path}: {word} loads code or writes a file, which the command of a module must "
                "not; take it out, or extract the corpus again"
            )
    return tuple(without_side_outputs(words))


def _load_module(directory: Path, name: str, override: tuple[str, ...] | None) -> Module:
    """The module `name`; its command is `override` where the corpus has one for all."""
    bitcode = directory / f"{name}.bc"
    command = directory / f"{name}.cmd"
    try:
        with open(bitcode, "rb") as stream:
            magic = stream.read(len(BITCODE_MAGIC))
        if override is not None:
            words = list(override)
        else:
            words = command.read_bytes().decode("utf-8").rstrip("\0").split("\0")
    except OSError as error:
        raise CorpusError(
            f"{error.filename}: {error.strerror}; {DESCRIPTION} lists module {name}: "
            "extract the corpus again"
        ) from error
    except UnicodeDecodeError as error:
        raise CorpusError(f"{command}: not UTF-8 ({error}); extract the corpus again") from error
    if magic != BITCODE_MAGIC:
        raise CorpusError(f"{bitcode}: not LLVM bitcode; extract the corpus again")
    if words[:1] != ["-cc1"]:
        raise CorpusError(f"{command}: expected arguments that begin with -cc1, separated by NUL")
    return Module(name, bitcode, _confined(words, command))


def write_description(directory: Path, names: Iterable[str]) -> None:
    """Writes `corpus_description.json` last of all, so that an unfinished corpus does not load."""
    write_json(directory / DESCRIPTION, {"has_thinlto": False, "modules": sorted(names)})


def split_names(
    names: Iterable[str], held_out_share: float, seed: int
) -> tuple[list[str], list[str]]:
    """Splits module names into training and held-out ones.

    Stratified by program (the first path component), so that each side sees each program.

    Args:
      held_out_share: share in (0, 1) of every program's modules, at least one where it has two.
      seed: of the shuffle.
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
