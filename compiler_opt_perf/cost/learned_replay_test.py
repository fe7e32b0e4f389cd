# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A learned model as evaluator of a real run, and what a profile tells it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import iced_x86
import msgspec
import numpy as np
import pytest

from compiler_opt_perf.binary.address_map import read_address_map
from compiler_opt_perf.binary.disassembly import Kind, MachineCode
from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.blocks.config import CostModelConfig, Granite, LearnedError
from compiler_opt_perf.blocks.cpu_files import cpu_file
from compiler_opt_perf.blocks.graphs import PMU_INPUTS, Floats, Vocabulary
from compiler_opt_perf.blocks.model import CostModel, load
from compiler_opt_perf.blocks.networks import initial_weights, layout
from compiler_opt_perf.blocks.profile_inputs import ProfileInputs
from compiler_opt_perf.cost.correction import INPUTS, Correction, inputs_of
from compiler_opt_perf.cost.evaluator import EVALUATORS, REPLAY_FLAGS, Context, CostError
from compiler_opt_perf.cost.learned_replay import LearnedReplay, pieces
from compiler_opt_perf.cost.report import CandidateCost, describe, document
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT
from compiler_opt_perf.trace.qemu import record
from compiler_opt_perf.trace.trace_file import Trace
from compiler_opt_perf.trace.windows import Windows, write_windows

SOURCE = Path(__file__).parent / "testdata" / "walks.c"
NODES = 1 << 14
L1_MISS, MISPREDICT = PMU_INPUTS.index("l1_miss"), PMU_INPUTS.index("mispredict")
FAILED_FORWARD = PMU_INPUTS.index("failed_forward")


def compiled(output: Path, *options: str, source: Path = SOURCE) -> Path:
    flags = ["-O2", *PROFILING_FLAGS.split(), *REPLAY_FLAGS, "-fuse-ld=lld", *options]
    run_command([stock_tool("clang"), *flags, source, "-o", output], timeout_s=300)
    return output


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("walks") / "walks", "-Wl,--build-id")


@pytest.fixture(scope="module")
def context(binary: Path, toolchain: Toolchain) -> Context:
    trace = record(binary, [], binary.with_name("run.bbtrace"))
    windows = binary.with_name("run.bbwindows")
    write_windows(trace, 2, windows)
    return Context(tool=toolchain.trace_cost, trace=windows)


@pytest.fixture(scope="module")
def profile(binary: Path) -> Path:
    path = binary.with_name("run.pmu.json")
    collect(binary, [], path)
    return path


@pytest.fixture(scope="module")
def model() -> CostModel:
    return load(REPO_ROOT / "models" / "cost-znver3")


def of_function(binary: Path, name: str) -> list[tuple[int, bytes]]:
    """Address and code of its blocks."""
    code = MachineCode.read(binary)
    (function,) = (one for one in read_address_map(binary) if one.name == name)
    return [(address, code.content(address, address + n)) for address, n, _ in function.blocks if n]


def test_calls_and_jumps_divide_a_block() -> None:
    # mov rax, rdi; call; call; add rax, rcx; cmp rax, rcx; jne; and bytes that are none.
    code = bytes.fromhex("4889f8 e800000000 e800000000 4801c8 4839c8 7500 06".replace(" ", ""))
    found = [(code[one.start : one.end].hex(), one.addresses) for one in pieces(code)]
    assert found == [("4889f8", (0,)), ("", ()), ("4801c84839c8", (13, 16)), ("06", (21,))]


@pytest.mark.compiler
def test_a_run_costs_what_its_blocks_do(binary: Path, context: Context, model: CostModel) -> None:
    evaluator = LearnedReplay(model, "znver3")
    cost = evaluator.cost([binary], context)
    counted = EVALUATORS["count"].cost([binary], context)
    assert cost.parts.keys() == counted.parts.keys()
    assert sum(cost.parts.values()) == pytest.approx(cost.total)
    assert cost.report["instructions"] == counted.total
    # The list: a load that waits for the one before takes 4 cycles.
    assert cost.parts["walk"] == pytest.approx(4 * NODES, rel=0.1)
    # x87 is charged what other instructions take, jumps left out.
    parts = cost.report["pieces"]
    assert parts["refused"].keys() >= {"unknown opcode: fld", "unknown opcode: fldz"}
    assert sum(parts["refused"].values()) < 0.01 * parts["executions"]
    predicted = cost.total - cost.report["cycles"]["charged"]
    others = counted.total - sum(parts["ended_by"].values()) - counted.parts["third"]
    assert cost.parts["third"] == pytest.approx(
        predicted / others * counted.parts["third"], rel=0.2
    )
    # One return for each call of a function of its own.
    assert parts["ended_by"]["conditional_jumps"] > NODES
    assert parts["ended_by"]["returns"] == sum(
        function["entries"] for function in counted.report["functions"]
    )


