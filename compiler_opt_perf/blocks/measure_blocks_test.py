# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures blocks on this machine, however busy it is: only relations are asserted."""

import statistics
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from compiler_opt_perf.blocks import measure_blocks as measuring
from compiler_opt_perf.blocks.block_code import Block
from compiler_opt_perf.blocks.block_file import MeasuredBlock, encoded, read_blocks
from compiler_opt_perf.blocks.measure_blocks import (
    MeasureError,
    _Head,
    build_runner,
    describe,
    measure_blocks,
    present_cpu,
    sampled,
)
from compiler_opt_perf.blocks.rated_blocks import NO_SOURCE, Rates, at_rates, rated
from compiler_opt_perf.run.command import run_command

# With it, no core counts as used by others, so that nothing is waited for.
ALWAYS_OURS = 1000.0


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_runner(tmp_path_factory.mktemp("runner"))


def answers(runner: Path, lines: Sequence[str], folder: Path, *settings: float) -> list[str]:
    """What the program says of blocks."""
    path = folder / "lines"
    path.write_text("".join(f"{line}\n" for line in lines))
    with path.open("rb") as stream:
        words = [str(setting) for setting in settings or (ALWAYS_OURS,)]
        printed = run_command([runner, *words], stdin=stream).stdout.splitlines()
    assert len(printed) == len(lines)
    return printed


# Each kind in several registers, of which some may be disturbed.
KINDS = {
    "multiplications": ["480fafc0", "480fafc9", "480fafd2", "480faff6", "480fafff", "4d0fafc0"],
    "additions": ["4801c8", "4801ca", "4801ce", "4801cf", "4901c8", "4901c9"],
    # Of four registers.
    "independent": [
        "4901c84901c94901ca4901cb",
        "4801c84801ca4801ce4801cf",
        "4901c84801c84801ca4801ce",
    ],
    # Each begins with an address.
    "loads": ["488b00", "488b09", "488b12", "488b36", "488b3f", "4d8b00"],
    # Incremented in memory, all copies at one address.
    "increments": [f"48ff0500000000 3:7:{place}" for place in (64, 4096, 8192, 12352)],
}


@pytest.mark.compiler
def test_latencies_and_throughputs_are_those_of_any_core(runner: Path, tmp_path: Path) -> None:
    cycles = {}
    for kind, blocks in KINDS.items():
        # On a busy machine all may be disturbed at once.
        tries = (answers(runner, blocks, tmp_path) for _ in range(20))
        printed = ([one.split() for one in own if one.startswith("measured")] for own in tries)
        measured = next(filter(None, printed))
        cycles[kind] = statistics.median(float(words[1]) for words in measured)
        pages = {int(words[4]) for words in measured}
        assert pages <= ({1, 2} if kind in ("loads", "increments") else {0})
        assert all(2 <= int(words[2]) <= int(words[3]) for words in measured)
    assert 0.8 < cycles["additions"] < 1.5
    assert 2.3 < cycles["multiplications"] / cycles["additions"] < 5
    assert cycles["independent"] < 0.75 * 4 * cycles["additions"]
    assert 2.3 < cycles["loads"] / cycles["additions"] < 9
    assert cycles["increments"] > 0.9


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("0f05", "system call"),
        ("b8270000000f05", "system call"),
        ("0f0b", "illegal instruction"),
        ("cc", "trap"),
        ("48f7f1", "division error or other arithmetic trap"),
        ("4831c0488b00", "address of no page"),
        ("48c7c0000000ff480fbe00", "address of no page"),
        ("48b80000000000000080488b00", "misaligned or impossible address"),
        ("0f284001", "misaligned or impossible address"),
        # Copies bytes for as long as there is memory.
        ("f3a4", "too many pages"),
        ("f4", "misaligned or impossible address"),
        # A jump to itself.
        ("ebfe", "too slow"),
        ("c60500000000cc", "writes code"),
        ("90" * 513, "too long"),
        ("9", "not a block"),
        ("", "not a block"),
        ("488b0500000000 9:7:0", "not a block"),
    ],
)
def test_what_a_block_does_is_its_own_affair(
    line: str, reason: str, runner: Path, tmp_path: Path
) -> None:
    """It is dropped for a reason, and those after it are measured."""
    first, second = answers(runner, [line, "0faff6"], tmp_path)
    assert first == f"dropped {reason}"
    assert second.startswith("measured") or second in ("dropped unstable", "dropped disturbed")


# mov r, [r], a linked list, of several registers.
LISTS = ["488b3f", "488b36", "488b00", "488b09", "488b12", "4d8b00"]


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("rates", "least", "most"),
    [
        # A load from the first level takes 4 or 5 cycles; from memory some hundreds.
        (Rates("memory", 0.0, 0.0), 2.0, 20.0),
        (Rates("memory", 1.0, 0.0), 60.0, 10000.0),
        # Of sixty copies half miss.
        (Rates("memory", 0.5, 0.0), 30.0, 5000.0),
        # Some fifteen cycles, in half of the copies.
        (Rates("l2", 0.0, 0.5), 6.0, 100.0),
        # Ten cycles and more, in all copies.
        (Rates("l2", 0.0, 0.0, 1.0), 10.0, 60.0),
        (Rates("l2", 0.0, 0.0, 0.0), 2.0, 20.0),
    ],
)
def test_loads_miss_and_jumps_are_mispredicted_as_they_shall(
    rates: Rates, least: float, most: float, runner: Path, tmp_path: Path
) -> None:
    blocks = [rated(block, rates, 7) for block in blocks_of(*LISTS)]
    cycles: list[float] = []
    # Beside others' work all of them may be dropped, as unstable.
    for _ in range(5):
        found = answers(runner, [block.request for block in blocks], tmp_path)
        assert {one.split()[0] for one in found} <= {"measured", "dropped"}
        cycles += [float(one.split()[1]) for one in found if one.startswith("measured")]
        if cycles:
            break
    assert least < statistics.median(cycles) < most


