# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from compiler_opt_perf.corpus.corpus import Corpus, Module
from compiler_opt_perf.corpus.extract import extract_corpus
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.policy.encoding import fit_normalisation
from compiler_opt_perf.policy.network import Network
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.policy.tflite import MODEL_FILE, write_model
from compiler_opt_perf.run.command import CommandError
from compiler_opt_perf.run.files import sha256, write_json
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.memo import note
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train.compilation import Compiler, Default, record_path
from compiler_opt_perf.train.log import read_log
from compiler_opt_perf.train.measure import (
    FAILURE_RATIO,
    CandidateMeasurer,
    MeasuredModule,
    cheapest,
    measure_defaults,
    read_default,
)
from compiler_opt_perf.train.rewards import Costs
from compiler_opt_perf.train.split import usable_modules

PROBLEM = PROBLEMS["inline-size"]


def test_results_that_are_not_whole_are_measured_again(tmp_path: Path) -> None:
    log = tmp_path / "m.log"
    log.touch()
    key = ("clang", "m.bc")
    for executions in ({"f": 7}, None):
        default = Default(Costs({"f": 1.0}, executions, ("f",)), 3, 0.5, sha256(log))
        note(record_path(log), key, Default, default)
        assert read_default(log, key) == default
        assert read_default(log, ("clang", "other.bc")) is None
        log.write_bytes(b"x")
        assert read_default(log, key) is None
        log.write_bytes(b"")
        written = json.loads(record_path(log).read_text())
        for damage in (
            {"costs": {"parts": {"f": "1"}}},
            {"costs": {"parts": {"f": 1.0}, "executions": {"f": 1.5}}},
            {"decisions": -1},
            {"seconds": None},
            {"log": "0"},
        ):
            damaged = {**written, "result": {**written["result"], **damage}}
            write_json(record_path(log), damaged)
            assert read_default(log, key) is None
    note(record_path(log), key, Default, default)
    log.unlink()
    assert read_default(log, key) is None
    record_path(log).write_text("{")
    assert read_default(log, key) is None
    record_path(log).unlink()
    assert read_default(log, key) is None


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(2) as workers:
        yield workers


@pytest.fixture(scope="module")
def compiler(toolchain: Toolchain) -> Compiler:
    return Compiler(toolchain.clang, toolchain.litert_library, PROBLEM, Profiles(), 60.0, 4096)


@pytest.fixture(scope="module")
def measured(
    compiler: Compiler,
    corpora: dict[str, Corpus],
    pool: Pool,
    tmp_path_factory: pytest.TempPathFactory,
) -> list[MeasuredModule]:
    folder = tmp_path_factory.mktemp("default")
    measured, left_out = measure_defaults(compiler, corpora[PROBLEM.name].modules[:3], folder, pool)
    assert not left_out
    return measured


def _extracted(source: str, folder: Path) -> tuple[Module, ...]:
    """The corpus of one file in C."""
    (folder / "m.c").write_text(source)
    command = ["clang", "-c", "m.c", "-o", "m.o"]
    entry = {"directory": str(folder), "file": "m.c", "arguments": command}
    write_json(folder / "compile_commands.json", [entry])
    extract_corpus(
        {"p": folder / "compile_commands.json"},
        folder / "corpus",
        clang=stock_tool("clang"),
        opt_level=PROBLEM.optimization_level,
        stage=PROBLEM.corpus_stage,
        held_out_share=0.0,
        seed=0,
    )
    return Corpus.load(folder / "corpus" / "train").modules


# The bodies are elsewhere: what is here may be inlined, and is never emitted.
_GNU_INLINE = """
extern inline __attribute__((gnu_inline)) int half(int x) { return x / 2; }
extern inline __attribute__((gnu_inline)) int twice(int x) { return half(x) + half(x + 1); }
int (*const table[])(int) = {half, twice};
"""


@pytest.mark.compiler
def test_a_module_that_compiles_to_no_code_is_left_out_by_name(
    compiler: Compiler, pool: Pool, tmp_path: Path
) -> None:
    """It has decisions; a ratio to its 0 bytes would be a ZeroDivisionError."""
    modules = _extracted(_GNU_INLINE, tmp_path)
    (one,), failed = measure_defaults(compiler, modules, tmp_path / "default", pool)
    assert (one.default.costs.total, failed) == (0.0, {}) and one.default.decisions
    usable, left_out = usable_modules([one], adds_up=compiler.reward.adds_up)
    assert (usable, left_out) == ([], {"p/m": "compiles to no code"})


@pytest.fixture(scope="module")
def network(measured: list[MeasuredModule]) -> Network:
    inputs = read_log(measured[0].log).inputs(PROBLEM, with_pmu=False)
    return Network(PROBLEM, False, (4,), fit_normalisation(inputs, PROBLEM, False))


