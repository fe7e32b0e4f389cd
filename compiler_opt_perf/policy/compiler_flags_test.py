# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of the flags of a build, on a program that CMake builds with the patched compiler."""

import dataclasses
import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.policy.compiler_flags import compiler_flags
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT, ToolchainError

pytestmark = pytest.mark.compiler

_LIT = REPO_ROOT / "lit_tests"
_MODELS = {
    "inline-size": _LIT / "Inputs" / "inline-one-block",
    "regalloc-evict": _LIT / "Inputs" / "evict-last",
}
# Several files, a static and a shared library: what CMake links in different ways. -Werror finds
# unused arguments and warnings, and the repeated option what CMake makes of such.
_FILES = {
    "CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.25)
project(program C CXX)
add_compile_options(-Wall -Werror "SHELL:-mllvm -inline-threshold=100")
add_link_options(-Werror)
add_library(one STATIC one.cpp unused.c)
add_library(two SHARED two.c)
add_executable(program main.cpp)
target_link_libraries(program one two)
""",
    "main.cpp": """\
#include <cstdio>
int one(int);
extern "C" int two(int);
int main(int argc, char **) {
  int sum = 0;
  for (int i = 0; i < 10 * argc; ++i)
    sum += one(i) + two(i);
  std::printf("%d\\n", sum);
}
""",
    "one.cpp": """\
static int clamp(int x, int low, int high) { return x < low ? low : x > high ? high : x; }
int one(int x) { return clamp(x, 2, 7) * clamp(x, 1, 5) - clamp(x, 0, 3); }
""",
    "two.c": "int two(int x) { return x * x; }\n",
    # The program does not link it, so that the profile knows none of its functions.
    "unused.c": "".join(f"int f{n}(int *p) {{ return p[{n}]; }}\n" for n in range(60)),
}


def _build(folder: Path, *definitions: str) -> Path:
    """Builds `_FILES` with CMake, in `folder/build`; returns the program."""
    folder.mkdir(exist_ok=True)
    for name, text in _FILES.items():
        (folder / name).write_text(text)
    shutil.rmtree(folder / "build", ignore_errors=True)
    run_command(
        ["cmake", "-G", "Ninja", "-S", folder, "-B", folder / "build", *definitions],
        timeout_s=300,
        env={"CFLAGS": "", "CXXFLAGS": "", "LDFLAGS": ""},
    )
    run_command(["ninja", "-C", folder / "build", "-v"], timeout_s=300)
    program = folder / "build" / "program"
    assert run_command([program], timeout_s=60).stdout.strip() == "454"
    return program


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lit tests' profile, in the form that the compiler reads."""
    folder = tmp_path_factory.mktemp("profile") / "inputs"
    shutil.copytree(_LIT / "PMUProfile" / "Inputs", folder)
    manifest = folder / "foo.pmu.json"
    (folder / "names.txt").write_text("main\n")
    listed = {"functions": {"file": "foo.functions", "names": "names.txt"}}
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | listed))
    run_command([sys.executable, _LIT / "Inputs" / "seal.py", manifest])
    return manifest


@pytest.mark.parametrize("lto", [False, True], ids=["objects", "thinlto"])
@pytest.mark.parametrize("profiled", [False, True], ids=["plain", "profile"])
@pytest.mark.parametrize("models", [{}, _MODELS], ids=["release", "development"])
def test_cmake_builds_with_one_flag(
    models: dict[str, Path],
    profiled: bool,
    lto: bool,
    toolchain: Toolchain,
    profile: Path,
    tmp_path: Path,
) -> None:
    flags = compiler_flags(toolchain, models, profile if profiled else None)
    configuration = tmp_path / "flags.cfg"
    configuration.write_text(flags.configuration())
    definitions = [f"-D{k}={v}" for k, v in flags.cmake_definitions(configuration).items()]
    definitions += ["-DCMAKE_BUILD_TYPE=MinSizeRel"]
    if lto:
        # CMake's own switch is thin LTO for clang.
        definitions.append("-DCMAKE_INTERPROCEDURAL_OPTIMIZATION=ON")
    _build(tmp_path / "source", *definitions)
    cache = (tmp_path / "source" / "build" / "CMakeCache.txt").read_text()
    assert f"CMAKE_AR:FILEPATH={toolchain.clang.with_name('llvm-ar')}" in cache


