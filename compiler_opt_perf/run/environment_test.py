# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
# What is started by a Python program that is told so, and by one of our processes.
_CODE = """
import sys
if sys.argv[1] == "ours":
    import compiler_opt_perf.run
if sys.argv[2] == "set":
    import os
    os.environ["LC_CTYPE"] = "fr_FR.UTF-8"
import subprocess
subprocess.run(["env"], check=True)
"""


def _variables(given: dict[str, str], *arguments: str) -> dict[str, str]:
    """The environment of a program that a Python program starts."""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(_ROOT), **given}
    argv = [sys.executable, "-c", _CODE, *arguments]
    shown = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout
    return dict(line.split("=", 1) for line in shown.splitlines())


_COERCED = [{}, {"LC_CTYPE": "C"}, {"LC_CTYPE": "POSIX", "LANG": "de_DE.UTF-8"}, {"LANG": "C"}]
_KEPT = [{"LC_ALL": "C"}, {"LC_CTYPE": "C.UTF-8"}, {"LC_CTYPE": "C.utf8"}, {"LANG": "C.UTF-8"}]


@pytest.mark.parametrize("given", [*_COERCED, *_KEPT], ids=str)
def test_the_locale_is_the_users(given: dict[str, str]) -> None:
    # Python does change it.
    assert (_variables(given, "python", "").get("LC_CTYPE") != given.get("LC_CTYPE")) == (
        given in _COERCED
    )
    variables = _variables(given, "ours", "")
    assert {name: text for name, text in variables.items() if name.startswith("L")} == given


def test_what_the_calling_program_sets_is_passed_on() -> None:
    assert _variables({}, "ours", "set")["LC_CTYPE"] == "fr_FR.UTF-8"
