# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of the check of release models, with the patched sources and real models' headers."""

from pathlib import Path

import pytest

from compiler_opt_perf.run.llvm import LLVM_VERSION
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import BUILD, ToolchainError
from compiler_opt_perf.toolchain.model_inputs import (
    EVICT_MODEL,
    INLINE_MODEL,
    MODELS,
    ModelTensor,
    ReleaseModel,
    check_header,
    fed_features,
)

_TREE = BUILD / f"llvm-{LLVM_VERSION}"
_SAVED_MODEL = Path("some-policy")


@pytest.fixture
def headers(toolchain: Toolchain) -> dict[ReleaseModel, str]:
    """The headers that TensorFlow has generated for upstream's mock models."""
    models = toolchain.directory / "models"
    return {model: (models / f"{model.name}.h").read_text() for model in MODELS}


@pytest.mark.compiler
def test_features_are_read_from_the_sources() -> None:
    inline = fed_features(_TREE, INLINE_MODEL)
    # The first and the last of each list: cost, other, PMU.
    for name in ("sroa_savings", "threshold", "callee_basic_block_count", "pmu_coverage"):
        assert inline[name] == ModelTensor("int64_t", 1)
    assert "is_caller_avail_external" in inline and "pmu_callsite_executions_log2" in inline
    evict = fed_features(_TREE, EVICT_MODEL)
    assert evict["mask"] == ModelTensor("int64_t", 33)
    assert evict["progress"] == ModelTensor("float", 1)
    assert evict["pmu_coverage"] == ModelTensor("float", 33)
    # These need an option of the compiler.
    assert "instructions" not in evict


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "feature list INLINE_COST_FEATURE_ITERATOR: not found"),
        ("#define INLINE_COST_FEATURE_ITERATOR(M)\n", "not found"),
        (
            "#define INLINE_COST_FEATURE_ITERATOR(M) \\\n"
            '  M(int64_t, {1}, good, "M(x, y, z)") \\\n'
            '  M(double, {1}, bad, "")\n',
            r"cannot tell what 'M\(double, \{1\}, bad,\)' is",
        ),
    ],
)
def test_a_list_that_is_not_understood_is_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / INLINE_MODEL.feature_lists[0].file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(ToolchainError, match=f"{path}: .*{message}.*model_inputs.py"):
        fed_features(tmp_path, INLINE_MODEL)


@pytest.mark.compiler
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_upstreams_mock_models_fit(model: ReleaseModel, headers: dict[ReleaseModel, str]) -> None:
    check_header(headers[model], model, fed_features(_TREE, model), _SAVED_MODEL)


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("feed_mask", "feed_colour", "input 'colour', which is no feature .* regalloc-evict.*mask"),
        (
            "return 33;",
            "return 32;",
            r"input 'mask' as int64_t\[32\], but the compiler feeds int64_t\[33\]",
        ),
        ("int64_t* arg_feed", "float* arg_feed", r"as float\[33\], but .* int64_t\[33\]"),
        ("fetch_index_to_evict", "fetch_index", "no output 'index_to_evict'.*it has: index int64"),
        (
            "int64_t* result_fetch",
            "float* result_fetch",
            "no output 'index_to_evict' of type int64",
        ),
        ("kNumArgs = 1", "kNumArgs = 2", "inputs cannot be read from the header"),
    ],
)
def test_what_does_not_fit_is_named(
    old: str, new: str, message: str, headers: dict[ReleaseModel, str]
) -> None:
    header = headers[EVICT_MODEL]
    assert old in header
    features = fed_features(_TREE, EVICT_MODEL)
    with pytest.raises(ToolchainError, match=f"{_SAVED_MODEL}: .*{message}"):
        check_header(header.replace(old, new), EVICT_MODEL, features, _SAVED_MODEL)


@pytest.mark.compiler
def test_features_of_any_rate_are_known_by_their_form(headers: dict[ReleaseModel, str]) -> None:
    header = headers[EVICT_MODEL].replace("feed_mask", "feed_pmu_tlb_miss_rate")
    features = fed_features(_TREE, EVICT_MODEL)
    as_float = header.replace("int64_t* arg_feed", "float* arg_feed")
    check_header(as_float, EVICT_MODEL, features, _SAVED_MODEL)
    with pytest.raises(ToolchainError, match=r"as int64_t\[33\], but .* feeds float\[33\]"):
        check_header(header, EVICT_MODEL, features, _SAVED_MODEL)
    assert INLINE_MODEL.is_extra("pmu_callsite_tlb_miss_rate")
    assert not INLINE_MODEL.is_extra("pmu_tlb_miss_rate")
