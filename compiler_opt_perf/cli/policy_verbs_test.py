# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import pytest

from compiler_opt_perf.cli.main import run
from compiler_opt_perf.cli.options import problem_name
from compiler_opt_perf.compare.subject import problem_of
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.policy.problem import NO_PROFILE
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT

_POLICY = REPO_ROOT / "models" / "inline-speed"


@pytest.mark.compiler
def test_flags_say_that_a_profile_is_needed(
    toolchain: Toolchain, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"--toolchain={toolchain.directory}", "--inline-model=inline-speed"]
    with caplog.at_level("INFO", logger="absl"):
        assert run(["policy", "flags", *words]) == 0
    assert f"inline-size: the policy {NO_PROFILE}" in caplog.text
    assert f"{_POLICY}, for fewer executed instructions at -O2" in caplog.text


def test_a_comparison_says_that_a_profile_is_needed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without one, such a policy is no other than the default."""
    for profiles, told in ((Profiles(), True), (Profiles(tmp_path / "p.pmu.json"), False)):
        caplog.clear()
        assert problem_of(_POLICY, "inline-size", profiles).name == "inline-size"
        assert (f"{_POLICY}: {NO_PROFILE}" in caplog.text) == told
    # Before programs are fetched and built.
    words = ["compare", "programs", "lua", "--model=inline-speed", f"--output={tmp_path / 'o'}"]
    assert run([*words, f"--modules={tmp_path / 'modules'}"]) == 1
    assert f"{_POLICY}: reads PMU features; `cop compare policy" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_what_a_policy_decides_need_not_be_said_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert problem_name(None, _POLICY) == "inline-size"
    assert problem_name(None, REPO_ROOT / "models" / "regalloc-evict") == "regalloc-evict"
    # Of policies from elsewhere, nothing is known.
    assert problem_name("regalloc-evict", tmp_path) == "regalloc-evict"
    for words in (["--model=cost-znver3"], [f"--model={tmp_path}"]):
        assert run(["gate", "record", "--corpus=c", "--output=o", *words]) == 2
        assert "--problem: name it, for " in capsys.readouterr().err
    assert run(["policy", "interact", "--decide=a.py", "--", "-c", "a.c"]) == 2
    assert "--decide: name the decision that it takes with --problem" in capsys.readouterr().err


def test_small_cold_code_needs_a_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "flags", "--toolchain=dev", "--small-cold"]) == 2
    assert "--small-cold needs --autofdo" in capsys.readouterr().err
