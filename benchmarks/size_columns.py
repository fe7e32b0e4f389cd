# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Text and file sizes of programs in the builds that users for size have, with a policy or not.

The builds are -Oz and -Oz with ThinLTO, each with the machine outliner and without. Other links of
the same objects tell what makes the policy gain less in them than without.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from absl import logging

from benchmarks.changes import changes_table, counted_changes, percent_change
from benchmarks.results import Cell, Table
from benchmarks.size_builds import (
    COLUMNS,
    UNFOLDED,
    WAYS,
    Builds,
    Link,
    Sizes,
    counts,
    language,
    purpose,
    unseen_means,
)
from compiler_opt_perf.corpus.program_table import PROGRAMS as TABLE
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.trial.result import smallest
from compiler_opt_perf.trial.ways import PLAIN, SIZE, SIZE_THINLTO, Way

#: Those of LLVM take an hour and are written in one style.
PROGRAMS = tuple(name for name in TABLE if not name.startswith("llvm-"))
#: Programs of LLVM's CTMark; they are among the others, too.
CTMARK = ("sqlite", "bullet", "7zip", "mafft")
_KINDS = {"text": "linked text", "file": "stripped file"}

_POLICY = SIZE[1]
_THIN, _THIN_POLICY = SIZE_THINLTO[:2]
# With the default limit of imports.
_MORE = dataclasses.replace(_THIN, few_imports=False)
_MORE_POLICY = dataclasses.replace(_THIN_POLICY, few_imports=False)
#: Further links, by name.
LINKS = {
    "unfolded": Link(PLAIN, PLAIN, UNFOLDED),
    "unfolded-policy": Link(_POLICY, _POLICY, UNFOLDED),
    "imports": Link(_THIN, _MORE),
    "imports-before": Link(_THIN_POLICY, _MORE),
    "imports-after": Link(_THIN, _MORE_POLICY),
    "imports-both": Link(_THIN_POLICY, _MORE_POLICY),
    "before": Link(_THIN_POLICY, _THIN),
    "after": Link(_THIN, _THIN_POLICY),
}
#: By column, a link or way and the one without the policy.
_STAGES = {
    "-Oz, not folded": ("unfolded-policy", "unfolded"),
    "-Oz": (_POLICY.name, PLAIN.name),
    "ThinLTO, 100, before": ("imports-before", "imports"),
    "ThinLTO, 100, after": ("imports-after", "imports"),
    "ThinLTO, 100, both": ("imports-both", "imports"),
    "ThinLTO, 5, before": ("before", _THIN.name),
    "ThinLTO, 5, after": ("after", _THIN.name),
    "ThinLTO, 5, both": (_THIN_POLICY.name, _THIN.name),
}
#: Ways and links whose runs are counted.
_COUNTED = (_POLICY.name, SIZE[2].name, "imports", _THIN.name, SIZE_THINLTO[2].name)
#: By column, a way or link that is compared with plain.
_COMPARED = {
    **{way.name: (way.name, PLAIN.name) for way in WAYS[1:]},
    "ThinLTO, limit 100": ("imports", PLAIN.name),
}

#: Bytes by program and way or link, and changes in percent.
Totals = Mapping[str, Mapping[str, int]]
Changes = Mapping[str, Mapping[str, float]]


def tables(sizes: Mapping[str, Mapping[str, Sizes]], executed: Totals) -> list[Table]:
    """Sizes by way, what the policy changes, and what it costs.

    Args:
      sizes: by program, and by name of the `WAYS` and `LINKS`.
      executed: instructions of a run, by program and some of these names.
    """
    totals: dict[str, Totals] = {
        "text": {name: {way: one.text for way, one in own.items()} for name, own in sizes.items()},
        "file": {name: {way: one.file for way, one in own.items()} for name, own in sizes.items()},
    }
    ways = {kind: counted_changes(found, _COMPARED) for kind, found in totals.items()}
    ctmark = {name: own for name, own in ways["text"].items() if name in CTMARK}
    return [
        _means(ways),
        _policy(totals),
        _trial(totals),
        _stages(totals),
        *_executed({name: own for name, own in executed.items() if own}),
        *(_by_program(kind, kind, totals[kind], ways[kind]) for kind in totals),
        *([_by_program("ctmark", "text", totals["text"], ctmark)] if ctmark else []),
    ]


def _by_program(table: str, kind: str, totals: Totals, changes: Changes) -> Table:
    rows: list[list[Cell]] = [
        [name, purpose(name), language(name), totals[name][PLAIN.name], *own.values()]
        for name, own in changes.items()
    ]
    head = {"program": "text", "training": "text", "language": "text", "-Oz": "bytes"}
    columns = {**head, **dict.fromkeys(_COMPARED, "percent:+2")}
    caption = f"Changes of the {_KINDS[kind]} against plain `-Oz`."
    return Table.of(table, caption, columns, rows)


def _means(ways: Mapping[str, Changes]) -> Table:
    rows: list[list[Cell]] = []
    for spoken in ("C", "C++"):
        for kind, changes in ways.items():
            count = sum(counts(name, spoken) for name in changes)
            if count:
                found = {name: list(own.values()) for name, own in changes.items()}
                means = unseen_means(found, spoken)
                rows.append([f"{spoken}, {_KINDS[kind]}", count, *means])
    head = {"of": "text", "programs": "integer"}
    columns = {**head, **dict.fromkeys(_COMPARED, "percent:+2")}
    caption = (
        "Changes against plain `-Oz`: geometric means of programs that the training never saw, "
        "with 95% intervals over other programs."
    )
    return Table.of("means", caption, columns, rows)