def fake_clang(folder: Path, script: str) -> Path:
    path = folder / "clang"
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.compiler
def test_costs_follow_the_decisions(
    compiler: Compiler,
    measured: list[MeasuredModule],
    network: Network,
    pool: Pool,
    tmp_path: Path,
) -> None:
    # The last layer's biases alone: never inline, always inline.
    never, always = (np.zeros(network.size, np.float32) for _ in range(2))
    never[-2], always[-1] = 1.0, 1.0
    measurer = CandidateMeasurer(compiler, pool, tmp_path / "failures", {})
    first, second, third = measurer.measure(network, [never, always, never], measured)
    assert first == third
    assert first.change != second.change
    assert (first.failed, first.modules) == ((), 3)
    assert measurer.compilations == 9
    assert measurer.failures == 0
    assert not (tmp_path / "failures").exists()


@pytest.mark.compiler
def test_defaults_are_measured_once(
    compiler: Compiler,
    measured: list[MeasuredModule],
    corpora: dict[str, Corpus],
    pool: Pool,
    tmp_path: Path,
) -> None:
    modules = corpora[PROBLEM.name].modules[:2]
    first, _ = measure_defaults(compiler, modules, tmp_path, pool)
    times = {m.log: m.log.stat().st_mtime_ns for m in first}
    # A record that is not whole is made again.
    record = tmp_path / f"{modules[1].name}.json"
    record.write_bytes(record.read_bytes()[:20])
    second, _ = measure_defaults(compiler, modules, tmp_path, pool)
    assert [m.default.costs for m in second] == [m.default.costs for m in first]
    assert second[0].log.stat().st_mtime_ns == times[first[0].log]
    assert second[1].log.stat().st_mtime_ns > times[first[1].log]


# Two functions that do the same for some instructions.
_REPEATED = """
int g(int), h(int);
int one(int *p) { p[0] = g(p[1]); p[2] = h(p[3] + 77); p[4] = g(p[5] * 9); return p[6]; }
int two(int *p) { p[0] = g(p[1]); p[2] = h(p[3] + 77); p[4] = g(p[5] * 9); return p[7] - 3; }
int use(int *p) { return one(p) + two(p); }
"""


@pytest.mark.compiler
def test_options_of_the_compiler_change_costs(
    compiler: Compiler, pool: Pool, tmp_path: Path
) -> None:
    modules = _extracted(_REPEATED, tmp_path)
    options = ("-enable-machine-outliner", "-x86-outlined-unwind-cost=0")
    outlining = dataclasses.replace(compiler, options=options)
    costs = []
    for one in (compiler, outlining, compiler):
        (measured,), _ = measure_defaults(one, modules, tmp_path / "default", pool)
        costs.append(measured.default.costs)
    plain, outlined, again = costs
    assert outlined.total < plain.total
    assert again == plain


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("kill -SEGV $$", "ended by SIGSEGV"),
        ("echo broken >&2; exit 1", "exit status 1"),
        ("sleep 100", "killed after its limit of 0.5 s"),
        ("exit 0", "cannot be read"),
    ],
)
def test_a_candidate_that_always_fails_is_charged(
    compiler: Compiler,
    measured: list[MeasuredModule],
    network: Network,
    pool: Pool,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    script: str,
    reason: str,
) -> None:
    clang = fake_clang(tmp_path, script)
    failing = dataclasses.replace(compiler, clang=clang, timeout_s=0.5)
    measurer = CandidateMeasurer(failing, pool, tmp_path / "failures", {})
    (one,) = measurer.measure(network, [network.initial_weights(1)], measured[:2])
    assert one.change == FAILURE_RATIO - 1
    assert one.failed == tuple(module.module.name for module in measured[:2])
    assert one.failed_everywhere
    assert measurer.failures == 2
    assert reason in caplog.text
    (kept,) = (tmp_path / "failures").iterdir()
    assert {path.name for path in kept.iterdir()} == {"model.tflite", "output_spec.json"}
    if script != "exit 0":
        assert f"-ml-inliner-model-under-training={kept}" in caplog.text


