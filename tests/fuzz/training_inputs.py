# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes sound inputs for the readers of policies, trainings, comparisons and cost models."""

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

from compiler_opt_perf.cli.train_verbs import EXIT_WORSE
from compiler_opt_perf.compare import linked
from compiler_opt_perf.compare.baseline import write_baseline
from compiler_opt_perf.compare.comparison import Comparison, FunctionScores, ModuleComparison
from compiler_opt_perf.compare.history import accept
from compiler_opt_perf.compare.limits import DEFAULT
from compiler_opt_perf.compare.summary import to_json
from compiler_opt_perf.compare.testing import LINKED, sample, write_imitation
from compiler_opt_perf.policy.network import Network
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.policy.testing import random_inputs, random_network
from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.files import sha256, write_json
from compiler_opt_perf.run.json_text import JsonError, parse_json
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT
from compiler_opt_perf.train.checkpoint import Checkpoint
from compiler_opt_perf.train.config import presets
from compiler_opt_perf.train.label_files import Labels, write_labels

#: The command of the training in the folder `training`, without --toolchain.
TRAIN = (
    f"{sys.executable} -m compiler_opt_perf.cli.main train policy --problem=inline-size "
    "--corpus=corpus/train --output=training --iterations=1 --setting=hidden=[2] "
    "--setting=evolution-strategies.pairs=1 --setting=workers=1"
)


def training(folder: Path, toolchain: Toolchain) -> None:
    """A corpus and a finished training on it, with a copy of the training in `sound`."""
    entries = []
    for name in ("a", "b", "c", "d"):
        function = f"static int own_{name}(int X) {{ return X * {ord(name)} + (X >> 1); }}\n"
        calls = f"own_{name}(I) ^ own_{name}(Sum)"
        function += f"int {name}(int N) {{\n  int Sum = 0;\n"
        function += f"  for (int I = 0; I < N; ++I)\n    Sum += {calls};\n  return Sum;\n}}\n"
        (folder / f"{name}.c").write_text(function)
        words = ["clang", "-c", f"{name}.c"]
        entries.append({"directory": ".", "file": f"{name}.c", "arguments": words})
    (folder / "compile_commands.json").write_text(json.dumps(entries))
    words = [sys.executable, "-m", "compiler_opt_perf.cli.main", "corpus", "extract"]
    words += ["--problem=inline-size", "--held-out=0.25", "--output=corpus"]
    run_command([*words, "p=compile_commands.json"], cwd=folder)
    words = shlex.split(f"{TRAIN} --toolchain={toolchain.directory}")
    try:
        run_command(words, cwd=folder, timeout_s=280)
    except CommandError as error:
        # A policy that is worse than the default is published, too.
        if error.returncode != EXIT_WORSE:
            raise
    shutil.copytree(folder / "training", folder / "sound")


def labelled(folder: Path, toolchain: Toolchain) -> None:
    """The file of labels of one module."""
    del toolchain
    problem = PROBLEMS["inline-size"]
    inputs = random_inputs(problem, rows=40, seed=1)
    names = [feature.name for feature in problem.inputs(with_pmu=False)]
    record = np.dtype([(name, np.int64, (1,)) for name in (*names, problem.decision)])
    rows = np.zeros(40, record)
    for name in names:
        rows[name][:, 0] = inputs[name]
    rows[problem.decision] = rows[problem.default_feature]
    keys = tuple(f"caller callee call.{row} - #0" for row in range(40))
    difference = np.linspace(-90.0, 100.0, 40)
    write_labels(
        folder / "labels.npz", Labels("p/module", keys, rows, rows[:9], difference, 4000.0, 7)
    )


def imitation(folder: Path, toolchain: Toolchain) -> None:
    """The folder of a training on labels."""
    del toolchain
    write_imitation(folder / "training")


