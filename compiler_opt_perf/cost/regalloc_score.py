# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""RegAllocScore, from the remarks that the compiler writes beside an object file."""

import math
import re
from collections.abc import Mapping
from pathlib import Path

import yaml

from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import read_input

#: Arguments of the patched clang by which it writes the remarks; {object} is the object file.
FLAGS = (
    "-fsave-optimization-record=yaml",
    "-foptimization-record-passes=^regalloc-score$",
)
SUFFIX = ".opt.yaml"
# Added to both scores of a ratio: a hundredth of an instruction per call.
_SMALL_SCORE = 0.01

# A remark, as MachineOptimizationRemarkAnalysis of MLRegAllocEvictAdvisor.cpp is written.
_REMARK = re.compile(
    r"^--- !Analysis\nPass: +regalloc-score\nName: +RegAllocScore\n"
    r"(?:DebugLoc: .*\n(?: +.*\n)*)?Function: +(?P<function>.+)\n(?:.*\n)*?"
    r" +- Score: +'(?P<score>[^']+)'\n",
    re.MULTILINE,
)


class ScoreError(UserError):
    """An object file without scores beside it, or scores that cannot be compared."""


def regalloc_scores(object_file: Path) -> Mapping[str, float]:
    """The score of each function of an object file; lower is better.

    That is copies, loads, stores and rematerialisations, weighted, each times how often its block
    is expected to be executed per call of the function (LLVM's RegAllocScore.cpp).

    Raises:
      ScoreError: there are no remarks beside the object file.
    """
    path = object_file.with_suffix(SUFFIX)
    try:
        text = read_input(path).decode("utf-8")
    except OSError as error:
        raise ScoreError(
            f"{path}: {error.strerror}; compile {object_file.name} with the patched clang and "
            + " ".join(FLAGS)
        ) from error
    except UnicodeDecodeError as error:
        raise ScoreError(f"{path}: byte {error.start} is not UTF-8; compile again") from error
    scores = {}
    for match in _REMARK.finditer(text):
        try:
            scores[_plain(match["function"])] = float(match["score"])
        except ValueError as error:
            raise ScoreError(
                f"{path}: {match['function'][:40]}, {match['score'][:40]!r}: is no name with a "
                "score; compile again"
            ) from error
    if text.count("\nPass:") != len(scores):
        raise ScoreError(f"{path}: has other remarks than one score a function; compile again")
    return scores


def _plain(text: str) -> str:
    """A name as the profile has it: YAML quotes some, and escapes characters in them."""
    if text[:1] not in ("'", '"'):
        return text
    try:
        return str(yaml.load(text, yaml.CSafeLoader))
    except yaml.YAMLError as error:
        raise ValueError(text) from error


def log_ratio(default: float, policy: float) -> float:
    """Logarithm of how a function's score compares to the default's; 0 if they are equal.

      log((policy + 0.01) / (default + 0.01))

    so that functions whose score is 0 have a ratio, too: without them a mean would not know of the
    first spill in a function, nor of the last that is avoided. What is small beside a hundredth of
    an instruction per call counts for little.
    """
    return math.log((policy + _SMALL_SCORE) / (default + _SMALL_SCORE))


def score_ratio(
    default: Mapping[str, float], policy: Mapping[str, float], calls: Mapping[str, float]
) -> float:
    """How scores compare to the default's, function by function; below 1 if they are lower.

    A score is per call of its function, so that sums over functions mean nothing: the one with the
    hottest loop would be all of it. This is the geometric mean of the functions' ratios

      exp(sum_f w_f * log_ratio(default_f, policy_f) / sum_f w_f)

    weighted by how often each function was called, where any of them was.

    Args:
      default, policy: scores by function.
      calls: by function, of a run; functions that are not there were not called. When none of the
        scored ones was, they weigh the same.

    Raises:
      ScoreError: the two have scores of other functions, or there are none.
    """
    if different := sorted(default.keys() ^ policy.keys()):
        raise ScoreError(
            f"scores of other functions than the default's ({', '.join(different[:3])}"
            f"{', ...' if len(different) > 3 else ''}): they cannot be compared"
        )
    if not default:
        raise ScoreError("no function has a score")
    weights = {name: float(calls.get(name, 0)) for name in default}
    if not any(weights.values()):
        weights = dict.fromkeys(default, 1.0)
    logarithms = (
        weights[name] * log_ratio(default[name], policy[name]) for name in sorted(default)
    )
    return math.exp(math.fsum(logarithms) / math.fsum(weights.values()))
