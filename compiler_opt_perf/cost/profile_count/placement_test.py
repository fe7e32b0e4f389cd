# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from collections.abc import Sequence

import numpy as np
import pytest

from compiler_opt_perf.binary.disassembly import Kind
from compiler_opt_perf.binary.symbolize import CallSite, Line, Location
from compiler_opt_perf.cost.object_code import Call, FunctionCode, Instruction, ObjectCode
from compiler_opt_perf.cost.profile_count.placement import Candidate, Pair, solve_shares

CALL = Line(1, 0)


def function(name: str, *sites: CallSite) -> Pair:
    return (name, sites), (name, sites)


def shares(
    start: dict[Pair, float], leads: dict[Pair, Sequence[tuple[Pair, float]]]
) -> dict[Pair, float]:
    solution = solve_shares(start, lambda pair: leads.get(pair, ()))
    return dict(zip(solution.pairs, solution.values.tolist(), strict=True))


def test_shares_follow_the_calls() -> None:
    main, f, g = function("main"), function("f"), function("g")
    found = shares({main: 1.0}, {main: [(f, 1.0), (g, 0.25)], f: [(g, 0.75)]})
    assert found == pytest.approx({main: 1.0, f: 1.0, g: 1.0})


def test_recursion_adds_up() -> None:
    """Of four calls of a function three are its own: the one from outside leads to all of them."""
    f = function("f")
    assert shares({f: 0.25}, {f: [(f, 0.75)]}) == pytest.approx({f: 1.0})


def test_a_closed_cycle_of_calls_has_a_solution() -> None:
    """Sampled counts may have no call that enters it."""
    f, g, main = function("f"), function("g"), function("main")
    found = shares({main: 1.0}, {main: [(f, 0.0)], f: [(g, 1.0)], g: [(f, 1.0)]})
    assert np.isfinite(list(found.values())).all()


def test_nothing_is_entered() -> None:
    assert shares({}, {}) == {}


def test_where_a_call_leads_in_the_candidate() -> None:
    site = CallSite(CALL, "g")
    inlined = Instruction("addl", Kind(0), 0, Location("f", (site,), Line(2, 0), 1))
    code = {
        "f": FunctionCode([0], [1], [[]], [inlined], []),
        "h": FunctionCode([0], [1], [[]], [], [Call(0, None, "g")]),
        "i": FunctionCode([0], [1], [[]], [], [Call(0, None, None)]),
        "g": FunctionCode([0], [1], [[]], [], []),
    }
    candidate = Candidate(ObjectCode(code, frozenset(code)))
    # Inlined at this call, called by another, perhaps called by a pointer, and optimised away.
    assert candidate.reached(("f", ()), site) == ("f", (site,))
    assert candidate.reached(("h", ()), site) == ("g", ())
    assert candidate.reached(("i", ()), site) == ("g", ())
    assert candidate.reached(("g", ()), CallSite(CALL, "f")) is None
    assert candidate.copies(("f", ()), "g") == [("f", (site,))]
    assert candidate.copies(("h", ()), "g") == []
