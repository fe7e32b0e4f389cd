# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares upstream's mock eviction policy, compiled in and as a .tflite file, on real modules."""

import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from compiler_opt_perf.corpus.corpus import Corpus
from compiler_opt_perf.corpus.extract import extract_corpus
from compiler_opt_perf.corpus.testing import lua_compile_commands
from compiler_opt_perf.execution.command import CommandError
from compiler_opt_perf.execution.llvm import stock_tool
from compiler_opt_perf.policies.export import convert_to_tflite
from compiler_opt_perf.policies.problem import PROBLEMS
from compiler_opt_perf.report.comparison import Comparison, compare, ratio
from compiler_opt_perf.report.modes import Modes, ModesError
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import BUILD

EVICT = PROBLEMS["regalloc-evict"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("corpus")
    commands = lua_compile_commands(folder, ["lcode", "lmem", "llex", "ltm"])
    extract_corpus(
        {"lua": commands},
        folder / "corpus",
        clang=stock_tool("clang"),
        opt_level=EVICT.optimization_level,
        stage=EVICT.corpus_stage,
        held_out_share=0.25,
        seed=1,
    )
    return Corpus.load(folder / "corpus" / "train")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> Path:
    """The policy that is compiled into `toolchain`, as development mode loads it."""
    saved_model = BUILD / "models" / "mock-RegAllocEvictModel"
    folder = tmp_path_factory.mktemp("model")
    (folder / "model.tflite").write_bytes(convert_to_tflite(saved_model))
    shutil.copy(saved_model / "output_spec.json", folder)
    return folder


def _compare(corpus: Corpus, toolchain: Toolchain, model: Path) -> Comparison:
    modes = Modes(
        EVICT,
        release_clang=toolchain.clang,
        development_clang=toolchain.clang,
        litert_library=toolchain.litert_library,
        model=model,
        policy=None,
        profile=None,
    )
    return compare(modes, corpus, repetitions=1, workers=2)


def test_both_modes_agree_and_every_column_is_filled(
    corpus: Corpus, toolchain: Toolchain, model: Path
) -> None:
    comparison = _compare(corpus, toolchain, model)
    assert [row.name for row in comparison.modules] == [m.name for m in corpus.modules]
    total = comparison.total()
    assert total.decisions > 0
    # The mock policy takes the first candidate that it may take, whatever that costs.
    assert 0 < total.differing <= total.decisions
    assert total.with_pmu == 0
    assert total.score_default is not None and total.score_policy is not None
    assert total.score_policy != total.score_default
    assert total.text_policy != total.text_default
    again = asdict(_compare(corpus, toolchain, model).total())
    untimed = {key: value for key, value in asdict(total).items() if "seconds" not in key}
    assert {key: again[key] for key in untimed} == untimed


def test_another_policy_in_development_mode_is_an_error(
    corpus: Corpus, toolchain: Toolchain, repo_root: Path
) -> None:
    other = repo_root / "lit_tests" / "Inputs" / "evict-last"
    with pytest.raises(ModesError, match=r"lua/\w+: .*release"):
        _compare(corpus, toolchain, other)


def test_a_model_that_is_missing_is_the_compilers_error(
    corpus: Corpus, toolchain: Toolchain, tmp_path: Path
) -> None:
    with pytest.raises(CommandError, match="to reproduce: "):
        _compare(corpus, toolchain, tmp_path / "no-model")


def test_ratio_has_no_value_where_it_means_nothing() -> None:
    assert ratio(3, 2) == 1.5
    assert ratio(0, 0) == 1.0
    assert ratio(1, 0) is None
    assert ratio(None, 2.0) is None
