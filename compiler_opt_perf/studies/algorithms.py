# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which algorithm makes most of a budget of compilations? All begin with the same policy.

Each recipe of `RECIPES` trains an inlining policy for size on some modules of a recipe's training
programs, chooses by modules of its validation programs, and is measured on modules of its test
programs. The start is an untrained residual network: the compiler's own policy. Compilations of
validation modules count, those with the compiler's own policy and of the test do not.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from compiler_opt_perf.corpus.corpus import Corpus, Module
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.corpus.programs import program_modules
from compiler_opt_perf.execution.files import read_input, sha256
from compiler_opt_perf.execution.memo import memo
from compiler_opt_perf.execution.seeds import derive_seed
from compiler_opt_perf.policies.problem import PROBLEMS
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.training.config import Config, read_config
from compiler_opt_perf.training.recipe import Programs, read_recipe
from compiler_opt_perf.training.train import train

_PROBLEM = PROBLEMS["inline-size"]
#: Names of recipes of the package, and what they have instead of their own settings: iterations of
#: so few compilations that there are several of them.
RECIPES: dict[str, dict[str, Any]] = {
    "evolution-strategies": {"evolution-strategies.pairs": 4},
    "cma-es": {"cma-es.modules": 6},
    "ppo": {"ppo.modules": 10, "ppo.rollouts": 4},
    "best-of-several": {"best-of-several.modules": 6},
    "labels": {"labels.modules": 6, "labels.sites": 12},
}
# No training gets so far.
_ITERATIONS = 10_000


@dataclass(frozen=True)
class Row:
    """The result of one recipe; changes are against the default's bytes, -0.01 for 1% less."""

    recipe: str
    compilations: int
    iterations: int
    validation_change: float
    test_change: float
    failed: tuple[str, ...]


def study(
    only: Sequence[str],
    output: Path,
    toolchain: Toolchain,
    *,
    recipe: Path,
    modules: Path,
    compilations: int = 600,
    each: int = 4,
    largest: int = 60,
    seed: int = 1,
) -> str:
    """Trains by each recipe, unless the folder holds the result of the same training.

    Args:
      only: some of `RECIPES`.
      recipe: of `cop imitate`, for the split by program.
      modules: a folder as `cop imitate` leaves it; programs that it lacks are compiled into it.
      compilations: for each training.
      each: modules of a program that take part, drawn at random; of validation programs half.
      largest: KiB of IR that one of them has at most.

    Returns:
      The table of all recipes in the folder, in Markdown.
    """
    programs = read_recipe(recipe).programs
    corpus = _draw(programs, modules.resolve(), each, largest, seed)
    rows = {}
    for name in RECIPES:
        own = {
            **RECIPES[name],
            "programs": {purpose: list(names) for purpose, names in programs.by_purpose.items()},
            "compilations": compilations,
            "iterations": _ITERATIONS,
            "default_lead": 0.25,
            "seed": seed,
        }
        config = read_config(name).changed(own)
        inputs = {
            "config": config.as_json(),
            "corpus": {one.name: one.fingerprint() for one in corpus.modules},
            "clang": sha256(toolchain.clang.resolve()),
        }
        path = output / f"{name}.json"
        if name in only:
            # Of other inputs it is another training.
            digest = hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:8]
            folder = output / f"{name}-{digest}"
            make = partial(_train, name, corpus, toolchain, folder, config)
            rows[name] = memo(path, inputs, Row, make)
        elif path.exists():
            rows[name] = memo(path, inputs, Row, partial(_missing, path))
    return table(rows, corpus, programs)


def _missing(path: Path) -> Row:
    raise FileNotFoundError(f"{path}: of other inputs; name its recipe, too, or remove it")


def _draw(programs: Programs, folder: Path, each: int, largest: int, seed: int) -> Corpus:
    """Some modules of each program."""
    chosen: list[Module] = []
    for name in programs.all:
        found = program_modules(
            name,
            folder / "programs",
            folder / "corpora",
            opt_level=_PROBLEM.optimization_level,
            stage=_PROBLEM.corpus_stage,
        )
        small = [one for one in found if one.bitcode.stat().st_size <= 1024 * largest]
        count = max(each // 2, 1) if name in programs.validation else each
        draw = np.random.default_rng(derive_seed(seed, "modules", name))
        numbers = sorted(draw.permutation(len(small))[:count].tolist())
        chosen += [small[i] for i in numbers]
    logging.info("%d modules of %d programs, seed %d", len(chosen), len(programs.all), seed)
    return Corpus(folder, tuple(chosen))


def _train(name: str, corpus: Corpus, toolchain: Toolchain, folder: Path, config: Config) -> Row:
    """One training; it goes on where it was."""
    defaults = sorted(folder.parent.glob("*/default"))
    if defaults and not folder.exists():
        # What the compiler's own policy leads to is the same for all.
        shutil.copytree(defaults[0], folder / "default")
    result = train(_PROBLEM, corpus, toolchain, Profiles(), folder, config)
    record = json.loads(read_input(folder / "training.json"))
    return Row(
        name,
        record["results"]["compilations"],
        result.generations,
        result.validation_change,
        result.test_change,
        result.test_failed,
    )


def table(rows: Mapping[str, Row], corpus: Corpus, programs: Programs) -> str:
    """In Markdown, a row a recipe."""
    counts = [
        sum(one.program in names for one in corpus.modules)
        for names in programs.by_purpose.values()
    ]
    lines = [
        f"{counts[0]} modules to train on, {counts[1]} to choose by, {counts[2]} to test on, "
        "of other programs each; those with nothing to decide are left out.",
        "",
        "| recipe | compilations | iterations | text of the modules to choose by | "
        "text of the test modules |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in rows.values():
        failed = f" (fails on {len(row.failed)})" if row.failed else ""
        lines.append(
            f"| {row.recipe} | {row.compilations} | {row.iterations} | "
            f"{100 * row.validation_change:+.2f}% | {100 * row.test_change:+.2f}%{failed} |"
        )
    return "\n".join(lines)
