# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import pytest

from compiler_opt_perf.cli.main import run


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "--run='...' is needed; only with --size can it be left out"),
        ("--size", "without --run, give --binary=PATH, and no --run2"),
        ("--size --binary=a --run2=./a", "without --run, give --binary=PATH, and no --run2"),
        ("--run=./a --size --pgo", "--pgo is for speed and --size for size: give one of them"),
        (
            "--run=./a --size --small-cold",
            "--small-cold is for builds by a profile: leave out --size",
        ),
        ("--run=./a --thinlto", "--thinlto needs --size; for speed, --pgo tries ThinLTO"),
        ("--run=./a --source=no", "no: no such folder"),
        ("--run=./a --rounds=5", "5 is not in the range x>=6"),
    ],
)
def test_wrong_flags_are_told(line: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["try", "--build=make", *line.split()]) == 2
    assert message in capsys.readouterr().err
