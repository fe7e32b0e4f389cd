# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.function_table import (
    UNKNOWN,
    FunctionTable,
    control_flow_checksums,
    guid,
)
from compiler_opt_perf.profile.manifest import Manifest
from compiler_opt_perf.profile.profile import Profile
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool

Build = Callable[..., Path]
PROBES = f"{PROFILING_FLAGS} -fpseudo-probe-for-profiling -fno-unique-internal-linkage-names"


@pytest.fixture(scope="module")
def loaded(profile: Manifest) -> Profile:
    """The test program's profile, in memory."""
    return Profile.load(profile.path)


@pytest.fixture(scope="module")
def probed(build: Build) -> Path:
    """The test program with checksums of its functions' control flow."""
    return build(debug=PROBES)


# What is known of functions that did not run


@pytest.mark.compiler
def test_functions_that_did_not_run_are_told_from_unknown_ones(loaded: Profile) -> None:
    assert loaded.table is not None
    # "measure" calls neither; both stand alone, the second is called by the C library only.
    for name in ("repeated", "thread"):
        assert loaded.did_not_run(name)
    for name in ("main", "chase", "outer", "compare"):
        assert name in loaded.table
        assert not loaded.did_not_run(name)
    # Always inlined: they ran, and have no code of their own.
    for name in ("inner", "middle", "measure"):
        assert name in loaded.table
        assert not loaded.did_not_run(name)
    # In other binaries, or without debug info.
    for name in ("strtol", "qsort", "_start", "absent"):
        assert name not in loaded.table
        assert not loaded.did_not_run(name)
    # Of a name that no sample profile can hold, nothing will ever be known.
    assert "3:4" not in loaded.table
    assert loaded.table.unexecuted(loaded.executed) == 2


@pytest.mark.compiler
def test_inlined_functions_of_code_that_did_not_run(tmp_path: Path) -> None:
    source = tmp_path / "program.c"
    source.write_text(
        "volatile int Sink;\n"
        "static inline void innermost(int X) { Sink = X * X; }\n"
        "static inline void between(int X) { innermost(X); }\n"
        "__attribute__((noinline)) void seldom(int X) { between(X + 1); }\n"
        "static inline void here(int X) { Sink = X; }\n"
        "int main(int C, char **V) { if (C > 3) seldom(C); if (C > 2) here(C); return 0; }\n"
    )
    clang = [str(stock_tool("clang")), "-O2", "-Wl,--build-id", *PROFILING_FLAGS.split()]
    run_command([*clang, source, "-o", tmp_path / "program"], timeout_s=60)
    path = tmp_path / "program.pmu.json"
    collect(tmp_path / "program", [], path, timeout_s=60)
    profile = Profile.load(path)
    for name in ("seldom", "between", "innermost"):
        assert profile.did_not_run(name)
    assert not profile.did_not_run("main")
    # Of a function that ran each line is known; those inlined there have counts of 0.
    assert not profile.did_not_run("here")
    assert {counts[0] for counts in profile.functions["here"].values()} == {0}


@pytest.mark.compiler
def test_every_function_with_samples_is_in_the_table(loaded: Profile) -> None:
    assert loaded.table is not None
    assert all(name in loaded.table for name in loaded.executed)


@pytest.mark.compiler
def test_within_one_function_others_did_not_run(workload: Path, tmp_path: Path) -> None:
    path = tmp_path / "within.pmu.json"
    collect(workload, ["measure"], path, within="choose", timeout_s=60)
    profile = Profile.load(path)
    assert profile.did_not_run("chase")
    assert not profile.did_not_run("often")


# LLVM's numbers


@pytest.mark.compiler
def test_guids_and_checksums_are_those_of_the_compiler(
    source: Path, probed: Path, tmp_path: Path
) -> None:
    output = tmp_path / "workload.ll"
    clang = [str(stock_tool("clang")), "-O2", *PROBES.split(), "-S", "-emit-llvm"]
    run_command([*clang, source, "-o", output], timeout_s=60)
    described = re.findall(r"!\{i64 (-?\d+), i64 (-?\d+), !?\"(.*)\"\}", output.read_text())
    assert len(described) > 15
    expected = {name: int(checksum) % 2**64 for _, checksum, name in described}
    assert control_flow_checksums(probed) == expected
    for number, _, name in described:
        assert guid(name) == int(number) % 2**64


