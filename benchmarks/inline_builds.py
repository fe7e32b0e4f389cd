# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One program compiled in the ways of `ways`: its objects, linked programs, counts and times."""

import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Any

import msgspec
from absl import logging

from benchmarks.common import TIMEOUT_S, counted_run, counters_profile
from benchmarks.programs.workload import Built, Workload
from benchmarks.programs.workloads import COUNTED, HELD_OUT
from benchmarks.timing import LAYOUTS, Rounds, link_layouts, run_rounds
from benchmarks.ways import WAYS
from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.policy.inlining_rule import InliningRule
from compiler_opt_perf.policy.interactive import Decide, InteractiveHost
from compiler_opt_perf.policy.problem import PROBLEMS, for_clang
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.profile.shuffle import shuffle
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.files import sha256
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.memo import memo
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT

_PROBLEM = PROBLEMS["inline-size"]
#: Debug info changes no code; the profile is looked up by it. With a section a function, functions
#: can be put into other orders.
FLAGS = ("-O2", *PROFILING_FLAGS.split(), "-ffunction-sections", "-w")
_SHUFFLE_SEED = 1
#: The policy for callee-saved registers.
REGISTERS = REPO_ROOT / "models" / "regalloc-evict"


class Executed(msgspec.Struct, frozen=True):
    """What a program of one way executes, and its bytes of text, linked."""

    instructions: int
    text: int


