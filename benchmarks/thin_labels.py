# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decisions after the thin link of a program by counters, each taken the other way and judged.

The program's build makes bitcode and is linked by ThinLTO. The same link is done again in steps:
the thin link alone, a compilation of each module, and a link of their objects. A decision that is
taken the other way compiles one module again. Every candidate records a run of its own, by which
it is judged.
"""

import dataclasses
import math
import re
import shlex
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import NoneType

import msgspec
from absl import logging

from benchmarks.beside import beside
from benchmarks.common import TIMEOUT_S, BenchmarkError
from benchmarks.inline_flips import (
    Site,
    deciding,
    index_only,
    indexed,
    labels_of,
    site_name,
    weighted,
)
from benchmarks.programs.forty import Program
from compiler_opt_perf.cost.evaluator import EVALUATORS, RECORDED, Context, Replay
from compiler_opt_perf.cost.recording import RECORD_FLAGS, Recorder, Workload
from compiler_opt_perf.policy.compiler_flags import flags_without_policies
from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.files import sha256
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.memo import memo, note, recall
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train.label_files import Labels
from compiler_opt_perf.train.log import TrainingLog, read_log
from compiler_opt_perf.train.recorded import PER_UNIT
from compiler_opt_perf.trial.runs import Contender
from compiler_opt_perf.trial.trial import Prepared, Request
from compiler_opt_perf.trial.ways import PGO

#: What judges a recorded run.
JUDGES = ("mca-pmu", "count")
_THINLTO = PGO[1]
# Changes within so many standard errors are none, and those within so many times the median
# absolute change by any decision: most change the count by chance.
_RESOLVED, _DEVIATIONS = 2.0, 3.0
# Inputs are so many times smaller than those of timed runs, which take half a second: a simulator
# takes a hundred times as long as the program. Sizes in bytes or lines are large numbers.
_LARGE, _SMALLER, _SMALLER_LARGE = 10_000, 24, 64
# Limit of a simulation, in seconds.
_LONGEST_S = 20.0
# Some builds compile and link in one command.
_SOURCES = (".c", ".cc", ".cpp", ".cxx")
_GROUPS = ("-Wl,--start-group", "-Wl,--end-group")
# Of a program's run, the first command: its standard input, if there is one, and its words.
_FIRST = re.compile(r"(?:for [^;]*; do )?(?:cat ([^|]*) \| )?([^|;&>]*?)(?: 2)?(?=[|;&>]|$)")


class RunCost(msgspec.Struct, frozen=True):
    """What a candidate's recorded run costs.

    Attributes:
      costs: by judge, the cost and its standard error.
      output: digest of what the run prints.
    """

    costs: dict[str, tuple[float, float]]
    output: str


@dataclass(frozen=True)
class ThinProgram:
    """A program, built for the thin link.

    Attributes:
      table: its row.
      folder: for what is made here.
      prepared: the trial, with a PMU profile of plain, and counters.
      thin: the build.
    """

    table: Program
    folder: Path
    toolchain: Toolchain
    prepared: Prepared
    thin: Contender

    @classmethod
    def build(
        cls, table: Program, wanted: Request, prepared: Prepared, folder: Path
    ) -> "ThinProgram":
        """Builds the program, unless that was done."""
        toolchain = wanted.toolchain
        own = _THINLTO.flags(toolchain, {}, prepared.profile, prepared.counters)
        # Debug info by which the PMU profile is looked up.
        words = flags_without_policies(toolchain).location_words
        flags = dataclasses.replace(own, location_words=words)
        thin = beside(prepared, wanted.project, "labels", "for labels", flags)
        folder.mkdir(parents=True, exist_ok=True)
        return cls(table, folder, toolchain, prepared, thin)

    @cached_property
    def _link(self) -> tuple[Path, list[str]]:
        """The folder and the words of the program's link: object files for sources and archives."""
        folder, words = self.thin.way.link_words(self.thin.built)
        # LLD needs no groups, and takes no --start-lib in one.
        words = [word for word in words if word not in _GROUPS]
        compiled = {word for word in words if Path(word).suffix in _SOURCES}
        found: list[str] = []
        for number, word in enumerate(words):
            if word in compiled:
                target = str(self.folder / f"source-{number}.o")
                others = [one for one in words if one not in compiled]
                run_command([*others, "-c", word, "-o", target], cwd=folder, timeout_s=TIMEOUT_S)
                found.append(target)
            else:
                found += self._members(_archive(folder, words, word), word)
        return folder, found

    def _members(self, path: Path, word: str) -> list[str]:
        """The word of a link, which names a file, or what stands for an archive of the build."""
        tree = self.thin.way.tree.resolve()
        if path.suffix != ".a" or not path.resolve().is_relative_to(tree):
            return [word]
        archiver = stock_tool("llvm-ar")
        names = run_command([archiver, "t", path]).stdout.split()
        if path.read_bytes()[:8] == b"!<thin>\n":
            members = [path.parent / name for name in names]
        else:
            own = self.folder / "members" / path.name
            own.mkdir(parents=True, exist_ok=True)
            run_command([archiver, "x", path.resolve()], cwd=own)
            members = [own / name for name in names]
        if len(set(members)) < len(members):
            raise BenchmarkError(f"{path}: has members of one name")
        return ["-Wl,--start-lib", *map(str, members), "-Wl,--end-lib"]

    @cached_property
    def modules(self) -> list[str]:
        """What the thin link takes, by the names that it has there; an index is beside each."""
        folder, words = self._link
        run_command([*words, *index_only(self.folder)], cwd=folder, timeout_s=TIMEOUT_S)
        return (self.folder / "names").read_text().splitlines()

    def compile(
        self,
        module: int,
        target: Path,
        given: Mapping[str, int] | None = None,
        profile: Path | None = None,
    ) -> None:
        """Compiles a module by the index, with decisions given; a log of all is beside the object.

        There is none if nothing is decided in the module.
        """
        source = self.modules[module]
        log = target.with_suffix(".log")
        way = self.thin.way
        run_command(
            [
                *(self.toolchain.clang, f"--config={way.configuration}", "-O2", *RECORD_FLAGS),
                *indexed(source),
                *deciding(self.toolchain, given or {}, log, profile),
                *("-o", target),
            ],
            cwd=self._link[0],
            timeout_s=TIMEOUT_S,
        )

    @cached_property
    def objects(self) -> list[Path]:
        """By module, what the compiler's own decisions make; each with its log beside it."""
        found = [self.folder / f"{number}.o" for number in range(len(self.modules))]

        def make() -> None:
            for number, target in enumerate(found):
                self.compile(number, target, profile=self.prepared.profile)

        assert self.prepared.profile is not None
        program = self.thin.way.program(self.thin.built.program)
        inputs = {"thin": sha256(program), "profile": sha256(self.prepared.profile)}
        memo(self.folder / "objects.json", inputs, NoneType, make, found)
        return found

    def link(self, program: Path, changed: Mapping[int, Path]) -> None:
        """Links the objects, some of them changed."""
        folder, words = self._link
        own = {
            module: str(changed.get(number, self.objects[number]))
            for number, module in enumerate(self.modules)
        }
        replaced = [own.get(word, word) for word in words]
        run_command([*replaced, "-o", program], cwd=folder, timeout_s=TIMEOUT_S)

    @cached_property
    def workload(self) -> Workload:
        """The first command of the program's run, on smaller inputs."""
        inputs = [
            msgspec.structs.replace(one, size=_smaller(one.size)) for one in self.table.inputs
        ]
        small = msgspec.structs.replace(self.table, inputs=inputs)
        line = small.given_run(self.folder).line
        found = _FIRST.match(line)
        assert found is not None
        tree = self.thin.way.tree

        def path(word: str) -> str:
            return str(tree / word) if (tree / word).is_file() else word

        stdin = None
        if found[1]:
            stdin = self.folder / "stdin"
            stdin.write_bytes(b"".join(Path(path(one)).read_bytes() for one in found[1].split()))
        arguments = tuple(map(path, shlex.split(found[2])[1:]))
        return Workload(arguments, stdin, isolated=True, timeout_s=_LONGEST_S)

    def judge(self, changed: Mapping[int, Path], cpu: Path) -> RunCost:
        """The cost of a recorded run with some objects changed. Raises RecordingError."""
        context = Context(tool=self.toolchain.trace_cost, cpu=cpu, threads=1)
        costs, output = {}, ""
        with tempfile.TemporaryDirectory(prefix="labels-") as name:
            program = Path(name) / "program"
            self.link(program, changed)
            for judge in JUDGES:
                evaluator = EVALUATORS[judge]
                assert isinstance(evaluator, Replay)
                recorder = Recorder(evaluator, self.workload, Path(name) / "recordings")
                cost = recorder.cost([program], context)
                costs[judge] = (cost.total, cost.standard_error or 0.0)
                output = cost.report[RECORDED]["output"]
        return RunCost(costs, output)

    def labels(self, most: int, cpu: Path) -> dict[str, Labels]:
        """Takes decisions the other way, one at a time, those about the hottest code first.

        Args:
          most: so many decisions.
          cpu: CPU file of the judge.

        Returns:
          By judge, labels of the program as one module.

        Raises:
          CommandError: the program cannot be built.
          RecordingError: it cannot be run.
          BenchmarkError: what it prints depends on more than its inputs.
        """
        notes = self.folder / "flips.json"
        inputs = {
            "objects": list(map(sha256, self.objects)),
            "run": self.workload.digest(),
            "cpu": sha256(cpu),
        }
        known = recall(notes, inputs, dict[str, RunCost]) or {}

        def judged(name: str, changed: Mapping[int, Path]) -> RunCost:
            if name not in known:
                known[name] = self.judge(changed, cpu)
                note(notes, inputs, dict[str, RunCost], known)
            return known[name]

        base = judged("", {})
        outcomes: dict[Site, RunCost] = {}
        for site, decision in list(self._sites())[:most]:
            name = site_name(site)
            with tempfile.TemporaryDirectory(prefix="flipped-") as scratch:
                target = Path(scratch) / "module.o"
                if name not in known:
                    try:
                        self.compile(site.unit, target, {site.key: 1 - decision})
                    except CommandError as error:
                        logging.warning("%s: %s: %s", self.table.name, site.key, error)
                        continue
                outcome = judged(name, {site.unit: target})
            if outcome.output != base.output:
                raise BenchmarkError(
                    f"{self.table.name}: prints something else with another decision: {site.key}; "
                    "a program that prints times or its own path cannot be labelled"
                )
            outcomes[site] = outcome
        if not outcomes:
            raise BenchmarkError(f"{self.table.name}: nothing is decided after its thin link")
        labels = {}
        for judge in JUDGES:
            costs = [one.costs[judge] for one in (base, *outcomes.values())]
            changes = dict(zip(outcomes, resolved_changes(costs), strict=True))
            labels[judge] = labels_of(self.table.name, changes, base.costs[judge][0], self._logs)
        return labels

    @cached_property
    def _logs(self) -> dict[int, TrainingLog]:
        """By module, the log of its decisions; modules that decide nothing have none."""
        paths = [target.with_suffix(".log") for target in self.objects]
        return {module: read_log(path) for module, path in enumerate(paths) if path.exists()}

    def _sites(self) -> Iterator[tuple[Site, int]]:
        """All decisions, those about what runs most first, and what the compiler decides."""
        weights = [
            (-weight, module, key, decision)
            for module, log in self._logs.items()
            for key, decision, weight in weighted(log)
        ]
        for _, module, key, decision in sorted(weights):
            yield Site(module, key), decision


