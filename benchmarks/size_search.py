# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A search of single inlining decisions for size in each kind of build, judged by linked text.

Of each program, decisions of some modules are taken the other way, one at a time, in all builds
that users for size have; with ThinLTO those after the thin link. What saves is taken together.
"""

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from absl import logging

from benchmarks.changes import mean_change, percent_change
from benchmarks.common import TIMEOUT_S, BenchmarkError
from benchmarks.inline_flips import (
    PROBLEM,
    Flip,
    Site,
    by_unit,
    deciding,
    index_only,
    indexed,
    site_name,
    together,
)
from benchmarks.programs.forty import in_turn, side_by_side
from benchmarks.results import Cell, Table
from benchmarks.size_builds import COLUMNS, MODEL, Builds, language
from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.files import sha256, write_text
from compiler_opt_perf.run.memo import memo, note, recall
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.seeds import derive_seed
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train.log import read_log
from compiler_opt_perf.trial.ways import PLAIN, Way

#: No training saw them, and they have modules with few decisions.
PROGRAMS = (
    *("cmark", "libyaml", "lmdb", "lua", "lz4", "zlib"),
    *("box2d", "double-conversion", "exiv2", "leveldb", "ninja", "re2", "taglib", "tinyxml"),
)
SEED = 1
#: Modules of a program, drawn by the seed from those with so many decisions at -Oz.
MODULES, LEAST, MOST = 3, 10, 400
# A line of LLD's map: the size of a section, the object file that it is from, and its name.
_SECTION = re.compile(r"\s*[0-9a-f]+\s+[0-9a-f]+\s+([0-9a-f]+)\s+\d+\s+(.+):\((\.text\S*)\)")


class Found(msgspec.Struct, frozen=True):
    """What a search found in the chosen modules of a program, in one kind of build.

    Attributes:
      decisions: that the compiler takes there.
      before: linked bytes of their functions.
      text: of the whole program.
      flips: all decisions taken the other way, with the bytes by which the program changes.
      taken: those that save together.
      after: text of the whole program with these.
      policy: the same with the shipped policy in the chosen modules.
      carried: the same with what was found without the outliner; None for builds without it.
    """

    decisions: int
    before: int
    text: int
    flips: list[Flip]
    taken: list[Flip]
    after: int
    policy: int
    carried: int | None = None

    def change(self, text: int) -> float:
        """The change of the chosen modules to a text of the whole program, in percent."""
        return percent_change(self.before + text - self.text, self.before)

    @property
    def alone(self) -> int:
        """Bytes that decisions save one by one."""
        return -sum(one.change for one in self.flips if one.change < 0)


@dataclass(frozen=True)
class Column:
    """A program in one kind of build, of which modules are compiled again with other decisions.

    Attributes:
      folder: for what is made here.
      way: without a policy.
      policy: the same with one.
    """

    builds: Builds
    folder: Path
    way: Way
    policy: Way

    def _config(self, way: Way) -> Path:
        path = self.folder / f"{way.name}.cfg"
        write_text(path, self.builds.configuration(way))
        return path

    @cached_property
    def _own_config(self) -> Path:
        return self._config(self.way)

    @cached_property
    def _own_words(self) -> list[list[str]]:
        return self._words(self._own_config)

    def _words(self, config: Path) -> list[list[str]]:
        """By module, the words of its compilation to an object, without the output."""
        if not self.way.thinlto:
            return self.builds.compile_words(config)
        clang = str(self.builds.toolchain.clang)
        words = [clang, f"--config={config}", "-Oz", "-fdata-sections"]
        return [[*words, *indexed(str(one))] for one in self._bitcode]

    @cached_property
    def _bitcode(self) -> list[Path]:
        """By module, what the thin link takes; an index is beside each."""
        found = self.builds.objects(self.way)
        words = self.builds.link_words(self._own_config, found)
        run_command([*words, *index_only(self.folder)], timeout_s=TIMEOUT_S)
        return found

    def compile(
        self, module: int, target: Path, given: Mapping[str, int] | None = None
    ) -> Path | None:
        """Compiles a module with decisions given; the log of all, None if nothing is decided."""
        log = target.with_suffix(".log")
        log.unlink(missing_ok=True)
        decisions = deciding(self.builds.toolchain, given or {}, log)
        self._run([*self._own_words[module], *decisions], target)
        return log if log.exists() else None

    def _run(self, words: Sequence[str], target: Path) -> None:
        run_command([*words, "-o", target], cwd=self.builds.tree, timeout_s=TIMEOUT_S)

    @cached_property
    def objects(self) -> list[Path]:
        """By module, what the compiler's own decisions make."""
        if not self.way.thinlto:
            return self.builds.objects(self.way)
        found = [self.folder / f"{number}.o" for number in range(len(self._bitcode))]
        for words, target in zip(self._own_words, found, strict=True):
            self._run(words, target)
        return found

    def link(self, changed: Mapping[int, Path], program: Path, *flags: str) -> int:
        """Links the objects, some of them changed. Returns bytes of text."""
        objects = [changed.get(number, one) for number, one in enumerate(self.objects)]
        words = self.builds.link_words(self._own_config, objects, *flags)
        run_command([*words, "-o", program], timeout_s=TIMEOUT_S)
        return text_bytes(program)

    def count(self, flips: Sequence[Flip]) -> int:
        """Bytes of text with some decisions taken otherwise."""
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            changed = {}
            for module, given in by_unit(flips).items():
                changed[module] = Path(scratch) / f"{module}.o"
                self.compile(module, changed[module], given)
            return self.link(changed, Path(scratch) / "program")

    def by_policy(self, modules: Sequence[int]) -> int:
        """Bytes of text with the shipped policy in some modules."""
        words = self._words(self._config(self.policy))
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            changed = {module: Path(scratch) / f"{module}.o" for module in modules}
            for module, target in changed.items():
                self._run(words[module], target)
            return self.link(changed, Path(scratch) / "program")

    def bytes_of(self, modules: Sequence[int]) -> int:
        """Linked bytes of the functions of some modules."""
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            path = Path(scratch) / "map"
            self.link({}, Path(scratch) / "program", f"-Wl,-Map={path}")
            return linked_bytes(path.read_text(), {str(self.objects[one]) for one in modules})

    def decisions(self, module: int) -> dict[Site, int]:
        """The compiler's own decisions in a module."""
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            path = self.compile(module, Path(scratch) / "module.o")
            if path is None:
                return {}
            log = read_log(path)
        own = log.observations[PROBLEM.decision].reshape(-1).tolist()
        return {Site(module, key): one for key, one in zip(log.keys, own, strict=True)}

    def search(self, modules: Sequence[int], carried: Sequence[Flip] | None) -> Found:
        """Takes each decision of some modules the other way; goes on where it was interrupted.

        Args:
          carried: what was found without the outliner.

        Raises:
          BenchmarkError: the build in steps is another one than that of the compiler.
          CommandError: a module does not compile or link.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        built = self.builds.size_of(self.way)
        text = self.count([])
        if text != built.text:
            message = f"{self.builds.name}, {self.way.name}: {text} bytes of text in steps"
            raise BenchmarkError(f"{message}, {built.text} by the compiler")
        inputs: dict[str, Any] = {
            "built": built.digest,
            "tools": [sha256(self.builds.toolchain.clang), sha256(self.builds.toolchain.ld_lld)],
            "modules": list(modules),
        }
        notes = self.folder / "flips.json"
        known = recall(notes, inputs, dict[str, int]) or {}
        flips = []
        for module in modules:
            for site, decision in self.decisions(module).items():
                name = site_name(site)
                if name not in known:
                    known[name] = self.count([Flip(site, 1 - decision, 0)]) - text
                    note(notes, inputs, dict[str, int], known)
                flips.append(Flip(site, 1 - decision, known[name]))
        good = sorted((one for one in flips if one.change < 0), key=lambda one: one.change)

        def searched() -> Found:
            taken, after = together(good, text, self.count)
            return Found(
                len(flips),
                self.bytes_of(modules),
                text,
                flips,
                taken,
                after,
                self.by_policy(modules),
                None if carried is None else self.count(carried),
            )

        given = {
            **inputs,
            "policy": sha256(MODEL / "model.json"),
            "carried": [site_name(one.site) for one in carried or ()],
        }
        return memo(self.folder / "found.json", given, Found, searched)


def linked_bytes(text: str, objects: set[str]) -> int:
    """Bytes of functions that a link has from some object files, by LLD's map of the link."""
    found = filter(None, map(_SECTION.match, text.splitlines()))
    return sum(
        int(size, 16) for size, path, _ in (one.groups() for one in found) if path in objects
    )


