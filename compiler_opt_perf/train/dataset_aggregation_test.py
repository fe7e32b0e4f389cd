# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A training on labels of single decisions, on compiled modules."""

import dataclasses
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from compiler_opt_perf.corpus.corpus import Corpus, Module
from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.policy import export
from compiler_opt_perf.policy.network import Network, fit_normalisation
from compiler_opt_perf.policy.testing import random_inputs
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.curve import EVENTS
from compiler_opt_perf.run.executor import Outcome
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train import cost_sensitive
from compiler_opt_perf.train.compilation import Compiler
from compiler_opt_perf.train.dataset_aggregation import PROBLEM, imitate
from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.imitation_result import link_programs, table
from compiler_opt_perf.train.label_files import LabelsError, read_labels
from compiler_opt_perf.train.labels import LinkJob
from compiler_opt_perf.train.recipe import (
    LabelSettings,
    NetworkSettings,
    Programs,
    Recipe,
    TreeSettings,
)
from compiler_opt_perf.train.testing import kill_and_resume

pytestmark = pytest.mark.long

RECIPE = Recipe(
    3,
    Programs(("a",), ("b",), ("c",)),
    LabelSettings(rounds=2, sites=6),
    TreeSettings(
        ensembles=2,
        trees=100,
        leaves=8,
        leaf_rows=1,
        learning_rate=0.2,
        largest=10.0,
        least_share=-1.0,
    ),
    NetworkSettings((8,), 1.0, (1.0,), steps=100, batch_size=64, learning_rate=0.01),
)


@pytest.fixture(scope="module")
def programs(corpora: dict[str, Corpus]) -> dict[str, tuple[Module, ...]]:
    """The validation program has the training program's modules: what was learnt shows there."""
    modules = corpora[PROBLEM.name].modules
    return {"a": modules[:4], "b": modules[:4], "c": modules[4:]}


