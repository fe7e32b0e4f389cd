# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from collections.abc import Sequence

from compiler_opt_perf.run.rounds import TimeChange
from compiler_opt_perf.trial.result import (
    Trial,
    TrialRun,
    Verdict,
    WayResult,
    WayRun,
    describe,
    judge_size,
    judge_time,
)

_RUNS = [
    TrialRun(flag, "./program", 15, TimeChange(0.001, -0.01, 0.01), 0.01)
    for flag in ("run", "run2")
]
_CHANCE = (0.002, -0.004, 0.008)


def _way(
    name: str,
    *changes: Sequence[float],
    text: int = 10_000,
    file: int = 50_000,
    same: bool | None = True,
    instructions: int = 900_000,
) -> WayResult:
    runs = [
        WayRun(instructions, instructions / 1_000_000 - 1, 1.0, TimeChange(*change), same)
        for change in changes
    ]
    flags = f"-O2 --config={name}.cfg"
    changes_of_size = text / 10_000 - 1, file / 50_000 - 1
    return WayResult(name, flags, name, text, changes_of_size[0], file, changes_of_size[1], runs)


_PLAIN = _way("plain", (0, 0, 0), (0, 0, 0), instructions=1_000_000)


def _verdict(*ways: WayResult) -> Verdict:
    return judge_time([_PLAIN, *ways], _RUNS)


def test_takes_the_fastest() -> None:
    verdict = _verdict(
        _way("A", (-0.05, -0.06, -0.04), (-0.05, -0.06, -0.04)),
        _way("B", (-0.15, -0.16, -0.14), (-0.25, -0.26, -0.24)),
    )
    assert verdict.take == "B"
    assert verdict.reasons == [
        "Take B: -15.00% time on --run and -25.00% time on --run2.",
        "A is faster than plain, too, but no faster than B beyond chance.",
    ]


def test_takes_the_simplest_of_those_that_chance_does_not_tell_apart() -> None:
    verdict = _verdict(
        _way("A", (-0.15, -0.16, -0.14), (-0.15, -0.16, -0.14)),
        _way("B", (-0.155, -0.16, -0.14), (-0.155, -0.16, -0.14)),
    )
    assert verdict.take == "A"
    assert "B is faster than plain, too, but no faster than A beyond chance." in verdict.reasons


def test_takes_no_build_that_loses_on_the_other_input() -> None:
    verdict = _verdict(_way("A", (-0.2, -0.3, -0.1), (0.03, 0.02, 0.04)))
    assert verdict.take is None
    assert verdict.reasons == [
        "Take plain: no other build is faster.",
        "A is slower on --run2 (+3.00%).",
    ]


def test_fewer_instructions_do_not_make_a_build_faster() -> None:
    verdict = _verdict(_way("A", (0.5, 0.4, 0.6), (0.5, 0.4, 0.6), instructions=10))
    assert verdict.take is None


def test_what_may_be_chance_is_no_gain() -> None:
    # The interval is below zero, the change within what the control leaves to chance.
    verdict = _verdict(_way("A", (-0.008, -0.009, -0.007), _CHANCE))
    assert verdict.take is None
    assert verdict.reasons[1] == "A is no faster than plain by more than chance."


def test_a_gain_on_one_input_is_enough_where_the_other_tells_nothing() -> None:
    verdict = _verdict(_way("A", (-0.1, -0.12, -0.08), _CHANCE))
    assert verdict.reasons == [
        "Take A: -10.00% time on --run and no change beyond chance on --run2."
    ]


def test_takes_no_build_that_prints_something_else() -> None:
    way = _way("A", (-0.5, -0.6, -0.4), (-0.5, -0.6, -0.4), text=1, file=1, same=False)
    for verdict in (_verdict(way), judge_size([_PLAIN, way], _RUNS)):
        assert verdict.take is None
        assert "A prints something else than plain: do not take it." in verdict.reasons


def test_takes_the_smallest_file() -> None:
    small, smaller = _way("A", text=9_000, file=49_000), _way("B", text=9_100, file=48_000)
    reasons = [
        "Take B: -4.00% stripped file and -9.00% text.",
        "A has less text, but a larger file (file -2.00%, text -10.00%).",
    ]
    assert judge_size([_way("plain"), small, smaller], []) == Verdict("B", reasons)


def test_says_where_the_smallest_build_is_slower() -> None:
    small = _way("A", (0.34, 0.28, 0.4), _CHANCE, text=9_000, file=49_000)
    verdict = judge_size([_PLAIN, small], _RUNS)
    assert verdict.take == "A"
    assert verdict.reasons[1:] == ["A is slower than plain on --run (+34.00%)."]
    as_fast = _way("A", _CHANCE, _CHANCE, text=9_000, file=49_000)
    assert len(judge_size([_PLAIN, as_fast], _RUNS).reasons) == 1


def test_of_files_as_small_takes_the_least_text() -> None:
    small, smaller = _way("A", text=9_000, file=48_050), _way("B", text=9_100, file=48_000)
    assert judge_size([_way("plain"), small, smaller], []).take == "A"


def test_takes_no_build_in_which_text_or_file_grows() -> None:
    more_text = _way("A", text=10_021, file=45_000)
    larger_file = _way("B", text=9_000, file=50_101)
    verdict = judge_size([_way("plain"), more_text, larger_file], [])
    assert verdict.take is None
    assert verdict.reasons == [
        "Take plain: no other build has a smaller file.",
        "A has more text than plain (file -10.00%, text +0.21%).",
        "B has less text, but a larger file (file +0.20%, text -10.00%).",
    ]
    # Up to 0.2% count as no growth.
    assert judge_size([_way("plain"), _way("A", text=10_019, file=45_000)], []).take == "A"
    assert judge_size([_way("plain"), _way("A", text=9_000, file=50_099)], []).take == "A"


def test_the_table_has_a_row_for_each_build_and_ends_with_the_flags_to_use() -> None:
    ways = [_PLAIN, _way("A", (-0.1, -0.12, -0.08), (-0.1, -0.12, -0.08), same=None)]
    verdict = judge_time(ways, _RUNS)
    trial = Trial("/src", "/out", "make", "-O2", "/bin/clang", "counter", _RUNS, ways, verdict)
    text = describe(trial)
    assert [line.split()[0] for line in text.splitlines()[2:5]] == ["plain", "plain,", "A"]
    for shown in (
        "1.000 s",
        "1,000,000",
        "10,000 B",
        "50,000 B",
        "-10.00% [-12.00, -8.00]",
        "varies",
    ):
        assert shown in text
    assert "changes below 1.0% may be chance" in text
    assert text.endswith("CFLAGS, CXXFLAGS and LDFLAGS: -O2 --config=A.cfg\n")
    assert "CC=/bin/clang CXX=/bin/clang++" in text