def study(
    programs: Sequence[str], folder: Path, toolchain: Toolchain, largest: int = MOST
) -> list[Table]:
    """Searches each program in all kinds of builds; what is done is not done again.

    A program that does not build is logged and left out.

    Args:
      largest: decisions of a module that is searched, at most.
    """
    builds = {name: Builds(name, folder / name, toolchain) for name in programs}
    built = in_turn(_build, builds, "building programs")
    with Pool() as pool:
        tasks = {name: builds[name] for name in built}
        found = side_by_side(pool, partial(_searched, largest=largest), tasks, "searching programs")
    return tables({name: own for name, own in found.items() if own}) if found else []


def _build(builds: Builds) -> None:
    """Builds a program on all cores, so that a worker of the search finds it done."""
    for way, _ in COLUMNS.values():
        builds.size_of(way)


def _searched(builds: Builds, *, largest: int) -> dict[str, Found]:
    """A program by column; nothing if it has no module of few decisions."""
    name = builds.name
    columns = {
        title: Column(builds, builds.folder / "search" / way.name, way, policy)
        for title, (way, policy) in COLUMNS.items()
    }
    plain = columns["-Oz"]
    plain.folder.mkdir(parents=True, exist_ok=True)
    built = builds.size_of(PLAIN)
    counted = memo(
        plain.folder / "decisions.json",
        built.digest,
        list[int],
        lambda: [len(plain.decisions(one)) for one in range(len(plain.objects))],
    )
    modules = chosen_modules(name, counted, largest)
    logging.info("%s: %d modules", name, len(modules))
    found: dict[str, Found] = {}
    taken: Sequence[Flip] = ()
    for title, column in columns.items() if modules else ():
        # The column before is the same without the outliner.
        one = column.search(modules, taken if column.way.outliner else None)
        found[title], taken = one, one.taken
        logging.info("%s, %s: %+.2f%%", name, title, one.change(one.after))
    return found


