# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewards by a recorded run of the program, with a candidate of one module in it.

A call that never runs is passed the address of a local, as in `testdata/passed_local.cpp`. Where it
stays a call, the loop stores four bytes and loads them at once: fewer instructions than it takes to
put them together in a register, and the load waits for the stores.
"""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from compiler_opt_perf.blocks.cpu_files import FOLDER
from compiler_opt_perf.corpus.corpus import Corpus, Module
from compiler_opt_perf.corpus.extract import extract_corpus
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.cost.evaluator import EVALUATORS, RECORDED, Context, Cost
from compiler_opt_perf.cost.recording import RECORD_FLAGS, RecordingError
from compiler_opt_perf.policy.export import load
from compiler_opt_perf.policy.network import to_grid
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.policy.testing import random_network
from compiler_opt_perf.policy.tflite import write_model
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import LLVM_PREFIX
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.ray_cluster import LOCAL, RayExecutor
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train.algorithms.labels import LabelSettings
from compiler_opt_perf.train.compilation import Compiler, Job, measure_candidate, measure_default
from compiler_opt_perf.train.config import Config, ConfigError, RunSettings
from compiler_opt_perf.train.cost_sensitive import TreeSettings
from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.label_files import Labels, read_labels
from compiler_opt_perf.train.labels import Flipper, LabelJob, label
from compiler_opt_perf.train.program_runs import described, prepared
from compiler_opt_perf.train.recorded import Judged
from compiler_opt_perf.train.testing import checkpoint_without_times, kill_and_resume
from compiler_opt_perf.train.train import train

pytestmark = [pytest.mark.long(40), pytest.mark.compiler]

PROBLEM = PROBLEMS["inline-size"]
_SPLIT = """
#include <vector>
#include "quad.h"
void split(const unsigned char *p, const unsigned char *end, std::vector<Quad> &out) {
  out.clear();
  for (; p < end; ++p) {
    Quad quad;
    quad.a = *p + 1;
    quad.b = *p ^ 0x55;
    quad.c = *p * 3;
    quad.d = ~*p;
    if (*p < 0x80)
      out.push_back(quad);
    else
      // Never in this run.
      out.push_back(quad);
  }
}
"""
_MAIN = """
#include <cstdio>
#include <cstdlib>
#include <vector>
#include "quad.h"
int main(int argc, char **argv) {
  std::vector<unsigned char> text(20000, 'a');
  std::vector<Quad> quads;
  long sum = 0;
  for (int round = 0; round < std::atoi(argv[1]); ++round) {
    split(text.data(), text.data() + text.size(), quads);
    for (const Quad &quad : quads)
      sum += quad.a + quad.d + mixed(sum);
  }
  std::printf("%ld\\n", sum);
}
"""
_MIXED = """
#include "quad.h"
static long low(long x) { return x & 255; }
static long high(long x) { return (x >> 8) & 255; }
static long rare(long x) { return x * 3 + low(x) * high(x); }
long mixed(long x) { return x < 0 ? rare(x) : low(x) ^ high(x); }
"""
# Works longer with each run.
_COUNTER = """
#include <stdio.h>
__attribute__((constructor)) static void count(void) {
  FILE *file = fopen(COUNTER, "a+");
  fseek(file, 0, SEEK_END);
  for (volatile long left = 100000 * ftell(file); left > 0; --left)
    ;
#ifdef PRINTS
  printf("%ld\\n", ftell(file));
#endif
  fputc('.', file);
  fclose(file);
}
"""
_HEADER = """
#include <vector>
struct Quad { unsigned char a, b, c, d; };
void split(const unsigned char *p, const unsigned char *end, std::vector<Quad> &out);
long mixed(long x);
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """All modules of one program."""
    folder = tmp_path_factory.mktemp("quad")
    (folder / "quad.h").write_text(_HEADER)
    commands = []
    for name, text in {"split": _SPLIT, "main": _MAIN, "mixed": _MIXED}.items():
        (folder / f"{name}.cpp").write_text(text)
        words = ["clang++", "-g", "-fdebug-info-for-profiling", "-c", f"{name}.cpp", "-o", name]
        commands.append({"directory": str(folder), "file": f"{name}.cpp", "arguments": words})
    database = folder / "compile_commands.json"
    database.write_text(json.dumps(commands))
    extract_corpus(
        {"quad": database},
        folder / "corpus",
        clang=LLVM_PREFIX / "bin" / "clang",
        opt_level="-O2",
        stage=PROBLEM.corpus_stage,
        held_out_share=0.3,
        seed=1,
        workers=1,
    )
    parts = [Corpus.load(folder / "corpus" / part) for part in ("train", "held_out")]
    assert [len(part.modules) for part in parts] == [2, 1]
    return Corpus(parts[0].directory, tuple(one for part in parts for one in part.modules))


