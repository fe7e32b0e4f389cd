# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.profile.coverage import Coverage, coverage, describe
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.manifest import Manifest
from compiler_opt_perf.profile.profile import Profile
from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.llvm import stock_tool

pytestmark = pytest.mark.compiler


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
    with_checksum = found.functions.comparable
    assert with_checksum > 1
    text = describe(found, "w")
    assert f"; of {with_checksum} with a checksum in both, 1 have another control flow" in text
    assert "\nThe source is not the profiled one: functions with another control flow: 1. " in text


# Whose profile it is

# Of two programs with one file name; what they share are `main` and functions of the library.
_MAIN = """
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>
__attribute__((noinline)) static int NAME_first(int X) { return X * X % 7; }
__attribute__((noinline)) int NAME_second(int X) {
  std::map<std::string, int> Map;
  for (int I = 0; I < X; ++I)
    Map[std::to_string(I)] += NAME_first(I);
  return Map.size();
}
int NAME_third(int X) { return X + 3; }
int main() {
  std::vector<int> Numbers;
  for (int I = 0; I < 1000; ++I)
    Numbers.push_back(NAME_first(NAME_third(I)));
  std::sort(Numbers.begin(), Numbers.end());
  std::printf("%d %d\\n", Numbers.front(), NAME_second(100));
}
"""


def _clang(*arguments: str | Path) -> None:
    """Compiles C++ for profiling."""
    flags = [*PROFILING_FLAGS.split(), "-std=c++20", "-Wl,--build-id"]
    run_command([stock_tool("clang++"), *flags, *arguments], timeout_s=60)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Profile]]:
    """Sources and profiles, by name."""
    found = {}
    for name in ("one", "two"):
        folder = tmp_path_factory.mktemp(name)
        source = folder / "main.cpp"
        source.write_text(_MAIN.replace("NAME", name))
        _clang("-O2", source, "-o", folder / "main")
        manifest = collect(folder / "main", [], folder / "p.pmu.json", timeout_s=60)
        found[name] = source, Profile.load(manifest.path)
    return found


@pytest.mark.parametrize(
    "flags",
    [
        *(("-O0",), ("-O2",), ("-O3",), ("-Oz",), ("-O2", "-emit-llvm"), ("-O2", "-flto=thin")),
        ("-O2", "-emit-llvm", "-Xclang", "-disable-llvm-passes"),
    ],
    ids=" ".join,
)
def test_the_profile_of_another_program_is_told(
    flags: tuple[str, ...], programs: dict[str, tuple[Path, Profile]], tmp_path: Path
) -> None:
    for name, (source, _) in programs.items():
        _clang(*flags, "-c", source, "-o", tmp_path / "o")
        for profiled, (_, profile) in programs.items():
            found = coverage(profile, tmp_path / "o")
            if profiled == name:
                assert found.functions.warning is None
                continue
            # Here is the wrong comfort: nearly all that is looked up is found.
            assert found.functions.executed > 1
            assert found.functions.own >= 2
            own = f"it knows 0 of the {found.functions.own} functions here"
            assert f"\nThe profile is of another program: {own} that" in describe(found, "o")


def test_the_source_has_changed(programs: dict[str, tuple[Path, Profile]], tmp_path: Path) -> None:
    source, profile = programs["one"]
    changed = tmp_path / "main.cpp"
    changed.write_text(source.read_text().replace("Map;", "Map;\n  if (X > 5000) return X;"))
    _clang("-O2", "-c", changed, "-o", tmp_path / "o")
    # `main`, which follows, is a line below.
    assert coverage(profile, tmp_path / "o").functions.warning == (
        "The source is not the profiled one: functions at another line or in another file: 1. "
        "Collect the profile again."
    )


# Bitcode of all kinds

_COROUTINE = """
#include <coroutine>
struct Task {
  struct promise_type {
    int Value = 0;
    Task get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    std::suspend_always yield_value(int V) { Value = V; return {}; }
    void return_void() {}
    void unhandled_exception() {}
  };
  std::coroutine_handle<promise_type> Handle;
};
Task multiples(int N) {
  for (int I = 0; I < N; ++I)
    co_yield I * 3;
}
struct Base { virtual int get(int X) { return X; } };
struct Derived : Base { int get(int X) override { return X * 3; } };
__attribute__((noinline)) int call(Base *B, int X) { return B->get(X); }
int main(int Argc, char **) {
  Derived D;
  Task T = multiples(1000);
  int Sum = 0;
  for (T.Handle.resume(); !T.Handle.done(); T.Handle.resume())
    Sum += call(&D, T.Handle.promise().Value);
  return Sum == Argc;
}
"""


@pytest.fixture(scope="module")
def coroutine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Profile]:
    """The program's source and profile."""
    folder = tmp_path_factory.mktemp("coroutine")
    source = folder / "main.cpp"
    source.write_text(_COROUTINE)
    _clang("-O2", source, "-o", folder / "main")
    return source, Profile.load(collect(folder / "main", [], folder / "p.pmu.json").path)


@pytest.mark.parametrize("level", ["-O0", "-O2", "-O2 -Xclang -disable-llvm-passes"])
@pytest.mark.parametrize(
    "link",
    [
        *("-emit-llvm", "-flto", "-flto=thin", "-flto=thin -fsanitize=cfi -fvisibility=hidden"),
        "-flto -fsanitize=cfi -fvisibility=hidden",
        "-flto=thin -fwhole-program-vtables -fsplit-lto-unit -fvisibility=hidden",
    ],
)
def test_bitcode_before_it_is_linked(
    level: str, link: str, coroutine: tuple[Path, Profile], tmp_path: Path
) -> None:
    source, profile = coroutine
    _clang(*level.split(), *link.split(), "-c", source, "-o", tmp_path / "o")
    functions = coverage(profile, tmp_path / "o").functions
    # All with code of their own in the profiled program.
    assert functions.executed >= 3 and functions.warning is None


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
    with pytest.raises(CommandError, match="llvm-modextract: exit status 1"):
        coverage(loaded, tmp_path / "half")
