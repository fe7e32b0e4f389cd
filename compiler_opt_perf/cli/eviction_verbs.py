# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs of studies of evictions."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from compiler_opt_perf.cli.options import (
    cpu_of,
    define_cpu,
    define_path,
    define_processor,
    define_some,
    define_toolchain,
    optional_path,
)
from compiler_opt_perf.cli.verb import Table, UsageError, Verb
from compiler_opt_perf.toolchain.layout import BUILD, REPO_ROOT

if TYPE_CHECKING:
    from compiler_opt_perf.studies.common import Timing


def _define_output(values: flags.FlagValues) -> None:
    help = "folder for builds and results, which the studies of evictions share"
    flags.DEFINE_string("output", str(BUILD / "bench-evictions"), help, flag_values=values)


def _define_judges(values: flags.FlagValues) -> None:
    """Those beside counted instructions: cycles and time."""
    from compiler_opt_perf.studies.variant_builds import LAYOUTS

    define_cpu(values, "for predicted cycles")
    help = "timed runs, on an input by which nothing was chosen; 0 for none"
    flags.DEFINE_integer("timed_rounds", 0, help, 0, flag_values=values)
    flags.DEFINE_integer("layouts", LAYOUTS, "that take turns in them", 3, flag_values=values)
    define_processor(values)


def _timing(rounds: int, values: Any) -> "Timing | None":
    from compiler_opt_perf.studies.common import Timing

    return Timing(rounds, values.layouts, values.processor) if rounds else None


# cop study evictions


def _define_evictions(values: flags.FlagValues) -> None:
    from compiler_opt_perf.studies.eviction_builds import LEVELS
    from compiler_opt_perf.studies.evictions import PROGRAMS, RULES

    _define_output(values)
    define_some(values, "only", PROGRAMS, "programs to study")
    define_some(values, "levels", tuple(LEVELS), "of optimisation")
    define_some(values, "rules", RULES, "ways to allocate registers")
    flags.DEFINE_integer("seed", 1, "of evictions at random", 0, flag_values=values)
    _define_judges(values)
    define_toolchain(values, "toolchain", "mock")


