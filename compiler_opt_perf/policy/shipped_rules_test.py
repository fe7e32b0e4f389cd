# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import json
import shutil
from pathlib import Path

import pytest

from compiler_opt_perf.policy.export import ModelError
from compiler_opt_perf.policy.shipped_rules import RULES, publish_rule
from compiler_opt_perf.run.files import files_of
from compiler_opt_perf.toolchain.layout import REPO_ROOT

_SHIPPED = {"inline-size": "inline-speed", "regalloc-evict": "regalloc-evict"}


@pytest.mark.parametrize("problem", RULES)
def test_what_is_shipped_is_published_again(problem: str, tmp_path: Path) -> None:
    """All files, byte by byte; the figures stay, which no rule tells."""
    shipped, folder = REPO_ROOT / "models" / _SHIPPED[problem], tmp_path / "policy"
    publish_rule(problem, folder)
    description = json.loads((folder / "model.json").read_text())
    assert "results" not in description
    expected = json.loads((shipped / "model.json").read_text())
    assert description == {key: own for key, own in expected.items() if key != "results"}

    (folder / "model.json").write_bytes((shipped / "model.json").read_bytes())
    publish_rule(problem, folder)
    files = [path.relative_to(shipped) for path in files_of(shipped)]
    assert [path.relative_to(folder) for path in files_of(folder)] == files
    for name in files:
        assert (folder / name).read_bytes() == (shipped / name).read_bytes(), name


def test_figures_are_of_one_rule(tmp_path: Path) -> None:
    folder = tmp_path / "policy"
    shutil.copytree(REPO_ROOT / "models" / "inline-speed", folder)
    path = folder / "model.json"
    earlier = json.loads(path.read_text())
    earlier["rule"]["hot"] += 1
    path.write_text(json.dumps(earlier))
    publish_rule("inline-size", folder)
    assert "results" not in json.loads(path.read_text())
    publish_rule("inline-size", folder, {"programs": {}})
    assert json.loads(path.read_text())["results"] == {"programs": {}}


def test_nothing_else_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "notes").write_text("mine")
    with pytest.raises(ModelError, match="mine: holds something else than a policy; name another"):
        publish_rule("inline-size", folder)
    (folder / "model.json").write_text("{")
    with pytest.raises(ModelError, match=r"model\.json.*: not JSON: .*; remove the folder"):
        publish_rule("inline-size", folder)
    assert (folder / "notes").read_text() == "mine"
