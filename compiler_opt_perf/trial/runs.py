# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a built program as the user does: to profile it, to count its instructions, to time it."""

import contextlib
import hashlib
import os
import shlex
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType

import msgspec
from absl import logging

from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.profile.merge import merge
from compiler_opt_perf.run.command import run_command, start_command
from compiler_opt_perf.run.files import read_input, sha256
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.memo import memo, note, recall
from compiler_opt_perf.run.progress import Progress
from compiler_opt_perf.run.rounds import round_order
from compiler_opt_perf.run.timing import Meter, counted
from compiler_opt_perf.trial.build import Built, WayFolder
from compiler_opt_perf.trial.errors import TrialError

_LINES_SHOWN = 12
#: Shorter runs are mostly the start of the program.
SHORTEST_S = 0.1
# More profiles of one run take too long, one after the other, in the simulator.
_MOST_EXECUTIONS = 8
# What a shell changes by itself.
_SHELL_VARIABLES = ("PWD", "OLDPWD", "SHLVL", "_")
# Notes how the program is executed. Its input is a copy, for a pipe can be read once only.
_RECORDER = """\
#!/bin/bash
folder={folder}/"$EPOCHREALTIME-$$"
mkdir "$folder"
(( $# )) && printf '%s\\0' "$@" > "$folder/arguments"
printf '%s\\0' "$PWD" > "$folder/directory"
env -0 > "$folder/environment"
cat > "$folder/stdin"
exec -a "$0" {real} "$@" < "$folder/stdin"
"""
_COUNTER = """\
#!/bin/bash
exec {counter} {real} "$@"
"""


@dataclass(frozen=True)
class Execution:
    """A run of the user's command.

    Attributes:
      seconds: processor time of all its processes.
      output: digest of its standard output.
    """

    seconds: float
    output: str


