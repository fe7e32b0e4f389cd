# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import dataclasses
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from compiler_opt_perf.run import qemu
from compiler_opt_perf.run.files import FileLockedError, exclusive
from compiler_opt_perf.toolchain.debian import debian_source
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import BUILD, REPO_ROOT
from compiler_opt_perf.trial.build import Built, Project, WayFolder
from compiler_opt_perf.trial.errors import TrialError
from compiler_opt_perf.trial.runs import GivenRun
from compiler_opt_perf.trial.trial import Request, prepare_ways, try_ways
from compiler_opt_perf.trial.ways import PGO, PLAIN, SIZE, SIZE_THINLTO, SPEED, Way, with_small_cold

_PIXELS = REPO_ROOT / "docs" / "testdata" / "trial"
_MODELS = REPO_ROOT / "models"
_SPEED_MODELS = {
    "inline-size": _MODELS / "inline-speed",
    "regalloc-evict": _MODELS / "regalloc-evict",
}
_SIZE_MODELS = {"inline-size": _MODELS / "inline-size"}
# Divisions take a processor long, and the simulator no longer than additions.
_WORK = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
/* Never called. */
__attribute__((noinline)) long rare(char **argv, int count) {
  long sum = 0;
  for (int i = 0; i < count; ++i)
    sum += argv[0][i] * i;
  return sum;
}
int main(int argc, char **argv) {
  volatile double sink = 0;
  if (argc > 9)
    return rare(argv, argc);
  for (int round = atoi(argv[1]); round > 0; --round)
    for (int i = 0; i < 1000000; ++i)
      sink = 1 / (1 / (sink + i) + 1);
  printf("%s\\n", argc > 2 ? argv[2] : getcwd(0, 0));
  return 0;
}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree of one source; 30 rounds of the program take some tenths of a second."""
    made = tmp_path / "tree"
    made.mkdir()
    (made / "work.c").write_text(_WORK)
    return made


@pytest.fixture
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets runs be so short that simulating them takes little time."""
    monkeypatch.setattr("compiler_opt_perf.trial.trial.SHORTEST_S", 0.001)


def _request(
    toolchain: Toolchain,
    tree: Path,
    build: str,
    *runs: str,
    binary: str | None = None,
    ways: Sequence[Way] = (PLAIN,),
) -> Request:
    flags = ("run", "run2")
    return Request(
        project=Project(tree, build, "-O2"),
        runs=[GivenRun(flag, line) for flag, line in zip(flags, runs, strict=False)],
        binary=binary,
        toolchain=toolchain,
        models=_SPEED_MODELS,
        ways=ways,
        by_size=False,
        rounds=6,
    )


def _files(tree: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in tree.rglob("*")}


@pytest.mark.usefixtures("short_runs")
@pytest.mark.long(70)
@pytest.mark.compiler
def test_takes_no_slower_build_of_a_loop_that_a_cold_call_spoils(
    toolchain: Toolchain, tmp_path: Path
) -> None:
    before = _files(_PIXELS)
    # As upstream compiles: without the pass that keeps such calls from spoiling a loop.
    build = "sed -i 's/-O3/-O3 -mllvm -enable-unpin-allocas=false/' Makefile && make"
    request = _request(toolchain, _PIXELS, build, "./pixels 1000", ways=SPEED)
    trial = try_ways(request, tmp_path / "out")
    ways = {way.name: way for way in trial.ways}
    assert all(run.same_output for run in ways["AutoFDO"].runs)
    # AutoFDO leaves the cold call alone: the loop takes three times as long.
    assert trial.verdict.take not in ("AutoFDO", "both")
    assert any("AutoFDO is slower on --run" in reason for reason in trial.verdict.reasons)
    assert _files(_PIXELS) == before


