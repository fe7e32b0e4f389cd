# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The examples for build bots: what they run, runs."""

import importlib.util
import json
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import yaml

from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT

EXAMPLES = Path(__file__).with_name("examples")
COP = "build/venv/bin/cop"


class _Recorded:
    """Stands for what Buildbot's modules hold: remembers what it was made with."""

    def __init__(self, *arguments: Any, **named: Any):
        self.arguments, self.named = arguments, named


@pytest.fixture
def buildbot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The part of Buildbot that the example needs; Buildbot itself is not a package of ours."""
    plugins = types.ModuleType("buildbot.plugins")
    vars(plugins)["steps"] = types.SimpleNamespace(Git=_Recorded, ShellCommand=_Recorded)
    vars(plugins)["util"] = types.SimpleNamespace(BuildFactory=_Recorded)
    monkeypatch.setitem(sys.modules, "buildbot", types.ModuleType("buildbot"))
    monkeypatch.setitem(sys.modules, "buildbot.plugins", plugins)


SOURCE = """
static int triple(int x) { return 3 * x; }
int first(int x) { return triple(x) + triple(x + 1); }
int second(int x) { return triple(x) * triple(x - 1); }
"""


@pytest.fixture(scope="module")
def checkout(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that is to the commands as a checkout with everything built."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("models", "tools", "build/venv"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).symlink_to(REPO_ROOT / name)
    (folder / "build" / "toolchain").mkdir()
    (folder / "build" / "toolchain" / "dev").symlink_to(toolchain.directory)
    return folder


@pytest.fixture(scope="module")
def store(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that outlives builds, with corpus and baseline."""
    folder = tmp_path_factory.mktemp("store")
    sources = [folder / f"{name}.c" for name in ("one", "two")]
    for source in sources:
        source.write_text(SOURCE)
    commands = [
        {"directory": str(folder), "file": str(source), "arguments": ["cc", "-c", str(source)]}
        for source in sources
    ]
    (folder / "compile_commands.json").write_text(json.dumps(commands))
    cop = checkout / COP
    problem = "--problem=inline-size"
    corpus: list[str | Path] = [cop, "corpus", "extract", problem, f"--output={folder}/corpus"]
    run_command([*corpus, f"program={folder}/compile_commands.json"])
    record: list[str | Path] = [
        cop,
        "gate",
        "record",
        f"--corpus={folder}/corpus/train",
        problem,
        "--compile-time=none",
    ]
    record += ["--toolchain=build/toolchain/dev", "--model=models/inline-size"]
    run_command([*record, f"--output={folder}/baseline.json"], cwd=checkout)
    return folder


def _runnable(command: str) -> str:
    """The command for the set that the checks build, without tools/bootstrap, which has tests."""
    return command.replace("tools/bootstrap\n", "").replace("--toolchain=dev", "--toolchain=mock")


@pytest.mark.compiler
def test_a_bot_runs_the_factory_of_buildbot(buildbot: None, checkout: Path, store: Path) -> None:
    spec = importlib.util.spec_from_file_location("factory", EXAMPLES / "buildbot_factory.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (steps,) = module.gate_factory("https://example.org/r.git", str(store)).arguments
    commands = [step.named["command"] for step in steps if "command" in step.named]
    assert [words[:3] for words in commands] == [
        ["tools/bootstrap"],
        [COP, "toolchain", "build"],
        [COP, "gate", "check"],
        [COP, "gate", "history"],
    ]
    for words in commands[1:]:
        run_command([_runnable(word) for word in words], cwd=checkout)
    for step in steps:
        for file in step.named.get("logfiles", {}).values():
            assert "linked" in (checkout / file).read_text()
    assert "<svg" in (checkout / "gate.html").read_text()


@pytest.mark.compiler
def test_a_runner_runs_the_workflow_of_github(checkout: Path, store: Path) -> None:
    workflow = yaml.safe_load((EXAMPLES / "gate-workflow.yml").read_text())
    # YAML 1.1 takes the word `on` for true.
    assert workflow.keys() == {"name", True, "permissions", "concurrency", "jobs"}
    (job,) = workflow["jobs"].values()
    environment = {
        "GATE_STORE": str(store),
        "GITHUB_SHA": "0123",
        "GITHUB_STEP_SUMMARY": str(store / "summary.md"),
    }
    assert environment.keys() > job["env"].keys()
    scripts = [step["run"] for step in job["steps"] if "run" in step]
    assert [script.split()[0] for script in scripts] == ["tools/bootstrap", COP, "cat"]
    for script in scripts:
        shell = ["bash", "-e", "-o", "pipefail", "-c", _runnable(script)]
        run_command(shell, cwd=checkout, env=environment)
    assert "| linked" in (store / "summary.md").read_text()
    (kept,) = (
        step["with"]["path"].split() for step in job["steps"] if "path" in step.get("with", {})
    )
    assert all((checkout / name).stat().st_size for name in kept)


def test_the_container_runs_what_there_is(repo_root: Path) -> None:
    lines = (repo_root / "tools" / "Containerfile").read_text().splitlines()
    instructions = [line.split()[0] for line in lines if line and not line.startswith("#")]
    assert instructions == ["FROM", "RUN", "WORKDIR", "COPY", "RUN", "CMD"]
    assert "RUN tools/bootstrap" in lines and (repo_root / "tools" / "bootstrap").is_file()
    targets = re.findall(r"compiler-opt-perf make (\S+)", "\n".join(lines))
    makefile = (repo_root / "Makefile").read_text()
    assert targets == ["demo", "check"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    # What is built on the host is not sent to the builder.
    assert "build" in (repo_root / ".dockerignore").read_text().splitlines()
