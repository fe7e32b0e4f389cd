# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import json
from pathlib import Path

import pytest

from compiler_opt_perf.corpus.corpus import Corpus
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.policy import export
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.run.files import sha256
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train.ablation import ablated
from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.train import train
from compiler_opt_perf.train.train_test import SMALL

pytestmark = pytest.mark.compiler


def test_a_policy_says_what_it_was_trained_without(
    corpora: dict[str, Corpus], profile: Path, toolchain: Toolchain, tmp_path: Path
) -> None:
    output = tmp_path / "t"
    config = SMALL.changed({"iterations": 0})

    def trained(ablation: str | None) -> Path:
        problem, corpus = PROBLEMS["regalloc-evict"], corpora["regalloc-evict"]
        profiles = Profiles(profile, ablation=ablation)
        return train(problem, corpus, toolchain, profiles, output, config).policy

    policy = export.load(trained("shuffled-pmu"))
    assert policy.description["training"]["ablation"] == "shuffled-pmu"
    assert policy.network.with_pmu
    inputs = json.loads((output / "inputs.json").read_text())
    assert inputs["profile"] == sha256(output / "ablated" / "common" / "shuffled.pmu.json")
    assert inputs["profile"] != sha256(profile)
    for other in ("pmu", None):
        with pytest.raises(TrainingError, match="holds a training with another profile and ablat"):
            trained(other)


def test_a_shuffled_profile_is_made_once_for_each_program(profile: Path, tmp_path: Path) -> None:
    given = Profiles(None, {"a": profile, "b": profile}, "shuffled-pmu")
    made = ablated(given, tmp_path, 1)
    assert made.of("a") != made.of("b") and made.of("c") is None
    times = {path: path.stat().st_mtime_ns for path in made.paths}
    assert ablated(given, tmp_path, 1) == made
    assert times == {path: path.stat().st_mtime_ns for path in made.paths}
    assert made.are_read
    assert ablated(Profiles(profile, ablation="pmu"), tmp_path, 1).paths == (profile,)
    assert not Profiles(profile, ablation="pmu").are_read
