# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import json
import re
import subprocess
from pathlib import Path

import pytest

from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.corpus.corpus import FRONTEND, OPTIMIZED, Corpus, CorpusError
from compiler_opt_perf.corpus.extract import extract_corpus
from compiler_opt_perf.corpus.program_table import PROGRAMS
from compiler_opt_perf.corpus.programs import program_sources, program_tree
from compiler_opt_perf.corpus.testing import lua_compile_commands
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.files import FileWriteError
from compiler_opt_perf.run.llvm import stock_tool

CLANG = Path("/usr/bin/clang-22")
MODULES = ("lstring", "ltable", "lvm", "lgc")


@pytest.fixture(scope="module")
def lua(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lua")
    return lua_compile_commands(folder, MODULES, ["-O2", *PROFILING_FLAGS.split()])


def _extract(
    commands: Path,
    output: Path,
    stage: str,
    opt_level: str = "-Oz",
    held_out_share: float = 0.25,
    debug_info: bool = True,
) -> tuple[int, int]:
    return extract_corpus(
        {"lua": commands},
        output,
        clang=CLANG,
        opt_level=opt_level,
        stage=stage,
        held_out_share=held_out_share,
        debug_info=debug_info,
        seed=1,
    )


def _text(path: Path) -> bytes:
    section = path.with_suffix(".text")
    dump = ["llvm-objcopy-22", f"--dump-section=.text={section}", str(path), "/dev/null"]
    subprocess.run(dump, check=True)
    return section.read_bytes()


def _assembly(bitcode: Path) -> str:
    return run_command([stock_tool("llvm-dis"), bitcode, "-o", "-"]).stdout


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("stage", "debug_info"), [(FRONTEND, True), (OPTIMIZED, True), (FRONTEND, False)]
)
def test_corpus_compiles_to_the_same_machine_code_as_the_source(
    lua: Path, tmp_path: Path, stage: str, debug_info: bool
) -> None:
    assert _extract(lua, tmp_path / "corpus", stage, debug_info=debug_info) == (3, 1)
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
            assert ("DICompileUnit" in _assembly(module.bitcode)) == debug_info
            compared += 1
    assert compared == len(MODULES)


@pytest.mark.compiler
def test_commands_carry_no_path_of_the_machine(
    lua: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _extract(lua, Path("corpus"), OPTIMIZED, "-O2")
    for module in Corpus.load(tmp_path / "corpus" / "train").modules:
        assert not [word for word in module.command if "/" in word]
        assert "-O2" in module.command and "-disable-llvm-passes" in module.command


@pytest.mark.compiler
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
    assert "broken is left out: clang-22: exit status 1" in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[{]", "not JSON: Expecting property name"),
        ("[" * 200_000, "not JSON: nested too deep"),
        ("{}", r"\$: expected `array`"),
        ("[]", "holds no compilation; write it with"),
    ],
)
def test_malformed_lists_are_refused(tmp_path: Path, content: str, message: str) -> None:
    commands = tmp_path / "compile_commands.json"
    commands.write_text(content)
    with pytest.raises(CorpusError, match=rf"compile_commands.json(:\d+:\d+)?: {message}"):
        _extract(commands, tmp_path / "corpus", FRONTEND)
    assert not (tmp_path / "corpus").exists()


def compile_commands(folder: Path, flags: str = "") -> Path:
    """A build of two programs' worth of sources in `folder`, that writes dependencies, too."""
    for name in ("one", "two", "three"):
        (folder / f"{name}.c").write_text(f"int {name}(int X) {{ return X * 3; }}")
    path = folder / "compile_commands.json"
    entries = [
        {
            # Relative to the file.
            "directory": ".",
            "file": f"{name}.c",
            "command": f"clang -O2 {flags} -MD -MF {name}.d -c {name}.c -o {name}.o",
        }
        for name in ("one", "two", "three")
    ]
    path.write_text(json.dumps(entries))
    return path


@pytest.mark.compiler
def test_files_of_others_are_not_deleted(tmp_path: Path) -> None:
    commands = compile_commands(tmp_path)
    output = tmp_path / "corpus"
    assert _extract(commands, output, FRONTEND) == (2, 1)
    # Its own work is replaced, also that of other commands.
    assert _extract(commands, output, FRONTEND, held_out_share=0.5) == (1, 2)
    for path in (output / "notes", output / "train" / "lua" / "notes"):
        path.write_text("x")
        with pytest.raises(FileWriteError, match="holds files that this command did not write"):
            _extract(commands, output, FRONTEND)
        assert path.read_text() == "x"
        path.unlink()
    # Where the commands are.
    with pytest.raises(FileWriteError, match="choose a new or empty output folder"):
        _extract(commands, tmp_path, FRONTEND)
    assert commands.exists()
    with pytest.raises(FileWriteError, match="is not a folder"):
        _extract(commands, commands, FRONTEND)
    (tmp_path / "empty").mkdir()
    assert _extract(commands, tmp_path / "empty", FRONTEND) == (2, 1)


