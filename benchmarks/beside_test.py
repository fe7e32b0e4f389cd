# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import pytest

from benchmarks import beside
from benchmarks.common import BenchmarkError
from compiler_opt_perf.trial.build import Built, WayFolder
from compiler_opt_perf.trial.runs import Contender, GivenRun, Timed


def test_a_wrong_output_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("plain", "AutoFDO", "AutoFDO, patched")
    builds = [Contender(name, WayFolder(tmp_path), Built("work", 1.0), ()) for name in names]
    run, note = GivenRun("run", "./work"), tmp_path / "rounds.json"
    wrong, varying = ([["a"], ["a"], ["b"]], [["a", "b"], ["a"], ["c"]])
    monkeypatch.setattr(beside, "in_layouts", lambda builds, _: builds)
    monkeypatch.setattr(beside, "timed", lambda *_: Timed(outputs=varying))
    assert beside.timed_alike(builds, run, 6, note).outputs == varying
    monkeypatch.setattr(beside, "timed", lambda *_: Timed(outputs=wrong))
    with pytest.raises(BenchmarkError, match="--run=./work: AutoFDO, patched prints something"):
        beside.timed_alike(builds, run, 6, note)
