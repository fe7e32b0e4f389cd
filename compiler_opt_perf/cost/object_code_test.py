# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import itertools
import shlex
from pathlib import Path

import pytest

from compiler_opt_perf.binary.address_map import ANALYSIS_FLAGS
from compiler_opt_perf.binary.disassembly import Kind
from compiler_opt_perf.binary.elf import PROFILING_FLAGS, BinaryError
from compiler_opt_perf.cost.object_code import FunctionCode, ObjectCode
from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.execution.llvm import stock_tool

SOURCE = """
#define KEEP __attribute__((noinline))
KEEP static int leaf(int x) { __asm__ volatile("" : "+r"(x)); return x; }
KEEP static int tail(int x) { return leaf(x + 1); }
KEEP static int maybe(int x) { return x > 5 ? leaf(x) : x; }
KEEP static int compare(const double *a, double b) {
  int n = 0;
  while (a[n] != b)
    ++n;
  return n;
}
KEEP static int choose(int x) {
  switch (x) {
  case 0: return leaf(7);
  case 1: return tail(1) + 3;
  case 2: return leaf(2) * 5;
  case 3: return tail(9) ^ 1;
  case 4: return maybe(x) << 3;
  default: return 0;
  }
}
KEEP static int call(int (*f)(int), int x) { return f(x) + 1; }
int main(int argc, char **argv) {
  double numbers[] = {1, 2, argc, 4};
  return compare(numbers, 4) + choose(argc) + call(argc > 1 ? tail : maybe, argc);
}
"""


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FunctionCode]:
    folder = tmp_path_factory.mktemp("code")
    (folder / "program.c").write_text(SOURCE)
    flags = ["-Os", *shlex.split(PROFILING_FLAGS), *shlex.split(ANALYSIS_FLAGS)]
    binary = folder / "program"
    run_command([stock_tool("clang"), *flags, folder / "program.c", "-o", binary])
    wanted = {"leaf", "tail", "maybe", "compare", "choose", "call"}
    found = dict(ObjectCode.read(binary, wanted.__contains__).functions)
    assert found.keys() == wanted
    return found


def test_blocks_have_one_way_in_and_branch_only_at_their_end(
    code: dict[str, FunctionCode],
) -> None:
    for name, function in code.items():
        assert sum(function.sizes) == len(function.instructions)
        assert len(function.sizes) == len(function.successors)
        for block, size in enumerate(function.sizes):
            members = [one for one in function.instructions if one.block == block]
            assert len(members) == size
            assert not any(one.kind & Kind.CONDITIONAL for one in members[:-1]), name
            if members and members[-1].kind & Kind.CONDITIONAL:
                assert len(function.successors[block]) == 2, name
            if members and members[-1].mnemonic == "retq":
                assert function.successors[block] == []


def test_calls_are_found(code: dict[str, FunctionCode]) -> None:
    def callees(name: str) -> list[str | None]:
        return [call.callee for call in code[name].calls]

    assert callees("leaf") == []
    assert callees("tail") == ["leaf"]
    assert callees("call") == [None]
    assert set(callees("choose")) == {"leaf", "tail", "maybe"}
    # A jump to another function is made at times only.
    assert callees("maybe") == ["leaf"]
    (jump,) = code["maybe"].calls
    assert code["maybe"].successors[jump.block] == []


def test_padding_that_runs_belongs_to_the_block_before_it(tmp_path: Path) -> None:
    """A loop is aligned; what lies behind a jump or a return is never reached."""
    source, binary = tmp_path / "program.c", tmp_path / "program"
    source.write_text(SOURCE)
    flags = ["-O2", "-falign-loops=32", *shlex.split(PROFILING_FLAGS), *shlex.split(ANALYSIS_FLAGS)]
    run_command([stock_tool("clang"), *flags, source, "-o", binary])
    functions = ObjectCode.read(binary, {"compare", "choose"}.__contains__).functions
    assert any("nop" in one.mnemonic for one in functions["compare"].instructions)
    for function in functions.values():
        for one, after in itertools.pairwise(function.instructions):
            if one.mnemonic.startswith(("jmp", "ret")):
                assert one.block != after.block


def test_instructions_have_locations(code: dict[str, FunctionCode]) -> None:
    for name, function in code.items():
        located = [one.location for one in function.instructions if one.location]
        assert located and all(location.function == name for location in located)


def test_copies_of_a_function_in_several_files_are_one(tmp_path: Path) -> None:
    """Those that are alike; of a name that two files use for two functions, both are there."""
    (tmp_path / "shared.h").write_text(
        "__attribute__((noinline)) static int step(int x) {\n"
        '  __asm__ volatile("" : "+r"(x));\n  return x > 2 ? x / 3 : x;\n}\n'
    )
    for name, own in (("first", "x + 1"), ("second", "x > 7 ? x * 5 : 2")):
        (tmp_path / f"{name}.c").write_text(
            f'#include "shared.h"\n__attribute__((noinline)) static int own(int x) {{\n'
            f'  __asm__ volatile("" : "+r"(x));\n  return {own};\n}}\n'
            f"int {name}(int x) {{ return step(x) + own(x); }}\n"
        )
    (tmp_path / "main.c").write_text(
        "int first(int), second(int);\nint main(int n, char **a) { return first(n) + second(n); }\n"
    )
    flags = ["-O1", *shlex.split(PROFILING_FLAGS), *shlex.split(ANALYSIS_FLAGS)]
    sources = [tmp_path / f"{name}.c" for name in ("first", "second", "main")]
    run_command([stock_tool("clang"), *flags, *sources, "-o", tmp_path / "program"])
    code = ObjectCode.read(tmp_path / "program", {"step", "own", "first"}.__contains__)
    assert {"step", "own", "first", "second", "main"} <= code.names
    functions = code.functions
    assert functions.keys() == {"step", "own", "first"}
    assert functions["step"].entries == [0]
    assert len(functions["own"].entries) == 2
    assert sum(functions["own"].sizes) == len(functions["own"].instructions)
    for entry in functions["own"].entries:
        assert any(one.block == entry for one in functions["own"].instructions)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    source, binary = tmp_path / "program.c", tmp_path / "program"
    source.write_text(SOURCE)
    run_command([stock_tool("clang"), "-g", "-fbasic-block-address-map", source, "-o", binary])
    with pytest.raises(BinaryError, match="does not say which blocks follow.*pgo-analysis-map"):
        ObjectCode.read(binary, "leaf".__eq__)
    with pytest.raises(BinaryError, match="has none of the functions"):
        ObjectCode.read(binary, "other".__eq__)
    with pytest.raises(BinaryError, match="cannot be read"):
        ObjectCode.read(tmp_path / "none", "leaf".__eq__)
