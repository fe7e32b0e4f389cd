# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import json
from pathlib import Path

import pytest

from compiler_opt_perf.corpus.corpus import (
    BITCODE_MAGIC,
    Corpus,
    CorpusError,
    split_names,
    write_description,
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in ("p/b", "p/a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.bc").write_bytes(BITCODE_MAGIC + b"rest")
        (tmp_path / f"{name}.cmd").write_bytes(b"-cc1\0-Oz\0-mllvm\0-opt with space=1")
    write_description(tmp_path, ["p/b", "p/a"])
    return tmp_path


def test_modules_come_in_order_with_their_commands(directory: Path) -> None:
    corpus = Corpus.load(directory)
    assert [module.name for module in corpus.modules] == ["p/a", "p/b"]
    assert corpus.modules[0].command == ("-cc1", "-Oz", "-mllvm", "-opt with space=1")
    assert [module.name for module in corpus.subset(["p/b"]).modules] == ["p/b"]
    with pytest.raises(CorpusError, match="no module named p/c"):
        corpus.subset(["p/c"])


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (
            "corpus_description.json",
            b'{"modules": ["p/a"',
            "corpus_description.json:1:19: not JSON",
        ),
        ("corpus_description.json", b"\xff\xfe", "corpus_description.json: not JSON"),
        ("corpus_description.json", b'["p/a"]', "expected"),
        ("corpus_description.json", b'{"modules": [1]}', "expected"),
        ("corpus_description.json", b"[" * 200_000, "not JSON: nested too deep"),
        ("corpus_description.json", b'{"modules": ["\\ud800"]}', "not JSON: .*lone surrogate"),
        ("corpus_description.json", b'{"modules": [1' + b"0" * 5000 + b"]}", "too many digits"),
        ("corpus_description.json", b'{"modules": ["p/a", "p/a"]}', "p/a is there twice"),
        ("corpus_description.json", b'{"modules": [], "has_thinlto": true}', "has_thinlto"),
        (
            "corpus_description.json",
            b'{"modules": [], "global_command_override": ["<UNSPECIFIED>"]}',
            "global_command_override: expected arguments that begin with -cc1",
        ),
        ("corpus_description.json", b'{"modules": [], "global_command_override": 1}', "a list"),
        ("corpus_description.json", None, "not found.*cop corpus extract"),
        ("p/b.cmd", b"-cc1\0-load\0x.so", "p/b.cmd: -load loads code"),
        ("p/b.cmd", b"-cc1\0-fplugin=x.so", "p/b.cmd: -fplugin=x.so loads code"),
        ("p/b.cmd", b"-cc1\0-mllvm\0-load=x.so", "p/b.cmd: -load=x.so loads code"),
        ("p/b.cmd", b"-cc1\0-fthinlto-index=x", "p/b.cmd: -fthinlto-index=x loads code"),
        ("p/b.bc", b"\x7fELF", "p/b.bc: not LLVM bitcode"),
        ("p/b.bc", b"", "p/b.bc: not LLVM bitcode"),
        ("p/b.bc", None, "p/b.bc: No such file.*extract the corpus again"),
        ("p/b.cmd", b"clang -O2", "p/b.cmd: expected arguments that begin with -cc1"),
        ("p/b.cmd", b"-cc1\0\xff", "p/b.cmd: not UTF-8"),
        ("p/b.cmd", None, "p/b.cmd: No such file"),
    ],
)
def test_damage_is_named(directory: Path, file: str, content: bytes | None, message: str) -> None:
    if content is None:
        (directory / file).unlink()
    else:
        (directory / file).write_bytes(content)
    with pytest.raises(CorpusError, match=message):
        Corpus.load(directory)


@pytest.mark.parametrize(
    "name",
    ["../x", "/x", "p/../../x", "p//a", "./p/a", "", "p/", "..", "p/\n", "p/\0", "p/" + 300 * "x"],
)
def test_names_stay_inside_the_corpus(directory: Path, name: str) -> None:
    (directory / "corpus_description.json").write_text(json.dumps({"modules": ["p/a", name]}))
    with pytest.raises(CorpusError, match="is no name of a module: expected a path inside"):
        Corpus.load(directory)


def test_commands_write_nothing_but_their_output(directory: Path, tmp_path: Path) -> None:
    words = ["-cc1", "-O2", "-dependency-file", "/tmp/x.d", "-MT", "x", "-MP", "-o", "x.o"]
    words += ["-opt-record-file", "x.yaml", "-stats-file=x", "-main-file-name", "-x.c"]
    (directory / "p/b.cmd").write_bytes("\0".join(words).encode())
    module = Corpus.load(directory).modules[1]
    assert module.command == ("-cc1", "-O2", "-main-file-name", "-x.c")


def test_one_command_for_all_modules(directory: Path) -> None:
    path = directory / "corpus_description.json"
    description = json.loads(path.read_text())
    path.write_text(json.dumps(description | {"global_command_override": ["-cc1", "-O1"]}))
    for file in directory.rglob("*.cmd"):
        file.unlink()
    assert {module.command for module in Corpus.load(directory).modules} == {("-cc1", "-O1")}


def test_description_is_the_one_of_mlgo_utils(directory: Path) -> None:
    description = json.loads((directory / "corpus_description.json").read_text())
    assert description == {"has_thinlto": False, "modules": ["p/a", "p/b"]}


def test_split_is_stratified_by_program_and_fixed_by_its_seed() -> None:
    names = [f"big/{number}" for number in range(20)] + ["small/a", "small/b"]
    training, held_out = split_names(names, 0.25, seed=1)
    assert sorted(training + held_out) == sorted(names)
    assert sum(name.startswith("big/") for name in held_out) == 5
    assert sum(name.startswith("small/") for name in held_out) == 1
    assert split_names(reversed(names), 0.25, seed=1) == (training, held_out)
    assert split_names(names, 0.25, seed=2) != (training, held_out)
