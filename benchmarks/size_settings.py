# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Does inlining for size need a policy for each kind of build, or is one enough?

Single decisions are labelled as the builds of users count them: functions folded or not, outlined
or not. Trees that learn from one kind of labels are judged by all, on programs that they never saw.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from benchmarks.results import Cell, Table
from benchmarks.size_labels import FOLDED, Labelled, kept_table, training_labels
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.trial.ways import SIZE

_OUTLINER = SIZE[2]


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
    return tables(found)


def tables(found: Mapping[str, Labelled]) -> list[Table]:
    """What trees keep by each kind of labels, and the labels; by kind of build."""
    rows: list[list[Cell]] = [
        [name, len(one.advantage), int((one.advantage > 0).sum()), round(one.could_save)]
        for name, one in found.items()
    ]
    return [
        kept_table("kept", found, found),
        Table.of(
            "labels",
            "Labels by kind of build, those that pay, and what these save together.",
            {"labels": "text", "decisions": "integer", "pay": "integer", "could save": "bytes"},
            rows,
        ),
    ]
