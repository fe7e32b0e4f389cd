# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import itertools
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import yaml

from benchmarks.programs.inputs import (
    write_coloring,
    write_document,
    write_formula,
    write_manifest,
    write_map,
    write_program,
    write_records,
)
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool


@pytest.mark.parametrize(
    "write",
    [
        partial(write_document, records=20),
        partial(write_map, features=20),
        partial(write_manifest, services=20),
        partial(write_records, count=9, size=100),
        write_formula,
        partial(write_coloring, vertices=30, edges=60),
        partial(write_program, functions=20),
    ],
)
def test_inputs_depend_on_their_seed_alone(write: Callable[..., None], tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(3)]
    for path, seed in zip(paths, (1, 1, 2), strict=True):
        write(path, seed=seed)
    first, second, other = (path.read_bytes() for path in paths)
    assert first == second != other


def test_documents_are_what_parsers_read(tmp_path: Path) -> None:
    path = tmp_path / "document"
    write_document(path, 20, 1)
    assert len(json.loads(path.read_text())) == 20
    write_map(path, 20, 1)
    features = json.loads(path.read_text())["features"]
    rings = [ring for one in features for ring in one["geometry"]["coordinates"]]
    assert len(features) == 20 and all(ring[0] == ring[-1] for ring in rings)
    write_manifest(path, 20, 1)
    found = yaml.safe_load(path.read_text())
    assert len(found["services"]) == 20
    assert found["services"][3]["run"] == found["defaults"]
    assert found["services"][3]["script"].startswith("echo ")
    write_records(path, 9, 100, 1)
    assert path.read_bytes().count(b"\n") == 5 + 2 * 9 + 1


def test_formulas_say_how_large_they_are(tmp_path: Path) -> None:
    path = tmp_path / "formula"
    write_formula(path, 1)
    head, *clauses = path.read_text().splitlines()
    assert head == f"p cnf 200 {len(clauses)}"
    assert {len(line.split()) for line in clauses} == {4}
    # Two triangles with a corner in common have three colors, four corners all joined have not.
    for vertices, edges, answer in ((4, 5, True), (4, 6, False)):
        write_coloring(path, vertices, edges, 1)
        head, *lines = path.read_text().splitlines()
        clauses_of = [[int(word) for word in line.split()[:-1]] for line in lines]
        assert head == f"p cnf {3 * vertices} {vertices + 3 * edges}"
        assert len(clauses_of) == vertices + 3 * edges
        assert _can_be_satisfied(3 * vertices, clauses_of) == answer


def _can_be_satisfied(variables: int, clauses: list[list[int]]) -> bool:
    return any(
        all(any(values[abs(one) - 1] == (one > 0) for one in clause) for clause in clauses)
        for values in itertools.product((False, True), repeat=variables)
    )


@pytest.mark.compiler
def test_programs_compile(tmp_path: Path) -> None:
    path = tmp_path / "program.c"
    write_program(path, 120, 1)
    run_command([stock_tool("clang"), "-w", "-c", path, "-o", tmp_path / "program.o"])
    symbols = run_command([stock_tool("llvm-nm"), tmp_path / "program.o"]).stdout
    assert " t f100" in symbols and " T main" in symbols
