# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A search of single inlining decisions for size in each kind of build, judged by linked text.

Of each program, decisions of some modules are taken the other way, one at a time, in all builds
that users for size have; with ThinLTO those after the thin link. What saves is taken together.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from absl import logging

from benchmarks.changes import mean_change
from benchmarks.inline_flips import Flip
from benchmarks.programs.forty import in_turn, side_by_side
from benchmarks.results import Cell, Table
from benchmarks.size_builds import COLUMNS, Builds, language
from benchmarks.size_flips import Column, Found
from benchmarks.size_labels import Labelled, kept_table
from compiler_opt_perf.run.memo import memo
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.seeds import derive_seed
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train.label_files import Labels
from compiler_opt_perf.trial.ways import PLAIN

#: No training saw them, and they have modules with few decisions.
PROGRAMS = (
    *("cmark", "libyaml", "lmdb", "lua", "lz4", "zlib"),
    *("box2d", "double-conversion", "exiv2", "leveldb", "ninja", "re2", "taglib", "tinyxml"),
)
SEED = 1
#: Modules of a program, drawn by the seed from those with so many decisions at -Oz.
MODULES, LEAST, MOST = 3, 10, 400


def study(
    programs: Sequence[str], folder: Path, toolchain: Toolchain, largest: int = MOST
) -> list[Table]:
    """Searches each program in all kinds of builds; what is done is not done again.

    A program that does not build is logged and left out.

    Args:
      largest: decisions of a module that is searched, at most.
    """
    builds = {name: Builds(name, folder / name, toolchain) for name in programs}
    built = in_turn(_build, builds, "building programs")
    with Pool() as pool:
        tasks = {name: builds[name] for name in built}
        ended = side_by_side(pool, partial(_searched, largest=largest), tasks, "searching programs")
    found = {name: own for name, (own, _) in ended.items() if own}
    return [*tables(found), learnt([own for _, own in ended.values() if own])] if found else []


def _build(builds: Builds) -> None:
    """Builds a program on all cores, so that a worker of the search finds it done."""
    for way, _ in COLUMNS.values():
        builds.size_of(way)


def _searched(builds: Builds, *, largest: int) -> tuple[dict[str, Found], dict[str, Labels]]:
    """What is found in a program, by column, and all that was tried, if all columns have some.

    Nothing if the program has no module of few decisions that the linker keeps.
    """
    name = builds.name
    columns = {
        title: Column(builds, builds.folder / "search" / way.name, way, policy)
        for title, (way, policy) in COLUMNS.items()
    }
    plain = columns["-Oz"]
    plain.folder.mkdir(parents=True, exist_ok=True)
    built = builds.size_of(PLAIN)
    counted = memo(
        plain.folder / "decisions.json",
        built.digest,
        list[int],
        lambda: [len(plain.decisions(one)) for one in range(len(plain.objects))],
    )
    linked = [module for module, size in enumerate(plain.linked()) if size]
    modules = chosen_modules(name, counted, linked, largest)
    logging.info("%s: %d modules", name, len(modules))
    found: dict[str, Found] = {}
    taken: Sequence[Flip] = ()
    for title, column in columns.items() if modules else ():
        # The column before is the same without the outliner.
        one = column.search(modules, taken if column.way.outliner else None)
        found[title], taken = one, one.taken
        logging.info("%s, %s: %+.2f%%", name, title, one.change(one.after))
    if not found or not all(one.flips for one in found.values()):
        return found, {}
    return found, {title: columns[title].labels(one.flips) for title, one in found.items()}


def chosen_modules(
    name: str, decisions: Sequence[int], linked: Sequence[int], largest: int = MOST
) -> list[int]:
    """The modules of a program that are searched.

    Args:
      decisions: of each module.
      linked: modules of which the linker keeps something.
    """
    few = [number for number, count in enumerate(decisions) if LEAST <= count <= largest]
    random = np.random.default_rng(derive_seed(SEED, name))
    return sorted([int(one) for one in random.permutation(few) if one in linked][:MODULES])


def tables(found: Mapping[str, Mapping[str, Found]]) -> list[Table]:
    """What the search saves, and what the policy keeps of it, by program and kind of build.

    Args:
      found: by program and by name of the `COLUMNS`.
    """
    return [_programs(found), _kept(found)]


def learnt(labels: Sequence[Mapping[str, Labels]]) -> Table:
    """What trees keep that learn in one kind of build, or in all.

    Args:
      labels: of each program, by name of the `COLUMNS`.
    """
    own = {title: [one[title] for one in labels] for title in COLUMNS}
    judges = {title: Labelled.of(one) for title, one in own.items()}
    common = Labelled.of([one for several in own.values() for one in several])
    return kept_table("learnt", {**judges, "all": common}, judges)


def _programs(found: Mapping[str, Mapping[str, Found]]) -> Table:
    rows: list[list[Cell]] = []
    for name, own in found.items():
        row: list[Cell] = [name, language(name), own["-Oz"].decisions, own["-Oz"].before]
        for one in own.values():
            row += [one.change(one.after), one.change(one.policy)]
        rows.append(row)
    head = {"program": "text", "language": "text", "decisions": "integer", "text": "bytes"}
    columns = [f"{title}, {by}" for title in COLUMNS for by in ("search", "policy")]
    return Table.of(
        "programs",
        "Linked text of the searched modules of each program: what is saved by decisions that a "
        "search finds, and by the shipped policy, in each kind of build.",
        {**head, **dict.fromkeys(columns, "percent:+2")},
        rows,
    )


def _kept(found: Mapping[str, Mapping[str, Found]]) -> Table:
    rows: list[list[Cell]] = []
    for spoken in ("C", "C++"):
        programs = [own for name, own in found.items() if language(name) == spoken]
        for title in COLUMNS if programs else ():
            own = [one[title] for one in programs]
            carried = [one.text - one.carried for one in own if one.carried is not None]
            saved = sum(one.text - one.after for one in own)
            rows.append(
                [
                    f"{spoken}, {title}",
                    sum(one.decisions for one in own),
                    sum(change.change < 0 for one in own for change in one.flips),
                    sum(one.before for one in own),
                    sum(one.alone() for one in own),
                    sum(one.alone(inlining=True) for one in own),
                    saved,
                    sum(one.text - one.policy for one in own),
                    sum(carried) if carried else None,
                    mean_change([one.change(one.after) for one in own]),
                    mean_change([one.change(one.policy) for one in own]),
                ]
            )
    return Table.of(
        "kept",
        "Sums over the programs: decisions, those that save, and bytes that are saved one by one, "
        "of it by inlining what the compiler would not. Bytes that are saved together, by the "
        "policy, and by what is found without the outliner. Geometric means of the programs' "
        "changes.",
        {
            "in": "text",
            "decisions": "integer",
            "save": "integer",
            "text": "bytes",
            "saved one by one": "bytes",
            "of it by inlining": "bytes",
            "saved together": "bytes",
            "by the policy": "bytes",
            "as without the outliner": "bytes",
            "search": "percent:+2",
            "policy": "percent:+2",
        },
        rows,
    )
