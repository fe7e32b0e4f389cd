# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What does each kind of PMU data add? By what rewards chose and taught, and by several judges.

For inlining and for callee-saved registers, of what the studies `inline_speed`, `inline_reward`,
`callee_saved_policy` and `callee_saved_time` left in their folders: nothing is compiled or run.
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
from compiler_opt_perf.studies.eviction_builds import LEVELS, REPLAYS, REWARDS
from compiler_opt_perf.studies.rounds import interval

ARMS = tuple(callee_saved_policy.ARMS)
#: Of a policy that nothing taught.
SHIPPED = "the shipped rule"
_INSTRUCTIONS, _CYCLES, _TIME = "instructions", "simulated cycles", "time"
_EXCHANGED = tuple(name for name, way in inline_builds.WAYS.items() if way.exchanged is not None)
_RULE = next(iter(inline_builds.RULES))
_FREE = ("default", *inline_builds.CONSTANTS, *inline_builds.CONTROLS)
# What can be chosen by those who see so much of the profile: less is always possible, too.
_CHOICES: dict[str, tuple[str, ...]] = {
    "none": _FREE,
    "counts only": (*_FREE, *inline_builds.RULES),
    "rates only": (*_FREE, *inline_builds.RATES),
    "all": (*_FREE, *inline_builds.RULES, *inline_builds.RATES, *inline_builds.BOTH),
}

#: By program and way, a cost in any unit.
_Costs = Mapping[str, Mapping[str, float]]
#: Of each arm, by program, the logarithm of the cost's change for each seed.
_Logs = dict[str, dict[str, list[float]]]


def study(inlining: Path, evictions: Path) -> dict[str, dict[str, Any]]:
    """The changes by each arm, of the results in the folders of the studies.

    Returns:
      By problem and judge ("inlining, time"), then by reward, its `programs`, and by arm of the
      cost in geometric mean over them the `changes`, one a seed, none where the studies have no
      such arm, and the ends of the 95% `interval` over programs, null of less than three. The
      baseline of all is the compiler's own policy.

    Raises:
      StudyError: a damaged result, or no column.
    """
    inlined = saved(inlining, inline_speed.PROGRAMS)
    learned = saved(evictions, callee_saved_policy.PROGRAMS, " policy.json")
    costs = {
        _INSTRUCTIONS: _of_ways(inlined, "instructions"),
        _CYCLES: {name: row["cycles"] for name, row in inlined.items() if "cycles" in row},
        _TIME: _seconds(inlining),
    }
    text = _of_ways(inlined, "text")
    tables: dict[str, dict[str, _Logs]] = {}
    for judge, judged in costs.items():
        own = {reward: _inlining(known, text, judged) for reward, known in costs.items()}
        tables[f"inlining, {judge}"] = {SHIPPED: _by_rule(judged), **own}
    judges = {
        judge: {name: row["changes"].get(judge, {}) for name, row in learned.items()}
        for judge in REPLAYS
    }
    judges[_TIME] = {name: _timed_changes(row) for name, row in learned.items()}
    for judge, changes in judges.items():
        tables[f"callee-saved registers, {judge}"] = {
            reward: _evictions(changes, reward) for reward in REWARDS
        }
    for level in LEVELS:
        title = f"callee-saved registers, {_TIME} at {level}"
        tables[title] = {SHIPPED: _timed(evictions, level)}
    found = {}
    for title, columns in tables.items():
        means = {reward: _means(logs) for reward, logs in columns.items()}
        if known := {reward: one for reward, one in means.items() if one["programs"]}:
            found[title] = known
    if not found:
        raise StudyError(
            f"{inlining}, {evictions}: no program has results with all, parts and none of the "
            "profile; run `cop study inline-speed` or `cop study callee-saved-policy` on two first"
        )
    return found


