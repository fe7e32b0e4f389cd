# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Text and file sizes of programs in the builds that users for size have, with a policy or not.

The builds are -Oz and -Oz with ThinLTO, each with the machine outliner and without. All are linked
as Android links: by lld, without unused sections, identical functions once. Programs with a run
must compute the same in all builds.
"""

import hashlib
import shutil
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec
from absl import logging

from benchmarks.changes import counted_changes, mean_change
from benchmarks.common import TIMEOUT_S, BenchmarkError, run_all
from benchmarks.programs.workload import Workload, without_times
from benchmarks.programs.workloads import HELD_OUT
from benchmarks.results import Cell, Table
from compiler_opt_perf.corpus import programs as corpus
from compiler_opt_perf.corpus.program_table import PROGRAMS as TABLE
from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.files import sha256, write_text
from compiler_opt_perf.run.memo import memo
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT
from compiler_opt_perf.trial.ways import PLAIN, SIZE, SIZE_THINLTO, Way

#: Those of LLVM take an hour and are written in one style.
PROGRAMS = tuple(name for name in TABLE if not name.startswith("llvm-"))
MODEL = REPO_ROOT / "models" / "inline-size"
WAYS = (*SIZE, *SIZE_THINLTO)
#: By column of the tables, the default and the build by the policy.
COLUMNS = {
    "-Oz": SIZE[:2],
    "with outliner": SIZE[2:],
    "ThinLTO": SIZE_THINLTO[:2],
    "ThinLTO with outliner": SIZE_THINLTO[2:],
}
_FLAGS = ("-Oz", "-ffunction-sections", "-fdata-sections", "-g0", "-w")
_LINK = ("-Oz", "-Wl,--gc-sections,--icf=safe,--strip-all,--build-id=none")
# Functions of a library that nobody calls are there for its users.
_LIBRARY_LINK = ("-Wl,--export-dynamic",)
_UNSEEN = ("test", "looked at once")
_KINDS = {"text": "linked text", "file": "stripped file"}

#: Bytes by program and way, and changes in percent.
Totals = Mapping[str, Mapping[str, int]]
Changes = Mapping[str, Mapping[str, float]]


class Sizes(msgspec.Struct, frozen=True):
    """A linked program: bytes of its machine code and of its stripped file, and its SHA-256."""

    text: int
    file: int
    digest: str


@dataclass
class Builds:
    """One program, in a folder of its own."""

    name: str
    folder: Path
    toolchain: Toolchain

    def sizes(self) -> dict[str, Sizes]:
        """By way. Raises BenchmarkError if programs of two ways compute different things."""
        workload = HELD_OUT[self.name](self.folder / "run") if self.name in HELD_OUT else None
        found = {way.name: self._sizes(way, workload) for way in WAYS}
        if workload is not None:
            plain = self._computed(PLAIN, found[PLAIN.name], workload)
            for way in WAYS[1:]:
                if self._computed(way, found[way.name], workload) != plain:
                    raise BenchmarkError(f"{self.name}: {way.name} computes something else")
        return found

    def _sizes(self, way: Way, workload: Workload | None) -> Sizes:
        flags = way.flags(self.toolchain, {"inline-size": MODEL}, None, None)
        words = (*_FLAGS, *(workload.flags if workload is not None else ()))
        program = TABLE[self.name]
        inputs = {
            **corpus.source_checksums(program, corpus.program_tree(program)),
            "flags": [flags.configuration(), *words],
            "link": [*_LINK, *_LIBRARY_LINK],
            "tools": self._tools,
            "model": sha256(MODEL / "model.json"),
        }
        binary = self._binary(way)

        def make() -> Sizes:
            write_text(binary.with_name("way.cfg"), flags.configuration())
            self._build(way, words)
            return Sizes(text_bytes(binary), binary.stat().st_size, sha256(binary))

        return memo(binary.with_name("sizes.json"), inputs, Sizes, make, [binary])

    def _build(self, way: Way, flags: Sequence[str]) -> None:
        """Compiles and links with the configuration file that is in the way's folder."""
        program, binary, clang = TABLE[self.name], self._binary(way), self.toolchain.clang
        tree, own = corpus.program_tree(program), binary.parent
        config = f"--config={binary.with_name('way.cfg').resolve()}"
        commands = corpus.compile_commands(program, tree, own, clang=clang, flags=(config, *flags))
        objects = [Path(command["arguments"][-1]) for command in commands]
        for one in objects:
            one.parent.mkdir(parents=True, exist_ok=True)
        label = f"{self.name}: {way.name}"
        run_all([command["arguments"] for command in commands], tree, label=label)
        link: list[str | Path] = [clang, config, *_LINK, *objects, *corpus.link_flags(program)]
        link += [*_LIBRARY_LINK * program.is_library, "-o", binary]
        run_command(link, timeout_s=TIMEOUT_S)

    @cached_property
    def _tools(self) -> list[str]:
        return list(map(sha256, (self.toolchain.clang, self.toolchain.ld_lld)))

    def _binary(self, way: Way) -> Path:
        return self.folder / way.name / self.name

    def _computed(self, way: Way, sizes: Sizes, workload: Workload) -> str:
        """A digest of what a run prints and writes."""
        inputs = {"binary": sizes.digest, **workload.run_inputs()}
        run = partial(self._run, self._binary(way), workload)
        return memo(self.folder / way.name / "computed.json", inputs, str, run)

    def _run(self, binary: Path, workload: Workload) -> str:
        # All in one place: what a program does may depend on the length of its path.
        folder = self.folder / "run"
        program = folder / self.name
        corpus.write_input(TABLE[self.name], workload.tree, folder / "input")
        if workload.output is not None:
            workload.output.unlink(missing_ok=True)
        before = {*folder.iterdir(), program}
        shutil.copy(binary, program)
        words = [str(program), *workload.arguments]
        done = subprocess.run(words, capture_output=True, timeout=TIMEOUT_S, check=True)
        digest = hashlib.sha256(without_times(done.stdout))
        for path in sorted(set(folder.iterdir()) - before):
            # LMDB's has the process's number.
            if not path.name.endswith("-lock"):
                digest.update(path.read_bytes())
            path.unlink()
        return digest.hexdigest()


