# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compiler_opt_perf.binary.symbolize import CallSite, Line, Location
from compiler_opt_perf.profile import sample_profile
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.events import Event
from compiler_opt_perf.profile.sample_profile import (
    SampleProfile,
    convert_to_binary,
    convert_to_text,
    flatten_profile,
    merge_profiles,
)
from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.llvm import stock_tool

EXECUTIONS = Event("executions", "max", "executions", scaled_by_duplication=True)
LOADS = Event("loads", "sum", "loads")
MISSES = Event("misses", "sum", "misses")

Show = Callable[[Path], dict[str, Any]]


def location(
    function: str, line: int, discriminator: int = 0, *sites: CallSite, copies: int = 1
) -> Location:
    return Location(function, sites, Line(line, discriminator), copies)


@pytest.fixture
def small() -> SampleProfile:
    """Two instructions of one line, an unrolled one, and an inline stack of three."""
    profile = SampleProfile((EXECUTIONS, LOADS, MISSES))
    profile.add(location("f", 3), [10, 10, 0])
    profile.add(location("f", 3), [7, 7, 0])
    profile.add(location("f", 4, 2, copies=8), [5, 5, 0])
    stack = CallSite(Line(5, 1), "g"), CallSite(Line(1, 0), "h")
    profile.add(location("f", 2, 0, *stack), [100, 40, 0])
    profile.add(location("f", 6, 0, *stack[:1]), [3, 0, 0])
    profile.add_call(location("f", 3), "puts", 4)
    profile.add_call(location("f", 3), "a::b", 6)
    profile.add_call(None, "f", 2)
    return profile


def text(profile: SampleProfile, event: Event, path: Path) -> str:
    profile.write_text(event, path)
    return path.read_text()


def test_executions_take_the_maximum_times_copies(small: SampleProfile, tmp_path: Path) -> None:
    assert text(small, EXECUTIONS, tmp_path / "e") == (
        "f:153:2\n 3: 10 a::b:6 puts:4\n 4.2: 40\n 5.1: g:103\n  6: 3\n  1: h:100\n   2: 100\n"
    )


def test_sums_add_up_and_leave_out_zeros(small: SampleProfile, tmp_path: Path) -> None:
    assert text(small, LOADS, tmp_path / "l") == (
        "f:62:0\n 3: 17\n 4.2: 5\n 5.1: g:40\n  1: h:40\n   2: 40\n"
    )
    assert small.located == [125, 62, 0]


def test_copies_in_different_blocks_are_added_up(tmp_path: Path) -> None:
    profile = SampleProfile((EXECUTIONS, LOADS))
    line = location("f", 3, 1)
    for copy, counts in ((0, [1, 1]), (0x100, [10, 10]), (0x100, [8, 8]), (0x4200, [5, 5])):
        profile.add(line._replace(copy=copy), counts)
    profile.add(location("f", 4), [2, 2])
    profile.add_up_copies()
    assert text(profile, EXECUTIONS, tmp_path / "e") == "f:18:0\n 3.1: 16\n 4: 2\n"
    assert text(profile, LOADS, tmp_path / "l") == "f:26:0\n 3.1: 24\n 4: 2\n"


@pytest.mark.compiler
def test_event_that_never_occurred_is_a_profile(
    small: SampleProfile, tmp_path: Path, show: Show
) -> None:
    assert text(small, MISSES, tmp_path / "m") == "f:0:0\n"
    assert show(tmp_path / "m")["f"]["total"] == 0
    convert_to_binary(tmp_path / "m", tmp_path / "m.bin")
    assert show(tmp_path / "m.bin")["f"]["total"] == 0


def test_flattened_by_source_function(small: SampleProfile, tmp_path: Path) -> None:
    flat = small.flattened()
    # The line of the inlined call was executed as often as the callee's first line, which is itself
    # an inlined call; f was called twice, its copies in others are not there.
    assert text(flat, EXECUTIONS, tmp_path / "e") == (
        "f:150:2\n 3: 10\n 4.2: 40\n 5.1: 100\ng:103:100\n 1: 100\n 6: 3\nh:100:100\n 2: 100\n"
    )
    assert text(flat, LOADS, tmp_path / "l") == "f:22:0\n 3: 17\n 4.2: 5\nh:40:0\n 2: 40\n"
    assert text(flat, MISSES, tmp_path / "m") == "f:0:0\ng:0:0\nh:0:0\n"


