# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import json
import subprocess
from pathlib import Path

import pytest

from compiler_opt_perf.corpus.corpus import Corpus, CorpusError
from compiler_opt_perf.corpus.extract import FRONTEND, OPTIMIZED, STAGES, extract_corpus
from compiler_opt_perf.corpus.programs import PROGRAMS, program_sources
from compiler_opt_perf.corpus.testing import lua_compile_commands
from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.pmu.binary import PROFILING_FLAGS
from compiler_opt_perf.toolchain.source import debian_source

CLANG = Path("/usr/bin/clang-19")
MODULES = ("lstring", "ltable", "lvm", "lgc")


@pytest.fixture(scope="module")
def lua(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lua")
    return lua_compile_commands(folder, MODULES, ["-O2", *PROFILING_FLAGS.split()])


def _extract(
    commands: Path, output: Path, stage: str, opt_level: str = "-Oz", held_out_share: float = 0.25
) -> tuple[int, int]:
    return extract_corpus(
        {"lua": commands},
        output,
        clang=CLANG,
        opt_level=opt_level,
        stage=stage,
        held_out_share=held_out_share,
        seed=1,
    )


def _text(path: Path) -> bytes:
    section = path.with_suffix(".text")
    dump = ["llvm-objcopy-19", f"--dump-section=.text={section}", str(path), "/dev/null"]
    subprocess.run(dump, check=True)
    return section.read_bytes()


@pytest.mark.parametrize("stage", STAGES)
def test_corpus_compiles_to_the_same_machine_code_as_the_source(
    lua: Path, tmp_path: Path, stage: str
) -> None:
    assert _extract(lua, tmp_path / "corpus", stage) == (3, 1)
    commands = {Path(entry["file"]).stem: entry for entry in json.loads(lua.read_text())}
    compared = 0
    for side in ("train", "held_out"):
        for module in Corpus.load(tmp_path / "corpus" / side).modules:
            from_ir, from_source = tmp_path / "ir.o", tmp_path / "source.o"
            run_command(module.compile_command(CLANG, from_ir))
            entry = commands[module.name.removeprefix("lua/")]
            argv = [CLANG, *entry["command"].split()[1:], "-Oz", "-o", from_source]
            run_command(argv, cwd=Path(entry["directory"]))
            assert _text(from_ir) == _text(from_source)
            compared += 1
    assert compared == len(MODULES)


def test_commands_carry_no_path_of_the_machine(
    lua: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _extract(lua, Path("corpus"), OPTIMIZED, "-O2")
    for module in Corpus.load(tmp_path / "corpus" / "train").modules:
        assert not [word for word in module.command if "/" in word]
        assert "-O2" in module.command and "-disable-llvm-passes" in module.command


def test_a_module_that_does_not_compile_is_left_out_and_named(
    lua: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = tmp_path / "broken.c"
    broken.write_text("int f( {")
    commands = json.loads(lua.read_text())
    commands[0] |= {"file": str(broken), "command": f"clang -c {broken}"}
    edited = tmp_path / "compile_commands.json"
    edited.write_text(json.dumps(commands))
    # Two modules on each side, so that neither is empty without the broken one.
    train, held_out = _extract(edited, tmp_path / "corpus", FRONTEND, held_out_share=0.5)
    assert train + held_out == len(MODULES) - 1
    assert "broken is left out: clang-19: exit status 1" in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[{]", "not JSON: Expecting property name.*line 1"),
        ("{}", "expected a list"),
        ("[]", "holds no compilation"),
        ('[{"file": "a.c", "command": "cc a.c"}]', "entry 0: expected directory"),
        ('[{"directory": "/", "file": "a.c"}]', "entry 0: expected directory"),
        ('["cc a.c"]', "entry 0: expected directory"),
    ],
)
def test_malformed_commands_are_named(tmp_path: Path, content: str, message: str) -> None:
    commands = tmp_path / "compile_commands.json"
    commands.write_text(content)
    with pytest.raises(CorpusError, match=rf"compile_commands.json: {message}"):
        _extract(commands, tmp_path / "corpus", FRONTEND)
    assert not (tmp_path / "corpus").exists()


def test_every_program_of_the_table_has_its_sources() -> None:
    for name in ("lua",):
        program = PROGRAMS[name]
        sources = program_sources(program, debian_source(program.source_package))
        assert len(sources) > 30
        assert not {str(source) for source in sources} & set(program.excluded)