@pytest.mark.compiler
def test_blocks_and_functions_add_up_to_the_run(
    binary: Path, context: Context, model: CostModel
) -> None:
    cost = LearnedReplay(model, "znver3").cost([binary], context)
    for function in cost.report["functions"]:
        blocks = [block["cycles"]["execution"] for block in function["blocks"]]
        assert sum(blocks) == pytest.approx(function["cycles"]["total"])
    totals = [function["cycles"]["total"] for function in cost.report["functions"]]
    assert sum(totals) == pytest.approx(cost.total)


@pytest.mark.compiler
def test_company_is_what_windows_tell(
    binary: Path, context: Context, model: CostModel, tmp_path: Path
) -> None:
    trace = Trace.load(binary.with_name("run.bbtrace"), quiet=True)
    totals = {}
    for length in (1, 9):
        path = tmp_path / f"{length}.bbwindows"
        write_windows(trace, length, path)
        cost = LearnedReplay(model, "znver3").cost([binary], replace(context, trace=path))
        totals[length] = cost.total
        # A loop of one block has no other company than itself.
        assert cost.parts["walk"] == pytest.approx(4 * NODES, rel=0.1)
    # Alone, blocks that others run between wait for themselves.
    assert totals[9] < 0.99 * totals[1]
    whole = LearnedReplay(model, "znver3").cost([binary], replace(context, trace=trace.path))
    assert whole.total == pytest.approx(totals[9])


@pytest.mark.compiler
def test_candidates_are_compared(
    binary: Path, context: Context, model: CostModel, tmp_path: Path
) -> None:
    evaluator = LearnedReplay(model, "znver3")
    whole = evaluator.cost([binary], context)
    objects = [compiled(tmp_path / "walks.o", "-c")]
    assert evaluator.cost(objects, context).parts == pytest.approx(whole.parts, rel=0.02)
    other = compiled(tmp_path / "basic", "-mllvm", "-regalloc=basic")
    both = [
        CandidateCost("default", (binary,), whole),
        CandidateCost("basic", (other,), evaluator.cost([other], context)),
    ]
    text = describe(evaluator, both, 3)
    assert text.startswith("granite: cycles, and differences from default\n")
    assert "pieces of blocks without prediction, charged the mean: " in text
    assert document(evaluator, both, 3)["candidates"][1]["change"] == pytest.approx(
        both[1].cost.total - whole.total
    )


@pytest.mark.compiler
def test_a_module_that_executes_nothing_costs_nothing(
    context: Context, model: CostModel, tmp_path: Path
) -> None:
    source, module = tmp_path / "other.c", tmp_path / "other.o"
    source.write_text("long never(long x) { return 3 * x; }")
    run_command([stock_tool("clang"), "-O2", *REPLAY_FLAGS, "-c", source, "-o", module])
    cost = LearnedReplay(model, "znver3").cost([module], context)
    assert (cost.total, dict(cost.parts)) == (0.0, {})


@pytest.mark.compiler
def test_what_is_missing_is_named(binary: Path, context: Context, model: CostModel) -> None:
    evaluator = LearnedReplay(model, "znver3")
    with pytest.raises(CostError, match="granite needs llvm-trace-cost and a trace"):
        evaluator.cost([binary], replace(context, trace=None))
    with pytest.raises(LearnedError, match="for znver3, not for skylake"):
        LearnedReplay(model, "skylake").cost([binary], context)
    knows_nothing = replace(model, vocabulary=Vocabulary(["op:nop"] * len(model.vocabulary.tokens)))
    with pytest.raises(CostError, match="has no prediction for any code .* unknown opcode: mov"):
        LearnedReplay(knows_nothing, "znver3").cost([binary], context)


