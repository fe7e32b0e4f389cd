# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The machine outliner where it leaves hot blocks alone: text, executed instructions, and time.

An outlined sequence mostly executes a call and a return more. In a hot loop that is many times, for
as many bytes as anywhere else. The compiler estimates how often each block runs in a call of its
function; the outliner leaves alone those above a limit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.changes import changes_table, mean_change, percent_change
from benchmarks.programs.workloads import HELD_OUT, ONLY_ONCE
from benchmarks.results import Cell, Interval, Table
from benchmarks.size_builds import UNSEEN, Builds, Sizes, purpose
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.trial.ways import PLAIN, Way

PROGRAMS = tuple(HELD_OUT)
#: Runs of a block in a call of its function, at most; 0 is no limit.
LIMITS = (0, 32, 16, 8, 4, 0.5)
_TIMED = (0, 8, 0.5)


_WAYS = {
    limit: Way(f"limit-{limit:g}", outliner=True, outlined_runs=round(100 * limit))
    for limit in LIMITS
}


@dataclass(frozen=True)
class Outcome:
    """What the outliner changes in a program against plain -Oz, in percent.

    Attributes:
      text, file, executed: by limit.
      times: of the limits that were timed; empty if nothing was.
    """

    text: Mapping[float, float]
    file: Mapping[float, float]
    executed: Mapping[float, float]
    times: Mapping[float, Interval]


def tables(found: Mapping[str, Outcome]) -> list[Table]:
    """Means by limit, and all programs.

    Args:
      found: by program.
    """
    return [_limits(found), *_programs(found)]


def _limits(found: Mapping[str, Outcome]) -> Table:
    """Of programs by which the limit was chosen, and of those that judge it."""
    rows: list[list[Cell]] = []
    for label, judges in (("chose the limit", False), ("judge it", True)):
        own = [one for name, one in found.items() if (purpose(name) in UNSEEN) == judges]
        for limit in LIMITS if own else ():
            means = [
                mean_change([changes[limit] for changes in kind])
                for kind in zip(*((one.text, one.file, one.executed) for one in own), strict=True)
            ]
            rows.append([label, len(own), _named(limit), *means])
    columns = {"programs that": "text", "programs": "integer", "limit": "text"}
    columns |= dict.fromkeys(("text", "file", "executed"), "percent:+2")
    caption = (
        "Change of linked text, stripped file and executed instructions by the outliner against "
        "plain `-Oz`, by how often a block may run in a call of its function: geometric means."
    )
    return Table.of("limits", caption, columns, rows)


def _programs(found: Mapping[str, Outcome]) -> list[Table]:
    facts: dict[str, list[Cell]] = {name: [purpose(name)] for name in found}
    changes = {}
    for name, one in found.items():
        own: dict[str, float | Interval] = {}
        for kind, by_limit in (("text", one.text), ("executed", one.executed), ("time", one.times)):
            own |= {f"{kind}, {_named(limit)}": by_limit[limit] for limit in _TIMED if by_limit}
        changes[name] = own
    caption = (
        "Changes by program, without a limit, with that of `cop try --size`, 8, and with 0.5. "
        "Time is processor time, with 95% intervals over layouts."
    )
    columns = [
        f"{kind}, {_named(limit)}" for kind in ("text", "executed", "time") for limit in _TIMED
    ]
    return changes_table("programs", caption, {"training": "text"}, facts, changes, columns)


def _named(limit: float) -> str:
    return f"{limit:g}" if limit else "no limit"


def study(
    programs: Sequence[str],
    folder: Path,
    toolchain: Toolchain,
    rounds: int,
    processor: int,
    *,
    prepare: bool,
) -> list[Table]:
    """Builds the given `PROGRAMS` with each of the `LIMITS`, counts and times their runs.

    Args:
      rounds, processor: of the timed runs.
      prepare: all but the times.

    Raises:
      CommandError: a build or a run failed.
    """
    built: dict[str, tuple[Builds, dict[str, Sizes]]] = {}
    counts: dict[str, dict[str, int]] = {}
    for program in programs:
        builds = Builds(program, folder / program, toolchain)
        own = {way.name: builds.size_of(way) for way in (PLAIN, *_WAYS.values())}
        built[program] = builds, own
        counts[program] = builds.executed(own, list(own))
    found = {}
    for program, (builds, own) in built.items():
        times = {}
        if not prepare and program not in ONLY_ONCE:
            timed = [PLAIN, *(_WAYS[limit] for limit in _TIMED)]
            measured = builds.times(timed, own, rounds, processor)
            times = {limit: measured[_WAYS[limit].name] for limit in _TIMED}
        found[program] = Outcome(
            _changes({name: one.text for name, one in own.items()}),
            _changes({name: one.file for name, one in own.items()}),
            _changes(counts[program]),
            times,
        )
    return tables(found)


def _changes(figures: Mapping[str, int]) -> dict[float, float]:
    """By limit, against plain, in percent."""
    plain = figures[PLAIN.name]
    return {limit: percent_change(figures[way.name], plain) for limit, way in _WAYS.items()}
