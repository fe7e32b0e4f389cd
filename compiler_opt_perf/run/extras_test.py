# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of optional packages, as if none were installed."""

import importlib.util

import pytest

from compiler_opt_perf.run.extras import MissingExtraError, require_extra
from compiler_opt_perf.run.ray_cluster import RayExecutor


@pytest.fixture
def without_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@pytest.mark.usefixtures("without_extras")
def test_a_missing_package_names_the_command_to_type() -> None:
    with pytest.raises(MissingExtraError, match="tensorflow.*; run: .* --with=tensorflow$"):
        require_extra("tensorflow")


@pytest.mark.usefixtures("without_extras")
def test_a_cluster_without_ray_names_the_command_to_type() -> None:
    with (
        pytest.raises(MissingExtraError, match="; run: tools/bootstrap --with=ray$"),
        RayExecutor(),
    ):
        pass


def test_an_installed_package_passes() -> None:
    require_extra("numpy")