def _of_ways(inlined: Mapping[str, Mapping[str, Any]], what: str) -> dict[str, dict[str, float]]:
    return {
        name: {way: own[what] for way, own in row["ways"].items()} for name, row in inlined.items()
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


def _inlining(reward: _Costs, text: _Costs, judged: _Costs) -> _Logs:
    """Of each program, the way that costs the others least by the reward, text counted in."""
    logs: _Logs = {arm: {} for arm in ARMS}
    for program, own in judged.items():
        for arm, ways in _CHOICES.items():
            known = [name for name in ways if name in own]
            if arm != "none" and set(known) <= set(_FREE):
                continue
            if way := _chosen(reward, text, program, known):
                logs[arm][program] = [float(np.log(own[way] / own["default"]))]
        _add_exchanged(logs, program, own)
    return logs


def _chosen(reward: _Costs, text: _Costs, left_out: str, ways: Sequence[str]) -> str | None:
    """The best on those other programs that tried all of the ways; None where there is none."""
    others = [
        name
        for name, own in reward.items()
        if name != left_out and name in text and all(way in own for way in ways)
    ]
    return min(ways, key=lambda way: _loss(way, reward, text, others)) if others else None


def _loss(way: str, reward: _Costs, text: _Costs, programs: Sequence[str]) -> float:
    prices = ((reward, 1.0), (text, inline_speed.TEXT_PRICE))
    return sum(
        price * float(np.log(costs[name][way] / costs[name]["default"]))
        for costs, price in prices
        for name in programs
    )


def _by_rule(judged: _Costs) -> _Logs:
    """The shipped rule, which reads executions."""
    logs: _Logs = {arm: {} for arm in ARMS}
    for program, own in judged.items():
        logs["none"][program] = [0.0]
        if _RULE in own:
            logs["counts only"][program] = [float(np.log(own[_RULE] / own["default"]))]
        _add_exchanged(logs, program, own)
    return logs


def _add_exchanged(logs: _Logs, program: str, own: Mapping[str, float]) -> None:
    known = [own[name] for name in _EXCHANGED if name in own]
    if known:
        changes = [float(np.log(cost / own["default"])) for cost in known]
        logs["shuffled"][program] = changes


def _evictions(changes: Mapping[str, Mapping[str, Sequence[float]]], reward: str) -> _Logs:
    """Policies that learned by a reward, of what a judge says of all."""
    logs: _Logs = {arm: {} for arm in ARMS}
    for program, row in changes.items():
        for arm in ARMS:
            if own := row.get(f"{reward}, {arm}", ()):
                logs[arm][program] = np.log1p(own).tolist()
    return logs


def _timed_changes(row: Mapping[str, Any]) -> dict[str, list[float]]:
    """Of the first seed's policies, without the ends of intervals."""
    return {name: own[:1] for name, own in row.get("timed", {}).get("changes", {}).items()}


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
    ends: dict[str, list[float] | None] = dict.fromkeys(ARMS)
    for arm, own in known.items() if programs else ():
        seeds = min(len(own[name]) for name in programs)
        values = np.array([own[name][:seeds] for name in programs])
        changes[arm] = np.expm1(values.mean(axis=0)).tolist()
        found = interval(values.mean(axis=1))
        ends[arm] = found and np.expm1(found).tolist()
    return {"programs": programs, "changes": changes, "interval": ends}


def table(results: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """A table for each problem and judge, in Markdown: a row an arm, a column a reward.

    Means over the seeds with their 95% interval over programs, and in brackets the range of the
    seeds' means where there are several.
    """
    return "\n".join(_table(title, columns) for title, columns in results.items())


def _table(title: str, columns: Mapping[str, Mapping[str, Any]]) -> str:
    head = [title, *(f"by {reward}" for reward in columns)]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    cells = [str(len(column["programs"])) for column in columns.values()]
    lines.append(f"| programs | {' | '.join(cells)} |")
    for arm in ARMS:
        cells = [_cell(one["changes"][arm], one["interval"][arm]) for one in columns.values()]
        lines.append(f"| {arm} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(changes: Sequence[float], ends: Sequence[float] | None) -> str:
    if not changes:
        return "–"
    text = f"{np.expm1(np.mean(np.log1p(changes))):+.2%}"
    if ends:
        text += f" ({ends[0]:+.2%} to {ends[1]:+.2%})"
    return text if len(changes) == 1 else f"{text} [{min(changes):+.2%} to {max(changes):+.2%}]"