@pytest.mark.compiler
def test_flattened_copies_add_up(tmp_path: Path) -> None:
    profile = SampleProfile((EXECUTIONS,))
    site = CallSite(Line(2, 0), "g")
    for function, count in {"f": 5, "k": 7}.items():
        profile.add(location(function, 1, 0, site), [count])
    profile.add(location("g", 1), [100])
    profile.add_call(None, "g", 90)
    # A line that calls and computes, too, was executed as often as the busier of the two.
    profile.add(location("k", 2), [9])
    profile.write_text(EXECUTIONS, tmp_path / "text")
    flatten_profile("max", tmp_path / "text", tmp_path / "flat")
    convert_to_text(tmp_path / "flat", tmp_path / "text")
    assert (tmp_path / "text").read_text() == ("g:112:102\n 1: 112\nk:9:7\n 2: 9\nf:5:5\n 2: 5\n")


def test_order_of_instructions_does_not_matter(tmp_path: Path) -> None:
    generator = random.Random(7)
    samples = [
        (location(f"f{i % 3}", i % 5, i % 2, CallSite(Line(i % 4, 0), f"g{i % 2}")), [i, i, 1])
        for i in range(60)
    ]
    texts = set()
    for _ in range(3):
        generator.shuffle(samples)
        profile = SampleProfile((EXECUTIONS, LOADS, MISSES))
        for place, counts in samples:
            profile.add(place, counts)
        texts.add(text(profile, LOADS, tmp_path / "l"))
    assert len(texts) == 1


@pytest.mark.compiler
@pytest.mark.parametrize(
    "name",
    [
        "main",
        "operator()",
        "ns::f<int, char *>(long)",
        "f()::'lambda'(int)::operator()(int) const",
        "-[Table row:column:]",
        "_ZN4llvm5errsEv",
        "größe",
        "a name:with 3",
        "!Attributes: 1",
    ],
)
def test_odd_names_survive_everywhere(name: str, tmp_path: Path, show: Show) -> None:
    profile = SampleProfile((EXECUTIONS,))
    profile.add(location(name, 1), [5])
    profile.add(location("f", 2, 3, CallSite(Line(1, 0), name)), [6])
    profile.add_call(location(name, 1), name, 7)
    profile.add_call(location(name, 1), "other", 8)
    profile.write_text(EXECUTIONS, tmp_path / "text")
    convert_to_binary(tmp_path / "text", tmp_path / "binary")
    for file in ("text", "binary"):
        shown = show(tmp_path / file)
        assert (shown[name]["total"], shown[name]["head"]) == (5, 7)
        calls = {call["function"]: call["samples"] for call in shown[name]["body"][0]["calls"]}
        assert calls == {name: 7, "other": 8}
        assert shown["f"]["callsites"][0]["samples"][0]["name"] == name


@pytest.mark.compiler
def test_large_counts_and_offsets(tmp_path: Path, show: Show) -> None:
    profile = SampleProfile((LOADS,))
    profile.add(location("f", 0xFFFF, 4095), [2**63])
    profile.write_text(LOADS, tmp_path / "l")
    assert show(tmp_path / "l")["f"]["body"] == [
        {"line": 0xFFFF, "discriminator": 4095, "samples": 2**63}
    ]


@pytest.mark.compiler
def test_both_formats_hold_the_same(small: SampleProfile, tmp_path: Path, show: Show) -> None:
    for event in small.events:
        small.write_text(event, tmp_path / "text")
        convert_to_binary(tmp_path / "text", tmp_path / "binary")
        assert show(tmp_path / "text") == show(tmp_path / "binary")


@pytest.mark.compiler
def test_merging_adds(small: SampleProfile, tmp_path: Path, show: Show) -> None:
    small.write_text(LOADS, tmp_path / "l")
    merge = [str(stock_tool("llvm-profdata")), "merge", "--sample", "--text"]
    run_command([*merge, tmp_path / "l", tmp_path / "l", "-o", tmp_path / "2"])
    assert show(tmp_path / "2")["f"]["total"] == 2 * 62


