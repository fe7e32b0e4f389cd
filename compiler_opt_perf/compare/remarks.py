# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads the decisions of a policy from the compiler's optimisation remarks (YAML)."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from compiler_opt_perf.policy.problem import Problem
from compiler_opt_perf.run.errors import UserError

DEFAULT_ARGUMENT = "DefaultDecision"
PMU_ARGUMENT = "PMUData"
# What the compiler found in the PMU profile for a decision, best first. A "cold" decision is in a
# profiled function that did not run; of "function", only the function is known.
PMU_KINDS = ("exact", "flattened", "function", "cold", "missing")
# Without -pmu-profile remarks do not have this argument.
_NO_PROFILE = "missing"


class RemarksError(UserError):
    """A remarks file that cannot be read, or a remark without the expected arguments."""


@dataclass(frozen=True)
class Decision:
    """One decision of a policy.

    Attributes:
      function: it was taken in this function.
      subject: the callee, or the register that needs to be assigned.
      chosen: the policy's decision.
      default: what the compiler's own policy would have decided in the same state.
      pmu: one of PMU_KINDS.
    """

    function: str
    subject: str
    chosen: int
    default: int
    pmu: str


def remark_options(problem: Problem, output: Path, *others: str) -> list[str]:
    """`clang -cc1` options that write the problem's decision remarks to `output`.

    Args:
      others: further passes whose remarks are written, too.
    """
    return [
        "-opt-record-file",
        str(output),
        "-opt-record-passes",
        f"^({'|'.join((problem.remark_pass, *others))})$",
        "-opt-record-format",
        "yaml",
    ]


class _Loader(yaml.CSafeLoader):
    """Reads `!Passed`, `!Missed` and `!Analysis` documents as plain mappings of strings."""


def _mapping(loader: _Loader, _: str, node: yaml.Node) -> Any:
    assert isinstance(node, yaml.MappingNode)
    return loader.construct_mapping(node, deep=True)


_Loader.add_multi_constructor("!", _mapping)


def read_decisions(path: Path, problem: Problem) -> list[Decision]:
    """The problem's decisions in the order in which the compiler took them.

    Raises:
      RemarksError: names the file, the document and what is wrong with it.
    """
    decisions = []
    try:
        with open(path, "rb") as stream:
            for number, document in enumerate(yaml.load_all(stream, Loader=_Loader)):
                if document["Pass"] != problem.remark_pass:
                    continue
                arguments: dict[str, Any] = {}
                for argument in document.get("Args", []):
                    arguments.update(argument)
                # Remarks about mandatory inlining and the like are no decisions of a policy.
                if DEFAULT_ARGUMENT in arguments:
                    decisions.append(_decision(path, number, document, arguments, problem))
    except OSError as error:
        raise RemarksError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise RemarksError(f"{path}: not a remarks file: {error}; compile again") from error
    return decisions


def _decision(
    path: Path, number: int, document: dict[str, Any], arguments: dict[str, Any], problem: Problem
) -> Decision:
    try:
        pmu = str(arguments.get(PMU_ARGUMENT, _NO_PROFILE))
        if pmu not in PMU_KINDS:
            raise ValueError(f"{PMU_ARGUMENT} is {pmu!r}, expected one of {PMU_KINDS}")
        return Decision(
            function=document["Function"],
            subject=str(arguments[problem.remark_subject]),
            chosen=_integer(arguments[problem.remark_decision]),
            default=_integer(arguments[DEFAULT_ARGUMENT]),
            pmu=pmu,
        )
    except (KeyError, ValueError) as error:
        raise RemarksError(
            f"{path}: remark {number} ({document.get('Name')}): {error!r}; "
            "is the compiler of another version than this package?"
        ) from error


def _integer(value: Any) -> int:
    # LLVM writes booleans as words, which the YAML loader may have converted already.
    return int({"true": True, "false": False}.get(str(value).lower(), value))


def count_pmu(decisions: list[Decision]) -> Counter[str]:
    """The number of decisions with each kind of PMU data."""
    return Counter(decision.pmu for decision in decisions)
