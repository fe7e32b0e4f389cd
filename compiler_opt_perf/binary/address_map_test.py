# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of the address map: their names, and that their blocks are where it says."""

from pathlib import Path

import pytest

from compiler_opt_perf.binary.address_map import read_address_map
from compiler_opt_perf.binary.elf import BinaryError
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool

pytestmark = pytest.mark.compiler

SOURCE = """
struct Value { Value(int); int held; };
Value::Value(int one) : held(one) {}
static int inner(int one) { return one * 3; }
int (*volatile chosen)(int) = inner;
extern "C" int zebra(int one) { return one + 1; }
extern "C" int apple(int one) __attribute__((alias("zebra")));
int main() { return Value(chosen(0)).held; }
"""


def test_of_several_names_the_first_is_the_functions_own(tmp_path: Path) -> None:
    (tmp_path / "program.cpp").write_text(SOURCE)
    flags = ["-O1", "-fbasic-block-address-map", "-fuse-ld=lld"]
    run_command([stock_tool("clang++"), *flags, "program.cpp", "-o", "program"], cwd=tmp_path)
    names = {function.name for function in read_address_map(tmp_path / "program")}
    # The two constructors of a class without bases are one function.
    assert names == {"_ZN5ValueC1Ei", "_ZL5inneri", "apple", "main"}


def test_a_map_whose_code_the_linker_has_changed_is_refused(tmp_path: Path) -> None:
    flags = ["-O1", "-fbasic-block-address-map", "-fbasic-block-sections=all", "-fuse-ld=lld"]
    command = [str(stock_tool("clang++")), *flags, "loop.cpp"]
    (tmp_path / "loop.cpp").write_text(
        "int main(int n, char **) { int s = 0; while (--n) if (n % 3) s += n; return s; }"
    )
    run_command([*command, "-o", "whole"], cwd=tmp_path)
    assert [function.name for function in read_address_map(tmp_path / "whole")] == ["main"]
    run_command([*command, "-Wl,--optimize-bb-jumps", "-o", "changed"], cwd=tmp_path)
    with pytest.raises(BinaryError, match=r"of main overlaps block \d+ of main.*optimize-bb-jumps"):
        read_address_map(tmp_path / "changed")
