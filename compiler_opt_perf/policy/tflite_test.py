# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What LiteRT decides by our files, with the kernels of the compiler and with those of Python."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from compiler_opt_perf.policy.export import load
from compiler_opt_perf.policy.network import DecisionKind, Network, to_grid
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.policy.testing import random_inputs, random_network
from compiler_opt_perf.policy.tflite import write_model
from compiler_opt_perf.toolchain.layout import REPO_ROOT

# Development mode has the first.
KERNELS = [OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES, OpResolverType.AUTO]
KINDS = (DecisionKind(0, 0, 1), DecisionKind(1, 0, 0))


def decisions(
    model: Path, network: Network, inputs: Mapping[str, npt.NDArray[Any]], kernels: OpResolverType
) -> npt.NDArray[np.int64]:
    interpreter = Interpreter(
        str(model / "model.tflite"), experimental_op_resolver_type=kernels, num_threads=1
    )
    run = interpreter.get_signature_runner("action")
    features = {feature.name: inputs[feature.name] for feature in network.features}
    rows = len(next(iter(features.values())))
    each = ({name: rows[i : i + 1] for name, rows in features.items()} for i in range(rows))
    return np.array([run(**row)[network.problem.decision][0] for row in each])


def _networks() -> dict[str, Network]:
    found = {}
    for name, problem in PROBLEMS.items():
        network = random_network(problem)
        found[name] = network
        found[f"{name}, lead"] = dataclasses.replace(network, default_lead=0.5)
        found[f"{name}, linear"] = random_network(problem, hidden=())
        found[f"{name}, one unit"] = random_network(problem, hidden=(9, 1))
        rates = problem.with_rates(["llc-misses-per-execution"])
        found[f"{name}, rate"] = random_network(rates)
    inlining = dataclasses.replace(random_network(PROBLEMS["inline-size"]), default_lead=0.25)
    for name, asked in {"kinds": KINDS, "a kind": KINDS[:1], "no kind": ()}.items():
        found[name] = dataclasses.replace(inlining, asked=asked)
    return found


@pytest.mark.parametrize("kernels", KERNELS, ids=str)
@pytest.mark.parametrize("name", _networks())
def test_networks_decide_as_in_python(name: str, kernels: OpResolverType, tmp_path: Path) -> None:
    network = _networks()[name]
    noise = np.random.default_rng(3).normal(0, 0.4, network.size)
    weights = to_grid(noise)
    write_model(tmp_path, network, weights)
    inputs = random_inputs(network.problem, 1000, seed=7)
    expected = network.decide(weights, inputs)
    assert len(set(expected.tolist())) > 1
    np.testing.assert_array_equal(decisions(tmp_path, network, inputs, kernels), expected)


@pytest.mark.parametrize("kernels", KERNELS, ids=str)
@pytest.mark.parametrize("name", ["inline-size", "inline-speed", "regalloc-evict"])
def test_shipped_policies_decide_as_in_python(name: str, kernels: OpResolverType) -> None:
    folder = REPO_ROOT / "models" / name
    policy = load(folder)
    inputs = random_inputs(policy.network.problem, 1000, seed=8)
    expected = policy.decide(inputs)
    assert len(set(expected.tolist())) > 1
    np.testing.assert_array_equal(decisions(folder, policy.network, inputs, kernels), expected)


@pytest.mark.parametrize("name", PROBLEMS)
def test_tensors_have_the_names_that_the_compiler_looks_for(name: str, tmp_path: Path) -> None:
    problem = PROBLEMS[name]
    network = random_network(problem)
    write_model(tmp_path, network, network.initial_weights(1))
    interpreter = Interpreter(str(tmp_path / "model.tflite"))
    inputs = {d["name"]: (d["dtype"], tuple(d["shape"])) for d in interpreter.get_input_details()}
    assert inputs == {
        f"action_{f.name}:0": (np.dtype(f.dtype).type, f.shape) for f in problem.inputs(True)
    }
    assert list(inputs) == [f"action_{f.name}:0" for f in problem.inputs(True)]
    signature = interpreter.get_signature_list()["action"]
    assert set(signature["inputs"]) == {f.name for f in problem.inputs(True)}
    assert signature["outputs"] == [problem.decision]
    (spec,) = json.loads((tmp_path / "output_spec.json").read_text())
    assert spec["logging_name"] == problem.decision
    (output,) = interpreter.get_output_details()
    assert output["name"] == f"{spec['tensor_spec']['name']}:{spec['tensor_spec']['port']}"
    assert output["dtype"] == np.int64
    assert output["shape"].tolist() == spec["tensor_spec"]["shape"]


def test_equal_policies_give_equal_bytes(tmp_path: Path) -> None:
    contents = []
    for number in range(2):
        network = _networks()["kinds"]
        folder = tmp_path / str(number)
        folder.mkdir()
        write_model(folder, network, network.initial_weights(1))
        contents.append([path.read_bytes() for path in sorted(folder.iterdir())])
    assert contents[0] == contents[1]


def test_constants_are_aligned(tmp_path: Path) -> None:
    network = random_network(PROBLEMS["regalloc-evict"])
    weights = to_grid(np.random.default_rng(1).normal(0, 0.4, network.size))
    write_model(tmp_path, network, weights)
    content = (tmp_path / "model.tflite").read_bytes()
    for matrix, bias in network.layers(weights)[:2]:
        for buffer in (matrix.T.tobytes(), bias.tobytes()):
            assert content.count(buffer) == 1
            assert content.index(buffer) % 16 == 0
