# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program in one kind of build for size, and a search of single inlining decisions in it."""

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.changes import percent_change
from benchmarks.common import TIMEOUT_S, BenchmarkError
from benchmarks.inline_flips import (
    PROBLEM,
    Flip,
    Site,
    by_unit,
    deciding,
    index_only,
    indexed,
    labels_of,
    site_name,
    together,
)
from benchmarks.size_builds import MODEL, Builds
from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.files import sha256, write_text
from compiler_opt_perf.run.memo import memo, note, recall
from compiler_opt_perf.train.label_files import Labels
from compiler_opt_perf.train.log import TrainingLog, read_log
from compiler_opt_perf.trial.ways import Way

# A link of objects made one by one differs by the order of objects, and so by padding: by 24 bytes
# of tinyxml with ThinLTO.
_ALIKE = 1e-3
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

    def alone(self, *, inlining: bool = False) -> int:
        """Bytes that decisions save one by one; of `inlining`, those to inline."""
        saving = [one for one in self.flips if one.change < 0]
        return -sum(one.change for one in saving if one.decision or not inlining)


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

    def linked(self) -> list[int]:
        """By module, linked bytes of its functions."""
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            path = Path(scratch) / "map"
            self.link({}, Path(scratch) / "program", f"-Wl,-Map={path}")
            return linked_bytes(path.read_text(), list(map(str, self.objects)))

    def log(self, module: int) -> TrainingLog | None:
        """The compiler's own decisions in a module; None if there are none."""
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            path = self.compile(module, Path(scratch) / "module.o")
            return None if path is None else read_log(path)

    def decisions(self, module: int) -> dict[Site, int]:
        """The compiler's own decisions in a module."""
        log = self.log(module)
        if log is None:
            return {}
        own = log.observations[PROBLEM.decision].reshape(-1).tolist()
        return {Site(module, key): one for key, one in zip(log.keys, own, strict=True)}

    def labels(self, flips: Sequence[Flip]) -> Labels:
        """Some decisions, at least one, with the bytes that they change, as one module."""
        logs = {unit: log for unit in by_unit(flips) if (log := self.log(unit))}
        text = float(self.builds.size_of(self.way).text)
        return labels_of(self.builds.name, {one.site: one.change for one in flips}, text, logs)

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
        if abs(text - built.text) > _ALIKE * built.text:
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
            linked = self.linked()
            return Found(
                len(flips),
                sum(linked[one] for one in modules),
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


def linked_bytes(text: str, objects: Sequence[str]) -> list[int]:
    """Bytes of functions that a link has from each object file, by LLD's map of the link."""
    found = filter(None, map(_SECTION.match, text.splitlines()))
    total = dict.fromkeys(objects, 0)
    for size, path, _ in (one.groups() for one in found):
        if path in total:
            total[path] += int(size, 16)
    return list(total.values())