@pytest.mark.compiler
def test_no_candidate_is_better_off_for_a_failure(
    compiler: Compiler,
    measured: list[MeasuredModule],
    network: Network,
    pool: Pool,
    tmp_path: Path,
) -> None:
    """Candidates are told apart by their model: the second one fails, where it is at its worst."""
    never, always = (np.zeros(network.size, np.float32) for _ in range(2))
    never[-2], always[-1] = 1.0, 1.0
    sound = CandidateMeasurer(compiler, pool, tmp_path / "sound", {})
    honest = {
        one.module.name: [m.change for m in sound.measure(network, [never, always], [one])]
        for one in measured
    }
    name, (_, worst) = max(honest.items(), key=lambda item: item[1][1])
    (bad,) = (one for one in measured if one.module.name == name)
    write_model(tmp_path, network, always)
    model = sha256(tmp_path / MODEL_FILE)
    script = f"""
folder=$(grep -o 'model-under-training=[^ ]*' <<< "$*")
case "$* $(sha256sum < "${{folder#*=}}"/model.tflite)" in
  */{bad.module.bitcode.name}*{model}*) exit 1;;
esac
exec {compiler.clang} "$@"
"""
    failing = dataclasses.replace(compiler, clang=fake_clang(tmp_path, script))
    measurer = CandidateMeasurer(failing, pool, tmp_path / "failures", {})
    first, second = measurer.measure(network, [never, always], measured)
    assert (first.failed, second.failed, second.failed_everywhere) == ((), (name,), False)
    assert measurer.failures == 1
    _, whole = sound.measure(network, [never, always], measured)
    assert second.change > whole.change
    # At least twice the default, so that it is worse than any of the honest ones.
    _, charged = measurer.measure(network, [never, always], [bad])
    assert charged.change >= max(FAILURE_RATIO - 1, worst)
    assert cheapest([second, first]) == 1
    assert cheapest([second]) is None


@pytest.mark.compiler
def test_scores_that_cannot_be_compared_are_failures(
    toolchain: Toolchain, corpora: dict[str, Corpus], pool: Pool, tmp_path: Path
) -> None:
    problem = PROBLEMS["regalloc-evict"]
    compiler = Compiler(toolchain.clang, toolchain.litert_library, problem, Profiles(), 60.0, 4096)
    (one,), _ = measure_defaults(
        compiler, corpora[problem.name].modules[:1], tmp_path / "default", pool
    )
    inputs = read_log(one.log).inputs(problem, with_pmu=False)
    network = Network(problem, False, (4,), fit_normalisation(inputs, problem, False))
    measurer = CandidateMeasurer(compiler, pool, tmp_path / "failures", {})
    weights = network.initial_weights(seed=1)
    (sound,) = measurer.measure(network, [weights], [one])
    assert not sound.failed
    parts = {**one.default.costs.parts, "vanished": 3.0}
    default = dataclasses.replace(one.default, costs=Costs(parts))
    (vanished,) = measurer.measure(network, [weights], [dataclasses.replace(one, default=default)])
    assert vanished.failed_everywhere


@pytest.mark.compiler
def test_a_full_disk_is_no_failure_of_the_compiler(
    compiler: Compiler, corpora: dict[str, Corpus], tmp_path: Path
) -> None:
    # The compiler fails, as it does when it has no room; so small files stand for a full disk.
    clang = fake_clang(tmp_path, "exit 1")
    module = corpora[PROBLEM.name].modules[0]
    code = f"""
import resource, sys
from pathlib import Path
from compiler_opt_perf.run.files import FileWriteError
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.train.compilation import Compiler, Default, record_path
from compiler_opt_perf.train.measure import measure_defaults

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    problem = PROBLEMS["inline-size"]
    compiler = Compiler(Path({str(clang)!r}), Path(), problem, Profiles(), 60.0, 4096)
    module = Module("a", Path({str(module.bitcode)!r}), ("-cc1",))
    with Pool(1) as pool:
        try:
            measure_defaults(compiler, [module], Path("default"), pool)
        except FileWriteError as error:
            print(error)
"""
    script = tmp_path / "full.py"
    script.write_text(code)
    completed = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "compile-" in completed.stdout
    assert "cannot be written" in completed.stdout


@pytest.mark.compiler
def test_a_module_that_does_not_compile_is_left_out(
    compiler: Compiler, corpora: dict[str, Corpus], pool: Pool, tmp_path: Path
) -> None:
    good, bad = corpora[PROBLEM.name].modules[:2]
    truncated = tmp_path / "bad.bc"
    truncated.write_bytes(bad.bitcode.read_bytes()[:1000])
    bad = dataclasses.replace(bad, bitcode=truncated)
    measured, left_out = measure_defaults(compiler, [good, bad], tmp_path, pool)
    assert [m.module for m in measured] == [good]
    assert left_out == {bad.name: "cannot be measured: clang fails"}


@pytest.mark.compiler
def test_a_missing_compiler_ends_the_training(
    compiler: Compiler, corpora: dict[str, Corpus], pool: Pool, tmp_path: Path
) -> None:
    clang = fake_clang(tmp_path, "exit 0")
    clang.chmod(0o644)
    absent = dataclasses.replace(compiler, clang=clang)
    with pytest.raises(CommandError, match="no such program"):
        measure_defaults(absent, corpora[PROBLEM.name].modules[:1], tmp_path, pool)
