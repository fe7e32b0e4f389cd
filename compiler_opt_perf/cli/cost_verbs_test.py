# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The published cost models, by the verbs that use them: whole, and they know what is known."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.blocks.config import read_config
from compiler_opt_perf.blocks.model import load
from compiler_opt_perf.cli.main import run
from compiler_opt_perf.cost import recording
from compiler_opt_perf.cost.recording import RECORD_FLAGS
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.toolchain.layout import REPO_ROOT

MODEL = REPO_ROOT / "models" / "cost-znver3"
WORDS = ("cost", "predict", f"--model={MODEL}", "--cpu=znver3")
# The CPU, preset and number of epochs of each model.
SHIPPED = {
    "cost-znver3": ("znver3", "granite", 20),
    "cost-icelake-server": ("icelake-server", "granite", 20),
    "cost-icelake-server-pmu": ("icelake-server", "granite-pmu", 10),
}
# Core cycles of an execution by CPU: latencies, and what it can begin in a cycle.
KNOWN = {
    # add rax, rcx; imul rax, rcx; mov rax, [rax]
    "4801c8": {"znver3": 1.0, "icelake-server": 1.0},
    "480fafc1": {"znver3": 3.0, "icelake-server": 3.0},
    "488b00": {"znver3": 4.0, "icelake-server": 5.0},
    # mov rax, [rdi + 24]; mov rdi, [rax + 264]
    "488b4718488bb808010000": {"znver3": 8.0, "icelake-server": 10.0},
    # mov [rbx], rax; mov [rbx + 8], rax: a line; the second one to the next line.
    "48890348894308": {"znver3": 1.0, "icelake-server": 1.0},
    "48890348894340": {"znver3": 2.0, "icelake-server": 2.0},
    # nop
    "90": {"znver3": 1 / 6, "icelake-server": 1 / 5},
}


@pytest.mark.parametrize("name", SHIPPED)
def test_it_is_by_its_preset_and_as_good_as_its_page_says(name: str) -> None:
    cpu, preset, epochs = SHIPPED[name]
    model = load(REPO_ROOT / "models" / name)
    config = read_config(preset).changed({"epochs": epochs})
    assert (model.config, model.cpus) == (config, (cpu,))
    text = (REPO_ROOT / "docs" / "shipped-cost-models.md").read_text()
    page = text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    results = model.description["results"]
    for program in ("all", *model.config.test_programs):
        of = results[program]
        shares = f"{of['mean_error']:.1%} | {of['median_error']:.1%}"
        assert re.search(
            rf"^\| \**{program}\** \| {of['blocks']:,} \| {shares} \|", page, re.MULTILINE
        )
    digests = [one["sha256"] for one in model.description["data"]]
    assert digests and all(digest in page for digest in digests)


@pytest.mark.compiler
@pytest.mark.parametrize("name", SHIPPED)
def test_what_everybody_knows_of_a_cpu(name: str) -> None:
    cpu, *_ = SHIPPED[name]
    model = load(REPO_ROOT / "models" / name)
    cycles, _ = model.predict(list(map(bytes.fromhex, KNOWN)), cpu)
    assert cycles == pytest.approx([of[cpu] for of in KNOWN.values()], rel=0.1)


