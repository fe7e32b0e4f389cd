# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from compiler_opt_perf.policy import network as network_lib
from compiler_opt_perf.policy.encoding import (
    ACTIVATION_LIMIT,
    GRID,
    NUMPY_OPS,
    FloatArray,
    compress,
    fit_normalisation,
    scored_features,
)
from compiler_opt_perf.policy.network import Network, to_grid
from compiler_opt_perf.policy.problem import PROBLEMS, Feature, Problem
from compiler_opt_perf.policy.testing import random_inputs, random_network


def exact_matmul(a: FloatArray, b: FloatArray) -> FloatArray:
    """The product, after checking that the same sums in double precision are equal."""
    product: FloatArray = np.matmul(a, b)
    assert product.dtype == np.float32
    np.testing.assert_array_equal(product, np.matmul(a.astype(np.float64), b.astype(np.float64)))
    return product


EXACT_OPS = SimpleNamespace(**{**vars(NUMPY_OPS), "matmul": exact_matmul})


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=list(PROBLEMS))
def test_decisions_do_not_depend_on_the_order_of_additions(problem: Problem) -> None:
    network = random_network(problem)
    encoded = network.encode(random_inputs(problem, rows=500))
    np.testing.assert_array_equal(encoded, np.rint(encoded / GRID) * GRID)
    assert np.abs(encoded).max() <= ACTIVATION_LIMIT
    scores = network.scores(network.layers(network.initial_weights(seed=3)), encoded, EXACT_OPS)
    assert scores.std() > 0


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=list(PROBLEMS))
def test_sums_stay_exact_at_the_limits(problem: Problem) -> None:
    network = random_network(problem, hidden=(network_lib.MAX_LAYER_INPUTS,))
    largest = np.full(network.size, network_lib.WEIGHT_LIMIT - GRID, np.float32)
    columns = problem.decisions if problem.mask else 1
    encoded = np.full(
        (1, network.layer_widths[0], columns),
        ACTIVATION_LIMIT - GRID,
        np.float32,
    )
    network.scores(network.layers(largest), encoded, EXACT_OPS)


def test_too_wide_a_layer_is_refused() -> None:
    with pytest.raises(ValueError, match="63 inputs"):
        random_network(PROBLEMS["inline-size"], hidden=(63,))


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=list(PROBLEMS))
def test_an_untrained_network_with_a_lead_decides_as_the_compiler(problem: Problem) -> None:
    network = dataclasses.replace(random_network(problem), default_lead=GRID)
    inputs = random_inputs(problem, rows=500)
    default = inputs[problem.default_feature]
    if problem.mask is not None:
        default = np.argmax(default, axis=1)
    assert len(set(default.tolist())) > 1
    weights = network.initial_weights(seed=3)
    assert weights.any()
    np.testing.assert_array_equal(network.decide(weights, inputs), default)
    # The lead is a number that the perceptron must overcome.
    other = network_lib.Network(
        problem, True, network.hidden, network.normalisation, network_lib.MAX_DEFAULT_LEAD
    )
    trained = random_network(problem).initial_weights(seed=3)
    differing = [(one.decide(trained, inputs) != default).mean() for one in (network, other)]
    assert differing[1] < differing[0]


def test_decisions_of_a_kind_that_is_not_asked_about_are_the_compilers() -> None:
    problem = PROBLEMS["inline-size"]
    asked = (network_lib.DecisionKind(0, 1, 1), network_lib.DecisionKind(1, 0, 0))
    network = random_network(problem)
    inputs = random_inputs(problem, rows=2000)
    for name in ("callee_is_comdat", "callee_is_mangled"):
        inputs[name] = np.abs(inputs[name]) % 2
    weights = network.initial_weights(seed=3)
    decided = network.decide(weights, inputs)
    default = inputs[problem.default_feature]
    of_kind = asked[0].holds(inputs) | asked[1].holds(inputs)
    # The network alone decides otherwise in and outside of these kinds.
    assert (decided != default)[of_kind].any() and (decided != default)[~of_kind].any()
    np.testing.assert_array_equal(
        dataclasses.replace(network, asked=asked).decide(weights, inputs),
        np.where(of_kind, decided, default),
    )
    np.testing.assert_array_equal(
        dataclasses.replace(network, asked=()).decide(weights, inputs), default
    )
    with pytest.raises(ValueError, match="kinds of decisions, which regalloc-evict"):
        dataclasses.replace(random_network(PROBLEMS["regalloc-evict"]), asked=asked)


@pytest.mark.parametrize("lead", [-0.5, 4.5, 0.001])
def test_a_lead_off_the_grid_is_refused(lead: float) -> None:
    with pytest.raises(ValueError, match="default lead"):
        dataclasses.replace(random_network(PROBLEMS["inline-size"]), default_lead=lead)


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


# A rate of a profile that the tables do not have; for two a layer has no room.
EXTRA_RATES = ("branches-per-instruction",)


@pytest.mark.parametrize(
    ("problem", "feature"),
    [
        pytest.param(problem, feature, id=f"{problem.name}-{feature.name}")
        for problem in (row.with_rates(EXTRA_RATES) for row in PROBLEMS.values())
        for feature in problem.inputs(with_pmu=True)
        if feature.may_be_missing
    ],
)
def test_missing_data_is_encoded_alike_and_apart_from_zero(
    problem: Problem, feature: Feature
) -> None:
    missing_and_zero = np.array([-1, 0], feature.dtype).astype(np.float32)
    np.testing.assert_array_equal(compress(missing_and_zero, [feature]), [[-2, 0]])

    inputs = random_inputs(problem, rows=2)
    position = scored_features(problem, with_pmu=True).index(feature)
    # Also where nearly all values are large, so that zero is far from their mean.
    for usual in (0, 64):
        inputs[feature.name][:] = usual
        network = Network(problem, True, (4,), fit_normalisation(inputs, problem, with_pmu=True))
        inputs[feature.name][:] = [[-1], [0]] if problem.mask else [-1, 0]
        missing, zero = network.encode(inputs)[:, position, 0]
        # Two units of the logarithm, a quarter each.
        assert zero - missing == 0.5


def test_every_feature_of_a_profile_may_be_missing() -> None:
    for problem in (row.with_rates(EXTRA_RATES) for row in PROBLEMS.values()):
        own = set(problem.all_features(with_pmu=True)) - set(problem.features)
        assert len(own) == len(problem.pmu_features) + len(EXTRA_RATES) * len(problem.rate_features)
        assert all(feature.may_be_missing for feature in own)
        assert not any(feature.may_be_missing for feature in problem.features)


def test_compress_is_the_piecewise_linear_logarithm() -> None:
    values = np.array([0, 1, 2, 3, 7, -7, 1023, 1e12, -np.inf], np.float32)
    compressed = compress(values, [Feature("cost", "int64", (1,), signed=True)])
    np.testing.assert_array_equal(compressed, [[0, 1, 1.5, 2, 3, -3, 10, 16, -16]])
    values = np.array([-1, 0, 0.5, 1], np.float32)
    feature = Feature("rate", "float32", (1,), unit_scale=2.0, may_be_missing=True)
    np.testing.assert_array_equal(compress(values, [feature]), [[-2, 0, 1, 1.5]])


def test_an_infinite_spill_weight_counts_as_the_largest() -> None:
    values = np.array([np.nan, 2.0, 1.0], np.float32)
    (feature,) = (f for f in PROBLEMS["regalloc-evict"].features if f.name == "use_def_density")
    ((infinite, largest, half),) = compress(values, [feature])
    assert infinite == largest > half


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