def _compiler(toolchain: Toolchain, evaluator: str, run: RunSettings) -> Compiler:
    context = Context(toolchain.trace_cost, cpu=FOLDER / "znver5.json", threads=1)
    clang, library = toolchain.clang, toolchain.litert_library
    return Compiler(
        *(clang, library, PROBLEM, Profiles(), 60.0, 4096, EVALUATORS[evaluator], context),
        runs=described({"quad": run}),
    )


def _module(corpus: Corpus, name: str) -> Module:
    return next(one for one in corpus.modules if one.name == f"quad/{name}")


@pytest.fixture(scope="module")
def compilers(
    corpus: Corpus, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Compiler]:
    """By evaluator, with the program linked and recorded."""
    found = {}
    for evaluator in ("count", "mca-pmu"):
        folder = tmp_path_factory.mktemp(evaluator)
        # The module that is held out from this corpus is linked all the same.
        given = corpus if evaluator == "count" else Corpus.load(corpus.directory)
        with Pool(2) as pool:
            found[evaluator] = prepared(
                _compiler(toolchain, evaluator, RunSettings(("20",))), given, folder, pool
            )
    assert [len(one.runs["quad"].objects) for one in found.values()] == [3, 3]
    return found


@pytest.fixture(scope="module")
def labelled(corpus: Corpus, compilers: dict[str, Compiler]) -> dict[str, Labels]:
    """By evaluator, the labels of the call that never runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Flipper, "_drawn", _that_never_runs)
        module = _module(corpus, "split")
        return {name: label(LabelJob(one, module)) for name, one in compilers.items()}


def _that_never_runs(_: Flipper, keys: Sequence[str]) -> list[str]:
    """The second call of `push_back` in `split`."""
    calls = [key for key in keys if key.startswith("_Z5split") and "9push_back" in key]
    return calls[-1:]


def test_labels_by_the_recorded_judge_choose_the_fast_decision(labelled: dict[str, Labels]) -> None:
    # Both are labels of the same decision, which the compiler takes: it inlines the call.
    (key,), (same,) = (one.keys for one in labelled.values())
    assert key == same
    for labels in labelled.values():
        assert labels.observations[PROBLEM.decision].reshape(-1).tolist() == [1]
    # In millionths of the program's cost. By instructions, the slow decision is the better one.
    assert labelled["count"].difference[0] < -30_000
    assert labelled["mca-pmu"].difference[0] > 500_000


def test_workers_on_a_cluster_label_the_same(
    corpus: Corpus,
    compilers: dict[str, Compiler],
) -> None:
    job = LabelJob(compilers["mca-pmu"], _module(corpus, "mixed"), most=2)
    found = []
    for executor in (Pool(1), RayExecutor(LOCAL, 1)):
        with executor as workers:
            (outcome,) = workers.map(label, [job])
            found.append(outcome.get())
    assert found[0].keys == found[1].keys != ()
    assert found[0].difference.tolist() == found[1].difference.tolist()
    assert found[0].bytes == found[1].bytes > 0


def test_modules_costs_add_up_to_the_program_and_changes_are_of_all_of_it(
    corpus: Corpus, compilers: dict[str, Compiler], tmp_path: Path
) -> None:
    compiler = compilers["count"]
    default = compiler.runs["quad"].default
    assert default is not None and compiler.reward.way == "record"
    costs = [measure_default(Job(compiler, one)).default.costs for one in corpus.modules]
    for one in costs:
        assert one.total + one.elsewhere == pytest.approx(default.total)
    assert sum(one.total for one in costs) == pytest.approx(default.total, rel=0.01)
    module = _module(corpus, "split")
    own = measure_default(Job(compiler, module)).default.costs
    # A policy that decides at random: code moves to functions that the default does not have. Its
    # sign depends on the host's C++ library.
    network = random_network(PROBLEM, (4,))
    weights = np.random.default_rng(1).normal(size=network.size)
    write_model(tmp_path, network, to_grid(weights))
    policy = measure_candidate(Job(compiler, module, tmp_path))
    change = policy.total + policy.elsewhere - own.total - own.elsewhere
    assert change and policy.elsewhere != own.elsewhere
    ratio = compiler.reward.ratio(own, policy, {})
    assert ratio == pytest.approx(1 + change / own.total)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (RunSettings(("20",), objects=("none.a",)), r"\[runs.quad\]: none.a: no such file"),
        (RunSettings(("20",), link=("-lnone",)), r"\[runs.quad\]: cannot be linked.*-lnone"),
        (RunSettings(()), r"\[runs.quad\]: cannot be linked, run and recorded .* SIGSEGV"),
    ],
)
def test_a_program_that_does_not_run_is_explained(
    corpus: Corpus, toolchain: Toolchain, tmp_path: Path, run: RunSettings, message: str
) -> None:
    with pytest.raises(TrainingError, match=f"(?s){message}"), Pool(2) as pool:
        prepared(_compiler(toolchain, "count", run), corpus, tmp_path, pool)


@pytest.mark.parametrize(
    ("options", "what"),
    [([], r"cost \d+\.\d\d% more or less"), (["-DPRINTS"], "print something else")],
)
def test_a_program_that_does_something_else_each_time_is_refused(
    corpus: Corpus, toolchain: Toolchain, tmp_path: Path, options: list[str], what: str
) -> None:
    source, counter, target = (tmp_path / name for name in ("count.c", "counter", "count.o"))
    source.write_text(_COUNTER)
    words: list[str | Path] = [toolchain.clang, "-O2", *RECORD_FLAGS, "-c", source, "-o", target]
    run_command([*words, f'-DCOUNTER="{counter}"', *options])
    run = RunSettings(("2",), objects=(str(target),))
    message = rf"\[runs.quad\]: two runs of the same program {what}"
    # One after the other, so that each finds the counter of the one before.
    with pytest.raises(TrainingError, match=message), Pool(1) as pool:
        prepared(_compiler(toolchain, "count", run), corpus, tmp_path, pool)


def test_a_candidate_that_computes_something_else_fails(
    corpus: Corpus, compilers: dict[str, Compiler], tmp_path: Path
) -> None:
    compiler, module = compilers["count"], _module(corpus, "main")
    run = compiler.run_of(module)
    default = run.program.default
    assert default is not None
    other = dataclasses.replace(default, output="another")
    run = dataclasses.replace(run, program=dataclasses.replace(run.program, default=other))
    target = tmp_path / "main.o"
    compiler.compile(module, target, [])
    with target.open("ab") as stream:
        stream.write(b"\0")
    with pytest.raises(RecordingError, match="prints something else"):
        run.judge(target)


def test_the_last_digits_of_costs_are_no_difference() -> None:
    report = {RECORDED: {"output": "same"}}
    one, other = (Judged.of(Cost(100.0, {"f": f}, report)) for f in (100.0, 100.0 + 2e-14))
    assert one == other == Judged({"f": 100.0}, 0.0, "same")


CONFIG = Config(
    (
        LabelSettings(
            iterations=1,
            modules=0,
            sites=4,
            trees=TreeSettings(ensembles=1, trees=20, leaves=4, leaf_rows=1, least_share=-1.0),
            steps=50,
            batch_size=16,
        ),
    ),
    runs={"quad": RunSettings(("2",))},
    seed=3,
    hidden=(4,),
    workers=2,
)


@pytest.fixture(scope="module")
def profile(compilers: dict[str, Compiler], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The PMU profile of the program as the compiler's own policy compiles it."""
    folder = tmp_path_factory.mktemp("profile")
    program, manifest = folder / "quad", folder / "quad.pmu.json"
    objects = compilers["count"].runs["quad"].objects.values()
    run_command([compilers["count"].clang, "--driver-mode=g++", *objects, "-o", program])
    collect(program, ["20"], manifest)
    return manifest