@pytest.mark.compiler
def test_a_profile_tells_rates_of_lines(binary: Path, profile: Path) -> None:
    blocks = [*of_function(binary, "walk"), *of_function(binary, "chosen")]
    inputs = ProfileInputs(profile, binary, blocks)
    code = MachineCode.read(binary)
    rows: dict[str, dict[Kind, list[Floats]]] = {"walk": {}, "chosen": {}}
    for name, kinds in rows.items():
        for address, content in of_function(binary, name):
            for one in code.instructions(address, address + len(content)):
                kinds.setdefault(one.kind, []).append(inputs.rows([one.address])[0])
    # Each node is in a line of its own, and 1 MiB of them leave the first level.
    loads = [row[L1_MISS] for row in rows["walk"][Kind.LOAD]]
    assert max(loads) > 0.9
    assert all(np.isnan(row).all() for row in rows["walk"][Kind(0)])
    jumps = [row[MISPREDICT] for row in rows["chosen"][Kind.BRANCH | Kind.CONDITIONAL]]
    assert min(jumps) < 0.05 and 0.2 < max(jumps) < 0.6
    # What main saved is at hand, whatever else of the line misses.
    main = of_function(binary, "main")
    rows_of_main = ProfileInputs(profile, binary, main)
    pops = [
        rows_of_main.rows([address + one.ip])[0]
        for address, content in main
        for one in iced_x86.Decoder(64, content)
        if one.mnemonic == iced_x86.Mnemonic.POP
    ]
    assert len(pops) > 1 and all(row[L1_MISS] == 0 for row in pops)


