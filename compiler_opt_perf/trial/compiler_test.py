# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import os
import subprocess
from pathlib import Path

import pytest

from compiler_opt_perf.policy.compiler_flags import flags_without_policies
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.trial.compiler import CompilerScripts, Link

_SOURCE = """
#include <stdio.h>
int main(void) { return __OPTIMIZE_SIZE__ + puts(__VERSION__) < 0; }
"""


@pytest.mark.parametrize(
    ("words", "output"),
    [("a.o -o b/prog", "b/prog"), ("a.o -ob", "b"), ("a.o", "a.out"), ("-o a b.o -o c", "c")],
)
def test_the_output_of_a_link(words: str, output: str) -> None:
    assert Link(Path("/tree"), ("cc", *words.split())).output == Path("/tree", output)


@pytest.fixture
def compiler(tmp_path: Path, toolchain: Toolchain) -> CompilerScripts:
    configuration = tmp_path / "way.cfg"
    configuration.write_text(flags_without_policies(toolchain).configuration())
    made = CompilerScripts(tmp_path / "way folder")
    made.write(toolchain.clang, configuration, "-Oz")
    (tmp_path / "prog.c").write_text(_SOURCE)
    return made


def _build(compiler: CompilerScripts, folder: Path, command: str) -> None:
    env = os.environ | compiler.environment()
    subprocess.run(["sh", "-euc", command], cwd=folder, env=env, check=True)


@pytest.mark.parametrize(
    "command",
    [
        "gcc -O3 -c prog.c && g++ -o prog prog.o",
        "$CC -O0 prog.c -o prog",
        "cc -Werror -c prog.c && $AR cr lib.a prog.o && $RANLIB lib.a && $CXX lib.a -oprog",
        "clang -O2 prog.c && cp a.out prog && strip prog",
    ],
)
def test_compiles_for_all_build_systems_and_finds_the_link(
    compiler: CompilerScripts, tmp_path: Path, command: str
) -> None:
    _build(compiler, tmp_path, command)
    program = tmp_path / "prog"
    # The level is ours, whatever the build says: __OPTIMIZE_SIZE__ is defined at -Oz alone.
    assert "Clang" in run_command([program]).stdout
    link = compiler.link_of(program)
    assert link is not None and link.folder == tmp_path
    again = tmp_path / "again"
    words = [*compiler.relink(link), "-Wl,--strip-all", "-o", str(again)]
    subprocess.run(words, cwd=link.folder, check=True)
    assert run_command([again]).stdout == run_command([program]).stdout


def test_a_program_of_another_compiler_has_no_link(
    compiler: CompilerScripts, tmp_path: Path
) -> None:
    _build(compiler, tmp_path, "gcc -c prog.c; gcc prog.o -o ours; /usr/bin/gcc -Os prog.c -o prog")
    assert compiler.link_of(tmp_path / "prog") is None


def test_shared_libraries_and_questions_are_no_links(
    compiler: CompilerScripts, tmp_path: Path
) -> None:
    _build(compiler, tmp_path, "cc -shared -fPIC prog.c -o lib.so; cc --version; cc -E prog.c")
    assert not list((tmp_path / "way folder" / "links").iterdir())


def test_archives_of_bitcode_are_made_whatever_llvm_is_on_the_path(
    compiler: CompilerScripts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CMake looks for llvm-ar itself; Debian 12's default LLVM, if it is installed, is 14."""
    other = tmp_path / "other"
    other.mkdir()
    for name in ("ar", "ranlib", "llvm-ar", "llvm-ranlib"):
        (other / name).write_text("#!/bin/sh\nexit 1\n")
        (other / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{other}:{os.environ['PATH']}")
    (tmp_path / "part.c").write_text("int part(void) { return 0; }\n")
    _build(
        compiler,
        tmp_path,
        "cc -flto=thin -c part.c && ar rc one.a part.o && ranlib one.a && llvm-ar rcs two.a part.o",
    )
    assert (tmp_path / "one.a").read_bytes() == (tmp_path / "two.a").read_bytes()


def test_configure_finds_machine_code_in_the_objects_of_its_tests(
    compiler: CompilerScripts, tmp_path: Path
) -> None:
    """As CPython's does, which looks for the bytes of a number. Other objects are bitcode."""
    for name in ("conftest.c", "part.c"):
        (tmp_path / name).write_text("double number = 9090423496703681033747047890550501147621.0;")
    with (tmp_path / "way.cfg").open("a") as configuration:
        configuration.write("-flto=thin\n")
    _build(compiler, tmp_path, "cc -c conftest.c && cc -c part.c")
    kinds = [(tmp_path / name).read_bytes()[:4] for name in ("conftest.o", "part.o")]
    assert kinds == [b"\x7fELF", b"BC\xc0\xde"]