@pytest.mark.compiler
def test_what_is_written_is_read(small: SampleProfile, tmp_path: Path) -> None:
    again = SampleProfile(small.events)
    for event in small.events:
        small.write_text(event, tmp_path / "text")
        convert_to_binary(tmp_path / "text", tmp_path / "binary")
        convert_to_text(tmp_path / "binary", tmp_path / "back")
        again.read_text(event, tmp_path / "back")
    assert again.entries == Counter({"f": 2})
    for event in small.events:
        assert text(again, event, tmp_path / "a") == text(small, event, tmp_path / "b")


@pytest.mark.parametrize("name", ["operator()", "a name:with 3", "-[Table row:column:]", "größe"])
def test_odd_names_are_read(name: str, tmp_path: Path) -> None:
    profile = SampleProfile((LOADS,))
    profile.add(location(name, 1), [5])
    profile.add(location("f", 2, 3, CallSite(Line(1, 0), name)), [6])
    written = text(profile, LOADS, tmp_path / "text")
    again = SampleProfile((LOADS,))
    again.read_text(LOADS, tmp_path / "text")
    assert text(again, LOADS, tmp_path / "again") == written


@pytest.mark.parametrize("name", ["g", "operator()", "a name:with 3", "-[Table row:column:]"])
def test_call_targets_are_read(name: str, tmp_path: Path) -> None:
    profile = SampleProfile((EXECUTIONS,))
    profile.add(location("f", 1), [12])
    profile.add_call(location("f", 1), name, 7)
    profile.add_call(location("f", 1), "h", 5)
    text(profile, EXECUTIONS, tmp_path / "text")
    again = SampleProfile((EXECUTIONS,))
    again.read_text(EXECUTIONS, tmp_path / "text")
    assert again.functions["f"].targets == {Line(1, 0): {name: 7, "h": 5}}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("f:5\n", 1),
        ("f:5:0\n 1: x\n", 2),
        ("f:5:0\n 1\n", 2),
        ("f:5:0\n x: 5\n", 2),
        ("f:5:0\n   1: 5\n", 2),
        (" 1: 5\n", 1),
        ("f:5:0\n 1.y: 5\n", 2),
        ("f:5:0\n 1: 5z\n", 2),
    ],
)
def test_damaged_text(content: str, line: int, tmp_path: Path) -> None:
    (tmp_path / "text").write_text(content)
    with pytest.raises(PmuError, match=rf"text:{line}: not a line of a sample profile"):
        SampleProfile((LOADS,)).read_text(LOADS, tmp_path / "text")


def test_missing_text(tmp_path: Path) -> None:
    with pytest.raises(PmuError, match="text: cannot be read: No such file"):
        SampleProfile((LOADS,)).read_text(LOADS, tmp_path / "text")


@pytest.mark.compiler
def test_conversion_of_something_else_fails(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("f:x:y\n")
    with pytest.raises(CommandError, match="llvm-profdata"):
        convert_to_binary(tmp_path / "text", tmp_path / "binary")


def test_a_profile_that_llvm_profdata_crashes_on_is_damaged(
    small: SampleProfile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stack is nothing to a user."""
    crashing = tmp_path / "llvm-profdata"
    crashing.write_text("#!/bin/sh\necho 'Stack dump: #0 0x1' >&2\nkill -SEGV $$\n")
    crashing.chmod(0o755)
    monkeypatch.setattr(sample_profile, "stock_tool", lambda _: crashing)
    for use in (convert_to_text, lambda one, out: merge_profiles([one], out)):
        with pytest.raises(
            PmuError, match=r"a\.afdo: is damaged: llvm-profdata: ended by SIGS"
        ) as e:
            use(tmp_path / "a.afdo", tmp_path / "out")
        assert "Stack dump" not in str(e.value) and str(e.value).endswith(
            "collect the profile again"
        )


@pytest.mark.compiler
def test_a_full_disk_is_told_as_one(tmp_path: Path) -> None:
    """llvm-profdata says "IO failure on output stream", and names no file."""
    profile = tmp_path / "a.txt"
    profile.write_text("".join(f"function{n}:{n}:1\n 1: {n}\n" for n in range(1, 2000)))
    # So small files stand for a full disk.
    code = f"""
import resource
from pathlib import Path
from compiler_opt_perf.run.files import FileWriteError
from compiler_opt_perf.profile.sample_profile import merge_profiles

resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    merge_profiles([Path({str(profile)!r})], Path({str(tmp_path / "out")!r}))
except FileWriteError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{tmp_path}: cannot be written: File too large\n"
