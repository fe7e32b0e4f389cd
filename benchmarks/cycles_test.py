# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `cycles` computes of times and predictions, and its chain of additions."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from benchmarks.common import BenchmarkError
from benchmarks.cycles import (
    SCOREBOARD,
    SHUFFLED,
    WITH_PMU,
    WITHOUT_PMU,
    Parts,
    ProgramCycles,
    corrections,
    study,
    tables,
)
from benchmarks.fitting import FAULTS
from benchmarks.measured_runs import Timed, build_chain
from benchmarks.timing import Rounds
from compiler_opt_perf.blocks.cpu_files import cpu_file
from compiler_opt_perf.cost.correction import INPUTS
from compiler_opt_perf.run.files import write_json
from compiler_opt_perf.run.timing import find_meter
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT


def test_the_fastest_parts_count_without_the_systems_share() -> None:
    rounds = Rounds(["p"], seconds=[[[0.3, 0.2]], [[0.2, 0.4]]], system_s=0.1, whole_s=1.0)
    rounds.beside = [0.2, 0.1]
    timed = Timed(rounds, [])
    assert timed.seconds == pytest.approx(0.4 * 0.9)
    assert timed.as_one().seconds == timed.seconds
    assert timed.as_one().part_seconds == pytest.approx([0.4])
    assert timed.hertz == pytest.approx(3e9)


@pytest.mark.compiler
def test_the_chain_is_as_long_as_it_says(tmp_path: Path) -> None:
    program = tmp_path / "chain"
    build_chain(program)
    meter = find_meter("instructions", tmp_path)
    none, some = (meter.measure([program, thousands]) for thousands in ("0", "50"))
    # Of 100 additions, the loop has two instructions more.
    assert some - none == pytest.approx(51_000, rel=0.01)


def result(level: float, missing: float = 0.0) -> ProgramCycles:
    """A run that takes so many times what its blocks do.

    Its parts are of a million cycles of blocks and more, with pages that take 5,000 each. In every
    other one a tenth of `missing` million cycles are mispredictions, each of which takes two.
    """
    million = 1e6
    parts = [
        dict.fromkeys(INPUTS, 0.0)
        | {"blocks": million * (1 + number), FAULTS: 10.0 * (number % 3)}
        | {"mispredictions": million * missing * (number % 2)}
        for number in range(6)
    ]
    cycles = [
        level * one["blocks"] + 5000 * one[FAULTS] + 2 * one["mispredictions"] for one in parts
    ]
    halves = [{**one, "blocks": one["blocks"] / 2} for one in parts]
    return ProgramCycles(
        cycles=level * million,
        gigahertz=3.2,
        system=0.01,
        elsewhere=0.1,
        refused=0.002,
        predicted={"count": 2 * million, SCOREBOARD: million / 2, "granite": million},
        blocks={"granite": million, SCOREBOARD: million / 2},
        inputs=dict.fromkeys(INPUTS, 0.0) | {"blocks": million},
        parts=Parts(
            cycles=cycles,
            instructions=[one["blocks"] for one in parts],
            inputs={"granite": parts, SCOREBOARD: halves},
        ),
    )


def test_a_correction_is_judged_by_programs_left_out() -> None:
    results = {f"program{number}": result(1.5) for number in range(4)}
    found = {name: corrections(results, name) for name in ("granite", SCOREBOARD)}
    for name, scale in (("granite", 1.5), (SCOREBOARD, 3.0)):
        assert found[name].weights["blocks"] == pytest.approx(scale, rel=0.02)
        assert found[name].weights[FAULTS] == pytest.approx(5000, rel=0.1)
        assert list(found[name].left_out.values()) == pytest.approx([1.5e6] * 4, rel=0.02)
    parts, _, runs, weights = tables(results, found)
    assert parts.rows[0] == ["granite", *[pytest.approx(0, abs=3)] * 5]
    first, mean = runs.rows[0], runs.rows[-1]
    assert first[:9] == [
        "program0",
        1.5,
        3.2,
        1,
        10,
        0.2,
        *(pytest.approx(one / 3, abs=0.01) for one in (4, 1, 2)),
    ]
    assert mean[:8] == [
        "mean of |ratio - 1|",
        *[None] * 5,
        *(pytest.approx(one / 3) for one in (1, 2)),
    ]
    assert weights.rows[0][:2] == ["blocks", pytest.approx(1.5, rel=0.02)]


def test_what_pmu_data_tell_is_told_apart_from_that_there_are_any() -> None:
    results = {f"program{number}": result(1.5, missing=1.0) for number in range(6)}
    found = corrections(results, "granite")

    def error(way: str) -> float:
        ratios = [
            predicted / np.array(results[name].parts.cycles)
            for name, predicted in found.parts[way].items()
        ]
        return float(np.abs(np.array(ratios) - 1).mean())

    assert error(WITH_PMU) < 0.05
    assert error(WITHOUT_PMU) > 0.15
    assert error(SHUFFLED) > 0.15
    assert found.parts[SHUFFLED]["program0"].shape == (5, 6)


@pytest.mark.compiler
def test_one_program_has_no_other_to_be_judged_by(tmp_path: Path, toolchain: Toolchain) -> None:
    write_json(tmp_path / "lua.json", msgspec.to_builtins(result(1.5)))
    model = REPO_ROOT / "models" / "cost-znver3"
    with pytest.raises(BenchmarkError, match="results of lua only.*measure another program, too"):
        study([], tmp_path, toolchain, model, cpu=cpu_file("znver3"), rounds=1, processor=0)
