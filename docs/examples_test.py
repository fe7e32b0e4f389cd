# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The examples for build bots: they can be read, and call commands that there are."""

import importlib.util
import re
import shlex
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from compiler_opt_perf.cli.main import find_verb

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


def _require_known(words: list[str], root: Path) -> str:
    """Refuses a command that there is not; returns the verb, or the script."""
    if words[0] != COP:
        assert (root / words[0]).is_file(), words
        return words[0]
    verb, rest = find_verb(words[1:])
    values, _ = verb.parse(rest)
    for name in ("model", "limits"):
        if name in values and values[name].value:
            assert (root / values[name].value).exists(), words
    return verb.name


def test_the_factory_of_buildbot_calls_verbs_that_there_are(
    buildbot: None, repo_root: Path
) -> None:
    spec = importlib.util.spec_from_file_location("factory", EXAMPLES / "buildbot_factory.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (steps,) = module.gate_factory("https://example.org/repository.git", "/srv/gate").arguments
    commands = [step.named["command"] for step in steps if "command" in step.named]
    verbs = [_require_known(command, repo_root) for command in commands]
    assert verbs == ["tools/bootstrap", "toolchain build", "gate check", "gate history"]


def _commands(script: str) -> Iterator[list[str]]:
    for line in script.splitlines():
        words = shlex.split(line)
        if words[0].startswith(("build/", "tools/")):
            yield words


def test_the_workflow_of_github_calls_verbs_that_there_are(repo_root: Path) -> None:
    workflow = yaml.safe_load((EXAMPLES / "gate-workflow.yml").read_text())
    # YAML 1.1 takes the word `on` for true.
    assert workflow.keys() == {"name", True, "permissions", "concurrency", "jobs"}
    (job,) = workflow["jobs"].values()
    scripts = [step["run"] for step in job["steps"] if "run" in step]
    verbs = [_require_known(words, repo_root) for script in scripts for words in _commands(script)]
    assert verbs == ["tools/bootstrap", "toolchain build", "gate check"]
    # What a check writes is what is shown and kept.
    written = re.findall(r"--(?:junit|markdown|measured)=(\S+)", "\n".join(scripts))
    (kept,) = (
        step["with"]["path"].split() for step in job["steps"] if "path" in step.get("with", {})
    )
    assert sorted(written) == sorted(kept)


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
