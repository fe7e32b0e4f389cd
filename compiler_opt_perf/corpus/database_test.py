# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Corpora from databases of commands as real build systems write them, and from odd entries."""

import itertools
import json
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from compiler_opt_perf.corpus.command_line import compiler_position, driver_words
from compiler_opt_perf.corpus.corpus import FRONTEND, OPTIMIZED, Corpus, CorpusError, Module
from compiler_opt_perf.corpus.extract import extract_corpus
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool

pytestmark = pytest.mark.compiler

_CLANG = stock_tool("clang")
_SOURCES = {
    "x.c": "int f1(int a) { int s = 0; for (int i = 0; i < a; i++) s += i ^ a; return s; }",
    "x.cpp": "int f2(int a) { int s = 0; for (int i = 0; i < a; i++) s += i * a; return s; }",
    "y.cpp": "#include <assert.h>\nint f3(int a) { assert(a > 3); return a * a; }",
    "main.cpp": "int main() { return 0; }",
}
_CMAKE = """cmake_minimum_required(VERSION 3.20)
project(p C CXX)
add_library(a STATIC x.c x.cpp y.cpp)
add_executable(prog main.cpp)
target_link_libraries(prog a)
"""
_ALL = ["p/main", "p/x.c", "p/x.cpp", "p/y"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The sources of a program; two of them differ by their suffix only."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name, text in _SOURCES.items():
        (folder / name).write_text(f"{text}\n")
    return folder


def _cmake(project: Path, generator: str, *options: str, extra: str = "") -> Path:
    (project / "CMakeLists.txt").write_text(_CMAKE + extra)
    build = project / "build"
    words = ["-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", f"-DCMAKE_C_COMPILER={_CLANG}"]
    words += [f"-DCMAKE_CXX_COMPILER={_CLANG.with_name(_CLANG.name.replace('clang', 'clang++'))}"]
    run_command(["cmake", "-G", generator, "-S", project, "-B", build, *words, *options])
    return build / "compile_commands.json"


def _extract(
    commands: Path, *, stage: str = OPTIMIZED, trusted: bool = False, share: float = 0.5
) -> dict[str, Module]:
    output = commands.parent / "corpus"
    extract_corpus(
        {"p": commands},
        output,
        clang=_CLANG,
        opt_level="-O2",
        stage=stage,
        held_out_share=share,
        seed=1,
        workers=1,
        trusted=trusted,
    )
    corpora = [Corpus.load(output / side) for side in ("train", "held_out")]
    return {module.name: module for corpus in corpora for module in corpus.modules}


def _ir(module: Module) -> str:
    return run_command([stock_tool("llvm-dis"), module.bitcode, "-o", "-"]).stdout


@pytest.mark.parametrize("generator", ["Unix Makefiles", "Ninja", "Ninja Multi-Config"])
def test_each_generator_of_cmake(
    generator: str, project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    modules = _extract(_cmake(project, generator))
    assert sorted(modules) == _ALL
    assert "f1" in _ir(modules["p/x.c"]) and "f2" in _ir(modules["p/x.cpp"])
    if "Multi" in generator:
        # Release, not Debug, whose assertions stay.
        assert "__assert_fail" not in _ir(modules["p/y"])
        assert "4 sources are compiled more than once; taking the command with" in caplog.text
        assert re.search("Release.* -O3 -DNDEBUG and without .*Debug.* -g: p/x.c, ", caplog.text)


def test_all_edges_of_ninja(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    build = _cmake(project, "Ninja", "-DCMAKE_BUILD_TYPE=Release").parent
    run_command(["ninja", "-C", build])
    path = build / "all.json"
    path.write_text(run_command(["ninja", "-C", build, "-t", "compdb"]).stdout)
    assert len(json.loads(path.read_text())) > 10
    assert sorted(_extract(path)) == _ALL
    assert "left out, no C or C++: " in caplog.text and "main.cpp.o" in caplog.text
    assert "modules are left out" not in caplog.text


_PCH = """target_precompile_headers(a PRIVATE <stddef.h>
  "$<$<COMPILE_LANGUAGE:CXX>:<vector$<ANGLE-R>>")
"""
_LTO = "-DCMAKE_INTERPROCEDURAL_OPTIMIZATION=ON"


@pytest.mark.parametrize(("pch", "lto", "built"), list(itertools.product((True, False), repeat=3)))
def test_precompiled_headers_and_lto(
    pch: bool, lto: bool, built: bool, project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Each uses what only the header declares.
    for name in ("x.cpp", "y.cpp") if pch else ():
        source = project / name
        source.write_text(source.read_text() + "std::vector<int> all(size_t n) { return {}; }\n")
    options = ["-DCMAKE_BUILD_TYPE=Release", *([_LTO] if lto else [])]
    path = _cmake(project, "Ninja", *options, extra=_PCH if pch else "")
    if built or pch:
        # CMake writes the header's text as it configures, the compiler its precompiled form.
        run_command(["ninja", "-C", path.parent])
    modules = _extract(path)
    assert sorted(modules) == (["p/" + name for name in ("main", "x.c", "x.cpp", "y")])
    for module in modules.values():
        assert not [word for word in module.command if "/" in word or "lto" in word]
        run_command(module.compile_command(_CLANG, project / "o.o"))
    assert ("compiling without -flto" in caplog.text) == lto
    assert ("a precompiled header is made" in caplog.text) == pch


def test_a_header_that_the_compiler_finds_precompiled(project: Path) -> None:
    (project / "all.h").write_text("#define SEVEN 7\n")
    (project / "z.c").write_text("int z(void) { return SEVEN; }\n")
    run_command([_CLANG, "-x", "c-header", "-O1", "all.h", "-o", "all.h.pch"], cwd=project)
    path = _database(project, ("z.c", "clang -O2 -include all.h -c z.c"))
    assert "ret i32 7" in _ir(_extract(path)["p/z"])


def test_unity_builds(project: Path) -> None:
    modules = _extract(_cmake(project, "Ninja", "-DCMAKE_UNITY_BUILD=ON"))
    assert any("unity" in name for name in modules)


def test_a_launcher_of_cmake(project: Path) -> None:
    launcher = project / "ccache"
    launcher.write_text('#!/bin/sh\ntouch launched\nexec "$@"\n')
    launcher.chmod(0o755)
    options = [f"-DCMAKE_{language}_COMPILER_LAUNCHER={launcher}" for language in ("C", "CXX")]
    build = _cmake(project, "Ninja", *options).parent
    # CMake's own list goes without the launcher.
    path = build / "all.json"
    path.write_text(run_command(["ninja", "-C", build, "-t", "compdb"]).stdout)
    assert str(launcher) in path.read_text()
    assert sorted(_extract(path)) == _ALL
    # Nothing that the database names is started.
    assert not list(project.rglob("launched"))


def test_meson(project: Path) -> None:
    (project / "meson.build").write_text(
        "project('p', 'c', 'cpp', default_options: ['buildtype=release', 'b_lto=true', "
        "'werror=true'])\nexecutable('prog', 'x.c', 'x.cpp', 'y.cpp', 'main.cpp')\n"
    )
    build = project / "build"
    subprocess.run(
        ["meson", "setup", build, project],
        env={"CC": "clang-22", "CXX": "clang++-22", "PATH": "/usr/bin:/bin", "HOME": str(project)},
        check=True,
        capture_output=True,
    )
    assert sorted(_extract(build / "compile_commands.json")) == _ALL


def _database(folder: Path, *entries: tuple[str, str | Sequence[str]]) -> Path:
    content: list[dict[str, Any]] = [
        {"directory": str(folder), "file": file}
        | ({"command": words} if isinstance(words, str) else {"arguments": words})
        for file, words in entries
    ]
    path = folder / "compile_commands.json"
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    "words",
    [
        "ccache cc -O2 -c x.c",
        "/usr/bin/distcc clang -O2 -c x.c",
        "sccache /nowhere/gcc-12 -O2 -c x.c",
        "env LC_ALL=C clang -O2 -c x.c",
        "env -i CC=/bin/gcc ccache clang -O2 -c x.c",
        "nice -n 5 gcc -O2 -c x.c",
        "cmake -E env A=b -- clang -O2 -c x.c",
        "cmake -E __run_co_compile --tidy=clang-tidy --source=x.c -- cc -O2 -c x.c",
        "python3 wrapper.py --flag cc -O2 -c x.c",
        "my-wrapper gcc -O2 -c x.c",
        "nowhere/mycc -O2 -c x.c",
        "mycc -I cc -O2 -c x.c",
        "clang -O2 -c -- x.c",
        "gcc -O2 -Werror -Wno-maybe-uninitialized -c x.c",
        "gcc -O2 -Werror=all -pedantic-errors -Wno-maybe-uninitialized -c x.c",
        "cc -O2 -c x.c y.cpp",
        "clang -O2 -save-temps=obj -fuse-ld=/no/such/linker -c x.c",
        "clang -O2 -fdiagnostics-format=sarif -Wno-sarif-format-unstable -c x.c",
        "clang -O2 -ffile-prefix-map=/a=/b -fdebug-prefix-map=/a=/b -g -c x.c",
        "x86_64-linux-gnu-gcc-12 -O2 -c x.c -o x.o",
        "clang -O2 x.c -o prog",
        "clang -O2 x.c y.cpp -o prog",
        "clang -O2 -MJ x.json --serialize-diagnostics x.dia -c x.c",
        "clang -O2 -Xclang -o -Xclang prog -c x.c",
        "clang -O2 @options",
    ],
)
def test_ways_to_call_a_compiler(words: str, project: Path) -> None:
    (project / "options").write_text("-c\n'x.c'\n")
    modules = _extract(_database(project, ("x.c", words), ("main.cpp", "c++ -O2 -c main.cpp")))
    assert sorted(modules) == ["p/main", "p/x"]
    compiled, expected = project / "compiled.o", project / "expected.o"
    run_command(modules["p/x"].compile_command(_CLANG, compiled))
    debug = "-g" if " -g " in words else "-g0"
    run_command([_CLANG, "-O2", debug, "-c", "x.c", "-o", expected], cwd=project)
    assert _text(compiled) == _text(expected)


def _text(path: Path) -> bytes:
    section = path.with_suffix(".text")
    run_command([stock_tool("llvm-objcopy"), f"--dump-section=.text={section}", path, "/dev/null"])
    return section.read_bytes()


@pytest.mark.parametrize("words", [["-DS=a$b"], ["-DS=a\\b"], ['-DS="a b"'], ["-DS=a\nb"]])
def test_words_reach_the_compiler_as_they_are(words: list[str], project: Path) -> None:
    (project / "a$b.c").write_text("#define STR2(x) #x\n#define STR(x) STR2(x)\nchar t[] = STR(S);")
    path = _database(project, ("a$b.c", ["clang", "-O2", *words, "-c", "a$b.c"]))
    module = _extract(path)["p/a$b"]
    run_command([_CLANG, *words, "-S", "-emit-llvm", "a$b.c", "-o", "a.ll"], cwd=project)
    expected, found = (
        re.search('@t = .* (c".*")', text) for text in ((project / "a.ll").read_text(), _ir(module))
    )
    assert expected and found and expected[1] == found[1]


def test_a_compiler_for_cpp_and_a_cross_compiler_stay_what_they_are(project: Path) -> None:
    (project / "z.c").write_text("class A { public: int b; }; int z(A *a) { return a->b; }\n")
    path = _database(
        project,
        ("z.c", "g++ -O2 -c z.c"),
        ("x.c", "aarch64-linux-gnu-gcc-12 -O2 -c x.c"),
    )
    modules = _extract(path)
    assert "_Z1zP1A" in _ir(modules["p/z"])
    assert 'target triple = "aarch64-unknown-linux-gnu"' in _ir(modules["p/x"])


# Entries that are no compilation, and the reason that is given.
_ODD: tuple[tuple[Any, str], ...] = (
    ({"command": ""}, "no command"),
    ({}, "no command"),
    ({"command": "clang -c 'x.c"}, "No closing quotation"),
    ({"arguments": ["cc", 1]}, "arguments[1]: expected `str`"),
    ({"directory": 1, "command": "cc -c x.c"}, "directory: expected `str`"),
    ({"file": "x.S", "command": "cc -c x.S"}, "no C or C++"),
    ({"file": "x.o", "command": "cc x.o -o prog"}, "no C or C++"),
    ({"file": "x.f90", "command": "gfortran -c x.f90"}, "no C or C++"),
    ({"file": "x.h", "command": "clang++ -x c++-header x.h -o x.pch"}, "no C or C++"),
    ({"command": "clang -x c-header x.c -o x.pch"}, "a precompiled header is made"),
    ({"command": "clang -Xclang -emit-pch -c x.c"}, "a precompiled header is made"),
    ({"command": "clang -cc1 -emit-obj x.c"}, "a call of clang by itself (-cc1)"),
    ({"command": "clang -c x.c && strip x.o"}, "a line for the shell, not the command of one"),
    ({"command": "clang-scan-deps -- clang -c x.c > x.ddi"}, "a line for the shell"),
    ({"command": "ccache --version"}, "no compiler in the command"),
    ({"command": "clang -c other.c"}, "its command does not name it"),
    ("clang -c x.c", "expected `object`"),
    (None, "expected `object`"),
)


@pytest.mark.parametrize(("entry", "reason"), _ODD)
def test_an_odd_entry_does_not_refuse_the_list(
    entry: Any, reason: str, project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if isinstance(entry, dict):
        entry = {"directory": str(project), "file": "x.c"} | entry
    path = _database(project, ("y.cpp", "c++ -O2 -c y.cpp"), ("main.cpp", "c++ -c main.cpp"))
    sound = json.loads(path.read_text())
    path.write_text(json.dumps([entry, *sound]))
    assert sorted(_extract(path)) == ["p/main", "p/y"]
    assert f"left out, {reason}" in caplog.text
    # Alone it is the reason of the refusal.
    path.write_text(json.dumps([entry]))
    with pytest.raises(CorpusError) as caught:
        _extract(path)
    assert "holds no compilation" in str(caught.value) and reason in str(caught.value)


def test_a_record_of_the_compiler_by_itself_comes_first(project: Path) -> None:
    """As Bear writes it."""
    listing = subprocess.run(
        [_CLANG, "-###", "-O2", "-c", "x.c"], cwd=project, capture_output=True, text=True
    )
    line = next(line for line in listing.stderr.splitlines() if '"-cc1"' in line)
    path = _database(
        project,
        ("x.c", shlex.split(line)),
        ("x.c", "clang -O2 -c x.c"),
        ("main.cpp", "clang++ -O2 -c main.cpp"),
    )
    assert sorted(_extract(path)) == ["p/main", "p/x"]


def test_names_differ_where_only_suffixes_do(project: Path) -> None:
    for name in ("x.c.c", "z.c"):
        (project / name).write_text("int z;\n")
    names = ("x.c", "x.cpp", "x.c.c", "z.c")
    modules = _extract(_database(project, *((name, f"clang -O1 -c {name}") for name in names)))
    assert sorted(modules) == ["p/x.c", "p/x.c.c", "p/x.cpp", "p/z"]


def test_the_sides_are_drawn_of_what_could_be_extracted(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever of three sources fails, there is one module for each side."""
    names = ("x.c", "y.cpp", "main.cpp")
    for broken in names:
        entries = [
            (name, f"clang -O2 {'-fbogus=3' if name == broken else ''} -c {name}") for name in names
        ]
        assert len(_extract(_database(project, *entries), share=0.3)) == 2
        output = project / "corpus"
        assert [len(Corpus.load(output / side).modules) for side in ("train", "held_out")] == [1, 1]
        assert sorted(path.name for path in output.iterdir()) == ["held_out", "train"]
    assert "unknown argument: '-fbogus=3'" in caplog.text


@pytest.mark.parametrize(
    "options",
    [
        "-fplugin=./plugin.so",
        "-fpass-plugin=./plugin.so",
        "-Xclang -load -Xclang ./plugin.so",
        "-Xclang -plugin -Xclang x",
        "-Xclang -add-plugin -Xclang x",
        "-Xclang -fpass-plugin=./plugin.so",
        "-mllvm -load=./plugin.so",
        "-mllvm --load -mllvm ./plugin.so",
        "-B.",
        "-B tools",
        "--prefix=tools",
        "--config=x.cfg",
        "--config x.cfg",
        "-wrapper x",
        "-ccc-gcc-name x",
        "--amdgpu-arch-tool=./tool",
        "--nvptx-arch-tool=./tool",
        "--offload-arch-tool=./tool",
        "-fthinlto-distributor=./tool",
        "@file",
        "-mllvm -print-changed-diff-path=./tool -mllvm -print-changed=diff",
        "-mllvm -info-output-file=x.out",
        "-fmodules",
        "-fprofile-instr-use=x",
        "--coverage",
    ],
)
def test_options_that_load_code_or_write_files_are_refused_by_name(
    options: str, project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tool = project / "tool"
    tool.write_text(f"#!/bin/sh\ntouch {project}/started\n")
    tool.chmod(0o755)
    (project / "file").write_text("-fplugin=./plugin.so\n")
    path = _database(project, ("x.c", f"clang -O2 {options} -c x.c"), ("y.cpp", "c++ -c y.cpp"))
    before = {file.name for file in project.iterdir()}
    assert list(_extract(path)) == ["p/y"]
    assert {file.name for file in project.iterdir()} == before | {"corpus"}
    assert "p/x is left out: " in caplog.text
    name = shlex.split(options)[1 if options.startswith(("-Xclang", "-mllvm")) else 0]
    assert ("-fplugin=./plugin.so" if name == "@file" else name.split("=")[0]) in caplog.text


@pytest.mark.parametrize(
    "options",
    [
        "--target=amdgcn-amd-amdhsa -mcpu=native -nogpulib",
        "--target=nvptx64-nvidia-cuda -march=native -nogpulib",
        "--target=amdgcn-amd-amdhsa -mcpu=native -nogpulib -c x.c -sectcreate",
        "-fopenmp=libomp -fopenmp-targets=amdgcn-amd-amdhsa -nogpulib",
        "-fopenmp=libomp -fopenmp-targets=nvptx64-nvidia-cuda --offload-arch=native -nogpulib",
        "-x hip --offload-arch=native -nogpulib -nogpuinc",
        "-x cuda --offload-arch=native -nogpulib -nogpuinc",
        "--driver-mode=cl -xhip /clang:--offload-arch-tool=./offload-arch "
        "/clang:--offload-arch=native",
        "--driver-mode=dxc",
    ],
)
def test_the_driver_starts_no_tool(options: str, project: Path) -> None:
    """It looks for tools that ask for the machine's GPU in its current folder, too."""
    for name in ("amdgpu-arch", "nvptx-arch", "offload-arch"):
        tool = project / name
        tool.write_text(f"#!/bin/sh\ntouch {project}/started\necho gfx900\n")
        tool.chmod(0o755)
    path = _database(project, ("x.c", f"clang {options} -c x.c"), ("y.cpp", "c++ -c y.cpp"))
    assert list(_extract(path)) == ["p/y"]
    assert not (project / "started").exists()


@pytest.mark.parametrize(
    "options",
    [
        "-serialize-diagnostic-file precious",
        "--serialize-diagnostics precious",
        "-Xclang -serialize-diagnostic-file -Xclang precious",
        "-gen-reproducer -MD -MF precious",
        "-gen-reproducer=always -fcrash-diagnostics-dir=crash -MD -MF precious",
        "-Xclang -stats-file=precious -gen-reproducer=error -fbogus",
        "-MJ precious",
        "-MJprecious",
        "-MT -Xclang -MJ precious",
        "-MT -- -MJ precious",
        "-MT -- --serialize-diagnostics precious",
        "-MT -mllvm --config=list",
        "--emit-static-lib -o precious",
        "--emit-static-lib --output=precious",
        "-Xclang -o -Xclang precious",
        "-gen-cdb-fragment-path folder",
        "-save-stats=obj -fproc-stat-report=precious",
        "-ftime-trace=precious",
        "-o precious",
    ],
)
def test_the_driver_and_the_compiler_write_nothing(options: str, project: Path) -> None:
    precious = project / "precious"
    precious.write_text("precious")
    (project / "list").write_text("-MJ precious\n")
    phase = "" if "static" in options else "-c"
    path = _database(project, ("x.c", f"clang {options} {phase} x.c"), ("y.cpp", "c++ -c y.cpp"))
    before = set(project.rglob("*"))
    assert "p/y" in _extract(path)
    corpus = project / "corpus"
    assert {one for one in project.rglob("*") if not one.is_relative_to(corpus)} == before
    assert precious.read_text() == "precious"


@pytest.mark.parametrize("name", ["-stats-file=./x.c", "-load", "@x.c", "-", "--"])
def test_a_source_may_look_like_an_option(name: str, project: Path) -> None:
    """The compiler takes it for a source, not for an option or a list of arguments."""
    source = project / name
    source.parent.mkdir(exist_ok=True)
    source.write_text("int named;\n")
    (project / "x.c").write_text("-stats-file=x.stats\n")
    words = ["clang", "-c", "-xc", "--", name]
    path = _database(project, (name, words), ("y.cpp", "c++ -c y.cpp"))
    before = {file: file.stat().st_mtime_ns for file in project.rglob("*") if file.is_file()}
    modules = _extract(path)
    assert {f: f.stat().st_mtime_ns for f in before} == before
    assert not (project / "x.stats").exists()
    assert "p/y" in modules


def test_files_of_arguments_are_limited(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(20):
        (project / f"f{number}").write_text(f"@f{number + 1} " * 1000)
    (project / "f20").touch()
    (project / "self").write_text("-DA @self\n")
    (project / "long").write_text("-DA " * 1_000_000)
    for name in ("f0", "self", "long"):
        path = _database(project, ("x.c", f"cc -c x.c @{name}"), ("y.cpp", "c++ -c y.cpp"))
        assert list(_extract(path)) == ["p/y"]
    assert caplog.text.count("more than 64 files, or files that name each other") == 2
    assert "long: arguments cannot be read: [Errno 27] has more than 1,048,576" in caplog.text


def test_what_cannot_be_started_or_written_is_left_out(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (project / "y.bc").mkdir()
    (project / "y.bc" / "z.c").write_text("int z;\n")
    path = _database(
        project,
        ("x.c", ["cc", "-c", "x.c", f"-DA={'a' * 200_000}"]),
        ("y.cpp", "c++ -c y.cpp"),
        ("y.bc/z.c", "cc -c y.bc/z.c"),
        ("main.cpp", "c++ -c main.cpp"),
    )
    source = str(project / "x.cpp")
    gone = {"directory": "gone", "file": source, "command": f"cc -c {source}"}
    path.write_text(json.dumps([*json.loads(path.read_text()), gone]))
    assert sorted(_extract(path)) == ["p/main", "p/y"]
    assert re.search("p/x.c is left out: .*: Argument list too long", caplog.text)
    assert re.search("p/x.cpp is left out: .*/gone: No such file or directory", caplog.text)
    assert "p/y.bc/z is left out: its folder cannot be made" in caplog.text


def test_a_trusted_build_may_load_a_plugin(project: Path) -> None:
    plugin = project / "plugin.so"
    (project / "plugin.c").write_text(
        "#include <stdio.h>\n__attribute__((constructor)) static void loaded(void) {"
        f' fclose(fopen("{project}/loaded", "w")); }}\n'
    )
    run_command([_CLANG, "-shared", "-fPIC", "plugin.c", "-o", plugin], cwd=project)
    words = f"clang -O2 -fplugin={plugin} -B. -c x.c"
    path = _database(project, ("x.c", words), ("y.cpp", "c++ -c y.cpp"))
    assert list(_extract(path)) == ["p/y"] and not (project / "loaded").exists()
    modules = _extract(path, trusted=True, stage=FRONTEND)
    assert sorted(modules) == ["p/x", "p/y"] and (project / "loaded").exists()
    assert "plugin" not in " ".join(modules["p/x"].command)


def test_the_compiler_is_found_after_launchers() -> None:
    assert compiler_position(["ccache", "--flag", "x86_64-linux-gnu-g++-12", "-c"]) == 2
    assert compiler_position(["mycc", "-I", "gcc"]) == 0
    assert compiler_position(["ccache", "-s"]) is None
    words = driver_words(["g++", "-c", "--", "x.c"], Path(), ["-O2"])
    assert words[-5:] == ["--driver-mode=g++", "-c", "-O2", "--", "x.c"]
    with pytest.raises(CorpusError, match="arguments cannot be read"):
        driver_words(["cc", "@/nowhere"], Path())
