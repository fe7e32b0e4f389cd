# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Predicted instructions of real programs against those that callgrind counts."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from compiler_opt_perf.cost.evaluator import EVALUATORS, REPLAY_FLAGS, Context, CostError, describe
from compiler_opt_perf.cost.profile_count import OTHER_CODE
from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.execution.llvm import stock_tool
from compiler_opt_perf.pmu.binary import PROFILING_FLAGS, hide_debug_info
from compiler_opt_perf.pmu.callgrind import CacheGeometry, read_dumps, simulate
from compiler_opt_perf.pmu.collect import collect
from compiler_opt_perf.pmu.errors import PmuError
from compiler_opt_perf.traces.errors import TraceError
from compiler_opt_perf.traces.synthesis import ANALYSIS_FLAGS

SOURCE = Path(__file__).parent / "testdata" / "requests.c"
ARGUMENTS = ["4000"]
HANDLERS = ("get", "put", "scan")
EVALUATOR = EVALUATORS["profile-count"]
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


def _build(output: Path, options: str = "", debug: str = PROFILING_FLAGS) -> Path:
    words = ["-O2", *shlex.split(debug), *shlex.split(ANALYSIS_FLAGS), *REPLAY_FLAGS]
    words += [*shlex.split(options), "-fuse-ld=lld", "-Wl,--build-id"]
    run_command([stock_tool("clang"), *words, SOURCE, "-o", output], timeout_s=300)
    return output


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    """A profile of the program, and its binary."""
    folder = tmp_path_factory.mktemp("base")
    base = _build(folder / "requests")
    collect(base, ARGUMENTS, folder / "run.pmu.json")
    return Context(profile=folder / "run.pmu.json", base=base, entries=HANDLERS)


def _retired(binary: Path, folder: Path) -> int:
    """The program's own instructions, by callgrind."""
    copy = folder / "copy"
    hide_debug_info(binary, copy)
    return read_dumps(simulate(copy, ARGUMENTS, folder, CacheGeometry()), copy).totals()[0]


@pytest.mark.parametrize("name", [*EVICTION, *INLINING])
def test_predicts_what_a_candidate_retires(name: str, context: Context, tmp_path: Path) -> None:
    candidate = _build(tmp_path / name, {**EVICTION, **INLINING}[name])
    cost = EVALUATOR.cost([candidate], context)
    measured = cost.report["measured"]
    true_change = _retired(candidate, tmp_path) - measured
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
    text = describe(EVALUATOR, cost, top=1)
    assert "\nchange: +" in text and "\nentry scan: " in text


def test_the_same_inputs_give_the_same_result(context: Context, tmp_path: Path) -> None:
    candidate = _build(tmp_path / "candidate", INLINING["little"])
    assert EVALUATOR.cost([candidate], context) == EVALUATOR.cost([candidate], context)


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
    with pytest.raises(PmuError, match=r"bare: has no debug info"):
        EVALUATOR.cost([bare], context)
    plain = tmp_path / "plain"
    run_command([stock_tool("clang"), "-O2", *shlex.split(PROFILING_FLAGS), SOURCE, "-o", plain])
    with pytest.raises(TraceError, match=r"plain: has no basic-block address map"):
        EVALUATOR.cost([plain], context)
    other = tmp_path / "other.c"
    other.write_text("int main(void) { return 0; }\n")
    flags = [*shlex.split(PROFILING_FLAGS), *shlex.split(ANALYSIS_FLAGS)]
    run_command([stock_tool("clang"), *flags, other, "-o", tmp_path / "other"])
    with pytest.raises(CostError, match=r"other: .* is it another program"):
        EVALUATOR.cost([tmp_path / "other"], replace(context, entries=()))
