# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import numpy as np
import numpy.typing as npt

from compiler_opt_perf.train.algorithm import Arrays
from compiler_opt_perf.train.algorithms import cma_es

# The optimum, one of whose coordinates is out of bounds.
_TARGET = np.array([0.3, -0.5, 2.0])


def fitness(candidates: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """An ellipsoid with axes of lengths 1, 10 and 1."""
    return np.asarray(-(((candidates - _TARGET) * [1.0, 10.0, 1.0]) ** 2).sum(axis=1))


def _run(state: Arrays, first: int, last: int) -> Arrays:
    for number in range(first, last):
        optimiser, candidates = cma_es.ask(state, 8, number)
        state = cma_es.tell(optimiser, candidates, fitness(candidates))
    return state


def test_finds_the_optimum_within_bounds() -> None:
    state = _run(cma_es.start(np.zeros(3), 0.3), 0, 60)
    np.testing.assert_allclose(state["mean"], [0.3, -0.5, 1.0], atol=0.02)
    assert state["generation"] == 60


def test_a_stored_state_goes_on_exactly() -> None:
    start = cma_es.start(np.zeros(3), 0.3)
    whole = _run(start, 0, 9)
    half = {name: array.copy() for name, array in _run(start, 0, 4).items()}
    parts = _run(half, 4, 9)
    assert whole.keys() == start.keys()
    for name, array in whole.items():
        assert array.dtype == start[name].dtype and array.shape == start[name].shape
        np.testing.assert_array_equal(array, parts[name], name)
    # Nothing was changed in place.
    assert not start["mean"].any() and start["generation"] == 0


def test_a_failure_is_survived() -> None:
    optimiser, candidates = cma_es.ask(cma_es.start(np.zeros(3), 0.3), 0, 5)
    # 4 + 3 log(3).
    assert candidates.shape == (7, 3)
    worst = np.array([-np.inf, *fitness(candidates[1:])])
    state = cma_es.tell(optimiser, candidates, worst)
    assert all(np.isfinite(array).all() for array in state.values())