def _remarks(words: list[str], folder: Path) -> str:
    """Compiles and links the files of `_FILES`; the remarks of the link's decisions, as YAML."""
    folder.mkdir()
    for name, text in _FILES.items():
        (folder / name).write_text(text)
    remarks = folder / "remarks"
    run_command(
        [*words, "-Werror", "-Oz", "-flto=thin", "main.cpp", "one.cpp", "-xc", "two.c",
         f"-Wl,--opt-remarks-filename,{remarks},--opt-remarks-passes,inline-ml",
         "-o", "program"],
        cwd=folder,
        timeout_s=300,
    )  # fmt: skip
    run_command([folder / "program"], timeout_s=60)
    written = sorted(folder.glob("remarks*"))
    return "".join(path.read_text() for path in written)


def _clang(toolchain: Toolchain) -> list[str]:
    return [str(toolchain.clang), "--driver-mode=g++"]


@pytest.mark.parametrize("models", [{}, _MODELS], ids=["release", "development"])
def test_policies_decide_in_the_thin_link(
    models: dict[str, Path], toolchain: Toolchain, profile: Path, tmp_path: Path
) -> None:
    flags = compiler_flags(toolchain, models, profile)
    words = [*_clang(toolchain), *flags.compile_words(), *flags.link_words()]
    assert "Pass:            inline-ml" in _remarks(words, tmp_path / "words")
    configuration = tmp_path / "flags.cfg"
    configuration.write_text(flags.configuration())
    words = [*_clang(toolchain), f"--config={configuration}"]
    assert "Pass:            inline-ml" in _remarks(words, tmp_path / "configuration")
    without = _remarks([*_clang(toolchain), "-fuse-ld=lld"], tmp_path / "without")
    assert "inline-ml" not in without


