# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What becomes of identical functions, which the linker folds, where the policy for size decides.

Programs in C++ at -Oz, plain and with the policy, each linked with identical functions folded
(--icf=safe) and without.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from absl import logging

from benchmarks.changes import percent_change
from benchmarks.results import Cell, Table
from benchmarks.size_builds import (
    MODEL,
    UNFOLDED,
    Builds,
    Link,
    language,
    purpose,
    unseen_means,
)
from compiler_opt_perf.corpus.program_table import PROGRAMS as TABLE
from compiler_opt_perf.cost.size import FunctionSizes
from compiler_opt_perf.policy import export
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.trial.ways import PLAIN, SIZE

#: The policy is asked about C++ only. Those of LLVM take an hour.
PROGRAMS = tuple(name for name in TABLE if language(name) == "C++" and not name.startswith("llvm-"))
_POLICY = SIZE[1]
_CAPTION = (
    "Change of linked text by the policy at `-Oz`, without folding and with it. Bytes of "
    "functions that folding saves in the plain build, by what the policy's build has of them."
)
#: What the policy does with functions that a plain link folds into one.
FATES = ("all inlined", "some inlined", "still folded", "no longer identical")


def fates(
    whole: FunctionSizes, folded: FunctionSizes, other: FunctionSizes, other_folded: FunctionSizes
) -> dict[str, int]:
    """Bytes that folding saves in one build, by what another build has of the functions (`FATES`).

    Args:
      whole, folded: the functions of the build linked without folding, and with it.
      other, other_folded: the same of the other build.
    """
    groups: dict[str, list[str]] = {}
    for name in whole:
        groups.setdefault(folded.aliases.get(name, name), []).append(name)
    saved = dict.fromkeys(FATES, 0)
    for names in groups.values():
        left = [name for name in names if other.aliases.get(name, name) in other]
        kept = {other_folded.aliases.get(name, name) for name in left}
        if not left:
            fate = "all inlined"
        elif len(left) < len(names):
            fate = "some inlined"
        else:
            fate = "still folded" if len(kept) == 1 else "no longer identical"
        sizes = [whole[name] for name in names]
        saved[fate] += sum(sizes) - max(sizes)
    return saved


def table(
    name: str,
    caption: str,
    saved: Mapping[str, Mapping[str, int]],
    changes: Mapping[str, Sequence[float]],
) -> Table:
    """Both by program.

    Args:
      saved: bytes by the `FATES`.
      changes: in percent, of text by the policy: not folded, and folded.
    """
    rows: list[list[Cell]] = [
        [program, purpose(program), *changes[program], sum(own.values()), *own.values()]
        for program, own in saved.items()
    ]
    totals = [sum(own[fate] for own in saved.values()) for fate in FATES]
    if means := unseen_means(changes, "C++"):
        rows.append(["mean of the unseen, sum of all", "", *means, sum(totals), *totals])
    columns = {"program": "text", "training": "text", "not folded": "percent:+2"}
    columns |= {"folded": "percent:+2"} | dict.fromkeys(("folding saves", *FATES), "integer")
    return Table.of(name, caption, columns, rows)


def study(
    programs: Sequence[str], folder: Path, toolchain: Toolchain, margin: float
) -> list[Table]:
    """Builds the given `PROGRAMS` plain and with the policy, and compares their functions.

    Args:
      margin: of the compiler's own decision, for a second table.
    """
    other = folder / "margin"
    more = f"The same with a margin of {margin:g} of the compiler's own decision."
    return [
        table("folding", _CAPTION, *_measured(programs, folder, toolchain, MODEL)),
        table("margin", more, *_measured(programs, other, toolchain, _with_margin(margin, other))),
    ]


def _measured(
    programs: Sequence[str], folder: Path, toolchain: Toolchain, model: Path
) -> tuple[dict[str, dict[str, int]], dict[str, list[float]]]:
    saved: dict[str, dict[str, int]] = {}
    changes: dict[str, list[float]] = {}
    for program in programs:
        builds = Builds(program, folder / program, toolchain, model)
        built = {way.name: builds.size_of(way) for way in (PLAIN, _POLICY)}
        saved[program] = fates(
            *(builds.functions(way, words) for way in (PLAIN, _POLICY) for words in (UNFOLDED, ()))
        )
        whole = [
            builds.linked(f"unfolded-{way.name}", Link(way, way, UNFOLDED), built)
            for way in (PLAIN, _POLICY)
        ]
        changes[program] = [
            percent_change(one.text, plain.text) for plain, one in (whole, [*built.values()])
        ]
        logging.info("%s: %s, %s", program, changes[program], saved[program])
    return saved, changes


def _with_margin(margin: float, folder: Path) -> Path:
    policy = export.load(MODEL)
    network = dataclasses.replace(policy.network, default_lead=margin)
    export.publish(dataclasses.replace(policy, network=network), folder / "model")
    return folder / "model"
