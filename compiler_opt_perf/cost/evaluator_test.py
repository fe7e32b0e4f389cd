# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Evaluators on a real program, traced once and compiled anew with other eviction policies."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.blocks.cpu_files import FOLDER
from compiler_opt_perf.cost.batch import costs
from compiler_opt_perf.cost.evaluator import (
    EVALUATORS,
    REPLAY_FLAGS,
    Context,
    Cost,
    CostError,
    difference_error,
)
from compiler_opt_perf.cost.regalloc_score import FLAGS as SCORE_FLAGS
from compiler_opt_perf.cost.regalloc_score import ScoreError
from compiler_opt_perf.cost.report import CandidateCost, describe
from compiler_opt_perf.cost.size import ObjectFileError, text_bytes
from compiler_opt_perf.profile.callgrind import Cache, CacheGeometry, simulate
from compiler_opt_perf.profile.callgrind_dump import read_dumps
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.workload import Run
from compiler_opt_perf.toolchain.debian import debian_source
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.trace.block_table import read_block_table
from compiler_opt_perf.trace.qemu import record
from compiler_opt_perf.trace.windows import write_windows

BZIP2 = (
    *("blocksort", "bzip2", "bzlib", "compress", "crctable", "decompress", "huffman"),
    "randtable",
)
SOURCE = Path(__file__).parent / "testdata" / "pressure.c"
CPU = FOLDER / "icelake-server.json"
# Register allocators of the stock compiler: another one, and fewer registers for the usual one.
VARIANTS: dict[str, list[str]] = {
    "default": [],
    "basic": ["-regalloc=basic"],
    "few": ["-stress-regalloc=8"],
    "fewer": ["-stress-regalloc=6"],
}


@dataclass(frozen=True)
class RecordedRun:
    """The program in several variants, and the windows of the default one's run."""

    variants: dict[str, Path]
    context: Context


def _build(
    output: Path,
    options: Sequence[str],
    sources: Sequence[Path] = (SOURCE,),
    more_flags: Sequence[str] = (),
) -> Path:
    words = [word for option in options for word in ("-mllvm", option)]
    flags = ["-O2", *REPLAY_FLAGS, "-fuse-ld=lld", "-Wl,--build-id", *more_flags]
    command: list[str | Path] = [stock_tool("clang"), *flags, *words, *sources, "-o", output]
    run_command(command, timeout_s=300)
    return output


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> RecordedRun:
    folder = tmp_path_factory.mktemp("variants")
    variants = {name: _build(folder / name, options) for name, options in VARIANTS.items()}
    trace = record(variants["default"], ["40"], folder / "run.bbtrace")
    write_windows(trace, 6, folder / "run.bbwindows")
    context = Context(tool=toolchain.trace_cost, trace=folder / "run.bbwindows", cpu=CPU)
    return RecordedRun(variants, context)


def _own_instructions(binary: Path, folder: Path) -> int:
    """Instructions of the program's own file that callgrind counts."""
    dump = folder / f"{binary.name}.callgrind"
    argv = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={dump}"]
    run_command([*argv, "--compress-strings=no", "--compress-pos=no", binary, "40"], timeout_s=300)
    total, own, skip = 0, False, False
    for line in dump.read_text().splitlines():
        if line.startswith(("ob=", "fn=")):
            own = line == f"ob={binary}" if line.startswith("ob=") else own
        elif line.startswith("calls="):
            skip = True
        elif re.match(r"\d", line):
            total += int(line.split()[1]) if own and not skip else 0
            skip = False
    return total


