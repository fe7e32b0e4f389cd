# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Labels of single inlining decisions: what each would change in bytes, taken the other way.

A flip compiles the module again with one decision taken the other way, and the policy takes all
others. Most decisions of a module have nothing to do with one another, so that one compilation
tells the differences of several flips apart, by the sizes of the functions that each can change:

  - the caller, and every function that the caller's body has been inlined into;
  - the callee, whose body dies when the last call of it is gone.

Flips whose functions are disjoint share a compilation. If a function that none of them should touch
has another size, or one of the decisions was not asked for any more, the batch is halved and its
halves are compiled; a flip that is alone has the difference of the whole module, whatever changed.

Where a recorded run is the reward, each flip has a compilation and a run of its own
(`train.recorded`), and its label is what the program costs more, in millionths.

A function that several objects of a program have (a COMDAT) is once in the linked program, so that
each copy counts as a part (`copies`).

The functions here run in pool workers: nothing that this module imports loads TensorFlow.
"""

import collections
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import msgspec
import numpy as np
import numpy.typing as npt

from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.cost.size import FunctionSizes, function_sizes
from compiler_opt_perf.policy.problem import decision_lines
from compiler_opt_perf.run.content import Content
from compiler_opt_perf.run.seeds import derive_seed
from compiler_opt_perf.train.compilation import Compiler, scratch
from compiler_opt_perf.train.label_files import Labels, write_labels
from compiler_opt_perf.train.log import TrainingLog, read_log
from compiler_opt_perf.train.recorded import recorded_differences

_BATCH = 32
# Decisions of a module that are kept beside the labels, at most.
_LOGGED = 300


@dataclass(frozen=True)
class LabelJob:
    """One module to label.

    Attributes:
      model: directory of the policy around whose decisions the flips are; None: the default.
      copies: by function, in how many objects of the program it is, if in more than one.
      most: number of sites to test. If there are more, they are drawn at random; each callee is
        equally likely, however often it is called.
      seed: for the draw.
    """

    compiler: Compiler
    module: Module
    model: Content | None = None
    copies: Mapping[str, int] = field(default_factory=dict)
    most: int = 1_000_000
    seed: int = 1


class ModuleSizes(msgspec.Struct, frozen=True):
    """The sizes and decisions of one module, compiled with one policy.

    Attributes:
      decisions: how many it took.
      sizes: bytes by function.
      shared: the functions that other modules may have, too.
    """

    decisions: int
    sizes: dict[str, int]
    shared: list[str]

    def weighted(self, copies: Mapping[str, int]) -> float:
        """The sum of the sizes, see `FunctionSizes.weighted`."""
        return FunctionSizes(self.sizes).weighted(copies)

    def own(self, copies: Mapping[str, int]) -> dict[str, int]:
        """The entries of the program's `copies` for this module's functions."""
        return {name: copies[name] for name in self.sizes if name in copies}


def module_sizes(job: LabelJob) -> ModuleSizes:
    """Compiles one module with the job's policy. In a pool's worker. Raises as `label`."""
    with scratch() as folder:
        sizes, log = Flipper(job, folder).compile({})
        return ModuleSizes(len(log.starts), dict(sizes), sorted(sizes.shared))


@dataclass(frozen=True)
class LabelFile:
    """A module to label, and the file that keeps its labels."""

    job: LabelJob
    path: Path

    @property
    def module(self) -> Module:
        """The module to label."""
        return self.job.module


def label_file(file: LabelFile) -> Labels:
    """Labels a module. In a pool's worker. Raises as `label`."""
    return label(file.job)


def keep_labels(file: LabelFile, labels: Labels) -> None:
    """Writes them. Raises FileWriteError."""
    write_labels(file.path, labels)


def count_copies(shared: Iterable[Iterable[str]]) -> dict[str, int]:
    """Counts in how many objects of a program a function is, for functions in more than one.

    Args:
      shared: for each object, those that others may have, too.
    """
    counts = collections.Counter(name for one in shared for name in one)
    return {name: count for name, count in counts.items() if count > 1}


def label(job: LabelJob) -> Labels:
    """Flips each decision of a module. In a pool's worker.

    Raises:
      CommandError: the compiler failed on the module.
      LogError, ObjectFileError: it left a damaged file.
      RecordingError: its program cannot be recorded.
    """
    with scratch() as folder:
        return Flipper(job, folder).labels()


