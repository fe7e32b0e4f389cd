# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds of programs of the table, and the headers that their build systems would write."""

import shutil
from pathlib import Path

import pytest

from compiler_opt_perf.corpus import programs
from compiler_opt_perf.corpus.program_table import PROGRAMS, Program
from compiler_opt_perf.corpus.programs import (
    ProgramError,
    _from_template,
    build_program,
    extract_programs,
    program_modules,
    program_sources,
    program_tree,
    sqlite_amalgamation,
)
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.files import write_text
from compiler_opt_perf.run.llvm import stock_tool

FLAGS = ("-Oz", "-ffunction-sections")


def test_a_template_becomes_a_header() -> None:
    template = (
        "#cmakedefine HAVE_A\n"
        "  #  cmakedefine HAVE_B ${B}\n"
        "#cmakedefine HAVE_C @C@\n"
        "#if @HAVE_A@ && @HAVE_C@\n"
        "namespace @NAME@ {} // ${NAME}, $NAME, a@b.org\n"
    )
    values = {"HAVE_A": "1", "HAVE_B": "1", "B": "2", "NAME": "n"}
    assert _from_template(template, values) == (
        "#define HAVE_A\n"
        "#define HAVE_B 2\n"
        "/* #undef HAVE_C */\n"
        "#if 1 && 0\n"
        "namespace n {} // n, $NAME, a@b.org\n"
    )


def _text_bytes(file: Path) -> int:
    return int(run_command([stock_tool("llvm-size"), file]).stdout.splitlines()[1].split()[0])


@pytest.mark.compiler
def test_a_library_in_cxx_is_built_and_linked(tmp_path: Path) -> None:
    program = PROGRAMS["gflags"]
    assert program.is_library
    built = build_program(
        program, program_tree(program), tmp_path, clang=stock_tool("clang"), flags=FLAGS
    )
    objects = sorted(tmp_path.rglob("*.o"))
    assert len(objects) == 3
    separate = sum(map(_text_bytes, objects))
    # Functions that several objects have are once in the image.
    assert 0.5 * separate < _text_bytes(built.binary) < separate


def test_sources_that_do_not_belong_are_left_out() -> None:
    program = PROGRAMS["cppunit"]
    sources = {path.name for path in program_sources(program, program_tree(program))}
    assert "TestCase.cpp" in sources
    assert not sources & {"DllMain.cpp", "Win32DynamicLibraryManager.cpp"}


def test_another_tree_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=r"no file matches src/gflags\*\.cc; is it the source"):
        program_sources(PROGRAMS["gflags"], tmp_path)


@pytest.mark.compiler
def test_an_amalgamation_is_made_once_of_each_version(tmp_path: Path) -> None:
    tree, output = tmp_path / "tree", tmp_path / "output"
    (tree / "test").mkdir(parents=True)
    (tree / "test" / "speedtest1.c").write_text("int main(void) { return 0; }\n")
    configure = tree / "configure"
    recipe = f"cp {tree}/manifest.uuid sqlite3.c; touch sqlite3.h"
    configure.write_text(f"#!/bin/sh\nprintf 'sqlite3.c:\\n\\t{recipe}\\n' > Makefile\n")
    configure.chmod(0o755)
    for version in ("one", "two"):
        (tree / "manifest.uuid").write_text(f"{version}\n")
        assert sqlite_amalgamation(tree, output) == output
        assert (output / "sqlite3.c").read_text() == f"{version}\n"
        written = (output / "sqlite3.c").stat().st_mtime_ns
        sqlite_amalgamation(tree, output)
        assert (output / "sqlite3.c").stat().st_mtime_ns == written
    (output / "speedtest1.c").unlink()
    sqlite_amalgamation(tree, output)
    assert (output / "speedtest1.c").exists()


@pytest.mark.compiler
def test_modules_are_extracted_once_from_the_same_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(name="small", source_package="none", sources=("*.c",))
    source = tmp_path / "tree" / "small.c"
    write_text(source, "int small(int x) { return x + 1; }\n")
    write_text(source.with_name("other.c"), "int other(int x) { return x - 1; }\n")
    corpus = tmp_path / "corpus"
    monkeypatch.setitem(PROGRAMS, "small", program)
    monkeypatch.setattr(programs, "program_tree", lambda _: source.parent)

    def extracted(flags: tuple[str, ...] = ()) -> int:
        extract_programs(
            ["small"],
            tmp_path / "builds",
            corpus,
            flags=("-Oz", *flags),
            opt_level="-Oz",
            stage="inline",
            held_out_share=0.5,
        )
        return (corpus / "train" / "corpus_description.json").stat().st_mtime_ns

    first = extracted()
    assert extracted() == first
    with_flags = extracted(("-fno-inline",))
    assert with_flags > first
    write_text(source, "int small(int x) { return x + 2; }\n")
    changed = extracted(("-fno-inline",))
    assert changed > with_flags
    shutil.rmtree(corpus)
    assert extracted(("-fno-inline",)) > changed


@pytest.mark.compiler
def test_a_program_of_one_source_has_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    program = Program(name="small", source_package="none", sources=("*.c",))
    source = tmp_path / "tree" / "small.c"
    write_text(source, "int small(int x) { return x + 1; }\n")
    monkeypatch.setitem(PROGRAMS, "small", program)
    monkeypatch.setattr(programs, "program_tree", lambda _: source.parent)
    for _ in range(2):
        folders = (tmp_path / "builds", tmp_path / "corpora")
        modules = program_modules("small", *folders, opt_level="-Oz", stage="frontend")
        assert [module.name for module in modules] == ["small/small"]
    # It was extracted once.
    assert caplog.text.count("no module is held out") == 1
