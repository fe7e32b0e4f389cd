# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A corpus: IR modules and the command lines that compile them.

The layout on disk is the one of LLVM's `mlgo-utils` (llvm/utils/mlgo-utils): a
`corpus_description.json` that lists module names, and for each module `NAME.bc` (bitcode) and
`NAME.cmd` (arguments of `clang -cc1`, separated by NUL).
"""

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from compiler_opt_perf.execution.files import write_json
from compiler_opt_perf.execution.seeds import derive_seed

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
            description = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise CorpusError(
                f"{path}: not found; make a corpus with `cop corpus extract --output={directory}`"
            ) from None
        except OSError as error:
            raise CorpusError(f"{path}: {error.strerror}") from error
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise CorpusError(f"{path}: not JSON: {error}; extract the corpus again") from error
        names = description.get("modules") if isinstance(description, dict) else None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise CorpusError(f'{path}: expected {{"modules": [names]}}; extract the corpus again')
        return cls(directory, tuple(_load_module(directory, name) for name in sorted(names)))

    def subset(self, names: Iterable[str]) -> Self:
        """The corpus of these modules only. Raises CorpusError for an unknown name."""
        by_name = {module.name: module for module in self.modules}
        wanted = sorted(set(names))
        unknown = [name for name in wanted if name not in by_name]
        if unknown:
            raise CorpusError(f"{self.directory}: no module named {', '.join(unknown)}")
        return type(self)(self.directory, tuple(by_name[name] for name in wanted))


def _load_module(directory: Path, name: str) -> Module:
    bitcode = directory / f"{name}.bc"
    command = directory / f"{name}.cmd"
    try:
        with open(bitcode, "rb") as stream:
            magic = stream.read(len(BITCODE_MAGIC))
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
    return Module(name, bitcode, tuple(words))


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
