# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Labels of single decisions, on compiled modules."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from compiler_opt_perf.corpus.corpus import Corpus
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.cost.size import FunctionSizes, function_sizes, text_bytes
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train import labels as labels_module
from compiler_opt_perf.train.compilation import Compiler
from compiler_opt_perf.train.labels import Flipper, LabelJob, count_copies, label, reach_of

PROBLEM = PROBLEMS["inline-size"]


@pytest.fixture
def jobs(toolchain: Toolchain, corpora: dict[str, Corpus]) -> list[LabelJob]:
    """A job a module."""
    compiler = Compiler(toolchain.clang, toolchain.litert_library, PROBLEM, Profiles(), 60.0, 4096)
    return [LabelJob(compiler, module) for module in corpora[PROBLEM.name].modules]


@pytest.mark.compiler
def test_flips_in_one_compilation_are_as_flips_alone(
    jobs: list[LabelJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    together = [label(job) for job in jobs[:3]]
    monkeypatch.setattr(labels_module, "_BATCH", 1)
    alone = [label(job) for job in jobs[:3]]
    for some, single in zip(together, alone, strict=True):
        assert some.keys == single.keys
        assert single.compilations == 1 + len(single.keys)
        np.testing.assert_array_equal(some.difference, single.difference)
        assert np.unique(some.difference).size > 2
    assert sum(one.compilations for one in together) < sum(one.compilations for one in alone)


@pytest.mark.compiler
def test_a_label_is_what_the_flip_changes(jobs: list[LabelJob], tmp_path: Path) -> None:
    job = jobs[0]
    labels = label(job)
    decided = labels.observations[PROBLEM.decision].reshape(-1)
    # The default's own.
    assert decided.tolist() == labels.observations["inlining_default"].reshape(-1).tolist()
    flipper = Flipper(job, tmp_path)
    before, _ = flipper.compile({})
    row = int(np.argmax(np.abs(labels.difference)))
    after, log = flipper.compile({labels.keys[row]: 1 - int(decided[row])})
    assert sum(after.values()) - sum(before.values()) == labels.difference[row] != 0
    assert log.observations[PROBLEM.decision].reshape(-1)[row] == 1 - decided[row]


@pytest.mark.compiler
def test_copies_count_as_parts(jobs: list[LabelJob]) -> None:
    whole, parts = label(jobs[0]), label(dataclasses.replace(jobs[0], copies={"entry0": 4}))
    assert whole.keys == parts.keys
    # Where a call in entry0 is inlined or not, and the callee stays as it is, only entry0 changes.
    quarter = parts.difference == whole.difference / 4
    assert np.count_nonzero(quarter & (whole.difference != 0)) >= 3
    callers = {key.split(" ")[0] for key, one in zip(whole.keys, quarter, strict=True) if one}
    assert callers == {"entry0"}


@pytest.mark.compiler
def test_a_draw_of_sites_is_seeded(jobs: list[LabelJob]) -> None:
    def draw(seed: int) -> tuple[str, ...]:
        return label(LabelJob(jobs[1].compiler, jobs[1].module, most=3, seed=seed)).keys

    assert len(draw(1)) == 3
    assert draw(1) == draw(1)
    assert len({draw(seed) for seed in range(1, 6)}) > 1


def test_what_a_flip_can_change() -> None:
    taken = {"b c b.0 - #0": 1, "a b a.0 - #0": 1, "a c a.0 - #1": 0, "z a z.0 - #0": 0}
    reach = reach_of(taken)
    assert reach["b c b.0 - #0"] == {"b", "a", "c"}
    assert reach["a b a.0 - #0"] == {"a", "b"}
    assert reach["z a z.0 - #0"] == {"z", "a"}


def test_functions_that_several_objects_have_are_counted() -> None:
    one, two = FunctionSizes(f=1, g=2), FunctionSizes(f=1, h=3)
    one.shared, two.shared = frozenset("fg"), frozenset("f")
    assert count_copies([one.shared, two.shared]) == {"f": 2}


@pytest.mark.compiler
def test_sizes_by_function_add_up_to_the_text(jobs: list[LabelJob], tmp_path: Path) -> None:
    object_file = tmp_path / "module.o"
    jobs[0].compiler.compile(jobs[0].module, object_file, [])
    sizes = function_sizes(object_file)
    assert {"entry0", "pressure0"} <= sizes.keys()
    # Functions of -Oz are not aligned.
    assert sum(sizes.values()) == text_bytes(object_file)
    assert sizes.shared == frozenset()