@pytest.fixture(scope="module")
def trained(
    programs: dict[str, tuple[Module, ...]],
    toolchain: Toolchain,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The folder of a finished training."""
    output = tmp_path_factory.mktemp("imitation") / "run"
    result = imitate(RECIPE, programs, toolchain, output)
    # Exact labels of these very modules make them smaller.
    assert result.validation_change < 0
    policy = export.load(result.policy)
    assert policy.network.default_lead == result.lead
    assert policy.description["results"]["test_change"] == result.change
    (program,) = result.programs
    assert program.name == "c"
    assert f"| c | {program.linked[0]:,} |" in table(result)
    return output


def test_an_interrupted_training_ends_with_the_same_policy(
    trained: Path,
    programs: dict[str, tuple[Module, ...]],
    toolchain: Toolchain,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As it was while the second round was being labelled ...
    output = tmp_path / "run"
    shutil.copytree(trained, output)
    shutil.rmtree(output / "policy")
    (output / "training.json").unlink()
    for path in output.glob("rounds/1*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    kept = sorted(output.glob("labels/*/**/*.npz"))
    assert len(kept) == 8
    kept[-1].unlink()
    before = {path: path.stat().st_mtime_ns for path in kept[:-1]}

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    # ... and once more when it was done with that.
    with monkeypatch.context() as patch:
        patch.setattr(cost_sensitive, "distil", interrupted)
        with pytest.raises(KeyboardInterrupt):
            imitate(RECIPE, programs, toolchain, output)
    assert kept[-1].exists() and not (output / "policy").exists()
    imitate(RECIPE, programs, toolchain, output)
    assert before == {path: path.stat().st_mtime_ns for path in kept[:-1]}
    assert _published(output) == _published(trained)


def _published(training: Path) -> dict[str, bytes]:
    """What is left of a training, by name."""
    paths = [path for path in (training / "policy").rglob("*") if path.is_file()]
    assert paths
    paths += [training / "training.json", training / EVENTS, *training.glob("rounds/*.json")]
    paths += training.glob("labels/**/*.npz")
    return {str(path.relative_to(training)): path.read_bytes() for path in paths}


def test_a_training_that_is_killed_again_and_again_ends_with_the_same_policy(
    trained: Path,
    programs: dict[str, tuple[Module, ...]],
    toolchain: Toolchain,
    tmp_path: Path,
) -> None:
    output = tmp_path / "run"
    start, arguments = (
        partial(imitate, executor=partial(Pool, 1)),
        (RECIPE, programs, toolchain, output),
    )
    assert kill_and_resume(start, arguments, output, kills=3, most=24, seed=1) == 3
    assert _published(output) == _published(trained)


def test_a_folder_of_another_training_is_refused(
    trained: Path, programs: dict[str, tuple[Module, ...]], toolchain: Toolchain
) -> None:
    other = msgspec.structs.replace(RECIPE, seed=4)
    with pytest.raises(TrainingError, match="another recipe"):
        imitate(other, programs, toolchain, trained)


def test_a_program_without_decisions_leaves_nothing_behind(
    programs: dict[str, tuple[Module, ...]], toolchain: Toolchain, tmp_path: Path
) -> None:
    # Those of assembly have none.
    nothing = tmp_path / "nothing.bc"
    nothing.write_text('target triple = "x86_64-pc-linux-gnu"\n')
    empty = dataclasses.replace(programs["c"][0], name="c/nothing", bitcode=nothing)
    output = tmp_path / "run"
    with pytest.raises(TrainingError, match="c: no module has anything to decide"):
        imitate(RECIPE, {**programs, "c": (empty,)}, toolchain, output)
    assert not output.exists()


def test_programs_without_code_are_refused(toolchain: Toolchain) -> None:
    """Sizes are compared as ratios."""
    job = LinkJob(Compiler.of(toolchain, PROBLEM), (), None, toolchain.ld_lld)

    class Linked(Pool):
        def map(self, *_: Any, **__: Any) -> list[Any]:
            return [Outcome((0, 0), None)] * 2

    with pytest.raises(TrainingError, match="^p: has no code to compare; leave it out"):
        link_programs({"p": (job, job)}, Linked())


def test_damaged_labels_are_named(trained: Path, tmp_path: Path) -> None:
    (first, *_) = sorted(trained.glob("labels/0/**/*.npz"))
    damaged = tmp_path / "labels.npz"
    content = first.read_bytes()
    assert read_labels(first).difference.any()
    for data in (b"", content[: len(content) // 2], b"x" * 100):
        damaged.write_bytes(data)
        with pytest.raises(LabelsError, match=r"labels\.npz: damaged"):
            read_labels(damaged)


def test_rounds_label_around_the_policy_before(trained: Path) -> None:
    rounds = [
        {path.name: read_labels(path) for path in trained.glob(f"labels/{number}/**/*.npz")}
        for number in (0, 1)
    ]
    assert rounds[0].keys() == rounds[1].keys()
    differing = [
        sum(
            np.count_nonzero(
                one.observations[PROBLEM.decision] != one.observations[PROBLEM.default_feature]
            )
            for one in own.values()
        )
        for own in rounds
    ]
    assert differing[0] == 0
    assert differing[1] > 0


def test_what_costs_less_is_learnt() -> None:
    inputs = random_inputs(PROBLEM, rows=3000)
    default = inputs[PROBLEM.default_feature]
    for name in ("callee_is_comdat", "callee_is_mangled"):
        inputs[name] %= 2
    # To do what the compiler does not do saves much where the estimate is low; elsewhere it costs
    # a byte, and some labels cost hundreds, whatever the estimate.
    gain = np.where(inputs["cost_estimate"] < -20, 50.0, -1.0)
    gain[::100] = -500.0
    trained = {name: values[:2000] for name, values in inputs.items()}
    # Two programs. Of what the compiler inlines, nothing can be learnt.
    lesson = default == 0
    gain[~lesson] = np.where(np.random.default_rng(2).random(3000) < 0.5, 10.0, -10.0)[~lesson]
    programs = np.arange(2000) % 2
    settings = TreeSettings(2, 50, 8, 20, 0.1, largest=10.0, least_share=0.2)
    trees = cost_sensitive.Trees.fit(PROBLEM, trained, gain[:2000], programs, settings, seed=1)
    assert set(trees.kept) == {0, 1, 2, 3}
    assert (trees.otherwise(trained)[default[:2000] == 1] == 0).all()
    network = Network(PROBLEM, False, (8,), fit_normalisation(trained, PROBLEM, False), 1.0)
    weights = cost_sensitive.distil(
        trees, trained, network, steps=600, batch_size=128, learning_rate=0.01, seed=1
    )
    unseen = {name: values[2000:] for name, values in inputs.items()}
    otherwise = network.decide(weights, unseen) != default[2000:]
    usual = (gain[2000:] > -500.0) & lesson[2000:]
    possible = gain[2000:][usual & (gain[2000:] > 0)].sum()
    # Of 46 inputs one matters; what the network learns of it is more than half.
    assert gain[2000:][usual & otherwise].sum() > 0.5 * possible


def test_the_linked_text_has_one_copy(
    trained: Path, programs: dict[str, tuple[Module, ...]], toolchain: Toolchain, tmp_path: Path
) -> None:
    record = export.load(trained / "policy").description["results"]["programs"]["c"]
    # No function of C is in two objects, and linking adds at most what aligns sections.
    total = 0
    for number, module in enumerate(programs["c"]):
        target = tmp_path / f"{number}.o"
        command = module.compile_command(toolchain.clang, target)
        run_command(command, timeout_s=60)
        total += text_bytes(target)
    assert record["objects"][0] == total
    assert 0 <= record["linked"][0] - total < 64
