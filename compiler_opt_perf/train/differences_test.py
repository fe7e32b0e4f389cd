# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import shutil
from pathlib import Path

import pytest

from compiler_opt_perf.corpus.corpus import Corpus
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT
from compiler_opt_perf.train.compilation import Compiler
from compiler_opt_perf.train.differences import Differences, find_differences
from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.labels import Flipper, LabelJob

pytestmark = pytest.mark.compiler

_MODELS = REPO_ROOT / "lit_tests" / "Inputs"


def _compiler(name: str, toolchain: Toolchain) -> Compiler:
    return Compiler(
        toolchain.clang, toolchain.litert_library, PROBLEMS[name], Profiles(), 60.0, 4096
    )


def _find(
    name: str, model: str, corpora: dict[str, Corpus], toolchain: Toolchain, most: int
) -> Differences:
    compiler, modules = _compiler(name, toolchain), corpora[name].modules[:2]
    with Pool(1) as pool:
        return find_differences(compiler, _MODELS / model, modules, pool, most=most, seed=1)


def test_a_decision_is_worth_what_taking_it_back_changes(
    corpora: dict[str, Corpus], toolchain: Toolchain, tmp_path: Path
) -> None:
    # It inlines callees of one block only.
    found = _find("inline-size", "inline-one-block", corpora, toolchain, 100)
    assert [one.module for one in found.modules] == ["program/module0", "program/module1"]
    assert not found.failed
    module = corpora["inline-size"].modules[0]
    flipper = Flipper(
        LabelJob(_compiler("inline-size", toolchain), module, _MODELS / "inline-one-block"),
        tmp_path,
    )
    before, log = flipper.compile({})
    decided = dict(zip(log.keys, log.decisions(PROBLEMS["inline-size"]).tolist(), strict=True))
    one = found.modules[0]
    assert one.decisions == len(decided) > len(one.sites) > 0
    assert one.policy == sum(before.values()) != one.default
    for site in one.sites:
        assert decided[site.key] == site.decision != site.default
        after, _ = flipper.compile({site.key: site.default})
        assert site.change == sum(before.values()) - sum(after.values())
    assert any(site.change for site in one.sites)
    changes = [site.change for site in found.sites if site.change is not None]
    assert changes == sorted(changes)
    none = _find("inline-size", "inline-one-block", corpora, toolchain, 0)
    assert [site.key for site in none.sites] == sorted(site.key for site in found.sites)
    assert all(site.change is None for site in none.sites)


def test_evictions_are_told_without_bytes(corpora: dict[str, Corpus], toolchain: Toolchain) -> None:
    found = _find("regalloc-evict", "evict-first", corpora, toolchain, 100)
    assert found.sites and all(site.change is None for site in found.sites)
    assert all(site.decision != site.default for site in found.sites)


def test_a_policy_that_does_not_compile_is_named(
    corpora: dict[str, Corpus], toolchain: Toolchain, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(_MODELS / "inline-one-block", model)
    (model / "model.tflite").write_bytes(b"no model")
    compiler, modules = _compiler("inline-size", toolchain), corpora["inline-size"].modules[:1]
    with Pool(1) as pool, pytest.raises(TrainingError, match="model: no module compiles; the firs"):
        find_differences(compiler, model, modules, pool, most=1, seed=1)
