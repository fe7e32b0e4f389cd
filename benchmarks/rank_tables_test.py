# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import numpy as np
import pytest

from benchmarks.rank_tables import Ranked, tables
from benchmarks.ranking import Measured
from benchmarks.results import Table
from compiler_opt_perf.compare.summary import Floats


def _ranked(name: str, kind: str, predictions: dict[str, Floats], levels: Floats) -> Ranked:
    noise = np.random.default_rng(3).normal(1, 0.001, (6, 4))
    return Ranked(
        name,
        kind,
        ("default", "b", "c", "d"),
        Measured((levels * noise)[:, :, None], (0, 1, 2) * 2),
        rounds=6,
        run_s=2.0,
        predictions=predictions,
        evaluation_s={"mca-pmu": 0.5, "run": 2.0},
    )


@pytest.fixture
def found() -> dict[str, Table]:
    levels = np.array([1.0, 1.1, 1.2, 1.01])
    predictions = {"count": levels[::-1], "mca": levels**3, "mca-pmu": levels}
    predictions["mca-pmu without predictor"] = levels**1.2
    programs = [_ranked("p", "registers", predictions | {"granite": levels}, levels)]
    programs += [_ranked("p", "inlining", predictions, levels)]
    programs += [_ranked("q", "inlining", predictions | {"mca-pmu": levels**-1}, levels)]
    return {table.name: table for table in tables(programs)}


def test_programs_and_variants_are_shown(found: dict[str, Table]) -> None:
    facts = found["programs"].rows[0]
    assert facts[:5] == ["p", "registers", 2.0, 4, 6] and facts[7:] == [6, 6]
    assert facts[5:7] == [0, pytest.approx(20, abs=0.3)]
    assert found["evaluation"].rows == [["mca-pmu", 0.5, 0.5]]
    heads = [column.name for column in found["variants"].columns]
    rows = [dict(zip(heads, row, strict=True)) for row in found["variants"].rows]
    assert [row["variant"] for row in rows[:4]] == ["default", "b", "c", "d"]
    assert rows[2]["mca-pmu"] == pytest.approx(20) and rows[4]["granite"] is None


def test_tau_has_a_mean_and_a_worst_program(found: dict[str, Table]) -> None:
    by_evaluator = {row[0]: row[1:] for row in found["tau"].rows}
    assert by_evaluator["mca"] == [1, 1, 1, 1, 1, 1]
    assert by_evaluator["mca-pmu"] == [1, 1, 1, 0, 0, -1]
    # Not all programs of a kind have it.
    assert by_evaluator["granite"] == [1, 1, 1, None, None, None]
    assert [row[0] for row in found["parts"].rows] == ["mca-pmu", "mca-pmu without predictor"]
    assert found["tau-by-program"].rows[1][0] == "q"
    assert found["tau-by-program"].rows[1][3] == -1
    heads = [column.name for column in found["intervals"].columns]
    assert found["intervals"].rows[2][heads.index("mca-pmu")] == (-1, -1, -1)


def test_a_program_with_few_resolved_pairs_counts_little_among_all_pairs() -> None:
    levels = np.array([1.0, 1.1, 1.2, 1.01])
    few = _ranked("p", "branches", {"mca-pmu": levels}, np.array([1.0, 0.9, 1.0, 1.0]))
    many = _ranked("q", "branches", {"mca-pmu": levels}, levels)
    assert few.measured.resolved_pairs() == 3
    (row,) = next(table for table in tables([few, many]) if table.name == "tau").rows
    of_few = few.tau("mca-pmu").value
    assert row[1] == pytest.approx((6 + 3 * of_few) / 9)
    assert row[2] == pytest.approx((1 + of_few) / 2) and row[3] == of_few


def test_changes_are_compared(found: dict[str, Table]) -> None:
    shares = {
        name: {row[0]: row[1:] for row in found[name].rows} for name in ("signs", "close", "harms")
    }
    # Three changes of each program; two above 2%, one of them above 10% twice.
    assert shares["signs"]["mca-pmu"] == [100, 3, 50, 6]
    assert shares["close"]["mca-pmu"] == [100, 2, 50, 4]
    # Three times as much as was measured.
    assert shares["close"]["mca"] == [0, 2, 0, 4]
    assert shares["harms"]["mca"][0] == 0
    assert shares["harms"]["mca-pmu"][2] == 50
