# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Predicted instructions of real programs against those that callgrind counts."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from compiler_opt_perf.binary.address_map import ANALYSIS_FLAGS
from compiler_opt_perf.binary.elf import (
    PROFILING_FLAGS,
    BinaryError,
    function_entries,
    hide_debug_info,
)
from compiler_opt_perf.cost.evaluator import EVALUATORS, REPLAY_FLAGS, Context, CostError
from compiler_opt_perf.cost.profile_count.estimate import OTHER_CODE, profiled_program
from compiler_opt_perf.cost.report import Candidate, describe
from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.execution.llvm import stock_tool
from compiler_opt_perf.execution.workload import Run
from compiler_opt_perf.pmu.callgrind import CacheGeometry, simulate
from compiler_opt_perf.pmu.callgrind_dump import Dump, read_dumps
from compiler_opt_perf.pmu.collect import collect
from compiler_opt_perf.pmu.errors import PmuError

SOURCE = Path(__file__).parents[1] / "testdata" / "requests.c"
ARGUMENTS = ["4000"]
HANDLERS = ("get", "put", "scan")
EVALUATOR = EVALUATORS["profile-count"]
Build = Callable[..., Path]
# The same blocks, with other registers; and how near the change must come, in the whole.
EVICTION = {
    "basic": "-mllvm -regalloc=basic",
    "few": "-mllvm -stress-regalloc=8",
}
INLINING = {
    "none": "-fno-inline",
    "little": "-mllvm -inline-threshold=10",
    "much": "-mllvm -inline-threshold=1000",
    "size": "-Os",
}


def _compile(sources: Sequence[Path], output: Path, options: Sequence[str], debug: str) -> Path:
    words = ["-O2", *shlex.split(debug), *shlex.split(ANALYSIS_FLAGS)]
    words += [*options, "-fuse-ld=lld", "-Wl,--build-id"]
    run_command([stock_tool("clang"), *words, *sources, "-o", output], timeout_s=300)
    return output


def _build(output: Path, options: str = "", debug: str = PROFILING_FLAGS) -> Path:
    return _compile([SOURCE], output, [*REPLAY_FLAGS, *shlex.split(options)], debug)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    """A profile of the program, and its binary."""
    folder = tmp_path_factory.mktemp("base")
    base = _build(folder / "requests")
    collect(base, ARGUMENTS, folder / "run.pmu.json")
    return Context(profile=folder / "run.pmu.json", base=base, entries=HANDLERS)


def _dump(
    binary: Path, folder: Path, arguments: Sequence[str] = (), within: str | None = None
) -> Dump:
    """The program's own instructions, by callgrind."""
    copy = folder / "copy"
    hide_debug_info(binary, copy)
    for old in folder.glob("callgrind.out.*"):
        old.unlink()
    return read_dumps(simulate(Run(copy, arguments), folder, CacheGeometry(), within=within), copy)


@pytest.mark.parametrize("name", [*EVICTION, *INLINING])
def test_predicts_what_a_candidate_retires(name: str, context: Context, tmp_path: Path) -> None:
    candidate = _build(tmp_path / name, {**EVICTION, **INLINING}[name])
    cost = EVALUATOR.cost([candidate], context)
    measured = cost.report["measured"]
    true_change = _dump(candidate, tmp_path, ARGUMENTS).totals()[0] - measured
    bound = 0.005 if name in EVICTION else 0.03
    assert cost.report["change"] == pytest.approx(true_change, abs=bound * measured)
    assert sum(cost.parts.values()) == pytest.approx(cost.total)
    assert abs(cost.parts[OTHER_CODE]) < 0.01 * cost.total


def test_the_profiled_binary_changes_nothing(context: Context) -> None:
    assert context.base is not None
    cost = EVALUATOR.cost([context.base], context)
    assert cost.total == pytest.approx(cost.report["measured"], rel=1e-3)


