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
        ("corpus_description.json", b'{"modules": ["p/a"', "corpus_description.json: not JSON"),
        ("corpus_description.json", b"\xff\xfe", "corpus_description.json: not JSON"),
        ("corpus_description.json", b'["p/a"]', "expected"),
        ("corpus_description.json", b'{"modules": [1]}', "expected"),
        ("corpus_description.json", None, "not found.*cop corpus extract"),
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
