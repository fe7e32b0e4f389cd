# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import pytest

from compiler_opt_perf.toolchain.layout import ToolchainError
from tools.patches import upstream_tests
from tools.patches.upstream_tests import Results, compare


def _results(**codes: str) -> Results:
    """Results of tests of Transforms/Inline; "__" stands for a slash."""
    return {
        f"LLVM :: Transforms/Inline/{name.replace('__', '/')}.ll": {"code": code, "output": "why"}
        for name, code in codes.items()
    }


@pytest.fixture(autouse=True)
def none_different(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_tests, "DIFFERENT", {})


def test_equal_results_are_counted() -> None:
    results = _results(a="PASS", b="XFAIL", c="UNSUPPORTED", d="FAIL")
    assert "| Transforms/Inline | 4 | 2 | 1 | 1 | 0 |" in compare(results, results)


def test_tests_of_the_advisors_are_not_compared() -> None:
    stock = _results(a="PASS", ML__bypass="UNSUPPORTED")
    assert "| Transforms/Inline | 1 | 1 | 0 | 0 | 0 |" in compare(
        stock, _results(a="PASS", ML__bypass="PASS")
    )


@pytest.mark.parametrize("ours", [_results(a="FAIL"), _results()])
def test_a_difference_is_an_error(ours: Results) -> None:
    with pytest.raises(
        ToolchainError, match=r"Inline/a.ll: PASS on the .* tools, (FAIL|not found)"
    ):
        compare(_results(a="PASS"), ours)


def test_a_difference_with_a_reason_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    stock, ours = _results(a="PASS", b="PASS"), _results(a="UNSUPPORTED", b="PASS")
    name = "LLVM :: Transforms/Inline/a.ll"
    monkeypatch.setitem(upstream_tests.DIFFERENT, name, "ours has models")
    assert (
        f"- {name}: PASS on the distribution's tools, UNSUPPORTED on the patched ones: ours has"
        in (compare(stock, ours))
    )
    with pytest.raises(ToolchainError, match="a.ll: PASS on the distribution's tools, PASS on"):
        compare(stock, stock)
