# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from compiler_opt_perf.execution.symbol_names import demangled


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
