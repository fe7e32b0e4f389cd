# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The variants of one program: compiled by several register allocations, linked and compared."""

import hashlib
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any

from absl import logging

from benchmarks.common import TIMEOUT_S, BenchmarkError, run_all
from benchmarks.programs.workload import Workload
from benchmarks.timing import LAYOUTS, link_layouts
from benchmarks.variants import (
    DEFAULT,
    TOO_FEW_REGISTERS,
    VARIANTS,
    Variant,
)
from compiler_opt_perf.binary.address_map import ANALYSIS_FLAGS
from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.corpus.programs import compile_commands, source_checksums
from compiler_opt_perf.cost.evaluator import REPLAY_FLAGS
from compiler_opt_perf.cost.regalloc_score import FLAGS as SCORE_FLAGS
from compiler_opt_perf.policy.interactive import InteractiveHost
from compiler_opt_perf.policy.problem import PROBLEMS, for_clang
from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.files import sha256
from compiler_opt_perf.run.memo import memo
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.toolchain.installation import Toolchain

_PROBLEM = PROBLEMS["regalloc-evict"]
_IR_FLAGS = ("-O2", *PROFILING_FLAGS.split(), "-march=x86-64-v2", "-emit-llvm")
_CODEGEN = (
    *("-O2", "-x", "ir", "-Xclang", "-disable-llvm-passes", "-ffunction-sections"),
    *(*ANALYSIS_FLAGS.split(), *SCORE_FLAGS, *REPLAY_FLAGS),
)
# Beginnings of the names of modules that the runs hardly enter, such as Lua's compiler. All
# variants link the default variant's objects of these.
_KEPT: dict[str, tuple[str, ...]] = {
    "zstd": (
        *("programs/", "lib/d"),
        *(f"lib/compress/zstd{x}" for x in ("mt", "_opt", "_fast", "_d")),
    ),
    "lua": (
        *("src/lcode", "src/ldblib", "src/ldump", "src/liolib", "src/llex", "src/loadlib"),
        *("src/loslib", "src/lparser", "src/lua.", "src/lundump", "src/lutf8lib"),
        *("src/lcorolib", "src/lmathlib"),
    ),
}


@dataclass(frozen=True)
class Codegen:
    """The compilation of one module in one variant."""

    toolchain: Toolchain
    variant: Variant
    bitcode: Path
    target: Path


def generate(job: Codegen) -> None:
    """Compiles bitcode to an object file, in a pool's worker. Raises CommandError."""
    argv: list[str | Path] = [job.toolchain.clang, *_CODEGEN, "-c", job.bitcode]
    argv += ["-o", job.target, *for_clang(job.variant.options)]
    if job.variant.rule is None:
        run_command(argv, timeout_s=TIMEOUT_S)
        return
    with InteractiveHost(_PROBLEM, job.variant.decide(job.bitcode.name)) as host:
        argv += for_clang(_PROBLEM.interactive_options(host.channel))
        host.run(argv, timeout_s=TIMEOUT_S)


