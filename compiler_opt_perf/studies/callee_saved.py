# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Is there a price of callee-saved registers to learn, function by function?

Programs are compiled with several prices of a callee-saved register's first use
(-regalloc-csr-first-time-cost). From one recorded run of each, `count` predicts what each function
executes at each price. A constant that is best for other programs needs no learning; the sum of
each function's least is the most that a price by function can give. Nothing is timed.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.execution.files import write_json
from compiler_opt_perf.execution.pool import Pool
from compiler_opt_perf.studies.common import saved
from compiler_opt_perf.studies.eviction_builds import LEVELS, Level, priced
from compiler_opt_perf.studies.workloads import COUNTED
from compiler_opt_perf.toolchain.installation import Toolchain

PROGRAMS = tuple(COUNTED)
#: In 2^14ths of a function's entry; the compiler's own is 0.
PRICES = (0, 1024, 4096, 16384, 65536, 262144, 1048576)


def study(
    programs: Sequence[str],
    output: Path,
    toolchain: Toolchain,
    *,
    levels: Sequence[str] = tuple(LEVELS),
) -> dict[str, Any]:
    """Compiles some of the `PROGRAMS` at some levels with all `PRICES`.

    Args:
      output: folder for builds and results.

    Returns:
      All results in the folder, by program and level ("lua O2"): by price, in decimals, the
      instructions of each function that executes any. For `tables`.

    Raises:
      CommandError: a compiler or a run failed.
      StudyError: a damaged result in the folder.
    """
    output = output.resolve()
    with Pool() as pool:
        for program in programs:
            for level in levels:
                build = Level(program, level, output / program / level, toolchain, pool)
                found = {str(price): build.predicted(priced(price)) for price in PRICES}
                write_json(output / f"{program} {level} prices.json", found)
    names = [f"{program} {level}" for program in PROGRAMS for level in LEVELS]
    return saved(output, names, " prices.json")


def costs(result: Mapping[str, Mapping[str, float]]) -> npt.NDArray[np.float64]:
    """A program's instructions, [functions, prices]."""
    names = sorted(set().union(*result.values()))
    return np.array([[result[str(price)].get(one, 0.0) for price in PRICES] for one in names])


def document(results: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[str, Any]:
    """The results as `--json` prints them: with the sums over the functions."""
    return {
        "results": {
            name: {
                price: {"instructions": sum(own.values()), "functions": own}
                for price, own in row.items()
            }
            for name, row in results.items()
        }
    }


def tables(results: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Changes of instructions in Markdown, a table a level."""
    head = ["program", "instructions", *(str(price) for price in PRICES[1:])]
    head += ["best constant", "best of the others", "best of each function", "functions with 90%"]
    lines: list[str] = []
    for level in LEVELS:
        rows = {name: costs(row) for name, row in results.items() if name.split(" ")[1] == level}
        if not rows:
            continue
        lines += ["", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
        logs = {name: np.log(cost.sum(0) / cost.sum(0)[0]) for name, cost in rows.items()}
        ends = []
        for name, cost in rows.items():
            others = [log for other, log in logs.items() if other != name]
            rest = int(np.argmin(np.mean(others, axis=0))) if others else 0
            best = int(np.argmin(logs[name]))
            gain = np.sort(cost[:, 0] - cost.min(1))[::-1]
            oracle = np.log(1 - gain.sum() / cost[:, 0].sum())
            # How many functions have nine tenths of what there is to gain.
            share = int(np.searchsorted(np.cumsum(gain), 0.9 * gain.sum())) + 1
            ends.append([*logs[name][1:], logs[name][best], logs[name][rest], oracle])
            cells = [name, f"{cost[:, 0].sum():,.0f}", *map(_change, ends[-1])]
            cells[-3] += f" ({PRICES[best]})"
            cells[-2] += f" ({PRICES[rest]})"
            lines.append(f"| {' | '.join(cells)} | {share} of {len(cost)} |")
        if len(rows) > 1:
            means = map(_change, np.mean(ends, axis=0))
            lines.append(f"| geometric mean, {level} | | {' | '.join(means)} | |")
    return "\n".join(lines[1:]) + "\n"


def _change(log: float) -> str:
    return f"{100 * np.expm1(log):+.2f}%"
