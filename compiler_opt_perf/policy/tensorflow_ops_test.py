# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import dataclasses
from pathlib import Path

import pytest

from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.policy.testing import random_inputs, random_network, save_saved_model
from compiler_opt_perf.run.tensorflow_environment import import_tensorflow


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_saved_model_decides_as_in_python(name: str, tmp_path: Path) -> None:
    problem = PROBLEMS[name]
    network = dataclasses.replace(random_network(problem), default_lead=0.5)
    weights = network.initial_weights(seed=2)
    save_saved_model(tmp_path, network, weights)
    tf = import_tensorflow()
    action = tf.saved_model.load(str(tmp_path)).signatures["action"]
    inputs = random_inputs(problem, 100, seed=7)
    expected = network.decide(weights, inputs)
    assert len(set(expected.tolist())) > 1
    for i in range(100):
        row = {name: tf.constant(values[i : i + 1]) for name, values in inputs.items()}
        assert action(**row)[problem.decision].numpy().tolist() == [expected[i]]
