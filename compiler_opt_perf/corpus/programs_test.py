# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds of programs of the table, and the headers that their build systems would write."""

from pathlib import Path

import pytest

from compiler_opt_perf.corpus.program_table import PROGRAMS
from compiler_opt_perf.corpus.programs import (
    ProgramError,
    _from_template,
    build_program,
    program_sources,
    program_tree,
)
from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.execution.llvm import stock_tool

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
