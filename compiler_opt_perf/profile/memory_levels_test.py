# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import itertools

import pytest

from compiler_opt_perf.profile.memory_levels import distance

# What tools/perf/util/mem-events.c prints, from Linux 5.10 to 6.17: mem_lvl, mem_lvlnum, mem_hops.
LEVELS = {
    "L1": "l1",
    "L0": "l1",
    **dict.fromkeys(("LFB", "LFB/MAB", "L2", "L2 MHB", "L3", "L4"), "cache"),
    **dict.fromkeys(
        (
            *("Local RAM", "Remote RAM (1 hop)", "Remote RAM (2 hops)", "RAM", "PMEM", "CXL"),
            *("Remote Cache (1 hop)", "Remote Cache (2 hops)", "I/O", "Uncached"),
            "Memory-side Cache",
        ),
        "far",
    ),
}
UNTOLD = ("N/A", "Any cache", "Unknown level 9", "L9", "Some new thing", "", "HIT", "MISS", "l1")
HOPS = ("core, same node", "node, same socket", "socket, same board", "board")


@pytest.mark.parametrize("word", LEVELS)
def test_every_word_of_perf(word: str) -> None:
    assert distance(f"{word} hit") == distance(word) == LEVELS[word]
    # By mem_lvl and by mem_lvlnum.
    assert distance(f"{word} or {word} hit") == LEVELS[word]
    assert distance(f"{word} or Any cache hit") == LEVELS[word]


@pytest.mark.parametrize("word", UNTOLD)
def test_an_unknown_word_is_never_a_hit(word: str) -> None:
    for text in (word, f"{word} hit", f"{word} miss", f"Remote {word}x hit", f"L1 or {word}x hit"):
        assert distance(text) is None


def test_what_missed_is_a_miss_of_the_last_level_or_untold() -> None:
    found = {word: distance(f"{word} miss") for word in LEVELS}
    assert {word for word, where in found.items() if where is not None} == {
        *(word for word, where in LEVELS.items() if where == "far"),
        *("L3", "L4"),
    }
    assert set(found.values()) == {None, "far"}


def test_other_cores_caches_are_not_the_last_level() -> None:
    for hops, what in itertools.product(HOPS, ("Any cache", "L2", "L3", "RAM")):
        assert distance(f"Remote {hops} {what} hit") == "far"
    assert distance("Remote RAM hit") == distance("Remote L3 hit") == "far"
    assert distance("node, same socket Any cache hit") == "far"


@pytest.mark.parametrize(
    ("level", "where"),
    [
        # arch/x86/events/amd/ibs.c: before Zen 4 the last level and a neighbour's are one.
        ("L3 or Remote Cache (1 hop) hit", "cache"),
        ("L3 or Remote Cache (1 hop) or Any cache hit", "cache"),
        ("core, same node Any cache hit", "cache"),
        ("Remote core, same node Any cache hit", "far"),
        ("Remote node, same socket Any cache hit", "far"),
        ("Remote Cache (2 hops) hit", "far"),
        ("LFB or LFB hit", "cache"),
        # arch/x86/events/intel/ds.c, as perf prints it up to 6.5, and from then on.
        ("Remote Remote Cache (1 hop) or L3 hit", "far"),
        ("Remote Remote RAM (1 hop) or RAM hit", "far"),
        ("Local RAM or RAM hit", "far"),
        ("I/O or N/A hit", "far"),
        ("Uncached or N/A hit", "far"),
        ("L1 or L1 hit", "l1"),
        ("LFB/MAB hit", "cache"),
        ("Remote L3 hit", "far"),
        ("N/A hit", None),
        ("Any cache or N/A hit", None),
        ("Remote N/A hit", None),
    ],
)
def test_what_kernels_tell(level: str, where: str | None) -> None:
    assert distance(level) == where


def test_words_that_disagree() -> None:
    assert distance("L2 or L3 hit") == "cache"
    assert distance("L1 or L2 hit") is None
    assert distance("L3 or RAM hit") is None
