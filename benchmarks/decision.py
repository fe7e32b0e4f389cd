# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What does one decision of a policy cost the compiler in release mode?

A program asks each model as LLVM does: as generated C++, and as TensorFlow compiles the same
network ahead of time. Instructions are counted by callgrind and do not depend on the machine's
load. Both must decide as the network in Python. The inputs are random, of decisions that the
policy is asked about; computing the features is not counted.

It needs TensorFlow (`tools/bootstrap --with=tensorflow`) and the toolchain `mock`.
"""

import re
import statistics
from collections.abc import Callable
from pathlib import Path

import numpy as np
from absl import logging

from benchmarks.results import Cell, Table
from compiler_opt_perf.policy.cpp_source import cpp_source
from compiler_opt_perf.policy.export import Policy, load
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.policy.testing import (
    Decider,
    random_inputs,
    random_network,
    save_saved_model,
)
from compiler_opt_perf.run.llvm import LLVM_VERSION
from compiler_opt_perf.toolchain.aot import aot_compile, package_directory
from compiler_opt_perf.toolchain.layout import BUILD, OVERLAY_PROJECT, REPO_ROOT, ToolchainError
from compiler_opt_perf.toolchain.model_inputs import MODELS, fed_features

ROWS = 1000
TIMES = 100
ROUNDS = 5
_CALLGRIND = (
    "valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
    "--collect-atstart=no", "--toggle-collect=decideOnce",
)  # fmt: skip


def _random_eviction() -> Policy:
    network = random_network(PROBLEMS["regalloc-evict"])
    return Policy(network, network.initial_weights(seed=1), {})


POLICIES: dict[str, Callable[[], Policy]] = {
    "inlining, rule (models/inline-speed)": lambda: load(REPO_ROOT / "models/inline-speed"),
    "inlining, network of 32 and 16 neurons (models/inline-size)": lambda: load(
        REPO_ROOT / "models/inline-size"
    ),
    "eviction, rule (models/regalloc-evict)": lambda: load(REPO_ROOT / "models/regalloc-evict"),
    "eviction, network of 16 and 8 neurons (random)": _random_eviction,
}


def study(folder: Path) -> list[Table]:
    """Measures the policies, both ways of compiling them in turns.

    Raises:
      ToolchainError: a model decides otherwise than the network in Python, or the toolchain is not
        built.
    """
    rows: list[list[Cell]] = []
    for number, (name, make) in enumerate(POLICIES.items()):
        policy = make()
        deciders = [_generated(policy, folder / f"{number}"), _saved(policy, folder / f"{number}")]
        measured = [_measured(policy, decider) for decider in deciders]
        logging.info("%s: %s", name, measured)
        rows.append([name, *(one[0] for one in measured), *(one[1] for one in measured)])
    return [
        Table.of(
            "decision",
            f"One decision in release mode, without computing its features: mean instructions of "
            f"{ROWS:,} random decisions, and the median time in {ROUNDS} rounds with its range.",
            {
                "decision": "text",
                "instructions, C++": "integer",
                "instructions, TensorFlow": "integer",
                "ns, C++": "number:0",
                "ns, TensorFlow": "number:0",
            },
            rows,
        )
    ]


def _generated(policy: Policy, folder: Path) -> Decider:
    """The program with generated C++."""
    header = folder / "generated" / "Model.h"
    header.parent.mkdir(parents=True, exist_ok=True)
    header.write_text(cpp_source(policy))
    return Decider.build(policy.network.problem, policy.network.features, header)


def _saved(policy: Policy, folder: Path) -> Decider:
    """The program with what TensorFlow compiles of the same network."""
    runtime = BUILD / "overlay" / "libaot_runtime.a"
    if not runtime.is_file():
        raise ToolchainError(
            f"{runtime}: is missing; build it with `cop toolchain build --toolchain=mock`"
        )
    problem = policy.network.problem
    (model,) = (model for model in MODELS if model.problem == problem.name)
    save_saved_model(folder / "saved", policy.network, policy.weights)
    features = fed_features(BUILD / f"llvm-{LLVM_VERSION}", model)
    compiled = folder / "compiled"
    aot_compile(folder / "saved", model, features, compiled)
    includes = (OVERLAY_PROJECT / "aot_include", package_directory("tensorflow") / "include")
    objects: list[str | Path] = [
        *(f"-isystem{path}" for path in includes),
        *("-w", "-pthread", compiled / f"{model.name}.o", runtime),
    ]
    header = compiled / f"{model.name}.h"
    return Decider.build(problem, policy.network.features, header, objects)


def _measured(policy: Policy, decider: Decider) -> tuple[float, tuple[float, float, float]]:
    """Instructions of one decision, and its nanoseconds: median, least and most of the rounds."""
    inputs = random_inputs(policy.network.problem, ROWS)
    for kind in (policy.network.asked or ())[:1]:
        for name in kind.__struct_fields__:
            inputs[name] = np.full(ROWS, getattr(kind, name))
    decisions, counted = decider.decide(inputs, 1, _CALLGRIND)
    if not np.array_equal(decisions, policy.decide(inputs)):
        raise ToolchainError(f"{decider.executable}: decides otherwise than the network in Python")
    (total,) = re.findall(r"Collected : (\d+)", counted)
    times = [float(decider.decide(inputs, TIMES)[1].split()[0]) for _ in range(ROUNDS)]
    return int(total) / ROWS, (statistics.median(times), min(times), max(times))
