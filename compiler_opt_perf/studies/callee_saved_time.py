# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Do programs run faster by prices of callee-saved registers, or by a policy for them?

What `callee_saved` and `callee_saved_policy` predict for the recorded run, on other inputs, of
which there is no profile: callgrind counts what programs execute as users compile them, and they
run interleaved and on one processor, in several layouts of their functions (`rounds`). The builds
are those of the other studies of evictions.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import logging

from compiler_opt_perf.execution.files import sha256, write_json
from compiler_opt_perf.execution.memo import memo
from compiler_opt_perf.execution.pool import Pool
from compiler_opt_perf.studies.common import saved, shuffled_profile
from compiler_opt_perf.studies.eviction_builds import LEVELS, Level, priced
from compiler_opt_perf.studies.rounds import (
    HEAD,
    ROUNDS,
    changes_table,
    described,
    run_rounds,
    to_first,
)
from compiler_opt_perf.studies.variant_builds import LAYOUTS
from compiler_opt_perf.studies.variants import Variant
from compiler_opt_perf.studies.workloads import JUDGED, ONLY_ONCE, Workload
from compiler_opt_perf.toolchain.installation import Toolchain

PROGRAMS = tuple(JUDGED)
#: Among them the best constants by instructions, with counters and without.
PRICES = (0, 16384, 65536, 262144)
#: Names of the policy's ways, with the profile of the counted run and with an exchanged one.
POLICY, SHUFFLED = "policy", "policy, shuffled"
_FIRST, _ADDED = str(PRICES[0]), "what the profile adds"
_SEED = 1


def study(
    programs: Sequence[str],
    output: Path,
    toolchain: Toolchain,
    policy: Path,
    *,
    levels: Sequence[str] = tuple(LEVELS),
    rounds: int = ROUNDS,
    layouts: int = LAYOUTS,
    processor: int,
) -> dict[str, Any]:
    """Counts and times some of the `PROGRAMS` at some levels, by all `PRICES` and by a policy.

    Args:
      output: folder for builds and results; counts and rounds of earlier calls count.
      policy: folder of one for evictions that takes PMU features.
      rounds: timed runs of each way, layout by layout; 0 for counts alone.
      layouts: of each way; where a function lies may change its time more than what it executes.
      processor: number of the processor that runs are bound to.

    Returns:
      All results in the folder, by program and level ("lua O2"): `executed`, instructions by way,
      of which the first is the compiler's own price; and if it was timed, `run_s`, seconds of that
      one's fastest run, `rounds`, and by way the `changes` of time against it, each with the ends
      of its 95% interval. For `tables`.

    Raises:
      CommandError: a compiler or a run failed.
      PmuError: the profile cannot be shuffled.
      StudyError: programs of several ways compute different things, or a damaged result.
    """
    output = output.resolve()
    with Pool() as pool:
        for program in programs:
            (output / program / "judged").mkdir(parents=True, exist_ok=True)
            workload = JUDGED[program](output / program / "judged")
            for level in levels:
                build = Level(program, level, output / program / level, toolchain, pool)
                binaries = {
                    str(price): build.layouts(priced(price), number=layouts) for price in PRICES
                }
                binaries |= _by_policy(build, policy, layouts)
                run_inputs = workload.run_inputs()
                result: dict[str, Any] = {
                    "executed": {
                        way: _executed(build, way, linked[0], workload, run_inputs)
                        for way, linked in binaries.items()
                    }
                }
                if rounds and program not in ONLY_ONCE:
                    measured = run_rounds(
                        build.folder / "rounds.json",
                        binaries,
                        workload.arguments,
                        run_inputs,
                        rounds,
                        processor,
                        label=f"{program} {level}",
                    )
                    result |= measured.against_first()
                write_json(output / f"{program} {level} judged.json", result)
    names = [f"{program} {level}" for level in LEVELS for program in PROGRAMS]
    return saved(output, names, " judged.json")


def _by_policy(build: Level, policy: Path, layouts: int) -> dict[str, list[Path]]:
    """The program in all layouts, by the policy's ways."""
    own = build.profile()
    shuffled = shuffled_profile(own, build.folder / "shuffled.pmu.json", _SEED)
    ways = {POLICY: own, SHUFFLED: shuffled}
    return {
        way: build.layouts(Variant(way), policy, profile, layouts) for way, profile in ways.items()
    }


def _executed(
    build: Level, way: str, binary: Path, workload: Workload, run_inputs: Mapping[str, Any]
) -> int:
    """Instructions of the program's own object."""
    inputs = {"binary": sha256(binary), **run_inputs}

    def count() -> int:
        return workload.counted(binary, build.folder).totals()[0]

    found = memo(build.folder / f"judged {way}.json", inputs, int, count)
    logging.info("%s %s: %s: %d instructions", build.name, build.level, way, found)
    return found


def tables(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Changes of instructions, and of time with 95% intervals, by level, in Markdown.

    Geometric means have 95% intervals over other programs of the kind (Student's t).
    """
    return "\n".join(
        text
        for level in LEVELS
        for table in (_executed_table, _timed_table)
        if (text := table({n: row for n, row in results.items() if n.endswith(f" {level}")}))
    )


def _executed_table(results: Mapping[str, Mapping[str, Any]]) -> str:
    rows = {name: [f"{row['executed'][_FIRST]:,}"] for name, row in results.items()}
    changes = {name: to_first(row["executed"]) for name, row in results.items()}
    return _table(["instructions"], rows, changes)


def _timed_table(results: Mapping[str, Mapping[str, Any]]) -> str:
    timed = {name: row for name, row in results.items() if "changes" in row}
    rows = {name: described(row) for name, row in timed.items()}
    return _table(HEAD, rows, {name: row["changes"] for name, row in timed.items()})


def _table(
    head: Sequence[str],
    rows: Mapping[str, Sequence[str]],
    changes: Mapping[str, Mapping[str, Sequence[float]]],
) -> str:
    """As `changes_table`, with a column of what the policy costs by its cost with shuffled data."""
    own = {
        name: {**one, _ADDED: [(1 + one[POLICY][0]) / (1 + one[SHUFFLED][0]) - 1]}
        for name, one in changes.items()
    }
    columns = dict.fromkeys(way for one in own.values() for way in one if way != _FIRST)
    return "".join(f"{line}\n" for line in changes_table(head, rows, own, columns))
