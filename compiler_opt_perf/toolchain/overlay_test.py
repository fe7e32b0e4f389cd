# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of the overlay's plan and of the check that it is sound."""

from pathlib import Path

import pytest

from compiler_opt_perf.run.llvm import LLVM_VERSION
from compiler_opt_perf.toolchain.build import check_overlay
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import BUILD, ToolchainError
from compiler_opt_perf.toolchain.overlay import (
    Allowance,
    IncludeGraph,
    UnsoundOverlayError,
    affected_units,
    check,
    check_allowances,
    load_allowances,
    make_plan,
)

_FILES = {
    "llvm/include/llvm/Small.h": "int small();\n",
    "llvm/include/llvm/Middle.h": '#include "llvm/Small.h"\n',
    "llvm/lib/Analysis/Private.h": "int secret;\n",
    "llvm/lib/Analysis/One.cpp": '#include "llvm/Middle.h"\nint one = small();\n',
    "llvm/lib/Analysis/Two.cpp": '#include "Private.h"\n',
    "llvm/lib/Analysis/Other.cpp": "// nothing\n",
    "llvm/lib/Analysis/Model.cpp": "#ifdef LLVM_HAVE_TF_AOT_INLINERSIZEMODEL\n#endif\n",
    "llvm/lib/Analysis/Dev.cpp": "#ifdef LLVM_HAVE_TFLITE\n#endif\n",
    "llvm/lib/Analysis/TFLiteUtils.cpp": "#if defined(LLVM_HAVE_TFLITE)\n#endif\n",
    "clang/lib/CodeGen/Back.cpp": '  #  include "llvm/Small.h"\n',
    "clang/tools/driver/driver.cpp": "",
    "llvm/tools/llc/llc.cpp": "",
    "llvm/tools/llvm-lto2/llvm-lto2.cpp": "",
    "llvm/tools/opt/opt.cpp": "",
}


@pytest.fixture
def graph(tmp_path: Path) -> IncludeGraph:
    for name, text in _FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return IncludeGraph(tmp_path)


@pytest.fixture(scope="module")
def llvm_graph(toolchain: Toolchain) -> IncludeGraph:
    """The includes of the patched LLVM, which the fixture `toolchain` has found built."""
    assert toolchain.opt.exists()
    return IncludeGraph(BUILD / f"llvm-{LLVM_VERSION}")


def test_a_patched_header_rebuilds_all_that_include_it(graph: IncludeGraph) -> None:
    plan = make_plan(graph, ["llvm/include/llvm/Small.h"], ())
    assert plan.common == (
        "clang/lib/CodeGen/Back.cpp",
        "llvm/lib/Analysis/Dev.cpp",
        "llvm/lib/Analysis/One.cpp",
        "llvm/lib/Analysis/TFLiteUtils.cpp",
    )
    assert plan.model_dependent == ("llvm/lib/Analysis/Model.cpp",)
    assert plan.mains["llc"] == ("llvm/tools/llc/llc.cpp",)


def test_private_headers_are_found_beside_their_users(graph: IncludeGraph) -> None:
    assert affected_units(graph, "llvm/lib/Analysis/Private.h", None) == {
        "llvm/lib/Analysis/Two.cpp"
    }


def test_without_an_evaluator_there_is_no_development_mode(graph: IncludeGraph) -> None:
    utilities = graph.tree / "llvm/lib/Analysis/TFLiteUtils.cpp"
    utilities.write_text('#include "tensorflow/lite/interpreter.h"\n')
    plan = make_plan(IncludeGraph(graph.tree), [], ())
    assert not plan.development_mode
    assert plan.common == ()


def test_a_missed_unit_is_unsound(graph: IncludeGraph) -> None:
    changed = ["llvm/include/llvm/Small.h"]
    compiled = {"llvm/lib/Analysis/One.cpp"}
    with pytest.raises(UnsoundOverlayError, match="Small.h: patched, but 1 .*Back.cpp"):
        check(graph, changed, (), compiled)
    check(graph, changed, (), compiled | {"clang/lib/CodeGen/Back.cpp"})


def test_a_patched_unit_that_is_not_compiled_is_unsound(graph: IncludeGraph) -> None:
    with pytest.raises(UnsoundOverlayError, match="Other.cpp: patched, but not compiled"):
        check(graph, ["llvm/lib/Analysis/Other.cpp"], (), set())


def test_an_allowed_header_still_rebuilds_the_users_of_the_symbol(graph: IncludeGraph) -> None:
    header = "llvm/include/llvm/Small.h"
    allowed = (Allowance(header, ("small",), "Back.cpp does not use it."),)
    assert affected_units(graph, header, allowed[0]) == {"llvm/lib/Analysis/One.cpp"}
    check(graph, [header], allowed, {"llvm/lib/Analysis/One.cpp"})
    with pytest.raises(UnsoundOverlayError, match="One.cpp"):
        check(graph, [header], allowed, {"clang/lib/CodeGen/Back.cpp"})


def test_an_allowance_without_a_patch_is_stale() -> None:
    allowed = (Allowance("llvm/include/llvm/Small.h", ("small",), "Once."),)
    with pytest.raises(UnsoundOverlayError, match="no patch touches it"):
        check_allowances([], allowed)
    check_allowances(["llvm/include/llvm/Small.h"], allowed)


def test_files_that_generate_code_cannot_be_patched(graph: IncludeGraph) -> None:
    make_plan(graph, ["llvm/lib/Analysis/CMakeLists.txt", "llvm/docs/MLGO.rst"], ())
    with pytest.raises(UnsoundOverlayError, match="X86.td: patched, but the overlay cannot"):
        make_plan(graph, ["llvm/lib/Target/X86/X86.td"], ())


def test_allowances_need_a_reason(tmp_path: Path) -> None:
    table = tmp_path / "overlay.toml"
    assert load_allowances(table) == ()
    table.write_text('[[allow]]\nheader = "A.h"\nsymbols = ["a"]\n')
    with pytest.raises(ToolchainError, match="needs header, symbols and reason"):
        load_allowances(table)
    table.write_text('[[allow]]\nheader = "A.h"\nsymbols = []\nreason = "?"\n')
    with pytest.raises(ToolchainError, match="A.h gives no symbols or reason"):
        load_allowances(table)


@pytest.mark.compiler
def test_closures_in_llvm_are_what_is_known_of_it(llvm_graph: IncludeGraph) -> None:
    sizes = {
        "llvm/include/llvm/Analysis/MLInlineAdvisor.h": range(2, 8),
        "llvm/include/llvm/Analysis/Utils/TFUtils.h": range(4, 9),
        "llvm/include/llvm/CodeGen/RegAllocEvictionAdvisor.h": range(5, 15),
        "llvm/include/llvm/CodeGen/Passes.h": range(800, 1100),
    }
    for header, expected in sizes.items():
        assert len(affected_units(llvm_graph, header, None)) in expected, header


@pytest.mark.compiler
def test_a_patch_to_a_header_that_everything_includes_is_unsound(llvm_graph: IncludeGraph) -> None:
    changed = ["llvm/include/llvm/CodeGen/Passes.h"]
    plan = make_plan(llvm_graph, [], ())
    with pytest.raises(UnsoundOverlayError, match="Passes.h: patched, and .* units include it"):
        check(llvm_graph, changed, (), plan.units())


@pytest.mark.compiler
def test_the_projects_series_is_sound(toolchain: Toolchain) -> None:
    assert toolchain.opt.exists()
    plan = check_overlay()
    assert "llvm/lib/Analysis/MLInlineAdvisor.cpp" in plan.model_dependent
    assert plan.development_mode
