# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The rules that are shipped as policies: models/inline-speed and models/regalloc-evict."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compiler_opt_perf.policy.callee_saved_rule import CalleeSavedRule
from compiler_opt_perf.policy.export import DESCRIPTION_FILE, ModelError, Policy, publish
from compiler_opt_perf.policy.inlining_rule import InliningRule
from compiler_opt_perf.run.files import read_input
from compiler_opt_perf.run.json_text import JsonError, decode

_PURPOSE = "fewer executed instructions at -O2, by the PMU profile of a run"
#: By problem: the rule, and what its policy is for.
RULES: dict[str, tuple[InliningRule | CalleeSavedRule, str]] = {
    "inline-size": (InliningRule(), _PURPOSE),
    "regalloc-evict": (
        CalleeSavedRule(),
        f"{_PURPOSE}: first uses of callee-saved registers; evictions are the compiler's own",
    ),
}


def publish_rule(problem: str, directory: Path, results: Mapping[str, Any] | None = None) -> None:
    """Publishes the rule of a problem as a policy.

    Args:
      problem: a key of `RULES`.
      directory: for the policy. It may hold an earlier one, which is replaced.
      results: what was measured of the rule. None keeps what the earlier policy says of the same
        rule.

    Raises:
      FileWriteError: the folder cannot be written.
      ModelError: the folder holds something else than a policy, or its description is damaged.
    """
    rule, purpose = RULES[problem]
    network, weights = rule.network()
    description: dict[str, Any] = {"purpose": purpose, "rule": rule.as_json()}
    path = directory / DESCRIPTION_FILE
    if path.exists():
        try:
            earlier = decode(read_input(path), dict[str, Any], path)
        except JsonError as error:
            raise ModelError(f"{error}; remove the folder to publish anew") from error
        if results is None and earlier.get("rule") == description["rule"]:
            results = earlier.get("results")
    elif directory.is_dir() and any(directory.iterdir()):
        raise ModelError(f"{directory}: holds something else than a policy; name another folder")
    if results is not None:
        description["results"] = results
    publish(Policy(network, weights, description), directory)
