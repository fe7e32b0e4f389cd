# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fixtures for tests that need the compiler."""

from collections import Counter
from pathlib import Path

import pytest

from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import BUILD, REPO_ROOT


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """The repository's root."""
    return REPO_ROOT


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    """The patched tools with upstream's mock models; the test fails when they are not built."""
    return Toolchain.load(BUILD / "toolchain" / "mock")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests that use the patched tools, and lets the files that take longest begin first.

    A long file that begins late keeps one worker while the others have ended.
    """
    seconds: Counter[Path] = Counter()
    for item in items:
        if "toolchain" in getattr(item, "fixturenames", ()):
            item.add_marker("compiler")
        for marker in item.iter_markers("long"):
            seconds[item.path] = max(seconds[item.path], *marker.args)
    items.sort(key=lambda item: -seconds[item.path])
