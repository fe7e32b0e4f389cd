# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from compiler_opt_perf.corpus.corpus import Corpus
from compiler_opt_perf.execution.command import CommandError
from compiler_opt_perf.execution.pool import Pool
from compiler_opt_perf.policies.export import CandidateTemplate
from compiler_opt_perf.policies.network import Network, fit_normalisation
from compiler_opt_perf.policies.problem import PROBLEMS
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.training.compilation import Compiler
from compiler_opt_perf.training.evaluation import Evaluator, MeasuredModule, measure_defaults
from compiler_opt_perf.training.log import read_log

PROBLEM = PROBLEMS["inline-size"]


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(2) as workers:
        yield workers


@pytest.fixture(scope="module")
def compiler(toolchain: Toolchain) -> Compiler:
    return Compiler(toolchain.clang, toolchain.litert_library, PROBLEM, None, 60.0, 4096)


@pytest.fixture(scope="module")
def measured(
    compiler: Compiler,
    corpora: dict[str, Corpus],
    pool: Pool,
    tmp_path_factory: pytest.TempPathFactory,
) -> list[MeasuredModule]:
    folder = tmp_path_factory.mktemp("default")
    return measure_defaults(compiler, corpora[PROBLEM.name].modules[:3], folder, pool)


@pytest.fixture(scope="module")
def template(measured: list[MeasuredModule]) -> CandidateTemplate:
    inputs = read_log(measured[0].log).inputs(PROBLEM, with_pmu=False)
    network = Network(PROBLEM, False, (4,), fit_normalisation(inputs, PROBLEM, False))
    return CandidateTemplate.make(network)


def fake_clang(folder: Path, script: str) -> Path:
    path = folder / "clang"
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)
    return path


def test_gains_follow_the_decisions(
    compiler: Compiler,
    measured: list[MeasuredModule],
    template: CandidateTemplate,
    pool: Pool,
    tmp_path: Path,
) -> None:
    # The last layer's biases alone: never inline, always inline.
    never, always = (np.zeros(template.network.size, np.float32) for _ in range(2))
    never[-2], always[-1] = 1.0, 1.0
    evaluator = Evaluator(compiler, template, pool, tmp_path / "failures")
    gains = evaluator.gains([never, always, never], measured)
    assert gains[0] == gains[2] != gains[1]
    assert evaluator.compilations == 9
    assert evaluator.failures == 0
    assert not (tmp_path / "failures").exists()


def test_defaults_are_measured_once(
    compiler: Compiler,
    measured: list[MeasuredModule],
    corpora: dict[str, Corpus],
    pool: Pool,
    tmp_path: Path,
) -> None:
    modules = corpora[PROBLEM.name].modules[:2]
    first = measure_defaults(compiler, modules, tmp_path, pool)
    times = {m.log: m.log.stat().st_mtime_ns for m in first}
    # A record that is not whole is made again.
    record = tmp_path / f"{modules[1].name}.json"
    record.write_bytes(record.read_bytes()[:20])
    second = measure_defaults(compiler, modules, tmp_path, pool)
    assert [m.default.costs for m in second] == [m.default.costs for m in first]
    assert second[0].log.stat().st_mtime_ns == times[first[0].log]
    assert second[1].log.stat().st_mtime_ns > times[first[1].log]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("kill -SEGV $$", "ended by SIGSEGV"),
        ("echo broken >&2; exit 1", "exit status 1"),
        ("sleep 100", "killed after its limit of 0.5 s"),
        ("exit 0", "cannot be read"),
    ],
)
def test_a_candidate_that_always_fails_is_rejected(
    compiler: Compiler,
    measured: list[MeasuredModule],
    template: CandidateTemplate,
    pool: Pool,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    script: str,
    reason: str,
) -> None:
    clang = fake_clang(tmp_path, script)
    failing = dataclasses.replace(compiler, clang=clang, timeout_s=0.5)
    evaluator = Evaluator(failing, template, pool, tmp_path / "failures")
    gains = evaluator.gains([template.network.initial_weights(1)], measured[:2])
    assert gains.tolist() == [-np.inf]
    assert evaluator.failures == 2
    assert reason in caplog.text
    (kept,) = (tmp_path / "failures").iterdir()
    assert {path.name for path in kept.iterdir()} == {"model.tflite", "output_spec.json"}
    if script != "exit 0":
        assert f"-ml-inliner-model-under-training={kept}" in caplog.text


def test_a_failure_on_one_module_is_no_improvement_there(
    compiler: Compiler,
    measured: list[MeasuredModule],
    template: CandidateTemplate,
    pool: Pool,
    tmp_path: Path,
) -> None:
    name = os.fspath(measured[0].module.bitcode)
    script = f'case "$*" in *{name}*) exit 1;; *) exec {compiler.clang} "$@";; esac'
    failing = dataclasses.replace(compiler, clang=fake_clang(tmp_path, script))
    always = np.zeros(template.network.size, np.float32)
    always[-1] = 1.0
    evaluator = Evaluator(failing, template, pool, tmp_path / "failures")
    (gain,) = evaluator.gains([always], measured[:2])
    (whole,) = Evaluator(compiler, template, pool, tmp_path).gains([always], measured[1:2])
    text = [m.default.costs["text"] for m in measured[:2]]
    assert gain == pytest.approx(whole * text[1] / sum(text))
    assert evaluator.failures == 1


def test_a_module_that_does_not_compile_is_left_out(
    compiler: Compiler, corpora: dict[str, Corpus], pool: Pool, tmp_path: Path
) -> None:
    good, bad = corpora[PROBLEM.name].modules[:2]
    truncated = tmp_path / "bad.bc"
    truncated.write_bytes(bad.bitcode.read_bytes()[:1000])
    bad = dataclasses.replace(bad, bitcode=truncated)
    measured = measure_defaults(compiler, [good, bad], tmp_path, pool)
    assert [m.module for m in measured] == [good]


def test_a_missing_compiler_ends_the_training(
    compiler: Compiler, corpora: dict[str, Corpus], pool: Pool, tmp_path: Path
) -> None:
    clang = fake_clang(tmp_path, "exit 0")
    clang.chmod(0o644)
    absent = dataclasses.replace(compiler, clang=clang)
    with pytest.raises(CommandError, match="no such program"):
        measure_defaults(absent, corpora[PROBLEM.name].modules[:1], tmp_path, pool)
