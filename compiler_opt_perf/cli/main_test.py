# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import shlex
from pathlib import Path

import pytest

from compiler_opt_perf.cli.main import find_verb, run
from compiler_opt_perf.cli.verbs import VERBS

REPO_ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_help_has_an_example_that_parses(verb, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    assert run([*verb.name.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"cop {verb.example}" in shown
    found, rest = find_verb(shlex.split(verb.example))
    assert found is verb
    values = verb.flag_values()
    values(["cop", *rest])
    for name in values:
        assert f"--{name}: " in shown


def test_overview_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    shown = capsys.readouterr().out
    assert all(verb.name in shown for verb in VERBS)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("frobnicate", "no verb 'frobnicate'"),
        ("corpus", "corpus extract"),
        ("profile show", "expected one manifest"),
        ("profile show a.pmu.json --wrong=1", "Unknown command line flag 'wrong'"),
        ("corpus extract a=b", "--problem"),
        ("corpus extract --problem=cooking --output=x a=b", "value should be one of"),
        ("corpus extract --problem=inline-size --output=x nonsense", "expected PROGRAM=compile_c"),
        ("corpus extract --problem=inline-size --output=x --held_out=2 a=b", "between 0 and 1"),
        ("toolchain build surplus", "unexpected argument 'surplus'"),
    ],
)
def test_wrong_usage_is_explained(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line.split()) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("profile show missing.pmu.json", "missing.pmu.json"),
        ("report missing.json --output=page.html", "missing.json: not a comparison"),
        ("collect --binary=a --output=b.pmu.json --LL=big", "big"),
        ("program build doom --output=x", "doom: unknown program; known are lua, zstd"),
    ],
)
def test_failures_are_one_message(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line.split()) == 1
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown
