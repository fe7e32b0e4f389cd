# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.programs import forty


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Makes a source package of one C file, in the place of Debian's, and returns its tree."""
    trees = tmp_path / "sources"

    def make(package: str, work: str) -> Path:
        tree = trees / package
        (tree / "debian").mkdir(parents=True)
        (tree / "debian" / "changelog").write_text(f"{package} (1-2) unstable; urgency=low\n")
        (tree / "work.c").write_text(work)
        return tree

    monkeypatch.setattr(forty, "debian_source", lambda package: trees / package)
    return make
