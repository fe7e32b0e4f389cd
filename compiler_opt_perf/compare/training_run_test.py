# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Folders of trainings, ended, unfinished and damaged, and what is shown of them."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from compiler_opt_perf.compare.errors import CompareError
from compiler_opt_perf.compare.testing import DIFFERENCES, write_imitation, write_search
from compiler_opt_perf.compare.training_run import find_modules, read_curve, read_run
from compiler_opt_perf.compare.training_tables import describe, document, sites
from compiler_opt_perf.corpus.corpus import BITCODE_MAGIC, Corpus, CorpusError, write_description
from compiler_opt_perf.run.files import write_json
from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.label_files import LabelsError


@pytest.mark.compiler
def test_a_training_on_labels(tmp_path: Path) -> None:
    write_imitation(tmp_path)
    run = read_run(tmp_path)
    assert (run.path, run.problem, *run.validation) == (tmp_path, "inline-size", "b")
    changes = [point.values["validation_of_mean"] for point in run.curve]
    assert changes == pytest.approx([0.0, -0.02, -0.04])
    assert run.labels[0].tolist() == [-3.0, 0.0, 5.5, 2000.0]
    text = describe(run, DIFFERENCES, top=3)
    for expected in (
        "linked text bytes -1.00% on the test, -4.00% where it was chosen: better than the default",
        "round 0: 4 labels; 1 decisions are better taken the other way, 2 worse, 1 c",
        "| c | 1,000 | 990 | -1.00% | -5.00% |",
        "| q/b | 300 | 240 | -20.00% | 9 | 1 |",
        "4 decisions differ; 3 of them were taken back one at a time: 2 save 70 bytes, 1 cost 12",
        "| half(int) in twice(int), call 3 | inlined | not inlined | -60 | q/b |",
        "| main in twice(int), call 7 of half(int), twice:2<half:1, #1 | not inlined | inl",
        "seed=3\n",
        'stages=[{"algorithm": "labels"}]\n',
        "numpy=1.2\n",
    ):
        assert expected in text
    # Those that save most and those that cost most are left when there is little room.
    rows, count = sites(DIFFERENCES, 2)
    assert ([row[3] for row in rows], count) == (["-60", "+12"], 4)
    shown = json.loads(json.dumps(document(run, DIFFERENCES), allow_nan=False))
    assert shown["labels"][0] == {"round": 0, "number": 4, "would_save": 1, "would_cost": 2}
    assert shown["differences"]["sites"][0]["change"] == -60
    assert shown["results"]["programs"] == [
        {"name": "c", "linked": [1000, 990], "objects": [1000, 950]}
    ]


def test_a_search(tmp_path: Path) -> None:
    write_search(tmp_path)
    run = read_run(tmp_path)
    assert [set(point.values) for point in run.curve] == [
        {"validation_of_mean"},
        {"validation_of_mean", "candidates_mean", "candidates_failed"},
    ]
    assert run.validation == {"p/b"}
    assert "RegAllocScore -1.00% on the test" in describe(run, None, 3)
    assert document(run, None)["differences"] is None


def test_fields_of_a_curve_have_their_own_units(tmp_path: Path) -> None:
    write_search(tmp_path)
    fields = {
        # Of each algorithm, and one of a later version.
        **{"generation": 7, "stage": 0, "compilations": 12345, "elapsed_s": 1.0},
        **{"candidates_mean": -0.02, "candidates_best": -0.03, "candidates_failed": 2},
        **{"sigma": 0.15, "reward": 3.12, "value_told": 0.4, "equals_default": 0.987},
        **{"best_saves": 0.012, "labels": 79, "labels_that_pay": 3, "decisions": 2000},
        **{"entropy": 0.31, "validation_of_mean": -0.001, "validation_of_fittest": None},
    }
    (tmp_path / "curve.jsonl").write_text(json.dumps(fields) + "\n")
    text = describe(read_run(tmp_path), None, 3)
    for expected in (
        "generation 7: stage 0, compilations 12,345, candidates_mean -2.00%, ",
        "candidates_best -3.00%, candidates_failed 2, sigma 0.15, reward 3.12, value_told 40.0%, ",
        "equals_default 98.7%, best_saves 1.2%, labels 79, labels_that_pay 3, decisions 2,000, ",
        "entropy 0.31, validation_of_mean -0.10%\n",
    ):
        assert expected in text


def test_numbers_that_no_float_can_be_are_left_out_or_told(tmp_path: Path) -> None:
    """`cop train show` and `cop compare page` read curves in one way."""
    write_search(tmp_path)
    row = {"generation": 0, "validation_of_mean": 0.0}
    huge = 10**400
    (tmp_path / "curve.jsonl").write_text(json.dumps({**row, "compilations": huge, "x": huge}))
    assert "x 1" not in describe(read_run(tmp_path), None, 3)
    (tmp_path / "curve.jsonl").write_text(json.dumps({**row, "validation_of_mean": huge}))
    with pytest.raises(CompareError, match=r"curve\.jsonl:1: \$\.validation_of_mean: number"):
        read_run(tmp_path)
    (tmp_path / "curve.jsonl").unlink()
    ended = json.loads((tmp_path / "training.json").read_text())
    for field in ("test_change", "validation_change"):
        for value in (huge, float("nan"), float("inf")):
            damaged = {**ended, "results": {**ended["results"], field: value}}
            (tmp_path / "training.json").write_text(json.dumps(damaged))
            with pytest.raises(CompareError, match=rf"training\.json: \$\.results\.{field}: "):
                read_run(tmp_path)


