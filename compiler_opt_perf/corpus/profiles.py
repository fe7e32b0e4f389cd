# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The PMU profiles of the programs of a corpus."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from compiler_opt_perf.corpus.corpus import Corpus, CorpusError
from compiler_opt_perf.run.content import Manifest
from compiler_opt_perf.run.files import sha256

#: Ablations of a policy (train.ablation).
PMU, SHUFFLED_PMU = "pmu", "shuffled-pmu"
_MERGE = "`cop profile merge` makes one profile of several runs of one program"


def by_program(
    flag: str, words: Sequence[str], remedy: str = ""
) -> tuple[Path | None, dict[str, Path]]:
    """Parses values FILE or PROGRAM=FILE; returns the file for all programs and files by program.

    Args:
      flag: command-line flag with these values, for messages.
      words: the flag's values.
      remedy: advice for several files of one program, for messages.

    Raises:
      CorpusError: the words are of both kinds, or several are for one program.
    """
    programs: dict[str, Path] = {}
    common: list[Path] = []
    for word in words:
        program, equals, path = word.partition("=")
        if not equals or Path(word).exists():
            common.append(Path(word))
        elif not program or not path or program in programs:
            raise CorpusError(f"{flag}={word}: expected PROGRAM=FILE, each program once")
        else:
            programs[program] = Path(path)
    if len(common) > 1 or (common and programs):
        raise CorpusError(
            f"{flag}={common[-1]}: expected one FILE for all programs, or PROGRAM=FILE for each"
            + (f"; {remedy}" if remedy else "")
        )
    return common[0] if common else None, programs


@dataclass(frozen=True)
class Profiles:
    """The profiles that the modules of each program are compiled with.

    Attributes:
      common: manifest for all programs without their own; None for none.
      programs: manifests by program.
      ablation: "pmu": policies do not read PMU features. "shuffled-pmu": they read features of
        profiles with counts exchanged between places. None: no ablation.
    """

    common: Manifest | None = None
    programs: Mapping[str, Manifest] = dataclasses.field(default_factory=dict)
    ablation: str | None = None

    @classmethod
    def parse(cls, words: Sequence[str]) -> Self:
        """Parses values of --profile: FILE for all programs, or PROGRAM=FILE.

        Raises:
          CorpusError: the words are of both kinds, or several are for one program.
        """
        return cls(*by_program("--profile", words, _MERGE))

    def absolute(self) -> Self:
        """Returns the same profiles with absolute paths."""
        return dataclasses.replace(
            self,
            common=None if self.common is None else self.common.absolute(),
            programs={program: path.absolute() for program, path in self.programs.items()},
        )

    @property
    def are_read(self) -> bool:
        """Whether policies read PMU features: there are profiles, and PMU is not ablated."""
        return bool(self.paths) and self.ablation != PMU

    @property
    def paths(self) -> tuple[Path, ...]:
        """All manifests."""
        return (*([] if self.common is None else [self.common]), *self.programs.values())

    def of(self, program: str) -> Path | None:
        """Returns the manifest of a program; None if it has none."""
        return self.programs.get(program, self.common)

    def checksum_of(self, program: str) -> str | None:
        """Returns the SHA-256 of a program's manifest, which holds the other files' checksums."""
        path = self.of(program)
        return None if path is None else sha256(path)

    def require_programs(self, corpus: Corpus) -> None:
        """Raises CorpusError for a profile of a program that is not in the corpus."""
        known = programs_of(corpus)
        for program, path in self.programs.items():
            if program not in known:
                raise CorpusError(
                    f"--profile={program}={path}: {corpus.directory} has no modules of {program}; "
                    f"its programs are {', '.join(known)}"
                )


def programs_of(corpus: Corpus) -> list[str]:
    """Returns the programs of a corpus in the order of their modules."""
    return list(dict.fromkeys(module.program for module in corpus.modules))
