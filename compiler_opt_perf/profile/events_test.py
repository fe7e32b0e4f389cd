# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from compiler_opt_perf.profile.events import EVENTS, KINDS, RATES


def test_names_are_unique() -> None:
    assert len({event.name for event in EVENTS}) == len(EVENTS)
    assert len({rate.name for rate in RATES}) == len(RATES)


def test_kinds_are_known_and_only_maxima_are_scaled() -> None:
    for event in EVENTS:
        assert event.kind in KINDS
        assert event.scaled_by_duplication == (event.kind == "max")


def test_rates_divide_sums() -> None:
    kinds = {event.name: event.kind for event in EVENTS}
    for rate in RATES:
        assert kinds[rate.numerator] == kinds[rate.denominator] == "sum"
        assert rate.prior_trials > 0
