# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decisions in words: where each is taken, by its key (docs/reference/features.md), and what."""

from collections.abc import Iterable, Mapping

from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.run.symbol_names import demangled, shortened


def names_in(keys: Iterable[str], width: int) -> dict[str, str]:
    """The demangled names of the functions in some keys, for `place`, in at most `width` columns.

    Raises CommandError.
    """
    words = {word for key in keys for word in key.split(" ")[:3]}
    words |= {word.rpartition(".")[0] for word in words}
    return {name: shortened(own, width) for name, own in demangled(sorted(words)).items()}


def place(key: str, names: Mapping[str, str]) -> str:
    """Where a decision is taken, in words.

    Args:
      names: of `names_in`.
    """
    words = key.split(" ")
    if len(words) == 3:
        return f"{names[words[0]]}: {' '.join(words[1:])}"
    if len(words) != 5:
        return key
    caller, callee, site, stack, ordinal = words
    function, _, number = site.rpartition(".")
    where = "call made later" if site == "?" else f"call {number}"
    if function not in ("", caller):
        where += f" of {names[function]}"
    further = [stack] * (stack != "-") + [ordinal] * (ordinal != "#0")
    return f"{names[callee]} in {names[caller]}, {', '.join([where, *further])}"


def decided(problem: str, decision: int) -> str:
    """A decision in words."""
    known = PROBLEMS.get(problem)
    if known is not None and known.mask is None:
        return "inlined" if decision else "not inlined"
    return f"candidate {decision}"