@dataclass(frozen=True)
class GivenRun:
    """A run that the user gave.

    Attributes:
      flag: by which it was given, without the hyphens.
      line: of the shell; it runs in the tree.
    """

    flag: str
    line: str

    def __str__(self) -> str:
        return f"--{self.flag}={shlex.quote(self.line)}"

    def execute(
        self,
        way: WayFolder,
        processor: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Execution:
        """Runs the command in a way's tree.

        Args:
          processor: number of the processor that it is bound to; None for any.
          env: variables added to the environment.

        Raises:
          TrialError: it failed.
        """
        bound = [] if processor is None else ["taskset", "--cpu-list", str(processor)]
        # Some programs look whether they write to /dev/null, and then do less.
        with (
            tempfile.TemporaryFile() as stdout,
            tempfile.TemporaryFile() as stderr,
            start_command(
                [*bound, "sh", "-c", self.line],
                cwd=way.tree,
                env=env,
                stdout=stdout,
                stderr=stderr,
            ) as running,
        ):
            done = running.wait()
            if done.status:
                stderr.seek(0)
                lines = stderr.read().decode(errors="replace").splitlines()[-_LINES_SHOWN:]
                raise TrialError(self._failed(done.status, way.tree, lines))
            stdout.seek(0)
            digest = hashlib.sha256()
            # Programs that print where they are have the same output in all trees.
            tree = os.fsencode(way.tree)
            for line in stdout:
                digest.update(line.replace(tree, b""))
        return Execution(done.processor_seconds, digest.hexdigest())

    def _failed(self, status: int, tree: Path, lines: Sequence[str]) -> str:
        how = f"exit status {status}"
        if status < 0 or status > 128:
            number = -status if status < 0 else status - 128
            with contextlib.suppress(ValueError):
                how = f"ended by {signal.Signals(number).name}"
        shown = "".join(f"\n  {line}" for line in lines)
        return f"{self}: {how} in {tree}; a run that works ends with 0{':' if shown else ''}{shown}"


def profiled(way: WayFolder, built: Built, command: GivenRun) -> Path:
    """Collects the PMU profile of a run in the simulator; returns its manifest.

    Raises:
      TrialError: the run failed, or does not execute the program, or too often.
      PmuError: the simulated run failed.
      BinaryError: the program has no debug info.
    """
    program = way.program(built.program)
    manifest = way.path / "profile" / f"{program.name}.pmu.json"
    inputs = {"program": sha256(program), "run": command.line}

    def make() -> None:
        shutil.rmtree(manifest.parent, ignore_errors=True)
        manifest.parent.mkdir()
        with tempfile.TemporaryDirectory(prefix="executions-") as name:
            folder = Path(name)
            values = {"folder": shlex.quote(name), "real": shlex.quote(str(way.real(built)))}
            with way.script_in_place(built, _RECORDER.format(**values)):
                command.execute(way)
            executions = sorted(folder.iterdir())
            if not executions:
                raise TrialError(
                    f"{command}: does not execute "
                    f"{built.program}; name the program that it executes: --binary=PATH"
                )
            if len(executions) > _MOST_EXECUTIONS:
                raise TrialError(
                    f"{command}: executes {built.program} "
                    f"{len(executions)} times; give a run that executes it at most "
                    f"{_MOST_EXECUTIONS} times"
                )
            parts = [folder / f"{number}.pmu.json" for number in range(len(executions))]
            for execution, part in zip(executions, parts, strict=True):
                collect(
                    # In its place, beside which it may look for files.
                    way.tree / built.program,
                    _words(execution / "arguments"),
                    part if len(parts) > 1 else manifest,
                    stdin=execution / "stdin",
                    # Not /dev/null, as above.
                    stdout=folder / "stdout",
                    cwd=Path(_words(execution / "directory")[0]),
                    env=_added(_words(execution / "environment")),
                )
            if len(parts) > 1:
                merge(parts, manifest)

    memo(way.path / "profiled.json", inputs, NoneType, make, [manifest])
    return manifest


def _words(path: Path) -> list[str]:
    """The words of a file, each with a NUL at its end; none if there is no file."""
    if not path.exists():
        return []
    return read_input(path).decode(errors="surrogateescape").split("\0")[:-1]


def _added(environment: Sequence[str]) -> dict[str, str]:
    """The variables that differ from this process's."""
    pairs = (entry.partition("=")[::2] for entry in environment)
    return {
        name: value
        for name, value in pairs
        if name not in _SHELL_VARIABLES and os.environ.get(name) != value
    }


def instrumented(way: WayFolder, built: Built, command: GivenRun) -> Path:
    """Runs a program built with -fprofile-generate; returns its merged counters.

    Raises:
      TrialError: the run failed, or left no counters.
      CommandError: llvm-profdata failed.
    """
    merged = way.path / "counters.profdata"
    inputs = {"program": sha256(way.program(built.program)), "run": command.line}

    def make() -> None:
        raw = way.path / "raw"
        shutil.rmtree(raw, ignore_errors=True)
        command.execute(way, env={"LLVM_PROFILE_FILE": str(raw / "%p-%m.profraw")})
        files = sorted(raw.glob("*.profraw"))
        if not files:
            raise TrialError(f"{built.program}: left no counters; does it end by _exit?")
        run_command([stock_tool("llvm-profdata"), "merge", *files, "-o", merged])

    memo(way.path / "counted.json", inputs, NoneType, make, [merged])
    return merged


def instructions(way: WayFolder, built: Built, command: GivenRun, meter: Meter) -> int | None:
    """Counts the instructions that the program executes in a run; None if that failed."""
    inputs = {"program": sha256(way.program(built.program)), "run": command.line}

    def make() -> int | None:
        with tempfile.TemporaryDirectory(prefix="counts-") as name:
            words = meter.counter(Path(name) / "PROCESS")
            counter = shlex.join(words).replace("PROCESS", '"$$"')
            if meter.how == "qemu":
                counter += ' -0 "$0"'
            values = {"counter": counter, "real": shlex.quote(str(way.real(built)))}
            try:
                with way.script_in_place(built, _COUNTER.format(**values)):
                    command.execute(way)
            except TrialError as error:
                logging.warning("its instructions cannot be counted: %s", error)
                return None
            counts = [counted(path) for path in Path(name).iterdir()]
        known = [count for count in counts if count is not None]
        return sum(known) if known and len(known) == len(counts) else None

    path = way.path / f"instructions-{command.flag}.json"
    return memo(path, inputs, _Counted, lambda: _Counted(make())).instructions


class _Counted(msgspec.Struct, frozen=True):
    instructions: int | None


class Timed(msgspec.Struct):
    """Rounds of timed runs, in each of which each program ran once.

    Attributes:
      seconds: [R][P] processor time by round and program.
      outputs: [P] the digests of each program's outputs.
    """

    seconds: list[list[float]] = []
    outputs: list[list[str]] = []


@dataclass(frozen=True)
class Contender:
    """A program that is timed: one way's, in several layouts."""

    name: str
    way: WayFolder
    built: Built
    layouts: Sequence[Path]


def timed(
    contenders: Sequence[Contender], command: GivenRun, rounds: int, processor: int, path: Path
) -> Timed:
    """Runs all contenders in random order, round by round; each round has another layout.

    Args:
      processor: number of the processor that runs are bound to.
      path: the note of the rounds; rounds of an interrupted call count.

    Raises:
      TrialError: a run failed.
    """
    inputs = {
        "run": command.line,
        "programs": [
            [one.name, sha256(one.way.program(one.built.program)), len(one.layouts)]
            for one in contenders
        ],
    }
    done = recall(path, inputs, Timed) or Timed(outputs=[[] for _ in contenders])
    with _all_in_place(contenders), Progress(f"timing --{command.flag}", rounds) as progress:
        progress.advance(len(done.seconds))
        for number in range(len(done.seconds), rounds):
            seconds = [0.0] * len(contenders)
            for i in round_order(number, len(contenders)):
                one = contenders[i]
                one.way.place(one.built, one.layouts[number % len(one.layouts)])
                run = command.execute(one.way, processor)
                seconds[i] = run.seconds
                if run.output not in done.outputs[i]:
                    done.outputs[i].append(run.output)
            done.seconds.append(seconds)
            note(path, inputs, Timed, done)
            progress.advance()
    return Timed(done.seconds[:rounds], done.outputs)


@contextlib.contextmanager
def _all_in_place(contenders: Sequence[Contender]) -> Iterator[None]:
    """Puts the programs as built back into their places at the end."""
    try:
        yield
    finally:
        for one in contenders:
            one.way.place(one.built, one.way.program(one.built.program))