# A function whose blocks go to several sections, and one that calls it.
PARTED = """
#include <stdlib.h>
volatile unsigned sink;
unsigned table[1024];
__attribute__((noinline)) unsigned step(unsigned x) {
  unsigned s = 0;
  for (unsigned i = 0; i < 1000; i++) {
    if (table[(x + i) & 1023] % 5 == 1)
      s ^= table[i & 1023] * 3;
    else
      s += i;
    if (s == 12345)
      abort();
    table[i & 1023] = s;
  }
  return s;
}
int main(int argc, char **argv) {
  unsigned n = atoi(argv[1]);
  for (unsigned i = 0; i < n; i++)
    sink += step(i);
  return n > 100 ? step(n) & 1 : 0;
}
"""
CLUSTERS = "v1\nf step\nc0 1 2\nc4\n"
SAMPLES = "step:100000:100\n 2: 5000\n 3: 5000\n 4: 0\n 6: 5000\n 9: 5000\nmain:1000:1\n 2: 100\n"
PARTS = {
    "whole": [],
    "list": ["-fbasic-block-sections=list=clusters.txt"],
    "all": ["-fbasic-block-sections=all"],
    "split": [
        *("-fsplit-machine-functions", "-fprofile-sample-use=samples.txt"),
        *("-gmlt", "-fdebug-info-for-profiling"),
    ],
}


@pytest.mark.compiler
@pytest.mark.parametrize("parts", PARTS)
def test_functions_in_several_sections_count_as_the_simulator_says(
    parts: str, toolchain: Toolchain, tmp_path: Path
) -> None:
    for name, text in {
        "parted.c": PARTED, "clusters.txt": CLUSTERS, "samples.txt": SAMPLES
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text)
    clang = str(stock_tool("clang"))
    flags = ["-O2", *REPLAY_FLAGS, *PARTS[parts]]
    run_command([clang, *flags, "-c", "parted.c", "-o", "parted.o"], cwd=tmp_path)
    flags = ["-fuse-ld=lld", "-Wl,--build-id", "-Wl,--strip-debug"]
    run_command([clang, *flags, "parted.o", "-o", "parted"], cwd=tmp_path)
    symbols = run_command([stock_tool("llvm-nm"), tmp_path / "parted.o"]).stdout
    assert ("step." in symbols) == (parts != "whole")
    binary = tmp_path / "parted"
    table = read_block_table(binary)
    write_windows(record(binary, ["5"], tmp_path / "run.bbtrace"), 4, tmp_path / "run.bbwindows")
    dumps = simulate(Run(binary, ["5"], timeout_s=120), tmp_path, CacheGeometry())
    counts = read_dumps(dumps, binary).counts
    expected = sum(
        counts[address][0]
        for begin, size in zip(table.address.tolist(), table.size.tolist(), strict=True)
        for address in range(begin, begin + size)
        if address in counts
    )
    context = Context(tool=toolchain.trace_cost, trace=tmp_path / "run.bbwindows", cpu=CPU)
    for code in (binary, tmp_path / "parted.o"):
        assert EVALUATORS["count"].cost([code], context).total == expected


@pytest.mark.compiler
def test_counts_instructions_of_other_variants(run: RecordedRun, tmp_path: Path) -> None:
    counts = set()
    for name, binary in run.variants.items():
        cost = EVALUATORS["count"].cost([binary], run.context)
        assert cost.report["unmapped"]["executions"] == 0, name
        # The program's file has start-up code without an address map, too.
        expected = _own_instructions(binary, tmp_path)
        assert cost.total == pytest.approx(expected, rel=0.005), name
        counts.add(cost.total)
    assert len(counts) == len(VARIANTS)


@pytest.mark.compiler
def test_counts_saved_registers_where_they_are_saved(toolchain: Toolchain, tmp_path: Path) -> None:
    """Most calls return before the part that saves registers, in the program as it is used, too."""
    source = SOURCE.with_name("early_exit.c")
    replayed, shipped = tmp_path / "replayed", tmp_path / "shipped"
    _build(replayed, [], [source])
    run_command([stock_tool("clang"), "-O2", "-fuse-ld=lld", source, "-o", shipped])
    windows = tmp_path / "run.bbwindows"
    write_windows(record(replayed, ["40"], tmp_path / "run.bbtrace"), 2, windows)
    context = Context(tool=toolchain.trace_cost, trace=windows)
    cost = EVALUATORS["count"].cost([replayed], context)
    # Without tail duplication, an early return is a jump more.
    assert cost.total == pytest.approx(_own_instructions(shipped, tmp_path), rel=0.1)


