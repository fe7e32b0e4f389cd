# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What does inlining cost beside instructions? A reward for speed, fitted on measured times.

Programs are compiled with many inlinings, those of `inline_builds`. Callgrind simulates caches and
a branch predictor in the profiled run; the clock times all in a run of another input. A linear
combination of what was simulated is fitted to the times of all programs but one, and judged on that
one, beside what it is made of.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from compiler_opt_perf.cost.ranking import Measured
from compiler_opt_perf.execution.files import write_json
from compiler_opt_perf.studies.common import percent, read_result
from compiler_opt_perf.studies.inline_builds import WAYS, InlineBuilds, Simulated
from compiler_opt_perf.studies.rounds import HEAD, ROUNDS, Rounds, described
from compiler_opt_perf.studies.variant_builds import LAYOUTS
from compiler_opt_perf.studies.workloads import JUDGED, ONLY_ONCE
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import exclusive

PROGRAMS = tuple(name for name in JUDGED if name not in ONLY_ONCE)
#: Inlining alone is another: counters and samples lay out code, too.
VARIANTS = tuple(n for n, way in WAYS.items() if not (way.sampled or way.counted or way.thin))

Floats = npt.NDArray[np.float64]

_TERMS: dict[str, tuple[str, ...]] = {
    "instructions": ("Ir",),
    "instruction misses": ("I1mr",),
    "mispredictions": ("Bcm", "Bim"),
    "data misses": ("D1mr", "D1mw"),
}
_LINES = "hot lines"
#: What rewards are made of.
TERMS = (*_TERMS, _LINES)
# Lines that a first-level instruction cache of 32 KiB has.
_CACHE_LINES = 512
FITTED = "fitted on the others"
_ESTIMATE = "callgrind's estimate"
#: Rewards, by the weights of their terms; that of callgrind in instructions, but for misses of the
#: last level.
REWARDS = {
    "instructions": np.array([1.0, 0, 0, 0, 0]),
    _ESTIMATE: np.array([1.0, 10, 10, 10, 0]),
}
# Against weights of terms of which times tell little, as a share of what they tell on average.
_RIDGE = 0.05


class Result(msgspec.Struct, frozen=True):
    """One program.

    Attributes:
      terms: by way, what was simulated against the default, in the order of `TERMS`: per executed
        instruction of the default; hot lines as a share of the cache.
      rounds: the times of the same ways; the default is the first.
    """

    terms: dict[str, list[float]]
    rounds: Rounds


def study(
    programs: Sequence[str],
    output: Path,
    toolchain: Toolchain,
    *,
    ways: Sequence[str] = VARIANTS,
    rounds: int = ROUNDS,
    layouts: int = LAYOUTS,
    processor: int = 0,
) -> dict[str, Any]:
    """Simulates and times some of the `PROGRAMS` in some of the `VARIANTS`.

    Args:
      output: folder of the study `inline_speed`, whose builds are the same.
      ways: the default is always among them.
      rounds: timed runs of each way, layout by layout.
      layouts: of each way; where a function lies may change its time more than what it executes.
      processor: number of the processor that timed runs are bound to.

    Returns:
      Of all results in the folder, what `judge` returns. For `tables`.

    Raises:
      CommandError: a compiler or a run failed.
      StudyError: programs of several ways compute different things, or a damaged result.
    """
    output = output.resolve()
    ways = [name for name in VARIANTS if name in ways or name == VARIANTS[0]]
    for program in programs:
        with exclusive(output / f"{program}.lock"):
            own = InlineBuilds(program, output / program, toolchain)
            simulated = {name: own.simulated(name) for name in ways}
            times = own.timed("reward-rounds", ways, rounds, processor, layouts)
            terms = {name: _terms(one, simulated[ways[0]]) for name, one in simulated.items()}
            write_json(output / f"{program} reward.json", msgspec.to_builtins(Result(terms, times)))
    paths = {name: output / f"{name} reward.json" for name in PROGRAMS}
    return judge({n: read_result(path, Result) for n, path in paths.items() if path.is_file()})


def _terms(one: Simulated, default: Simulated) -> list[float]:
    executed = default.events["Ir"]
    changes = [
        sum(one.events[event] - default.events[event] for event in events) / executed
        for events in _TERMS.values()
    ]
    return [*changes, (one.hot_lines - default.hot_lines) / _CACHE_LINES]