@pytest.mark.parametrize("name", ["few", "none"])
def test_handlers_have_their_callees_instructions(
    name: str, context: Context, tmp_path: Path
) -> None:
    candidate = _build(tmp_path / "requests", {**EVICTION, **INLINING}[name])
    cost = EVALUATOR.cost([candidate], context)
    found = cost.report["entries"]
    # Every request goes to one of them.
    assert sum(found[handler]["calls"] for handler in HANDLERS) == pytest.approx(4000, rel=1e-3)
    copy = tmp_path / "copy"
    hide_debug_info(candidate, copy)
    for handler in HANDLERS:
        dump = tmp_path / f"{handler}.callgrind"
        argv = ["valgrind", "--tool=callgrind", "--collect-atstart=no", "--dump-instr=yes"]
        argv += [f"--toggle-collect={handler}", f"--callgrind-out-file={dump}"]
        run_command([*argv, copy, *ARGUMENTS], timeout_s=300)
        (line,) = (x for x in dump.read_text().splitlines() if x.startswith("totals:"))
        total = found[handler]["calls"] * found[handler]["instructions"]
        assert total == pytest.approx(int(line.split()[1]), rel=0.03), handler
    text = describe(EVALUATOR, [Candidate("", (), cost)], top=1)
    assert "\nchange: +" in text and "\nentry scan: " in text