@pytest.mark.compiler
@pytest.mark.parametrize("evaluator", ["allocation-score", "count", "mca", "mca-pmu"])
def test_tells_variants_apart_by_function(run: RecordedRun, evaluator: str) -> None:
    default, basic = (
        EVALUATORS[evaluator].cost([run.variants[name]], run.context)
        for name in ("default", "basic")
    )
    for cost in (default, basic):
        assert sum(cost.parts.values()) == pytest.approx(cost.total)
        assert cost.parts.keys() == {"main", "mix", "step"}
        assert cost.parts["mix"] > 0.9 * cost.total
    assert default.parts["mix"] != basic.parts["mix"]
    text = describe(EVALUATORS[evaluator], [CandidateCost("", (), default)], top=1)
    assert text.startswith(f"{evaluator}: ") and "  mix\n" in text


@pytest.mark.compiler
def test_weighs_what_register_allocation_adds(run: RecordedRun) -> None:
    default, few = (
        EVALUATORS["allocation-score"].cost([run.variants[name]], run.context)
        for name in ("default", "few")
    )
    # Fewer registers are more spills and reloads, of 1 and 4 an instruction.
    instructions = few.report["instructions"] - default.report["instructions"]
    assert few.total - default.total > instructions > 0


@pytest.mark.compiler
def test_parts_of_the_model_can_be_left_out(run: RecordedRun) -> None:
    few = [run.variants["few"]]
    whole, plain = (EVALUATORS[name].cost(few, run.context) for name in ("mca-pmu", "mca"))
    totals = {whole.total}
    # A program that spills in its loops, on a CPU that eliminates moves.
    for part in ("stack-slots", "renaming", "dispatch-width"):
        without = replace(run.context, without=(part,))
        totals.add(EVALUATORS["mca-pmu"].cost(few, without).total)
        # Other models have no parts.
        assert EVALUATORS["mca"].cost(few, without).total == plain.total
    assert len(totals) == 4


@pytest.mark.compiler
def test_blocks_are_the_same_code_for_each_allocation(run: RecordedRun) -> None:
    context = replace(run.context, traced=run.variants["default"])
    for name, binary in run.variants.items():
        cost = EVALUATORS["count"].cost([binary], context)
        # Fewer registers also change what is scheduled and folded, not only what is allocated.
        if name in ("default", "basic"):
            assert cost.report["different_executions"] == 0, name
        assert cost.total == EVALUATORS["count"].cost([binary], run.context).total
    with pytest.raises(CommandError, match="give the binary that was traced"):
        EVALUATORS["count"].cost(
            [run.variants["default"]], replace(context, traced=run.variants["few"])
        )


@pytest.mark.compiler
def test_candidates_differ_by_more_than_the_error(run: RecordedRun) -> None:
    default, few = (
        EVALUATORS["mca-pmu"].cost([run.variants[name]], run.context) for name in ("default", "few")
    )
    for cost in (default, few):
        assert cost.standard_error is not None
        assert 0 < cost.standard_error < 0.05 * cost.total
        text = describe(EVALUATORS["mca-pmu"], [CandidateCost("", (), cost)], top=1)
        assert "standard error of sampling: 0." in text
    error = difference_error(default, few)
    assert error is not None
    assert abs(few.total - default.total) > 2 * error
    both = [CandidateCost("default", (), default), CandidateCost("few", (), few)]
    text = describe(EVALUATORS["mca-pmu"], both, top=1)
    change = f"{few.total - default.total:+,.0f}"
    assert re.search(rf"^few .*{re.escape(change)} .*% +{error / default.total:.2%}$", text, re.M)
    assert text.endswith("  mix\n")
    assert difference_error(default, default) == 0
    assert difference_error(default, Cost(1.0, {})) is None