def test_what_there_is_of_an_unfinished_training_is_shown(tmp_path: Path) -> None:
    for write in (write_imitation, write_search):
        folder = tmp_path / write.__name__
        write(folder)
        whole = read_run(folder)
        (folder / "training.json").unlink()
        run = read_run(folder)
        assert run.results is None and list(run.curve) == list(whole.curve)
        assert f"not ended; {len(whole.curve)} " in describe(run, None, 3)
    inputs = (folder / "inputs.json").read_bytes()
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(TrainingError, match="empty: no training has begun here; name a folder"):
        read_run(empty)
    (empty / "inputs.json").write_bytes(inputs)
    assert "not ended; no generation so far" in describe(read_run(empty), None, 3)


@pytest.mark.parametrize(
    ("file", "content", "error", "message"),
    [
        ("inputs.json", "[]", TrainingError, r"inputs\.json: \$: expected `object`"),
        ("training.json", "{", CompareError, r"training\.json:1:2: not JSON"),
        ("training.json", "{}", CompareError, r"training\.json: \$\.problem: is missing"),
        ("labels/0/p/a.npz", "x", LabelsError, r"labels/0/p/a\.npz: damaged"),
    ],
)
def test_damage_is_named(
    tmp_path: Path, file: str, content: str, error: type[Exception], message: str
) -> None:
    write_imitation(tmp_path)
    (tmp_path / file).write_text(content)
    with pytest.raises(error, match=message):
        read_run(tmp_path)


def test_a_damaged_curve_is_named(tmp_path: Path) -> None:
    write_search(tmp_path)
    with (tmp_path / "curve.jsonl").open("a") as stream:
        stream.write('{"generation"')
    with pytest.raises(CompareError, match=re.escape("curve.jsonl:3:1:14: not JSON")):
        read_run(tmp_path)


def test_modules_for_validation_are_chosen(tmp_path: Path) -> None:
    for program in ("b", "c"):
        corpus = tmp_path / "corpora" / program / "train"
        (corpus / program).mkdir(parents=True)
        (corpus / f"{program}/one.bc").write_bytes(BITCODE_MAGIC)
        (corpus / f"{program}/one.cmd").write_bytes(b"-cc1\0-Oz")
        write_description(corpus, [f"{program}/one"])
    modules = find_modules([tmp_path / "corpora"])
    assert [module.name for module in modules] == ["b/one", "c/one"]
    assert modules[:1] == list(Corpus.load(tmp_path / "corpora" / "b" / "train").modules)
    write_imitation(tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert [module.name for module in run.choose(modules)] == ["b/one"]
    assert run.choose(modules[1:]) == modules[1:]
    with pytest.raises(CorpusError, match="corpus_description.json: not found"):
        find_modules([tmp_path])
    write_json(tmp_path / "corpora" / "c" / "train" / "corpus_description.json", [])
    with pytest.raises(CorpusError, match="c/train/corpus_description.json: "):
        find_modules([tmp_path / "corpora"])
    assert np.isfinite(run.labels[0]).all()


def test_damaged_curve_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "curve.jsonl"
    path.write_text('{"generation": 0, "validation_of_mean": 0}\n{"generation"\n')
    with pytest.raises(CompareError, match=r"curve\.jsonl:2:1:14: not JSON: .*cop train policy"):
        read_curve(path)
    huge = "1" + 400 * "0"
    for row, message in (
        (b"\xff", "not JSON: byte 0 is not UTF-8"),
        (b"[1]", "$: expected `object`, found [1]"),
        (
            b'{"generation": "1", "validation_of_mean": 0}',
            '$.generation: expected `int`, found "1"',
        ),
        (b'{"generation": 1, "validation_of_mean": "good"}', "$.validation_of_mean: expected `fl"),
        (
            f'{{"generation": 1, "validation_of_mean": {huge}}}'.encode(),
            "$.validation_of_mean: number out of range, found 1000",
        ),
        (b'{"generation": 1, "validation_of_mean": NaN}', "$.validation_of_mean: expected"),
        # Of an older version, whose signs were the other way round.
        (b'{"generation": 1, "validation": 0.1}', "$.validation_of_mean: is missing"),
        (b"[" * 200_000, "not JSON: nested too deep"),
    ):
        path.write_bytes(b'{"generation": 0, "validation_of_mean": 0}\n' + row + b"\n")
        with pytest.raises(
            CompareError, match=re.escape(f"curve.jsonl:2: {message}") + ".*cop train policy"
        ):
            read_curve(path)