@pytest.mark.compiler
def test_a_profile_has_the_checksums_of_the_binary(
    probed: Path, workload: Path, tmp_path: Path
) -> None:
    checksums = control_flow_checksums(probed)
    manifest = collect(probed, ["repeat", "1"], tmp_path / "p.pmu.json", timeout_s=60)
    table = manifest.read_functions()
    assert table is not None
    for name in ("main", "outer", "inner", "chase"):
        assert table.checksums[guid(name)] == checksums[name] != UNKNOWN
    # Without probes none is known.
    assert control_flow_checksums(workload) == {}


@pytest.mark.compiler
def test_of_two_functions_with_one_name_no_checksum_is_known(tmp_path: Path) -> None:
    clang = [str(stock_tool("clang")), "-O1", *PROBES.split(), "-Wl,--build-id"]
    body = "static __attribute__((noinline)) int one(int X) {{ {} }}\n"
    (tmp_path / "a.c").write_text(
        body.format("while (X & 1) X = X * X >> 3; return X;") + "int a(int X) { return one(X); }"
    )
    (tmp_path / "b.c").write_text(
        body.format("return X ^ 5;") + "int a(int); int main(int C, char **V) { return a(one(C)); }"
    )
    sources = [tmp_path / "a.c", tmp_path / "b.c"]
    run_command([*clang, *sources, "-o", tmp_path / "program"], timeout_s=60)
    checksums = control_flow_checksums(tmp_path / "program")
    assert checksums["one"] == UNKNOWN
    assert checksums["a"] != UNKNOWN


@pytest.mark.compiler
@pytest.mark.parametrize("attribute", ["noinline", "always_inline"])
@pytest.mark.parametrize("arguments", [[], ["one"], ["one", "two"]])
def test_names_that_functions_of_several_files_share(
    attribute: str, arguments: list[str], tmp_path: Path
) -> None:
    # Whether both ran, one or none: which of them has the counts is not known.
    (tmp_path / "a").mkdir()
    header = "extern volatile int Sink; static inline void header(int X) { Sink = X * X; }\n"
    (tmp_path / "header.h").write_text(header)
    local = f"static __attribute__(({attribute})) void local(int X)"
    (tmp_path / "a" / "a.c").write_text(
        f'#include "../header.h"\n{local} {{ Sink = X + 1; }}\n'
        "__attribute__((noinline)) void other(int X) { header(X); local(X); }\n"
    )
    (tmp_path / "main.c").write_text(
        f'#include "header.h"\nvolatile int Sink; void other(int);\n{local} {{ Sink = X - 1; }}\n'
        "int main(int C, char **V) {\n"
        "  header(C); if (C > 1) local(C);\n  if (C > 2) other(C);\n  return 0; }\n"
    )
    clang = [str(stock_tool("clang")), "-O2", "-Wl,--build-id", *PROFILING_FLAGS.split()]
    for folder, source in ((tmp_path / "a", "a.c"), (tmp_path, "main.c")):
        compiling = [*clang, "-c", source, "-o", f"{source}.o"]
        run_command(compiling, cwd=folder, timeout_s=60)
    objects = [tmp_path / "a" / "a.c.o", tmp_path / "main.c.o"]
    run_command([*clang, *objects, "-o", tmp_path / "program"], timeout_s=60)
    manifest = collect(tmp_path / "program", arguments, tmp_path / "p.pmu.json", timeout_s=60)
    table = manifest.read_functions()
    assert table is not None
    assert table.shared == {guid("local")}
    for name in ("local", "header", "main", "other"):
        assert name in table


@pytest.mark.compiler
def test_damaged_checksums(probed: Path, tmp_path: Path) -> None:
    section = tmp_path / "section"
    objcopy = str(stock_tool("llvm-objcopy"))
    dump = f"--dump-section=.pseudo_probe_desc={section}"
    run_command([objcopy, dump, probed, tmp_path / "copy"], timeout_s=60)
    whole = section.read_bytes()
    for content, place in (
        (whole[:-1], r"\d+"),
        (whole[:8], "0"),
        (whole[:16] + b"\xff" * 9, "0"),
        (whole + b"\0" * 16, str(len(whole))),
    ):
        section.write_bytes(content)
        update = f"--update-section=.pseudo_probe_desc={section}"
        run_command([objcopy, update, probed, tmp_path / "damaged"], timeout_s=60)
        with pytest.raises(PmuError, match=rf"pseudo_probe_desc is damaged at byte {place};"):
            control_flow_checksums(tmp_path / "damaged")