class Builds:
    """The compiled variants of one program, in a folder of its own."""

    def __init__(self, name: str, folder: Path, workload: Workload, toolchain: Toolchain):
        self._name = name
        self._folder = folder
        self._workload = workload
        self._toolchain = toolchain
        self._kept = _KEPT.get(name, ())

    def build(self) -> None:
        """Compiles and links all variants, and compares what they compute."""
        impossible = self._compile()
        for variant in impossible:
            logging.warning("%s: %s is left out: %s", self._name, variant.name, TOO_FEW_REGISTERS)
        computed = {v.name: self._linked(v) for v in VARIANTS if v not in impossible}
        wrong = [name for name in computed if computed[name] != computed[DEFAULT.name]]
        if wrong:
            raise BenchmarkError(f"{self._name}: {', '.join(wrong)}: compute something else")

    def _compile(self) -> set[Variant]:
        """Makes the object files that are missing; returns variants that cannot be compiled."""
        bitcode = self._bitcode()
        checksums = [sha256(path) for path in bitcode]
        jobs = []
        for variant in VARIANTS:
            folder = self._variant(variant)
            # Modules are added to the folder one by one; all have these inputs.
            inputs = {"bitcode": checksums, **self._code_inputs(variant)}
            clear = partial(shutil.rmtree, folder, ignore_errors=True)
            memo(folder / "wanted.json", inputs, NoneType, clear)
            for source, target in zip(bitcode, self.objects(variant), strict=True):
                if target.is_relative_to(folder) and not target.exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    jobs.append(Codegen(self._toolchain, variant, source, target))
        impossible = set()
        with Pool() as pool:
            outcomes = pool.map(generate, jobs, label=f"compiling {self._name}")
            for job, outcome in zip(jobs, outcomes, strict=True):
                try:
                    outcome.get()
                except CommandError as error:
                    if TOO_FEW_REGISTERS not in str(error):
                        raise
                    impossible.add(job.variant)
        return impossible

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

    def _optimisations(self) -> list[dict[str, Any]]:
        """How the optimised IR of each module is made."""
        return compile_commands(
            self._workload.program,
            self._workload.tree,
            self._folder / "ir",
            clang=self._toolchain.clang,
            flags=(*_IR_FLAGS, *self._workload.flags),
        )

    def _bitcode(self) -> list[Path]:
        """The optimised IR of all modules."""
        commands = self._optimisations()
        targets = [Path(command["arguments"][-1]) for command in commands]
        inputs = {
            "commands": [command["arguments"][1:] for command in commands],
            **source_checksums(self._workload.program, self._workload.tree),
            "clang": self._clang(),
        }

        def optimise() -> None:
            for target in targets:
                target.parent.mkdir(parents=True, exist_ok=True)
            run_all(
                [command["arguments"] for command in commands],
                self._workload.tree,
                label=f"optimising {self._name}",
            )

        memo(self._folder / "ir" / "built.json", inputs, NoneType, optimise, targets)
        return targets

    def _link(self, variant: Variant) -> None:
        targets = [self.binary(variant, layout) for layout in range(LAYOUTS)]
        link_layouts(self.objects(variant), self._workload.program.libraries, targets)
        argv: list[str | Path] = ["objcopy", "-O", "binary", "-j", ".text"]
        run_command([*argv, self.binary(variant), self._code(variant)], timeout_s=60)

    def objects(self, variant: Variant) -> list[Path]:
        """The object files that a variant is linked from."""
        root = self._folder / "ir" / "objects"
        modules = [Path(c["arguments"][-1]).relative_to(root) for c in self._optimisations()]
        return [
            self._variant(DEFAULT if str(module).startswith(self._kept) else variant) / module
            for module in modules
        ]

    def _computed(self, binary: Path) -> str:
        """A checksum of what a run prints and writes."""
        argv = [str(binary), *self._workload.arguments]
        done = subprocess.run(argv, capture_output=True, timeout=TIMEOUT_S, check=True)
        # SQLite's benchmark prints times.
        printed = re.sub(rb"\d+\.\d+s", b"", done.stdout)
        written = sha256(self._workload.output) if self._workload.output else ""
        return hashlib.sha256(printed + written.encode()).hexdigest()

    def _code_inputs(self, variant: Variant) -> dict[str, Any]:
        """All that the objects depend on besides the bitcode."""
        return {
            "variant": repr(variant),
            "options": _CODEGEN,
            "kept": self._kept,
            "clang": self._clang(),
        }

    def run_inputs(self) -> dict[str, Any]:
        """All that the run depends on besides the binary."""
        return self._workload.run_inputs()

    def _clang(self) -> str:
        return sha256(self._toolchain.clang.resolve())

    def _variant(self, variant: Variant) -> Path:
        return self._folder / "variants" / re.sub(r"[^a-z0-9.]+", "-", variant.name).strip("-")

    def binary(self, variant: Variant, layout: int = 0) -> Path:
        """One of the variant's linked programs."""
        return self._variant(variant) / f"layout{layout}"

    def _code(self, variant: Variant) -> Path:
        """The machine code of its first layout, without all else."""
        return self._variant(variant) / "code"

    def variants(self) -> list[Variant]:
        """Those that were built, each code once."""
        found: dict[str, Variant] = {}
        for variant in VARIANTS:
            code = self._code(variant)
            if code.exists():
                found.setdefault(sha256(code), variant)
        return list(found.values())