class Flipper:
    """Compiles one module with given decisions.

    Attributes:
      compilations: how many there were.
    """

    def __init__(self, job: LabelJob, folder: Path):
        self._job = job
        self._folder = folder
        self._object = folder / "module.o"
        self.compilations = 0

    def labels(self) -> Labels:
        """What each decision would change, taken the other way."""
        base, log = self.compile({})
        taken = self.taken(log)
        if self._job.compiler.runs:
            difference, cost = self._recorded(taken, base)
        else:
            difference = self.flips(self._drawn(log.keys), taken, base)
            cost = base.weighted(self._job.copies)
        rows = [row for row, key in enumerate(log.keys) if key in difference]
        keys = tuple(log.keys[row] for row in rows)
        return Labels(
            self._job.module.name,
            keys,
            log.observations[rows],
            _draw_logged(log.observations, self._job.seed),
            np.array([difference[key] for key in keys], np.float64),
            cost,
            self.compilations,
        )

    def _drawn(self, keys: Sequence[str]) -> list[str]:
        """At most `most` of the keys, in the given order."""
        if len(keys) <= self._job.most:
            return list(keys)
        callees = [key.split(" ")[1] for key in keys]
        calls = collections.Counter(callees)
        shares = np.array([1.0 / calls[callee] for callee in callees]) / len(calls)
        draw = np.random.default_rng(self._job.seed)
        rows = draw.choice(len(keys), self._job.most, replace=False, p=shares)
        return [keys[row] for row in np.sort(rows)]

    def _recorded(
        self, taken: Mapping[str, int], base: FunctionSizes
    ) -> tuple[dict[str, float], float]:
        """As `recorded_differences`; each label takes a compilation and a recorded run."""
        kept = self._folder / "base.o"
        self._object.replace(kept)

        def flipped(key: str) -> Path:
            self.compile({key: 1 - taken[key]})
            return self._object

        run = self._job.compiler.run_of(self._job.module)
        reach = reach_of(taken, base.aliases)
        return recorded_differences(run, kept, reach, base.aliases, self._drawn, flipped)

    def flips(
        self,
        keys: Sequence[str],
        taken: Mapping[str, int],
        base: FunctionSizes,
    ) -> dict[str, float]:
        """What each decision would change in bytes, taken the other way; by key.

        Args:
          keys: the decisions to flip.
          taken: all decisions of the module.
          base: the sizes that they lead to.
        """
        copies = self._job.copies
        size = base.weighted(copies)
        reach = reach_of(taken, base.aliases)
        difference: dict[str, float] = {}
        waiting = _batches(keys, reach)
        while waiting:
            batch = waiting.pop()
            flipped = {key: 1 - taken[key] for key in batch}
            sizes, after = self.compile(flipped)
            if len(batch) == 1:
                difference[batch[0]] = sizes.weighted(copies) - size
            elif self._is_within(batch, reach, base, sizes) and set(batch) <= set(after.keys):
                for key in batch:
                    difference[key] = sum(
                        (sizes.get(name, 0) - base.get(name, 0)) / copies.get(name, 1)
                        for name in sorted(reach[key])
                    )
            else:
                half = len(batch) // 2
                waiting += [batch[:half], batch[half:]]
        return difference

    def taken(self, log: TrainingLog) -> dict[str, int]:
        """The decisions of a log, by key."""
        decisions = log.observations[self._job.compiler.problem.decision].reshape(-1)
        return dict(zip(log.keys, decisions.tolist(), strict=True))

    def compile(self, decisions: Mapping[str, int]) -> tuple[FunctionSizes, TrainingLog]:
        """The sizes of the functions, and the log, with some decisions given."""
        self.compilations += 1
        job, problem = self._job, self._job.compiler.problem
        log = self._folder / "module.log"
        options = problem.development_options(
            model=job.model, log=log, profile=job.compiler.profiles.of(job.module.program)
        )
        options.append("-mlgo-decision-keys")
        if decisions:
            path = self._folder / "decisions"
            path.write_text(decision_lines(decisions))
            options.append(f"-mlgo-decisions={path}")
        job.compiler.compile(job.module, self._object, options)
        return function_sizes(self._object), read_log(log)

    def _is_within(
        self,
        batch: Sequence[str],
        reach: Mapping[str, frozenset[str]],
        base: FunctionSizes,
        sizes: FunctionSizes,
    ) -> bool:
        """Whether nothing changed but what the flips of the batch can reach."""
        changed = {name for name in base.keys() | sizes.keys() if base.get(name) != sizes.get(name)}
        return changed <= frozenset().union(*(reach[key] for key in batch))


def _draw_logged(observations: npt.NDArray[np.void], seed: int) -> npt.NDArray[np.void]:
    """At most `_LOGGED` observations, drawn at random, in the given order."""
    if len(observations) <= _LOGGED:
        return observations
    draw = np.random.default_rng(derive_seed(seed, "logged"))
    return observations[np.sort(draw.choice(len(observations), _LOGGED, replace=False))]


def reach_of(
    taken: Mapping[str, int], aliases: Mapping[str, str] = MappingProxyType({})
) -> dict[str, frozenset[str]]:
    """The functions that flipping a decision can change, by its key.

    Args:
      taken: the decision, 1 for inlining, by key.
      aliases: names of functions that are counted by another one.
    """
    hosts: dict[str, set[str]] = {}
    for key, inlined in taken.items():
        caller, callee = key.split(" ")[:2]
        if inlined:
            hosts.setdefault(callee, set()).add(caller)

    def closure(name: str) -> frozenset[str]:
        found, new = {name}, [name]
        while new:
            more = hosts.get(new.pop(), set()) - found
            found |= more
            new += more
        return frozenset(aliases.get(one, one) for one in found)

    closures: dict[str, frozenset[str]] = {}
    result = {}
    for key in taken:
        caller, callee = key.split(" ")[:2]
        if caller not in closures:
            closures[caller] = closure(caller)
        result[key] = closures[caller] | {aliases.get(callee, callee)}
    return result


def _batches(keys: Sequence[str], reach: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """Keys whose functions are disjoint, first fit; those that reach fewest functions first."""
    batches: list[tuple[list[str], set[str]]] = []
    for key in sorted(keys, key=lambda key: len(reach[key])):
        for batch, functions in batches:
            if len(batch) < _BATCH and functions.isdisjoint(reach[key]):
                batch.append(key)
                functions |= reach[key]
                break
        else:
            batches.append(([key], set(reach[key])))
    return [batch for batch, _ in batches]