@pytest.mark.compiler
def test_a_real_profile_says_what_a_policy_costs(tmp_path: Path, toolchain: Toolchain) -> None:
    """bzip2: its sort reads and compares what lies anywhere in a block of text."""
    tree = debian_source("bzip2")
    files = [tree / f"{name}.c" for name in BZIP2]
    flags = ["-w", *PROFILING_FLAGS.split(), "-D_FILE_OFFSET_BITS=64"]
    binaries = {
        name: _build(tmp_path / name, VARIANTS[name], files, flags) for name in ("default", "few")
    }
    text = tmp_path / "text"
    text.write_bytes(b"".join(path.read_bytes() for path in files))
    arguments = ["-c", "-k", str(text)]
    trace = record(binaries["default"], arguments, tmp_path / "run.bbtrace")
    write_windows(trace, 6, tmp_path / "run.bbwindows")
    # A last level of 64 kB: the text, 250 kB, and the pointers into it do not fit.
    caches = CacheGeometry(ll=Cache(64 << 10, 8, 64))
    collect(binaries["default"], arguments, tmp_path / "run.pmu.json", geometry=caches)
    context = Context(
        tool=toolchain.trace_cost,
        trace=tmp_path / "run.bbwindows",
        cpu=CPU,
        profile=tmp_path / "run.pmu.json",
    )
    default, few = (
        EVALUATORS["mca-pmu"].cost([binaries[name]], context) for name in ("default", "few")
    )
    for cost in (default, few):
        cycles = cost.report["cycles"]
        for part in ("execution", "llc_miss", "mispredict"):
            assert cycles[part] > 0.05 * cycles["total"], part
        assert cost.parts["BZ2_blockSort"] + cost.parts["mainGtU"] > 0.3 * cost.total
    assert few.total > default.total


@pytest.mark.compiler
def test_a_batch_is_what_its_candidates_are_one_by_one(run: RecordedRun, tmp_path: Path) -> None:
    candidates = [[run.variants["default"]], [tmp_path / "missing"], [run.variants["basic"]]]
    with Pool(2) as pool:
        outcomes = costs("mca", candidates, run.context, pool)
    assert outcomes[0].get() == EVALUATORS["mca"].cost(candidates[0], run.context)
    assert outcomes[2].get() == EVALUATORS["mca"].cost(candidates[2], run.context)
    with pytest.raises(CommandError, match="missing"):
        outcomes[1].get()


@pytest.mark.compiler
def test_results_are_found_again_by_content(run: RecordedRun, tmp_path: Path) -> None:
    count = EVALUATORS["count"]
    context = replace(run.context, cache=tmp_path / "cache")
    copy = tmp_path / "copy"
    copy.write_bytes(run.variants["basic"].read_bytes())
    first = count.cost([run.variants["basic"]], context)
    assert first == count.cost([copy], context) == count.cost([copy], run.context)
    assert len(list((tmp_path / "cache").iterdir())) == 1
    assert count.cost([run.variants["default"]], context) != first
    assert len(list((tmp_path / "cache").iterdir())) == 2
    # Cycles depend on the CPU file, instructions do not.
    other = replace(context, cpu=CPU.with_name("znver3.json"))
    assert count.cost([copy], other) == first
    assert EVALUATORS["mca"].cost([copy], other) != EVALUATORS["mca"].cost([copy], context)


