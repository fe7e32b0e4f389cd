# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import pytest

from compiler_opt_perf.run.symbol_names import (
    COPY_SUFFIXES,
    PART_SUFFIXES,
    canonical_name,
    demangled,
    is_part,
    shortened,
)

_HASH = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize("number", ["", ".0", ".12345678901234567890"])
@pytest.mark.parametrize("suffix", PART_SUFFIXES + COPY_SUFFIXES)
def test_suffixes_in_any_order(suffix: str, number: str) -> None:
    name = f"_ZN1a1bEv.{suffix}{number}"
    assert canonical_name(name) == "_ZN1a1bEv"
    assert is_part(name) == (suffix in PART_SUFFIXES)
    for other in PART_SUFFIXES + COPY_SUFFIXES:
        assert canonical_name(f"{name}.{other}") == "_ZN1a1bEv"
        assert is_part(f"{name}.{other}") == (suffix in PART_SUFFIXES or other in PART_SUFFIXES)


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("main", "main"),
        ("_ZN4llvm5errsEv", "_ZN4llvm5errsEv"),
        ("f.llvm.99.cold", "f"),
        # Control flow integrity, of a local function of a split unit.
        (f"f.{_HASH}.cfi", "f"),
        # What the linker of IR or a clone is told apart by.
        ("f.1", "f"),
        ("f.avx2.0", "f.avx2"),
        ("f.__uniq.42.llvm.7", "f.__uniq.42"),
        (f"f.__uniq.{_HASH}.cold", f"f.__uniq.{_HASH}"),
        # Names that are the program's own.
        ("cold.start", "cold.start"),
        ("f.llvm.x", "f.llvm.x"),
        ("f.omp_outlined", "f.omp_outlined"),
        ("f_cold", "f_cold"),
        ("f.", "f."),
        (".cold", ".cold"),
        (".cold.cold", ".cold"),
        ("a\nb.cfi", "a\nb"),
        ("f.cfi\n", "f.cfi\n"),
        (f"f.{_HASH.upper()}", f"f.{_HASH.upper()}"),
        ("", ""),
    ],
)
def test_canonical_name(name: str, canonical: str) -> None:
    assert canonical_name(name) == canonical
    assert canonical_name(canonical) == canonical


@pytest.mark.compiler
def test_demangled_names() -> None:
    names = ["_ZN4llvm4errsEv", "main", "a name:with 3", "-[Row column:]"]
    assert demangled(names) == {
        "_ZN4llvm4errsEv": "llvm::errs()",
        "main": "main",
        "a name:with 3": "a name:with 3",
        "-[Row column:]": "-[Row column:]",
    }
    assert demangled([]) == {}
    # Nothing of a profile moves the terminal's cursor, or hides the line before.
    assert demangled(["a\nb", "_Z1fv", "\x1b[2J"]) == {
        "a\nb": "a\N{REPLACEMENT CHARACTER}b",
        "_Z1fv": "f()",
        "\x1b[2J": "\N{REPLACEMENT CHARACTER}[2J",
    }


LONG = (
    "void std::__introsort_loop<__gnu_cxx::__normal_iterator<std::pair<long, Row>*, std::vector<"
    "std::pair<long, Row>>>, long, (anonymous namespace)::Less>(std::pair<long, Row>*, long) const"
)


@pytest.mark.parametrize(
    ("name", "width", "expected"),
    [
        ("f(int, long)", 12, "f(int, long)"),
        ("f(int, long) const", 12, "f"),
        ("Table<Row>::find(Key const&) const", 20, "Table<Row>::find"),
        ("main::'lambda'(int)::operator()(int) const", 26, "main::'lambda'::operator()"),
        ("a<b<c>>::operator<(d<e> const&)", 24, "a<b<c>>::operator<"),
        ("a<b<c>, d>::operator->() const", 21, "a<...>::operator->"),
        ("(anonymous namespace)::run(char const*)", 30, "(anonymous namespace)::run"),
        (
            "std::vector<std::pair<int, long>>::push_back(int)",
            40,
            "std::vector<std::pair<...>>::push_back",
        ),
        ("std::vector<std::pair<int, long>>::push_back(int)", 30, "std::vector<...>::push_back"),
        ("abcdefghijklmnopqrstuvwxyz", 11, "abcd...wxyz"),
        ("abcdefghijklmnopqrstuvwxyz", 12, "abcde...wxyz"),
        ("f(int, long", 8, "f(i...ng"),
        ("-[Row column:withLongName:]", 15, "-[Row ...Name:]"),
        (LONG, 60, "void std::__introsort_loop<...>"),
    ],
)
def test_shortened_names(name: str, width: int, expected: str) -> None:
    assert shortened(name, width) == expected
    assert len(expected) <= width


def test_no_name_is_longer_than_asked_for() -> None:
    for width in range(len(LONG) + 1):
        assert len(shortened(LONG, width)) <= width
