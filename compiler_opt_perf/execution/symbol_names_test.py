# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import pytest

from compiler_opt_perf.execution.symbol_names import demangled, shortened


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
