# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Labels of single inlining decisions for size, and what learners keep on programs unseen."""

import functools
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from absl import logging

from benchmarks.common import BenchmarkError
from benchmarks.results import Cell, Table
from benchmarks.size_builds import MODEL
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.run.files import write_text
from compiler_opt_perf.toolchain.aot import venv_program
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train.cost_sensitive import Inputs, Trees, TreeSettings
from compiler_opt_perf.train.label_files import Labels, labelled_rows, read_labels

PROBLEM = PROBLEMS["inline-size"]
SEEDS = (1, 2, 3)
#: Settings of a training whose labels count identical functions once.
FOLDED = {"folding": "true"}
# Of a module, 15 decisions are labelled. Large modules, which would take most time, are drawn
# less often.
_SETTINGS = {
    "max_decisions": 300,
    "labels.sites": 15,
    "labels.steps": 1,
}
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
#: Which rows to decide otherwise than the compiler, bool [rows], by their inputs.
Chooser = Callable[[Inputs], npt.NDArray[np.bool_]]


@dataclass(frozen=True)
class Labelled:
    """Labelled decisions of some programs.

    Attributes:
      programs: their names, in alphabetical order.
      inputs: by feature, [rows].
      advantage: [rows], bytes that deciding otherwise than the compiler saves.
      groups: [rows], number of the program.
    """

    programs: Sequence[str]
    inputs: Inputs
    advantage: Floats
    groups: Integers

    @classmethod
    def of(cls, labels: Sequence[Labels]) -> "Labelled":
        """Those of labelled modules."""
        return cls(programs_of(labels), *labelled_rows(PROBLEM, labels))

    @property
    def could_save(self) -> float:
        """Bytes that deciding otherwise saves wherever that pays."""
        return float(self.advantage[self.advantage > 0].sum())


def training_labels(
    folder: Path, toolchain: Toolchain, settings: Mapping[str, str] = FOLDED
) -> list[Labels]:
    """Those of a training by the shipped recipe, without LLVM's own libraries.

    Args:
      folder: it has the training in `training`; it goes on where it was interrupted.
      settings: other values of the recipe's settings, as TOML.

    Raises:
      BenchmarkError: the training failed.
    """
    text = (MODEL / "recipe.toml").read_text()
    text = re.sub(r'"llvm-\w+",', "", text)
    # The policy is not asked, so that the least programs to choose and to test by are enough.
    for use, program in (("validation", "bzip2"), ("test", "cmark")):
        least = f'{use} = ["{program}"]'
        text = re.sub(rf"^{use} = \[.*?\]", least, text, flags=re.MULTILINE | re.DOTALL)
    path = folder / "recipe.toml"
    write_text(path, text)
    words = ["train", "policy", f"--problem={PROBLEM.name}", f"--recipe={path}"]
    words += [f"--setting={name}={value}" for name, value in {**_SETTINGS, **settings}.items()]
    words += [f"--toolchain={toolchain.directory}", f"--output={folder / 'training'}"]
    if subprocess.run([venv_program("cop"), *words], check=False).returncode:
        raise BenchmarkError("the training failed; see its messages above")
    files = sorted((folder / "training" / "labels").rglob("*.npz"))
    return [one for one in map(read_labels, files) if one.keys]


def programs_of(labels: Sequence[Labels]) -> list[str]:
    """The names of the programs, in the order of `groups_of`."""
    return sorted({one.module.split("/")[0] for one in labels})


@functools.cache
def tree_settings() -> TreeSettings:
    """The shipped recipe's, for all kinds of decisions."""
    recipe = tomllib.loads((MODEL / "recipe.toml").read_text())
    settings = msgspec.convert(recipe["stages"][0]["trees"], TreeSettings)
    return msgspec.structs.replace(settings, least_share=-1.0)