@pytest.mark.compiler
def test_a_core_that_others_use_is_not_waited_for_without_end(runner: Path, tmp_path: Path) -> None:
    # No core is as fast as that.
    assert answers(runner, ["90", "4801c8"], tmp_path, 0.001, 3) == ["dropped disturbed"] * 2


def blocks_of(*codes: str) -> list[Block]:
    return [Block(bytes.fromhex(code), "p", "f", place, 2) for place, code in enumerate(codes)]


@pytest.fixture
def undisturbed(monkeypatch: pytest.MonkeyPatch, runner: Path) -> None:
    monkeypatch.setattr(measuring, "build_runner", lambda _: runner)
    monkeypatch.setattr(measuring, "least_nop", lambda _: ALWAYS_OURS)


@pytest.mark.compiler
@pytest.mark.usefixtures("undisturbed")
def test_measures_and_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    output, journal = tmp_path / "out.blocks", tmp_path / "out.blocks.part"
    # As a run leaves it that is killed while it writes a line.
    known = MeasuredBlock(code="4801c8", cycles=1234.5, agreeing=2, rounds=2)
    cut = encoded(MeasuredBlock(code="90", cycles=1.0))[:-9]
    journal.write_bytes(encoded(_Head(present_cpu(), ALWAYS_OURS)) + encoded(known) + cut)
    blocks = blocks_of("0f05", "4801c8", "90", "480fafc0", "d9c0")
    measured = measure_blocks(blocks, output, workers=1)
    assert not journal.exists()
    assert read_blocks(output) == measured
    assert [row.code for row in measured.rows] == [block.code.hex() for block in blocks]
    call, first, nop, product, x87 = measured.rows
    assert first.cycles == 1234.5
    assert (call.dropped, x87.dropped) == ("system call", "x87 or MMX")
    for row in (nop, product):
        assert row.dropped in ("", "unstable", "disturbed")
    assert product.program == "p" and product.address == 3 and product.occurrences == 2
    assert "dropped: system call" in describe(measured)


@pytest.mark.compiler
@pytest.mark.usefixtures("undisturbed")
def test_rows_of_a_block_differ_in_what_is_known_of_it(tmp_path: Path) -> None:
    output, journal = tmp_path / "out.blocks", tmp_path / "out.blocks.part"
    blocks = list(at_rates(blocks_of("488b07", "4801c8"), [0, 1], [0], 1))
    known = MeasuredBlock(code=blocks[0].code.hex(), pmu=dict(blocks[0].pmu), cycles=2345.5)
    journal.write_bytes(encoded(_Head(present_cpu(), ALWAYS_OURS)) + encoded(known))
    hit, miss, refused = measure_blocks(blocks, output, workers=1).rows
    assert read_blocks(output).rows == [hit, miss, refused]
    assert hit.code == miss.code and hit.cycles == 2345.5 != miss.cycles
    assert hit.pmu["l1_miss"] == (0, 0, None, 0) and miss.pmu["l1_miss"] == (0, 0, None, 1)
    assert (refused.code, refused.dropped, refused.pmu) == ("4801c8", NO_SOURCE, {})


@pytest.mark.compiler
@pytest.mark.usefixtures("undisturbed")
def test_a_journal_of_another_cpu_is_kept(tmp_path: Path) -> None:
    journal = tmp_path / "out.blocks.part"
    other = msgspec.structs.replace(present_cpu(), name="another", mcpu="i486")
    journal.write_bytes(encoded(_Head(other, ALWAYS_OURS)))
    before = journal.read_bytes()
    with pytest.raises(MeasureError, match=r"out.blocks.part: .*another \(i486\).*remove it"):
        measure_blocks(blocks_of("90"), tmp_path / "out.blocks")
    assert journal.read_bytes() == before
    journal.write_text("mine\n")
    with pytest.raises(MeasureError, match=r"out.blocks.part:1: not the journal"):
        measure_blocks(blocks_of("90"), tmp_path / "out.blocks")
    assert journal.read_text() == "mine\n"


def test_fewer_drawn_blocks_are_the_first_of_more() -> None:
    blocks = blocks_of(*(f"{number:02x}" for number in range(100)))
    drawn = sampled(blocks, 30, seed=1)
    assert len(set(drawn)) == 30
    assert sampled(blocks, 10, seed=1) == drawn[:10]
    assert sampled(blocks, 30, seed=2) != drawn
    assert sorted(sampled(blocks, None, seed=1), key=lambda one: one.code) == blocks
