# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from benchmarks import series as bench


def test_a_part_comes_with_the_subjects_before_it() -> None:
    commits = [
        ("a", "[MLGO] One\n\nWhy.\n\nPart: fixes\n"),
        ("b", "Two\n\nPart: fixes\n"),
        ("c", "Three\n\nPart: profile\n"),
    ]
    fixes, profile = bench.split(commits)
    assert (fixes.name, profile.name) == ("fixes", "profile")
    assert [commit for commit, _ in fixes.commits] == ["a", "b"]
    assert fixes.subjects == ("[MLGO] One", "Two")
    assert profile.commits == (commits[2],)
    assert profile.subjects == ("[MLGO] One", "Two", "Three")
    assert bench.split([]) == []
