# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import contextlib
import io
import logging
import random
import resource
import struct
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from compiler_opt_perf.corpus.corpus import CorpusError
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.trace.errors import TraceError
from compiler_opt_perf.trace.native import decompress
from compiler_opt_perf.trace.trace_file import DESCRIPTION, TABLE
from compiler_opt_perf.trace.trace_writer import write_record
from tests.fuzz import harness, runners
from tests.fuzz.harness import FAILURES, Case, CaseResult, describe, fuzz, run_case, table
from tests.fuzz.mutations import (
    DAMAGES,
    damage_arrays,
    damage_json,
    damage_trace,
)
from tests.fuzz.runners import FailedError, Runner, call, cop, tool
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

# Of each reader; `make fuzz` has all.
_SAMPLE = 1


@pytest.mark.long(40)
@pytest.mark.compiler
def test_no_reader_fails_on_a_sample_of_damaged_inputs(
    toolchain: Toolchain, tmp_path: Path
) -> None:
    def numbers(target: Target) -> Sequence[int]:
        return range(_SAMPLE)

    results = fuzz(TARGETS, numbers, 1, tmp_path, toolchain.directory, workers=2)
    assert len(results) == _SAMPLE * len(TARGETS)
    failed = [describe(*item) for item in results.items() if item[1].outcome in FAILURES]
    assert not failed, "\n".join(failed)
    assert sum(result.outcome == "refused" for result in results.values()) > len(TARGETS) // 2
    assert not list((tmp_path / "cases").iterdir())


def test_a_full_run_has_thousands_of_inputs() -> None:
    assert sum(target.inputs for target in TARGETS) >= 2000
    assert len({target.name for target in TARGETS}) == len(TARGETS)


def _make(folder: Path, toolchain: Toolchain) -> None:
    del toolchain
    (folder / "file").write_text("1\n")


def _raise(error: Exception) -> NoReturn:
    raise error


_KILL = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("run", "outcome", "message"),
    [
        (call(lambda: None), "used", ""),
        (call(lambda: _raise(CorpusError("the message"))), "refused", "the message"),
        (call(lambda: _raise(CorpusError(""))), "mute", "CorpusError without a message"),
        (call(lambda: _raise(KeyError("x"))), "traceback", "KeyError: 'x'"),
        (lambda *_: _raise(FailedError("altered", "something else")), "altered", "something else"),
        (cop("corpus show"), "refused", "Missing argument"),
        (cop("corpus show nowhere"), "refused", "not found"),
        (tool(f"{sys.executable} -c '{_KILL}'"), "crash", "SIGSEGV"),
        (tool(f"{sys.executable} -c 'raise SystemExit(3)'"), "crash", "exit status 3"),
        (tool(f"{sys.executable} -c 'raise SystemExit(1)'"), "mute", "exit status 1"),
        (tool(f"{sys.executable} -c 'raise SystemExit(\"no\")'"), "refused", "no"),
        (tool(f"{sys.executable} -c '1/0'"), "traceback", "ZeroDivisionError"),
        (tool(f"{sys.executable} -c 'while True: pass'"), "hang", "killed after its limit"),
    ],
)
def test_outcomes_are_told_apart(
    run: Runner,
    outcome: str,
    message: str,
    toolchain: Toolchain,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runners, "LIMIT_S", 0.5 if outcome == "hang" else 60.0)
    monkeypatch.setattr(harness, "TARGETS", (Target("a reader", _make, {"file": "text"}, run),))
    monkeypatch.setattr(logging, "disable", lambda: None)
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    (tmp_path / "sound" / "_make").mkdir(parents=True)
    _make(tmp_path / "sound" / "_make", toolchain)
    case = Case("a reader", 3, 1, tmp_path, toolchain.directory)
    result = run_case(case)
    assert (result.outcome, message in result.message) == (outcome, True)
    assert result.damage.startswith("file, ")
    # What fails is kept.
    assert case.directory.exists() == (outcome in FAILURES)
    row = table({case: result}).splitlines()[2].split("|")
    assert [cell.strip() for cell in row[1:3]] == ["a reader", "1"]
    assert "'--case=a reader:3'" in describe(case, CaseResult(outcome))


def test_damage_is_fixed_by_the_seed_and_changes_the_content() -> None:
    text = b'{"a": [1, {"b": "x"}], "c": 2}\n'
    for name, damage in DAMAGES.items():
        if name in ("trace", "arrays"):
            continue
        results = [damage(text, random.Random(seed)) for seed in range(300)]
        assert results == [damage(text, random.Random(seed)) for seed in range(300)]
        assert sum(result != text for result in results) > 250
        assert len(set(results)) > 60


def test_json_is_damaged_in_its_fields() -> None:
    results = [damage_json(b'{"a": [1, 2], "b": {"c": 3}}', random.Random(s)) for s in range(400)]
    for expected in (b"1e400", b"NaN", 50_000 * b"[", b"\\ud800", b"-1", 9 * b"9"):
        assert any(expected in result for result in results)
    assert any(result.count(b'"b"') == 2 for result in results)
    assert any(b'"a"' not in result for result in results)


@pytest.mark.compiler
def test_damage_gets_into_the_compressed_records_of_traces() -> None:
    stream = io.BytesIO()
    write_record(stream, DESCRIPTION, b'{"blocks": 3}')
    write_record(stream, TABLE, b"table of blocks")
    descriptions = set()
    for seed in range(400):
        content = damage_trace(stream.getvalue(), random.Random(seed))
        with contextlib.suppress(TraceError, struct.error):
            head = struct.unpack_from("<10I", content)
            if head[2] == DESCRIPTION and head[5] < 1000:
                descriptions.add(decompress(content[40 : 40 + head[4]], head[5]))
    assert len(descriptions) > 20
    assert any(b"null" in description for description in descriptions)


def test_archives_of_arrays_become_bombs() -> None:
    stream = io.BytesIO()
    np.savez(stream, a=np.zeros(3), b=np.zeros(5))
    found = [damage_arrays(stream.getvalue(), random.Random(seed)) for seed in range(40)]
    sizes = []
    for content in found:
        with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(io.BytesIO(content)) as one:
            sizes.append(max(member.file_size for member in one.infolist()))
    assert max(sizes) > 1 << 28 and max(map(len, found)) < 1 << 20
