# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import harm
from benchmarks.harm import Facts, Outcome
from benchmarks.programs.forty import SEED, Made
from benchmarks.results import Interval
from benchmarks.testing import SHARES, program
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.trial.ways import SMALL_COLD

_WORK = """
int main(int argc, char **argv) {
  volatile double sink = 0;
  for (int i = 0; i < 4000000; ++i)
    sink = shares(sink + i);
  char line[80];
  FILE *file = fopen(argv[1], "r");
  puts(file ? fgets(line, sizeof line, file) : "none");
  return 0;
}
"""
_WORKER = program(
    "work",
    run="./work {inputs}/words",
    inputs=[Made("words", "keywords", 9)],
    files={"given": "as it is\n"},
)
_BROKEN = program("broken", build="exit 3", package="work")


@pytest.mark.long(10)
@pytest.mark.compiler
def test_programs_are_prepared_and_timed(
    packaged: Callable[[str, str], Path],
    tmp_path: Path,
    toolchain: Toolchain,
    caplog: pytest.LogCaptureFixture,
) -> None:
    packaged("work", SHARES + _WORK)
    folder = tmp_path / "folder"
    table = {"broken": _BROKEN, "work": _WORKER}
    (programs,) = harm.study(tuple(table), folder, toolchain, rounds=6, prepare=True, table=table)
    assert programs.rows[0][:5] == ["work", "test", "C", "make", "judge"]
    # Its loop is predicted, and all it reads is a line.
    assert programs.caption.startswith("What the runs of plain are like, simulated. Of 1, 0 fetch")
    build_s, instructions, _, mispredicted = programs.rows[0][5:]
    assert isinstance(build_s, float) and build_s > 0
    assert isinstance(instructions, float) and 50 < instructions < 500
    assert isinstance(mispredicted, float) and mispredicted < 1
    assert "broken is left out: --build='exit 3': exit status 3" in caplog.text
    built = folder / "work" / "try" / "way-00" / "built.json"
    before = built.stat().st_mtime_ns
    found = {
        one.name: one for one in harm.study(["work"], folder, toolchain, rounds=6, table=table)
    }
    assert built.stat().st_mtime_ns == before
    (row,) = found["worst"].rows
    assert row[:3] == ["work", "test", "judge"]
    assert found["programs"] == programs
    assert [row[:2] for row in found["times"].rows] == [["work", "judge"]]
    assert [row[:3] for row in found["sums"].rows] == [
        ["judge", name, 1] for name in ("policies", "AutoFDO", "PGO", "PGO-ThinLTO")
    ]
    (row,) = found["small-programs"].rows
    assert row[0] == "work" and all(isinstance(cell, tuple) for cell in row[1:4])


def test_another_version_of_a_source_is_told(
    packaged: Callable[[str, str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    tree = packaged("work", SHARES + _WORK)
    _WORKER.project()
    assert not caplog.text
    (tree / "debian" / "changelog").write_text("worker (1-3) unstable; urgency=low\n")
    _WORKER.project()
    assert "is not version 1-2 of forty.toml" in caplog.text


def test_inputs_are_written_once(tmp_path: Path) -> None:
    line = _WORKER.given_run(tmp_path).line
    written = Path(line.split()[1])
    assert written.name == "words" and len(written.read_text().split()) == 9
    assert (written.parent / "given").read_text() == "as it is\n"
    other = Path(_WORKER.given_run(tmp_path, SEED + 1).line.split()[1])
    assert len(other.read_text().split()) == 9 and other.read_text() != written.read_text()
    written.write_text("kept")
    assert _WORKER.given_run(tmp_path).line == line
    assert written.read_text() == "kept"


def _outcome(policies: Interval, resolution: float = 1.0, same: bool | None = True) -> Outcome:
    others = [way.name for way in harm.WAYS[1:]]
    small = [way.name for way in SMALL_COLD.values()]
    return Outcome(
        seconds=0.5,
        resolution=resolution,
        changes={**dict.fromkeys(others, (-9.0, -10.0, -8.0)), "policies": policies},
        small={**dict.fromkeys(small, (0.5, -0.5, 1.0)), small[0]: (1.5, 0.5, 2.0)},
        text={**dict.fromkeys(others, 1.0), **dict.fromkeys(small, -4.05), "policies": -1.0},
        file=dict.fromkeys(others, -2.0),
        same_output={**dict.fromkeys(others, True), "policies": same},
    )


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (_outcome((4.0, 2.0, 6.0)), "slower"),
        (_outcome((4.0, -1.0, 6.0)), "not resolved"),
        (_outcome((4.0, 2.0, 6.0), resolution=5.0), "not resolved"),
        (_outcome((2.0, 1.0, 3.0)), "a little slower"),
        (_outcome((-2.0, -3.0, -1.0)), "faster"),
        (_outcome((-2.0, -3.0, -1.0), same=False), "wrong output"),
        (_outcome((-2.0, -3.0, -1.0), same=None), "faster"),
    ],
)
def test_a_program_is_slower_only_beyond_chance(outcome: Outcome, verdict: str) -> None:
    assert outcome.verdict("policies") == verdict


def test_the_worst_come_first_and_those_that_are_harmed_are_named() -> None:
    found = {"b": _outcome((-1.0, -2.0, 1.0)), "a": _outcome((5.0, 4.0, 6.0))}
    table = dict.fromkeys(found, _WORKER)
    worst = harm.time_tables(found, table)[0]
    assert [row[0] for row in worst.rows] == ["a", "b"]
    assert worst.caption.endswith("policies: a; AutoFDO: none; PGO: none; PGO-ThinLTO: none.")


def test_small_cold_code_is_compared_with_the_same_build_without_it() -> None:
    outcome = _outcome((-1.0, -2.0, 1.0))
    *_, sums, programs = harm.time_tables(
        {"a": outcome, "b": outcome}, {"a": _WORKER, "b": _WORKER}
    )
    rows = {str(row[0]): row[1:] for row in sums.rows}
    assert rows["PGO"] == [-9.0, 1.0, -2.0, None, None, None, None]
    assert rows["AutoFDO-small-cold"] == [-9.0, -4.05, -2.0, 1.5, 0, 2, -5.0]
    assert rows["PGO-small-cold"][3:] == [0.5, 0, 0, -5.0]
    unresolved = (0.5, -0.5, 1.0)
    assert programs.rows[0] == ["a", (1.5, 0.5, 2.0), unresolved, unresolved, -5.0, -5.0, -5.0]


@pytest.mark.parametrize(
    ("facts", "hard"),
    [
        (Facts(2.5, 1000, 0, 0.9), False),
        (Facts(2.5, 1000, 0, 1.1), True),
        (Facts(2.5, 1000, 2 << 20, 0.0), False),
        (Facts(2.5, 1000, 3 << 20, 0.0), True),
    ],
)
def test_a_hard_program_misses_or_mispredicts(facts: Facts, hard: bool) -> None:
    assert facts.is_hard == hard
