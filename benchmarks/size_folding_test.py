# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path
from types import MappingProxyType

import pytest

from benchmarks.size_builds import UNFOLDED, Builds
from benchmarks.size_folding import FATES, fates, table
from compiler_opt_perf.cost.size import FunctionSizes
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.trial.ways import PLAIN


def _sizes(sizes: dict[str, int], aliases: dict[str, str]) -> FunctionSizes:
    found = FunctionSizes(sizes)
    found.aliases = MappingProxyType(aliases)
    return found


def test_what_folding_saves_is_told_by_what_another_build_has() -> None:
    names = ("a1", "a2", "a3", "b1", "b2", "c1", "c2", "d1", "d2", "e")
    whole = _sizes(dict.fromkeys(names, 10), {})
    folded = _sizes(
        {"a1": 10, "b1": 10, "c1": 10, "d1": 10, "e": 10},
        {"a2": "a1", "a3": "a1", "b2": "b1", "c2": "c1", "d2": "d1"},
    )
    # Without the functions a and b2; c2 has another name there, and d2 is another function now.
    other = _sizes({"b1": 10, "c1": 12, "c": 12, "d1": 10, "d2": 9}, {"c2": "c"})
    other_folded = _sizes({"b1": 10, "c": 12, "d1": 10, "d2": 9}, {"c1": "c", "c2": "c"})
    assert fates(whole, folded, other, other_folded) == {
        "all inlined": 20,
        "some inlined": 10,
        "still folded": 10,
        "no longer identical": 10,
    }


def test_sums_are_of_all_programs_and_means_of_the_unseen() -> None:
    own = dict(zip(FATES, (5, 0, 2, 1), strict=True))
    changes = {"zeromq": [50.0, 50.0], "re2": [-2.0, -1.0], "ninja": [-2.0, -1.0]}
    made = table("folding", "", dict.fromkeys(changes, own), changes)
    assert made.rows[0] == ["zeromq", "training", 50, 50, 8, 5, 0, 2, 1]
    assert made.rows[-1][2:] == pytest.approx([-2, -1, 24, 15, 0, 6, 3])


@pytest.mark.long(10)
@pytest.mark.compiler
def test_folding_leaves_fewer_functions(toolchain: Toolchain, tmp_path: Path) -> None:
    builds = Builds("tinyxml", tmp_path, toolchain)
    built = builds.size_of(PLAIN)
    whole, folded = (builds.functions(PLAIN, words) for words in (UNFOLDED, ()))
    assert len(folded) <= len(whole) > 100
    assert "_ZN12TiXmlElementC1EPKc" in whole
    assert sum(folded.values()) <= built.text
    assert sum(fates(whole, folded, whole, folded).values()) == sum(whole.values()) - sum(
        folded.values()
    )