def _policy(totals: Mapping[str, Totals]) -> Table:
    """What the policy changes in each of the `COLUMNS`."""
    pairs = {name: (policy.name, own.name) for name, (own, policy) in COLUMNS.items()}
    found = [counted_changes(of_kind, pairs) for of_kind in totals.values()]
    whole = {name: [one for own in found for one in own[name].values()] for name in found[0]}
    checked = {}
    for name, changes in whole.items():
        # 1 for the policy's build, 0 for the other one.
        taken = [
            smallest([_both(totals, name, way) for way in column]) for column in COLUMNS.values()
        ]
        chosen = zip(changes, taken * len(totals), strict=True)
        checked[name] = [one * number for one, number in chosen]
    rows: list[list[Cell]] = [
        [name, purpose(name), *changes] for name, changes in whole.items() if any(changes)
    ]
    for label, found_changes in (("", whole), (", checked", checked)):
        if means := unseen_means(found_changes, "C++"):
            rows.append([f"geometric mean of C++, never seen{label}", "", *means])
    for label, found_changes in (("", whole), (", checked", checked)):
        worst = map(max, zip(*found_changes.values(), strict=True))
        rows.append([f"largest change of all programs{label}", "", *worst])
    names = [f"{kind}, {name}" for kind in totals for name in COLUMNS]
    caption = (
        "What the policy changes in each of the four builds: linked text and stripped file. "
        "Programs that it leaves as they are have no row. Checked: by the rule of `cop try --size` "
        "the policy's build is taken, or the other one."
    )
    columns = {"program": "text", "training": "text"} | dict.fromkeys(names, "percent:+2")
    return Table.of("policy", caption, columns, rows)


def _both(totals: Mapping[str, Totals], name: str, way: Way) -> tuple[int, int]:
    return totals["text"][name][way.name], totals["file"][name][way.name]


def _trial(totals: Mapping[str, Totals]) -> Table:
    """Which build `cop try --size` takes."""
    rows: list[list[Cell]] = []
    changes: dict[str, list[float]] = {}
    for name in totals["text"]:
        row: list[Cell] = [name]
        changes[name] = []
        plain = _both(totals, name, PLAIN)
        for ways in (SIZE, WAYS):
            sizes = [_both(totals, name, way) for way in ways]
            number = smallest(sizes)
            own = [
                percent_change(one, base) for one, base in zip(sizes[number], plain, strict=True)
            ]
            row += [ways[number].name, *own]
            changes[name] += own
        if language(name) == "C++":
            rows.append(row)
    for kind in ("C", "C++"):
        if means := unseen_means(changes, kind):
            label = f"geometric mean of {kind}, never seen"
            rows.append([label, "", *means[:2], "", *means[2:]])
    columns = {"program": "text"}
    for flags in ("--size", "--size --thinlto"):
        columns |= {f"`{flags}`": "text"}
        columns |= {f"{kind}, `{flags}`": "percent:+2" for kind in ("text", "file")}
    caption = (
        "The build that `cop try` takes, and its sizes against plain `-Oz`. Programs in C are in "
        "their mean only."
    )
    return Table.of("taken", caption, columns, rows)


def _stages(totals: Mapping[str, Totals]) -> Table:
    """What the policy changes in text of C++, by how the program is linked."""
    rows: list[list[Cell]] = []
    for kind, found in totals.items():
        changes = {
            name: list(own.values())
            for name, own in counted_changes(found, _STAGES).items()
            if language(name) == "C++"
        }
        if kind == "text":
            rows += [[name, purpose(name), *own] for name, own in changes.items()]
        if means := unseen_means(changes, "C++"):
            rows.append([f"geometric mean, never seen, {_KINDS[kind]}", "", *means])
    columns = {"program": "text", "training": "text"} | dict.fromkeys(_STAGES, "percent:+2")
    caption = (
        "What the policy changes in linked text of C++, with identical functions folded or not. "
        "With ThinLTO, by the largest imported function in instructions and by where the policy "
        "decides: before the link, after it, or in both."
    )
    return Table.of("stages", caption, columns, rows)


def _executed(counts: Totals) -> list[Table]:
    pairs = {name: pair for name, pair in _COMPARED.items() if pair[0] in _COUNTED}
    facts: dict[str, list[Cell]] = {
        name: [purpose(name), own[PLAIN.name]] for name, own in counts.items()
    }
    caption = "Executed instructions of a run against plain `-Oz`."
    head = {"training": "text", "-Oz": "integer"}
    changes = counted_changes(counts, pairs)
    return changes_table("executed", caption, head, facts, changes, pairs)


def study(programs: Sequence[str], folder: Path, toolchain: Toolchain) -> list[Table]:
    """Builds the given `PROGRAMS` in all `WAYS`, with the `LINKS`, and compares their sizes."""
    sizes, executed = {}, {}
    for program in programs:
        builds = Builds(program, folder / program, toolchain)
        built = builds.sizes()
        # The policy is asked about C++ only.
        wanted = LINKS if language(program) == "C++" else {"imports": LINKS["imports"]}
        links = {name: builds.linked(name, link, built) for name, link in wanted.items()}
        sizes[program] = {**built, **links}
        logging.info("%s: %s", program, {way: one.text for way, one in sizes[program].items()})
        executed[program] = builds.executed(sizes[program], (PLAIN.name, *_COUNTED))
    return tables(sizes, executed)
