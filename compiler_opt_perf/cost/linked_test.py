# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import pytest

from compiler_opt_perf.cost.linked import folded_functions, linked_text_bytes
from compiler_opt_perf.cost.size import function_sizes, text_bytes
from compiler_opt_perf.policy.problem import for_clang
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.toolchain.installation import Toolchain

pytestmark = pytest.mark.compiler

_SHARED = """
template <typename T> T shared(T x) {
  for (T i = 0; i < x; ++i)
    x = x * 3 + (x >> i) / (i * 77777 + 3) + (i << 5) % (x + 100) * (x ^ 0x1234567);
  return x;
}
"""


def test_what_several_objects_have_counts_once(tmp_path: Path) -> None:
    objects = []
    for name in ("a", "b", "c"):
        source = tmp_path / f"{name}.cpp"
        missing = f"int missing_{name}(int);\n"
        source.write_text(
            f"{_SHARED}{missing}int {name}(int x) {{ return shared(missing_{name}(x)); }}\n"
        )
        objects.append(tmp_path / f"{name}.o")
        run_command(["clang++-22", "-Oz", "-fno-inline", "-c", source, "-o", objects[-1]])
    sizes = [function_sizes(one) for one in objects]
    copy = sizes[0]["_Z6sharedIiET_S0_"]
    assert all(own["_Z6sharedIiET_S0_"] == copy > 40 for own in sizes)
    assert all(own.shared == {"_Z6sharedIiET_S0_"} for own in sizes)
    linked = linked_text_bytes(objects, stock_tool("ld.lld"))
    expected = sum(text_bytes(one) for one in objects) - 2 * copy
    # What aligns sections is less than a copy.
    assert 0 <= linked - expected < copy


def test_functions_that_cannot_be_linked_together_are_linked(tmp_path: Path) -> None:
    objects = []
    for name in ("a", "b"):
        source = tmp_path / f"{name}.c"
        source.write_text(f"int {name}; int main(void) {{ return {name} * 3; }}\n")
        objects.append(tmp_path / f"{name}.o")
        run_command(["clang-22", "-Oz", "-c", source, "-o", objects[-1]])
    linker = stock_tool("ld.lld")
    assert linked_text_bytes(objects, linker) >= 2 * text_bytes(objects[0])
    assert linked_text_bytes(objects[:1], linker) < linked_text_bytes(objects, linker)


def test_functions_of_the_same_code_are_folded(tmp_path: Path) -> None:
    """As instances of a template for pointers are, in one object or in several."""
    body = "int n = 0; while (*p) n = n * 31 + (int)*p++; return n ^ *(int *)p;"
    sources = {
        "a": f"""
          template <typename T> struct Sum {{ T *at; Sum(T *p) : at(p) {{ at[0] = at[1]; }} }};
          template struct Sum<int>;
          template struct Sum<unsigned>;
          int first(char *p) {{ {body} }}
          int other(short *p) {{ {body} }}
        """,
        # The address of the last one may be compared.
        "b": f"int second(char *p) {{ {body} }} int third(char *p) {{ {body} }} "
        "int (*kept)(char *) = third;",
    }
    objects = []
    for name, text in sources.items():
        source = tmp_path / f"{name}.cpp"
        source.write_text(text)
        objects.append(tmp_path / f"{name}.o")
        options = ["-Oz", "-ffunction-sections", "-c"]
        run_command(["clang++-22", *options, source, "-o", objects[-1]])
    linker = stock_tool("ld.lld")
    constructors = dict.fromkeys(("_ZN3SumIiEC1EPi", "_ZN3SumIjEC1EPj"), 2)
    pair = dict.fromkeys(("_Z5firstPc", "_Z6secondPc"), 2)
    assert folded_functions(objects, linker) == {**constructors, **pair}
    sizes = function_sizes(objects[0])
    assert constructors.keys() < sizes.keys()
    saved = sum(sizes[name] for name in ("_ZN3SumIiEC1EPi", "_Z5firstPc"))
    folded = linked_text_bytes(objects, linker, fold=True)
    assert 0 <= linked_text_bytes(objects, linker) - folded - saved < 32
    assert folded_functions(objects[:1], linker) == constructors


def test_outlined_functions_of_the_same_code_are_folded(
    tmp_path: Path, toolchain: Toolchain
) -> None:
    objects = []
    for name in ("a", "b"):
        source = tmp_path / f"{name}.c"
        written = "p[0] = 1000; p[1] = 2000; p[2] = 3000;"
        source.write_text(
            f"void {name}1(volatile int *p) {{ {written} p[3] = {ord(name)}; }}\n"
            f"void {name}2(volatile int *p) {{ {written} p[4] = {ord(name)}; }}\n"
        )
        objects.append(tmp_path / f"{name}.o")
        options = ("-enable-machine-outliner", "-x86-outlined-unwind-cost=0")
        flags = ["-Oz", "-ffunction-sections", *for_clang(options)]
        run_command([toolchain.clang, *flags, "-c", source, "-o", objects[-1]])
    assert folded_functions(objects, toolchain.ld_lld) == {"OUTLINED_FUNCTION_0": 2}