@pytest.mark.compiler
def test_a_damaged_result_is_computed_again(
    run: RecordedRun, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context = replace(run.context, cache=tmp_path / "cache")
    candidate = [run.variants["basic"]]
    first = EVALUATORS["count"].cost(candidate, context)
    (path,) = (tmp_path / "cache").iterdir()
    whole = path.read_bytes()
    for damaged in (whole[:100], whole.replace(b'"instructions"', b'"instruction"')):
        path.write_bytes(damaged)
        caplog.clear()
        assert EVALUATORS["count"].cost(candidate, context) == first
        assert f"{path}:" in caplog.text and "computed again" in caplog.text
        assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 1}, "$.version: expected 2, found 1: another version"),
        ({"format": ...}, "$.format: is missing"),
        ({"instructions": "1"}, '$.instructions: expected `float`, found "1"'),
        ({"functions": [{"name": "f"}]}, "$.functions[0].instructions: is missing"),
        ({"cycles": 1.5}, "$.cycles: expected `object | null`, found 1.5"),
        ({"cycles": ...}, "$.cycles: is missing"),
        (
            {"functions": [{"name": "f", "instructions": 1, "blocks": []}]},
            "$.functions[0].cycles: is missing",
        ),
        ({"trace": {}}, "$.trace.truncated: is missing"),
    ],
)
def test_a_tool_of_another_version_is_told(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    report = {
        **{"format": "compiler-opt-perf/trace-cost", "version": 2, "executions": 1},
        **{"instructions": 3.0, "cycles": {"total": 2.0}, "functions": []},
        **{"unmapped": {"executions": 0, "instructions": 0}, "trace": {"truncated": False}},
    }
    tool = tmp_path / "llvm-trace-cost"

    def write(report: Mapping[str, object]) -> None:
        text = json.dumps({name: value for name, value in report.items() if value is not ...})
        # Its last argument is where the report goes to.
        tool.write_text(f"#!/bin/bash\necho '{text}' > \"${{@: -1}}\"\n")
        tool.chmod(0o755)

    context = Context(tool=tool, trace=tmp_path / "t", cpu=tmp_path / "cpu.json")
    write(report)
    assert EVALUATORS["mca"].cost([], context).total == 2.0
    write(report | change)
    expected = re.escape(f"{tool}: {message}") + ".*; build the toolchain again"
    with pytest.raises(CostError, match=expected):
        EVALUATORS["mca"].cost([], context)


@pytest.mark.compiler
def test_what_is_missing_is_named(run: RecordedRun, tmp_path: Path) -> None:
    candidate = [run.variants["default"]]
    with pytest.raises(CostError, match="count needs llvm-trace-cost and a trace"):
        EVALUATORS["count"].cost(candidate, Context())
    with pytest.raises(CostError, match="mca needs a CPU file"):
        EVALUATORS["mca"].cost(candidate, replace(run.context, cpu=None))
    with pytest.raises(ObjectFileError, match="none"):
        EVALUATORS["size"].cost([tmp_path / "none"], Context())


@pytest.mark.compiler
def test_size_needs_no_context(run: RecordedRun) -> None:
    both = list(run.variants.values())[:2]
    cost = EVALUATORS["size"].cost(both, Context())
    assert cost.total == sum(text_bytes(path) for path in both)


@pytest.mark.compiler
def test_scores_lie_beside_the_objects(
    run: RecordedRun, toolchain: Toolchain, tmp_path: Path
) -> None:
    objects = {}
    for name, options in VARIANTS.items():
        objects[name] = tmp_path / f"{name}.o"
        words = [word for option in options for word in ("-mllvm", option)]
        command: list[str | Path] = [
            toolchain.clang,
            "-O2",
            "-g1",
            "-c",
            SOURCE,
            *SCORE_FLAGS,
            *words,
        ]
        run_command([*command, "-o", objects[name]], timeout_s=300)
    plain, calls = EVALUATORS["regalloc-score"], EVALUATORS["regalloc-score-calls"]
    scores = {name: plain.cost([path], Context()) for name, path in objects.items()}
    assert {frozenset(score.parts) for score in scores.values()} == {
        frozenset({"main", "mix", "step"})
    }
    # Fewer registers, more spills.
    assert scores["default"].total < scores["few"].total < scores["fewer"].total
    # `mix` is called once for each of the run's 40 rounds.
    weighted = calls.cost([objects["few"]], run.context)
    assert weighted.parts["main"] == scores["few"].parts["main"]
    assert weighted.parts["mix"] == 40 * scores["few"].parts["mix"]
    both = plain.cost([objects["few"], objects["fewer"]], Context())
    assert both.total == pytest.approx(scores["few"].total + scores["fewer"].total)


@pytest.mark.compiler
def test_missing_or_foreign_scores_are_named(run: RecordedRun, tmp_path: Path) -> None:
    score = EVALUATORS["regalloc-score"]
    with pytest.raises(ScoreError, match=r"none\.opt\.yaml: No such file.*-fsave-optimization"):
        score.cost([tmp_path / "none.o"], Context())
    (tmp_path / "other.opt.yaml").write_text("--- !Missed\nPass:            inline\n...\n")
    with pytest.raises(ScoreError, match="other remarks"):
        score.cost([tmp_path / "other.o"], Context())
    with pytest.raises(CostError, match="regalloc-score-calls needs a trace"):
        (tmp_path / "empty.opt.yaml").write_text("")
        EVALUATORS["regalloc-score-calls"].cost([tmp_path / "empty.o"], Context())


@pytest.mark.compiler
def test_addresses_are_carried_over_to_other_allocations(
    toolchain: Toolchain, tmp_path: Path
) -> None:
    """A candidate costs the same on the default's run, whose addresses it has, as on its own."""
    source = Path(__file__).parents[1] / "train" / "testdata" / "passed_local.cpp"
    # The other one spills every value.
    options = {"default": [], "fast": ["-regalloc=fast", "-optimize-regalloc=0"]}
    costs: dict[str, list[float]] = {name: [] for name in options}
    variants = {
        name: _build(tmp_path / name, [*words, "-inline-threshold=0"], [source], ["-lstdc++"])
        for name, words in options.items()
    }
    for recorded in variants:
        windows = tmp_path / f"{recorded}.bbwindows"
        trace = record(variants[recorded], ["5"], tmp_path / f"{recorded}.bbtrace")
        write_windows(trace, 6, windows)
        context = Context(tool=toolchain.trace_cost, trace=windows, cpu=FOLDER / "znver5.json")
        for name, binary in variants.items():
            costs[name].append(EVALUATORS["mca-pmu"].cost([binary], context).total)
    for on_default, on_fast in costs.values():
        assert on_default == pytest.approx(on_fast, rel=0.05)
    assert costs["fast"][0] > 1.05 * costs["default"][0]


def test_code_that_fits_no_cache_is_fetched_slowly(toolchain: Toolchain, tmp_path: Path) -> None:
    source = Path(__file__).parents[1] / "trace" / "testdata" / "large_code.c"
    binary = _build(tmp_path / "large", [], [source])
    shares = {}
    # All functions in turn, or one of them as often.
    for name, arguments in {"large": ["20", "0"], "small": ["0", "10000"]}.items():
        windows = tmp_path / f"{name}.bbwindows"
        write_windows(record(binary, arguments, tmp_path / f"{name}.bbtrace"), 6, windows)
        context = Context(tool=toolchain.trace_cost, trace=windows, cpu=FOLDER / "cascadelake.json")
        parts = EVALUATORS["mca-pmu"].cost([binary], context).report["cycles"]
        shares[name] = parts["front_end"] / parts["total"]
        if name == "large":
            # Each cause adds to it.
            for part in ("icache-misses", "decoded-code"):
                without = replace(context, without=(part,))
                less = EVALUATORS["mca-pmu"].cost([binary], without).report["cycles"]
                assert less["front_end"] < 0.99 * parts["front_end"]
            fetching = ("icache-misses", "itlb-misses", "decoded-code")
            none = EVALUATORS["mca-pmu"].cost([binary], replace(context, without=fetching))
            assert none.report["cycles"]["front_end"] == 0
    assert shares["large"] > 0.2
    assert shares["small"] < 0.01


def test_loads_that_cannot_be_forwarded_to_are_seen_by_their_addresses(
    toolchain: Toolchain, tmp_path: Path
) -> None:
    # On a Zen 5, the build that stores bytes one by one takes six times as long.
    cycles = {}
    for name, flags in {"wide": ["-DWIDE"], "bytes": []}.items():
        source = SOURCE.with_name("units.c")
        binary = _build(tmp_path / name, [], [source], flags)
        trace = record(binary, [], tmp_path / f"{name}.bbtrace")
        windows = tmp_path / f"{name}.bbwindows"
        write_windows(trace, 6, windows)
        context = Context(tool=toolchain.trace_cost, trace=windows, cpu=FOLDER / "znver5.json")
        cost = EVALUATORS["mca-pmu"].cost([binary], context)
        cycles[name] = cost.total
        waiting = [
            share
            for function in cost.report["functions"]
            for block in function["blocks"]
            for _, share in block.get("failed_forwards", ())
            if block["executions"] > 0.01 * cost.report["executions"]
        ]
        # In each round, the load of both bytes.
        assert waiting == ([pytest.approx(1, abs=0.01)] if name == "bytes" else [])
        if name == "bytes":
            # The pointer and the stack pointer are unrelated symbols within the loop.
            plain = replace(context, without=("failed-forwarding",))
            assert EVALUATORS["mca-pmu"].cost([binary], plain).total < cycles[name] / 3
    assert cycles["bytes"] > 3 * cycles["wide"]
