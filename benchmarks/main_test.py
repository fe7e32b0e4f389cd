# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import collect, results
from benchmarks.__main__ import main

_HERE = Path(__file__).parent
_BENCHMARKS = set(main.commands) - {"render"}


def test_help_tells_what_a_benchmark_takes() -> None:
    shown = CliRunner().invoke(main, ["--help"], terminal_width=200).output
    for name in sorted(_BENCHMARKS):
        (line,) = re.findall(rf"^  {name} .*$", shown, re.MULTILINE)
        assert re.search(r"[Hh]our|minutes", line), line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["collect", "--only=zlib"], "'zlib' is none of zstd, lmdb, lua, clang"),
        (["rank", "--steps=biuld"], "'biuld' is none of build, record, evaluate, measure"),
        (["policies", "--ways=default,O9"], "'O9' is none of default, "),
        (["policies", '--ways="both policies, shuffled",O9'], "'O9' is none of default, "),
        (["policies", "--layouts=2"], "2 is not in the range x>=3"),
    ],
)
def test_wrong_words_are_named(words: list[str], message: str) -> None:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2 and message in result.output


@pytest.mark.parametrize("name", sorted(_BENCHMARKS))
def test_options_are_what_a_study_takes(name: str) -> None:
    study = importlib.import_module(f"benchmarks.{name.replace('-', '_')}").study
    arguments = inspect.signature(study).parameters
    given = {option.name for option in main.commands[name].params} - {"output"}
    needed = {key for key, one in arguments.items() if one.default is inspect.Parameter.empty}
    assert needed <= given <= set(arguments)


def test_tables_of_some_programs_are_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = results.Table.of("cost", "Cost.", {"program": "text"}, [["lua"]])
    monkeypatch.setattr(collect, "study", lambda **_: [table])
    monkeypatch.setattr(results, "FOLDER", tmp_path / "published")
    folder, published = tmp_path / "folder", tmp_path / "published" / "collect.json"
    shown = CliRunner().invoke(main, ["collect", f"--folder={folder}", "--only=lua"]).output
    assert shown == "Cost.\n\n| program |\n| --- |\n| lua |\n\n"
    assert results.read(folder / "collect.json").table("cost") == table
    assert not published.exists()
    assert not CliRunner().invoke(main, ["collect", f"--folder={folder}"]).exit_code
    assert results.read(published).question.endswith("?")


def test_benchmarks_do_not_import_each_other() -> None:
    benchmarks = {name.replace("-", "_") for name in _BENCHMARKS}
    for name in benchmarks:
        path = _HERE / f"{name}.py"
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                assert node.module.removeprefix("benchmarks.") not in benchmarks, path
