# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import json
import math
from pathlib import Path

import numpy as np
import pytest

from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.train.log import LogError, read_log

HEADER = {
    "features": [
        {"name": "a", "port": 0, "shape": [1], "type": "int64_t"},
        {"name": "b", "port": 0, "shape": [1, 3], "type": "float"},
        {"name": "choice", "port": 0, "shape": [1], "type": "int64_t"},
    ],
    "score": {"name": "reward", "port": 0, "shape": [1], "type": "float"},
}


def observation(number: int, a: int, reward: float | None = 0.0) -> bytes:
    """One decision as LLVM writes it."""
    raw = np.int64(a).tobytes() + np.array([a, 0, 1], np.float32).tobytes() + np.int64(1).tobytes()
    text = b'{"observation":%d}\n' % number + raw + b"\n"
    if reward is not None:
        text += b'{"outcome":%d}\n' % number + np.float32(reward).tobytes() + b"\n"
    return text


def log_bytes(*records: bytes, header: object = HEADER) -> bytes:
    return json.dumps(header).encode() + b"\n" + b"".join(records)


def write(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "module.log"
    path.write_bytes(content)
    return path


def test_reads_contexts_observations_and_rewards(tmp_path: Path) -> None:
    content = log_bytes(
        b'{"context":"f\\u0022"}\n',
        observation(0, 10),  # 10 is the newline's code: raw bytes may look like text.
        observation(1, 11, reward=2.5),
        b'{"context":"without decisions"}\n',
        b'{"context":"g"}\n',
        observation(0, 12, reward=4.0),
        # The register allocator may come back to a function.
        b'{"context":"f\\u0022"}\n',
        observation(2, 13, reward=3.5),
    )
    log = read_log(write(tmp_path, content))
    assert log.observations["a"][:, 0].tolist() == [10, 11, 12, 13]
    assert log.observations["b"][1].tolist() == [[11.0, 0.0, 1.0]]
    assert log.contexts == ('f"', "g")
    assert log.context_of.tolist() == [0, 0, 1, 0]
    assert log.last_rewards() == {'f"': 3.5, "g": 4.0}


def test_log_without_rewards_or_decisions(tmp_path: Path) -> None:
    header = {"features": HEADER["features"]}
    content = log_bytes(b'{"context":""}\n', observation(0, 1, reward=None), header=header)
    log = read_log(write(tmp_path, content))
    assert log.rewards is None
    assert len(log.observations) == 1
    with pytest.raises(LogError, match="has no rewards"):
        log.last_rewards()
    empty = read_log(write(tmp_path, log_bytes(header=header)))
    assert len(empty.observations) == 0
    assert empty.contexts == ()
    wide = {"features": [{"name": "a", "port": 0, "shape": [1, 999], "type": "int64_t"}]}
    assert read_log(write(tmp_path, log_bytes(header=wide))).observations["a"].shape == (0, 1, 999)


GOOD = log_bytes(b'{"context":"f"}\n', observation(0, 1), observation(1, 2, reward=1.0))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"module\.log: byte 0: empty"),
        (b"nonsense\n", "byte 0:1:1: not JSON"),
        (b"[]\n", r"byte 0: \$: expected `object`, found \[\]"),
        (b"{}\n", r"byte 0: \$\.features: is missing; compile"),
        (b'{"features":[]}\n', r"byte 0: \$\.features: expected `array` of length >= 1"),
        (b'{"score":1}\n', r"byte 0: \$\.score: expected `object \| null`, found 1"),
        (
            log_bytes(header={**HEADER, "score": {"name": "", "shape": [1], "type": "float"}}),
            r"byte 0: \$\.score\.name: expected `str` of length >= 1",
        ),
        (
            log_bytes(header={"features": [{"name": "a", "shape": [1], "type": "half"}]}),
            r'byte 0: \$\.features\[0\]\.type: expected `str` matching .*, found "half"',
        ),
        (b"[" * 200_000 + b"\n", "byte 0: not JSON: nested too deep"),
        (
            log_bytes(header={"features": [{"name": "a", "shape": [math.inf], "type": "float"}]}),
            r"byte 0: \$\.features\[0\]\.shape\[0\]: expected `int`, found Infinity",
        ),
        (GOOD[:50], "byte 0: truncated in a line of JSON"),
        (GOOD[:-3], rf"byte {len(GOOD) - 5}: truncated: 2 of 5 bytes"),
        (GOOD[:-70], "truncated"),
        (GOOD.replace(b'{"observation":1}', b'{"obsxrvation":1}'), "expected an observation"),
        (log_bytes(observation(0, 1)), "an observation before any context"),
        (
            log_bytes(b'{"context":"f"}\n', observation(0, 1, reward=None), observation(1, 1)),
            "the observation before has no outcome",
        ),
        (
            log_bytes(b'{"context":"f"}\n', observation(0, 1, reward=None)),
            r"byte \d+: the observation before has no outcome",
        ),
        (log_bytes(b'{"context":"f"}\n{"outcome":0}\n'), "an outcome without an observation"),
        (log_bytes(b'{"context":3}\n'), r"byte \d+: \$\.context: expected `str`, found 3"),
        (GOOD.replace(b'{"context":"f"}\n{"observation":0}\n', b'{"context":"f"}\n'), "expected"),
    ],
)
def test_damaged_logs_are_errors(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(LogError, match=message):
        read_log(write(tmp_path, content))


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        ({"name": "a", "type": "int64_t", "shape": [1]}, "do not form a record"),
        (
            {"name": "c", "type": "int64_t", "shape": [-1]},
            r"\$\.features\[3\]\.shape\[0\]: expected `int` [<>]= ",
        ),
        (
            {"name": "c", "type": "int64_t", "shape": [0]},
            r"\$\.features\[3\]\.shape\[0\]: expected `int` [<>]= ",
        ),
        (
            {"name": "c", "type": "int64_t", "shape": [99999999999]},
            r"\$\.features\[3\]\.shape\[0\]: expected `int` [<>]= ",
        ),
        ({"name": "c", "type": "int63_t", "shape": [1]}, "expected `str` matching"),
    ],
)
def test_damaged_headers_are_errors(tmp_path: Path, tensor: object, message: str) -> None:
    header = {**HEADER, "features": [*HEADER["features"], tensor]}
    with pytest.raises(LogError, match=f"byte 0: .*{message}"):
        read_log(write(tmp_path, log_bytes(header=header)))