def test_paths_with_spaces_and_commas_reach_compiler_and_linker(
    toolchain: Toolchain, profile: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "a, b's"
    shutil.copytree(profile.parent, folder)
    flags = compiler_flags(toolchain, {}, folder / profile.name)
    configuration = tmp_path / "flags.cfg"
    configuration.write_text(flags.configuration())
    shown = run_command(
        [toolchain.clang, f"--config={configuration}", "-###", "-flto=thin", "-xc", "/dev/null"]
    ).stderr
    compilation, link = (shlex.split(line) for line in shown.splitlines()[-2:])
    for job in compilation, link:
        assert job[job.index(f"-pmu-profile={folder / profile.name}") - 1] == "-mllvm"


def test_the_compiler_itself_uses_the_profile(toolchain: Toolchain, tmp_path: Path) -> None:
    for name, text in _FILES.items():
        (tmp_path / name).write_text(text)
    profiled = tmp_path / "profiled"
    words: list[str | Path] = [stock_tool("clang"), "--driver-mode=g++", "-O2"]
    words += [*PROFILING_FLAGS.split(), "main.cpp", "one.cpp", "-xc", "two.c", "-o", profiled]
    run_command(words, cwd=tmp_path)
    profile = tmp_path / "program.pmu.json"
    collect(profiled, [], profile)

    def entries(autofdo: bool) -> list[int]:
        """How often the compiler thinks that functions of main.cpp are entered."""
        flags = compiler_flags(toolchain, {}, profile, autofdo=autofdo)
        configuration = tmp_path / "flags.cfg"
        configuration.write_text(flags.configuration())
        options = ["-O2", "-Werror", "-S", "-emit-llvm", "-o", "-"]
        clang = [*_clang(toolchain), f"--config={configuration}", *options]
        text = run_command([*clang, "main.cpp"], cwd=tmp_path).stdout
        return [int(count) for count in re.findall(r'"function_entry_count", i64 (\d+)', text)]

    assert entries(autofdo=False) == []
    assert len(entries(autofdo=True)) == 1
    _check_autofdo_alone(profile, toolchain, tmp_path)
    document = json.loads(profile.read_text())
    for collector in ({"backend": "perf"}, {"within": "main"}):
        changed = document | {"collector": document["collector"] | collector}
        profile.write_text(json.dumps(changed))
        small = compiler_flags(toolchain, {}, profile, autofdo=True).with_small_cold_code(profile)
        assert "minsize" in small.configuration() and "accurate" not in small.configuration()
    document["events"] = [one for one in document["events"] if one["name"] != "executions"]
    profile.write_text(json.dumps(document))
    with pytest.raises(ToolchainError, match=r"program\.pmu\.json: has no executions"):
        compiler_flags(toolchain, {}, profile, autofdo=True)
    with pytest.raises(ToolchainError, match="AutoFDO needs a profile"):
        compiler_flags(toolchain, {}, None, autofdo=True)


def _check_autofdo_alone(profile: Path, toolchain: Toolchain, folder: Path) -> None:
    """A set without policies, and any clang, can do it: compile and link, with ThinLTO too."""
    empty = dataclasses.replace(toolchain, directory=folder)
    flags = compiler_flags(empty, {}, profile, autofdo=True)
    assert flags.policies == () and "pmu" not in flags.configuration().replace(str(folder), "")
    flags = flags.with_small_cold_code(profile)
    configuration = folder / "autofdo.cfg"
    configuration.write_text(flags.configuration())
    for words in ([f"--config={configuration}"], [*flags.compile_words(), *flags.link_words()]):
        shown = run_command(
            [stock_tool("clang"), "--driver-mode=g++", *words, "-Werror", "-O2", "-flto=thin",
             "-###", "main.cpp", "one.cpp", "-xc", "two.c"],
            cwd=folder,
        ).stderr  # fmt: skip
        *compilations, link = (line for line in shown.splitlines() if line.startswith(' "'))
        executions = folder / "program.executions.afdo"
        assert all(f"-fprofile-sample-use={executions}" in one for one in compilations)
        assert f"-plugin-opt=sample-profile={executions}" in link
        small = ("-pgo-cold-func-opt=minsize", "-fprofile-sample-accurate")
        assert all(word in one for one in compilations for word in small)
        # The compiler of the machine code outlines, and by ThinLTO that is the linker.
        assert all("optimistic-pgo" in one for one in (*compilations, link))
    with pytest.raises(ToolchainError, match="has no policy compiled in"):
        compiler_flags(empty, {}, profile)


@pytest.mark.parametrize(
    ("model", "purpose", "warned"),
    [
        ("inline-speed", "fewer executed instructions at -O2, by the PMU profile of a run", True),
        ("inline-size", "code compiled with -Oz", False),
        ("regalloc-evict", "fewer executed instructions at -O2, by the PMU profile", True),
    ],
)
def test_what_a_policy_is_for_and_needs_is_said(
    model: str, purpose: str, warned: bool, toolchain: Toolchain, profile: Path
) -> None:
    folder = REPO_ROOT / "models" / model
    problem = json.loads((folder / "model.json").read_text())["problem"]
    flags = compiler_flags(toolchain, {problem: folder}, None)
    said = f"{problem}: {folder}, for {purpose}"
    assert [policy.startswith(said) for policy in flags.policies].count(True) == 1
    assert [problem in warning for warning in flags.warnings] == [True] * warned
    assert compiler_flags(toolchain, {problem: folder}, profile).warnings == ()
    first, second, *others = flags.configuration().splitlines()
    assert first.startswith("# Written by cop policy flags for this compiler")
    assert second == f"# {toolchain.clang}"
    assert any(line.startswith(f"# {said}") for line in others)


def test_rates_that_a_policy_takes_are_named(
    toolchain: Toolchain, profile: Path, tmp_path: Path
) -> None:
    model = tmp_path / "policy"
    shutil.copytree(_MODELS["inline-size"], model)
    (model / "model.json").write_text('{"problem": "inline-size", "extra_rates": ["a", "b"]}')
    with_profile = compiler_flags(toolchain, {"inline-size": model}, profile)
    assert "-pmu-extra-features=a,b" in with_profile.options
    assert f"-litert-library={toolchain.litert_library}" in with_profile.options
    assert "-regalloc-enable-advisor=release" in with_profile.options
    without = compiler_flags(toolchain, {"inline-size": model}, None)
    assert not any("extra" in option for option in without.options)
    assert without.location_words == ()


def test_what_does_not_fit_is_named(toolchain: Toolchain, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"none.pmu.json: no such profile"):
        compiler_flags(toolchain, {}, tmp_path / "none.pmu.json")
    (tmp_path / "p.executions.afdo").touch()
    with pytest.raises(ToolchainError, match=r"p\.executions\.afdo: no PMU profile; give the mani"):
        compiler_flags(toolchain, _MODELS, tmp_path / "p.executions.afdo")
    with pytest.raises(ToolchainError, match=r"model.tflite is missing"):
        compiler_flags(toolchain, {"inline-size": tmp_path}, None)
    with pytest.raises(ToolchainError, match=r"nothing: no such folder"):
        compiler_flags(toolchain, {"inline-size": tmp_path / "nothing"}, None)
    model = tmp_path / "policy"
    shutil.copytree(_MODELS["inline-size"], model)
    (model / "model.json").write_text(json.dumps({"problem": "inline-size"}))
    with pytest.raises(ToolchainError, match="a policy for inline-size, not regalloc-evict"):
        compiler_flags(toolchain, {"regalloc-evict": model}, None)
    (model / "model.json").write_text('{"extra_rates": ["a", 1]}')
    with pytest.raises(
        ToolchainError, match=r"json: \$\.extra_rates\[1\]: expected `str`, found 1"
    ):
        compiler_flags(toolchain, {"inline-size": model}, None)
    empty = dataclasses.replace(toolchain, directory=tmp_path)
    with pytest.raises(
        ToolchainError, match="has no policy compiled in.*--toolchain=.* --inline-model="
    ):
        compiler_flags(empty, {}, None)


def test_a_distributed_thin_link_gives_the_same_objects(
    toolchain: Toolchain, profile: Path, tmp_path: Path
) -> None:
    for name, text in _FILES.items():
        (tmp_path / name).write_text(text)
    configuration = tmp_path / "flags.cfg"
    configuration.write_text(compiler_flags(toolchain, {}, profile).configuration())
    clang = [*_clang(toolchain), f"--config={configuration}", "-Werror", "-Oz"]

    def run(*arguments: str) -> None:
        run_command([*clang, *arguments], cwd=tmp_path, timeout_s=120)

    for name in ("main.cpp", "one.cpp", "two.c"):
        run("-flto=thin", "-c", *(["-xc"] if name.endswith(".c") else []), name)
    objects = ["main.o", "one.o", "two.o"]
    run("-flto=thin", *objects, "-o", "in-process")
    run("-flto=thin", *objects, "-Wl,--thinlto-index-only", "-o", "not-written")
    for name in objects:
        run(
            "-fthinlto-index=" + name + ".thinlto.bc",
            "-x",
            "ir",
            name,
            "-c",
            "-o",
            f"native.{name}",
        )
    run(*(f"native.{name}" for name in objects), "-o", "distributed")
    outputs = [run_command([tmp_path / name]).stdout for name in ("in-process", "distributed")]
    assert outputs[0] == outputs[1] == "454\n"

    def code(name: str) -> bytes:
        section = tmp_path / "section"
        run_command(
            [stock_tool("llvm-objcopy"), f"--dump-section=.text={section}", tmp_path / name,
             os.devnull]
        )  # fmt: skip
        return section.read_bytes()

    assert code("in-process") == code("distributed")
