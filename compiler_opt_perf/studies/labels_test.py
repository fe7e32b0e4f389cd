# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from compiler_opt_perf.policies.testing import random_inputs
from compiler_opt_perf.studies.labels import study
from compiler_opt_perf.training.dataset_aggregation import PROBLEM
from compiler_opt_perf.training.errors import TrainingError
from compiler_opt_perf.training.folder import TrainingFolder
from compiler_opt_perf.training.label_files import Labels, write_labels

_INPUTS = {
    "recipe": tomllib.loads("""
seed = 1
[programs]
training = ["a", "b"]
validation = ["c"]
test = ["d"]
[labels]
rounds = 1
sites = 24
[trees]
ensembles = 2
trees = 60
leaves = 8
leaf_rows = 10
learning_rate = 0.1
largest = 10
least_share = -1
[network]
hidden = [16]
default_lead = 1.0
leads = [1.0]
steps = 1000
batch_size = 64
learning_rate = 0.01
""")
}


def _write(training: Path, program: str, seed: int, lesson: bool) -> None:
    """Labels of eight modules, of which there is a lesson to learn or none."""
    inputs = random_inputs(PROBLEM, rows=800, seed=seed)
    for name in ("callee_is_comdat", "callee_is_mangled"):
        inputs[name] %= 2
    names = [feature.name for feature in PROBLEM.inputs(with_pmu=False)]
    record = np.dtype([(name, np.int64, (1,)) for name in (*names, PROBLEM.decision)])
    observations = np.zeros(800, record)
    for name in names:
        observations[name][:, 0] = inputs[name]
    default = inputs[PROBLEM.default_feature]
    observations[PROBLEM.decision][:, 0] = default
    pays = inputs["cost_estimate"] < -10
    if not lesson:
        pays = np.random.default_rng(seed).random(800) < 0.3
    difference = np.where(pays, -10.0, 10.0)
    for number in range(8):
        rows = slice(100 * number, 100 * (number + 1))
        labels = Labels(
            f"{program}/{number}",
            tuple(f"key{row}" for row in range(100)),
            observations[rows],
            observations[rows],
            difference[rows],
            10_000.0,
            9,
        )
        write_labels(training / "labels" / "0" / program / f"{number}.npz", labels)


def test_what_one_program_teaches_about_another(tmp_path: Path) -> None:
    shares = {}
    for lesson in (True, False):
        training = tmp_path / str(lesson)
        training.mkdir()
        TrainingFolder(training).claim(_INPUTS)
        for number, program in enumerate(("a", "b")):
            _write(training, program, number, lesson)
        text = study(training)
        assert re.search(r"^\| a \| 800 \| [\d,]+ \| [+-][\d,]+ \| [+-][\d,]+ \|$", text, re.M)
        found = re.search(r"2 programs \| \| \| ([+-]\d+)% \| ([+-]\d+)% \|", text)
        assert found
        shares[lesson] = [int(one) for one in found.groups()]
        # Of 16 modules two take an eighth of the compilations.
        assert "| 144 | 1,600 | " in text and "| 18 | 200 | " in text
    # The network has many inputs and few rows: it keeps less, but more than there is by chance.
    assert shares[True][0] > 80
    assert shares[True][1] > 20 > max(shares[False])


def test_a_folder_without_labels_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="no training has begun here"):
        study(tmp_path)
    folder = TrainingFolder(tmp_path)
    folder.claim({"kind": "labels"})
    with pytest.raises(TrainingError, match="has no recipe"):
        study(tmp_path)
    folder.claim({"recipe": {"seed": 1}})
    with pytest.raises(TrainingError, match=r"recipe: \$\.programs: is missing"):
        study(tmp_path)
    folder.claim(_INPUTS)
    with pytest.raises(TrainingError, match="no labels of two programs"):
        study(tmp_path)
