# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import json
import re
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compiler_opt_perf.compare.baseline import (
    Artifact,
    Baseline,
    Setup,
    changed_inputs,
    detail_of,
    read_baseline,
    to_json,
    write_baseline,
)
from compiler_opt_perf.compare.errors import CompareError
from compiler_opt_perf.compare.testing import sample


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_baseline(sample(), tmp_path / "b.json")
    baseline = read_baseline(tmp_path / "b.json")
    assert baseline == sample()
    detail = detail_of(baseline.modules[0])
    assert detail.functions == {"f": 600, "g": 400}
    assert detail.decisions == {"f g f.0 - #0": 1, "f h ? - #0": 0}


def test_baselines_of_earlier_versions_are_read(tmp_path: Path) -> None:
    fields = json.loads(json.dumps(to_json(sample())))
    for module in fields["modules"]:
        del module["exact"]
    (tmp_path / "b.json").write_text(json.dumps(fields))
    assert read_baseline(tmp_path / "b.json") == sample()


def _damaged(change: Any) -> str:
    value = json.loads(json.dumps(to_json(sample())))
    change(value)
    return json.dumps(value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", ":1:2: not JSON: "),
        (_damaged(lambda v: v.update(version=0)), "$.version: expected 1, found 0"),
        (_damaged(lambda v: v["setup"].update(problem="x")), "$.setup.problem: expected one of"),
        (_damaged(lambda v: v["setup"].update(corpora=[])), "$.setup.corpora: expected `array` of"),
        (_damaged(lambda v: v["modules"].append(v["modules"][0])), "p/a is listed twice"),
        (_damaged(lambda v: v["modules"][1].update(memory=[1])), "$.modules[1]: lacks measuremen"),
        (_damaged(lambda v: v["modules"][1].update(effort=[])), "$.modules[1]: lacks measurements"),
        (_damaged(lambda v: v["modules"][0].update(text=-1)), "$.modules[0].text: expected `int`"),
        (_damaged(lambda v: v["modules"][0].update(status="well")), "$.modules[0].status: invalid"),
    ],
)
def test_damaged_baselines_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "b.json"
    path.write_text(text)
    with pytest.raises(CompareError, match=f"{re.escape(str(path))}.*{re.escape(problem)}"):
        read_baseline(path)
    with pytest.raises(CompareError, match="No such file or directory; write it with"):
        read_baseline(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("detail", "problem"),
    [
        (b"xyzzy", "p/a: $.detail: Error -3 while decompressing"),
        (zlib.compress(b"{}")[:-3], "p/a: $.detail: is truncated, or too large"),
        (zlib.compress(b'{"scores": {"f": -1}}'), 'p/a, detail: $.scores["f"]: expected `float`'),
    ],
)
def test_damaged_details_are_refused(detail: bytes, problem: str) -> None:
    with pytest.raises(CompareError, match=re.escape(problem)):
        detail_of(sample(detail=detail).modules[0])


def _with(baseline: Baseline, **changes: Any) -> Setup:
    return msgspec.structs.replace(baseline.setup, **changes)


def test_what_has_changed_is_named() -> None:
    baseline = sample()
    other = Artifact("elsewhere", "9")
    moved = Artifact("elsewhere", baseline.setup.policy.digest)
    for changes, named in (
        ({"policy": moved}, ()),
        ({"policy": other, "compiler": other}, ("compiler", "policy")),
        ({"release": other}, ("release compiler",)),
        ({"release": None}, ()),
        ({"profiles": {"p": other, "": other}}, ("profile", "profile of p")),
        ({"profiles": {}}, ("profile of p",)),
    ):
        assert changed_inputs(baseline.setup, _with(baseline, **changes)) == named
