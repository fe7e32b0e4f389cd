# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests that a build refuses wrong arguments and is safe and quick to repeat."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import LLVM_PREFIX, stock_tool
from compiler_opt_perf.toolchain.build import _compile_model, _mock_model, build
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import BUILD, REPO_ROOT, ToolchainError
from compiler_opt_perf.toolchain.model_inputs import INLINE_MODEL, GeneratedModel, ModelTensor
from compiler_opt_perf.toolchain.patches import PatchedTree


@pytest.mark.parametrize(
    ("name", "model", "message"),
    [
        ("a/b", None, "letters, digits"),
        ("..", None, "letters, digits"),
        ("..", Path("model"), "letters, digits"),
        (".", Path("model"), "letters, digits"),
        ("-x", Path("model"), "letters, digits"),
        ("", Path("model"), "letters, digits"),
        ("mine", None, "give a SavedModel"),
        ("dev", Path("model"), "this set's models are fixed"),
        ("mock", Path("model"), "this set's models are fixed"),
    ],
)
def test_a_set_and_its_models_must_agree(
    name: str, model: Path | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ToolchainError, match=message):
        build(name, inline_model=model, build_directory=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.compiler
def test_two_builds_at_once_are_safe_and_do_nothing_twice(toolchain: Toolchain) -> None:
    build("mock")
    before = toolchain.clang.stat().st_mtime_ns
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(build, ["mock", "mock"]))
    assert results == [toolchain, toolchain]
    assert toolchain.clang.stat().st_mtime_ns == before


@pytest.mark.compiler
def test_a_set_holds_what_its_last_build_named(toolchain: Toolchain, tmp_path: Path) -> None:
    assert toolchain.opt.exists()
    tree = PatchedTree.in_build(BUILD)
    one_number = ModelTensor("int64_t", 1)
    policy = GeneratedModel(tmp_path / "policy", {"cost_estimate": one_number}, "// C++\n", "{}")
    saved_model = BUILD / "models" / f"mock-{INLINE_MODEL.name}"
    output = tmp_path / "models"
    output.mkdir()

    def compile_in(model: GeneratedModel | Path | None) -> set[str]:
        models = {} if model is None else {INLINE_MODEL: model}
        _compile_model(tree, output, models, INLINE_MODEL)
        return {path.suffix for path in output.iterdir()}

    assert compile_in(policy) == {".h", ".json"}
    header = output / f"{INLINE_MODEL.name}.h"
    assert header.read_text() == "// C++\n"
    written = header.stat().st_mtime_ns
    assert compile_in(policy) == {".h", ".json"}
    assert header.stat().st_mtime_ns == written
    assert compile_in(saved_model) == {".h", ".o", ".digest"}
    unfit = GeneratedModel(tmp_path / "policy", {"colour": one_number}, "", "{}")
    with pytest.raises(ToolchainError, match=f"{tmp_path}/policy: .*'colour', which is no feature"):
        compile_in(unfit)
    assert compile_in(policy) == {".h", ".json"}
    assert compile_in(None) == set()


def test_mock_models_follow_their_script(tmp_path: Path) -> None:
    script = tmp_path / "tree" / INLINE_MODEL.generator
    script.parent.mkdir(parents=True)
    write = "import sys, pathlib\n(pathlib.Path(sys.argv[1]) / 'model').write_text('{}')\n"
    model = tmp_path / "models" / "mock"

    def generate(text: str) -> str:
        script.write_text(write.format(text))
        _mock_model(tmp_path / "tree", INLINE_MODEL, model)
        return (model / "model").read_text()

    assert generate("first") == "first"
    (model / "model").write_text("marked")
    assert generate("first") == "marked"
    assert generate("second") == "second"
    # As after an interruption between writing the model and writing its origin.
    (tmp_path / "models" / "mock.origin").unlink()
    (model / "model").write_text("unknown")
    assert generate("second") == "second"


def test_a_missing_tool_is_named_with_the_command_that_builds_it(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"mine/bin/clang: no such .*--toolchain=mine"):
        Toolchain.load(tmp_path / "mine")


@pytest.mark.compiler
def test_clang_finds_its_headers_and_links_a_program(toolchain: Toolchain, tmp_path: Path) -> None:
    program = tmp_path / "program.c"
    program.write_text("#include <stddef.h>\nint main(void) { return sizeof(size_t) != 8; }\n")
    run_command([toolchain.clang, "-O2", program, "-o", tmp_path / "program"], timeout_s=60)
    run_command([tmp_path / "program"], timeout_s=60)
    assert toolchain.litert_library.is_file()


@pytest.mark.compiler
@pytest.mark.parametrize("lto", [(), ("-flto=thin",), ("-flto",)])
def test_clang_links_with_the_linker_beside_it(
    lto: tuple[str, ...], toolchain: Toolchain, tmp_path: Path
) -> None:
    (tmp_path / "main.cpp").write_text("int twice(int); int main() { return twice(2) != 4; }\n")
    (tmp_path / "twice.cpp").write_text("int twice(int x) { return 2 * x; }\n")
    options = ["--driver-mode=g++", "-O2", *lto, "-fuse-ld=lld", "-o", "program"]
    link = [str(toolchain.clang), *options, "main.cpp", "twice.cpp"]
    assert f'"{toolchain.ld_lld}"' in run_command([*link, "-###"], cwd=tmp_path).stderr
    run_command(link, cwd=tmp_path, timeout_s=60)
    run_command([tmp_path / "program"], timeout_s=60)


@pytest.mark.compiler
@pytest.mark.parametrize("tool", ["clang", "opt", "llc", "llvm-lto2", "ld.lld", "llvm-trace-cost"])
def test_every_tool_starts(tool: str, toolchain: Toolchain) -> None:
    # A program ends before main if two units register the same option.
    run_command([toolchain.directory / "bin" / tool, "--version"], timeout_s=60)


@pytest.mark.compiler
def test_trace_cost_is_a_project_of_its_own(toolchain: Toolchain, tmp_path: Path) -> None:
    assert toolchain.trace_cost.exists()
    # Its CMake project names files of the patched source, which CMake looks for here.
    run_command(
        ["cmake", "-G", "Ninja", "-S", REPO_ROOT / "tools" / "trace-cost", "-B", tmp_path,
         f"-DCMAKE_CXX_COMPILER={stock_tool('clang++')}",
         f"-DLLVM_DIR={LLVM_PREFIX / 'lib' / 'cmake' / 'llvm'}"],
        timeout_s=120,
    )  # fmt: skip
    targets = run_command(["ninja", "-C", tmp_path, "-t", "targets", "all"]).stdout
    assert "\nllvm-trace-cost: CXX_EXECUTABLE_LINKER" in targets
    assert "\ntrace-cost-tests: CXX_EXECUTABLE_LINKER" in targets
