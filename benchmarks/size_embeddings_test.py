# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import numpy as np
import pytest

from benchmarks.common import BenchmarkError
from benchmarks.results import Cell
from benchmarks.size_embeddings import READ, _embedded, all_inputs, tables
from benchmarks.size_labels import PROBLEM
from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.policy.testing import random_inputs
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train.compilation import Compiler
from compiler_opt_perf.train.label_files import Labels
from compiler_opt_perf.train.log import read_log


def test_what_embeddings_tell_is_kept_on_unseen_programs() -> None:
    random = np.random.default_rng(1)
    names, rows = ("one", "two", "three"), 360
    features = random_inputs(PROBLEM, rows, 1)
    groups = np.repeat(np.arange(len(names)), rows // len(names))
    embeddings = random.normal(size=(rows, 4)).astype(np.float32)
    # What pays is in the second number alone.
    advantage = np.where(embeddings[:, 1] > 0.8, 50.0, -50.0)
    inputs = all_inputs(features, embeddings, groups)
    assert tuple(inputs) == READ
    curve, programs = tables(names, inputs, advantage, groups)
    kept = {str(row[0]): [_number(one) for one in row[1:]] for row in curve.rows}
    plain, both, exchanged = (kept[name] for name in READ)
    # Of all labels: mean, least and most of the seeds.
    assert both[6] > 90 and plain[6] < 20 and exchanged[6] < 20
    assert both[7] <= both[6] <= both[8]
    for number, row in enumerate(programs.rows):
        assert row[:2] == [names[number], 120]
        could, by_features, by_both = map(_number, row[2:5])
        assert could == (advantage[groups == number] > 0).sum() * 50
        assert by_both > 0.7 * could > by_features


def _number(cell: Cell) -> float:
    assert isinstance(cell, int | float)
    return cell


@pytest.mark.compiler
def test_embeddings_are_of_the_labelled_decisions(tmp_path: Path, toolchain: Toolchain) -> None:
    source, bitcode = tmp_path / "a.c", tmp_path / "a.bc"
    source.write_text(
        "static int less(int a) { return a * 3 + 1; }\n"
        "int other(int);\n"
        "static int more(int a) { for (int i = 0; i < a; ++i) a += other(a ^ i); return a; }\n"
        "int both(int a) { return less(a) + more(a) + more(a + 1); }\n"
    )
    flags = ["-Oz", "-Xclang", "-disable-llvm-passes", "-c", "-emit-llvm"]
    run_command([stock_tool("clang"), *flags, source, "-o", bitcode])
    compiler = Compiler.of(toolchain, PROBLEM)
    module = Module("p/a", bitcode, ("-Oz", "-c"))
    log = tmp_path / "a.log"
    options = [*PROBLEM.development_options(log=log), "-mlgo-decision-keys"]
    compiler.compile(module, tmp_path / "a.o", options)
    found = read_log(log)
    count = len(found.keys)
    labels = Labels(
        "p/a",
        found.keys[::-1],
        found.observations[::-1],
        found.observations[:0],
        np.zeros(count),
        100.0,
        count,
    )
    values = _embedded((compiler, module, labels))
    assert values.shape == (count, 150)
    by_key = dict(zip(labels.keys, values, strict=True))
    calls = {key.split()[1]: one for key, one in by_key.items()}
    # Of the same caller; the callees differ.
    assert count == 3 and set(calls) == {"less", "more"}
    assert not np.allclose(calls["less"][:75], calls["more"][:75])
    unknown = Labels(
        "p/a", ("a b #0",), found.observations[:1], found.observations[:0], np.zeros(1), 100.0, 1
    )
    with pytest.raises(BenchmarkError, match="p/a: no decision a b #0"):
        _embedded((compiler, module, unknown))
