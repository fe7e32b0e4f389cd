# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What does a PMU profile add to inlining for speed?

Programs are compiled in the ways of `inline_builds`. Callgrind counts what each executes in the
profiled run, and some ways in a run of another input; it can simulate caches and a branch
predictor, too. Some programs are timed as well, in that other run.

A rule is chosen for each program by what it gains on all others.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from compiler_opt_perf.run.files import write_json
from compiler_opt_perf.studies.common import percent, saved
from compiler_opt_perf.studies.inline_builds import (
    BOTH,
    CONSTANTS,
    CONTROLS,
    PARTS,
    RATES,
    RULES,
    WAYS,
    InlineBuilds,
)
from compiler_opt_perf.studies.rounds import HEAD, described
from compiler_opt_perf.studies.workloads import COUNTED, TIMED
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import exclusive

PROGRAMS = tuple(COUNTED)
# How much of the executed instructions a rule may give for all of the text, when one is chosen.
TEXT_PRICE = 0.02

_SHIPPED_NAME = next(iter(RULES))
#: Those that are judged on another input than the profile's, by counts and by times; the first
#: against all others.
_THIN = tuple(name for name, way in WAYS.items() if way.thin)
JUDGED_WAYS = (
    *("default", "threshold 500", _SHIPPED_NAME, "AutoFDO", "PGO", "PGO and rule"),
    *_THIN,
)
#: What the rule adds to a way that is not the default: it with the rule, and without.
_ADDED = {
    f"the rule adds to {without}": (f"{without} and rule", without)
    for without in ("PGO", "ThinLTO", "ThinLTO and PGO")
}


def study(
    programs: Sequence[str],
    output: Path,
    toolchain: Toolchain,
    *,
    ways: Sequence[str] = tuple(WAYS),
    judge: bool = True,
    cycles: bool = False,
    rounds: int = 0,
    processor: int = 0,
) -> dict[str, Any]:
    """Compiles some of the `PROGRAMS` in some of the `WAYS` and counts what they execute.

    Another study in the same folder waits for each program's turn.

    Args:
      output: folder for builds and results; what is there is not done again.
      judge: count with the other input, too, which is a longer run of some programs.
      cycles: simulate caches and a branch predictor, too; four times as long as counting.
      rounds: timed runs of each way, of programs that have one to time; 0 for none.
      processor: number of the processor that timed runs are bound to.

    Returns:
      All results in the folder, by program: `ways`, by name instructions and bytes; `judged`, by
      name instructions with another input; with `cycles` these by name; with timed runs `times`, as
      `Rounds.against_first`. For `tables`.

    Raises:
      CommandError: a compiler or a run failed.
      StudyError: programs of several ways compute different things, or a damaged result.
    """
    output = output.resolve()
    ways = [name for name in WAYS if name in ways or name == "default"]
    for program in programs:
        # Runs of a program write to the same files.
        with exclusive(output / f"{program}.lock"):
            own = InlineBuilds(program, output / program, toolchain)
            found = {name: msgspec.to_builtins(own.executed(name)) for name in ways}
            result = saved(output, [program]).get(program, {})
            result["ways"] = {**result.get("ways", {}), **found}
            to_judge = [name for name in JUDGED_WAYS if name in ways]
            if judge:
                judged = {name: own.judged_instructions(name) for name in to_judge}
                result["judged"] = {**result.get("judged", {}), **judged}
            if cycles:
                simulated = {name: own.cycles(name) for name in ways}
                result["cycles"] = {**result.get("cycles", {}), **simulated}
            if rounds and program in TIMED:
                measured = own.timed("rounds", to_judge, rounds, processor)
                result["times"] = measured.against_first()
            write_json(output / f"{program}.json", result)
    return saved(output, PROGRAMS)


def chosen(
    results: Mapping[str, Mapping[str, Any]], left_out: str, rules: Iterable[str] = tuple(RULES)
) -> str | None:
    """The name of the rule that is best on all programs but one, of those that have any.

    None if none was tried there.
    """
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