def judge(results: Mapping[str, Result]) -> dict[str, Any]:
    """Fits rewards, and compares them with the times of programs that they were not fitted on.

    Returns:
      `weights`, by name of the program that was left out, and of all under "", by term; and by
      name of the program in `programs`: `run_s`, `rounds`, `variants`, `resolved` pairs of them
      and all `pairs`; and by reward `tau` over resolved pairs, if there are any, with the ends of
      its 95% interval, the root of the mean squared `error` of predicted changes of time, and the
      measured change of `time` of the variant that it calls best. `best` is the fastest variant and
      its change; `ways` has the changes of all, with the ends of 95% intervals.
    """
    terms = {name: np.array(list(row.terms.values())) for name, row in results.items()}
    measured = {name: row.rounds.measured() for name, row in results.items()}
    times = {name: one.log_time - one.log_time[0] for name, one in measured.items()}
    fitted = {
        left_out: _fit([(terms[name], times[name]) for name in results if name != left_out])
        for left_out in ("", *(results if len(results) > 1 else ()))
    }
    programs = {}
    for name, row in results.items():
        rewards = {**REWARDS, **({FITTED: fitted[name]} if name in fitted else {})}
        programs[name] = _row(row, terms[name], measured[name], times[name], rewards)
    weights = {name: dict(zip(TERMS, own.tolist(), strict=True)) for name, own in fitted.items()}
    return {"weights": weights, "programs": programs}


def _row(
    result: Result, terms: Floats, measured: Measured, times: Floats, rewards: Mapping[str, Floats]
) -> dict[str, Any]:
    names = list(result.terms)
    best = int(np.argmin(times))
    against = result.rounds.against_first()
    row: dict[str, Any] = {
        **{key: against[key] for key in ("run_s", "rounds")},
        "variants": len(names),
        "pairs": len(names) * (len(names) - 1) // 2,
        "resolved": measured.resolved_pairs(),
        "best": {"name": names[best], "time": float(np.expm1(times[best]))},
        "ways": against["changes"],
        "rewards": {},
    }
    for name, weights in rewards.items():
        predicted = terms @ weights
        tau = measured.resolved_tau(predicted)
        chosen = int(np.argmin(predicted))
        row["rewards"][name] = {
            "tau": [tau.value, tau.low, tau.high] if row["resolved"] else None,
            "error": float(np.sqrt(np.mean((predicted - times)[1:] ** 2))),
            "best": names[chosen],
            "time": float(np.expm1(times[chosen])),
        }
    return row


def _fit(rows: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Weights of at least 0; each program counts as much as any other.

    Ridge regression: of terms that hardly vary, little is told by their times.
    """
    if not rows:
        return np.zeros(len(TERMS))
    scale = np.sqrt(np.mean([np.mean(terms**2, axis=0) for terms, _ in rows], axis=0)) + 1e-12
    left = [terms / scale / np.sqrt(len(times)) for terms, times in rows]
    right = [times / np.sqrt(len(times)) for _, times in rows]
    left.append((_RIDGE * len(rows)) ** 0.5 * np.eye(len(TERMS)))
    right.append(np.zeros(len(TERMS)))
    weights, _ = nnls(np.concatenate(left), np.concatenate(right))
    return np.asarray(weights / scale, np.float64)


def tables(found: Mapping[str, Any]) -> str:
    """Weights, and what each reward tells of each program, in Markdown."""
    head = ["left out", *TERMS]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, own in found["weights"].items():
        cells = [f"{own[term]:.3g}" for term in TERMS]
        lines.append(f"| {' | '.join([name or 'none', *cells])} |")
    rewards = [*REWARDS, FITTED]
    head = ["program", *HEAD, "resolved pairs", "fastest"]
    head += [f"{what}: {name}" for what in ("tau", "error", "its best") for name in rewards]
    lines += ["", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for program, row in found["programs"].items():
        cells = [program, *described({**row, "changes": row["ways"]})]
        cells += [f"{row['resolved']} of {row['pairs']}"]
        cells += [f"{row['best']['name']}, {row['best']['time']:+.2%}"]
        known = [row["rewards"].get(name) for name in rewards]
        cells += [_tau(one["tau"] if one else None) for one in known]
        cells += [f"{one['error']:.2%}" if one else "–" for one in known]
        cells += [f"{one['best']}, {one['time']:+.2%}" if one else "–" for one in known]
        lines.append(f"| {' | '.join(cells)} |")
    rows = found["programs"].values()
    lines += ["", f"| way | {' | '.join(found['programs'])} |", "|---" * (1 + len(rows)) + "|"]
    for way in dict.fromkeys(name for row in rows for name in row["ways"]):
        known = [row["ways"].get(way) for row in rows]
        cells = [percent(one) if one else "–" for one in known]
        lines.append(f"| {' | '.join([way, *cells])} |")
    return "\n".join(lines) + "\n"


def _tau(tau: Sequence[float] | None) -> str:
    return "–" if tau is None else "{:.2f} ({:.2f} to {:.2f})".format(*tau)
