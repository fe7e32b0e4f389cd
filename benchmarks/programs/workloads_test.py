# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import pytest

from benchmarks import collect, cycles, hits, inline_speed, policies, rank
from benchmarks.common import run_all
from benchmarks.programs.patched_clang import overlay_compiler
from benchmarks.programs.workload import Workload, without_times
from benchmarks.programs.workloads import COUNTED, HELD_OUT, TIMED
from compiler_opt_perf.corpus.program_table import Program
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool


def test_every_program_of_a_benchmark_is_in_the_table() -> None:
    counted = {*collect.PROGRAMS, *hits.PROGRAMS, *cycles.PROGRAMS, *inline_speed.PROGRAMS}
    assert counted == {*COUNTED, "clang"}
    assert set(policies.PROGRAMS) < set(HELD_OUT)
    assert set(rank.PROGRAMS) == set(TIMED)
    assert set(HELD_OUT) == set(COUNTED)


@pytest.mark.compiler
def test_units_compile_to_the_program_that_is_built(tmp_path: Path) -> None:
    tree, folder = tmp_path / "tree", tmp_path / "folder"
    (tree / "include").mkdir(parents=True)
    (tree / "include" / "own.h").write_text("#define STATUS SHIFT(OWN) + GENERATED\n")
    text = '#include "generated.h"\n#include "own.h"\n'
    (tree / "main.c").write_text(text + "int two(void);\nint main() { return STATUS + two(); }\n")
    (tree / "two.c").write_text(text + "int two(void) { return 2; }\n")
    program = Program(
        name="small",
        source_package="none",
        sources=("*.c",),
        flags=("-Iinclude", "-DOWN=16"),
        generated=(("generated.h", "#define GENERATED 1\n"),),
    )
    workload = Workload(program, tree, ("a",), flags=("-DSHIFT(x)=2*x",))
    built = workload.build(folder)
    assert built.arguments == ["a"] and built.directory == tree
    assert [unit[-1] for unit in built.units] == ["main.c", "two.c"]
    objects = [tmp_path / f"{number}.o" for number in range(len(built.units))]
    clang = stock_tool("clang")
    run_all(
        [[clang, *unit, "-o", target] for unit, target in zip(built.units, objects, strict=True)],
        built.directory,
    )
    run_command([clang, *objects, "-o", tmp_path / "linked"])
    script = '"$0"; first=$?; "$1"; echo $first $?'
    found = run_command(["sh", "-c", script, built.binary, tmp_path / "linked"])
    assert found.stdout == "35 35\n"

    # What is there is not built again, but for other options or sources.
    made = built.binary.stat().st_ino
    assert workload.build(folder).binary.stat().st_ino == made
    assert workload.build(folder, ("-O1",)).binary.stat().st_ino != made


@pytest.mark.compiler
def test_units_of_llvm_compile_with_options_of_their_own(tmp_path: Path) -> None:
    launcher, shared = overlay_compiler()
    source = tmp_path / "unit.cpp"
    function = "int size() { return llvm::SmallVector<int>(3).size(); }"
    source.write_text(f'#include "llvm/ADT/SmallVector.h"\n{function}\n')
    preprocessed = tmp_path / "unit.ii"
    run_command([stock_tool("clang++"), "-E", *shared, source, "-o", preprocessed])
    assert "int size() {" in preprocessed.read_text()
    for path in (source, preprocessed):
        run_command([*launcher, *shared, "-Oz", "-g", "-c", path, "-o", tmp_path / "unit.o"])
        symbols = run_command([stock_tool("llvm-nm"), tmp_path / "unit.o"]).stdout
        assert "T _Z4sizev" in symbols


@pytest.mark.parametrize(
    ("printed", "again"),
    [
        (b"INSERTs into table 0.013s\n", b"INSERTs into table 1.020s\n"),
        (b"CPU time              : 0.084934 s\n", b"CPU time              : 0.089257 s\n"),
        (b"conflicts : 19875 (234005 /sec)\n", b"conflicts : 19875 (22267 /sec)\n"),
        (b"Memory used           : 10.00 MB\n", b"Memory used           : 11.00 MB\n"),
    ],
)
def test_times_and_rates_are_no_part_of_what_a_run_prints(printed: bytes, again: bytes) -> None:
    assert without_times(printed) == without_times(again)


def test_what_is_computed_is_kept_beside_times() -> None:
    assert without_times(b"conflicts : 19875 (9 /sec)") == b"conflicts : 19875 ()"