def _published(training: Path) -> dict[str, bytes]:
    paths = [path for path in (training / "policy").rglob("*") if path.is_file()]
    paths += [training / "training.json", *training.glob("labels/**/*.npz")]
    return {str(path.relative_to(training)): path.read_bytes() for path in paths}


def test_a_killed_training_by_record_ends_with_the_same_policy(
    corpus: Corpus, toolchain: Toolchain, profile: Path, tmp_path: Path
) -> None:
    context = Context(toolchain.trace_cost, cpu=FOLDER / "znver5.json", threads=1)
    profiles, judge = Profiles.parse([str(profile)]), EVALUATORS["count"]
    common = (PROBLEM, corpus, toolchain, profiles)
    whole = train(*common, tmp_path / "whole", CONFIG, judge, context)
    assert whole.reward == "count instructions"
    # Labels tell what the profile knows, and the policy reads it.
    policy = load(tmp_path / "whole" / "policy")
    assert policy.network.with_pmu
    labels = [read_labels(path) for path in (tmp_path / "whole" / "labels").rglob("*.npz")]
    executed = [one.observations["pmu_caller_instructions_log2"] for one in labels]
    assert max(int(callers.max()) for callers in executed if len(callers)) > 10
    arguments = (*common, tmp_path / "killed", CONFIG.changed({"workers": 1}), judge, context)
    assert kill_and_resume(train, arguments, tmp_path / "killed", kills=3, most=12, seed=1) == 3
    published = _published(tmp_path / "whole")
    assert len(published) > 4 and published == _published(tmp_path / "killed")
    files = [tmp_path / name / "checkpoint.npz" for name in ("whole", "killed")]
    assert checkpoint_without_times(files[0]) == checkpoint_without_times(files[1])
    inputs = json.loads((tmp_path / "whole" / "inputs.json").read_text())
    assert "run of quad" in inputs["evaluator"]


def test_runs_without_an_evaluator_or_with_a_trace_are_refused(
    corpus: Corpus, toolchain: Toolchain, tmp_path: Path
) -> None:
    common = (PROBLEM, corpus, toolchain, Profiles(), tmp_path / "t", CONFIG)
    with pytest.raises(ConfigError, match="runs: are recorded for --evaluator"):
        train(*common)
    context = Context(toolchain.trace_cost, trace=tmp_path / "t.bbwindows")
    with pytest.raises(TrainingError, match=r"--trace: is replayed, .*\[runs\] are recorded"):
        train(*common, EVALUATORS["count"], context)
    other = CONFIG.changed({"runs": {"zstd": {}}})
    context = Context(toolchain.trace_cost)
    with pytest.raises(TrainingError, match=r"\[runs\]: quad, zstd: the corpus has modules of q"):
        train(*common[:5], other, EVALUATORS["count"], context)
