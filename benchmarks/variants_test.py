# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import numpy as np

from benchmarks.variants import RULES, Variant
from compiler_opt_perf.policy.interactive import Observation


def _observation(mask: list[int], weights: list[float], free: list[int]) -> Observation:
    columns = {
        "mask": np.array([mask]),
        "use_def_density": np.array([weights], np.float32),
        "nr_broken_hints": np.zeros((1, len(mask)), np.float32),
        "is_free": np.array([free]),
        "liverange_size": np.array([weights], np.float32),
    }
    return Observation(0, "f", columns)


def test_rules_choose_what_may_be_chosen() -> None:
    rules = RULES
    # The last column is the live range that asks.
    seen = _observation([0, 1, 1, 1], [0.1, 0.3, 0.2, 0.5], [0, 0, 0, 0])
    assert {name: rule(seen) for name, rule in rules.items()} == {
        "imitated": 2,
        "heaviest": 3,
        "largest": 3,
        "never": 3,
    }
    assert rules["imitated"](_observation([1, 1, 1], [0.9, 0.8, 0.5], [0, 0, 0])) == 2
    assert rules["imitated"](_observation([1, 1, 1], [0.9, 0.8, 0.5], [1, 0, 0])) == 0
    assert rules["imitated"](_observation([1, 1, 0], [np.nan, 0.8, 0.5], [0, 0, 0])) == 1
    assert rules["never"](_observation([1, 1, 0], [0.9, 0.8, 0.5], [0, 0, 0])) == 1


def test_draws_depend_on_seed_and_module() -> None:
    seen = _observation([1] * 8, [0.5] * 8, [0] * 8)

    def draw(seed: int, module: str) -> list[int]:
        decide = Variant("", rule="imitated", random=1.0, seed=seed).decide(module)
        return [decide(seen) for _ in range(20)]

    assert draw(1, "a.o") == draw(1, "a.o")
    assert draw(1, "a.o") != draw(2, "a.o") and draw(1, "a.o") != draw(1, "b.o")
    assert set(draw(1, "a.o")) > {0, 7}
    never = Variant("", rule="imitated", random=0.0).decide("a.o")
    assert {never(seen) for _ in range(20)} == {7}