@pytest.mark.usefixtures("short_runs")
@pytest.mark.long(70)
@pytest.mark.compiler
@pytest.mark.parametrize(
    ("package", "build", "run", "data", "size"),
    [
        (
            "zlib",
            "./configure --static && make minigzip",
            "./minigzip -c < input | cat",
            "compiler_opt_perf/**/*.py",
            600_000,
        ),
        (
            "cmark",
            "cmake -S . -B try -DCMARK_TESTS=OFF -DCMARK_SHARED=OFF && cmake --build try",
            "try/src/cmark input",
            "docs/**/*.md",
            1_200_000,
        ),
        (
            "libjsoncpp",
            "meson setup -Ddefault_library=static try && ninja -C try jsontestrunner",
            "try/jsontestrunner input.json",
            "",
            0,
        ),
    ],
    ids=["configure", "cmake", "meson"],
)
def test_tries_programs_of_several_build_systems(
    package: str,
    build: str,
    run: str,
    data: str,
    size: int,
    toolchain: Toolchain,
    tmp_path: Path,
) -> None:
    tree = tmp_path / "tree"
    shutil.copytree(debian_source(package, BUILD), tree, symlinks=True)
    if data:
        texts = "".join(path.read_text() for path in sorted(REPO_ROOT.glob(data)))
        (tree / "input").write_text((texts * 100)[:size])
    else:
        rows = [{"name": str(i), "values": [i, i / 3, None, True]} for i in range(1_000)]
        (tree / "input.json").write_text(json.dumps(rows))
    request = _request(toolchain, tree, build, run, ways=SPEED[:3])
    trial = try_ways(request, tmp_path / "out")
    plain, autofdo, policies = trial.ways
    for way in (plain, autofdo, policies):
        (found,) = way.runs
        assert found.same_output and found.instructions
        assert way.text_bytes > 20_000
    # Both use the profile, each in its own way.
    assert len({way.text_bytes for way in trial.ways}) == 3
    assert min(one.runs[0].instructions or 0 for one in (autofdo, policies)) < (
        plain.runs[0].instructions or 0
    )
    layouts = {path.read_bytes() for path in (tmp_path / "out/way-00/layouts-0").iterdir()}
    assert len(layouts) == request.rounds


@pytest.mark.usefixtures("short_runs")
@pytest.mark.long(70)
@pytest.mark.compiler
def test_counters_of_an_instrumented_run_are_used_and_cold_code_is_made_small(
    tree: Path, toolchain: Toolchain, tmp_path: Path
) -> None:
    # As interpreters look for their library.
    beside = (
        'char path[999]; snprintf(path, 999, "%s.c", argv[0]); if (access(path, R_OK)) exit(3);'
    )
    (tree / "work.c").write_text(_WORK.replace("  if (argc > 9)", f"  {beside}\n  if (argc > 9)"))
    build = "cc work.c -o work"
    ways = with_small_cold((PLAIN, SPEED[1], *PGO))
    request = _request(toolchain, tree, build, "./work 3", ways=ways)
    trial = try_ways(request, tmp_path / "out")
    names = ("AutoFDO", "PGO", "PGO-ThinLTO")
    expected = [name for way in names for name in (f"{way}-small-cold", way)]
    assert [way.name for way in trial.ways] == ["plain", *expected]
    assert (tmp_path / "out/way-06/counters.profdata").is_file()
    # It prints where it is, which is another folder for each build.
    assert all(way.runs[0].same_output for way in trial.ways)
    # Small blocks are told to the compiler and to the linker.
    for way, outlined in (("PGO-ThinLTO", 0), ("PGO-ThinLTO-small-cold", 2)):
        configuration = (tmp_path / f"out/{way}.cfg").read_text()
        assert "-fprofile-use=" in configuration and "-flto=thin" in configuration
        for word in ("-enable-machine-outliner=optimistic-pgo", "-x86-outlined-unwind-cost=0"):
            assert configuration.count(word) == outlined
    text = {way.name: way.text_bytes for way in trial.ways}
    # AutoFDO alone vectorises what it has no samples of; PGO knows that it never ran.
    assert text["AutoFDO-small-cold"] < text["AutoFDO"] - 100
    assert text["PGO-small-cold"] < text["PGO"]


