# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""RegAllocScore, from the remarks that the compiler writes beside an object file."""

import re
from collections.abc import Mapping
from pathlib import Path

#: Arguments of the patched clang by which it writes the remarks; {object} is the object file.
FLAGS = (
    "-fsave-optimization-record=yaml",
    "-foptimization-record-passes=^regalloc-score$",
)
SUFFIX = ".opt.yaml"

# A remark, as MachineOptimizationRemarkAnalysis of MLRegAllocEvictAdvisor.cpp is written.
_REMARK = re.compile(
    r"^--- !Analysis\nPass: +regalloc-score\nName: +RegAllocScore\n"
    r"(?:DebugLoc: .*\n(?: +.*\n)*)?Function: +(?P<function>.+)\n(?:.*\n)*?"
    r" +- Score: +'(?P<score>[^']+)'\n",
    re.MULTILINE,
)


class ScoreError(Exception):
    """An object file without scores beside it."""


def regalloc_scores(object_file: Path) -> Mapping[str, float]:
    """The score of each function of an object file; lower is better.

    That is copies, loads, stores and rematerialisations, weighted, each times how often its block
    is expected to be executed per call of the function (LLVM's RegAllocScore.cpp).

    Raises:
      ScoreError: there are no remarks beside the object file.
    """
    path = object_file.with_suffix(SUFFIX)
    try:
        text = path.read_text(encoding="utf-8")
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
            scores[match["function"].strip("'\"")] = float(match["score"])
        except ValueError as error:
            raise ScoreError(
                f"{path}: {match['score'][:40]!r} is no score; compile again"
            ) from error
    if text.count("\nPass:") != len(scores):
        raise ScoreError(f"{path}: has other remarks than one score a function; compile again")
    return scores
