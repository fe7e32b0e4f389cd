# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parses the memory level at which a sampled load found its data, as perf prints it.

Source of the words: tools/perf/util/mem-events.c in Linux 5.10 to 6.17. An unknown word counts
neither as a hit nor as a miss.
"""

import re
from typing import Literal

# Nearest first: the first-level cache, another cache of the core's own chip, anything beyond.
Distance = Literal["l1", "cache", "far"]

# A fill buffer holds a line that another load already missed: only a first-level miss. A
# memory-side cache is part of the memory, beyond the last level.
_WORDS: dict[str, Distance] = {
    **dict.fromkeys(("L0", "L1"), "l1"),
    **dict.fromkeys(("LFB", "LFB/MAB", "L2", "L2 MHB", "L3", "L4"), "cache"),
    **dict.fromkeys(("RAM", "Local RAM", "PMEM", "CXL", "I/O", "IO", "Uncached"), "far"),
    **dict.fromkeys(("UNC", "Memory-side Cache", "MSC"), "far"),
}
# Words without a level of their own.
_NEUTRAL = ("Any cache", "N/A")
# Another socket or cluster of cores: the core's own last level missed.
_HOPS = re.compile(r"(core, same node|node, same socket|socket, same board|board) ")
_ELSEWHERE = re.compile(r"Remote (?:RAM|Cache) \(\d hops?\)")
# AMD processors before Zen 4 report their own and the neighbouring cluster's last level alike.
_OWN_OR_NEIGHBOUR = {"L3", "Remote Cache (1 hop)"}


def distance(level: str) -> Distance | None:
    """Parses the text after "LVL"; None if it does not give a level.

    perf joins words by "or", as in "L3 or L3 hit", if the processor reports the level twice.
    """
    text = level.strip()
    missed = text.endswith(" miss")
    text = re.sub(r" (hit|miss)$", "", text)
    # "Remote" may precede the words, then the distance in hops.
    is_remote = text.startswith("Remote ")
    if is_remote and not _ELSEWHERE.match(text):
        text = text.removeprefix("Remote ")
    hops = _HOPS.match(text)
    text = text[hops.end() :] if hops else text
    words = set(text.split(" or "))
    if any(not _of_word(word) and word not in _NEUTRAL for word in words):
        return None
    levels = words - set(_NEUTRAL)
    if is_remote:
        return "far" if levels or "Any cache" in words else None
    if hops:
        return "cache" if hops[1] == "core, same node" else "far"
    if levels == _OWN_OR_NEIGHBOUR:
        return "cache"
    distances = {_of_word(word) for word in levels}
    if len(distances) != 1:
        return None
    (nearest,) = distances
    if missed and nearest != "far":
        # Only a miss of the last level says where the load went.
        return "far" if levels <= {"L3", "L4"} else None
    return nearest


def _of_word(word: str) -> Distance | None:
    return "far" if _ELSEWHERE.fullmatch(word) else _WORDS.get(word)
