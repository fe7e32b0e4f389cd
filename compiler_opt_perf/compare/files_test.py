# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compiler_opt_perf.compare.files import ReportError, read_comparison, read_curve
from compiler_opt_perf.compare.summary import to_json
from compiler_opt_perf.compare.testing import EVICT, INLINE
from compiler_opt_perf.run.files import write_json


def test_comparison_survives_its_file(tmp_path: Path) -> None:
    for comparison in (INLINE, EVICT):
        write_json(tmp_path / "c.json", to_json(comparison))
        assert read_comparison(tmp_path / "c.json") == comparison


def _damaged(change: Callable[[dict[str, Any]], None]) -> str:
    value = copy.deepcopy(json.loads(json.dumps(to_json(EVICT))))
    change(value)
    return json.dumps(value)


def _module(name: str, content: Any) -> str:
    return _damaged(lambda value: value["modules"][0].update({name: content}))


def _function(name: str, content: Any) -> str:
    return _damaged(lambda value: value["modules"][0]["functions"][0].update({name: content}))


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        ("", ""),
        ("{", ""),
        ("[]", r": \$: expected `object`, found \[\]"),
        ("{}", r": \$\.format: is missing"),
        ("[" * 200_000, "nested too deep"),
        (_damaged(lambda value: None)[:-20], ""),
        (
            _damaged(lambda value: value.update(version=1)),
            r"\$\.version: expected 2, found 1: another version",
        ),
        (
            _damaged(lambda value: value.update(modules=[])),
            "modules: expected `array` of length >= 1",
        ),
        (_damaged(lambda value: value.update(modules={})), "modules: expected `array`, found {}"),
        (_damaged(lambda value: value.update(modules=[1])), r"modules\[0\]: expected `object`"),
        (_damaged(lambda value: value.update(level=2)), "level: expected `str`, found 2"),
        (_damaged(lambda value: value.update(seed=True)), "seed: expected `int`, found true"),
        (_damaged(lambda value: value.update(modes="release")), "modes: expected `array`"),
        (_damaged(lambda value: value.pop("modes")), r"\$\.modes: is missing"),
        (
            _module("text_default", "1000"),
            r'modules\[0\].text_default: expected `int`, found "1000"',
        ),
        (_module("text_default", 1.5), r"modules\[0\].text_default: expected `int`, found 1.5"),
        (_module("text_default", -1), "expected `int` >= 0, found -1"),
        (
            _module("text_default", 10**400),
            r"modules\[0\].text_default: expected `int` <= \d+, found 1000",
        ),
        (
            _module("compile_default", [10**400]),
            r"compile_default\[0\]: number out of range, found 1000",
        ),
        (_module("compile_default", [-(10**400)]), "number out of range, found -1000"),
        (
            _module("compile_default", [float("nan")]),
            r"default\[0\]: expected `float` >= 0.0, found NaN",
        ),
        (_module("compile_default", [0.0]), "expected pairs above 0"),
        (_module("compile_default", []), "expected pairs above 0"),
        (_module("compile_default", None), "expected `array`, found null"),
        (_module("functions", 3), r"modules\[0\].functions: expected `array`"),
        (
            _function("default", "80"),
            r'functions\[0\].default: expected `float \| null`, found "80"',
        ),
        (_function("calls", 1.5), r"functions\[0\].calls: expected `int \| null`, found 1.5"),
        (_function("policy", float("inf")), "expected `float` < 1.8"),
        (_module("name", "\ud800"), "lone surrogate"),
    ],
)
def test_damaged_comparison_is_named(tmp_path: Path, damage: str, what: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(damage)
    with pytest.raises(
        ReportError, match=rf"c\.json.*{what}.*; write it with `cop compare policy`"
    ):
        read_comparison(path)


def test_damaged_curve_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "curve.jsonl"
    path.write_text('{"generation": 0, "validation_of_mean": 0}\n{"generation"\n')
    with pytest.raises(ReportError, match=r"curve\.jsonl:2:1:14: not JSON: .*cop train policy"):
        read_curve(path)
    huge = "1" + 400 * "0"
    for row, message in (
        (b"\xff", "not JSON: byte 0 is not UTF-8"),
        (b"[1]", "$: expected `object`, found [1]"),
        (
            b'{"generation": "1", "validation_of_mean": 0}',
            '$.generation: expected `int`, found "1"',
        ),
        (b'{"generation": 1, "validation_of_mean": "good"}', "$.validation_of_mean: expected `fl"),
        (
            f'{{"generation": 1, "validation_of_mean": {huge}}}'.encode(),
            "$.validation_of_mean: number out of range, found 1000",
        ),
        (b'{"generation": 1, "validation_of_mean": NaN}', "$.validation_of_mean: expected"),
        # Of an older version, whose signs were the other way round.
        (b'{"generation": 1, "validation": 0.1}', "$.validation_of_mean: is missing"),
        (b"[" * 200_000, "not JSON: nested too deep"),
    ):
        path.write_bytes(b'{"generation": 0, "validation_of_mean": 0}\n' + row + b"\n")
        with pytest.raises(
            ReportError, match=re.escape(f"curve.jsonl:2: {message}") + ".*cop train policy"
        ):
            read_curve(path)
