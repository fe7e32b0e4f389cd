# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import itertools

import pytest

from compiler_opt_perf.pmu.memory_levels import distance

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


def test_words_that_disagree() -> None:
    assert distance("L2 or L3 hit") == "cache"
    assert distance("L1 or L2 hit") is None
    assert distance("L3 or RAM hit") is None
