# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import re
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.common import BenchmarkError
from benchmarks.programs.forty import TABLE, drawn, read_table
from benchmarks.programs.forty_inputs import MAKERS
from compiler_opt_perf.corpus.program_table import PROGRAMS

_TABLE = read_table()
_LARGE = read_table(TABLE.with_name("large.toml"))


def test_forty_programs_are_split_as_drawn() -> None:
    names = [program.name for program in _TABLE.program]
    assert len(names) == len(set(names)) == 40
    judges = {program.name for program in _TABLE.program if program.set == "judge"}
    assert judges == drawn(names, _TABLE.seed)
    assert len(judges) == 20
    assert judges != drawn(names, _TABLE.seed + 1)


def test_none_of_them_has_trained_a_policy() -> None:
    trained = {program.source_package for program in PROGRAMS.values()}
    assert trained.isdisjoint(program.package for program in _TABLE.program)


def test_they_differ() -> None:
    kinds = Counter(program.kind for program in _TABLE.program)
    assert len(kinds) >= 15 and kinds.most_common(1)[0][1] <= 6
    languages = Counter(program.language for program in _TABLE.program)
    assert min(languages["C"], languages["C++"]) >= 10
    assert {"CMake", "autotools", "Meson", "make"} <= {one.system for one in _TABLE.program}


def test_programs_know_their_table() -> None:
    assert {program.table for program in _TABLE.program} == {"forty.toml"}
    assert {program.table for program in _LARGE.program} == {"large.toml"}


def test_runs_use_the_inputs_that_there_are() -> None:
    for program in (*_TABLE.program, *_LARGE.program):
        there = {made.file for made in program.inputs} | set(program.files)
        # A dictionary of hunspell's is named without its ending.
        named = set(re.findall(r"\{inputs\}/([\w.]+)", program.run))
        assert {name.partition(".")[0] for name in named} == {
            name.partition(".")[0] for name in there
        }, program.name
        assert all(made.make in MAKERS for made in program.inputs), program.name


@pytest.mark.parametrize("name", MAKERS)
def test_inputs_are_reproduced_and_grow(name: str, tmp_path: Path) -> None:
    sizes = (1, 2) if name in ("drawing", "image", "raw-sound", "sound") else (40, 400)
    first, again, larger = (tmp_path / part for part in ("a.txt", "b.txt", "c.txt"))
    MAKERS[name](first, sizes[0], 1)
    MAKERS[name](again, sizes[0], 1)
    MAKERS[name](larger, sizes[1], 1)
    assert first.read_bytes() == again.read_bytes()
    assert larger.stat().st_size > first.stat().st_size


def test_a_wrong_table_is_told(tmp_path: Path) -> None:
    path = tmp_path / "table.toml"
    path.write_text(TABLE.read_text().replace('set = "judge"', 'set = "jugde"', 1))
    with pytest.raises(BenchmarkError, match=r"table\.toml: Invalid enum value 'jugde' .*set"):
        read_table(path)
