# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import re
from pathlib import Path

import pytest

from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.folder import TrainingFolder


def test_what_a_killed_process_was_writing_is_removed(tmp_path: Path) -> None:
    left = [tmp_path / f".inputs.json.{number}.tmp" for number in (1, 2)]
    for path in left:
        path.write_text("{")
    with TrainingFolder.held(tmp_path) as folder:
        assert not any(path.exists() for path in left)
        folder.claim({})
    (tmp_path / ".policy.1.tmp" / "variables").mkdir(parents=True)
    (tmp_path / ".policy.1.tmp" / "variables" / "v").write_text("")
    with TrainingFolder.held(tmp_path):
        assert sorted(path.name for path in tmp_path.iterdir()) == ["inputs.json", "lock"]
    other = tmp_path / "other"
    other.mkdir()
    (other / ".notes.1.tmp").write_text("")
    with pytest.raises(TrainingError, match="not part of a training"), TrainingFolder.held(other):
        pass
    assert (other / ".notes.1.tmp").exists()


def test_a_folder_of_other_or_damaged_inputs_is_refused(tmp_path: Path) -> None:
    folder = TrainingFolder(tmp_path)
    folder.require_inputs({"config": {"seed": 1}})
    folder.claim({"config": {"seed": 1}, "corpus": "x"})
    folder.require_inputs({"config": {"seed": 1}, "corpus": "x"})
    with pytest.raises(TrainingError, match="holds a training with another config and problem"):
        folder.require_inputs({"config": {"seed": 2}, "problem": "p", "corpus": "x"})
    for text, problem in (("{", ":1:2: not JSON: "), ("[]", ": $: expected `object`, found []")):
        (tmp_path / "inputs.json").write_text(text)
        message = re.escape(f"inputs.json{problem}") + ".*; remove the folder"
        with pytest.raises(TrainingError, match=message):
            folder.require_inputs({})
