# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The gate with a recorded run: what a policy for evictions makes the program execute."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from compiler_opt_perf.blocks.cpu_files import cpu_file
from compiler_opt_perf.cli.gate_verbs import EXIT_WORSE
from compiler_opt_perf.cli.main import run
from compiler_opt_perf.compare.testing import corpus_of
from compiler_opt_perf.cost.evaluator import EVALUATORS, REPLAY_FLAGS, Context
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT
from compiler_opt_perf.trace.qemu import record
from compiler_opt_perf.trace.windows import write_windows

pytestmark = pytest.mark.compiler

MODELS = REPO_ROOT / "lit_tests" / "Inputs"
SOURCE = REPO_ROOT / "compiler_opt_perf" / "cost" / "testdata" / "pressure.c"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> Path:
    """A program with a recorded run, and a baseline with the default's evictions."""
    folder = tmp_path_factory.mktemp("gate")
    flags = ["-O2", *REPLAY_FLAGS, "-fuse-ld=lld"]
    run_command([toolchain.clang, *flags, SOURCE, "-o", folder / "program"])
    trace = record(folder / "program", ["40"], folder / "run.bbtrace")
    write_windows(trace, 6, folder / "run.bbwindows")
    corpus = corpus_of([SOURCE], toolchain, "p", PROBLEMS["regalloc-evict"], folder)
    words = ["gate", "record", f"--corpus={corpus / 'train'}", "--problem=regalloc-evict"]
    words += [f"--model={MODELS / 'evict-default'}", f"--toolchain={toolchain.directory}"]
    words += [f"--trace=p={folder / 'run.bbwindows'}", "--cpu=znver3", "--compile-time=none"]
    words += ["--repetitions=2", "--workers=1"]
    assert run([*words, f"--output={folder / 'baseline.json'}"]) == 0
    return folder


def test_more_executed_instructions_are_caught(
    folder: Path, toolchain: Toolchain, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    words = ["gate", "check", str(folder / "baseline.json"), "--json", "--workers=1"]
    assert run([*words, f"--model={MODELS / 'evict-last'}"]) == EXIT_WORSE
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    totals = {one["metric"]: one for one in document["findings"] if one["level"] == "total"}
    assert document["changed"] == ["policy"]
    # What the recorded program's own code executes, which took the same decisions.
    context = Context(
        tool=toolchain.trace_cost, trace=folder / "run.bbwindows", cpu=cpu_file("znver3")
    )
    for metric, evaluator in (("instructions", "count"), ("cycles", "mca-pmu")):
        own = EVALUATORS[evaluator].cost([folder / "program"], context).total
        assert totals[metric]["before"] == pytest.approx(own, rel=1e-3)
        assert totals[metric]["after"] > 1.01 * own and totals[metric]["verdict"] == "worse"
        function = totals[metric]["why"]["functions"][0]
        assert function["function"] == "mix"
        grown = totals[metric]["after"] - totals[metric]["before"]
        assert function["after"] - function["before"] == pytest.approx(grown, rel=0.05)
        assert totals[metric]["why"]["decisions"][0]["key"].startswith("mix ")
    assert totals["unreplayed"]["verdict"] == totals["unlinked"]["verdict"] == "same"


def test_the_decisions_that_make_it_execute_more_are_found(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    limits = tmp_path / "limits.toml"
    limits.write_text("[instructions]\nmodule = { relative = 0.015 }\n")
    output = tmp_path / "worse"
    words = ["gate", "bisect", str(folder / "baseline.json"), f"--output={output}"]
    words += [f"--model={MODELS / 'evict-last'}", "--module=p/pressure", f"--limits={limits}"]
    assert run([*words, "--metric=instructions", "--most=8"]) == 0
    said = capsys.readouterr().out
    found = re.match(r"(?s)p/pressure: instructions (\S+) -> .* make it (\S+);", said)
    assert found is not None, said
    before, value = map(float, found.groups())
    assert value > 1.015 * before
    moved = output.rename(tmp_path / "moved")
    shown = run_command(["sh", moved / "reproduce.sh"], cwd=Path("/")).stdout.splitlines()
    assert [line.split()[0] for line in shown] == ["baseline:", "candidate:"]
    assert [float(line.split()[1]) for line in shown] == pytest.approx([before, value], rel=1e-5)


def test_a_run_that_is_not_what_it_was_is_refused(
    folder: Path, toolchain: Toolchain, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (folder / "baseline.json").read_text()
    other = tmp_path / "other.bbwindows"
    other.write_bytes(b"other")
    changed = text.replace(str(folder / "run.bbwindows"), str(other))
    (tmp_path / "baseline.json").write_text(changed)
    assert run(["gate", "check", str(tmp_path / "baseline.json")]) == 1
    assert f"{other}: is not the file that the baseline was recorded with" in (
        capsys.readouterr().err
    )
    words = ["gate", "record", f"--corpus={folder / 'corpus/train'}", "--problem=inline-size"]
    words += [f"--model={MODELS / 'inline-default'}", f"--toolchain={toolchain.directory}"]
    words.append(f"--output={tmp_path / 'b.json'}")
    for more, message in (
        (["--trace=p=run"], "change the functions and blocks that a recorded run is of"),
        (["--trace=run"], "--trace=run: expected PROGRAM=FILE: of which program is it?"),
        (["--cpu=znver3"], "--cpu is for the cycles of recorded runs: give --trace, too"),
    ):
        assert run([*words, *more]) == 2
        assert message in capsys.readouterr().err
