# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Do programs run faster at a price of callee-saved registers?

What `callee_saved` predicts in instructions, in processor time: programs as users compile them run
at several prices, interleaved and on one processor, in several layouts of their functions
(`rounds`). The builds are those of the other studies of evictions; the runs are longer ones, of
other inputs, which no counters are of.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler_opt_perf.execution.files import sha256, write_json
from compiler_opt_perf.execution.pool import Pool
from compiler_opt_perf.studies.common import saved
from compiler_opt_perf.studies.eviction_builds import LEVELS, Level, priced
from compiler_opt_perf.studies.rounds import ROUNDS, run_rounds
from compiler_opt_perf.studies.workloads import TIMED
from compiler_opt_perf.toolchain.installation import Toolchain

PROGRAMS = tuple(TIMED)
#: Among them the best constants by instructions, with counters and without.
PRICES = (0, 16384, 65536, 262144)


def study(
    programs: Sequence[str],
    output: Path,
    toolchain: Toolchain,
    *,
    levels: Sequence[str] = tuple(LEVELS),
    rounds: int = ROUNDS,
    processor: int,
) -> dict[str, Any]:
    """Times some of the `PROGRAMS` at some levels with all `PRICES`.

    Args:
      output: folder for builds and results; rounds of earlier calls count.
      rounds: runs at each price.
      processor: number of the processor that runs are bound to.

    Returns:
      All results in the folder, by program and level ("lua O2"): `run_s`, seconds of the fastest
      run by the compiler's own price; `rounds`; and by price the `change` of time against that one,
      with the ends of its 95% interval. For `table`.

    Raises:
      CommandError: a compiler or a run failed.
      StudyError: programs of several prices compute different things, or a damaged result.
    """
    output = output.resolve()
    with Pool() as pool:
        for program in programs:
            (output / program / "timed").mkdir(parents=True, exist_ok=True)
            workload = TIMED[program](output / program / "timed")
            for level in levels:
                build = Level(program, level, output / program / level, toolchain, pool)
                measured = run_rounds(
                    build.folder / "rounds.json",
                    {str(price): build.layouts(priced(price)) for price in PRICES},
                    workload.arguments,
                    {
                        "arguments": workload.arguments,
                        "files": [sha256(path) for path in workload.inputs],
                    },
                    rounds,
                    processor,
                    label=f"{program} {level}",
                )
                write_json(output / f"{program} {level} times.json", measured.against_first())
    names = [f"{program} {level}" for program in PROGRAMS for level in LEVELS]
    return saved(output, names, " times.json")


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Changes of time against the compiler's own price, with 95% intervals, in Markdown."""
    prices = [str(price) for price in PRICES[1:]]
    head = ["program", "a run", "rounds", *prices]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, row in results.items():
        cells = [name, f"{row['run_s']:.2f} s", str(row["rounds"])]
        cells += [_interval(row["changes"][price]) for price in prices]
        lines.append(f"| {' | '.join(cells)} |")
    for level in LEVELS:
        rows = [row for name, row in results.items() if name.endswith(f" {level}")]
        if len(rows) > 1:
            means = [
                np.expm1(np.mean([np.log1p(row["changes"][price][0]) for row in rows]))
                for price in prices
            ]
            cells = [f"geometric mean, {level}", "", "", *(f"{mean:+.2%}" for mean in means)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _interval(change: Sequence[float]) -> str:
    value, low, high = change
    return f"{value:+.2%} ({low:+.2%} to {high:+.2%})"
