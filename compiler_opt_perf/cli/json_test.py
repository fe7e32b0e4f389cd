# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What verbs show, as text and as JSON: all verbs, so that a new one is not forgotten."""

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compiler_opt_perf.blocks import calibrate as calibration
from compiler_opt_perf.blocks import data as learned_data
from compiler_opt_perf.blocks import judge
from compiler_opt_perf.blocks import measure_blocks as measuring
from compiler_opt_perf.blocks import model as learned_model
from compiler_opt_perf.blocks.block_file import MeasuredBlock, MeasuredBlocks
from compiler_opt_perf.blocks.judge import Figures, Judgement
from compiler_opt_perf.cli.main import run
from compiler_opt_perf.cli.verbs import COP
from compiler_opt_perf.compare import comparison, linked, modes, record, setup
from compiler_opt_perf.compare.baseline import write_baseline
from compiler_opt_perf.compare.comparison import Comparison, ModuleComparison
from compiler_opt_perf.compare.history import accept
from compiler_opt_perf.compare.testing import LINKED, sample, write_imitation
from compiler_opt_perf.corpus import programs
from compiler_opt_perf.corpus.corpus import BITCODE_MAGIC, write_description
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.toolchain.installation import Toolchain

REPO_ROOT = Path(__file__).parents[2]

# Verbs that show no table, and what they print.
WITHOUT_TABLES = {
    "toolchain build": "a path",
    "toolchain pack": "a path",
    "corpus extract": "what was written, in a line",
    "corpus program": "a path",
    "trace merge": "what was written, in a line",
    "trace cut": "what was written, in a line",
    "trace windows": "what was written, in a line",
    "trace overlap": "one number",
    "train policy": "what was written, in a line; the figures are in training.json",
    "train cost-model": "what was written, in a line; the figures are in model.json",
    "policy flags": "words for a command line",
    "policy interact": "decisions, when they are taken",
    "policy publish-rule": "a path",
    "compare page": "a path",
    "gate record": "what was written, in a line",
    "gate accept": "what was written, in a line",
    "gate bisect": "what was found, in a line, and a path",
    "gate limits": "a TOML file",
}

# For each verb that shows a table, a command line in the folder of `files`.
LINES = {
    "profile collect": "profile collect --binary=program --output=again.pmu.json -- 3",
    "profile show": "profile show run.pmu.json --top=3",
    "profile diff": "profile diff run.pmu.json other.pmu.json",
    "profile coverage": "profile coverage program --profile=run.pmu.json",
    "profile merge": "profile merge run.pmu.json run.pmu.json --output=sum.pmu.json",
    "profile check": "profile check run.pmu.json --binary=program",
    "trace record": "trace record --binary=program --output=again.bbtrace -- 3",
    "trace show": "trace show run.bbtrace --top=3",
    "trace list": "trace list run.bbtrace --first=1995 --number=9",
    "trace synthesise": "trace synthesise --binary=program --profile=run.pmu.json "
    "--output=drawn.bbtrace --blocks=20000 --seed=1",
    "cost calibrate": "cost calibrate --output=cpu.json",
    "cost measure-blocks": "cost measure-blocks --output=program.blocks --most=20 program",
    "cost eval": "cost eval --model={model} --data=program.blocks",
    "cost predict": "cost predict --evaluator=count --trace=run.bbtrace program "
    "--toolchain={toolchain}",
    "try": "try --size --source=tree --build=./build --binary=program --output=tried "
    "--toolchain={toolchain}",
    "corpus show": "corpus show corpus",
    "train show": "train show training",
    "compare programs": "compare programs lua --model={model} --output=p.json --modules=modules "
    "--toolchain={toolchain}",
    "gate check": "gate check baseline.json --toolchain={toolchain} "
    "--release-toolchain={toolchain}",
    "gate history": "gate history gate.jsonl",
    "compare policy": "compare policy --problem=inline-size --corpus=corpus --model=corpus "
    "--output=c.json --toolchain={toolchain} --release-toolchain={toolchain}",
}
VERBS = dict(COP.verbs())
SHOWING = [name for name in VERBS if name not in WITHOUT_TABLES]

