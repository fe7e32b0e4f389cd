# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The variants of one program: compiled in the ways of a kind, linked, compared and recorded.

Register allocations start from the same optimised bitcode, other variants from the sources. Only
modules whose code the default variant executes are compiled again.
"""

import hashlib
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import NoneType
from typing import Any

from absl import logging

from benchmarks.common import TIMEOUT_S, BenchmarkError, profiled, run_all, traced
from benchmarks.programs.workload import Workload, without_times
from benchmarks.timing import LAYOUTS, link_layouts
from benchmarks.variants import DEFAULT, TOO_FEW_REGISTERS, Kind, Variant
from compiler_opt_perf.binary.address_map import ANALYSIS_FLAGS
from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.corpus.programs import compile_commands, source_checksums
from compiler_opt_perf.cost.evaluator import REPLAY_FLAGS
from compiler_opt_perf.cost.regalloc_score import FLAGS as SCORE_FLAGS
from compiler_opt_perf.policy.compiler_flags import flags_without_policies
from compiler_opt_perf.policy.interactive import InteractiveHost
from compiler_opt_perf.policy.problem import PROBLEMS, for_clang
from compiler_opt_perf.profile.callgrind import CacheGeometry
from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.files import sha256
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.memo import memo
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT
from compiler_opt_perf.trace.windows import Windows

_REGISTERS, _INLINING = PROBLEMS["regalloc-evict"], PROBLEMS["inline-size"]
_OPTIMISED = ("-O2", *PROFILING_FLAGS.split(), "-march=x86-64-v2")
_MEASURED = ("-ffunction-sections", *ANALYSIS_FLAGS.split(), *SCORE_FLAGS)
_CODEGEN = ("-O2", "-x", "ir", "-Xclang", "-disable-llvm-passes", *_MEASURED, *REPLAY_FLAGS)
#: A module with a smaller share of the executed code is the default variant's in all variants.
_LEAST_SHARE = 0.01


@dataclass(frozen=True)
class Compilation:
    """The compilation of one module in one variant, by the words of a command."""

    words: tuple[str | Path, ...]
    folder: Path
    variant: Variant
    target: Path


def compile_one(job: Compilation) -> None:
    """Compiles a module to an object file, in a pool's worker. Raises CommandError."""
    argv: list[str | Path] = ["env", "-C", job.folder, *job.words, "-o", job.target]
    if job.variant.rule is None:
        run_command(argv, timeout_s=TIMEOUT_S)
        return
    with InteractiveHost(_REGISTERS, job.variant.decide(job.target.name)) as host:
        argv += for_clang(_REGISTERS.interactive_options(host.channel))
        host.run(argv, timeout_s=TIMEOUT_S)


@dataclass(frozen=True)
class _Recording:
    """A run to record, and the folder for what is recorded."""

    binary: Path
    arguments: tuple[str, ...]
    folder: Path
    inputs: dict[str, Any]
    caches: CacheGeometry

    def windows(self) -> Path:
        """Those of its trace."""
        return traced(self.binary, self.arguments, self.folder, self.inputs)

    def profile(self) -> Path:
        """Its profile with default caches, for the compiler, whose policies know no others."""
        return profiled(self.binary, self.arguments, self.folder, self.inputs)

    def judged(self) -> Path:
        """Its profile with the caches of the CPU, for evaluators."""
        folder = self.folder / "judged"
        folder.mkdir(exist_ok=True)
        return profiled(self.binary, self.arguments, folder, self.inputs, self.caches)


def _record(job: _Recording) -> tuple[Path, Path]:
    return job.windows(), job.judged()


