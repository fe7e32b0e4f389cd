# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import pytest

from compiler_opt_perf.cost.evaluator import EVALUATORS, Cost
from compiler_opt_perf.cost.report import CandidateCost, describe, document

pytestmark = pytest.mark.compiler

SAMPLES = {"standard_error": 10.0, "sample_residuals": [1.0, -1.0, 3.0]}
OTHER = {"standard_error": 10.0, "sample_residuals": [1.0, 1.0, 3.0]}
CANDIDATES = (
    CandidateCost("default", (Path("a"),), Cost(1000.0, {"_Z1fi": 600.0, "main": 400.0}, SAMPLES)),
    CandidateCost("basic", (Path("b"),), Cost(1100.0, {"_Z1fi": 590.0, "main": 510.0}, OTHER)),
    CandidateCost("few", (Path("c"),), Cost(1000.0, {"_Z1fi": 600.0, "main": 400.0}, SAMPLES)),
)
MCA = EVALUATORS["mca-pmu"]


def test_candidates_are_compared_with_the_first() -> None:
    # sqrt(3 / 2 * (1 - -1)**2) of 1000.
    assert describe(MCA, CANDIDATES, 9).splitlines() == [
        "mca-pmu: cycles, and differences from default",
        "candidate               total            change            standard error",
        "default                 1,000",
        "basic                   1,100              +100   +10.00%           0.24%",
        "few                     1,000                +0    +0.00%           0.00%",
        "",
        "         default           basic             few  function (cost, then changes)",
        "             400            +110              +0  main",
        "             600             -10              +0  f(int)",
    ]
    assert "f(int)" not in describe(MCA, CANDIDATES, 1)


def test_functions_that_only_one_candidate_has_are_compared() -> None:
    inlined = CandidateCost("inlined", (), Cost(900.0, {"main": 900.0}))
    text = describe(MCA, [CANDIDATES[0], inlined], 9)
    # Without samples there is no error to tell.
    assert "inlined                   900              -100   -10.00%\n" in text
    assert "             600            -600  f(int)\n" in text


def test_one_candidate_has_its_costliest_functions() -> None:
    text = describe(MCA, CANDIDATES[1:2], 1)
    assert text == "mca-pmu: 1,100 cycles\n             590  f(int)\n"


def test_document_has_the_same() -> None:
    value = document(MCA, CANDIDATES, 1)
    assert (value["evaluator"], value["unit"]) == ("mca-pmu", "cycles")
    assert [one["name"] for one in value["candidates"]] == ["default", "basic", "few"]
    assert [one["change"] for one in value["candidates"]] == [0, 100, 0]
    assert value["candidates"][1]["change_standard_error"] == pytest.approx(6**0.5)
    assert value["functions"] == [{"function": "main", "name": "main", "costs": [400, 510, 400]}]