@pytest.mark.compiler
def test_blocks_of_known_cycles(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    # An empty block cannot be written; the last two are no instruction, and one of another CPU.
    words = [*KNOWN, "06", "62f17c4858c2"]
    assert run([*WORDS, "--json", *words]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    found = {one["code"]: one["cycles"] for one in document["blocks"]}
    assert [found[code] for code in KNOWN] == pytest.approx(
        [of["znver3"] for of in KNOWN.values()], rel=0.1
    )
    assert found["06"] is None
    assert document["refused"].get("no instruction") == 1
    assert run([*WORDS, *words]) == 0
    text = capsys.readouterr().out
    assert text.startswith("granite: cycles of an execution on znver3, of many in a row\n")
    assert "      1.00  4801c8\n" in text and "         -  06\n" in text
    assert "1 blocks refused: no instruction\n" in text


def test_what_cannot_be_predicted_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for words, status, message in (
        ((*WORDS[:3], "--cpu=skylake", "90"), 1, "for znver3, not for skylake: give --cpu=znver3"),
        ((*WORDS, "xyz"), 2, "'xyz': no such file, and no block in hexadecimal digits"),
        (WORDS, 2, "expected blocks in hexadecimal digits, or files of measured blocks"),
        (
            ("cost", "predict", "--model=none", "90"),
            1,
            "--model=none: no such folder; those of this project are ",
        ),
        (("cost", "predict", "--evaluator=granite", "90"), 2, "give the folder of such a model"),
        ((*WORDS, "--evaluator=granite-pmu", "90"), 2, "is a granite; give --evaluator=granite"),
        ((*WORDS, "--trace=run.bbwindows"), 2, "expected object files or a binary"),
        (
            ("train", "cost-model", "--recipe=granit", "--data=a", "--output=b"),
            2,
            "granit: no such file, and no preset",
        ),
        (
            (
                "train",
                "cost-model",
                "--recipe=granite",
                "--data=a",
                "--output=b",
                "--setting=rounds=1",
            ),
            2,
            "no setting 'rounds'; did you mean 'network.rounds'?\n",
        ),
    ):
        assert run(words) == status
        assert message in capsys.readouterr().err


@pytest.mark.compiler
def test_candidates_that_run_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recording, "FOLDER", tmp_path / "recordings")
    source = REPO_ROOT / "docs" / "testdata" / "program.c"
    builds = {"inlined": ["-O2"], "called": ["-O2", "-fno-inline"]}
    for name, flags in builds.items():
        words = [*RECORD_FLAGS, *PROFILING_FLAGS.split(), "-Wl,--build-id", *flags]
        run_command([stock_tool("clang"), *words, source, "-o", tmp_path / name], timeout_s=120)
    both = [f"{name}={tmp_path / name}" for name in builds]
    words = ["cost", "predict", "--toolchain=mock", "--cpu=znver5", "--run=some words"]
    assert run([*words, *both]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("mca-pmu: cycles, and differences from inlined\n")
    assert shown.count("  recorded by itself: ") == 2
    assert len(list((tmp_path / "recordings").iterdir())) == 2
    assert run([*words, "--json", *both]) == 0
    candidates = json.loads(capsys.readouterr().out)["candidates"]
    blocks = [one["report"]["recorded"]["blocks"] for one in candidates]
    assert 10_000 < blocks[0] < blocks[1]
    # Runs of their own have independent samples.
    errors = [one["standard_error"] for one in candidates]
    together = sum(error * error for error in errors) ** 0.5
    assert candidates[1]["change_standard_error"] == pytest.approx(together)


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--run=1", "--trace=a.bbwindows"],
            "a.bbwindows: is of a run that is replayed; with --run",
        ),
        (["--run=1", "--evaluator=size"], "--evaluator=size: needs no run; leave --run away"),
        (["--run='", "--cpu=znver5"], "--run=': No closing quotation"),
        (["--run=1", "--timeout=0"], "--timeout=0: expected seconds, more than 0"),
        (["--evaluator=size", "--timeout=2"], "are of candidates that run: give --run, too"),
    ],
)
def test_flags_that_contradict_a_run_are_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cost", "predict", "--toolchain=mock", *words, "program"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("rates", ("mispredict-rates", "failed-forward-rates"))
def test_rates_that_need_other_rates_are_refused_alone(
    rates: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "some.blocks"
    words = ("cost", "measure-blocks", f"--output={output}", f"--{rates}=0.1", "/bin/true")
    assert run(words) == 2
    assert f"--{rates} needs --miss-rates" in capsys.readouterr().err
    assert not output.exists()