class Builds:
    """The variants of one program and one kind, in a folder of its own."""

    def __init__(
        self,
        name: str,
        folder: Path,
        workload: Workload,
        toolchain: Toolchain,
        kind: Kind,
        caches: CacheGeometry,
    ):
        """Takes the `caches` of the CPU that evaluators predict for, besides what says itself."""
        self._name = name
        self._folder = folder
        self._workload = workload
        self._toolchain = toolchain
        self._kind = kind
        self._caches = caches

    def build(self) -> None:
        """Compiles and links all variants, and compares what they compute."""
        self._compile([DEFAULT], self._modules)
        computed = {DEFAULT.name: self._linked(DEFAULT)}
        others = self._kind.variants[1:]
        impossible = self._compile(others, self._executed)
        for variant in impossible:
            logging.warning("%s: %s is left out: %s", self._name, variant.name, TOO_FEW_REGISTERS)
        computed |= {v.name: self._linked(v) for v in others if v not in impossible}
        wrong = [name for name in computed if computed[name] != computed[DEFAULT.name]]
        if wrong:
            raise BenchmarkError(f"{self._name}: {', '.join(wrong)}: compute something else")

    def record(self, variant: Variant = DEFAULT) -> tuple[Path, Path]:
        """The windows and the PMU profile of a variant's run for evaluators, recorded once."""
        return _record(self._recording(variant))

    def record_all(self) -> None:
        """Records the run of each variant; where runs are replayed, that of the default one."""
        variants = [DEFAULT] if self._kind.replayed else self.variants()
        with Pool() as pool:
            jobs = [self._recording(variant) for variant in variants]
            for outcome in pool.map(_record, jobs, label=f"recording {self._name}"):
                outcome.get()

    def _recording(self, variant: Variant) -> "_Recording":
        run = self._workload.to_record()
        return _Recording(
            self.binary(variant),
            run.arguments,
            self._variant(variant),
            run.run_inputs(),
            self._caches,
        )

    def _profile(self) -> Path:
        """The PMU profile of the default variant for the compiler, collected once."""
        return self._recording(DEFAULT).profile()

    @cached_property
    def _modules(self) -> list[Path]:
        """The object file of each module, relative to the folder of a variant."""
        root = self._folder / "ir" / "objects"
        return [Path(c["arguments"][-1]).relative_to(root) for c in self._commands]

    @cached_property
    def _executed(self) -> list[Path]:
        """The modules with a share of the bytes of code that the default variant executes."""
        windows = Windows.load(self._recording(DEFAULT).windows())
        executed: defaultdict[str, int] = defaultdict(int)
        table = windows.table
        for block, count in zip(
            windows.blocks[:, -1].tolist(), windows.counts.tolist(), strict=True
        ):
            executed[table.names[table.function[block]]] += count * int(table.size[block])
        least = _LEAST_SHARE * sum(executed.values())

        def executed_of(module: Path) -> int:
            path = self._variant(DEFAULT) / module
            symbols = run_command([stock_tool("llvm-nm"), "-j", "--defined-only", path]).stdout
            return sum(executed[name] for name in symbols.split())

        return [module for module in self._modules if executed_of(module) >= least]

    def _compile(self, variants: Sequence[Variant], modules: list[Path]) -> set[Variant]:
        """Makes the object files that are missing; returns variants that cannot be compiled."""
        jobs = []
        for variant in variants:
            # Modules are added to the folder one by one; all have these inputs.
            folder, inputs = self._variant(variant), self._code_inputs(variant)
            clear = partial(shutil.rmtree, folder, ignore_errors=True)
            memo(folder / "wanted.json", inputs, NoneType, clear)
            jobs += [self._job(variant, m) for m in modules if not (folder / m).exists()]
        impossible = set()
        with Pool() as pool:
            outcomes = pool.map(compile_one, jobs, label=f"compiling {self._name}")
            for job, outcome in zip(jobs, outcomes, strict=True):
                try:
                    outcome.get()
                except CommandError as error:
                    if TOO_FEW_REGISTERS not in str(error):
                        raise
                    impossible.add(job.variant)
        return impossible

    def _job(self, variant: Variant, module: Path) -> Compilation:
        target = self._variant(variant) / module
        target.parent.mkdir(parents=True, exist_ok=True)
        command = self._commands[self._modules.index(module)]
        own = [*variant.flags, *for_clang(variant.options)]
        words: list[str | Path] = list(command["arguments"][:-2])
        if self._kind.replayed:
            bitcode = self._bitcode[self._modules.index(module)]
            words = [self._toolchain.clang, *_CODEGEN, "-c", bitcode]
        return Compilation(
            (*words, *own, *self._deciding(variant)), self._workload.tree, variant, target
        )

    def _deciding(self, variant: Variant) -> list[str]:
        """Flags for the profile and the policy of a variant; none where bitcode is compiled."""
        if self._kind.replayed:
            return []
        profile = self._profile() if variant.sampled or variant.profiled else None
        sampled = profile if variant.sampled else None
        words = flags_without_policies(self._toolchain, sampled).compile_words()
        if variant.policy is None:
            return words
        read = profile if variant.profiled else None
        model = REPO_ROOT / "models" / variant.policy
        options = _INLINING.development_options(model=model, profile=read)
        return [*words, *for_clang([*options, f"-litert-library={self._toolchain.litert_library}"])]

    def _linked(self, variant: Variant) -> str:
        """Links a variant and runs it, if need be; returns a checksum of what it computes."""
        folder, binary = self._variant(variant), self.binary(variant)
        inputs: dict[str, Any] = {
            "objects": [sha256(path) for path in self.objects(variant)],
            "libraries": self._workload.program.libraries,
            "layouts": LAYOUTS,
        }
        linked = [self.binary(variant, layout) for layout in range(LAYOUTS)]
        memo(
            folder / "linked.json",
            inputs,
            NoneType,
            partial(self._link, variant),
            [*linked, self._code(variant)],
        )
        inputs = {"binary": sha256(binary), **self.run_inputs()}
        return memo(folder / "computed.json", inputs, str, partial(self._computed, binary))

    @cached_property
    def _commands(self) -> list[dict[str, Any]]:
        """How each module is compiled: to optimised bitcode, or to an object file."""
        ends = ["-emit-llvm"] if self._kind.replayed else _MEASURED
        return compile_commands(
            self._workload.program,
            self._workload.tree,
            self._folder / "ir",
            clang=self._toolchain.clang,
            flags=(*_OPTIMISED, *ends, *self._workload.flags),
        )

    @cached_property
    def _bitcode(self) -> list[Path]:
        """The optimised IR of all modules."""
        targets = [Path(command["arguments"][-1]) for command in self._commands]

        def optimise() -> None:
            for target in targets:
                target.parent.mkdir(parents=True, exist_ok=True)
            run_all(
                [command["arguments"] for command in self._commands],
                self._workload.tree,
                label=f"optimising {self._name}",
            )

        memo(self._folder / "ir" / "built.json", self._source_inputs, NoneType, optimise, targets)
        return targets

    def _link(self, variant: Variant) -> None:
        targets = [self.binary(variant, layout) for layout in range(LAYOUTS)]
        link_layouts(self.objects(variant), self._workload.program.libraries, targets)
        argv: list[str | Path] = ["objcopy", "-O", "binary", "-j", ".text"]
        run_command([*argv, self.binary(variant), self._code(variant)], timeout_s=60)

    def objects(self, variant: Variant) -> list[Path]:
        """The object files that a variant is linked from."""
        return [self._object(variant, module) for module in self._modules]

    def _object(self, variant: Variant, module: Path) -> Path:
        """The object file of a module: the variant's own if it is executed, else the default's."""
        if variant != DEFAULT and module not in self._executed:
            variant = DEFAULT
        return self._variant(variant) / module

    def _computed(self, binary: Path) -> str:
        """A checksum of what a run prints and writes."""
        argv = [str(binary), *self._workload.arguments]
        done = subprocess.run(argv, capture_output=True, timeout=TIMEOUT_S, check=True)
        printed = without_times(done.stdout)
        written = sha256(self._workload.output) if self._workload.output else ""
        return hashlib.sha256(printed + written.encode()).hexdigest()

    @cached_property
    def _source_inputs(self) -> dict[str, Any]:
        """All that the default variant's modules depend on."""
        return {
            "commands": [command["arguments"][1:] for command in self._commands],
            **source_checksums(self._workload.program, self._workload.tree),
            "clang": sha256(self._toolchain.clang.resolve()),
        }

    def _code_inputs(self, variant: Variant) -> dict[str, Any]:
        """All that the objects of a variant depend on."""
        inputs = {**self._source_inputs, "variant": repr(variant), "options": _CODEGEN}
        if variant.sampled or variant.profiled:
            # A profile's manifest holds the checksums of its files.
            inputs["profile"] = sha256(self._profile())
        if variant.policy is not None:
            inputs["policy"] = sha256(REPO_ROOT / "models" / variant.policy / "model.json")
        return inputs

    def run_inputs(self) -> dict[str, Any]:
        """All that the run depends on besides the binary."""
        return self._workload.run_inputs()

    def _variant(self, variant: Variant) -> Path:
        return (
            self._folder / "variants" / re.sub(r"[^a-z0-9.]+", "-", variant.name.lower()).strip("-")
        )

    def binary(self, variant: Variant, layout: int = 0) -> Path:
        """One of the variant's linked programs."""
        return self._variant(variant) / f"layout{layout}"

    def _code(self, variant: Variant) -> Path:
        """The machine code of its first layout, without all else."""
        return self._variant(variant) / "code"

    def variants(self) -> list[Variant]:
        """Those that were built, each code once."""
        found: dict[str, Variant] = {}
        for variant in self._kind.variants:
            code = self._code(variant)
            if code.exists():
                found.setdefault(sha256(code), variant)
        return list(found.values())
