# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A training on labels of single decisions, on compiled modules."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from compiler_opt_perf.corpus.corpus import Corpus
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.policy import export
from compiler_opt_perf.policy.encoding import fit_normalisation
from compiler_opt_perf.policy.network import Network, to_grid
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.policy.testing import random_inputs, random_network
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.executor import Outcome
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train import cost_sensitive
from compiler_opt_perf.train.algorithms import labels
from compiler_opt_perf.train.algorithms.labels import LabelSettings, with_margins
from compiler_opt_perf.train.compilation import Compiler
from compiler_opt_perf.train.config import Config, Programs
from compiler_opt_perf.train.cost_sensitive import TreeSettings
from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.label_files import LabelsError, read_labels
from compiler_opt_perf.train.linked import link_programs, table
from compiler_opt_perf.train.testing import checkpoint_without_times, kill_and_resume
from compiler_opt_perf.train.train import train

PROBLEM = PROBLEMS["inline-size"]
pytestmark = pytest.mark.long(25)

CONFIG = Config(
    (
        LabelSettings(
            iterations=2,
            modules=0,
            sites=6,
            margins=(0.5, 1.0),
            inlined_margin=0.25,
            mask=True,
            trees=TreeSettings(
                ensembles=2,
                trees=100,
                leaves=8,
                leaf_rows=1,
                learning_rate=0.2,
                largest=10.0,
                least_share=-1.0,
            ),
            steps=100,
            batch_size=64,
            learning_rate=0.01,
        ),
    ),
    programs=Programs(("a",), ("b",), ("c",)),
    seed=3,
    hidden=(8,),
    margin=1.0,
    copies=True,
)


@pytest.fixture(scope="module")
def corpus(corpora: dict[str, Corpus]) -> Corpus:
    """The validation program has the training program's modules: what was learnt shows there."""
    given = corpora[PROBLEM.name]
    parts = {"a": given.modules[:4], "b": given.modules[:4], "c": given.modules[4:]}
    modules = tuple(
        dataclasses.replace(one, name=f"{program}/{one.name.rpartition('/')[2]}")
        for program, own in parts.items()
        for one in own
    )
    return Corpus(given.directory, modules)


