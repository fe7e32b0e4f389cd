# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import dataclasses

import pytest

from compiler_opt_perf.profile.events import RATES
from compiler_opt_perf.profile.manifest import EventFile
from compiler_opt_perf.profile.store import rates_of


def events(factor: int, period: int = 1) -> list[EventFile]:
    """What a run of a program counted that works for `factor` seconds."""
    names = {name for row in RATES for name in (row.numerator, row.denominator)}
    return [
        EventFile(name, "", period, "sum", True, 10**9 * factor, 9 * 10**8 * factor)
        for name in sorted(names)
    ]


def test_a_longer_run_changes_no_prior() -> None:
    rates = rates_of(events(1))
    assert [rate.name for rate in rates] == [row.name for row in RATES]
    assert {rate.prior_share for rate in rates} == {16e-6}
    assert rates_of(events(10)) == rates


def test_few_samples_weigh_no_more_than_they_are() -> None:
    # A thousand samples of each event. Numerator and denominator are the same: two periods.
    for rate, row in zip(rates_of(events(1, period=10**6)), RATES, strict=True):
        assert rate.prior_share == pytest.approx(row.prior_trials * 2e6 / 1e9, rel=1e-5)


def test_a_mean_of_samples_is_drawn_as_a_share_is() -> None:
    latencies = [
        dataclasses.replace(event, total=300 * event.total, located=300 * event.located)
        if event.name == "load-latency"
        else event
        for event in events(1, period=10**6)
    ]
    assert rates_of(latencies) == rates_of(events(1, period=10**6))


def test_an_event_that_never_occurred_has_a_prior_too() -> None:
    none = [dataclasses.replace(event, total=0, located=0) for event in events(1)]
    assert {rate.prior_share for rate in rates_of(none)} == {16e-6}