def checkpoint(folder: Path, toolchain: Toolchain) -> None:
    """A training's checkpoint and curve."""
    del toolchain
    network = random_network(PROBLEMS["inline-size"], (4,))
    weights = network.initial_weights(1)
    vector = np.asarray(weights, dtype=np.float64)
    general = {"stage": 0, "compilations": 5, "elapsed_s": 1.0}
    curve = [
        {"generation": 0, "validation_of_mean": 0.01, **general},
        {"generation": 1, "candidates_mean": 0.1, "validation_of_mean": -0.02, **general},
    ]
    recorded = {
        "curve": curve,
        "modules": {"train": ["p/a"], "validation": ["p/b"], "test": ["p/c"]},
        "best_generation": 1,
        "best_change": -0.02,
        "start_change": 0.01,
        "stage": 0,
        "iteration": 1,
        "compilations": 10,
        "failures": 0,
        "margin": network.default_lead,
        "asked": None,
        "ended": {
            "budget_s": 0.0,
            "compilations": 10,
            "test_change": -0.01,
            "test_failed": [],
            "grid_loss": {"loss": 0.001},
        },
    }
    state = {
        "weights": vector,
        "steps": np.array(1),
        "first_moment": vector,
        "second_moment": vector,
    }
    saved = Checkpoint(state, weights, network.normalisation, recorded)
    saved.save(folder / "checkpoint.npz")
    (folder / "curve.jsonl").write_text("".join(json.dumps(row) + "\n" for row in curve))


def recipes(folder: Path, toolchain: Toolchain) -> None:
    """A recipe of `cop train policy` with settings of every kind."""
    del toolchain
    text = "hidden = [8, 4]\nvalidation_share = 0.1\n[programs]\n"
    text += "".join(f'{name} = ["{name}"]\n' for name in ("training", "validation", "test"))
    for path in presets().values():
        (stages,) = path.read_text(encoding="utf-8").partition("\n[[stages]]")[2:]
        text += f"\n[[stages]]{stages}"
    (folder / "recipe.toml").write_text(text)


def policy(folder: Path, toolchain: Toolchain) -> None:
    """A published policy, with the files that `cop policy interact` reads."""
    del toolchain
    network = random_network(PROBLEMS["inline-size"], (4,))
    normalisation = network.normalisation
    np.savez(
        folder / "weights.npz",
        weights=network.initial_weights(1),
        center=normalisation.center,
        inverse_scale=normalisation.inverse_scale,
    )
    write_json(folder / "model.json", _describe(network) | {"files": {"weights.npz": ""}})
    seal_policy(folder)


def _describe(network: Network) -> dict[str, Any]:
    features = [
        {"name": feature.name, "dtype": feature.dtype, "shape": list(feature.shape)}
        for feature in network.problem.inputs(network.with_pmu)
    ]
    return {
        "format": "compiler-opt-perf/model",
        "version": 4,
        "problem": network.problem.name,
        "with_pmu": network.with_pmu,
        "default_lead": network.default_lead,
        "extra_rates": [],
        "hidden": list(network.hidden),
        "features": features,
    }


def seal_policy(folder: Path) -> None:
    """Corrects the checksum of a policy's weights."""
    path, weights = folder / "model.json", folder / "weights.npz"
    try:
        value = parse_json(path.read_bytes())
        if weights.is_file() and weights.stat().st_size < 1 << 30:
            value["files"]["weights.npz"] = sha256(weights)
            path.write_text(json.dumps(value, indent=1))
    except (OSError, JsonError, KeyError, TypeError):
        return


def comparison(folder: Path, toolchain: Toolchain) -> None:
    """Comparisons of `cop compare policy` and `programs`, and a training's folder."""
    imitation(folder, toolchain)
    functions = (FunctionScores("f", 7, 80.0, 60.0), FunctionScores("g", None, None, 1.0))
    seconds = (1.0, 2.0, 3.0)
    rows = tuple(
        ModuleComparison(name, 1000, 900, functions, 50, 40, 20, 5, seconds, seconds)
        for name in ("p/a", "p/b", "q/c")
    )
    compared = Comparison(
        "regalloc-evict", "-O2", ("release",), 1, "processor time, 3 pairs a module", rows
    )
    write_json(folder / "one.json", to_json(compared))
    write_json(folder / "linked.json", linked.to_json(LINKED))


def gate(folder: Path, toolchain: Toolchain) -> None:
    """A baseline of the gate, its limits, and its history."""
    del toolchain
    write_baseline(sample(), folder / "baseline.json")
    baseline, accepted = folder / "baseline.json", folder / "accepted.json"
    accept(baseline, accepted, folder / "gate.jsonl", "the first")
    shutil.copy(DEFAULT, folder / "limits.toml")


def cost_model(folder: Path, toolchain: Toolchain) -> None:
    """The published cost model."""
    shutil.copytree(REPO_ROOT / "models" / "cost-znver3", folder / "model")
