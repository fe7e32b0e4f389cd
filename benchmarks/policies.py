# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Do programs run faster by the policies in models/, beside what any clang offers?

Programs are compiled by the policies for inlining and for callee-saved registers, alone and
together, by the best constants, and by AutoFDO, PGO and ThinLTO without and with the policies.
They run on inputs that were neither profiled nor used to choose a policy, interleaved, on one
processor, in several layouts. Callgrind counts the instructions of the same run.
"""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.changes import changes_table, counted_changes
from benchmarks.common import saved
from benchmarks.inline_builds import InlineBuilds
from benchmarks.programs.workloads import HELD_OUT, ONLY_ONCE
from benchmarks.results import Cell, Table
from benchmarks.timing import LAYOUTS, ROUNDS
from benchmarks.ways import RULES
from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.run.files import exclusive, write_json
from compiler_opt_perf.toolchain.installation import Toolchain

PROGRAMS = tuple(name for name in HELD_OUT if name not in ONLY_ONCE)
_RULE = next(iter(RULES))
_AUTOFDO, _PGO, _THIN = "AutoFDO", "PGO", "ThinLTO and PGO"
_BOTH = "both policies"
#: The first one is the compiler alone.
WAYS = (
    *("default", "threshold 500", "price 65536", "threshold 500 and price"),
    *(
        _RULE,
        f"{_RULE}, locals pinned",
        "rule 14 3000 100 225",
        "registers",
        "rule 14 3000 100 225 and registers",
    ),
    *(_BOTH, f"{_BOTH}, shuffled"),
    *("O3", f"O3 and {_BOTH}", f"O3 and {_BOTH}, shuffled"),
    *(_AUTOFDO, f"{_AUTOFDO} and registers", f"{_AUTOFDO} and rule"),
    *(f"{_AUTOFDO} and {_BOTH}", f"{_AUTOFDO} and {_BOTH}, shuffled"),
    *(_PGO, f"{_PGO} and price", f"{_PGO} and {_BOTH}"),
    *("ThinLTO", f"ThinLTO and {_BOTH}", _THIN, f"{_THIN} and price"),
    f"{_THIN} and price 262144",
    *(f"{_THIN} and registers", f"{_THIN} and registers, shuffled", f"{_THIN} and {_BOTH}"),
)
#: What a way adds: by column, the way and the one with which it is compared.
ADDED = {
    "what the profile adds": (_BOTH, f"{_BOTH}, shuffled"),
    "both policies add to O3": (f"O3 and {_BOTH}", "O3"),
    "what the profile adds at O3": (f"O3 and {_BOTH}", f"O3 and {_BOTH}, shuffled"),
    "registers add to AutoFDO": (f"{_AUTOFDO} and registers", _AUTOFDO),
    "the rule adds to AutoFDO": (f"{_AUTOFDO} and rule", _AUTOFDO),
    "both policies add to AutoFDO": (f"{_AUTOFDO} and {_BOTH}", _AUTOFDO),
    "both policies, shuffled, add to AutoFDO": (f"{_AUTOFDO} and {_BOTH}, shuffled", _AUTOFDO),
    "the price adds to PGO": (f"{_PGO} and price", _PGO),
    "both policies add to PGO": (f"{_PGO} and {_BOTH}", _PGO),
    "both policies add to ThinLTO": (f"ThinLTO and {_BOTH}", "ThinLTO"),
    "the price adds to ThinLTO and PGO": (f"{_THIN} and price", _THIN),
    "the price of 262144 adds to ThinLTO and PGO": (f"{_THIN} and price 262144", _THIN),
    "registers add to ThinLTO and PGO": (f"{_THIN} and registers", _THIN),
    "registers, shuffled, add to ThinLTO and PGO": (f"{_THIN} and registers, shuffled", _THIN),
    "both policies add to ThinLTO and PGO": (f"{_THIN} and {_BOTH}", _THIN),
}
#: The columns of the first table: of what part of the results, and their names there.
_SHOWN = {
    "both policies": ("changes", _BOTH),
    "both, shuffled profile": ("changes", f"{_BOTH}, shuffled"),
    "what the profile adds": ("added", "what the profile adds"),
    "both add to -O3": ("added", "both policies add to O3"),
    "what the profile adds at -O3": ("added", "what the profile adds at O3"),
}
_AGAINST_DEFAULT = {way: (way, WAYS[0]) for way in WAYS[1:]}


def study(
    programs: Sequence[str],
    folder: Path,
    toolchain: Toolchain,
    *,
    ways: Sequence[str] = WAYS,
    rounds: int = ROUNDS,
    layouts: int = LAYOUTS,
    processor: int = 0,
) -> list[Table]:
    """Times some of the `PROGRAMS` in some of the `WAYS`.

    Args:
      folder: for builds and results; `inline_speed` shares it, for its builds are the same.
      ways: the default is always among them.
      rounds: timed runs of each way, layout by layout.
      layouts: of each way; the place of a function may change its time more than its code.
      processor: number of the processor to which timed runs are bound.

    Returns:
      Tables of all results in the folder.

    Raises:
      CommandError: a compiler or a run failed.
      PmuError: the profile cannot be shuffled.
      BenchmarkError: programs of several ways compute different things, or a damaged result.
    """
    ways = [name for name in WAYS if name in ways or name == WAYS[0]]
    for program in programs:
        # Runs of a program write to the same files.
        with exclusive(folder / f"{program}.lock"):
            own = InlineBuilds(program, folder / program, toolchain)
            text = {name: text_bytes(own.layouts(name, layouts)[0]) for name in ways}
            times = own.timed(ways, rounds, processor, layouts)
            executed = {name: own.held_out_instructions(name) for name in ways}
            found = {
                "text": text,
                "executed": executed,
                "run_s": times.run_s,
                "rounds": len(times.seconds),
                "changes": times.changes(_AGAINST_DEFAULT),
                "added": times.changes(ADDED),
            }
            write_json(folder / f"{program} policies.json", found)
    return tables(saved(folder, PROGRAMS, " policies.json"))


def tables(results: Mapping[str, Mapping[str, Any]]) -> list[Table]:
    """Changes of time, instructions and text against the default, and what ways add.

    Changes of time have 95% intervals over layouts, and geometric means over other programs.
    """
    runs: dict[str, list[Cell]] = {}
    for name, row in results.items():
        # Half an interval is the change that the runs resolve.
        halves = [(high - low) / 2 for _, low, high in row["changes"].values()]
        resolves = statistics.median(halves) if halves else None
        runs[name] = [row["run_s"], row["rounds"], resolves]
    head = {"a run": "seconds:2", "rounds": "integer", "resolves": "percent:2"}
    none: dict[str, list[Cell]] = {name: [] for name in results}
    by_part = {
        part: {name: row[part] for name, row in results.items()}
        for part in ("changes", "added", "executed", "text")
    }
    shown = {
        name: {column: row[part][way] for column, (part, way) in _SHOWN.items() if way in row[part]}
        for name, row in results.items()
    }
    caption = (
        "Change of processor time against `-O2`, and against `-O3` in the columns of `-O3`. The "
        "inputs are ones by which nothing was chosen."
    )
    found = changes_table("time", caption, {}, none, shown, _SHOWN)
    caption = "Change of processor time against the default."
    found += changes_table("time-by-way", caption, head, runs, by_part["changes"], WAYS[1:])
    caption = "Change of processor time that a way adds to another."
    found += changes_table("time-added", caption, {}, none, by_part["added"], ADDED)
    for part, name, what in (
        ("executed", "instructions", "executed instructions"),
        ("text", "text", "bytes of text"),
    ):
        totals = by_part[part]
        first: dict[str, list[Cell]] = {name: [own[WAYS[0]]] for name, own in totals.items()}
        changes = counted_changes(totals, _AGAINST_DEFAULT)
        caption = f"Change of {what} against the default."
        found += changes_table(name, caption, {what: "integer"}, first, changes, WAYS[1:])
    changes = counted_changes(by_part["executed"], ADDED)
    caption = "Change of executed instructions that a way adds to another."
    found += changes_table("instructions-added", caption, {}, none, changes, ADDED)
    return found
