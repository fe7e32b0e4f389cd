# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trainings of tiny networks on blocks of known latency, and what is published of them.

All that needs TensorFlow is here, for it takes seconds to load.
"""

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from compiler_opt_perf.blocks.block_file import (
    Cpu,
    MeasuredBlock,
    MeasuredBlocks,
    read_blocks,
    write_blocks,
)
from compiler_opt_perf.blocks.config import CostModelConfig, Granite, LearnedError
from compiler_opt_perf.blocks.data import DataFile, read_data
from compiler_opt_perf.blocks.graphs import PMU_INPUTS, GraphBuilder, Vocabulary
from compiler_opt_perf.blocks.judge import evaluate
from compiler_opt_perf.blocks.model import (
    CostModel,
    counted,
    load,
    publish,
)
from compiler_opt_perf.blocks.networks import cycles, initial_weights, inputs_of, layout
from compiler_opt_perf.blocks.runtime import start_tensorflow
from compiler_opt_perf.run.curve import EVENTS
from compiler_opt_perf.train import cost_model
from compiler_opt_perf.train.checkpoint import CheckpointError
from compiler_opt_perf.train.cost_model import train
from compiler_opt_perf.train.errors import TrainingError

# Of a chain: add rax, rcx; imul rax, rcx; xor rax, rcx; rol rax, 3.
LATENCIES = {"4801c8": 1.0, "480fafc1": 3.0, "4831c8": 1.0, "48c1c003": 1.0}
LATENCY_3 = "480fafc1"
PROGRAMS = ("a", "b", "c", "d")
CONFIG = CostModelConfig(
    Granite(width=8, rounds=1, resources=2),
    epochs=40,
    batch_size=32,
    learning_rate=0.03,
    warm_up=5,
    least_blocks=1,
    pmu=True,
    test_programs=("a",),
    validation_programs=("b",),
)


# mov rax, [rax], which takes longer the more often it misses.
LOAD, HIT, MISS = "488b00", 4.0, 12.0


def loads() -> list[MeasuredBlock]:
    """Blocks with known miss rates, on copies of different length."""
    return [
        MeasuredBlock(
            code=LOAD * copies,
            cycles=copies * (HIT + share / 8 * MISS),
            agreeing=2,
            rounds=2,
            program=PROGRAMS[(copies + share) % len(PROGRAMS)] if copies > 1 else "c",
            pmu={"l1_miss": (share / 8,) * copies},
        )
        for copies in range(1, 9)
        for share in range(9)
    ]


def blocks() -> list[MeasuredBlock]:
    parts = [p for n in (1, 2, 3, 4) for p in itertools.product(LATENCIES, repeat=n)]
    return [
        MeasuredBlock(
            code="".join(part),
            cycles=sum(LATENCIES[one] for one in part),
            agreeing=2,
            rounds=2,
            program=PROGRAMS[number % len(PROGRAMS)],
        )
        for number, part in enumerate(parts)
    ]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> list[DataFile]:
    path = tmp_path_factory.mktemp("data") / "chains.blocks"
    cpu = Cpu("a CPU", "znver3", 25, 1, 1)
    write_blocks(
        path,
        MeasuredBlocks(
            cpu, 0.17, [*blocks(), *loads(), MeasuredBlock(code="0f05", dropped="trap")]
        ),
    )
    return read_data([path])


@pytest.fixture(scope="module")
def trained(data: list[DataFile], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("trained") / "training"
    train(data, CONFIG, output)
    return output


def content(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.compiler
def test_latencies_are_learnt(trained: Path, data: list[DataFile]) -> None:
    model = load(trained / "model")
    assert (model.config, model.cpus) == (CONFIG, ("znver3",))
    everything = model.description["results"]["all"]
    assert everything["mean_error"] < 0.1
    # What was recorded is what comes out again.
    judged = evaluate(model, data, "test").figures["chains"]
    assert judged.blocks == everything["blocks"] == model.description["blocks"]["test"]
    assert judged.mean_error == pytest.approx(everything["mean_error"], abs=1e-4)
    assert judged.tau is not None and judged.tau > 0.8
    curve = [json.loads(line) for line in (trained / "curve.jsonl").read_text().splitlines()]
    assert [point["generation"] for point in curve] == list(range(1, 41))
    assert curve[-1]["loss"] < curve[0]["loss"] / 2
    assert (trained / EVENTS).stat().st_size > 0


@pytest.mark.compiler
def test_what_is_known_of_a_run_counts(trained: Path) -> None:
    model = load(trained / "model")
    known = [np.full((2, len(PMU_INPUTS)), np.nan, np.float32) for _ in range(2)]
    known[0][:, 0], known[1][:, 0] = 0.0, 1.0
    (hits, misses), _ = model.predict([bytes.fromhex(LOAD * 2)] * 2, "znver3", known)
    assert [hits, misses] == pytest.approx([2 * HIT, 2 * (HIT + MISS)], rel=0.3)


@pytest.mark.compiler
def test_a_training_begins_as_a_model_of_another_cpu(
    trained: Path, data: list[DataFile], tmp_path: Path
) -> None:
    """There are few blocks, without one of the four opcodes; the CPU takes half as long again."""
    slower = Cpu("another CPU", "skylake", 6, 94, 3)
    rows = [row for row in data[0].rows if not row.pmu and LATENCY_3 not in row.code]
    slow = [msgspec.structs.replace(row, cycles=1.5 * (row.cycles or 0)) for row in rows]
    path = tmp_path / "slow.blocks"
    write_blocks(path, MeasuredBlocks(slower, 0.17, slow))
    known = [bytes.fromhex(row.code) for row in blocks()]
    before = load(trained / "model").predict(known, "znver3")[0]

    def begun(name: str, **changes: Any) -> npt.NDArray[np.float64]:
        # Blocks of b end with the opcode that is left out.
        config = CONFIG.changed({"validation_programs": ["c"], **changes})
        model = train(read_data([path]), config, tmp_path / name, warm_start=trained / "model")
        assert model.cpus == ("skylake",)
        return model.predict(known, "skylake")[0]

    assert begun("same", epochs=1, learning_rate=1e-12) == pytest.approx(before, rel=1e-4)
    learnt = begun("learnt", epochs=10)
    errors = np.abs(learnt / [1.5 * (row.cycles or 0) for row in blocks()] - 1)
    seen = np.array([LATENCY_3 not in row.code for row in blocks()])
    assert np.median(errors[seen]) < 0.1
    # What only the model before knows is as it was, 2/3 of what it would be.
    assert np.median(errors[~seen]) < 0.35
    with pytest.raises(LearnedError, match=r"begin as is Granite\(width=8.* not .*width=16"):
        begun("wide", **{"network.width": 16})
    with pytest.raises(TrainingError, match="holds a training with another warm_start"):
        config = CONFIG.changed({"validation_programs": ["c"], "epochs": 10})
        train(read_data([path]), config, tmp_path / "learnt")


class _KilledError(Exception):
    pass


@pytest.mark.compiler
def test_an_interrupted_training_publishes_the_same_bytes(
    trained: Path, data: list[DataFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "training"
    save = cost_model._Training._save
    saved = []

    def save_and_end(self: Any, state: Any) -> None:
        save(self, state)
        saved.append(state.step)
        # In the midst of an epoch.
        if len(saved) == 10:
            raise _KilledError

    monkeypatch.setattr(cost_model._Training, "_save", save_and_end)
    with pytest.raises(_KilledError):
        train(data, CONFIG, output, checkpoint_s=0)
    steps = -(-len(data[0].rows) // 2 // CONFIG.batch_size)
    assert saved == list(range(1, 11)) and saved[-1] % steps
    train(data, CONFIG, output)
    assert content(output / "model") == content(trained / "model")


def as_trained(model: CostModel, codes: list[bytes]) -> npt.NDArray[np.float32]:
    """Cycles by the network in TensorFlow, [blocks]."""
    tf = start_tensorflow()
    graphs = GraphBuilder(model.vocabulary).graphs(codes)
    inputs = inputs_of(graphs.take(np.arange(len(codes))), model.config)
    tensors = {name: tf.constant(one) for name, one in inputs.items()}
    weights = {name: tf.constant(one) for name, one in model.weights.items()}
    found: npt.NDArray[np.float32] = cycles(
        model.config, weights, tensors, len(model.cpus), tf
    ).numpy()
    return found[:, model.require_cpu("znver3")]


@pytest.mark.compiler
def test_a_published_model_predicts_as_it_was_trained(trained: Path, tmp_path: Path) -> None:
    codes = [bytes.fromhex(row.code) for row in blocks()][::20]
    vocabulary = Vocabulary.from_blocks(codes, 1)
    config = CostModelConfig(Granite(width=8, rounds=2, resources=2))
    cpus = ("skylake", "znver3")
    weights = initial_weights(layout(config, len(vocabulary), len(cpus)), 1)
    several = CostModel(config, vocabulary, cpus, weights, {})
    publish(several, tmp_path / "several")
    for folder in (trained / "model", tmp_path / "several"):
        model = load(folder)
        predicted, _ = model.predict(codes, "znver3")
        assert np.ptp(predicted) > 0.01
        assert as_trained(model, codes) == pytest.approx(predicted, rel=1e-5)
    other, _ = several.predict(codes, "skylake")
    assert not np.allclose(other, several.predict(codes, "znver3")[0])


@pytest.mark.compiler
def test_blocks_on_their_own(trained: Path) -> None:
    model = load(trained / "model")
    codes = ["4801c84801c8", "480fafc1", "f30f58c1", "", "06", "f30f58c1"]
    cycles, problems = model.predict([bytes.fromhex(code) for code in codes], "znver3")
    assert cycles[:2] == pytest.approx([2, 3], rel=0.2)
    assert np.isnan(cycles[2:]).all()
    unknown = "unknown opcode: addss"
    assert counted(problems) == {unknown: 2, "no instruction": 1, "no instructions": 1}
    with pytest.raises(LearnedError, match="znver3, not for skylake: give --cpu=znver3"):
        model.predict([], "skylake")


@pytest.mark.compiler
def test_what_cannot_be_used_is_named(trained: Path, data: list[DataFile], tmp_path: Path) -> None:
    folder = trained / "model"
    damaged = tmp_path / "damaged"
    shutil.copytree(folder, damaged)
    (damaged / "weights.npz").write_bytes((folder / "weights.npz").read_bytes()[:-1])
    with pytest.raises(LearnedError, match=r"weights\.npz: differs from its checksum"):
        load(damaged)
    (damaged / "model.json").unlink()
    with pytest.raises(
        LearnedError, match="a cost model is a folder written by cop train cost-model"
    ):
        load(damaged)
    with pytest.raises(TrainingError, match="holds a training with another config"):
        train(data, CONFIG.changed({"seed": 2}), trained)
    with pytest.raises(LearnedError, match=r"no blocks for test; .*test_programs.*: a, b, c, d"):
        train(data, CONFIG.changed({"test_programs": ["z"]}), tmp_path / "none")


@pytest.mark.compiler
def test_a_damaged_checkpoint_is_named(trained: Path, data: list[DataFile], tmp_path: Path) -> None:
    output = tmp_path / "training"
    shutil.copytree(trained, output)
    (output / "checkpoint.npz").write_bytes(b"PK")
    with pytest.raises(CheckpointError, match=r"checkpoint\.npz: damaged .*; remove it to start"):
        train(data, CONFIG, output)


def test_data_is_read_as_it_is_written(data: list[DataFile]) -> None:
    assert data[0].rows == read_blocks(data[0].path).measured()