SOURCE = """
#include <stdlib.h>
static volatile unsigned sink;
__attribute__((noinline)) void work(unsigned n) {
  for (unsigned i = 0, x = 1; i < n; ++i) {
    x = x * 1664525 + 1013904223;
    if (x >> 31)
      sink += x;
    else
      sink ^= i;
  }
}
int main(int argc, char **argv) {
  for (int i = argc > 1 ? atoi(argv[1]) : 9; i > 0; --i)
    work(4000);
}
"""
FLAGS = "-g -fdebug-info-for-profiling -fbasic-block-address-map -mllvm -pgo-analysis-map=br-prob"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program, with profiles, a trace and a corpus."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "program.c").write_text(SOURCE)
    clang: list[str | Path] = [
        stock_tool("clang"),
        "-O2",
        "-fuse-ld=lld",
        "-Wl,--build-id",
        *shlex.split(FLAGS),
    ]
    run_command([*clang, "program.c", "-o", "program"], cwd=folder)
    for line in (
        "profile collect --binary=program --output=run.pmu.json -- 9",
        "profile collect --binary=program --output=other.pmu.json --D1=1024,2,64 -- 3",
        "trace record --binary=program --output=run.bbtrace -- 9",
    ):
        words = [sys.executable, "-m", "compiler_opt_perf.cli.main", *line.split()]
        run_command(words, cwd=folder)
    (folder / "tree").mkdir()
    (folder / "tree/program.c").write_text(SOURCE)
    build = folder / "tree/build"
    build.write_text("#!/bin/sh\ncc program.c -o program\n")
    build.chmod(0o755)
    corpus = folder / "corpus"
    (corpus / "lua").mkdir(parents=True)
    (corpus / "lua/a.bc").write_bytes(BITCODE_MAGIC + bytes(4321))
    (corpus / "lua/a.cmd").write_bytes(b"-cc1\0-O2")
    write_description(corpus, ["lua/a"])
    write_imitation(folder / "training")
    write_baseline(sample(), folder / "baseline.json")
    accept(folder / "baseline.json", folder / "accepted.json", folder / "gate.jsonl", "the first")
    return folder


def test_every_verb_that_shows_a_table_has_json() -> None:
    assert {name for name, verb in VERBS.items() if verb.json_version} == set(SHOWING)
    assert LINES.keys() == set(SHOWING)
    assert WITHOUT_TABLES.keys() <= VERBS.keys()


def test_every_document_is_documented() -> None:
    formats = (REPO_ROOT / "docs" / "reference" / "json.md").read_text()
    for name in SHOWING:
        assert f"| `{name}` | {VERBS[name].json_version} | " in formats


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        value = value.values()
    if isinstance(value, int | float):
        yield value
    elif not isinstance(value, str | None):
        for one in value:
            yield from _numbers(one)


@pytest.mark.compiler
@pytest.mark.parametrize("name", SHOWING)
def test_json_is_one_document_with_what_the_text_says(
    name: str,
    files: Path,
    toolchain: Toolchain,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(files)
    # What takes long, or whose figures are others each time.
    module = ModuleComparison("lua/a", 1000, 900, (), 1234, 40, 20, 5, (1.0,), (1.1,))
    monkeypatch.setattr(modes, "require_compiled_in", lambda *_: None)
    monkeypatch.setattr(
        comparison,
        "compare",
        lambda *_, **__: Comparison("inline-size", "-Oz", ("release",), 1, "time", (module,)),
    )
    monkeypatch.setattr(setup, "same_runs", lambda *_: None)
    monkeypatch.setattr(record, "load_corpora", lambda *_: ())
    monkeypatch.setattr(record, "same_modules", lambda *_: None)
    monkeypatch.setattr(record, "record", lambda *_: sample())
    monkeypatch.setattr(linked, "compare_linked", lambda *_: LINKED)
    monkeypatch.setattr(programs, "program_modules", lambda *_, **__: ())
    cpu = {"name": "a CPU", "mcpu": "znver4", "parameters": {"l1": {"value": 4321, "source": "-"}}}
    monkeypatch.setattr(calibration, "calibrate", lambda *_, **__: cpu)
    rows = [MeasuredBlock(code="90", cycles=0.17)] * 1234
    monkeypatch.setattr(
        measuring, "measure_blocks", lambda *_, **__: MeasuredBlocks(None, 0.17, rows)
    )
    judged = Judgement("granite", "znver3", {"program": Figures(4321, 0.05)}, {"no code": 1234}, {})
    monkeypatch.setattr(learned_model, "load", lambda *_: None)
    monkeypatch.setattr(learned_data, "read_data", lambda *_: ())
    monkeypatch.setattr(judge, "evaluate", lambda *_: judged)
    model = REPO_ROOT / "models" / "inline-size"
    words = LINES[name].format(toolchain=toolchain.directory, model=model).split()
    option = len(name.split())
    assert run(words) == 0
    text = capsys.readouterr().out
    assert run([*words[:option], "--json", *words[option:]]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document)[:2] == ["kind", "version"]
    assert (document["kind"], document["version"]) == (name, VERBS[name].json_version)
    # Numbers that people get with separators, programs get as they are.
    told = {round(number) for number in _numbers(document)}
    large = {int(one.replace(",", "")) for one in re.findall(r"\d{1,3}(?:,\d{3})+", text)}
    assert large <= told
    small = ("profile check", "cost calibrate", "try")
    assert large or name in small
    assert text.count("\n") > 1


def test_a_page_and_json_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ("profile show a.pmu.json", "trace show a.bbtrace", "train show a", "gate history a")
    for words in lines:
        assert run([*words.split(), "--html=a.html", "--json"]) == 2
        assert "--html and --json: give one of them" in capsys.readouterr().err
