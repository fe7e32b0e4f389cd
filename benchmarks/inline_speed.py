# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What does a PMU profile add to inlining for speed?

Programs are compiled in the ways of `ways.INLINING`. Callgrind counts what each executes in the
profiled run, and what some execute in the held-out run.

A rule is chosen for each program by what it gains on all others.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.changes import changes_table, counted_changes
from benchmarks.common import saved
from benchmarks.inline_builds import InlineBuilds
from benchmarks.programs.workloads import COUNTED
from benchmarks.results import Cell, Table
from benchmarks.ways import INLINING, RULES
from compiler_opt_perf.run.files import exclusive, write_json
from compiler_opt_perf.toolchain.installation import Toolchain

PROGRAMS = tuple(COUNTED)
#: How much of the executed instructions a rule may give for all of the text, when one is chosen.
TEXT_PRICE = 0.02

_SHIPPED_NAME = next(iter(RULES))
_CHOSEN = "rule chosen by the others"
#: The ways that are judged by the held-out run, too.
JUDGED_WAYS = (
    *("default", "threshold 500", _SHIPPED_NAME, "AutoFDO", "PGO", "PGO and rule"),
    *(name for name, way in INLINING.items() if way.thin),
)
#: The columns of tables: by name, a way and the one with which it is compared.
_COLUMNS = {name: (name, "default") for name in INLINING if name != "default"} | {
    f"the rule adds to {without}": (f"{without} and rule", without)
    for without in ("PGO", "ThinLTO", "ThinLTO and PGO")
}

#: The columns of the first table: what changes, and the way.
_SHOWN = {
    "policy": ("instructions", _SHIPPED_NAME),
    "policy, text": ("text", _SHIPPED_NAME),
    "shuffled PMU data": ("instructions", "shuffled"),
    "threshold 500": ("instructions", "threshold 500"),
    "AutoFDO": ("instructions", "AutoFDO"),
    "PGO": ("instructions", "PGO"),
    "policy, other input": ("judged", _SHIPPED_NAME),
}


def study(
    programs: Sequence[str],
    folder: Path,
    toolchain: Toolchain,
    *,
    ways: Sequence[str] = tuple(INLINING),
    judge: bool = True,
) -> list[Table]:
    """Compiles some of the `PROGRAMS` in some of the ways and counts what they execute.

    A second run in the same folder waits for each program's turn.

    Args:
      folder: for builds and results; what is there is not done again.
      ways: the default is always among them.
      judge: count the held-out run, too, which is longer.

    Returns:
      Tables of all results in the folder.

    Raises:
      CommandError: a compiler or a run failed.
      BenchmarkError: a damaged result.
    """
    ways = [name for name in INLINING if name in ways or name == "default"]
    for program in programs:
        # Runs of a program write to the same files.
        with exclusive(folder / f"{program}.lock"):
            own = InlineBuilds(program, folder / program, toolchain)
            found = {name: msgspec.to_builtins(own.executed(name)) for name in ways}
            result = saved(folder, [program]).get(program, {})
            result["ways"] = {**result.get("ways", {}), **found}
            if judge:
                to_judge = [name for name in JUDGED_WAYS if name in ways]
                judged = {name: own.held_out_instructions(name) for name in to_judge}
                result["judged"] = {**result.get("judged", {}), **judged}
            write_json(folder / f"{program}.json", result)
    return tables(saved(folder, PROGRAMS))


def chosen(
    results: Mapping[str, Mapping[str, Any]], left_out: str, rules: Iterable[str] = tuple(RULES)
) -> str | None:
    """The name of the rule that is best on all programs but one; None if they tried no rule."""
    rules = tuple(rules)
    others = [row["ways"] for name, row in results.items() if name != left_out]
    others = [ways for ways in others if any(name in ways for name in rules)]
    known = [name for name in rules if all(name in ways for ways in others)]

    def loss(name: str) -> float:
        return float(
            np.mean(
                [
                    np.log(ways[name]["instructions"] / ways["default"]["instructions"])
                    + TEXT_PRICE * np.log(ways[name]["text"] / ways["default"]["text"])
                    for ways in others
                ]
            )
        )

    return min(known, key=loss) if others and known else None


def tables(results: Mapping[str, Mapping[str, Any]]) -> list[Table]:
    """Changes of instructions and of text against the default."""
    totals = {
        key: {
            program: {way: counts[key] for way, counts in row["ways"].items()}
            for program, row in results.items()
        }
        for key in ("instructions", "text")
    }
    totals["judged"] = {name: row["judged"] for name, row in results.items() if "judged" in row}
    changes = {key: counted_changes(own, _COLUMNS) for key, own in totals.items()}
    shown: dict[str, dict[str, float]] = {}
    for program in results:
        shown[program] = {
            column: changes[key][program][way]
            for column, (key, way) in _SHOWN.items()
            if way in changes[key].get(program, {})
        }
        for key in ("instructions", "text"):
            best = chosen(results, program)
            if best in changes[key][program]:
                changes[key][program][_CHOSEN] = changes[key][program][best]
    caption = (
        "Change of executed instructions and of linked text against `-O2`, counted by callgrind in "
        "the profiled run; other input: in the held-out run."
    )
    none: dict[str, list[Cell]] = {program: [] for program in results}
    found = changes_table("instructions", caption, {}, none, shown, _SHOWN)
    for key, name, what, run in (
        ("instructions", "instructions-by-way", "executed instructions", "in the profiled run"),
        ("text", "text-by-way", "bytes of text", "linked"),
        ("judged", "held-out-by-way", "executed instructions", "in the held-out run"),
    ):
        caption = f"Change of {what} against the default, {run}."
        found += _table(name, caption, what, totals[key], changes[key])
    return found


def _table(
    name: str,
    caption: str,
    what: str,
    totals: Mapping[str, Mapping[str, int]],
    changes: Mapping[str, Mapping[str, float]],
) -> list[Table]:
    facts: dict[str, list[Cell]] = {program: [own["default"]] for program, own in totals.items()}
    return changes_table(name, caption, {what: "integer"}, facts, changes, [_CHOSEN, *_COLUMNS])