# The file


@pytest.mark.compiler
def test_file_is_as_documented(profile: Manifest) -> None:
    assert profile.functions is not None
    data = (profile.path.parent / profile.functions.file).read_bytes()
    magic, version, number = struct.unpack_from("<8sII", data)
    assert (magic, version) == (b"COPFUNCS", 1)
    guids = struct.unpack_from(f"<{number}Q", data, 16)
    assert list(guids) == sorted(set(guids))
    assert guid("chase") in guids
    assert struct.unpack_from(f"<{number}Q", data, 16 + 8 * number) == (UNKNOWN,) * number
    assert len(data) == 16 + 16 * number


def test_as_bytes_and_back(tmp_path: Path) -> None:
    table = FunctionTable.from_names(["b", "a", "c"], {"a": 7, "b": 2**64 - 1, "other": 3})
    path = tmp_path / "functions"
    path.write_bytes(table.to_bytes())
    assert FunctionTable.read(path) == table
    assert table.checksums == {guid("a"): 7, guid("b"): 2**64 - 1, guid("c"): UNKNOWN}
    assert "a" in table and "other" not in table
    assert len(table) == 3
    empty = FunctionTable.from_names([], {})
    path.write_bytes(empty.to_bytes())
    assert FunctionTable.read(path) == empty


def test_shared_names_are_there_twice(tmp_path: Path) -> None:
    checksums = {"a": 7, "several": UNKNOWN}
    table = FunctionTable.from_names(["b", "a", "several"], checksums, {"b", "other"})
    assert table.shared == {guid("b"), guid("several")}
    path = tmp_path / "p.functions"
    path.write_bytes(table.to_bytes())
    assert FunctionTable.read(path) == table
    assert len(table) == 3
    _, _, number = struct.unpack_from("<8sII", path.read_bytes())
    assert number == 5
    # What another tool wrote: of each function the checksum.
    guids = struct.pack("<2Q", guid("a"), guid("a"))
    path.write_bytes(b"COPFUNCS" + struct.pack("<II", 1, 2) + guids + struct.pack("<2Q", 1, 2))
    assert FunctionTable.read(path) == FunctionTable({guid("a"): UNKNOWN}, frozenset({guid("a")}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "not a table of functions"),
        (lambda data: data[:15], "not a table of functions"),
        (lambda data: b"x" + data[1:], "not a table of functions"),
        (lambda data: data[:8] + b"\2" + data[9:], "of version 2, expected 1"),
        (lambda data: data[:-1], r"has 47 bytes, expected 48 for 2 functions"),
        (lambda data: data + b"\0", "has 49 bytes, expected 48"),
        (lambda data: data[:12] + b"\xff" * 4 + data[16:], "expected 68719476736 for 4294967295"),
        (lambda data: data[:16] + data[24:32] + data[16:24] + data[32:], "function 1 is not in"),
    ],
)
def test_damaged_file(damage: Callable[[bytes], bytes], message: str, tmp_path: Path) -> None:
    path = tmp_path / "p.functions"
    path.write_bytes(damage(FunctionTable.from_names(["a", "b"], {}).to_bytes()))
    with pytest.raises(PmuError, match=rf"p\.functions: .*{message}"):
        FunctionTable.read(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(PmuError, match="absent: cannot be read: No such file"):
        FunctionTable.read(tmp_path / "absent")


def test_merged_tables_keep_what_both_agree_on() -> None:
    one = FunctionTable.from_names(["a", "b", "c", "d"], {"a": 1, "b": 2, "c": 3})
    two = FunctionTable.from_names(["a", "b", "c", "e"], {"a": 1, "b": 5, "e": 6})
    merged, differing = one.merged(two)
    assert merged == FunctionTable.from_names("abcde", {"a": 1, "e": 6}, {"b"})
    assert differing == 1
