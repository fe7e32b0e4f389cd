# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.execution.command import CommandError, run_command
from compiler_opt_perf.execution.llvm import stock_tool
from compiler_opt_perf.pmu.collect import collect
from compiler_opt_perf.pmu.coverage import Coverage, coverage, describe
from compiler_opt_perf.pmu.errors import PmuError
from compiler_opt_perf.pmu.manifest import Manifest
from compiler_opt_perf.pmu.profile import Profile


@pytest.fixture(scope="module")
def loaded(profile: Manifest) -> Profile:
    """The test program's profile, in memory."""
    return Profile.load(profile.path)


@pytest.fixture(scope="module")
def compiled(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compiles the test program without linking: compiled("-O2", "-emit-llvm")."""

    def compile_it(*flags: str) -> Path:
        output = tmp_path_factory.mktemp("object") / "workload.o"
        clang = [str(stock_tool("clang")), *PROFILING_FLAGS.split(), *flags]
        run_command([*clang, "-c", source, "-o", output], timeout_s=60)
        return output

    return compile_it


def shares(found: Coverage, event: str) -> tuple[float, float, float]:
    lookups = next(lookups for known, lookups in found.counts if known.name == event)
    total = lookups.total
    return lookups.exact / total, lookups.flattened / total, lookups.missing / total


def test_the_profiled_program_finds_all(loaded: Profile, workload: Path) -> None:
    found = coverage(loaded, workload)
    for event, lookups in found.counts:
        located = loaded.samples.located[loaded.index[event.name]]
        if event.kind == "sum":
            assert (lookups.exact, lookups.total) == (located, located)
    # What was not executed in an executed function is known, too; main's modes, for example.
    assert found.instructions.exact / found.instructions.total > 0.95


@pytest.mark.parametrize(
    "flags",
    [("-O2",), ("-O2", "-ffunction-sections"), ("-O2", "-fPIC"), ("-O2", "-emit-llvm")],
    ids=" ".join,
)
def test_same_level_finds_nearly_all(
    flags: tuple[str, ...], loaded: Profile, compiled: Callable[..., Path]
) -> None:
    exact, _, missing = shares(coverage(loaded, compiled(*flags)), "instructions")
    assert exact > 0.95
    assert missing < 0.05


def test_without_inlining_data_is_found_by_function(
    loaded: Profile, compiled: Callable[..., Path]
) -> None:
    exact, flattened, _ = shares(coverage(loaded, compiled("-O0")), "loads")
    assert exact > 0.3
    assert exact + flattened > 0.5


def test_functions_that_did_not_run_are_known_not_to(
    loaded: Profile, workload: Path, tmp_path: Path
) -> None:
    found = coverage(loaded, workload)
    # `repeated` and `thread`; all others of this code ran.
    assert (found.functions.unexecuted, found.functions.unknown) == (2, 0)
    assert found.functions.executed == len(loaded.executed)
    assert 0 < found.unexecuted < found.instructions.total
    assert found.functions.changed == 0
    other = tmp_path / "other.c"
    other.write_text("int foreign(int X) { return X * X; } int repeated(int X) { return X; }")
    clang = [str(stock_tool("clang")), "-O2", *PROFILING_FLAGS.split()]
    run_command([*clang, "-c", other, "-o", tmp_path / "other.o"], timeout_s=60)
    functions = coverage(loaded, tmp_path / "other.o").functions
    assert (functions.executed, functions.unexecuted, functions.unknown) == (0, 1, 1)


def test_functions_whose_control_flow_changed(build: Callable[..., Path], tmp_path: Path) -> None:
    flags = f"{PROFILING_FLAGS} -fpseudo-probe-for-profiling -fno-unique-internal-linkage-names"
    profiled, changed = build(debug=flags), build("-DMEASURED=1", debug=flags)
    profile = Profile.load(
        collect(profiled, ["measure"], tmp_path / "p.pmu.json", timeout_s=60).path
    )
    assert coverage(profile, profiled).functions.changed == 0
    found = coverage(profile, changed)
    assert found.functions.changed == 1
    assert "; 1 have another control flow than the profiled ones" in describe(found, "w")


def test_text(loaded: Profile, workload: Path) -> None:
    text = describe(coverage(loaded, workload), "workload")
    assert re.match(
        r"workload: (\d+) functions \(inlined ones included\): \d+ with samples, 2 that did not "
        r"run, 0 that the profile does not know\n",
        text,
    )
    assert re.search(r"^instructions of those that did not +\d+  known not to run$", text, re.M)
    assert "  llc-load-misses" in text
    assert "100.0%" in text


def test_unfit_files(loaded: Profile, compiled: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(PmuError, match="nothing: cannot be read: No such file"):
        coverage(loaded, tmp_path / "nothing")
    (tmp_path / "text").write_text("text")
    with pytest.raises(PmuError, match="text: neither an ELF file nor LLVM bitcode"):
        coverage(loaded, tmp_path / "text")
    with pytest.raises(PmuError, match=r"workload\.o: none of its \d+ instructions"):
        coverage(loaded, compiled("-O2", "-g0"))
    (tmp_path / "half").write_bytes(compiled("-O2", "-emit-llvm").read_bytes()[:1000])
    with pytest.raises(CommandError, match="llc"):
        coverage(loaded, tmp_path / "half")
