# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs that are inlined in several ways, at -O2 and some at -O3, and what they execute.

By the compiler's own inlining, by other thresholds, by the rule of `policies.inlining_rule` with
the PMU profile of a run, by parts of it, with parts of the profile exchanged, by rates of misses
and mispredictions in its place and beside it, by LLVM's own use of the same counts (AutoFDO), with
counters (PGO), and with ThinLTO.
"""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from absl import logging

from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.policy.inlining_rule import InliningRule
from compiler_opt_perf.policy.interactive import Decide, InteractiveHost, Observation
from compiler_opt_perf.policy.problem import PROBLEMS, for_clang
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.files import sha256
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.memo import memo
from compiler_opt_perf.run.seeds import derive_seed
from compiler_opt_perf.studies.common import counted_run, shuffled_profile
from compiler_opt_perf.studies.rounds import Rounds, run_rounds
from compiler_opt_perf.studies.variant_builds import LAYOUTS, link_layouts
from compiler_opt_perf.studies.workloads import COUNTED, HELD_OUT, JUDGED, Built, Workload
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT

_PROBLEM = PROBLEMS["inline-size"]
_TIMEOUT_S = 1800.0
#: Debug info changes no code; the profile is looked up by it. Functions can be put into other
#: orders.
FLAGS = ("-O2", *PROFILING_FLAGS.split(), "-ffunction-sections", "-w")
# Beyond all counts and costs.
_NEVER, _ANY = 31, 1 << 30
# Cycles of callgrind's events, those of its own estimate: the least that a model can say of misses.
_CYCLES = {
    "Ir": 1,
    **dict.fromkeys(("I1mr", "D1mr", "D1mw", "Bcm", "Bim"), 10),
    **dict.fromkeys(("ILmr", "DLmr", "DLmw"), 100),
}

_SHUFFLE_SEED = 1

SHIPPED = InliningRule()
#: The policy for callee-saved registers.
REGISTERS = REPO_ROOT / "models" / "regalloc-evict"
_RATES = ("pmu_callee_l1_misses_ppm", "pmu_callee_mispredicts_ppm")


@dataclass(frozen=True)
class RateRule:
    """Calls are hot by how their callee misses and is mispredicted, not by executions.

    The compiler decides about all others.

    Attributes:
      rate: a call is hot from so many loads that miss the first level of the data cache, or so
        many mispredicted conditional branches, in 10⁶ instructions of the callee.
      beside: the rule by executions whose calls are hot besides; None for none.
      without: of that rule's hot calls, those that are hot by rates are left to the compiler.
    """

    rate: int
    beside: InliningRule | None = None
    without: bool = False

    def decide(self, inputs: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
        """1 to inline, or 0; int64 [rows]. As `InliningRule.decide`."""
        default = inputs[_PROBLEM.default_feature] > 0
        # Where the profile does not know the callee, its rates are -1.
        often = np.maximum(*(inputs[name] for name in _RATES)) >= self.rate
        hot = often & (inputs["cost_estimate"] < SHIPPED.cost)
        if self.beside is None:
            return np.asarray(default | hot, np.int64)
        counted = self.beside.decide(inputs) > 0
        beside = counted & ~often if self.without else counted | hot
        return np.asarray(np.where(default, counted, beside), np.int64)


@dataclass(frozen=True)
class Way:
    """How a program is compiled.

    Attributes:
      flags: of clang, beside those of all.
      rule: that decides about inlining; None for the compiler alone.
      exchanged: seed of the draw that gives each decision the PMU features of another one.
      sampled: the compiler itself is given the profile's executions (-fprofile-sample-use).
      counted: it is given counters of the same run (-fprofile-use).
      thin: with ThinLTO; the rule decides before the thin link and after it.
      registers: `REGISTERS` decides about callee-saved registers, by the PMU profile.
      shuffled: rule and policy are given the profile with its counts exchanged between lines.
    """

    flags: tuple[str, ...] = ()
    rule: InliningRule | RateRule | None = None
    exchanged: int | None = None
    sampled: bool = False
    counted: bool = False
    thin: bool = False
    registers: bool = False
    shuffled: bool = False


def _threshold(cost: int) -> Way:
    return Way(("-mllvm", f"-inline-threshold={cost}"))


def _name(rule: InliningRule) -> str:
    numbers = f"rule {rule.hot} {rule.cost} {rule.work} {rule.cold_cost}"
    return numbers if rule.keep_locals else f"{numbers}, locals pinned"


#: The rules to choose from: the shipped one, and in one number another.
RULES = {
    _name(rule): rule
    for rule in (
        SHIPPED,
        replace(SHIPPED, keep_locals=False),
        replace(SHIPPED, hot=12),
        replace(SHIPPED, hot=16),
        replace(SHIPPED, cost=1000),
        replace(SHIPPED, work=50),
        replace(SHIPPED, work=200),
        replace(SHIPPED, work=_ANY),
        replace(SHIPPED, cold_cost=225),
    )
}
#: The shipped rule with less of the profile.
PARTS = {
    "hot calls only": Way(rule=replace(SHIPPED, cold_cost=_ANY)),
    "cold calls only": Way(rule=replace(SHIPPED, hot=_NEVER)),
    "whether it ran": Way(rule=replace(SHIPPED, hot=1)),
    **{f"exchanged {seed}": Way(rule=SHIPPED, exchanged=seed) for seed in (1, 2, 3)},
}
#: By rates in the place of executions; half of Lua's known callees are beyond the second.
RATES = {f"rates {rate}": Way(rule=RateRule(rate)) for rate in (1000, 4000, 10_000)}
#: By both.
BOTH = {
    "counts or rates": Way(rule=RateRule(4000, SHIPPED)),
    "counts without rates": Way(rule=RateRule(4000, SHIPPED, without=True)),
}
CONSTANTS = {f"threshold {cost}": _threshold(cost) for cost in (25, 500, 1000)}
#: Without a profile, as much text as rates cost.
CONTROLS = {f"threshold {cost}": _threshold(cost) for cost in (2000, 4000)}
WAYS: dict[str, Way] = {
    "default": Way(),
    **CONSTANTS,
    **{name: Way(rule=rule) for name, rule in RULES.items()},
    **PARTS,
    **RATES,
    **BOTH,
    **CONTROLS,
    "AutoFDO": Way(sampled=True),
    "PGO": Way(counted=True),
    "PGO and rule": Way(rule=SHIPPED, counted=True),
    "ThinLTO": Way(thin=True),
    "ThinLTO and rule": Way(rule=SHIPPED, thin=True),
    "ThinLTO and PGO": Way(counted=True, thin=True),
    "ThinLTO and PGO and rule": Way(rule=SHIPPED, counted=True, thin=True),
}


def _priced(price: int) -> tuple[str, ...]:
    return ("-mllvm", f"-regalloc-csr-first-time-cost={price}")


# The constant prices of a callee-saved register that are as good as a policy by instructions, with
# counters and without.
_PRICE, _LARGE_PRICE = _priced(65536), _priced(262144)
# Behind the -O2 of `FLAGS`.
_O3 = ("-O3",)
#: Inlining and callee-saved registers, decided together.
TOGETHER: dict[str, Way] = {
    "price 65536": Way(_PRICE),
    "threshold 500 and price": Way((*_threshold(500).flags, *_PRICE)),
    "registers": Way(registers=True),
    "both policies": Way(rule=SHIPPED, registers=True),
    "both policies, shuffled": Way(rule=SHIPPED, registers=True, shuffled=True),
    "rule 14 3000 100 225 and registers": Way(rule=replace(SHIPPED, cold_cost=225), registers=True),
    "O3": Way(_O3),
    "O3 and both policies": Way(_O3, rule=SHIPPED, registers=True),
    "O3 and both policies, shuffled": Way(_O3, rule=SHIPPED, registers=True, shuffled=True),
    "AutoFDO and registers": Way(sampled=True, registers=True),
    "AutoFDO and rule": Way(rule=SHIPPED, sampled=True),
    "AutoFDO and both policies": Way(rule=SHIPPED, sampled=True, registers=True),
    "AutoFDO and both policies, shuffled": Way(
        rule=SHIPPED, sampled=True, registers=True, shuffled=True
    ),
    "PGO and price": Way(_PRICE, counted=True),
    "PGO and both policies": Way(rule=SHIPPED, counted=True, registers=True),
    "ThinLTO and both policies": Way(rule=SHIPPED, thin=True, registers=True),
    "ThinLTO and PGO and price": Way(_PRICE, counted=True, thin=True),
    "ThinLTO and PGO and price 262144": Way(_LARGE_PRICE, counted=True, thin=True),
    "ThinLTO and PGO and registers": Way(counted=True, thin=True, registers=True),
    "ThinLTO and PGO and registers, shuffled": Way(
        counted=True, thin=True, registers=True, shuffled=True
    ),
    "ThinLTO and PGO and both policies": Way(rule=SHIPPED, counted=True, thin=True, registers=True),
}


class Executed(msgspec.Struct, frozen=True):
    """What a program of one way executes, and its bytes of text, linked."""

    instructions: int
    text: int


@dataclass
class InlineBuilds:
    """One program, in a folder of its own.

    Attributes:
      held_out: it is judged by the input by which nothing was chosen.
    """

    name: str
    folder: Path
    toolchain: Toolchain
    held_out: bool = False
    _pool: list[Mapping[str, npt.NDArray[Any]]] = field(default_factory=list)

    @cached_property
    def built(self) -> Built:
        """The profiled program, compiled by Debian's clang."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return COUNTED[self.name](self.folder).build(self.folder)

    @cached_property
    def profile(self) -> Path:
        """The PMU profile of the run."""
        manifest = self.folder / "run.pmu.json"
        inputs = {"binary": sha256(self.built.binary), "arguments": self.built.arguments}

        def collected() -> None:
            collect(self.built.binary, self.built.arguments, manifest, timeout_s=_TIMEOUT_S)

        memo(self.folder / "collected.json", inputs, NoneType, collected, [manifest])
        return manifest

    def executed(self, name: str) -> Executed:
        """What one of the `WAYS` executes in the profiled run. Raises CommandError."""
        objects = self.objects(name)
        binary = self._of(name) / self.name

        def count() -> Executed:
            self._link(objects, binary)
            dump = counted_run(binary, self.built.arguments, self.folder)
            return Executed(dump.totals()[0], text_bytes(binary))

        inputs = {"objects": list(map(sha256, objects)), "arguments": self.built.arguments}
        found = memo(self._of(name) / "executed.json", inputs, Executed, count)
        logging.info("%s: %s: %d instructions", self.name, name, found.instructions)
        return found

    def cycles(self, name: str) -> int:
        """What one of the `WAYS` takes in the profiled run, as simulated. Raises CommandError."""
        objects = self.objects(name)
        binary = self._of(name) / self.name

        def simulate() -> dict[str, int]:
            self._link(objects, binary)
            options = ("--cache-sim=yes", "--branch-sim=yes")
            dump = counted_run(binary, self.built.arguments, self.folder, options)
            return dict(zip(dump.columns, dump.totals(), strict=True))

        inputs = {"objects": list(map(sha256, objects)), "arguments": self.built.arguments}
        events = memo(self._of(name) / "simulated.json", inputs, dict[str, int], simulate)
        logging.info("%s: %s: simulated", self.name, name)
        return sum(cost * events[event] for event, cost in _CYCLES.items())

    @cached_property
    def judged(self) -> Workload:
        """A run of another input than the profile's."""
        self._judging.mkdir(exist_ok=True)
        return (HELD_OUT if self.held_out else JUDGED)[self.name](self._judging)

    @property
    def _judging(self) -> Path:
        return self.folder / ("held-out" if self.held_out else "timed")

    def judged_instructions(self, name: str) -> int:
        """What one of the `WAYS` executes in the run of the other input. Raises CommandError."""
        objects = self.objects(name)
        binary, run = self._of(name) / self.name, self.judged

        def count() -> int:
            self._link(objects, binary)
            return run.counted(binary, self._judging).totals()[0]

        inputs = {"objects": list(map(sha256, objects)), **run.run_inputs()}
        note = "held-out.json" if self.held_out else "judged.json"
        found = memo(self._of(name) / note, inputs, int, count)
        logging.info("%s: %s: %d instructions, other input", self.name, name, found)
        return found

    def layouts(self, name: str, number: int = LAYOUTS) -> list[Path]:
        """The program of one of the `WAYS` in so many layouts. Raises CommandError."""
        objects, folder = self.objects(name), self._of(name)
        targets = [folder / f"layout-{layout}" for layout in range(number)]
        inputs = {"objects": list(map(sha256, objects)), "layouts": number}
        libraries = [*self.built.libraries, "-lstdc++"]
        memo(
            folder / "layouts.json",
            inputs,
            NoneType,
            lambda: link_layouts(objects, libraries, targets),
            targets,
        )
        return targets

    def timed(
        self, note: str, ways: Sequence[str], rounds: int, processor: int, layouts: int = LAYOUTS
    ) -> Rounds:
        """Times some of the `WAYS` on the other input; rounds of earlier calls count.

        Args:
          note: name of the file in the program's folder that has the times.

        Raises:
          CommandError: a compiler or a run failed.
          StudyError: programs of several ways compute different things.
        """
        return run_rounds(
            self.folder / f"{note}.json",
            {name: self.layouts(name, layouts) for name in ways},
            self.judged.arguments,
            self.judged.run_inputs(),
            rounds,
            processor,
            label=self.name,
        )

    def objects(self, name: str) -> list[Path]:
        """The object files of one of the `WAYS`. Raises CommandError."""
        way, folder = (WAYS | TOGETHER)[name], self._of(name)
        profile = self._shuffled if way.shuffled else self.profile
        flags = [*FLAGS, *way.flags]
        if way.registers:
            problem = PROBLEMS["regalloc-evict"]
            options = problem.development_options(model=REGISTERS, profile=profile)
            options.append(f"-litert-library={self.toolchain.litert_library}")
            flags += _not_in(flags, options)
        inputs: dict[str, Any] = {
            "way": repr(way),
            "profile": sha256(profile),
            "clang": sha256(self.toolchain.clang.resolve()),
            "units": self.built.units,
            "flags": flags,
        }
        if way.sampled:
            flags.append(f"-fprofile-sample-use={self.profile.parent / 'run.executions.afdo'}")
        if way.counted:
            flags.append(f"-fprofile-use={self.counters}")
            inputs["counters"] = sha256(self.counters)
        if way.registers:
            inputs["registers"] = sha256(REGISTERS / "model.json")
        objects = [folder / f"{number}.o" for number in range(len(self.built.units))]

        def compile() -> None:
            folder.mkdir(parents=True, exist_ok=True)
            compiling = self._compile_thin if way.thin else self._compile
            compiling(self.toolchain.clang, flags, objects, self._deciders(way), profile)

        memo(folder / "objects.json", inputs, NoneType, compile, objects)
        return objects

    @cached_property
    def _shuffled(self) -> Path:
        """The PMU profile with its counts exchanged between lines, as by the first seed."""
        output = self.folder / "shuffled.pmu.json"
        return shuffled_profile(self.profile, output, _SHUFFLE_SEED)

    @cached_property
    def counters(self) -> Path:
        """The merged profile of counters of the run."""
        folder = self.folder / "counters"
        objects = [folder / f"{number}.o" for number in range(len(self.built.units))]
        binary, raw, merged = (folder / name for name in (self.name, "raw", "merged.profdata"))

        def count() -> None:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            clang = stock_tool("clang")
            self._compile(clang, ["-O2", "-w", "-fprofile-generate"], objects, None, None)
            self._link(objects, binary, "-fprofile-generate")
            environment = {"LLVM_PROFILE_FILE": str(raw)}
            run_command([binary, *self.built.arguments], timeout_s=_TIMEOUT_S, env=environment)
            run_command([stock_tool("llvm-profdata"), "merge", raw, "-o", merged])

        inputs = {"units": self.built.units, "arguments": self.built.arguments}
        memo(self.folder / "counters.json", inputs, NoneType, count, [merged])
        return merged

    def _of(self, name: str) -> Path:
        return self.folder / "ways" / name.replace(" ", "-")

    def _deciders(self, way: Way) -> Callable[[int], Decide] | None:
        """By number of the unit, what decides in it."""
        rule, seed = way.rule, way.exchanged
        if rule is None:
            return None
        if seed is None:
            return lambda _: _by_rule(rule)
        if not self._pool:
            self._fill_pool()
        return lambda unit: _exchanged(rule, self._pool, derive_seed(seed, "unit", unit))

    def _fill_pool(self) -> None:
        """Notes the PMU features of all decisions that the compiler takes by itself."""
        folder = self.folder / "pool"
        folder.mkdir(exist_ok=True)
        by_unit: dict[int, list[Mapping[str, npt.NDArray[Any]]]] = {}
        names = [feature.name for feature in _PROBLEM.pmu_features]

        def noting(unit: int) -> Decide:
            rows = by_unit.setdefault(unit, [])

            def decide(observation: Observation) -> int:
                rows.append({name: observation.features[name].copy() for name in names})
                return int(observation.features[_PROBLEM.default_feature][0])

            return decide

        objects = [folder / f"{number}.o" for number in range(len(self.built.units))]
        self._compile(self.toolchain.clang, FLAGS, objects, noting, self.profile)
        self._pool = [row for unit in sorted(by_unit) for row in by_unit[unit]]

    def _compile_thin(
        self,
        clang: Path,
        flags: Sequence[str],
        objects: Sequence[Path],
        deciders: Callable[[int], Decide] | None,
        profile: Path,
    ) -> None:
        """Compiles to machine code through a distributed thin link.

        It makes the code of a link in one process (docs/thinlto.md), and asks module by module.
        """
        # clang would compile what is named .bc before it links.
        modules = [path.with_suffix(".thin.o") for path in objects]
        self._compile(clang, [*flags, "-flto=thin"], modules, deciders, profile)
        self._link(modules, objects[0].with_name("none"), "-Wl,--thinlto-index-only")
        units = [
            ["-c", "-x", "ir", str(path), f"-fthinlto-index={path}.thinlto.bc"] for path in modules
        ]
        self._compile(clang, flags, objects, deciders, profile, units)

    def _compile(
        self,
        clang: Path,
        flags: Sequence[str],
        objects: Sequence[Path],
        deciders: Callable[[int], Decide] | None,
        profile: Path | None,
        units: Sequence[list[str]] | None = None,
    ) -> None:
        """Compiles `units`, clang's arguments for each, by default those of the program.

        Args:
          profile: that what decides is told.
        """
        units = self.built.units if units is None else units

        def one(unit: int) -> None:
            argv: list[str | Path] = ["env", "-C", self.built.directory, clang]
            argv += [*flags, *units[unit], "-o", objects[unit].resolve()]
            if deciders is None:
                run_command(argv, timeout_s=_TIMEOUT_S)
                return
            with InteractiveHost(_PROBLEM, deciders(unit)) as host:
                options = _PROBLEM.interactive_options(host.channel, profile=profile)
                host.run([*argv, *_not_in(flags, options)], timeout_s=_TIMEOUT_S)

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as executor:
            list(executor.map(one, range(len(objects))))

    def _link(self, objects: Sequence[Path], binary: Path, *options: str) -> None:
        link: list[str | Path] = [stock_tool("clang++"), "-fuse-ld=lld", "-Wl,--build-id"]
        run_command([*link, *options, *objects, *self.built.libraries, "-o", binary])


def _not_in(flags: Sequence[str], options: Sequence[str]) -> list[str]:
    """Flags of clang for LLVM's `options`, which it takes once only."""
    return for_clang(option for option in options if option not in flags)


def _by_rule(rule: InliningRule | RateRule) -> Decide:
    return lambda observation: int(rule.decide(observation.features)[0])


def _exchanged(
    rule: InliningRule | RateRule, pool: Sequence[Mapping[str, npt.NDArray[Any]]], seed: int
) -> Decide:
    """The rule with the PMU features of a decision of the same program, drawn at random."""
    random = np.random.default_rng(seed)

    def decide(observation: Observation) -> int:
        drawn = pool[random.integers(len(pool))]
        return int(rule.decide({**observation.features, **drawn})[0])

    return decide
