# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Commands that messages name: those that there are, with flags that they have."""

import ast
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from compiler_opt_perf.cli.main import find_command, run
from compiler_opt_perf.cli.verb import Group
from compiler_opt_perf.toolchain.build import check_models
from compiler_opt_perf.toolchain.installation import Toolchain, build_advice
from compiler_opt_perf.toolchain.layout import BUILD, REPO_ROOT, ToolchainError
from compiler_opt_perf.toolchain.model_inputs import MODELS

_PACKAGE = REPO_ROOT / "compiler_opt_perf"
# Of usage lines.
_PLACEHOLDERS = {"VERB", "FIELD"}


def _texts() -> Iterator[tuple[str, str]]:
    """All strings of the package but docstrings, with file and line; a field is a word."""
    for path in sorted(_PACKAGE.glob("**/*.py")):
        if path.name.endswith("_test.py"):
            continue
        tree = ast.parse(path.read_text())
        described = [
            node.body[0].value
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        ]
        parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
                 for part in ast.walk(node) if part is not node}  # fmt: skip
        for node in ast.walk(tree):
            if id(node) in parts or node in described:
                continue
            place = f"{path.relative_to(_PACKAGE)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield place, node.value
            elif isinstance(node, ast.JoinedStr):
                yield (
                    place,
                    "".join(
                        str(part.value) if isinstance(part, ast.Constant) else "FIELD"
                        for part in node.values
                    ),
                )


def _commands(text: str) -> Iterator[str]:
    """What begins with `cop`: words and flags up to anything else."""
    for found in re.finditer(r"(?<![\w./-])cop((?: --?[\w.-]+(?:=[^\s`,;)]*)?| [\w-]+)*)", text):
        yield found[1].strip()


def _mistake(command: str) -> bool:
    """Whether what follows `cop` is no verb, or has flags that the verb does not have."""
    found, _, words = find_command(command.split())
    if isinstance(found, Group):
        return bool(words) and words[0] not in {*_PLACEHOLDERS, "--help"}
    known = {name for one in found.params for name in (*one.opts, *one.secondary_opts)}
    own = itertools.takewhile(lambda word: word != "--", words)
    flags = {word.partition("=")[0] for word in own if word.startswith("--")}
    return not flags <= {*known, "--help"}


@pytest.mark.parametrize(
    ("text", "mistaken"),
    [
        ("record it again (cop trace record)", False),
        ("record it again (cop collect)", True),
        ("write it with `cop gate check --store`", False),
        ("write it with `cop gate chekc --store`", True),
        ("write it with `cop gate check --sotre=a.db` first", True),
        ("build it: cop toolchain build --toolchain=FIELD --inline-model=FIELD", False),
        ("build it: cop toolchain build --set=FIELD", True),
        ("profile it: cop profile collect --binary=a -- --not-ours", False),
    ],
)
def test_mistakes_are_found(text: str, mistaken: bool) -> None:
    (command,) = _commands(text)
    assert _mistake(command) == mistaken


def test_commands_in_messages_exist() -> None:
    commands = [(place, one) for place, text in _texts() for one in _commands(text)]
    assert not [f"{place}: cop {one}" for place, one in commands if _mistake(one)]
    assert len(commands) > 50


def test_targets_and_tools_in_messages_exist() -> None:
    makefile = (REPO_ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    named = set()
    for place, text in _texts():
        for target in re.findall(r"\b(?:run|by) `?make ([a-z][\w-]+)", text):
            named.add(target)
            assert target in targets, place
        for tool in re.findall(r"\brun (tools/[\w/-]+)", text):
            named.add(tool)
            assert (REPO_ROOT / tool).exists(), place
    assert {"tools/bootstrap", "tools/patches/series"} <= named


_FOLDERS = [
    *(BUILD / "toolchain" / name for name in ("dev", "mock", "mine")),
    *map(Path, ("/opt/mine", "/opt/dev", "/opt/a set", "here")),
]


@pytest.mark.parametrize("folder", _FOLDERS, ids=str)
@pytest.mark.parametrize("number", range(len(MODELS) + 1))
def test_the_advised_build_is_not_refused(folder: Path, number: int) -> None:
    for models in itertools.combinations(MODELS, number):
        given = {model.option: "a policy" for model in models}
        advice = build_advice(folder, given)
        (command,) = re.findall(r"`cop (.*)`, in ", advice)
        verb, name, words = find_command(shlex.split(command))
        assert name == "cop toolchain build"
        values = verb.make_context(name, words).params
        # Refuses what it cannot build.
        place = values["toolchain"]
        chosen = check_models(place.name, values["inline_model"], values["evict_model"])
        assert {model.option for model in chosen} >= given.keys()
        assert place.parent == BUILD / "toolchain"
        place = values["output"] or place
        assert advice.endswith(f", in {place}")
        # Its models are those that were asked for, so it is not another set that is overwritten.
        if not given:
            assert place == folder or folder.name == "a set"


@pytest.mark.compiler
def test_the_advice_of_a_comparison_is_followed(
    tmp_path: Path, toolchain: Toolchain, capsys: pytest.CaptureFixture[str]
) -> None:
    """A set without the policy is named: the answer is a command that makes one with it."""
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "corpus_description.json").write_text('{"modules": []}')
    policy = REPO_ROOT / "models" / "inline-size"
    words = ["compare", "policy", "--problem=inline-size", f"--corpus={tmp_path / 'corpus'}"]
    words += [f"--model={policy}", f"--release-toolchain={toolchain.directory}", "--output=c.json"]
    assert run(words) == 1
    shown = capsys.readouterr().err
    (command,) = re.findall(r"`cop (.*)`", shown)
    verb, name, given = find_command(shlex.split(command))
    values = verb.make_context(name, given).params
    assert check_models(values["toolchain"].name, values["inline_model"], values["evict_model"])
    with pytest.raises(ToolchainError, match="this set's models are fixed"):
        check_models(toolchain.directory.name, policy, None)