@pytest.mark.usefixtures("short_runs")
@pytest.mark.compiler
def test_counts_by_a_qemu_beside_the_virtual_environment(
    tree: Path, toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Debian 13: QEMU is then started by the loader, with options of its own."""
    programs = tmp_path / "qemu" / "usr" / "bin"
    programs.mkdir(parents=True)
    system = shutil.which(qemu.PROGRAM)
    # A host that has it there by itself needs no other one.
    if len(qemu.qemu_words()) == 1:
        assert system
        (programs / qemu.PROGRAM).symlink_to(system)
        monkeypatch.setattr(qemu, "_UNPACKED", tmp_path / "qemu")
    assert len(qemu.qemu_words()) > 1
    trial = try_ways(_request(toolchain, tree, "cc work.c -o work", "./work 3"), tmp_path / "out")
    assert trial.ways[0].runs[0].instructions


@pytest.mark.long(70)
@pytest.mark.compiler
def test_sizes_need_no_run(tree: Path, toolchain: Toolchain, tmp_path: Path) -> None:
    ways = (*SIZE, *SIZE_THINLTO)
    stores = "{ x = 1000; y = 2000; x = 3000; }"
    functions = [f"__attribute__((noinline)) void f{i}(void) {stores}" for i in range(4)]
    calls = "".join(f"f{i}();" for i in range(4))
    source = f"volatile int x, y; {' '.join(functions)} int main(void) {{ {calls} }}"
    (tree / "small.c").write_text(source)
    request = dataclasses.replace(
        _request(toolchain, tree, "cc small.c -o small", binary="small", ways=ways),
        by_size=True,
        models=_SIZE_MODELS,
    )
    trial = try_ways(request, tmp_path / "out")
    assert [way.name for way in trial.ways] == [way.name for way in ways]
    assert trial.runs == [] and trial.counter is None
    text = {way.name: way.text_bytes for way in trial.ways}
    assert text["outliner"] < text["plain"] and text["outliner-ThinLTO"] < text["ThinLTO"]
    assert trial.verdict.take in ("outliner", "outliner-ThinLTO")


@pytest.mark.usefixtures("short_runs")
@pytest.mark.long(70)
@pytest.mark.compiler
def test_goes_on_where_it_stopped_and_does_again_what_a_change_concerns(
    tree: Path, toolchain: Toolchain, tmp_path: Path
) -> None:
    # Each build leaves a line.
    noted = tmp_path / "builds"
    build = f"echo >> {noted}; cc work.c -o work"
    output = tmp_path / "out"
    request = _request(toolchain, tree, build, "./work 3 a", ways=SPEED[:1])
    first = try_ways(request, output)
    assert try_ways(request, output) == first
    assert noted.read_text() == "\n"
    # A killed run left a script in the program's place.
    program = output / "way-00/tree/work"
    program.unlink()
    program.write_text("#!/bin/sh\nexit 1\n")
    again = try_ways(dataclasses.replace(request, runs=[GivenRun("run", "./work 3 b")]), output)
    assert noted.read_text() == "\n" and again.runs[0].command == "./work 3 b"
    os.utime(tree / "work.c", (1, 1))
    request = _request(toolchain, tree, build, "./work 3 a", ways=SPEED[:1])
    assert try_ways(request, output).ways[0].text_bytes == first.ways[0].text_bytes
    assert noted.read_text() == "\n\n"
    try_ways(request, output, force=True)
    assert noted.read_text() == "\n\n\n"


def test_a_script_in_the_place_of_a_program_does_not_change_it(tmp_path: Path) -> None:
    way, built = WayFolder(tmp_path), Built("work", 0.0)
    for folder in (way.tree, tmp_path / "programs"):
        folder.mkdir()
        (folder / "work").write_text("program")
    # A trial that goes on puts it there again.
    for _ in range(2):
        way.place(built, way.program("work"))
    with way.script_in_place(built, "script"):
        assert (way.tree / "work").read_text() == "script"
        assert way.real(built).read_text() == "program"
    assert (way.tree / "work").read_text() == "program"
    assert [path.name for path in way.tree.iterdir()] == ["work"]


@pytest.mark.usefixtures("short_runs")
@pytest.mark.long(70)
@pytest.mark.compiler
def test_what_was_prepared_is_not_done_again(
    tree: Path, toolchain: Toolchain, tmp_path: Path
) -> None:
    noted, output = tmp_path / "builds", tmp_path / "out"
    build = f"echo >> {noted}; cc work.c -o work"
    request = _request(toolchain, tree, build, "./work 3", ways=SPEED[:1])
    request = dataclasses.replace(request, counts=False)
    prepared = prepare_ways(request, output)
    way, built = prepared.builds[PLAIN]
    assert prepared.profile is None and built.seconds > 0 and way.program(built.program).exists()
    assert noted.read_text() == "\n"
    assert not (output / "rounds-run.json").exists()
    trial = try_ways(request, output)
    assert trial.runs[0].rounds == request.rounds and trial.counter is None
    assert noted.read_text() == "\n"


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("build", "run", "message"),
    [
        ("echo it is wrong; exit 3", "./work 1", r"exit status 3 .*build\.log:\n  it is wrong$"),
        ("cc work.c -o work", "./no 1", r"\./no 1: has no program that the build made"),
        ("/usr/bin/gcc work.c -o work", "./work 1", "was not linked by the compiler that this"),
        ("cc work.c -o work", "./work", r"--run=\./work: ended by SIGSEGV"),
        ("cc work.c -o work", "./work 30; echo no >&2; false", r"exit status 1 .*:\n  no$"),
        ("cc work.c -o work", "./work 1", "too little to be timed; give it more to do"),
        ("cc -s work.c -o work", "./work 30", "no debug info, .*the build strips it"),
        (
            "cc work.c -o work && mkdir .libs && cp work .libs/w && echo > w",
            "./w 1",
            r"w is libtool's script: add --binary=\.libs/w",
        ),
        (
            "cc work.c -o work",
            "./work 30; ./work 1; ./work 1; for i in 1 2 3 4 5 6; do ./work 1; done",
            "executes work 9 times; give a run that executes it at most 8 times",
        ),
        (
            "cc work.c -o work && cc work.c -o other",
            "./work 30",
            "does not execute other; name the program",
        ),
    ],
)
def test_what_cannot_be_tried_is_told(
    tree: Path, toolchain: Toolchain, tmp_path: Path, build: str, run: str, message: str
) -> None:
    binary = "other" if "other" in build else None
    request = _request(toolchain, tree, build, run, binary=binary, ways=SPEED[:2])
    with pytest.raises(TrialError, match=message):
        try_ways(request, tmp_path / "out")


@pytest.mark.compiler
def test_a_run_that_finds_its_own_output_is_told(toolchain: Toolchain, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "once.c").write_text(
        """#include <stdio.h>
int main(void) {
  if (fopen("done", "r"))
    return 0;
  for (volatile long i = 0; i < 1200000000; i++)
    ;
  return fopen("done", "w") == 0;
}
"""
    )
    run = "rm -f done; ./once"
    request = _request(toolchain, tree, "cc once.c -o once", run, ways=SPEED[:2])
    with pytest.raises(TrialError, match="finds what the same run wrote before; let it write"):
        try_ways(request, tmp_path / "out")


@pytest.mark.compiler
def test_folders_that_cannot_be_used_are_told(
    tree: Path, toolchain: Toolchain, tmp_path: Path
) -> None:
    request = _request(toolchain, tree, "make", "./work")
    for output in (tree / "out", tree, tmp_path):
        with pytest.raises(TrialError, match="give --output= another folder"):
            try_ways(request, output)
    output = tmp_path / "out"
    with exclusive(output / "try.lock"), pytest.raises(FileLockedError, match="by another run"):
        try_ways(request, output)
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").touch()
    with pytest.raises(TrialError, match="holds other files"):
        try_ways(request, other)
