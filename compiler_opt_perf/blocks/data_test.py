# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Configurations, and which blocks are for what."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from compiler_opt_perf.blocks.block_file import (
    BlockFileError,
    Cpu,
    MeasuredBlock,
    MeasuredBlocks,
    write_bhive,
    write_blocks,
)
from compiler_opt_perf.blocks.config import (
    CostModelConfig,
    Granite,
    LearnedError,
    presets,
    read_config,
)
from compiler_opt_perf.blocks.data import PURPOSES, TEST, TRAINING, read_data, samples
from compiler_opt_perf.blocks.graphs import Vocabulary
from compiler_opt_perf.blocks.judge import evaluate
from compiler_opt_perf.blocks.model import CostModel

CONFIG = CostModelConfig(Granite(), test_programs=("lua",), validation_programs=("zlib",))


def write(path: Path, rows: list[MeasuredBlock], mcpu: str = "znver3") -> Path:
    write_blocks(path, MeasuredBlocks(Cpu("a CPU", mcpu, 25, 1, 1), 0.17, rows))
    return path


def row(code: str, program: str) -> MeasuredBlock:
    return MeasuredBlock(code=code, cycles=1.0, agreeing=2, rounds=2, program=program)


def test_a_block_of_several_programs_is_left_out(tmp_path: Path) -> None:
    # The same but for the distance from the instruction pointer: mov rax, [rip + N].
    one, other = "488b0511000000", "488b0522000000"
    rows = [row(one, "tcc"), row("4801c8", "tcc"), row(other, "lua"), row("4801d9", "zlib")]
    found = samples(read_data([write(tmp_path / "a.blocks", rows)]), CONFIG)
    assert [code.hex() for code in found.codes] == [one, "4801c8", "4801d9"]
    assert [PURPOSES[number] for number in found.purposes] == [TEST, TRAINING, "validation"]


def test_collections_are_drawn_block_by_block(tmp_path: Path) -> None:
    rows = [row(f"4881c0{number:06x}00", "bhive") for number in range(2000)]
    files = read_data([write(tmp_path / "a.blocks", rows)])
    found = samples(files, CONFIG)
    assert 0.07 < len(found.of_purpose(TEST)) / 2000 < 0.13
    assert 0.03 < len(found.of_purpose("validation")) / 2000 < 0.07
    # By content: what other blocks there are changes nothing.
    again = samples(read_data([write(tmp_path / "b.blocks", rows[::-1])]), CONFIG)
    assert {found.codes[n] for n in found.of_purpose(TEST)} == {
        again.codes[n] for n in again.of_purpose(TEST)
    }


def test_shuffled_inputs_are_the_same_ones_at_other_instructions(tmp_path: Path) -> None:
    rows = [
        MeasuredBlock(
            code=f"488b0748{number:02x}c8",
            cycles=1.0,
            agreeing=2,
            rounds=2,
            program="tcc",
            pmu={"l1_miss": (number / 100, None), "mispredict": (None, number / 100)},
        )
        # add, or, adc...
        for number in range(1, 0x3F, 8)
    ]
    files = read_data([write(tmp_path / "a.blocks", [*rows, row("90", "tcc")])])
    plain = samples(files, CONFIG)
    shuffled = samples(files, msgspec.structs.replace(CONFIG, pmu=True, shuffled_pmu=True))
    assert plain.pmu[-1] is None and shuffled.pmu[-1] is None
    for place, column in ((0, 0), (1, 3)):
        before = [float(one[place, column]) for one in plain.pmu if one is not None]
        after = [float(one[place, column]) for one in shuffled.pmu if one is not None]
        assert before != after and sorted(before) == sorted(after)
        assert all(np.isnan(one[1 - place, column]) for one in shuffled.pmu if one is not None)


def test_data_that_cannot_be_learnt_from(tmp_path: Path) -> None:
    write_bhive(tmp_path / "a.csv", [row("4801c8", "")])
    with pytest.raises(LearnedError, match=r"a\.csv: does not name its CPU"):
        read_data([tmp_path / "a.csv"])
    dropped = write(tmp_path / "b.blocks", [MeasuredBlock(code="0f05", dropped="trap")])
    with pytest.raises(LearnedError, match=r"b\.blocks: has no block with cycles"):
        read_data([dropped])
    whole = write(tmp_path / "c.blocks", [row("4801c8", "a"), row("4801d9", "a")])
    whole.write_text("".join(whole.read_text().splitlines(True)[:-1]))
    with pytest.raises(BlockFileError, match="truncated"):
        read_data([whole])


def test_what_is_known_must_fit_the_block(tmp_path: Path) -> None:
    known: tuple[tuple[str, tuple[float | None, ...]], ...] = (
        ("l1_miss", (0.5,)),
        ("l9_miss", (0.5, None)),
    )
    for name, values in known:
        pmu = {name: values}
        one = MeasuredBlock(
            code="4801c84801c8", cycles=2.0, agreeing=2, rounds=2, program="a", pmu=pmu
        )
        files = read_data([write(tmp_path / "a.blocks", [one])])
        with pytest.raises(LearnedError, match="block 4801c84801c8: pmu: expected .*, 2 values"):
            samples(files, CONFIG)


def test_only_what_was_never_shown_is_judged(tmp_path: Path) -> None:
    rows = [row("4801c8", "tcc"), row("4801d9", "lua"), row("4801d0", "zlib")]
    paths = [write(tmp_path / f"{mcpu}.blocks", rows, mcpu) for mcpu in ("znver3", "znver4")]
    model = CostModel(CONFIG, Vocabulary([]), ("znver3",), {}, {})
    with pytest.raises(LearnedError, match="several CPUs, znver3, znver4: give files of one CPU"):
        evaluate(model, read_data(paths), TEST)
    only = write(tmp_path / "only.blocks", rows[:1])
    with pytest.raises(LearnedError, match="no blocks for test: .* lua; --blocks=all takes all"):
        evaluate(model, read_data([only]), TEST)


def test_presets_and_settings(tmp_path: Path) -> None:
    assert {"granite", "granite-pmu"} == set(presets())
    for name in presets():
        assert read_config(name).name == name
    assert read_config("granite").changed({"network.width": 16}).network.width == 16
    for changes, message in (
        ({"network.width": 0}, r"\$\.network\.width: .*>= 4"),
        ({"width": 8}, "no setting 'width'; did you mean 'network.width'?"),
        ({"network": 8}, "no setting 'network'"),
        ({"test_programs": ["cmark"]}, "'cmark' is in validation_programs, too"),
    ):
        with pytest.raises(LearnedError, match=message):
            read_config("granite").changed(changes)
    with pytest.raises(
        LearnedError, match="no such file, and no preset; there are granite-pmu, granite"
    ):
        read_config("granit")
    (tmp_path / "a.toml").write_text("[network")
    with pytest.raises(LearnedError, match=r"a\.toml: not TOML"):
        read_config(str(tmp_path / "a.toml"))