# Two requests that call one function, for little work and for much; one recursive. What calls them
# is called by one of them. A helper of a header is compiled in both files, and nothing of `after`
# has a line of its own once it is inlined.
HELPERS = """
static inline const unsigned char *after(const unsigned char *at) { return at + 1; }
__attribute__((noinline)) static unsigned weigh(const unsigned char *at, unsigned n) {
  unsigned sum = 0;
  for (unsigned i = 0; i < n; ++i) {
    unsigned turn = *after(at + i);
    if (turn & 1)
      sum += sum >> 3;
    sum = sum * 33 + turn;
  }
  return sum;
}
unsigned few(const unsigned char *at, unsigned), many(const unsigned char *at, unsigned depth);
"""
FEW = """
#include "helpers.h"
__attribute__((noinline)) unsigned few(const unsigned char *at, unsigned unused) {
  return weigh(at, 4) + *after(at + 8);
}
"""
MANY = """
#include "helpers.h"
static unsigned (*volatile handlers[])(const unsigned char *, unsigned) = {few, many};
__attribute__((noinline)) static unsigned call(int which, const unsigned char *at, unsigned n) {
  return handlers[which](at, n) + 1;
}
__attribute__((noinline)) unsigned many(const unsigned char *at, unsigned depth) {
  unsigned sum = weigh(at, 500);
  if (depth)
    sum += many(after(at), depth - 1) * 7;
  return sum + call(0, at, 0);
}
int main(void) {
  unsigned char data[2048];
  unsigned sum = 1;
  for (unsigned i = 0; i < sizeof data; ++i)
    data[i] = (sum = sum * 1103515245u + 12345u) >> 24;
  for (unsigned i = 0; i < 1000; ++i)
    sum += call(0, data + i, 0);
  for (unsigned i = 0; i < 20; ++i)
    sum += call(1, data + i, i % 5);
  return sum == 42;
}
"""


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Builds that program with given options."""

    def build(options: str = "") -> Path:
        folder = tmp_path_factory.mktemp("requests")
        for name, text in (("helpers.h", HELPERS), ("few.c", FEW), ("many.c", MANY)):
            (folder / name).write_text(text)
        words = [*REPLAY_FLAGS, *shlex.split(options)]
        sources = [folder / "few.c", folder / "many.c"]
        return _compile(sources, folder / "requests", words, PROFILING_FLAGS)

    return build


@pytest.mark.parametrize("function", ["few", "many"])
def test_a_profile_of_its_calls_tells_what_a_function_takes(
    function: str, requests: Build, tmp_path: Path
) -> None:
    base = requests()
    collect(base, [], tmp_path / "run.pmu.json", within=function)
    context = Context(profile=tmp_path / "run.pmu.json", base=base)
    for options, bound in ((EVICTION["few"], 0.005), (INLINING["none"], 0.03)):
        candidate = requests(options)
        dump = _dump(candidate, tmp_path, within=function)
        cost = EVALUATOR.cost([candidate], context)
        assert cost.total == pytest.approx(dump.totals()[0], rel=bound), options
        entry = cost.report["entries"][function]
        # `many` calls itself, twice a request on average, and `few`.
        assert entry["calls"] == {"few": 1060, "many": 60}[function]
        # The code of the functions is found, not only their sum.
        assert sum(cost.parts.values()) == pytest.approx(cost.total)
        assert abs(cost.parts[OTHER_CODE]) < 0.01 * cost.total
        assert entry["calls"] * entry["instructions"] == pytest.approx(cost.total)


def test_a_profile_of_calls_that_counts_none_is_refused(
    requests: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = requests()
    context = Context(profile=tmp_path / "run.pmu.json", base=base)
    assert context.profile is not None
    collect(base, [], context.profile, within="few")
    monkeypatch.setitem(profiled_program(context.profile, base).entries, "few", 0)
    with pytest.raises(CostError, match=r"run\.pmu\.json: is of the calls of few, but counts none"):
        EVALUATOR.cost([base], context)


def test_functions_that_left_nothing_in_the_profiled_binary(
    requests: Build, tmp_path: Path
) -> None:
    """They are in the candidate, and run as often as they are called; so do copies in two files."""
    base, candidate = requests(), requests(INLINING["none"])
    collect(base, [], tmp_path / "run.pmu.json")
    cost = EVALUATOR.cost([candidate], Context(profile=tmp_path / "run.pmu.json", base=base))
    dump = _dump(candidate, tmp_path)
    for name in ("after", "weigh"):
        assert len(function_entries(candidate, name)) == 2
        true = _executed(candidate, dump, name)
        assert cost.parts[name] == pytest.approx(true, rel=0.03), name


# What the profiled binary does otherwise than a candidate, function by function.
OTHERWISE = """
#define KEEP __attribute__((noinline))
unsigned out[64];
static void put(unsigned c) {
  while (c) {
    out[out[0]++ & 63] = c & 255;
    c >>= 8;
  }
}
KEEP void encode(unsigned kind) {
  put(0x11458945);
  if (kind > 2)
    put(kind << 24 | 7);
  put(0x12345690);
}
KEEP int added(const int *values, int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i)
    sum += values[i] > 7 ? values[i] ^ i : 3;
  return sum;
}
static unsigned turned(unsigned x, unsigned n, unsigned often) {
  for (unsigned i = 0; i < n; ++i) {
    x = x * 33 + (x >> 3) + i;
    if (x & 64)
      x ^= often ? x << 7 | x >> 25 : x >> 9;
    else
      x += often ? x * x + 5 : 17;
    for (unsigned t = 0; t < 3; ++t)
      x = (x << 5) + (x >> 2) * (often + t) - (x ^ i) % 11;
    if (often)
      x -= x / 7 + (x % 13) * 3;
  }
  return x;
}
KEEP unsigned pick(unsigned x) {
  if (x & 1)
    return turned(x, 20, 1);
  else
    return turned(x, 20, 0);
}
int main(void) {
  int values[300];
  unsigned sum = 0;
  for (int i = 0; i < 300; ++i)
    values[i] = i * i;
  for (int i = 0; i < 500; ++i) {
    encode(i % 5);
    sum += added(values, 259) + pick(sum + i);
  }
  return sum == 42;
}
"""


def _executed(binary: Path, dump: Dump, function: str) -> int:
    """Instructions of a function itself; of several of its name, together."""
    with binary.open("rb") as stream:
        table = ELFFile(stream).get_section_by_name(".symtab")
        symbols = [(one["st_value"], one["st_size"]) for one in table.get_symbol_by_name(function)]
    return sum(
        counts[0]
        for address, counts in dump.counts.items()
        if any(start <= address < start + size for start, size in symbols)
    )


@pytest.mark.parametrize(
    ("options", "functions"),
    [
        # The constants that `put` was called with left nothing of its loop.
        ("-fno-inline", ["put", "encode"]),
        # A vectorised loop, and another for the rest.
        ("-Os", ["added"]),
        # Two calls became one, which has neither's line.
        ("-mllvm -inline-threshold=5000", ["pick"]),
    ],
)
def test_what_the_profiled_binary_does_otherwise(
    options: str, functions: list[str], tmp_path: Path
) -> None:
    source = tmp_path / "otherwise.c"
    source.write_text(OTHERWISE)
    base, candidate = (
        _compile([source], tmp_path / name, shlex.split(extra), PROFILING_FLAGS)
        for name, extra in (("base", ""), ("candidate", options))
    )
    collect(base, [], tmp_path / "run.pmu.json")
    cost = EVALUATOR.cost([candidate], Context(profile=tmp_path / "run.pmu.json", base=base))
    dump = _dump(candidate, tmp_path)
    for function in functions:
        true = _executed(candidate, dump, function)
        assert cost.parts[function] == pytest.approx(true, rel=0.08), function


def test_the_same_inputs_give_the_same_result(context: Context, tmp_path: Path) -> None:
    candidate = _build(tmp_path / "candidate", INLINING["little"])
    assert EVALUATOR.cost([candidate], context) == EVALUATOR.cost([candidate], context)


def test_a_callee_without_lines_in_the_profile(tmp_path: Path) -> None:
    """The profile knows how often it was called, from where, and nothing else."""
    source = tmp_path / "program.c"
    source.write_text(
        "volatile unsigned Sink;\n"
        "CALLEE static unsigned callee(unsigned X) {\n"
        "  return X * 3 + (X >> 2);\n"
        "}\n"
        "__attribute__((noinline)) void work(unsigned N) {\n"
        "  for (unsigned I = 0; I < N; ++I)\n"
        "    Sink += I;\n"
        "}\n"
        "int main(void) {\n"
        "  for (unsigned I = 0; I < 200; ++I) {\n"
        "    Sink = callee(I);\n"
        "    work(50);\n"
        "  }\n"
        "  return 0;\n"
        "}\n"
    )
    base, candidate = (
        _compile([source], tmp_path / name, [*REPLAY_FLAGS, f"-DCALLEE={how}"], PROFILING_FLAGS)
        for name, how in (
            ("base", "__attribute__((nodebug, noinline))"),
            ("candidate", "__attribute__((always_inline)) inline"),
        )
    )
    collect(base, [], tmp_path / "run.pmu.json")
    cost = EVALUATOR.cost([candidate], Context(profile=tmp_path / "run.pmu.json", base=base))
    true = _dump(candidate, tmp_path).totals()[0]
    assert cost.total == pytest.approx(true, rel=0.1)


def test_what_is_missing_or_wrong_is_named(context: Context, tmp_path: Path) -> None:
    candidate = _build(tmp_path / "candidate", INLINING["much"])
    with pytest.raises(CostError, match="needs a PMU profile and the profiled binary"):
        EVALUATOR.cost([candidate], replace(context, base=None))
    with pytest.raises(CostError, match="one linked binary"):
        EVALUATOR.cost([candidate, candidate], context)
    with pytest.raises(PmuError, match=r"candidate: its build-id is .* of another build"):
        EVALUATOR.cost([candidate], replace(context, base=candidate))
    with pytest.raises(PmuError, match="entry hande: not a function of the candidate"):
        EVALUATOR.cost([candidate], replace(context, entries=("hande",)))
    bare = _build(tmp_path / "bare", debug="-g0")
    with pytest.raises(BinaryError, match=r"bare: has no debug info"):
        EVALUATOR.cost([bare], context)
    plain = tmp_path / "plain"
    run_command([stock_tool("clang"), "-O2", *shlex.split(PROFILING_FLAGS), SOURCE, "-o", plain])
    with pytest.raises(BinaryError, match=r"plain: has no basic-block address map"):
        EVALUATOR.cost([plain], context)
    other = tmp_path / "other.c"
    other.write_text("int main(void) { return 0; }\n")
    flags = [*shlex.split(PROFILING_FLAGS), *shlex.split(ANALYSIS_FLAGS)]
    run_command([stock_tool("clang"), *flags, other, "-o", tmp_path / "other"])
    with pytest.raises(CostError, match=r"other: .* is it another program"):
        EVALUATOR.cost([tmp_path / "other"], replace(context, entries=()))
