# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of what kinds of PMU data add, of results as the two studies write them."""

from pathlib import Path
from typing import Any

import pytest

from compiler_opt_perf.execution.files import write_json
from compiler_opt_perf.studies.ablation import SHIPPED, study, table
from compiler_opt_perf.studies.common import StudyError

_RULE = "rule 14 3000 100 45"


def _ways(**instructions: int) -> dict[str, Any]:
    names = {"rule": _RULE} | {f"rates_{n}": f"rates {n}" for n in (1000, 4000, 10000)}
    names |= {f"exchanged_{n}": f"exchanged {n}" for n in (1, 2, 3)}
    names |= {"either": "counts or rates", "less": "counts without rates", "more": "threshold 500"}
    return {
        "ways": {
            names.get(name, name): {"instructions": number, "text": 300 if name == "more" else 100}
            for name, number in instructions.items()
        }
    }


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Folders of the two studies, with three programs each, of which two have all arms."""
    inlining, evictions = tmp_path / "inlining", tmp_path / "evictions"
    for folder in (inlining, evictions):
        folder.mkdir()
    common = {
        "default": 100,
        "rule": 90,
        "exchanged_1": 101,
        "exchanged_2": 104,
        "less": 95,
        "more": 99,
    }
    rows = {
        # The rate that is best here is the worse one on the other program.
        "lua": _ways(**common, rates_1000=99, rates_4000=80, rates_10000=110, either=85),
        "tcc": _ways(**common, rates_1000=98, rates_4000=120, rates_10000=110, either=85),
        "cmark": _ways(default=100, rule=50),
    }
    for name, row in rows.items():
        write_json(inlining / f"{name}.json", row)
    arms = ("none", "counts only", "rates only", "all", "shuffled")
    changes = {f"count, {arm}": [-0.01 * i, -0.03 * i] for i, arm in enumerate(arms)}
    changes |= {f"regalloc-score, {arm}": [0.02, 0.02] for arm in arms}
    timed = {f"count, {arm}": [-0.02 * i, -1.0, 1.0] for i, arm in enumerate(arms)}
    for name, own in {"lua": changes, "tcc": changes, "mujs": {"constant": [0.5]}}.items():
        row = {"changes": {"count": own}, "timed": {"changes": timed}}
        write_json(evictions / f"{name} policy.json", row)
    ways = ["default", _RULE, "exchanged 1"]
    seconds = [[[1.0], [0.9], [1.1]]] * 5
    terms = {way: [0.0] * 5 for way in ways}
    write_json(
        inlining / "lz4 reward.json",
        {"terms": terms, "rounds": {"variants": ways, "seconds": seconds}},
    )
    timed = {"262144": [-0.01, 0, 0], "policy": [-0.02, 0, 0], "policy, shuffled": [0.01, 0, 0]}
    write_json(evictions / "lua O2 judged.json", {"changes": timed})
    write_json(evictions / "tcc O2 judged.json", {"executed": {}})
    return inlining, evictions


def test_a_table_for_each_problem_and_judge(folders: tuple[Path, Path]) -> None:
    found = study(*folders)
    # Nobody simulated cycles, or learned by them.
    titles = ["inlining, instructions", "inlining, time", "callee-saved registers, count"]
    assert list(found) == [
        *titles,
        "callee-saved registers, time",
        "callee-saved registers, time at O2",
    ]
    assert list(found["inlining, instructions"]) == [SHIPPED, "instructions"]
    chosen = found["inlining, instructions"]["instructions"]
    assert chosen["programs"] == ["lua", "tcc"]
    # On the other program a threshold is better by its instructions, and no better with its text.
    assert chosen["changes"]["none"] == [0.0]
    assert chosen["changes"]["counts only"] == [pytest.approx(-0.1)]
    # The rate that is best for the other one is worse here.
    assert chosen["changes"]["rates only"] == [pytest.approx((0.99 * 1.2) ** 0.5 - 1)]
    # Who sees all may do what others do.
    assert chosen["changes"]["all"] == [pytest.approx((0.85 * 1.2) ** 0.5 - 1)]
    assert chosen["changes"]["shuffled"] == pytest.approx([0.01, 0.04])
    shipped = found["inlining, instructions"][SHIPPED]
    assert shipped["programs"] == ["lua", "tcc"]
    assert shipped["changes"]["counts only"] == [pytest.approx(-0.1)]
    learned = found["callee-saved registers, count"]["count"]
    assert learned["programs"] == ["lua", "tcc"]
    assert learned["changes"]["all"] == pytest.approx([-0.03, -0.09])
    assert learned["interval"]["all"] is None
    by_score = found["callee-saved registers, count"]["regalloc-score"]
    assert by_score["changes"]["none"] == pytest.approx([0.02, 0.02])
    timed = found["callee-saved registers, time"]["count"]
    assert timed["programs"] == ["lua", "tcc", "mujs"]
    assert timed["changes"]["counts only"] == [pytest.approx(-0.02)]
    assert timed["interval"]["counts only"] == pytest.approx([-0.02, -0.02])

    # What a study has no arm for stays empty; a program that was not timed is not there.
    assert found["inlining, time"][SHIPPED]["changes"]["shuffled"] == [pytest.approx(0.1)]
    judged = found["callee-saved registers, time at O2"][SHIPPED]
    assert judged["programs"] == ["lua"] and judged["changes"]["all"] == []

    text = table(found)
    assert "| inlining, instructions | by the shipped rule | by instructions |" in text
    score = "+2.00% [+2.00% to +2.00%]"
    assert f"| counts only | {score} | -2.01% [-3.00% to -1.00%] |" in text
    assert "| counts only | -2.00% (-2.00% to -2.00%) |" in text
    assert "| rates only | – | +9.00% |" in text


def test_without_results_the_studies_to_run_are_named(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no program has .*cop study inline-speed"):
        study(tmp_path, tmp_path)
