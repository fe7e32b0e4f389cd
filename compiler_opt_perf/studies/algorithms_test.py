# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The comparison of algorithms, with one of them, on the modules of one small program."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.corpus.programs import program_modules
from compiler_opt_perf.studies import algorithms
from compiler_opt_perf.toolchain.installation import Toolchain

_RECIPE = Path(__file__).parents[2] / "models" / "inline-size" / "recipe.toml"


def test_a_budget_is_kept_and_nothing_is_done_again(
    tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = '[programs]\ntraining = ["zstd"]\nvalidation = ["tcc"]\ntest = ["lua"]\n'
    head, _, rest = _RECIPE.read_text().partition("[programs]")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(head + programs + rest[rest.index("[labels]") :])

    def of_bzip2(name: str, builds: Path, corpora: Path, **how: Any) -> tuple[Module, ...]:
        found = program_modules("bzip2", builds, corpora, **how)
        return tuple(
            dataclasses.replace(one, name=f"{name}/{one.name.partition('/')[2]}") for one in found
        )

    monkeypatch.setattr(algorithms, "program_modules", of_bzip2)
    monkeypatch.setitem(algorithms.RECIPES, "ppo", {"ppo.modules": 1, "ppo.rollouts": 1})

    def study() -> str:
        return algorithms.study(
            ["ppo"],
            tmp_path / "study",
            toolchain,
            recipe=recipe,
            modules=tmp_path,
            compilations=12,
            each=8,
            largest=1000,
        )

    printed = study()
    assert "8 modules to train on, 4 to choose by, 8 to test on" in printed
    (row,) = printed.splitlines()[4:]
    name, compilations, iterations = (cell.strip() for cell in row.split("|")[1:4])
    assert name == "ppo" and 0 < int(compilations) <= 12 and int(iterations) >= 1
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "study").rglob("*")}
    assert study() == printed
    assert files == {path: path.stat().st_mtime_ns for path in (tmp_path / "study").rglob("*")}