def tree_chooser(inputs: Inputs, advantage: Floats, seed: int) -> Chooser:
    """Trees that learnt from labels."""
    # As of one program, so that no trees are fitted to judge them.
    none = np.zeros(len(advantage), np.int64)
    trees = Trees.fit(inputs, advantage, none, tree_settings(), seed)
    return lambda rows: trees.otherwise(rows) > 0.5


def saved_unseen(
    fit: Callable[[Inputs, Floats, int], Chooser],
    inputs: Inputs,
    advantage: Floats,
    groups: Integers,
    seeds: tuple[int, ...] = SEEDS,
) -> Floats:
    """Bytes that a learner saves in each program by the other programs' labels.

    Args:
      fit: the learner, by inputs, advantages and a seed.

    Returns:
      [seeds, programs].
    """
    found = np.zeros((len(seeds), groups.max() + 1))
    for row, group, chooser in unseen_choosers(fit, inputs, advantage, groups, seeds):
        found[row, group] = saved_in(chooser, groups == group, inputs, advantage)
    return found


def unseen_choosers(
    fit: Callable[[Inputs, Floats, int], Chooser],
    inputs: Inputs,
    advantage: Floats,
    groups: Integers,
    seeds: tuple[int, ...] = SEEDS,
) -> Iterator[tuple[int, int, Chooser]]:
    """What a learner chooses that has seen all programs but one; as of `saved_unseen`.

    Yields:
      The number of the seed, that of the program, and the learner's choice.
    """
    for row, seed in enumerate(seeds):
        for group in range(groups.max() + 1):
            read = groups != group
            yield row, group, fit(rows_of(inputs, read), advantage[read], seed)


def saved_in(
    chooser: Chooser, rows: npt.NDArray[np.bool_], inputs: Inputs, advantage: Floats
) -> float:
    """Bytes that are saved in some rows by what a learner chooses."""
    return float(advantage[rows][chooser(rows_of(inputs, rows))].sum())


def rows_of(inputs: Inputs, chosen: npt.NDArray[np.bool_]) -> Inputs:
    """The chosen rows."""
    return {name: values[chosen] for name, values in inputs.items()}


def kept_unseen(learnt: Labelled, judges: Sequence[Labelled]) -> Floats:
    """Bytes that trees save in programs of which they learnt nothing; [judges, seeds].

    Args:
      judges: labels of the same programs.
    """
    found = np.zeros((len(judges), len(SEEDS)))
    own = (learnt.inputs, learnt.advantage, learnt.groups)
    for row, group, chooser in unseen_choosers(tree_chooser, *own):
        for number, one in enumerate(judges):
            rows = one.groups == group
            found[number, row] += saved_in(chooser, rows, one.inputs, one.advantage)
    return found


def kept_table(name: str, learnt: Mapping[str, Labelled], judges: Mapping[str, Labelled]) -> Table:
    """What trees keep of all that single decisions could save, by the labels that they learn.

    Args:
      name: of the table.
      judges: labels of the same programs, by kind of build.

    Raises:
      BenchmarkError: a program has not all kinds of labels.
    """
    if len({tuple(one.programs) for one in (*learnt.values(), *judges.values())}) > 1:
        raise BenchmarkError("a program has labels of one kind of build, but not of another")
    rows: list[list[Cell]] = []
    for title, own in learnt.items():
        row: list[Cell] = [title]
        kept = kept_unseen(own, list(judges.values()))
        for judge, bytes_saved in zip(judges.values(), kept, strict=True):
            saved = 100 * bytes_saved / max(judge.could_save, 1.0)
            row += [round(float(end), 4) for end in (saved.mean(), saved.min(), saved.max())]
        rows.append(row)
        logging.info("%s", row)
    columns = {"trees learn": "text"}
    for title in judges:
        columns |= dict.fromkeys((title, f"{title}, least", f"{title}, most"), "percent:1")
    return Table.of(
        name,
        "What trees keep of all bytes that single decisions could save in programs that they never "
        "saw. By the labels that they learn and those that judge: mean, least and most of "
        f"{len(SEEDS)} seeds.",
        columns,
        rows,
    )
