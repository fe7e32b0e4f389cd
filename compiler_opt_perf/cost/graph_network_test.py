# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What numpy predicts is what TensorFlow does, whoever shares the work."""

import sys

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from compiler_opt_perf.blocks import model as learned_model
from compiler_opt_perf.blocks.graphs import PMU_INPUTS, GraphBuilder
from compiler_opt_perf.blocks.model import load
from compiler_opt_perf.blocks.networks import cycles, inputs_of
from compiler_opt_perf.blocks.runtime import start_tensorflow
from compiler_opt_perf.cost.learned_replay import pieces
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.toolchain.layout import REPO_ROOT

pytestmark = pytest.mark.compiler

CPU = "icelake-server"


@pytest.fixture(scope="module")
def codes() -> list[bytes]:
    """Code of an interpreter, as compilers make it."""
    with open(sys.executable, "rb") as stream:
        code = ELFFile(stream).get_section_by_name(".text").data()[:100_000]
    found = {code[one.start : one.end] for one in pieces(code) if len(one.addresses) <= 12}
    return sorted(found - {b""})


def test_numpy_predicts_what_tensorflow_does(codes: list[bytes]) -> None:
    """With what a profile tells, of some instructions."""
    model = load(REPO_ROOT / "models" / f"cost-{CPU}-pmu")
    builder = GraphBuilder(model.vocabulary)
    codes = [code for code in codes if not builder.problem(code)]
    assert len(codes) > 1000
    lengths = builder.graphs(codes).lengths
    draw = np.random.default_rng(1)
    pmu = [
        draw.uniform(0, 1, (length, len(PMU_INPUTS))).astype(np.float32) if number % 3 else None
        for number, length in enumerate(lengths.tolist())
    ]
    for known in pmu[1::3]:
        assert known is not None
        known[0] = np.nan
    batch = builder.graphs(codes, pmu).take(np.arange(len(codes)))
    tf = start_tensorflow()
    inputs = {name: tf.constant(one) for name, one in inputs_of(batch, model.config).items()}
    weights = {name: tf.constant(one) for name, one in model.weights.items()}
    expected = cycles(model.config, weights, inputs, len(model.cpus), tf).numpy()[:, 0]
    assert np.ptp(expected) > 10
    found, problems = model.predict(codes, CPU, pmu)
    # Small predictions are differences of larger sums: float32 errs by up to 1e-5 of them.
    assert not problems and found == pytest.approx(expected, rel=1e-5, abs=1e-5)
    # The model is older than the last input.
    assert model.reads("l1_miss") and not model.reads("failed_forward")
    without, _ = model.predict(codes, CPU)
    assert not np.allclose(found, without, rtol=0.05)


def test_workers_share_the_blocks(codes: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned_model, "_AT_ONCE", 64)
    model = load(REPO_ROOT / "models" / f"cost-{CPU}")
    codes = [*codes[:100], b"\x06", *codes[100:400]]
    alone, problems = model.predict(codes, CPU)
    with Pool(2) as pool:
        shared, others = model.predict(codes, CPU, executor=pool)
    assert np.array_equal(alone, shared, equal_nan=True) and problems == others
    assert problems[100] == "no instruction" and np.isnan(alone[100])
    assert np.isfinite(alone).sum() == len(codes) - len(problems)
