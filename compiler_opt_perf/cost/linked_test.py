# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import pytest

from compiler_opt_perf.cost.linked import linked_text_bytes
from compiler_opt_perf.cost.size import function_sizes, text_bytes
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool

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
