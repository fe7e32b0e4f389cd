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

#: What policies can do without (training.ablation).
PMU, SHUFFLED_PMU = "pmu", "shuffled-pmu"
_MERGE = "`cop profile merge` makes one profile of several runs of one program"


def by_program(
    flag: str, words: Sequence[str], remedy: str = ""
) -> tuple[Path | None, dict[str, Path]]:
    """The file for all programs and the files by program, of words FILE or PROGRAM=FILE.

    Args:
      flag: that the words were given by.
      remedy: what to do with several files of one program.

    Raises:
      CorpusError: both kinds, or several for one program.
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
    """Which profile the modules of a program are compiled with.

    Attributes:
      common: manifest for all programs that have none of their own; None for none.
      programs: manifests by program.
      ablation: "pmu": policies do not read the PMU features; "shuffled-pmu": they read those of
        profiles whose counts were exchanged between places; None: as they are.
    """

    common: Manifest | None = None
    programs: Mapping[str, Manifest] = dataclasses.field(default_factory=dict)
    ablation: str | None = None

    @classmethod
    def parse(cls, words: Sequence[str]) -> Self:
        """From words FILE, for all programs, or PROGRAM=FILE.

        Raises:
          CorpusError: both kinds, or several for one program.
        """
        return cls(*by_program("--profile", words, _MERGE))

    def absolute(self) -> Self:
        """The same, by paths that mean the same in any folder."""
        return dataclasses.replace(
            self,
            common=None if self.common is None else self.common.absolute(),
            programs={program: path.absolute() for program, path in self.programs.items()},
        )

    @property
    def are_read(self) -> bool:
        """Whether policies read PMU features of them: there are some, and they are not ablated."""
        return bool(self.paths) and self.ablation != PMU

    @property
    def paths(self) -> tuple[Path, ...]:
        """All of them."""
        return (*([] if self.common is None else [self.common]), *self.programs.values())

    def of(self, program: str) -> Path | None:
        """The profile of a program, None if it has none."""
        return self.programs.get(program, self.common)

    def checksum_of(self, program: str) -> str | None:
        """The SHA-256 of a program's manifest, which has the checksums of all else."""
        path = self.of(program)
        return None if path is None else sha256(path)

    def require_programs(self, corpus: Corpus) -> None:
        """Refuses a profile of a program that is not in the corpus. Raises CorpusError."""
        known = programs_of(corpus)
        for program, path in self.programs.items():
            if program not in known:
                raise CorpusError(
                    f"--profile={program}={path}: {corpus.directory} has no modules of {program}; "
                    f"its programs are {', '.join(known)}"
                )


def programs_of(corpus: Corpus) -> list[str]:
    """The programs that the modules of a corpus are of, in order."""
    return list(dict.fromkeys(module.program for module in corpus.modules))