def _evictions(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.studies.evictions import study, tables
    from compiler_opt_perf.toolchain.installation import Toolchain

    results = study(
        values.only,
        Path(values.output),
        Toolchain.load(Path(values.toolchain)),
        levels=values.levels,
        rules=values.rules,
        seed=values.seed,
        cpu=cpu_of(values),
        timing=_timing(values.timed_rounds, values),
    )
    return Table(lambda: tables(results), lambda: {"results": results})


# cop study eviction-headroom


def _define_eviction_headroom(values: flags.FlagValues) -> None:
    from compiler_opt_perf.studies.eviction_builds import LEVELS
    from compiler_opt_perf.studies.eviction_headroom import PROGRAMS

    _define_output(values)
    define_some(values, "only", PROGRAMS, "programs to search")
    flags.DEFINE_enum("level", "O2", list(LEVELS), "of optimisation", flag_values=values)
    flags.DEFINE_integer("rounds", 2, "of deviations from all decisions", 1, flag_values=values)
    flags.DEFINE_integer(
        "most", 200, "decisions of a function to deviate from in a round", 1, flag_values=values
    )
    flags.DEFINE_integer("seed", 1, "of the draw where there are more", 0, flag_values=values)
    _define_judges(values)
    define_toolchain(values, "toolchain", "mock")


def _eviction_headroom(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.studies.eviction_headroom import Limits, study, tables
    from compiler_opt_perf.toolchain.installation import Toolchain

    toolchain = Toolchain.load(Path(values.toolchain))
    limits = Limits(values.rounds, values.most, values.seed)
    results = study(
        values.only,
        Path(values.output),
        toolchain,
        limits,
        level=values.level,
        cpu=cpu_of(values),
        timing=_timing(values.timed_rounds, values),
    )
    return Table(lambda: tables(results), lambda: {"results": results})


# cop study callee-saved


def _define_model(values: flags.FlagValues) -> None:
    define_cpu(values, "for what predicts cycles")
    define_path(values, "model", "folder of a learned cost model, for `learned`", required=False)


def _define_callee_saved(values: flags.FlagValues) -> None:
    from compiler_opt_perf.studies.callee_saved import PROGRAMS
    from compiler_opt_perf.studies.eviction_builds import COUNT, LEVELS, REPLAYS

    _define_output(values)
    define_some(values, "only", PROGRAMS, "programs to study")
    define_some(values, "levels", tuple(LEVELS), "of optimisation")
    define_some(values, "evaluator", tuple(REPLAYS), "what predicts", (COUNT,))
    _define_model(values)
    define_toolchain(values, "toolchain", "mock")


def _callee_saved(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.studies.callee_saved import study, tables
    from compiler_opt_perf.toolchain.installation import Toolchain

    results = study(
        values.only,
        Path(values.output),
        Toolchain.load(Path(values.toolchain)),
        levels=values.levels,
        evaluators=values.evaluator,
        cpu=cpu_of(values),
        model=optional_path(values, "model"),
    )
    return Table(lambda: tables(results), lambda: {"results": results})


# cop study callee-saved-time


def _define_callee_saved_time(values: flags.FlagValues) -> None:
    from compiler_opt_perf.studies.callee_saved_time import PROGRAMS
    from compiler_opt_perf.studies.eviction_builds import LEVELS
    from compiler_opt_perf.studies.rounds import ROUNDS
    from compiler_opt_perf.studies.variant_builds import LAYOUTS

    _define_output(values)
    define_some(values, "only", PROGRAMS, "programs to count and to time")
    define_some(values, "levels", tuple(LEVELS), "of optimisation")
    help = "folder of one for evictions that takes PMU features"
    policy = str(REPO_ROOT / "models" / "regalloc-evict")
    flags.DEFINE_string("policy", policy, help, flag_values=values)
    help = "timed runs of each way; 0 to count only"
    flags.DEFINE_integer("rounds", ROUNDS, help, 0, flag_values=values)
    flags.DEFINE_integer("layouts", LAYOUTS, "that take turns in them", 3, flag_values=values)
    define_processor(values)
    define_toolchain(values, "toolchain", "mock")


def _callee_saved_time(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.policies.export import load
    from compiler_opt_perf.studies.callee_saved_time import study, tables
    from compiler_opt_perf.toolchain.installation import Toolchain

    problem = load(Path(values.policy)).network.problem.name
    if problem != "regalloc-evict":
        raise UsageError(f"--policy: {values.policy} is for {problem}, not for evictions")
    results = study(
        values.only,
        Path(values.output),
        Toolchain.load(Path(values.toolchain)),
        Path(values.policy),
        levels=values.levels,
        rounds=values.rounds,
        layouts=values.layouts,
        processor=values.processor,
    )
    return Table(lambda: tables(results), lambda: {"results": results})


# cop study callee-saved-policy


def _define_callee_saved_policy(values: flags.FlagValues) -> None:
    from compiler_opt_perf.studies.callee_saved_policy import ARMS, PROGRAMS
    from compiler_opt_perf.studies.eviction_builds import COUNT, REWARDS
    from compiler_opt_perf.studies.variant_builds import LAYOUTS

    _define_output(values)
    define_some(values, "only", PROGRAMS, "programs to study; each is left out once")
    define_some(
        values, "rewards", tuple(REWARDS), "to learn by and to judge by, count among them", (COUNT,)
    )
    define_some(values, "arms", tuple(ARMS), "what policies see of the profile")
    flags.DEFINE_integer("seeds", 3, "policies of each kind", 1, flag_values=values)
    help = "timed runs of each way on other inputs; 0 for none"
    flags.DEFINE_integer("rounds", 0, help, 0, flag_values=values)
    flags.DEFINE_integer("layouts", LAYOUTS, "that take turns in them", 3, flag_values=values)
    define_processor(values)
    _define_model(values)
    help = "folder to publish the rule of two numbers to, as a policy with these results"
    define_path(values, "publish", help, required=False)
    define_toolchain(values, "toolchain", "mock")


def _callee_saved_policy(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.studies.callee_saved_policy import publish_rule, study, tables
    from compiler_opt_perf.studies.eviction_builds import COUNT
    from compiler_opt_perf.toolchain.installation import Toolchain

    if COUNT not in values.rewards:
        raise UsageError(f"--rewards: {COUNT}, by which functions to label are found, is missing")
    results = study(
        values.only,
        Path(values.output),
        Toolchain.load(Path(values.toolchain)),
        rewards=values.rewards,
        arms=values.arms,
        seeds=values.seeds,
        cpu=cpu_of(values),
        model=optional_path(values, "model"),
        timing=_timing(values.rounds, values),
    )
    if values.publish:
        publish_rule(Path(values.publish), results)
    return Table(lambda: tables(results), lambda: {"results": results})


VERBS: tuple[Verb, ...] = (
    Verb(
        "study evictions",
        "Count and time programs by several register allocations, and what rewards tell of them.",
        "study evictions --only=lua,tcc --levels=O2 --output=build/bench-evictions",
        _define_evictions,
        _evictions,
        json_version=1,
    ),
    Verb(
        "study eviction-headroom",
        "Search evictions of real programs: how few instructions could any policy execute?",
        "study eviction-headroom --only=lua --rounds=1 --output=build/bench-evictions",
        _define_eviction_headroom,
        _eviction_headroom,
        json_version=1,
    ),
    Verb(
        "study callee-saved",
        "Predict what programs cost by prices of callee-saved registers, function by function.",
        "study callee-saved --only=lua,tcc --levels=O2 --output=build/bench-evictions",
        _define_callee_saved,
        _callee_saved,
        json_version=2,
    ),
    Verb(
        "study callee-saved-time",
        "Count and time programs by prices of callee-saved registers and by a policy for them.",
        "study callee-saved-time --only=lua --levels=O2 --output=build/bench-evictions",
        _define_callee_saved_time,
        _callee_saved_time,
        json_version=2,
    ),
    Verb(
        "study callee-saved-policy",
        "Learn from labels when to use callee-saved registers, with a profile and parts of it.",
        "study callee-saved-policy --only=lua,mujs,tcc --output=build/bench-evictions",
        _define_callee_saved_policy,
        _callee_saved_policy,
        json_version=4,
    ),
)
