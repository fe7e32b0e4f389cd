# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Does inlining for size need a policy for each kind of build, or is one enough?

Single decisions are labelled as the builds of users count them: functions folded or not, outlined
or not. Trees that learn from one kind of labels are judged by all, on programs that they never saw.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from absl import logging

from benchmarks.common import BenchmarkError
from benchmarks.results import Cell, Table
from benchmarks.size_labels import (
    FOLDED,
    PROBLEM,
    SEEDS,
    Floats,
    Integers,
    programs_of,
    saved_in,
    training_labels,
    tree_chooser,
    unseen_choosers,
)
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train.cost_sensitive import Inputs
from compiler_opt_perf.train.label_files import Labels, labelled_rows
from compiler_opt_perf.trial.ways import SIZE

_OUTLINER = SIZE[2]


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
    def of(cls, labels: list[Labels]) -> "Labelled":
        """Those of labelled modules."""
        return cls(programs_of(labels), *labelled_rows(PROBLEM, labels))


def study(folder: Path, toolchain: Toolchain) -> list[Table]:
    """Labels decisions by each kind of build; what is done is not done again.

    Raises:
      BenchmarkError: a training that labels failed, or a program has not all kinds of labels.
    """
    outlined = json.dumps(_OUTLINER.flags(toolchain, {}, None, None).options)
    settings = {
        "not folded": {**FOLDED, "folding": "false"},
        "folded": FOLDED,
        "folded and outlined": {**FOLDED, "options": outlined},
    }
    found = {}
    for name, own in settings.items():
        # Studies share the labels of one kind.
        place = folder if own == FOLDED else folder / name.replace(" ", "-")
        found[name] = Labelled.of(training_labels(place, toolchain, own))
    if len({tuple(one.programs) for one in found.values()}) > 1:
        raise BenchmarkError("a program has labels of one kind of build, but not of another")
    return tables(found)


def tables(found: Mapping[str, Labelled]) -> list[Table]:
    """What trees keep by each kind of labels, and the labels; by kind of build."""
    kept: list[list[Cell]] = []
    for name, learnt in found.items():
        row: list[Cell] = [name]
        judges = list(found.values())
        for judged, bytes_saved in zip(judges, kept_unseen(learnt, judges), strict=True):
            saved = 100 * bytes_saved / _could(judged)
            row += [round(float(end), 4) for end in (saved.mean(), saved.min(), saved.max())]
        kept.append(row)
        logging.info("%s", row)
    columns = {"trees learn": "text"}
    for name in found:
        columns |= {
            name: "percent:1",
            **{f"{name}, {end}": "percent:1" for end in ("least", "most")},
        }
    rows: list[list[Cell]] = [
        [name, len(one.advantage), int((one.advantage > 0).sum()), round(float(_could(one)))]
        for name, one in found.items()
    ]
    return [
        Table.of(
            "kept",
            "What trees keep of all bytes that single decisions could save in programs that they "
            "never saw, by the labels that they learn and those that judge: mean, least and most "
            f"of {len(SEEDS)} seeds.",
            columns,
            kept,
        ),
        Table.of(
            "labels",
            "Labels by kind of build, those that pay, and what these save together.",
            {"labels": "text", "decisions": "integer", "pay": "integer", "could save": "bytes"},
            rows,
        ),
    ]


def _could(labelled: Labelled) -> float:
    return float(labelled.advantage[labelled.advantage > 0].sum())


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
