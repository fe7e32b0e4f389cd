# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables of programs of Debian, such as forty.toml, built by their own build systems.

Half of the forty, drawn by a seed, may be used to choose a policy. The other half only judges.
"""

import contextlib
import hashlib
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from absl import logging

from benchmarks.common import BenchmarkError
from benchmarks.programs.forty_inputs import MAKERS
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import atomic_directory, read_input
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.progress import Progress
from compiler_opt_perf.toolchain.debian import debian_source
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT
from compiler_opt_perf.trial.build import Project
from compiler_opt_perf.trial.runs import GivenRun
from compiler_opt_perf.trial.trial import Request
from compiler_opt_perf.trial.ways import Way

Item = TypeVar("Item")
Result = TypeVar("Result")

TABLE = Path(__file__).with_name("forty.toml")
#: Of the inputs of profiled runs.
SEED = 1
_MODELS = {
    "inline-size": REPO_ROOT / "models" / "inline-speed",
    "regalloc-evict": REPO_ROOT / "models" / "regalloc-evict",
}


class Made(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A generated input: its file's name, a key of `MAKERS`, and its size."""

    file: str
    make: str
    size: int


class Program(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A program.

    Attributes:
      package: name of Debian's source package.
      version: Debian's, of which the figures are.
      language: "C" or "C++".
      system: its build system.
      kind: what it does, in two words.
      set: whether it may be used to choose by, or only judges.
      build: command of the shell, in the tree.
      run: command of the shell, in the tree; `{inputs}` stands for the folder of its inputs,
        `{programs}` for that of this table, and `{seed}` for the inputs' seed.
      binary: the program's path in the tree; None for the first program in the run.
      inputs: generated ones.
      files: given inputs, by name.
      table: name of the file that the program stands in.
    """

    name: str
    package: str
    version: str
    language: Literal["C", "C++"]
    system: str
    kind: str
    set: Literal["choose", "judge"]
    build: str
    run: str
    binary: str | None = None
    inputs: list[Made] = []
    files: dict[str, str] = {}
    table: str = TABLE.name

    def project(self) -> Project:
        """What is built. Raises ToolchainError if the source cannot be fetched."""
        tree = debian_source(self.package)
        found = re.search(r"\((\S+)\)", read_input(tree / "debian" / "changelog").decode())
        if found is None or found[1] != self.version:
            logging.warning("%s: is not version %s of %s", tree, self.version, self.table)
        return Project(tree, self.build, "-O2")

    def given_run(self, folder: Path, seed: int = SEED) -> GivenRun:
        """The run, whose inputs are written once below `folder`, the generated ones by the seed."""
        made = msgspec.json.encode([self.inputs, self.files])
        inputs = folder / f"inputs-{seed}-{hashlib.sha256(made).hexdigest()[:8]}"
        if not inputs.is_dir():
            with atomic_directory(inputs) as partial:
                for one in self.inputs:
                    MAKERS[one.make](partial / one.file, one.size, seed)
                for name, text in self.files.items():
                    (partial / name).write_text(text)
        named = {"inputs": inputs, "programs": TABLE.parent, "seed": seed}
        return GivenRun("run", re.sub(r"\{(\w+)\}", lambda one: str(named[one[1]]), self.run))

    def request(
        self, folder: Path, toolchain: Toolchain, ways: Sequence[Way], rounds: int
    ) -> Request:
        """What to try; the inputs are written below `folder`."""
        return Request(
            project=self.project(),
            runs=[self.given_run(folder)],
            binary=self.binary,
            toolchain=toolchain,
            models=_MODELS,
            ways=ways,
            by_size=False,
            rounds=rounds,
            counts=False,
        )


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All programs, and the seed that split them."""

    seed: int
    program: list[Program]


def read_table(path: Path = TABLE) -> Table:
    """Reads a table of programs. Raises BenchmarkError, with the file and the place in it."""
    try:
        table = msgspec.toml.decode(read_input(path), type=Table)
    except (OSError, msgspec.MsgspecError) as error:
        raise BenchmarkError(f"{path}: {error}") from error
    named = [msgspec.structs.replace(one, table=path.name) for one in table.program]
    return msgspec.structs.replace(table, program=named)


def drawn(names: Sequence[str], seed: int) -> set[str]:
    """The half of the programs that only judges."""
    return set(random.Random(seed).sample(sorted(names), len(names) // 2))


def requests(
    programs: Iterable[Program],
    folder: Path,
    toolchain: Toolchain,
    ways: Sequence[Way],
    rounds: int,
) -> dict[str, tuple[Request, Path]]:
    """By name, what to try and the folder to do it in, below `folder`."""
    found = {}
    for program in programs:
        own = folder / program.name
        with _leaving_out(program.name):
            found[program.name] = program.request(own, toolchain, ways, rounds), own / "try"
    return found


def side_by_side(
    pool: Pool, function: Callable[[Item], Result], items: Mapping[str, Item], label: str
) -> dict[str, Result]:
    """Calls a function on an item of each program, in workers; those that fail are left out."""
    found = {}
    outcomes = pool.map(function, items.values(), label=label)
    for name, outcome in zip(items, outcomes, strict=True):
        with _leaving_out(name):
            found[name] = outcome.get()
    return found


def in_turn(
    function: Callable[[Item], Result], items: Mapping[str, Item], label: str
) -> dict[str, Result]:
    """The same, one after the other in this process."""
    found = {}
    with Progress(label if items else None, len(items)) as progress:
        for name, item in items.items():
            with _leaving_out(name):
                found[name] = function(item)
            progress.advance()
    return found


@contextlib.contextmanager
def _leaving_out(name: str) -> Iterator[None]:
    """Logs what a program fails by."""
    try:
        yield
    except (UserError, OSError) as error:
        logging.error("%s is left out: %s", name, error)
