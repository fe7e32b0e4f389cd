# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Is there a price of callee-saved registers to learn, function by function?

Programs are compiled with several prices of a callee-saved register's first use
(-regalloc-csr-first-time-cost). From one recorded run of each, `count` predicts what each function
executes at each price, and `mca-pmu` what cycles it takes. A constant that is best for other
programs needs no learning; the sum of each function's least is the most that a price by function
can give. Nothing is timed.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.cost.evaluator import difference_error
from compiler_opt_perf.execution.files import write_json
from compiler_opt_perf.execution.pool import Pool
from compiler_opt_perf.studies.common import saved
from compiler_opt_perf.studies.eviction_builds import COUNT, LEVELS, REPLAYS, Level, priced
from compiler_opt_perf.studies.workloads import COUNTED
from compiler_opt_perf.toolchain.installation import Toolchain

PROGRAMS = tuple(COUNTED)
#: In 2^14ths of a function's entry; the compiler's own is 0.
PRICES = (0, 1024, 4096, 16384, 65536, 262144, 1048576)

#: Of one program at one level by one evaluator: by price in decimals its `cost`, what `functions`
#: cost that cost anything, and the standard error of its `difference` from the default price, None
#: where there is none to estimate.
Prices = Mapping[str, Mapping[str, Any]]


def study(
    programs: Sequence[str],
    output: Path,
    toolchain: Toolchain,
    *,
    levels: Sequence[str] = tuple(LEVELS),
    evaluators: Sequence[str] = (COUNT,),
    cpu: Path | None = None,
    model: Path | None = None,
) -> dict[str, dict[str, Prices]]:
    """Compiles some of the `PROGRAMS` at some levels with all `PRICES`.

    Args:
      output: folder for builds and results.
      evaluators: some of the `REPLAYS`.
      cpu: CPU file, for evaluators that predict cycles.
      model: folder of a learned cost model, for `LEARNED`.

    Returns:
      All results in the folder, by evaluator, then by program and level ("lua O2"). For `tables`.

    Raises:
      CommandError: a compiler or a run failed.
      CostError: an evaluator needs a CPU file.
      LearnedError: the model is damaged, or does not know the CPU.
      StudyError: there is no model, or a damaged result in the folder.
    """
    output = output.resolve()
    with Pool() as pool:
        for program in programs:
            for level in levels:
                build = Level(program, level, output / program / level, toolchain, pool, cpu, model)
                for evaluator in evaluators:
                    costs = {price: build.predicted(priced(price), evaluator) for price in PRICES}
                    prices = {
                        str(price): {
                            "cost": cost.total,
                            "functions": cost.parts,
                            "difference": difference_error(cost, costs[0]),
                        }
                        for price, cost in costs.items()
                    }
                    write_json(output / f"{program} {level} {evaluator}.json", prices)
    names = [f"{program} {level}" for program in PROGRAMS for level in LEVELS]
    found = {evaluator: saved(output, names, f" {evaluator}.json") for evaluator in REPLAYS}
    return {evaluator: rows for evaluator, rows in found.items() if rows}


def by_function(prices: Prices) -> npt.NDArray[np.float64]:
    """A program's costs, [functions, prices]."""
    functions = [prices[str(price)]["functions"] for price in PRICES]
    names = sorted(set().union(*functions))
    return np.array([[own.get(name, 0.0) for own in functions] for name in names])


def tables(results: Mapping[str, Mapping[str, Prices]]) -> str:
    """Changes of costs in Markdown, a table an evaluator and level."""
    lines: list[str] = []
    for evaluator, found in results.items():
        for level in LEVELS:
            rows = {name: row for name, row in found.items() if name.split(" ")[1] == level}
            if rows:
                lines += ["", *_table(rows, level, f"{REPLAYS[evaluator]} ({evaluator})")]
    return "\n".join(lines[1:]) + "\n"


def _table(rows: Mapping[str, Prices], level: str, unit: str) -> list[str]:
    head = ["program", unit, *(str(price) for price in PRICES[1:])]
    head += ["best constant", "best of the others", "best of each function", "functions with 90%"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    costs = {name: by_function(row) for name, row in rows.items()}
    logs = {name: np.log(cost.sum(0) / cost.sum(0)[0]) for name, cost in costs.items()}
    ends = []
    for name, cost in costs.items():
        others = [log for other, log in logs.items() if other != name]
        rest = int(np.argmin(np.mean(others, axis=0))) if others else 0
        best = int(np.argmin(logs[name]))
        gain = np.sort(cost[:, 0] - cost.min(1))[::-1]
        oracle = np.log(1 - gain.sum() / cost[:, 0].sum())
        # How many functions have nine tenths of what there is to gain.
        share = int(np.searchsorted(np.cumsum(gain), 0.9 * gain.sum())) + 1
        ends.append([*logs[name][1:], logs[name][best], logs[name][rest], oracle])
        cells = [name, f"{cost[:, 0].sum():,.0f}", *map(_change, ends[-1])]
        for column, price in enumerate(PRICES[1:], 2):
            error = rows[name][str(price)]["difference"]
            if error is not None:
                cells[column] += f" ± {200 * error / rows[name]['0']['cost']:.2f}"
        cells[-3] += f" ({PRICES[best]})"
        cells[-2] += f" ({PRICES[rest]})"
        lines.append(f"| {' | '.join(cells)} | {share} of {len(cost)} |")
    if len(rows) > 1:
        means = map(_change, np.mean(ends, axis=0))
        lines.append(f"| geometric mean, {level} | | {' | '.join(means)} | |")
    return lines


def _change(log: float) -> str:
    return f"{100 * np.expm1(log):+.2f}%"
