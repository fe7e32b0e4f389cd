# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Each rule by itself, and which of them applies."""

import math

import pytest

from compiler_opt_perf.binary.disassembly import Kind
from compiler_opt_perf.binary.symbolize import Line, Location
from compiler_opt_perf.cost.block_counts import Observation
from compiler_opt_perf.cost.object_code import FunctionCode, Instruction
from compiler_opt_perf.cost.profile_count import expectation as rules
from compiler_opt_perf.cost.profile_count.expectation import (
    ABSENT,
    LIKELY,
    SURE,
    VAGUE,
    Copy,
    KnownLine,
    LineCounts,
    of_candidate,
    of_profiled,
)

LINE = Line(3, 0)


def at(
    block: int, mnemonic: str = "addl", duplication: int = 1, kind: Kind | None = None
) -> Instruction:
    location = Location("f", (), LINE, duplication)
    return Instruction(mnemonic, kind or Kind(0), block, location)


def known(*instances: tuple[float, dict[str, list[Copy]]], incomplete: bool = False) -> KnownLine:
    return KnownLine(instances, None, incomplete)


def test_instructions_of_a_line_go_together() -> None:
    bare = at(1)._replace(location=None)
    code = FunctionCode(instructions=[at(0), bare, at(2), at(3, "rep movsb")])
    assert list(rules.by_line(code)) == [(("f", ()), LINE, [at(0), at(2)])]


# The profiled binary


def test_a_line_s_count_is_that_of_its_most_frequent_instruction() -> None:
    counts = LineCounts(executions=80, retired=100, branches=None)
    assert rules.most_frequent(at(4), counts) == Observation((4,), 0.0, 80, SURE)
    # Four copies of an unrolled loop.
    assert rules.most_frequent(at(4, duplication=4), counts) == Observation((4,), 0.0, 20, SURE)
    without = counts._replace(retired=None)
    assert rules.most_frequent(at(4), without) == Observation((4,), 80, 80, VAGUE)


def test_the_sums_of_a_line_are_observed() -> None:
    group = [at(0), at(1), at(1, "jne", kind=Kind.CONDITIONAL)]
    found = list(of_profiled(group, LineCounts(executions=9, retired=20, branches=7)))
    assert found[3:] == [
        Observation((0, 1, 1), 20, 20, SURE),
        Observation((1,), 7, 7, SURE),
    ]
    assert rules.calling([2, 5], 6) == Observation((2, 5), 6, 6, SURE)


# A candidate


def test_a_line_whose_calls_were_inlined_ran_once_a_call() -> None:
    line = KnownLine((), inlined_calls=12.0, incomplete=True)
    assert list(of_candidate(line, [at(1), at(2)])) == [
        Observation((1,), 12.0, 12.0, VAGUE),
        Observation((2,), 12.0, 12.0, VAGUE),
    ]


def test_a_line_that_never_ran() -> None:
    assert list(of_candidate(KnownLine(()), [at(1)])) == [Observation((1,), 0.0, 0.0, ABSENT)]
    # An instance that ran has nothing of the line, so nothing is known.
    assert not list(of_candidate(KnownLine((), incomplete=True), [at(1)]))


def test_the_same_instruction_ran_as_often() -> None:
    copies = {"addl": [Copy(10.0, 1, 0)]}
    line = known((0.5, copies), (2.0, copies))
    assert list(of_candidate(line, [at(7)])) == [Observation((7,), 25.0, 25.0, SURE)]
    # It may have run in instances, too, that have nothing of the line.
    line = known((0.5, copies), incomplete=True)
    assert list(of_candidate(line, [at(7)])) == [Observation((7,), 5.0, math.inf, SURE)]


def test_of_several_same_instructions_each_is_within_their_range() -> None:
    line = known((1.0, {"addl": [Copy(10.0, 1, 0), Copy(30.0, 1, 1)]}))
    assert list(of_candidate(line, [at(4), at(5)])) == [
        Observation((4, 5), 40.0, 40.0, SURE),
        Observation((4,), 10.0, 30.0, VAGUE),
        Observation((5,), 10.0, 30.0, VAGUE),
    ]


def test_copies_of_several_blocks_that_became_one() -> None:
    line = known((1.0, {"addl": [Copy(10.0, 1, 0), Copy(30.0, 1, 1)]}))
    # The most frequent one at least, and all of them at most.
    assert list(of_candidate(line, [at(4)])) == [Observation((4,), 30.0, 40.0, LIKELY)]


def test_another_instruction_is_within_the_range_of_the_line() -> None:
    line = known((2.0, {"addl": [Copy(10.0, 1, 0)], "leal": [Copy(30.0, 1, 1)]}))
    assert list(of_candidate(line, [at(4, "incl")])) == [Observation((4,), 20.0, 60.0, VAGUE)]


def test_copies_of_an_unrolled_loop_share_the_line_s_executions() -> None:
    # Unrolled four times there, twice here: the last round may be part of one.
    line = known((1.0, {"addl": [Copy(5.0, 4, 0)] * 4}))
    assert list(of_candidate(line, [at(3, duplication=2), at(3, duplication=2)])) == [
        Observation((3, 3), 20.0, 40.0, LIKELY / 2)
    ]
    # In several blocks it is not known which copy is which.
    assert list(of_candidate(line, [at(3, duplication=2), at(4, duplication=2)])) == [
        Observation((3, 4), 20.0, 40.0, VAGUE / 2)
    ]


def test_a_rolled_loop_has_the_rounds_of_the_unrolled_one_and_of_the_rest() -> None:
    # 4 * 25 rounds in the vectorised loop, and 3 in the one for what is left.
    line = known((1.0, {"paddd": [Copy(25.0, 4, 0)] * 4, "addl": [Copy(3.0, 1, 1)]}))
    assert list(of_candidate(line, [at(6)])) == [Observation((6,), 103.0, 103.0, LIKELY)]
    # One of several blocks may have some of the rounds only.
    assert list(of_candidate(line, [at(6), at(7)])) == [
        Observation((6,), 3.0, 103.0, VAGUE),
        Observation((7,), 3.0, 103.0, VAGUE),
    ]


@pytest.mark.parametrize(
    ("copies", "plain", "unrolled"),
    [
        # Instructions of one block ran together.
        ([Copy(7.0, 1, 0), Copy(7.0, 1, 0), Copy(9.0, 1, 1)], [7.0, 9.0], []),
        # Copies share the executions evenly, or not.
        ([Copy(5.0, 2, 0), Copy(3.0, 2, 1)], [], [8.0]),
        ([Copy(5.0, 2, 0), Copy(1.0, 8, 1), Copy(2.0, 1, 2)], [2.0], [10.0, 8.0]),
    ],
)
def test_how_often_a_line_ran(
    copies: list[Copy], plain: list[float], unrolled: list[float]
) -> None:
    assert rules.rounds(copies) == (plain, unrolled)
    assert rules.executions(copies) == plain + unrolled
