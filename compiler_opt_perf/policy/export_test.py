# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import dataclasses
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_opt_perf.policy import export
from compiler_opt_perf.policy.export import ModelError, Policy
from compiler_opt_perf.policy.network import DecisionKind
from compiler_opt_perf.policy.problem import PROBLEMS, Problem
from compiler_opt_perf.policy.testing import random_inputs, random_network
from compiler_opt_perf.run import files
from compiler_opt_perf.toolchain.layout import REPO_ROOT


@pytest.fixture(scope="module", params=list(PROBLEMS))
def problem(request: pytest.FixtureRequest) -> Problem:
    return PROBLEMS[request.param]


@pytest.fixture(scope="module")
def policy(problem: Problem) -> Policy:
    network = random_network(problem)
    weights = network.initial_weights(seed=2)
    network = dataclasses.replace(network, default_lead=0.5)
    if problem.mask is None:
        # The other decisions are the compiler's.
        network = dataclasses.replace(network, asked=(DecisionKind(0, 0, 1), DecisionKind(1, 0, 0)))
    return Policy(network, weights, {"seed": 2, "results": {"gain": 0.5}})


@pytest.fixture(scope="module")
def published(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("policies") / policy.network.problem.name
    export.publish(policy, directory)
    return directory


def test_load_returns_what_was_published(policy: Policy, published: Path, problem: Problem) -> None:
    loaded = export.load(published)
    np.testing.assert_array_equal(loaded.weights, policy.weights)
    assert loaded.description == policy.description
    assert loaded.network.hidden == policy.network.hidden
    inputs = random_inputs(problem, 200, seed=9)
    np.testing.assert_array_equal(loaded.decide(inputs), policy.decide(inputs))


def test_folders_of_the_last_version_are_read(
    policy: Policy, published: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "policy"
    shutil.copytree(published, copy)
    (copy / "saved_model.pb").write_bytes(b"TensorFlow's")
    checksum = files.sha256(copy / "saved_model.pb")
    path = copy / "model.json"
    description = json.loads(path.read_text()) | {"version": 4}
    description["files"]["saved_model.pb"] = checksum
    path.write_text(json.dumps(description))
    np.testing.assert_array_equal(export.load(copy).weights, policy.weights)
    path.write_text(json.dumps(description | {"version": 3}))
    with pytest.raises(ModelError, match=r"\$\.version: expected 5, found 3: .*; train again"):
        export.load(copy)


def _edit_description(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def edit(directory: Path) -> None:
        path = directory / "model.json"
        description = json.loads(path.read_text())
        change(description)
        path.write_text(json.dumps(description))

    return edit


def _replace_weights(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """Damages weights.npz such that its checksum is right."""

    def edit(directory: Path) -> None:
        path = directory / "weights.npz"
        path.write_bytes(change(path.read_bytes()))
        checksum = files.sha256(path)
        _edit_description(lambda d: d["files"].update({path.name: checksum}))(directory)

    return edit


def _truncate(name: str) -> Callable[[Path], None]:
    def edit(directory: Path) -> None:
        path = directory / name
        path.write_bytes(path.read_bytes()[:100])

    return edit


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (shutil.rmtree, r"model\.json: No such file"),
        (_truncate("model.json"), r"model\.json:\d+:\d+: not JSON"),
        (
            _edit_description(lambda d: d.update(format="x")),
            r"\$\.format: expected .*, found \"x\"",
        ),
        (
            _edit_description(lambda d: d.update(version=99)),
            r"\$\.version: expected 5, found 99: another version .*; train again",
        ),
        (_edit_description(lambda d: d.update(problem="x")), "unknown problem 'x'"),
        (_edit_description(lambda d: d.pop("hidden")), r"model\.json: \$\.hidden: is missing"),
        (
            _edit_description(lambda d: d.update(hidden=[9])),
            r"weights\.npz: damaged \(weights is float32 \[\d+\], expected float32 \[\d+\]\)",
        ),
        (_edit_description(lambda d: d.update(hidden=[100])), r"\$: a layer with 100"),
        (_edit_description(lambda d: d.update(hidden=[-1])), r"\$: a layer with -1"),
        (_edit_description(lambda d: d.update(default_lead=5)), r"\$: a default lead of 5"),
        (lambda d: (d / "model.json").write_text("[" * 200_000), r"model\.json: not JSON: .*deep"),
        (_edit_description(lambda d: d["files"].update({"a\0b": ""})), "missing; copy"),
        (_replace_weights(lambda _: b"not an archive"), r"weights\.npz: damaged"),
        (_replace_weights(lambda data: data[: len(data) // 2]), r"weights\.npz: damaged"),
        # A compression that there is not.
        (
            _replace_weights(lambda data: re.sub(rb"(?s)(PK\x01\x02.{6})..", b"\\1c\0", data)),
            r"weights\.npz: damaged",
        ),
        (
            _edit_description(lambda d: d.update(with_pmu=1)),
            r"\$\.with_pmu: expected `bool`, found 1",
        ),
        (_edit_description(lambda d: d["files"].update(x=1)), r'\$\.files\["x"\]: expected `str`'),
        (
            _edit_description(lambda d: d["features"][1].update(shape=[1.5])),
            r"\$\.features\[1\]\.shape\[0\]: expected `int`, found 1\.5",
        ),
        (
            _edit_description(lambda d: d["features"][1].update(name="renamed")),
            "features differ .*renamed.*; train again",
        ),
        (_truncate("model.tflite"), r"model\.tflite: differs from its checksum"),
        (lambda d: (d / "weights.npz").unlink(), r"weights\.npz: missing"),
    ],
)
def test_damaged_directory_is_refused(
    published: Path, tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    copy = tmp_path / "policy"
    shutil.copytree(published, copy)
    damage(copy)
    with pytest.raises(ModelError, match=message):
        export.load(copy)


def test_failed_publication_leaves_the_old_policy(
    policy: Policy, published: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "policy"
    shutil.copytree(published, directory)
    before = files.sha256(directory / "model.json")
    not_json = dataclasses.replace(policy, description={"gain": float("nan")})
    with pytest.raises(ValueError, match="not JSON compliant"):
        export.publish(not_json, directory)
    assert files.sha256(directory / "model.json") == before
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


def test_the_same_policy_gives_the_same_bytes(
    policy: Policy, published: Path, tmp_path: Path
) -> None:
    export.publish(policy, tmp_path / "again")
    names = ["model.json", "model.tflite", "output_spec.json", "weights.npz"]
    for folder in (published, tmp_path / "again"):
        assert sorted(path.name for path in folder.iterdir()) == names
    for name in names:
        assert files.sha256(published / name) == files.sha256(tmp_path / "again" / name), name


@pytest.mark.parametrize("limit", [500, 5_000])
def test_a_full_disk_is_one_error_that_names_the_folder(tmp_path: Path, limit: int) -> None:
    # The largest file that the process may write stands for the room that is left.
    code = f"""
import resource
from pathlib import Path
from compiler_opt_perf.run.files import FileWriteError
from compiler_opt_perf.policy.export import Policy, publish
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.policy.testing import random_network

network = random_network(PROBLEMS["inline-size"])
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
try:
    publish(Policy(network, network.initial_weights(1), {{}}), Path("policy"))
except FileWriteError as error:
    print(error)
"""
    completed = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert completed.stdout.startswith("policy: cannot be written: ")
    assert list(tmp_path.iterdir()) == []


def test_publishing_does_without_tensorflow(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from compiler_opt_perf.policy.shipped_rules import publish_rule
publish_rule("inline-size", Path("policy"))
sys.exit("tensorflow" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_the_shipped_network_is_published_again(tmp_path: Path) -> None:
    shipped, folder = REPO_ROOT / "models" / "inline-size", tmp_path / "policy"
    export.publish(export.load(shipped), folder)
    for path in folder.iterdir():
        assert path.read_bytes() == (shipped / path.name).read_bytes(), path.name
