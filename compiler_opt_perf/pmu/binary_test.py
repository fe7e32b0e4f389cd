# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.execution.llvm import stock_tool
from compiler_opt_perf.pmu.binary import build_id, hide_debug_info, require_debug_info
from compiler_opt_perf.pmu.errors import PmuError


def test_build_id_is_the_one_readelf_shows(workload: Path) -> None:
    notes = run_command([stock_tool("llvm-readelf"), "--notes", workload]).stdout
    assert f"Build ID: {build_id(workload)}" in notes
    assert re.fullmatch("[0-9a-f]{40}", build_id(workload))


def test_build_id_missing(build: Callable[..., Path]) -> None:
    with pytest.raises(PmuError, match=r"has no build-id.*-Wl,--build-id"):
        build_id(build("-Wl,--build-id=none"))


def test_build_id_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/sh\n")
    with pytest.raises(PmuError, match=r"run\.sh: not an ELF file"):
        build_id(script)


def test_build_id_of_a_truncated_binary(workload: Path, tmp_path: Path) -> None:
    half = tmp_path / "half"
    half.write_bytes(workload.read_bytes()[:3000])
    with pytest.raises(PmuError, match="half: not an ELF file"):
        build_id(half)


def test_build_id_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(PmuError, match="nothing: cannot be read: No such file"):
        build_id(tmp_path / "nothing")


def test_hidden_debug_info_changes_section_names_only(workload: Path, tmp_path: Path) -> None:
    require_debug_info(workload)
    copy = tmp_path / "copy"
    hide_debug_info(workload, copy)
    with pytest.raises(PmuError, match=r"no debug info.*-fdebug-info-for-profiling"):
        require_debug_info(copy)
    before, after = workload.read_bytes(), copy.read_bytes()
    assert len(before) == len(after)
    changes = {(a, b) for a, b in zip(before, after, strict=True) if a != b}
    assert changes == {(ord("."), ord("_"))}
    assert before.count(b"\0.debug_") == after.count(b"\0_debug_") > 0
    assert build_id(copy) == build_id(workload)
    run_command([copy, "threads"], timeout_s=10)
