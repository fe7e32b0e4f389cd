# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads RegAllocScore from the remarks that the compiler writes beside an object file."""

import math
import re
from collections.abc import Mapping
from pathlib import Path

import yaml

from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import read_input

#: Flags with which the patched clang writes the remarks.
FLAGS = (
    "-fsave-optimization-record=yaml",
    "-foptimization-record-passes=^regalloc-score$",
)
SUFFIX = ".opt.yaml"
# Added to both scores of a ratio, in instructions per call.
_SMALL_SCORE = 0.01

# A remark of MLRegAllocEvictAdvisor.cpp (MachineOptimizationRemarkAnalysis) in YAML.
_REMARK = re.compile(
    r"^--- !Analysis\nPass: +regalloc-score\nName: +RegAllocScore\n"
    r"(?:DebugLoc: .*\n(?: +.*\n)*)?Function: +(?P<function>.+)\n(?:.*\n)*?"
    r" +- Score: +'(?P<score>[^']+)'\n",
    re.MULTILINE,
)


class ScoreError(UserError):
    """An object file has no scores beside it, or scores cannot be compared."""


def regalloc_scores(object_file: Path) -> Mapping[str, float]:
    """The score of each function of an object file; lower is better.

    A score is a weighted sum of copies, loads, stores and rematerialisations, each multiplied by
    its block's expected executions per call (LLVM's RegAllocScore.cpp).

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
        raise ScoreError(f"{path}: has other remarks than one score per function; compile again")
    return scores


def _plain(text: str) -> str:
    """A linkage name without YAML's quotes and escapes."""
    if text[:1] not in ("'", '"'):
        return text
    try:
        return str(yaml.load(text, yaml.CSafeLoader))
    except yaml.YAMLError as error:
        raise ValueError(text) from error


def log_ratio(default: float, policy: float) -> float:
    """The logarithm of the ratio of a function's scores.

      log((policy + 0.01) / (default + 0.01))

    The summand gives a ratio to functions whose score is 0, so that a mean counts the first spill
    in a function and the last spill avoided. Scores far below 0.01 instructions per call hardly
    count.
    """
    return math.log((policy + _SMALL_SCORE) / (default + _SMALL_SCORE))


def score_ratio(
    default: Mapping[str, float], policy: Mapping[str, float], calls: Mapping[str, float]
) -> float:
    """The weighted geometric mean of the functions' score ratios; below 1 if scores are lower.

      exp(sum_f w_f * log_ratio(default_f, policy_f) / sum_f w_f)

    A score is per call of its function, so sums over functions would be dominated by the function
    with the hottest loop.

    Args:
      default, policy: scores by function.
      calls: calls of each function in a run, the weights w; missing functions have none. If no
        scored function was called, all weights are equal.

    Raises:
      ScoreError: the two have different functions, or none.
    """
    if different := sorted(default.keys() ^ policy.keys()):
        raise ScoreError(
            f"the scored functions differ from the default's ({', '.join(different[:3])}"
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
