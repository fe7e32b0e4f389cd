# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import json
from pathlib import Path

import pytest

from benchmarks.common import BenchmarkError, read_result, run_all, saved
from compiler_opt_perf.run.command import CommandError


def test_commands_run_where_they_are_told_to_and_failures_are_raised(tmp_path: Path) -> None:
    done = run_all([["sh", "-c", f"pwd; echo {number} >&2"] for number in range(5)], tmp_path)
    assert [one.stdout for one in done] == [f"{tmp_path}\n"] * 5
    assert [one.stderr for one in done] == [f"{number}\n" for number in range(5)]
    with pytest.raises(CommandError, match="exit status 3"):
        run_all([["true"], ["sh", "-c", "exit 3"], ["touch", "last"]], tmp_path)
    assert (tmp_path / "last").exists()


def test_results_are_of_their_type_or_an_error(tmp_path: Path) -> None:
    path = tmp_path / "seconds.json"
    with pytest.raises(FileNotFoundError):
        read_result(path, dict[str, float])
    path.write_text('{"a": 1}')
    assert read_result(path, dict[str, float]) == {"a": 1.0}
    path.write_text('{"a": "1"}')
    with pytest.raises(BenchmarkError, match=r'\$\["a"\]: expected `float`, found "1"; remove it'):
        read_result(path, dict[str, float])


def test_saved_results_are_in_the_order_of_the_names(tmp_path: Path) -> None:
    for name in ("a", "c"):
        (tmp_path / f"{name}.x.json").write_text(json.dumps({"is": name}))
    found = saved(tmp_path, ("c", "b", "a"), ".x.json")
    assert list(found.items()) == [("c", {"is": "c"}), ("a", {"is": "a"})]