def chosen_modules(name: str, decisions: Sequence[int], largest: int = MOST) -> list[int]:
    """The modules of a program that are searched, by their numbers of decisions."""
    few = [number for number, count in enumerate(decisions) if LEAST <= count <= largest]
    random = np.random.default_rng(derive_seed(SEED, name))
    return sorted(int(one) for one in random.permutation(few)[:MODULES])


def tables(found: Mapping[str, Mapping[str, Found]]) -> list[Table]:
    """What the search saves, and what the policy keeps of it, by program and kind of build.

    Args:
      found: by program and by name of the `COLUMNS`.
    """
    return [_programs(found), _kept(found)]


def _programs(found: Mapping[str, Mapping[str, Found]]) -> Table:
    rows: list[list[Cell]] = []
    for name, own in found.items():
        row: list[Cell] = [name, language(name), own["-Oz"].decisions, own["-Oz"].before]
        for one in own.values():
            row += [one.change(one.after), one.change(one.policy)]
        rows.append(row)
    head = {"program": "text", "language": "text", "decisions": "integer", "text": "bytes"}
    columns = [f"{title}, {by}" for title in COLUMNS for by in ("search", "policy")]
    return Table.of(
        "programs",
        "Linked text of the searched modules of each program: what is saved by decisions that a "
        "search finds, and by the shipped policy, in each kind of build.",
        {**head, **dict.fromkeys(columns, "percent:+2")},
        rows,
    )


def _kept(found: Mapping[str, Mapping[str, Found]]) -> Table:
    rows: list[list[Cell]] = []
    for spoken in ("C", "C++"):
        programs = [own for name, own in found.items() if language(name) == spoken]
        for title in COLUMNS if programs else ():
            own = [one[title] for one in programs]
            carried = [one.text - one.carried for one in own if one.carried is not None]
            saved = sum(one.text - one.after for one in own)
            rows.append(
                [
                    f"{spoken}, {title}",
                    sum(one.decisions for one in own),
                    sum(change.change < 0 for one in own for change in one.flips),
                    sum(one.before for one in own),
                    sum(one.alone for one in own),
                    saved,
                    sum(one.text - one.policy for one in own),
                    sum(carried) if carried else None,
                    mean_change([one.change(one.after) for one in own]),
                    mean_change([one.change(one.policy) for one in own]),
                ]
            )
    return Table.of(
        "kept",
        "Sums over the programs: decisions, those that save, and bytes that are saved, one by one, "
        "together, by the policy, and by what is found without the outliner; geometric means of "
        "the programs' changes.",
        {
            "in": "text",
            "decisions": "integer",
            "save": "integer",
            "text": "bytes",
            "saved one by one": "bytes",
            "saved together": "bytes",
            "by the policy": "bytes",
            "as without the outliner": "bytes",
            "search": "percent:+2",
            "policy": "percent:+2",
        },
        rows,
    )
