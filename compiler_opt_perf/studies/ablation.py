# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What does each kind of PMU data add? One table for inlining and for callee-saved registers.

Of what the studies `inline_speed`, `inline_reward`, `callee_saved_policy` and `callee_saved_time`
left in their folders: nothing is compiled or run.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler_opt_perf.studies import (
    callee_saved_policy,
    callee_saved_time,
    inline_builds,
    inline_reward,
    inline_speed,
)
from compiler_opt_perf.studies.common import StudyError, read_result, saved
from compiler_opt_perf.studies.eviction_builds import LEVELS, REWARDS

ARMS = tuple(callee_saved_policy.ARMS)
_EXCHANGED = tuple(name for name, way in inline_builds.WAYS.items() if way.exchanged is not None)

#: Of each arm, by program, the logarithm of the cost's change for each seed.
_Logs = dict[str, dict[str, list[float]]]


def study(inlining: Path, evictions: Path) -> dict[str, Any]:
    """The changes by each arm, of the results in the folders of the two studies.

    Returns:
      By column ("inlining, instructions"), its `programs` and by arm the geometric mean over them
      of the cost's `changes`, one a seed, none where the study has no such arm. The baseline of all
      is the compiler's own policy.

    Raises:
      StudyError: a damaged result, or no column.
    """
    inlined = saved(inlining, inline_speed.PROGRAMS)
    learned = saved(evictions, callee_saved_policy.PROGRAMS, " policy.json")
    columns = {
        "inlining, instructions": _inlining(inlined, _instructions(inlined)),
        "inlining, simulated cycles": _inlining(
            inlined, {name: row["cycles"] for name, row in inlined.items() if "cycles" in row}
        ),
        "inlining, time": _inlining(inlined, _seconds(inlining)),
        **{f"callee-saved registers, {reward}": _evictions(learned, reward) for reward in REWARDS},
        **{
            f"callee-saved registers, time at {level}": _timed(evictions, level) for level in LEVELS
        },
    }
    means = {name: _means(logs) for name, logs in columns.items()}
    found = {name: column for name, column in means.items() if column["programs"]}
    if not found:
        raise StudyError(
            f"{inlining}, {evictions}: no program has results with all, parts and none of the "
            "profile; run `cop study inline-speed` or `cop study callee-saved-policy` on two first"
        )
    return found


def _instructions(inlined: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    return {
        name: {way: own["instructions"] for way, own in row["ways"].items()}
        for name, row in inlined.items()
    }


def _seconds(folder: Path) -> dict[str, dict[str, float]]:
    """By program, what each way takes of the mean of all."""
    paths = {name: folder / f"{name} reward.json" for name in inline_reward.PROGRAMS}
    found = {
        name: read_result(path, inline_reward.Result).rounds
        for name, path in paths.items()
        if path.is_file()
    }
    return {
        name: dict(zip(rounds.variants, np.exp(rounds.measured().log_time).tolist(), strict=True))
        for name, rounds in found.items()
    }


def _inlining(
    results: Mapping[str, Mapping[str, Any]], costs: Mapping[str, Mapping[str, float]]
) -> _Logs:
    """Rules with a number to choose have the one that is best for the other programs."""
    logs: _Logs = {arm: {} for arm in ARMS}
    shipped = next(iter(inline_builds.RULES))
    for program, own in costs.items():
        ways: dict[str, Sequence[str | None]] = {
            "none": ["default"],
            "counts only": [shipped],
            "rates only": [inline_speed.chosen(results, program, inline_builds.RATES)],
            "all": [inline_speed.chosen(results, program, inline_builds.BOTH)],
            "shuffled": _EXCHANGED,
        }
        for arm, names in ways.items():
            known = [own[name] for name in names if name is not None and name in own]
            if known:
                logs[arm][program] = [float(np.log(cost / own["default"])) for cost in known]
    return logs


def _evictions(learned: Mapping[str, Mapping[str, Any]], reward: str) -> _Logs:
    """Policies that learned by the reward that judges them."""
    logs: _Logs = {arm: {} for arm in ARMS}
    for program, row in learned.items():
        for arm in ARMS:
            changes = row["changes"].get(reward, {}).get(f"{reward}, {arm}", ())
            if changes:
                logs[arm][program] = np.log1p(changes).tolist()
    return logs


def _timed(folder: Path, level: str) -> _Logs:
    """The shipped policy, which reads executions, and the constant price that its number is."""
    ways = {
        "none": str(callee_saved_policy.CONSTANT),
        "counts only": callee_saved_time.POLICY,
        "shuffled": callee_saved_time.SHUFFLED,
    }
    names = {f"{name} {level}": name for name in callee_saved_time.PROGRAMS}
    found = saved(folder, names, " judged.json")
    logs: _Logs = {arm: {} for arm in ARMS}
    for arm, way in ways.items():
        for name, row in found.items():
            if "changes" in row:
                logs[arm][names[name]] = [float(np.log1p(row["changes"][way][0]))]
    return logs


def _means(logs: _Logs) -> dict[str, Any]:
    """Over the programs that have all arms that any has, of as many seeds as all have."""
    known = {arm: own for arm, own in logs.items() if own}
    programs = [
        name
        for name in known.get(ARMS[0], ())
        if len(known) > 1 and all(name in own for own in known.values())
    ]
    changes: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for arm, own in known.items() if programs else ():
        seeds = min(len(own[name]) for name in programs)
        means = np.mean([own[name][:seeds] for name in programs], axis=0)
        changes[arm] = np.expm1(means).tolist()
    return {"programs": programs, "changes": changes}


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The means over the seeds, with their range where there are several, in Markdown."""
    head = ["PMU features", *results]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    cells = [str(len(column["programs"])) for column in results.values()]
    lines.append(f"| programs | {' | '.join(cells)} |")
    for arm in ARMS:
        cells = [_cell(column["changes"][arm]) for column in results.values()]
        lines.append(f"| {arm} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(changes: Sequence[float]) -> str:
    if not changes:
        return "–"
    text = f"{np.expm1(np.mean(np.log1p(changes))):+.2%}"
    return text if len(changes) == 1 else f"{text} ({min(changes):+.2%} to {max(changes):+.2%})"