@pytest.mark.compiler
def test_jumps_are_guessed_as_by_the_simulated_predictor(
    binary: Path, context: Context, profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: set[float] = set()
    predict = CostModel.predict

    def kept(self: CostModel, codes: Any, cpu: str, pmu: Any = None, executor: Any = None) -> Any:
        given.update(float(row[MISPREDICT]) for rows in pmu for row in rows)
        return predict(self, codes, cpu, pmu, executor)

    monkeypatch.setattr(CostModel, "predict", kept)
    with_pmu = load(REPO_ROOT / "models" / "cost-icelake-server-pmu")
    LearnedReplay(with_pmu, "icelake-server").cost([binary], replace(context, profile=profile))
    assert context.trace is not None
    windows = Windows.load(context.trace)
    assert windows.branches is not None
    table = windows.table
    exits = windows.branches[:, 0]
    guessed = [
        windows.branches[block, 1] / exits[block]
        for block in range(len(table))
        if table.names[table.function[block]] == "chosen" and exits[block] > NODES / 2
    ]
    assert max(guessed) > 0.2
    for rate in guessed:
        assert any(one == pytest.approx(rate, abs=1e-6) for one in given)


@pytest.mark.compiler
def test_a_correction_says_what_it_adds(
    binary: Path, context: Context, profile: Path, model: CostModel
) -> None:
    cost = LearnedReplay(model, "znver3").cost([binary], context)
    with pytest.raises(CostError, match=r"needs a trace, a profile .* and a CPU file"):
        inputs_of(cost, context)
    whole = replace(context, profile=profile, cpu=cpu_file("znver3"))
    inputs = inputs_of(cost, whole)
    assert inputs["blocks"] == cost.total
    # The choice by chance is wrong about half of the time: 14 cycles each.
    assert 0.3 * NODES * 14 < inputs["mispredictions"] < 0.8 * NODES * 15
    # The list, and the same nodes once more: 12 cycles from the second level.
    assert inputs["first-level misses"] > 1.5 * NODES * 12
    # Loops end in a jump back.
    assert 2 * NODES < inputs["taken branches"] < 6 * NODES
    # Half of the choices print; what they call returns elsewhere.
    assert 0.4 * NODES < inputs["calls and returns"] < 0.6 * NODES
    # printf.
    assert inputs["code elsewhere"] > 100 * NODES / 2
    weights = {name: 1.0 + number for number, name in enumerate(INPUTS)}
    correction = Correction(evaluator="granite", mcpu="znver3", weights=weights, programs=("a",))
    evaluator = LearnedReplay(model, "znver3", correction)
    found = evaluator.cost([binary], whole)
    assert found.total == pytest.approx(sum(weights[name] * inputs[name] for name in INPUTS))
    assert sum(found.parts.values()) == pytest.approx(found.total)
    assert found.parts["walk"] == cost.parts["walk"]
    text = describe(evaluator, [CandidateCost("", (), found)], 3)
    assert f"mispredictions: {inputs['mispredictions']:,.0f} cycles, weight 2.000" in text
    other = LearnedReplay(model, "znver3", msgspec.structs.replace(correction, evaluator="other"))
    with pytest.raises(CostError, match="for other on znver3, not for granite on znver3"):
        other.cost([binary], whole)


def untrained(codes: Sequence[bytes]) -> CostModel:
    """A model that takes PMU inputs, of random weights."""
    config = CostModelConfig(Granite(width=8, rounds=1, resources=2), pmu=True)
    vocabulary = Vocabulary.from_blocks([*codes, bytes.fromhex("7500")], 1)
    weights = initial_weights(layout(config, len(vocabulary), 1), seed=1)
    return CostModel(config, vocabulary, ("znver3",), weights, {})


@pytest.mark.compiler
def test_a_model_with_pmu_inputs_takes_the_profile(
    binary: Path, context: Context, profile: Path
) -> None:
    names = ("walk", "chosen", "third", "main")
    codes = [
        code[one.start : one.end]
        for name in names
        for _, code in of_function(binary, name)
        for one in pieces(code)
    ]
    evaluator = LearnedReplay(untrained(codes), "znver3")
    assert evaluator.name == "granite-pmu"
    without = evaluator.cost([binary], context)
    cost = evaluator.cost([binary], replace(context, profile=profile))
    assert cost.parts.keys() == without.parts.keys()
    for name in ("walk", "chosen"):
        assert abs(cost.parts[name] / without.parts[name] - 1) > 1e-3
    # What a piece costs does not depend on when it is asked for.
    again = LearnedReplay(evaluator.model, "znver3").cost([binary], context)
    assert again.total == pytest.approx(without.total)


@pytest.mark.compiler
def test_loads_that_wait_for_stores_are_told_to_the_model(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binary = compiled(tmp_path / "units", "-Wl,--build-id", source=SOURCE.with_name("units.c"))
    windows = tmp_path / "run.bbwindows"
    write_windows(record(binary, [], tmp_path / "run.bbtrace"), 2, windows)
    codes = [
        code[one.start : one.end]
        for name in ("main", "append")
        for _, code in of_function(binary, name)
        for one in pieces(code)
    ]
    model = untrained(codes)
    context = Context(tool=toolchain.trace_cost, trace=windows)
    blind = LearnedReplay(model, "znver3")
    assert not blind.uses_cpu
    without = blind.cost([binary], context)
    model.weights["pmu"][FAILED_FORWARD] = 1
    evaluator = LearnedReplay(model, "znver3")
    assert evaluator.uses_cpu
    with pytest.raises(CostError, match="needs a CPU file"):
        evaluator.cost([binary], context)
    shares: dict[bytes, Any] = {}
    predict = CostModel.predict

    def kept(self: CostModel, codes: Any, cpu: str, pmu: Any = None, executor: Any = None) -> Any:
        # Blocks that no sample has are unknown.
        known = ((code, rows) for code, rows in zip(codes, pmu, strict=True) if rows is not None)
        shares.update((code, rows[:, FAILED_FORWARD]) for code, rows in known)
        return predict(self, codes, cpu, pmu, executor)

    monkeypatch.setattr(CostModel, "predict", kept)
    cost = evaluator.cost([binary], replace(context, cpu=cpu_file("znver3")))
    # movzx eax, word [rsi]: it reads two bytes that main stores one by one.
    ((_, code),) = of_function(binary, "append")
    ((load, *others),) = (
        rows for piece, rows in shares.items() if piece == code[: len(piece)] and len(rows) < 4
    )
    assert load == pytest.approx(1, abs=0.01) and np.isnan(others).all()
    assert cost.parts["append"] != pytest.approx(without.parts["append"], rel=1e-3)