def test_every_truncation_is_an_error_or_a_shorter_log(tmp_path: Path) -> None:
    boundaries = 0
    for length in range(len(GOOD)):
        try:
            log = read_log(write(tmp_path, GOOD[:length]))
        except LogError:
            continue
        boundaries += 1
        assert len(log.observations) < 2
    # After the header, after the context, after the first decision.
    assert boundaries == 3


def test_a_byte_too_many_in_a_record_is_found(tmp_path: Path) -> None:
    position = GOOD.index(b'{"observation":0}') + 20
    content = GOOD[:position] + b"x" + GOOD[position:]
    with pytest.raises(LogError, match="do not end in a newline"):
        read_log(write(tmp_path, content))


def test_log_of_another_problem_is_refused(tmp_path: Path) -> None:
    log = read_log(write(tmp_path, GOOD))
    problem = PROBLEMS["inline-size"]
    with pytest.raises(LogError, match=r"no tensor 'sroa_savings' \(it has a, b, choice\)"):
        log.inputs(problem, with_pmu=False)
    with pytest.raises(LogError, match="no tensor 'inlining_decision'"):
        log.decisions(problem)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"none\.log: No such file"):
        read_log(tmp_path / "none.log")


def test_reads_a_hundred_thousand_decisions(tmp_path: Path) -> None:
    records = b"".join(observation(i, i) for i in range(100_000))
    path = write(tmp_path, log_bytes(b'{"context":"f"}\n', records))
    assert len(read_log(path).observations) == 100_000