@pytest.fixture(scope="module")
def trained(corpus: Corpus, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished training."""
    output = tmp_path_factory.mktemp("labels") / "run"
    result = train(PROBLEM, corpus, toolchain, Profiles(), output, CONFIG)
    # Exact labels of these very modules make them smaller.
    assert result.validation_change < 0
    policy = export.load(result.policy)
    assert policy.network.default_lead in (0.375, 0.625) and policy.network.asked
    assert policy.description["results"]["test_change"] == result.test_change
    (program,) = result.programs
    assert program.name == "c"
    assert f"| c | {program.linked[0]:,} |" in table(result.programs)
    return output


def _published(training: Path) -> dict[str, bytes]:
    """The published files of a training, by name."""
    paths = [path for path in (training / "policy").rglob("*") if path.is_file()]
    assert paths
    paths += [training / "training.json", *training.glob("labels/**/*.npz")]
    return {str(path.relative_to(training)): path.read_bytes() for path in paths}


@pytest.mark.compiler
def test_an_interrupted_training_ends_with_the_same_policy(
    trained: Path,
    corpus: Corpus,
    toolchain: Toolchain,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output = tmp_path / "run"

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    # When the first labels were there ...
    with monkeypatch.context() as patch:
        patch.setattr(labels, "distil", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(PROBLEM, corpus, toolchain, Profiles(), output, CONFIG)
    kept = sorted(output.glob("labels/*/**/*.npz"))
    assert len(kept) == 4 and not (output / "policy").exists()
    # ... one of which is lost.
    kept[-1].unlink()
    before = {path: path.stat().st_mtime_ns for path in kept[:-1]}
    train(PROBLEM, corpus, toolchain, Profiles(), output, CONFIG)
    assert before == {path: path.stat().st_mtime_ns for path in kept[:-1]}
    assert _published(output) == _published(trained)


@pytest.mark.compiler
def test_a_training_that_is_killed_again_and_again_ends_with_the_same_policy(
    trained: Path, corpus: Corpus, toolchain: Toolchain, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    config = CONFIG.changed({"workers": 1})
    arguments = (PROBLEM, corpus, toolchain, Profiles(), output, config)
    assert kill_and_resume(train, arguments, output, kills=4, most=24, seed=1) == 4
    assert _published(output) == _published(trained)
    checkpoints = [
        checkpoint_without_times(folder / "checkpoint.npz") for folder in (output, trained)
    ]
    assert checkpoints[0] == checkpoints[1]


@pytest.mark.compiler
def test_lost_labels_of_an_earlier_iteration_are_told(
    trained: Path, corpus: Corpus, toolchain: Toolchain, tmp_path: Path
) -> None:
    """Labelled again, they would be around another policy."""
    output = tmp_path / "run"
    shutil.copytree(trained, output)
    (lost, *_) = sorted(output.glob("labels/0/**/*.npz"))
    lost.unlink()
    with pytest.raises(LabelsError, match=r"labels/0/.*\.npz: damaged"):
        train(PROBLEM, corpus, toolchain, Profiles(), output, CONFIG.changed({"iterations": 3}))


@pytest.mark.compiler
def test_a_program_without_decisions_leaves_nothing_behind(
    corpus: Corpus, toolchain: Toolchain, tmp_path: Path
) -> None:
    # Those of assembly have none.
    nothing = tmp_path / "nothing.bc"
    nothing.write_text('target triple = "x86_64-pc-linux-gnu"\n')
    empty = dataclasses.replace(corpus.modules[0], name="d/nothing", bitcode=nothing)
    with_empty = dataclasses.replace(corpus, modules=(*corpus.modules, empty))
    config = msgspec.structs.replace(CONFIG, programs=Programs(("a",), ("b",), ("c", "d")))
    output = tmp_path / "run"
    with pytest.raises(TrainingError, match="d: no module compiles and has anything to decide"):
        train(PROBLEM, with_empty, toolchain, Profiles(), output, config)
    assert not output.exists()


@pytest.mark.compiler
def test_where_folding_counts_linked_programs_choose(
    corpus: Corpus, toolchain: Toolchain, tmp_path: Path
) -> None:
    stages = (msgspec.structs.replace(CONFIG.stages[0], iterations=1),)
    config = msgspec.structs.replace(CONFIG, folding=True, stages=stages)
    result = train(PROBLEM, corpus, toolchain, Profiles(), tmp_path / "run", config)
    compiler = dataclasses.replace(Compiler.of(toolchain, PROBLEM), folding=True)
    modules = tuple(one for one in corpus.modules if one.program == "b")
    programs, linker = {"b": modules}, toolchain.ld_lld
    with Pool(2) as pool:
        ((found, _),) = link_programs(compiler, programs, [result.policy], linker, pool)
    (program,) = found
    assert result.validation_change == program.change < 0


@pytest.mark.compiler
def test_programs_without_code_are_refused(toolchain: Toolchain) -> None:
    """Sizes are compared as ratios."""
    compiler, linker = Compiler.of(toolchain, PROBLEM), toolchain.ld_lld

    class Linked(Pool):
        def map(self, *_: Any, **__: Any) -> list[Any]:
            return [Outcome((0, 0), None)] * 2

    with pytest.raises(TrainingError, match="^p: has no code to compare; leave it out"):
        link_programs(compiler, {"p": ()}, [Path("model")], linker, Linked())


@pytest.mark.compiler
def test_damaged_labels_are_named(trained: Path, tmp_path: Path) -> None:
    (first, *_) = sorted(trained.glob("labels/0/**/*.npz"))
    damaged = tmp_path / "labels.npz"
    content = first.read_bytes()
    assert read_labels(first).difference.any()
    for data in (b"", content[: len(content) // 2], b"x" * 100):
        damaged.write_bytes(data)
        with pytest.raises(LabelsError, match=r"labels\.npz: damaged"):
            read_labels(damaged)


@pytest.mark.compiler
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
    trees = cost_sensitive.Trees.fit(trained, gain[:2000], programs, settings, seed=1)
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


@pytest.mark.compiler
def test_the_linked_text_has_one_copy(
    trained: Path, corpus: Corpus, toolchain: Toolchain, tmp_path: Path
) -> None:
    record = export.load(trained / "policy").description["results"]["programs"]["c"]
    # No function of C is in two objects, and linking adds at most what aligns sections.
    total = 0
    for number, module in enumerate(one for one in corpus.modules if one.program == "c"):
        target = tmp_path / f"{number}.o"
        run_command(module.compile_command(toolchain.clang, target), timeout_s=60)
        total += text_bytes(target)
    assert record["objects"][0] == total
    assert 0 <= record["linked"][0] - total < 64


def test_a_policy_without_a_last_layer_decides_as_the_compiler() -> None:
    inputs = random_inputs(PROBLEM, 500)
    network = Network(PROBLEM, False, (8,), fit_normalisation(inputs, PROBLEM, False), 0.25)
    weights = network.initial_weights(1)
    assert labels.decides_as_default(network, weights)
    np.testing.assert_array_equal(network.decide(weights, inputs), inputs[PROBLEM.default_feature])
    weights[-1] = 0.5
    assert not labels.decides_as_default(network, weights)
    assert not labels.decides_as_default(
        dataclasses.replace(network, default_lead=0.0), network.initial_weights(1)
    )


@pytest.mark.parametrize(("margin", "inlined_margin"), [(0.5, 0.0625), (3.5, 0.25)])
def test_calls_that_the_compiler_would_inline_may_have_another_margin(
    margin: float, inlined_margin: float
) -> None:
    problem = PROBLEMS["inline-size"]
    network = random_network(problem)
    weights = to_grid(network.initial_weights(1))
    inputs = random_inputs(problem, 400, seed=1)
    scores = network.scores(network.layers(weights), network.encode(inputs))
    gain = np.asarray(scores[:, 1] - scores[:, 0])
    inlined = inputs["inlining_default"].reshape(-1) > 0
    lead, shifted = with_margins(weights, margin, inlined_margin)
    led = dataclasses.replace(network, default_lead=lead)
    wanted = np.where(inlined, gain >= -inlined_margin, gain > margin)
    # As it is published.
    assert (led.decide(to_grid(shifted), inputs) == wanted).all()
    # One margin for both decides otherwise.
    assert (led.decide(weights, inputs) != wanted).any()
    assert with_margins(weights, 0.25, None) == (0.25, weights)


def test_margins_are_refused_that_the_weights_cannot_hold() -> None:
    weights = np.array([0.25, 0.5, 0.3, -0.3])
    lead, shifted = with_margins(weights, 2.5, 0.25)
    assert lead == 1.375 and shifted.tolist() == pytest.approx([0.25, 0.5, 0.8625, -0.8625])
    with pytest.raises(TrainingError, match="margins of 4 and 0.25 differ by more than"):
        with_margins(weights, 4.0, 0.25)
