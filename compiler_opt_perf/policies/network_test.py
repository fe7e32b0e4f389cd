# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import numpy as np
import pytest

from compiler_opt_perf.policies import network as network_lib
from compiler_opt_perf.policies.network import Network, fit_normalisation, to_grid
from compiler_opt_perf.policies.problem import PROBLEMS, Problem
from compiler_opt_perf.policies.testing import random_inputs, random_network


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=list(PROBLEMS))
def test_decisions_do_not_depend_on_the_order_of_additions(problem: Problem) -> None:
    network = random_network(problem)
    inputs = random_inputs(problem, rows=500)
    weights = network.initial_weights(seed=3)
    encoded = network.encode(inputs)
    scores = network.scores(network.layers(weights), encoded)
    # The same sums in double precision are exact without any doubt.
    exact = network.scores(
        [(m.astype(np.float64), b.astype(np.float64)) for m, b in network.layers(weights)],
        encoded.astype(np.float64),
    )
    assert scores.dtype == np.float32
    np.testing.assert_array_equal(scores, exact)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=list(PROBLEMS))
def test_sums_stay_exact_at_the_limits(problem: Problem) -> None:
    network = random_network(problem, hidden=(network_lib.MAX_LAYER_INPUTS,))
    largest = np.full(network.size, network_lib.WEIGHT_LIMIT - network_lib.GRID, np.float32)
    columns = problem.decisions if problem.mask else 1
    encoded = np.full(
        (1, network.layer_widths[0], columns),
        network_lib.ACTIVATION_LIMIT - network_lib.GRID,
        np.float32,
    )
    scores = network.scores(network.layers(largest), encoded)
    exact = network.scores(
        [(m.astype(np.float64), b.astype(np.float64)) for m, b in network.layers(largest)],
        encoded.astype(np.float64),
    )
    np.testing.assert_array_equal(scores, exact)


def test_too_wide_a_layer_is_refused() -> None:
    with pytest.raises(ValueError, match="63 inputs"):
        random_network(PROBLEMS["inline-size"], hidden=(63,))


def test_eviction_follows_a_permutation_of_the_registers() -> None:
    problem = PROBLEMS["regalloc-evict"]
    network = random_network(problem)
    inputs = random_inputs(problem, rows=200)
    weights = network.initial_weights(seed=5)
    order = np.random.default_rng(0).permutation(problem.decisions - 1)
    order = np.append(order, problem.decisions - 1)
    permuted = {name: v[:, order] if v.ndim == 2 else v for name, v in inputs.items()}
    scores = network.masked_scores(network.layers(weights), inputs)
    np.testing.assert_array_equal(
        network.masked_scores(network.layers(weights), permuted), scores[:, order]
    )


def test_only_admissible_columns_are_evicted_and_ties_take_the_first() -> None:
    problem = PROBLEMS["regalloc-evict"]
    network = random_network(problem)
    inputs = random_inputs(problem, rows=300)
    decisions = network.decide(np.zeros(network.size, np.float32), inputs)
    np.testing.assert_array_equal(decisions, np.argmax(inputs["mask"], axis=1))
    decisions = network.decide(network.initial_weights(seed=1), inputs)
    assert (np.take_along_axis(inputs["mask"], decisions[:, None], axis=1) == 1).all()


def test_missing_is_not_zero() -> None:
    problem = PROBLEMS["inline-size"]
    network = random_network(problem)
    inputs = random_inputs(problem, rows=2)
    name = problem.pmu_features[1].name
    inputs[name] = np.array([-1, 0])
    position = problem.all_features(True).index(problem.pmu_features[1])
    present = network.layer_widths[0] - len(problem.pmu_features) + 1
    encoded = network.encode(inputs)[:, :, 0]
    assert encoded[0, present] == 0.0
    assert encoded[1, present] == 1.0
    assert encoded[0, position] == 0.0
    assert encoded[1, position] != 0.0


def test_compress_is_the_piecewise_linear_logarithm() -> None:
    values = np.array([0, 1, 2, 3, 7, -7, 1023, 1e12, -np.inf], np.float32)
    compressed = network_lib.compress(values, np.ones(1, np.float32))
    np.testing.assert_array_equal(compressed, [0, 1, 1.5, 2, 3, -3, 10, 16, -16])


def test_an_infinite_spill_weight_counts_as_the_largest() -> None:
    problem = PROBLEMS["regalloc-evict"]
    inputs = random_inputs(problem, rows=1)
    inputs["use_def_density"][0, :2] = [np.nan, 1.0]
    stacked = network_lib.stack_features(inputs, problem, with_pmu=True)
    names = [f.name for f in network_lib.scored_features(problem, True)]
    assert stacked[0, names.index("use_def_density"), 0] == 1.0


def test_normalisation_brings_features_to_unit_spread() -> None:
    problem = PROBLEMS["regalloc-evict"]
    inputs = random_inputs(problem, rows=500)
    normalisation = fit_normalisation(inputs, problem, with_pmu=True)
    network = Network(problem, True, (4,), normalisation)
    encoded = network.encode(inputs).transpose(0, 2, 1)[inputs["mask"] > 0]
    spread = encoded[:, : len(normalisation.center)].std(axis=0)
    assert np.log2(normalisation.inverse_scale) == pytest.approx(
        np.rint(np.log2(normalisation.inverse_scale))
    )
    assert spread.max() < 2.0


def test_to_grid_limits_and_rounds() -> None:
    weights = to_grid(np.array([5.0, -5.0, 0.5 + 1e-4], np.float32))
    np.testing.assert_array_equal(weights, np.array([1.0, -1.0, 0.5], np.float32))