def changes(results: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """By program, what the shipped rule changes of the default's instructions and text."""
    found = {}
    for name, row in results.items():
        default, rule = (row["ways"][way] for way in ("default", _SHIPPED_NAME))
        found[name] = {key: rule[key] / default[key] - 1 for key in ("instructions", "text")}
    return found


def tables(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Changes of instructions and of text against the default, and of time, in Markdown."""
    rows = {name: row["ways"] for name, row in results.items()}
    rivals: dict[str, _Column] = {
        **{name: _same(name) for name in CONSTANTS},
        "rule chosen by the others": lambda program: (chosen(results, program), "default"),
        **{name: _same(name) for name in (_SHIPPED_NAME, "AutoFDO", "PGO", "PGO and rule")},
    }
    others = [name for name in RULES if name != _SHIPPED_NAME]
    parts = {name: _same(name) for name in (_SHIPPED_NAME, *PARTS)}
    kinds = {name: _same(name) for name in (_SHIPPED_NAME, *RATES, *BOTH, *CONTROLS)}
    thin = {name: _same(name) for name in _THIN}
    added = {column: _same(*pair) for column, pair in _ADDED.items()}
    found = [_table(rows, rivals, with_base=True)]
    for columns in (parts, kinds, {name: _same(name) for name in others}, thin | added):
        found.append(_table(rows, columns))
    against_default = {name: (name, "default") for name in WAYS if name != "default"}
    judged = {name: row["judged"] for name, row in results.items() if "judged" in row}
    if judged:
        found.append(_counts_table(judged, "instructions, other input", against_default | _ADDED))
    cycles = {name: row["cycles"] for name, row in results.items() if "cycles" in row}
    if cycles:
        found.append(_counts_table(cycles, "cycles, simulated", against_default))
    timed = {name: row["times"] for name, row in results.items() if "times" in row}
    if timed:
        found.append(_times_table(timed))
    return "\n".join("".join(f"{line}\n" for line in lines) for lines in found if lines)


# Of a program's name: the way that a column shows, and the one that it is compared with.
_Column = Callable[[str], tuple[str | None, str]]


def _same(name: str, base: str = "default") -> _Column:
    return lambda _: (name, base)


def _table(
    rows: Mapping[str, Mapping[str, Mapping[str, int]]],
    columns: Mapping[str, _Column],
    *,
    with_base: bool = False,
) -> list[str]:
    """Of each program "instructions / text", and the geometric means; columns that are known."""
    columns = {
        name: ways_of
        for name, ways_of in columns.items()
        if any(ways.keys() >= set(ways_of(program)) for program, ways in rows.items())
    }
    if not columns and not with_base:
        return []
    base = ["instructions", "bytes of text"] if with_base else []
    head = ["program", *base, *columns]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    logs: dict[str, list[tuple[float, float]]] = {name: [] for name in columns}
    for program, ways in rows.items():
        default = ways["default"]
        cells = [program]
        cells += [f"{default['instructions']:,}", f"{default['text']:,}"] if with_base else []
        for column, ways_of in columns.items():
            way, other = (ways.get(name or "") for name in ways_of(program))
            if way is None or other is None:
                cells.append("–")
                continue
            pair = tuple(float(np.log(way[key] / other[key])) for key in ("instructions", "text"))
            logs[column].append((pair[0], pair[1]))
            cells.append(_pair(pair))
        lines.append(f"| {' | '.join(cells)} |")
    if len(rows) > 1:
        means = [
            _pair(np.mean(own, axis=0)) if len(own) == len(rows) else "–" for own in logs.values()
        ]
        lines.append(f"| geometric mean |{' |' * len(base)} {' | '.join(means)} |")
    return lines


def _pair(logs: Sequence[float] | npt.NDArray[np.float64]) -> str:
    return " / ".join(f"{100 * np.expm1(one):+.2f}%" for one in logs)


def _counts_table(
    counts: Mapping[str, Mapping[str, int]], what: str, pairs: Mapping[str, tuple[str, str]]
) -> list[str]:
    """Changes of what is counted, by column of a way from another; columns that are known."""
    changes = {
        column: {
            program: row[name] / row[base]
            for program, row in counts.items()
            if name in row and base in row
        }
        for column, (name, base) in pairs.items()
    }
    changes = {column: own for column, own in changes.items() if own}
    head = ["program", what, *changes]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for program, row in counts.items():
        cells = [program, f"{row['default']:,}"]
        cells += [f"{own[program] - 1:+.2%}" if program in own else "–" for own in changes.values()]
        lines.append(f"| {' | '.join(cells)} |")
    if len(counts) > 1:
        means = [
            f"{np.expm1(np.mean(np.log(list(own.values())))):+.2%}"
            if len(own) == len(counts)
            else "–"
            for own in changes.values()
        ]
        lines.append(f"| geometric mean | | {' | '.join(means)} |")
    return lines


def _times_table(timed: Mapping[str, Mapping[str, Any]]) -> list[str]:
    names = list(dict.fromkeys(itertools.chain(*(row["changes"] for row in timed.values()))))
    head = ["program", *HEAD, *names]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for program, row in timed.items():
        cells = [program, *described(row)]
        for name in names:
            change = row["changes"].get(name)
            cells.append("–" if change is None else percent(change))
        lines.append(f"| {' | '.join(cells)} |")
    if len(timed) > 1:
        means = [
            np.expm1(np.mean([np.log1p(row["changes"][name][0]) for row in timed.values()]))
            for name in names
        ]
        lines.append(f"| geometric mean | | | | {' | '.join(f'{one:+.2%}' for one in means)} |")
    return lines