@pytest.mark.parametrize("program", ["", "..", "a/b", "/a", ".hidden", "a\n"])
def test_names_of_programs_stay_inside_the_output(program: str, tmp_path: Path) -> None:
    commands = compile_commands(tmp_path)
    with pytest.raises(CorpusError, match="cannot be the name of a program"):
        extract_corpus(
            {program: commands},
            tmp_path / "corpus",
            clang=CLANG,
            opt_level="-Oz",
            stage=FRONTEND,
            held_out_share=0.5,
            seed=1,
        )
    assert not (tmp_path / "corpus").exists()


@pytest.mark.compiler
def test_files_of_the_build_stay_as_they_are(tmp_path: Path) -> None:
    commands = compile_commands(tmp_path)
    (tmp_path / "one.d").write_text("kept")
    _extract(commands, tmp_path / "corpus", FRONTEND)
    assert (tmp_path / "one.d").read_text() == "kept"
    assert not (tmp_path / "two.d").exists()


@pytest.mark.compiler
@pytest.mark.parametrize(
    "flag",
    [
        "-fprofile-sample-use=profile",
        "-fprofile-instr-use=profile",
        "-fsanitize-coverage-allowlist=list",
    ],
)
def test_flags_that_a_corpus_cannot_hold_are_refused_by_name(
    tmp_path: Path, flag: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "profile").write_text("one:1:1\n 1: 1\n")
    (tmp_path / "list").write_text("fun:one\n")
    if "instr" in flag:
        text = tmp_path / "profile"
        text.write_text("one\n0\n1\n1\n")
        run_command([stock_tool("llvm-profdata"), "merge", text, "-o", tmp_path / "binary"])
        (tmp_path / "binary").replace(text)
    sanitizer = "-fsanitize-coverage=func,trace-pc-guard" if "sanitize" in flag else ""
    with pytest.raises(CorpusError, match="no module could be extracted"):
        _extract(compile_commands(tmp_path, f"{flag} {sanitizer}"), tmp_path / "corpus", FRONTEND)
    assert re.search(
        r"lua/one is left out: compiled with -f\S+=\S+ names a file that a corpus cannot hold",
        caplog.text,
    )


@pytest.mark.compiler
def test_flags_that_change_the_code_are_kept(tmp_path: Path) -> None:
    flags = "-fsanitize=address -fveclib=libmvec -fno-plt -fstack-protector-all -fwrapv"
    _extract(compile_commands(tmp_path, flags), tmp_path / "corpus", FRONTEND)
    (module,) = [
        module
        for side in ("train", "held_out")
        for module in Corpus.load(tmp_path / "corpus" / side).modules
        if module.name == "lua/one"
    ]
    assert {"-fsanitize=address", "-fveclib=libmvec"} < set(module.command)
    run_command(module.compile_command(CLANG, tmp_path / "ir.o"))
    source, output = tmp_path / "one.c", tmp_path / "source.o"
    run_command([CLANG, *flags.split(), "-Oz", "-c", source, "-o", output])
    assert _text(tmp_path / "ir.o") == _text(tmp_path / "source.o")


@pytest.mark.compiler
def test_of_two_commands_for_a_source_the_difference_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    commands = compile_commands(tmp_path)
    entries = json.loads(commands.read_text())
    # The same once more says nothing; another object of it, neither.
    again = entries[0] | {"command": entries[0]["command"].replace("one.o", "again.o")}
    # As Ninja's Multi-Config writes it: that without optimisation is the first.
    debug = entries[1] | {"command": "clang -g -DTWICE=1 -c two.c"}
    commands.write_text(json.dumps([debug, *entries, entries[2], again]))
    assert _extract(commands, tmp_path / "corpus", FRONTEND) == (2, 1)
    assert [record.getMessage() for record in caplog.records if "more than" in record.message] == [
        f"{commands}: 1 sources are compiled more than once; taking the command with -O2 and "
        "without -g -DTWICE=1: lua/two"
    ]


def test_every_program_of_the_table_has_its_sources() -> None:
    for name in ("lua",):
        program = PROGRAMS[name]
        sources = program_sources(program, program_tree(program))
        assert len(sources) > 30
        assert not {str(source) for source in sources} & set(program.excluded)