@dataclass
class InlineBuilds:
    """One program, in a folder of its own."""

    name: str
    folder: Path
    toolchain: Toolchain

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
            collect(self.built.binary, self.built.arguments, manifest, timeout_s=TIMEOUT_S)

        memo(self.folder / "collected.json", inputs, NoneType, collected, [manifest])
        return manifest

    def executed(self, name: str) -> Executed:
        """Counts what one of the `WAYS` executes in the profiled run. Raises CommandError."""
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

    @cached_property
    def held_out(self) -> Workload:
        """A run of another input, by which nothing was chosen."""
        self._held_out.mkdir(exist_ok=True)
        return HELD_OUT[self.name](self._held_out)

    @property
    def _held_out(self) -> Path:
        return self.folder / "held-out"

    def held_out_instructions(self, name: str) -> int:
        """Counts what one of the `WAYS` executes in the held-out run. Raises CommandError."""
        objects = self.objects(name)
        binary, run = self._of(name) / self.name, self.held_out

        def count() -> int:
            self._link(objects, binary)
            return run.counted(binary, self._held_out).totals()[0]

        inputs = {"objects": list(map(sha256, objects)), **run.run_inputs()}
        found = memo(self._of(name) / "held-out.json", inputs, int, count)
        logging.info("%s: %s: %d instructions, held-out input", self.name, name, found)
        return found

    def layouts(self, name: str, number: int = LAYOUTS) -> list[Path]:
        """Links the program of one of the `WAYS` in `number` layouts. Raises CommandError."""
        return self.linked(self.objects(name), number)

    def linked(self, objects: Sequence[Path], number: int) -> list[Path]:
        """Links object files in `number` layouts, beside the first. Raises CommandError."""
        folder = objects[0].parent
        targets = [folder / f"layout-{layout}" for layout in range(number)]
        inputs = {"objects": list(map(sha256, objects)), "layouts": number}
        memo(
            folder / "layouts.json",
            inputs,
            NoneType,
            lambda: link_layouts(objects, self.libraries, targets),
            targets,
        )
        return targets

    @property
    def libraries(self) -> list[str]:
        """Options of a link by clang, which does not know that a program is C++."""
        return [*self.built.libraries, "-lstdc++"]

    def timed(
        self, ways: Sequence[str], rounds: int, processor: int, layouts: int = LAYOUTS
    ) -> Rounds:
        """Times some of the `WAYS` on the held-out input; rounds of earlier calls count.

        Raises:
          CommandError: a compiler or a run failed.
          BenchmarkError: programs of several ways compute different things.
        """
        return run_rounds(
            self.folder / "rounds.json",
            {name: self.layouts(name, layouts) for name in ways},
            self.held_out.arguments,
            self.held_out.run_inputs(),
            rounds,
            processor,
            label=self.name,
        )

    def objects(self, name: str) -> list[Path]:
        """Compiles one of the `WAYS`; returns its object files. Raises CommandError."""
        way, folder = WAYS[name], self._of(name)
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
            clang = self.toolchain.clang
            self.compile(clang, flags, objects, way.rule, profile, thin=way.thin)

        memo(folder / "objects.json", inputs, NoneType, compile, objects)
        return objects

    @cached_property
    def _shuffled(self) -> Path:
        """The PMU profile with its counts exchanged between lines, as by the first seed."""
        output = self.folder / "shuffled.pmu.json"
        inputs = {"profile": sha256(self.profile), "seed": _SHUFFLE_SEED}

        def shuffled() -> None:
            shuffle(self.profile, output, _SHUFFLE_SEED)

        memo(self.folder / "shuffled.json", inputs, NoneType, shuffled, [output])
        return output

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
            self.compile(clang, ["-O2", "-w", "-fprofile-generate"], objects)
            self._link(objects, binary, "-fprofile-generate")
            counters_profile(binary, self.built.arguments, raw, merged)

        inputs = {"units": self.built.units, "arguments": self.built.arguments}
        memo(self.folder / "counters.json", inputs, NoneType, count, [merged])
        return merged

    def _of(self, name: str) -> Path:
        return self.folder / "ways" / name.replace(" ", "-")

    def compile(
        self,
        clang: Path,
        flags: Sequence[str],
        objects: Sequence[Path],
        rule: InliningRule | None = None,
        profile: Path | None = None,
        *,
        thin: bool = False,
        own: Sequence[Sequence[str]] | None = None,
    ) -> None:
        """Compiles the program to object files.

        Args:
          rule: decides about inlining by the profile; None leaves it to the compiler.
          thin: through a distributed thin link. It makes the code of a link in one process
            (docs/thinlto.md), and asks module by module.
          own: further words of clang for each unit, before the thin link and after it.
        """
        own = [()] * len(objects) if own is None else own
        units = [[*unit, *words] for unit, words in zip(self.built.units, own, strict=True)]
        if thin:
            # clang would compile what is named .bc before it links.
            modules = [path.with_suffix(".thin.o") for path in objects]
            self._compile(clang, [*flags, "-flto=thin"], modules, rule, profile, units)
            self._link(modules, objects[0].with_name("none"), "-Wl,--thinlto-index-only")
            units = [
                ["-c", "-x", "ir", str(path), f"-fthinlto-index={path}.thinlto.bc", *words]
                for path, words in zip(modules, own, strict=True)
            ]
        self._compile(clang, flags, objects, rule, profile, units)

    def _compile(
        self,
        clang: Path,
        flags: Sequence[str],
        objects: Sequence[Path],
        rule: InliningRule | None,
        profile: Path | None,
        units: Sequence[Sequence[str]],
    ) -> None:
        """Compiles `units`, clang's arguments for each; all else as of `compile`."""

        def one(unit: int) -> None:
            argv: list[str | Path] = ["env", "-C", self.built.directory, clang]
            argv += [*flags, *units[unit], "-o", objects[unit].resolve()]
            if rule is None:
                run_command(argv, timeout_s=TIMEOUT_S)
                return
            with InteractiveHost(_PROBLEM, _by_rule(rule)) as host:
                options = _PROBLEM.interactive_options(host.channel, profile=profile)
                host.run([*argv, *_not_in(flags, options)], timeout_s=TIMEOUT_S)

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as executor:
            list(executor.map(one, range(len(objects))))

    def _link(self, objects: Sequence[Path], binary: Path, *options: str) -> None:
        link: list[str | Path] = [stock_tool("clang++"), "-fuse-ld=lld", "-Wl,--build-id"]
        run_command([*link, *options, *objects, *self.built.libraries, "-o", binary])


def _not_in(flags: Sequence[str], options: Sequence[str]) -> list[str]:
    """Flags of clang for LLVM's `options`, which it takes once only."""
    return for_clang(option for option in options if option not in flags)


def _by_rule(rule: InliningRule) -> Decide:
    return lambda observation: int(rule.decide(observation.features)[0])
