# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import re
from pathlib import Path

import pytest

from compiler_opt_perf.cost.size import (
    ObjectFileError,
    function_sizes,
    stripped_bytes,
    text_bytes,
)
from compiler_opt_perf.run.command import run_command


@pytest.mark.compiler
def test_sums_all_executable_sections(tmp_path: Path) -> None:
    source, target = tmp_path / "a.c", tmp_path / "a.o"
    source.write_text(
        "int f(int x) { return x * 3; }\n"
        '__attribute__((section(".text.cold"))) int g(int x) { return f(x) + 1; }\n'
        "const char table[1000] = {1};\n"
    )
    run_command(["clang-22", "-O2", "-c", source, "-o", target])
    listing = run_command(["llvm-size-22", "-A", target]).stdout
    expected = sum(int(size) for size in re.findall(r"^\.text\S*\s+(\d+)", listing, re.M))
    assert expected > 0
    assert text_bytes(target) == expected


@pytest.mark.compiler
@pytest.mark.parametrize("words", [(), ("-static",)], ids=["dynamic", "static"])
def test_a_stripped_file_is_as_large_as_strip_makes_it(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    source, program, stripped = tmp_path / "a.c", tmp_path / "a", tmp_path / "stripped"
    source.write_text("int main(void) { return 0; }\n")
    run_command(["clang-22", "-fuse-ld=lld", "-g", *words, source, "-o", program])
    run_command(["strip", program, "-o", stripped])
    # The two lay the end of the file out a little differently.
    assert stripped_bytes(program) == pytest.approx(stripped.stat().st_size, rel=0.02)
    assert stripped_bytes(program) < program.stat().st_size


def test_what_is_no_object_file_is_named(tmp_path: Path) -> None:
    for name, content in (("empty.o", b""), ("text.o", b"hello"), ("cut.o", b"\x7fELF\x02\x01")):
        (tmp_path / name).write_bytes(content)
        for measure in (text_bytes, stripped_bytes):
            with pytest.raises(ObjectFileError, match=name):
                measure(tmp_path / name)
    # A head without what it tells of: the reader finds that out in several ways.
    head = bytearray(Path("/bin/true").read_bytes()[:64])
    for place in range(16, 64):
        head[place] ^= 0xFF
        (tmp_path / "head.o").write_bytes(head)
        with pytest.raises(ObjectFileError, match=r"head\.o: not an ELF file, or damaged"):
            text_bytes(tmp_path / "head.o")
    with pytest.raises(ObjectFileError, match=r"missing\.o"):
        text_bytes(tmp_path / "missing.o")


@pytest.mark.compiler
def test_a_function_with_several_names_counts_once(tmp_path: Path) -> None:
    source, target = tmp_path / "a.cpp", tmp_path / "a.o"
    # Two constructors with one body, and a function that other objects may have.
    source.write_text(
        "struct Row { Row(int); ~Row(); int a; };\n"
        "Row::Row(int b) : a(b * 3) {}\n"
        "inline int shared(int x) { return x / 3; }\n"
        "int use(Row &row) { return shared(row.a); }\n"
    )
    run_command(["clang++-22", "-O0", "-c", source, "-o", target])
    sizes = function_sizes(target)
    assert sizes.aliases == {"_ZN3RowC2Ei": "_ZN3RowC1Ei"}
    assert sizes.keys() == {"_ZN3RowC1Ei", "_Z6sharedi", "_Z3useR3Row"}
    assert sizes.shared == {"_Z6sharedi"}
    assert sizes.weighted({"_Z6sharedi": 2}) == sum(sizes.values()) - sizes["_Z6sharedi"] / 2
