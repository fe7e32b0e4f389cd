# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Do programs run faster by the policies in models/, beside what any clang offers?

Programs are compiled by the policies for inlining and for callee-saved registers, each alone and
both together, by the best constants, by AutoFDO, PGO and ThinLTO, and by these with the policies.
They run on inputs that were neither profiled nor chosen by, interleaved and on one processor, in
several layouts of their functions; and once under callgrind, for the instructions that they
execute.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.run.files import write_json
from compiler_opt_perf.studies.common import saved
from compiler_opt_perf.studies.inline_builds import RULES, InlineBuilds
from compiler_opt_perf.studies.rounds import HEAD, ROUNDS, changes_table, described
from compiler_opt_perf.studies.variant_builds import LAYOUTS
from compiler_opt_perf.studies.workloads import HELD_OUT, ONLY_ONCE
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import exclusive

PROGRAMS = tuple(name for name in HELD_OUT if name not in ONLY_ONCE)
_RULE = next(iter(RULES))
_AUTOFDO, _PGO, _THIN = "AutoFDO", "PGO", "ThinLTO and PGO"
_BOTH = "both policies"
#: The first is the compiler's own.
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
#: What is added to a way: of each column, the way and the one that it is compared with.
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


def study(
    programs: Sequence[str],
    output: Path,
    toolchain: Toolchain,
    *,
    ways: Sequence[str] = WAYS,
    rounds: int = ROUNDS,
    layouts: int = LAYOUTS,
    processor: int = 0,
) -> dict[str, Any]:
    """Times some of the `PROGRAMS` in some of the `WAYS`.

    Args:
      output: folder of the study `inline_speed`, whose builds are the same.
      ways: the default is always among them.
      rounds: timed runs of each way, layout by layout.
      layouts: of each way; where a function lies may change its time more than what it executes.
      processor: number of the processor that timed runs are bound to.

    Returns:
      All results in the folder, by program: `text`, linked bytes by way; `executed`, instructions
      by way; what `Rounds.against_first` returns; and by column of `ADDED` what is `added`, as
      `Rounds.changes` returns it. For `tables`.

    Raises:
      CommandError: a compiler or a run failed.
      PmuError: the profile cannot be shuffled.
      StudyError: programs of several ways compute different things, or a damaged result.
    """
    output = output.resolve()
    ways = [name for name in WAYS if name in ways or name == WAYS[0]]
    for program in programs:
        # Runs of a program write to the same files.
        with exclusive(output / f"{program}.lock"):
            own = InlineBuilds(program, output / program, toolchain, held_out=True)
            text = {name: text_bytes(own.layouts(name, layouts)[0]) for name in ways}
            times = own.timed("policies-rounds", ways, rounds, processor, layouts)
            executed = {name: own.judged_instructions(name) for name in ways}
            found = {
                "text": text,
                "executed": executed,
                **times.against_first(),
                "added": times.changes(ADDED),
            }
            write_json(output / f"{program} policies.json", found)
    return saved(output, PROGRAMS, " policies.json")


def tables(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Changes of time, of instructions and of text against the default, and what ways add.

    In Markdown. Those of time have 95% intervals, and geometric means have some over other programs
    of the kind.
    """
    runs = {name: described(row) for name, row in results.items()}
    times, added = (
        {name: row[part] for name, row in results.items()} for part in ("changes", "added")
    )
    found = [
        changes_table(HEAD, runs, times, WAYS[1:]),
        changes_table([], {name: [] for name in results}, added, ADDED),
    ]
    to_default = {way: (way, WAYS[0]) for way in WAYS[1:]}
    for part, head in (("executed", "instructions"), ("text", "bytes of text")):
        totals = {name: row[part] for name, row in results.items()}
        first = {name: [f"{own[WAYS[0]]:,}"] for name, own in totals.items()}
        found.append(changes_table([head], first, _changes(totals, to_default), WAYS[1:]))
        if part == "executed":
            found.append(changes_table([head], first, _changes(totals, ADDED), ADDED))
    return "\n".join("".join(f"{line}\n" for line in lines) for lines in found if lines)


def _changes(
    totals: Mapping[str, Mapping[str, int]], pairs: Mapping[str, tuple[str, str]]
) -> dict[str, dict[str, list[float]]]:
    """By program and name of a pair, the change from its second way to its first."""
    return {
        name: {
            column: [own[one] / own[other] - 1]
            for column, (one, other) in pairs.items()
            if one in own and other in own
        }
        for name, own in totals.items()
    }
