# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import json
import re
from pathlib import Path
from typing import Any

import pytest

from compiler_opt_perf.compare.errors import CompareError
from compiler_opt_perf.compare.linked import (
    compare_linked,
    describe,
    is_linked,
    read_linked,
    to_json,
)
from compiler_opt_perf.compare.testing import LINKED
from compiler_opt_perf.corpus.corpus import FRONTEND, Corpus
from compiler_opt_perf.corpus.extract import extract_corpus
from compiler_opt_perf.run.files import write_json
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT

_MODEL = REPO_ROOT / "models" / "inline-size"
# Two of these are one when they are linked.
_SOURCE = """
#include <map>
#include <string>
#include <vector>
std::string NAME(const std::map<std::string, std::vector<std::string>> &rows) {
  std::vector<std::string> all;
  for (const auto &[key, values] : rows)
    for (const auto &value : values)
      all.insert(all.begin(), value);
  return all.empty() ? "" : all.front();
}
"""


@pytest.mark.compiler
def test_programs_are_linked_with_the_policy_and_without(
    toolchain: Toolchain, tmp_path: Path
) -> None:
    commands = []
    for name in ("a", "b"):
        (tmp_path / f"{name}.cpp").write_text(_SOURCE.replace("NAME", name))
        words = ["clang++", "-std=c++17", "-c", f"{name}.cpp"]
        commands.append({"directory": ".", "file": f"{name}.cpp", "arguments": words})
    write_json(tmp_path / "compile_commands.json", commands)
    extract_corpus(
        {"ninja": tmp_path / "compile_commands.json"},
        tmp_path / "corpus",
        clang=stock_tool("clang"),
        opt_level="-Oz",
        stage=FRONTEND,
        held_out_share=0.5,
        seed=1,
        workers=1,
    )
    modules = [
        m for side in ("train", "held_out") for m in Corpus.load(tmp_path / "corpus" / side).modules
    ]
    programs = {"ninja": modules, "zstd": modules[:1]}
    found = compare_linked(_MODEL, programs, toolchain, workers=1)
    ninja, zstd = found.programs
    assert (ninja.name, ninja.purpose, zstd.purpose) == ("ninja", "test", "training")
    assert ninja.linked[1] < ninja.linked[0] < ninja.objects[0] * 0.6
    assert zstd.linked[0] > 0.8 * ninja.linked[0]
    assert (found.problem, found.level, found.model) == ("inline-size", "-Oz", "inline-size")
    assert not found.failed
    write_json(tmp_path / "linked.json", to_json(found))
    assert read_linked(tmp_path / "linked.json") == found


def test_the_table_says_what_was_seen() -> None:
    text = describe(LINKED)
    assert "| lua | 1,200 | 1,200 | +0.00% | +0.00% | never seen |\n" in text
    assert "| zstd | 2,000 | 1,800 | -10.00% | -20.00% | training |\n" in text
    assert "| geometric mean |  |  | -5.13% | -10.56% |  |\n" in text
    assert text.endswith("The compiler fails on tcc with the policy.\n")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 0}, "$.version: expected 1, found 0"),
        ({"programs": [{"name": "a"}]}, "$.programs[0].linked: is missing"),
        ({"failed": [1]}, "$.failed[0]: expected `str`, found 1"),
    ],
)
def test_damage_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "linked.json"
    path.write_text(json.dumps({**to_json(LINKED), **change}))
    assert is_linked(path)
    with pytest.raises(CompareError, match=re.escape(f"linked.json: {message}") + ".*; write it w"):
        read_linked(path)


def test_other_files_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    assert not is_linked(path)
    for text in ("", "[]", '{"format": 1}', '{"format": "compiler-opt-perf/comparison"}'):
        path.write_text(text)
        assert not is_linked(path)
