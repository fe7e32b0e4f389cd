# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fixtures for tests that need the compiler."""

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
    """Marks tests that use the patched tools, and lets long files begin first.

    A long file that begins last keeps one worker while the others have ended.
    """
    for item in items:
        if "toolchain" in getattr(item, "fixturenames", ()):
            item.add_marker("compiler")
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
