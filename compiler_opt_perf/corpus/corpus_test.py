# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import json
from pathlib import Path

import pytest

from compiler_opt_perf.corpus.corpus import (
    BITCODE_MAGIC,
    Corpus,
    CorpusError,
    describe,
    split_names,
    summary,
    write_description,
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in ("p/b", "p/a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.bc").write_bytes(BITCODE_MAGIC + b"rest")
        (tmp_path / f"{name}.cmd").write_bytes(b"-cc1\0-Oz\0-mllvm\0--inline-threshold=1")
    write_description(tmp_path, ["p/b", "p/a"])
    return tmp_path


def test_modules_come_in_order_with_their_commands(directory: Path) -> None:
    corpus = Corpus.load(directory)
    assert [module.name for module in corpus.modules] == ["p/a", "p/b"]
    assert corpus.modules[0].command == ("-cc1", "-Oz", "-mllvm", "--inline-threshold=1")
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
        ("corpus_description.json", b'["p/a"]', r"\$: expected `object`"),
        ("corpus_description.json", b'{"modules": ["p/a", 1]}', r"\$\.modules\[1\]: exp"),
        ("corpus_description.json", b"[" * 200_000, "not JSON: nested too deep"),
        ("corpus_description.json", b'{"modules": ["\\ud800"]}', "not JSON: .*lone surrogate"),
        ("corpus_description.json", b'{"modules": [1' + b"0" * 5000 + b"]}", "too many digits"),
        ("corpus_description.json", b'{"modules": ["p/a", "p/a"]}', "p/a is listed twice"),
        (
            "corpus_description.json",
            b'{"modules": [], "has_thinlto": 1}',
            r"has_thinlto: expected `bool`",
        ),
        (
            "corpus_description.json",
            b'{"modules": ["p/a"], "has_thinlto": true}',
            "p/a.thinlto.bc: No such file",
        ),
        (
            "corpus_description.json",
            b'{"modules": [], "global_command_override": ["<UNSPECIFIED>"]}',
            "global_command_override is not filled in.*write the options of the link there",
        ),
        (
            "corpus_description.json",
            b'{"modules": [], "global_command_override": ["-O2\\u0000"]}',
            r"\$\.global_command_override\[0\]: expected .*, found \"-O2.*extract the corpus again",
        ),
        (
            "corpus_description.json",
            b'{"modules": [], "global_command_override": 1}',
            "expected `array",
        ),
        ("corpus_description.json", None, "not found.*cop corpus extract"),
        ("p/b.cmd", b"-cc1\0-load\0x.so", "p/b.cmd: -load x.so loads code"),
        ("p/b.cmd", b"-cc1\0-fplugin=x.so", "p/b.cmd: -fplugin=x.so loads code"),
        ("p/b.cmd", b"-cc1\0-mllvm\0-load=x.so", "p/b.cmd: -mllvm -load=x.so loads code"),
        (
            "p/b.cmd",
            b"-cc1\0-mllvm\0-print-changed=diff\0-mllvm\0-print-changed-diff-path=/bin/x",
            "p/b.cmd: -mllvm -print-changed=diff is not known.*; -mllvm -print-changed-diff-path="
            ".*; take it out, or extract the corpus again",
        ),
        ("p/b.cmd", b"-cc1\0-mllvm\0--info-output-file=x", "-mllvm --info-output-file=x is not"),
        (
            "corpus_description.json",
            b'{"modules": [], "global_command_override": ["-mllvm", "-litert-library=/x.so"]}',
            "corpus_description.json: -mllvm -litert-library=/x.so is not known to concern",
        ),
        (
            "p/b.cmd",
            b"-cc1\0-fthinlto-index=x",
            "p/b.cmd: -fthinlto-index=x is of a ThinLTO build, but corpus_description.json",
        ),
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
    [
        *("../x", "/x", "p/../../x", "p//a", "./p/a", "", "p/", "..", "p/\n", "p/\0"),
        *("p/" + 300 * "x", "-load", "-fpass-plugin=./x", "@list", "@p/a"),
    ],
)
def test_names_stay_inside_the_corpus(directory: Path, name: str) -> None:
    (directory / "corpus_description.json").write_text(json.dumps({"modules": ["p/a", name]}))
    with pytest.raises(CorpusError, match="is not a module name: expected a path inside"):
        Corpus.load(directory)


def test_commands_write_nothing_but_their_output(directory: Path, tmp_path: Path) -> None:
    words = ["-cc1", "-O2", "-dependency-file", "/tmp/x.d", "-MT", "x", "-MP", "-o", "x.o"]
    words += ["-opt-record-file", "x.yaml", "-stats-file=x", "-main-file-name", "-x.c"]
    (directory / "p/b.cmd").write_bytes("\0".join(words).encode())
    module = Corpus.load(directory).modules[1]
    assert module.command == ("-cc1", "-O2")