def tables(sizes: Mapping[str, Mapping[str, Sizes]]) -> list[Table]:
    """The means of all ways, what the policy changes by program, and the ways by program."""
    totals: dict[str, Totals] = {
        "text": {name: {way: one.text for way, one in own.items()} for name, own in sizes.items()},
        "file": {name: {way: one.file for way, one in own.items()} for name, own in sizes.items()},
    }
    pairs = {way.name: (way.name, PLAIN.name) for way in WAYS[1:]}
    ways = {kind: counted_changes(found, pairs) for kind, found in totals.items()}
    by_program = [_by_program(kind, totals[kind], ways[kind]) for kind in totals]
    return [_means(ways), _policy(totals), *by_program]


def _by_program(kind: str, totals: Totals, changes: Changes) -> Table:
    rows: list[list[Cell]] = [
        [name, _purpose(name), _language(name), totals[name][PLAIN.name], *own.values()]
        for name, own in changes.items()
    ]
    head = {"program": "text", "training": "text", "language": "text", "-Oz": "bytes"}
    columns = {**head, **dict.fromkeys((way.name for way in WAYS[1:]), "percent:+2")}
    caption = f"Changes of the {_KINDS[kind]} against plain `-Oz`."
    return Table.of(kind, caption, columns, rows)


def _means(ways: Mapping[str, Changes]) -> Table:
    rows: list[list[Cell]] = []
    for language in ("C", "C++"):
        for kind, changes in ways.items():
            chosen = [own for name, own in changes.items() if _counts(name, language)]
            if chosen:
                means = [mean_change([own[way] for own in chosen]) for way in chosen[0]]
                rows.append([f"{language}, {_KINDS[kind]}", len(chosen), *means])
    head = {"of": "text", "programs": "integer"}
    columns = {**head, **dict.fromkeys((way.name for way in WAYS[1:]), "percent:+2")}
    caption = (
        "Changes against plain `-Oz`: geometric means of programs that the training never saw, "
        "with 95% intervals over other programs."
    )
    return Table.of("means", caption, columns, rows)


def _policy(totals: Mapping[str, Totals]) -> Table:
    """What the policy changes in each of the `COLUMNS`."""
    pairs = {name: (policy.name, own.name) for name, (own, policy) in COLUMNS.items()}
    found = [counted_changes(of_kind, pairs) for of_kind in totals.values()]
    whole = {name: [one for own in found for one in own[name].values()] for name in found[0]}
    rows: list[list[Cell]] = [
        [name, _purpose(name), _language(name), *changes] for name, changes in whole.items()
    ]
    for language in ("C", "C++"):
        chosen = [own for name, own in whole.items() if _counts(name, language)]
        if chosen:
            columns = list(zip(*chosen, strict=True))
            label = f"geometric mean of {language}, never seen"
            rows.append([label, "", language, *map(mean_change, columns)])
            smaller = [[min(one, 0.0) for one in column] for column in columns]
            rows.append([f"{label}, smaller build taken", "", language, *map(mean_change, smaller)])
    worst = [max(column) for column in zip(*whole.values(), strict=True)]
    rows.append(["largest change of all programs", "", "", *worst])
    head = {"program": "text", "training": "text", "language": "text"}
    names = [f"{kind}, {name}" for kind in ("text", "file") for name in COLUMNS]
    caption = "What the policy changes in each of the four builds: linked text and stripped file."
    return Table.of("policy", caption, {**head, **dict.fromkeys(names, "percent:+2")}, rows)


def _counts(name: str, language: str) -> bool:
    return _purpose(name) in _UNSEEN and _language(name) == language


def _language(name: str) -> str:
    return "C" if all(source.endswith(".c") for source in TABLE[name].sources) else "C++"


def _purpose(name: str) -> str:
    """What the policy's training used a program for."""
    recipe: dict[str, Any] = tomllib.loads((MODEL / "recipe.toml").read_text())
    for purpose, names in recipe["programs"].items():
        if name in names:
            return {"validation": "choice"}.get(purpose, str(purpose))
    return "looked at once"


def study(programs: Sequence[str], folder: Path, toolchain: Toolchain) -> list[Table]:
    """Builds the given `PROGRAMS` in all `WAYS` and compares their sizes."""
    sizes = {}
    for name in programs:
        sizes[name] = Builds(name, folder / name, toolchain).sizes()
        logging.info("%s: %s", name, {way: one.text for way, one in sizes[name].items()})
    return tables(sizes)
