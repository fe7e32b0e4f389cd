# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import pytest

from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.index import write_index
from compiler_opt_perf.profile.manifest import Manifest


@pytest.fixture(scope="module")
def profile(workload: Path, tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    output = tmp_path_factory.mktemp("profile") / "run.pmu.json"
    return collect(workload, ["repeat", "1"], output, timeout_s=60)


def test_a_profile_that_is_cut_off(profile: Manifest, tmp_path: Path) -> None:
    whole = profile.file(profile.event("loads")).read_bytes()
    cut = tmp_path / "cut.afdo"
    for size in range(1, len(whole), 7):
        cut.write_bytes(whole[:size])
        try:
            write_index([cut], tmp_path / "index")
        except PmuError as error:
            assert str(cut) in str(error)
        else:
            # Only what the index does not need may be missing.
            assert size > len(whole) // 2


def test_no_sample_profile(tmp_path: Path) -> None:
    text = tmp_path / "text.afdo"
    text.write_text("main:1:1\n 1: 1\n")
    with pytest.raises(PmuError, match="not a sample profile as llvm-profdata writes it"):
        write_index([text], tmp_path / "index")