def test_one_command_for_all_modules(directory: Path) -> None:
    path = directory / "corpus_description.json"
    description = json.loads(path.read_text())
    path.write_text(json.dumps(description | {"global_command_override": ["-cc1", "-O1"]}))
    for file in directory.rglob("*.cmd"):
        file.unlink()
    assert {module.command for module in Corpus.load(directory).modules} == {("-cc1", "-O1")}
    # LLVM's make_corpus writes any options of clang.
    words = ["-O2", "-c", "-march=x86-64-v3", "-Xclang", "-disable-llvm-passes"]
    path.write_text(json.dumps(description | {"global_command_override": words}))
    expected = ("-c", *(word for word in words if word != "-c"))
    first, second = Corpus.load(directory).modules
    assert first.command == second.command == expected
    # What is added are arguments of -cc1 then, too.
    assert first.compile_command(Path("clang"), Path("o"), ["-opt-record-file", "x"])[-9:-5] == [
        *("-Xclang", "-opt-record-file", "-Xclang", "x"),
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["-O2", "-o", "x.o"],
        ["-fplugin=x.so"],
        ["-Xclang", "-load", "-Xclang", "x.so"],
        ["-mllvm", "-load=x.so"],
        ["-fsave-optimization-record"],
        ["-B/tmp"],
        ["--config=x"],
        ["@file"],
        ["x.c"],
        ["-Wl,-o,x"],
        ["-Wa,x"],
        ["-save-temps"],
    ],
)
def test_options_of_the_driver_concern_the_code_alone(directory: Path, words: list[str]) -> None:
    path = directory / "corpus_description.json"
    path.write_text(json.dumps({"modules": ["p/a"], "global_command_override": words}))
    with pytest.raises(CorpusError, match=r"description.json: \S+ .*; take it out, or extract the"):
        Corpus.load(directory)


def test_modules_of_a_thinlto_build_have_their_index(directory: Path) -> None:
    # As LLVM's extract_ir writes it of a distributed build: commands name the index of the build.
    (directory / "corpus_description.json").write_text(
        json.dumps({"has_thinlto": True, "modules": ["p/a", "p/b"]})
    )
    (directory / "p/a.cmd").write_bytes(b"-cc1\0-O2\0-fthinlto-index=gone/a.thinlto.bc\0")
    (directory / "p/a.thinlto.bc").write_bytes(BITCODE_MAGIC)
    (directory / "p/b.thinlto.bc").write_bytes(b"")
    module, other = Corpus.load(directory).modules
    index = directory / "p/a.thinlto.bc"
    assert module.inputs == (directory / "p/a.bc", index)
    assert module.compile_command(Path("clang"), Path("a.o"), ["-x1"]) == [
        *("clang", "-cc1", "-O2", f"-fthinlto-index={index}", "-mllvm", "-thinlto-assume-merged"),
        *("-x1", "-o", "a.o", "-x", "ir", str(directory / "p/a.bc")),
    ]
    assert other.thinlto_index == directory / "p/b.thinlto.bc"
    (directory / "p/b.thinlto.bc").write_bytes(b"no")
    with pytest.raises(CorpusError, match="p/b.thinlto.bc: no index of a thin link"):
        Corpus.load(directory)


def test_a_corpus_is_described(directory: Path) -> None:
    (directory / "p/b.cmd").write_bytes(b"-cc1\0-O2\0-disable-llvm-passes")
    assert describe(summary(Corpus.load(directory))).splitlines() == [
        "modules    2, 16 bytes",
        "programs   p 2",
        "levels     -Oz 1, -O2 1",
        "passes     run on 1 modules; the others are optimised already",
        "ThinLTO    0 modules with the index of a thin link",
    ]
    write_description(directory, [])
    assert describe(summary(Corpus.load(directory))).startswith("modules    0, 0 bytes")


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


def test_a_folder_of_corpora_is_told_from_none(directory: Path, tmp_path: Path) -> None:
    folder = tmp_path / "both"
    for side in ("train", "held_out"):
        (folder / side).mkdir(parents=True)
        write_description(folder / side, [])
    with pytest.raises(CorpusError, match=f"name one of them: {folder}/held_out, {folder}/train"):
        Corpus.load(folder)
    with pytest.raises(CorpusError, match="`cop corpus extract` makes corpora"):
        Corpus.load(tmp_path / "none")
