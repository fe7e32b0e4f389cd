# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds programs in the ways that users for size have, and measures them.

All are linked as Android links: by lld, without unused sections, identical functions once. Programs
with a run must compute the same in all builds.
"""

import contextlib
import hashlib
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec
from absl import logging

from benchmarks.changes import mean_change
from benchmarks.common import TIMEOUT_S, BenchmarkError, run_all
from benchmarks.programs.workload import Workload, without_times
from benchmarks.programs.workloads import HELD_OUT
from benchmarks.results import Interval
from benchmarks.timing import LAYOUTS, run_rounds
from compiler_opt_perf.corpus import programs as corpus
from compiler_opt_perf.corpus.program_table import PROGRAMS as TABLE
from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.files import sha256, write_text
from compiler_opt_perf.run.memo import memo
from compiler_opt_perf.run.rounds import layout_flags
from compiler_opt_perf.run.timing import Meter, find_meter
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT
from compiler_opt_perf.trial.ways import PLAIN, SIZE, SIZE_THINLTO, Way

MODEL = REPO_ROOT / "models" / "inline-size"
#: Flags of a link that folds nothing.
UNFOLDED = ("-Wl,--icf=none",)
#: All ways; PLAIN is the first.
WAYS = (*SIZE, *SIZE_THINLTO)
#: By kind of build, the way without a policy and the same with it.
COLUMNS = {
    "-Oz": SIZE[:2],
    "with outliner": SIZE[2:],
    "ThinLTO": SIZE_THINLTO[:2],
    "ThinLTO with outliner": SIZE_THINLTO[2:],
}
_CONFIG = "way.cfg"
#: What `purpose` calls programs that the training never saw.
UNSEEN = ("test", "looked at once")
_FLAGS = ("-Oz", "-ffunction-sections", "-fdata-sections", "-g0", "-w")
_LINK = ("-Oz", "-Wl,--gc-sections,--icf=safe,--strip-all,--build-id=none")
# Functions of a library that nobody calls are there for its users.
_LIBRARY_LINK = ("-Wl,--export-dynamic",)


class Sizes(msgspec.Struct, frozen=True):
    """A linked program: bytes of its machine code and of its stripped file, and its SHA-256."""

    text: int
    file: int
    digest: str


@dataclass(frozen=True)
class Link:
    """A link of the objects of one of the `WAYS`, by the flags of any other, and more flags."""

    objects: Way
    config: Way
    words: tuple[str, ...] = ()


@dataclass
class Builds:
    """One program, in a folder of its own."""

    name: str
    folder: Path
    toolchain: Toolchain
    model: Path = MODEL

    def sizes(self) -> dict[str, Sizes]:
        """By way. Raises BenchmarkError if programs of two ways compute different things."""
        found = {way.name: self.size_of(way) for way in WAYS}
        if self._workload is not None:
            plain = self._computed(PLAIN, found[PLAIN.name], self._workload)
            for way in WAYS[1:]:
                if self._computed(way, found[way.name], self._workload) != plain:
                    raise BenchmarkError(f"{self.name}: {way.name} computes something else")
        return found

    def linked(self, name: str, link: Link, built: Mapping[str, Sizes]) -> Sizes:
        """The sizes of another link of objects that `sizes` made and measured."""
        configuration = self.configuration(link.config)
        inputs = {
            "objects": built[link.objects.name].digest,
            "flags": [configuration, *link.words],
            "tools": self._tools,
            "model": sha256(self.model / "model.json"),
        }
        binary = self._binary(name)

        def make() -> Sizes:
            write_text(binary.with_name(_CONFIG), configuration)
            return self._link(link.objects, link.words, binary)

        return memo(binary.with_name("sizes.json"), inputs, Sizes, make, [binary])

    def executed(self, built: Mapping[str, Sizes], names: Sequence[str]) -> dict[str, int]:
        """By name of a way or link, the instructions of a run; nothing for programs without one."""
        if self._workload is None:
            return {}
        meter = find_meter("instructions", self.folder)
        found = {}
        for name in names:
            # Many builds are the same program.
            note = self.folder / "executed" / f"{built[name].digest}.json"
            count = partial(self._count, self._binary(name), self._workload, meter)
            found[name] = memo(note, self._workload.run_inputs(), int, count)
        return found

    def times(
        self, ways: Sequence[Way], built: Mapping[str, Sizes], rounds: int, processor: int
    ) -> dict[str, Interval]:
        """By way, the change of a run's time from the first one, in percent.

        Args:
          ways: that `size_of` built, of a program with a run that can be repeated.
          built: their sizes.
        """
        workload = self._workload
        assert workload is not None
        binaries = {}
        for number, way in enumerate(ways):
            # Paths of one length: runs have them in their memory.
            names = [f"layout-{number}-{layout}" for layout in range(LAYOUTS)]
            for layout, name in enumerate(names):
                self.linked(name, Link(way, way, tuple(layout_flags(layout))), built)
            binaries[way.name] = list(map(self._binary, names))
        folder = self.folder / "run"
        corpus.write_input(TABLE[self.name], workload.tree, folder / "input")
        path = self.folder / "rounds.json"
        inputs = workload.run_inputs()
        done = run_rounds(
            path, binaries, workload.arguments, inputs, rounds, processor, label=self.name
        )
        return done.changes({way.name: (way.name, ways[0].name) for way in ways[1:]})

    @cached_property
    def _workload(self) -> Workload | None:
        return HELD_OUT[self.name](self.folder / "run") if self.name in HELD_OUT else None

    def size_of(self, way: Way) -> Sizes:
        """Builds it in one of the `WAYS`."""
        configuration = self.configuration(way)
        words = self._compile_flags
        program = TABLE[self.name]
        inputs = {
            **corpus.source_checksums(program, corpus.program_tree(program)),
            "flags": [configuration, *words],
            "link": [*_LINK, *_LIBRARY_LINK],
            "tools": self._tools,
            "model": sha256(self.model / "model.json"),
        }
        binary = self._binary(way.name)

        def make() -> Sizes:
            write_text(binary.with_name(_CONFIG), configuration)
            self._compile(way, words)
            return self._link(way, (), binary)

        return memo(binary.with_name("sizes.json"), inputs, Sizes, make, [binary])

    @property
    def _compile_flags(self) -> tuple[str, ...]:
        return (*_FLAGS, *(self._workload.flags if self._workload is not None else ()))

    def configuration(self, way: Way) -> str:
        """The text of the configuration file of one of the `WAYS`."""
        return way.flags(self.toolchain, {"inline-size": self.model}, None, None).configuration()

    def _compile(self, way: Way, flags: Sequence[str]) -> None:
        """Compiles with the configuration file that is in the way's folder."""
        config = self._binary(way.name).with_name(_CONFIG)
        commands = self._commands(way, (_config_word(config), *flags))
        for command in commands:
            Path(command["arguments"][-1]).parent.mkdir(parents=True, exist_ok=True)
        label = f"{self.name}: {way.name}"
        run_all([command["arguments"] for command in commands], self.tree, label=label)

    def _link(self, objects: Way, flags: Sequence[str], binary: Path) -> Sizes:
        """Links with the configuration file that is beside the program."""
        config = binary.with_name(_CONFIG)
        words = self.link_words(config, self.objects(objects), *flags)
        run_command([*words, "-o", binary], timeout_s=TIMEOUT_S)
        return Sizes(text_bytes(binary), binary.stat().st_size, sha256(binary))

    @property
    def tree(self) -> Path:
        """Where compilations run."""
        return corpus.program_tree(TABLE[self.name])

    def objects(self, way: Way) -> list[Path]:
        """By unit, what `size_of` compiles: object files, or bitcode for ThinLTO."""
        return [Path(command["arguments"][-1]) for command in self._commands(way, ())]

    def compile_words(self, config: Path) -> list[list[str]]:
        """By unit, the words of its compilation with a configuration file, without the output."""
        words = (_config_word(config), *self._compile_flags)
        return [command["arguments"][:-2] for command in self._commands(PLAIN, words)]

    def link_words(self, config: Path, objects: Sequence[Path], *flags: str) -> list[str | Path]:
        """The words of a link, without the output; of libraries, what others may call is kept."""
        program = TABLE[self.name]
        words: list[str | Path] = [self.toolchain.clang, _config_word(config), *_LINK, *flags]
        words += [*objects, *corpus.link_flags(program)]
        return [*words, *_LIBRARY_LINK * program.is_library]

    def _commands(self, way: Way, flags: Sequence[str]) -> list[dict[str, Any]]:
        program = TABLE[self.name]
        tree, own = corpus.program_tree(program), self.folder / way.name
        return corpus.compile_commands(program, tree, own, clang=self.toolchain.clang, flags=flags)

    @cached_property
    def _tools(self) -> list[str]:
        return list(map(sha256, (self.toolchain.clang, self.toolchain.ld_lld)))

    def _binary(self, name: str) -> Path:
        return self.folder / name / self.name

    def _computed(self, way: Way, sizes: Sizes, workload: Workload) -> str:
        """A digest of what a run prints and writes."""
        inputs = {"binary": sizes.digest, **workload.run_inputs()}
        run = partial(self._run, self._binary(way.name), workload)
        return memo(self.folder / way.name / "computed.json", inputs, str, run)

    def _run(self, binary: Path, workload: Workload) -> str:
        with self._placed(binary, workload) as (words, written):
            done = subprocess.run(words, capture_output=True, timeout=TIMEOUT_S, check=True)
            digest = hashlib.sha256(without_times(done.stdout))
            for path in written():
                # LMDB's has the process's number.
                if not path.name.endswith("-lock"):
                    digest.update(path.read_bytes())
        return digest.hexdigest()

    def _count(self, binary: Path, workload: Workload, meter: Meter) -> int:
        logging.info("%s: counting the instructions of a run", binary)
        with self._placed(binary, workload) as (words, _):
            return round(meter.measure(words, TIMEOUT_S))

    @contextlib.contextmanager
    def _placed(
        self, binary: Path, workload: Workload
    ) -> Iterator[tuple[list[str], Callable[[], list[Path]]]]:
        """Puts a program to its input; yields its command, and a function for what it wrote."""
        # All in one place: what a program does may depend on the length of its path.
        folder = self.folder / "run"
        program = folder / self.name
        corpus.write_input(TABLE[self.name], workload.tree, folder / "input")
        if workload.output is not None:
            workload.output.unlink(missing_ok=True)
        before = {*folder.iterdir(), program}
        shutil.copy(binary, program)

        def written() -> list[Path]:
            return sorted(set(folder.iterdir()) - before)

        yield [str(program), *workload.arguments], written
        for path in written():
            path.unlink()


def _config_word(config: Path) -> str:
    return f"--config={config.resolve()}"


def unseen_means(changes: Mapping[str, Sequence[float]], kind: str) -> list[float | Interval]:
    """Column by column, the mean of programs in a language that the training never saw.

    Returns:
      Nothing if there is no such program.
    """
    chosen = [own for name, own in changes.items() if counts(name, kind)]
    return [mean_change(column) for column in zip(*chosen, strict=True)]


def counts(name: str, kind: str) -> bool:
    """Whether a program is in a language and was never seen by the policy's training."""
    return purpose(name) in UNSEEN and language(name) == kind


def language(name: str) -> str:
    """A program's: C or C++."""
    return "C" if all(source.endswith(".c") for source in TABLE[name].sources) else "C++"


def purpose(name: str) -> str:
    """What the policy's training used a program for."""
    recipe: dict[str, Any] = tomllib.loads((MODEL / "recipe.toml").read_text())
    for purpose, names in recipe["programs"].items():
        if name in names:
            return {"validation": "choice"}.get(purpose, str(purpose))
    return "looked at once"
