# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures what one decision of a policy costs the compiler, in release and development mode.

The policy is compiled ahead of time as for release mode, and its TFLite file is run by the
compiler's own evaluator. Instructions are counted by callgrind and do not depend on the machine's
load; the time is the median of many decisions, and the best of some rounds in which the policies
take turns. All decisions are compared with those of the policy in numpy. The inputs are random.

With several policies, each is compared with the first.
"""

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.execution.llvm import LLVM_PREFIX, LLVM_VERSION
from compiler_opt_perf.policies import export
from compiler_opt_perf.policies.testing import random_inputs
from compiler_opt_perf.toolchain.aot import aot_compile, package_directory
from compiler_opt_perf.toolchain.layout import BUILD, ToolchainError
from compiler_opt_perf.toolchain.model_inputs import MODELS, fed_features

MODES = ("release", "development")
ROWS = 500
COUNTED_DECISIONS = 200
ROUNDS = 5

_CPP_TYPES = {"int64": "int64_t", "float32": "float"}
_SOURCE = Path(__file__).with_suffix(".cpp")


@dataclass(frozen=True)
class Program:
    """The measuring program for one policy."""

    policy: Path
    executable: Path
    inputs: Path
    expected: npt.NDArray[np.int64]

    def run(self, mode: str, decisions: int, tool: tuple[str, ...] = ()) -> str:
        """Runs the program, under a tool if given; checks its decisions and returns its report."""
        output = self.executable.with_name("decisions")
        litert = package_directory("ai_edge_litert") / "libLiteRt.so"
        result = subprocess.run(
            [*tool, self.executable, mode, self.policy, self.inputs, str(decisions), output],
            env={**os.environ, "LLVM_LITERT_LIBRARY": str(litert)},
            capture_output=True,
            text=True,
            timeout=600,
        )
        if result.returncode != 0:
            raise ToolchainError(f"{self.policy} in {mode} mode: {result.stderr.strip()}")
        if not np.array_equal(np.fromfile(output, np.int64), np.resize(self.expected, decisions)):
            raise ToolchainError(
                f"{self.policy}: {mode} mode decides differently from numpy; publish it again"
            )
        return result.stdout + result.stderr

    def nanoseconds(self, mode: str, decisions: int) -> float:
        """Median time of one decision."""
        return float(self.run(mode, decisions).split()[0])

    def instructions(self, mode: str) -> float:
        """Mean number of instructions of one decision."""
        callgrind = (
            "valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
            "--collect-atstart=no", "--toggle-collect=decideOnce",
        )  # fmt: skip
        (total,) = re.findall(r"Collected : (\d+)", self.run(mode, COUNTED_DECISIONS, callgrind))
        return int(total) / COUNTED_DECISIONS


def build(policy_directory: Path, folder: Path) -> Program:
    """Compiles the program for one policy in `folder`, with the objects of the compiler's build."""
    policy = export.load(policy_directory)
    overlay = BUILD / "overlay"
    tree = BUILD / f"llvm-{LLVM_VERSION}"
    evaluator = next(overlay.glob("CMakeFiles/common.dir/**/TFLiteUtils.cpp.o"), None)
    runtime = overlay / "libaot_runtime.a"
    if evaluator is None or not runtime.is_file():
        raise ToolchainError(f"{overlay}: no build of the compiler; run tools/check build")
    features = policy.network.features
    (model,) = [model for model in MODELS if model.problem == policy.network.problem.name]
    folder.mkdir(parents=True, exist_ok=True)
    aot_compile(policy_directory, model, fed_features(tree, model), folder)
    (folder / "features.inc").write_text(
        "".join(
            f'FEATURE({_CPP_TYPES[feature.dtype]}, "{feature.name}", '
            f"{', '.join(map(str, feature.shape))})\n"
            for feature in features
        )
    )
    rows = random_inputs(policy.network.problem, ROWS)
    columns = [rows[feature.name].reshape(ROWS, -1).view(np.uint8) for feature in features]
    inputs = folder / "inputs"
    np.concatenate(columns, axis=1).tofile(inputs)
    executable = folder / "bench"
    tensorflow = package_directory("tensorflow")
    subprocess.run(
        ["c++", "-std=c++17", "-O2", "-DNDEBUG", "-DLLVM_HAVE_TFLITE=1", "-w",
         f'-DMODEL_HEADER="{model.name}.h"', f"-DMODEL_CLASS={model.cpp_class}",
         f"-I{folder}", f"-I{tree}/llvm/include", f"-isystem{LLVM_PREFIX}/include",
         f"-isystem{tensorflow}/include", _SOURCE, evaluator, folder / f"{model.name}.o", runtime,
         f"-L{LLVM_PREFIX}/lib", "-lLLVMAnalysis", "-lLLVMSupport", "-lLLVMDemangle",
         "-Wl,--gc-sections", "-lz", "-lzstd", "-ltinfo", "-lpthread", "-ldl", "-o", executable],
        check=True,
    )  # fmt: skip
    return Program(policy_directory, executable, inputs, policy.decide(rows))


def study(policies: Sequence[Path], decisions: int) -> None:
    """Measures policies in both modes and prints what one decision takes.

    Args:
      policies: folders that training published.
      decisions: how many to time in a round.

    Raises:
      ToolchainError: the compiler is not built, or decides differently from numpy.
      ModelError: a folder does not hold a policy.
    """
    programs = [
        build(policy.resolve(), BUILD / "bench-inference" / str(number))
        for number, policy in enumerate(policies)
    ]
    times: dict[tuple[int, str], list[float]] = {}
    for _ in range(ROUNDS):
        for mode in MODES:
            for number, program in enumerate(programs):
                nanoseconds = program.nanoseconds(mode, decisions)
                times.setdefault((number, mode), []).append(nanoseconds)
    print("mode         instructions       us  policy")
    for mode in MODES:
        for number, program in enumerate(programs):
            best = min(times[number, mode])
            line = f"{mode:12} {program.instructions(mode):12.0f} {best / 1000:8.2f}"
            line += f"  {policies[number]}"
            if number > 0:
                line += f" ({min(times[0, mode]) / best:.2f} times as fast as the first)"
            print(line, flush=True)