def _smaller(size: int) -> int:
    """The size of a recorded run's input, by that of a timed one."""
    return max(1, size // (_SMALLER_LARGE if size >= _LARGE else _SMALLER))


def _archive(folder: Path, words: Sequence[str], word: str) -> Path:
    """The file that a word of a link names; a library is looked for where the link does that."""
    if word.startswith("-l"):
        for place in (one.removeprefix("-L") for one in words if one.startswith("-L")):
            path = folder / place / f"lib{word.removeprefix('-l')}.a"
            if path.is_file():
                return path
    return folder / word


def resolved_changes(costs: Sequence[tuple[float, float]]) -> list[float]:
    """What decisions change, in millionths of a program's cost; 0 if it is as by chance.

    One build alone may be lucky, so that changes are against the median of all.

    Args:
      costs: with their standard errors, first that of the compiler's own decisions.
    """
    before = statistics.median(cost for cost, _ in costs)
    changes = [PER_UNIT * (cost / before - 1) for cost, _ in costs]
    spread = statistics.median(map(abs, changes))
    own_error = costs[0][1]
    found = []
    for change, (_, error) in zip(changes[1:], costs[1:], strict=True):
        least = PER_UNIT * _RESOLVED * math.hypot(own_error, error) / before
        found.append(change if abs(change) > max(least, _DEVIATIONS * spread) else 0.0)
    return found
