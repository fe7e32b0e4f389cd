# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from dataclasses import replace
from pathlib import Path

import pytest

from compiler_opt_perf.pages import comparison
from compiler_opt_perf.pages.profile import write_page
from compiler_opt_perf.pages.sections import profile_section
from compiler_opt_perf.profile.conftest import build, geometry, profile, source, workload
from compiler_opt_perf.profile.hotspots import shown_rates
from compiler_opt_perf.profile.manifest import Manifest
from compiler_opt_perf.profile.profile import Profile

pytestmark = pytest.mark.compiler

# Fixtures.
__all__ = ("build", "geometry", "profile", "source", "workload")


@pytest.fixture
def loaded(profile: Manifest) -> Profile:
    """The test program's profile, in memory; each test its own."""
    return Profile.load(profile.path)


def test_page(loaded: Profile, tmp_path: Path) -> None:
    write_page(loaded, tmp_path / "a.html", 5)
    page = (tmp_path / "a.html").read_text()
    assert page.count("<svg") == 2
    assert "<code>At = Next[At]; // mark: chase</code>" in page
    assert "Bytes[I] &lt; 128" in page
    for rate in shown_rates(loaded):
        assert page.count(f"<th>{rate.name}</th>") == 2
    write_page(loaded, tmp_path / "b.html", 5)
    assert (tmp_path / "b.html").read_bytes() == (tmp_path / "a.html").read_bytes()


def test_a_page_of_comparisons_shows_the_functions(loaded: Profile, tmp_path: Path) -> None:
    section = profile_section(loaded)
    assert section.rows and all(len(row) == len(section.columns) for row in section.rows)
    assert "chase" in section.rows[0][0]
    comparison.write_page([], tmp_path / "a.html", [section])
    page = (tmp_path / "a.html").read_text()
    assert page.count("<svg") == page.count("<table>") == 1


def test_profile_without_misses(loaded: Profile, tmp_path: Path) -> None:
    for lines in loaded.functions.values():
        for counts in lines.values():
            counts[:] = [0] * len(counts)
    write_page(loaded, tmp_path / "w.html", 3)
    assert (tmp_path / "w.html").read_text().count("None has a miss or a mispredict.") == 2


def test_profile_of_events_without_a_cost(loaded: Profile, tmp_path: Path) -> None:
    """Of time alone, say."""
    events = tuple(replace(event, penalty_cycles=0) for event in loaded.samples.events)
    loaded.samples.events = events
    write_page(loaded, tmp_path / "w.html", 3)
    assert "<svg" not in (tmp_path / "w.html").read_text()
