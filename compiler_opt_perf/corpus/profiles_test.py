# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import pytest

from compiler_opt_perf.corpus.corpus import CorpusError
from compiler_opt_perf.corpus.profiles import Profiles


def test_one_profile_is_for_all_programs(tmp_path: Path) -> None:
    profiles = Profiles.parse(["a.pmu.json"])
    assert profiles.of("zstd") == profiles.of("lua") == Path("a.pmu.json")
    assert profiles.are_read and not Profiles.parse([]).are_read
    # A file is a file, whatever its name.
    odd = tmp_path / "level=9.pmu.json"
    odd.touch()
    assert Profiles.parse([str(odd)]) == Profiles(odd)
    assert Profiles.parse([str(odd)]).checksum_of("zstd") is not None


def test_each_program_has_its_own(tmp_path: Path) -> None:
    profiles = Profiles.parse(["zstd=z.pmu.json", "lua=l.pmu.json"])
    assert profiles.of("zstd") == Path("z.pmu.json")
    assert profiles.of("store") is None
    assert profiles.checksum_of("store") is None
    assert profiles.paths == (Path("z.pmu.json"), Path("l.pmu.json"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a=one", "a=two"], "--profile=a=two: expected PROGRAM=FILE, each program once"),
        (["=one"], "--profile==one: expected PROGRAM=FILE"),
        (["a="], "--profile=a=: expected PROGRAM=FILE"),
        (["one", "two"], "--profile=two: expected one FILE for all programs"),
        (["a=one", "two"], "--profile=two: expected one FILE for all programs"),
    ],
)
def test_what_is_meant_must_be_clear(words: list[str], message: str) -> None:
    with pytest.raises(CorpusError) as caught:
        Profiles.parse(words)
    assert str(caught.value).startswith(message)
