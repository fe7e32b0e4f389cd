# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where a sampled load found its data, in perf's words.

The words are those of tools/perf/util/mem-events.c in Linux 5.10 to 6.17. A word that is not among
them says nothing: it is neither a hit nor a miss.
"""

import re
from typing import Literal

# Nearest first: the first level, behind it, and behind the last level that the core's own chip has.
Distance = Literal["l1", "cache", "far"]

# A line that is on its way already (fill and miss buffers) was missed by another load: it counts as
# a miss of the first level only. A memory-side cache is part of the memory, behind the last level.
_WORDS: dict[str, Distance] = {
    **dict.fromkeys(("L0", "L1"), "l1"),
    **dict.fromkeys(("LFB", "LFB/MAB", "L2", "L2 MHB", "L3", "L4"), "cache"),
    **dict.fromkeys(("RAM", "Local RAM", "PMEM", "CXL", "I/O", "IO", "Uncached"), "far"),
    **dict.fromkeys(("UNC", "Memory-side Cache", "MSC"), "far"),
}
# These say nothing by themselves; they stand beside a word that does.
_NEUTRAL = ("Any cache", "N/A")
# Of another socket or cluster of cores, whatever it is: the core's own last level did not have it.
_HOPS = re.compile(r"(core, same node|node, same socket|socket, same board|board) ")
_ELSEWHERE = re.compile(r"Remote (?:RAM|Cache) \(\d hops?\)")
# Processors of AMD before Zen 4 do not tell the last level from the neighbouring cluster's.
_EITHER = {"L3", "Remote Cache (1 hop)"}


def distance(level: str) -> Distance | None:
    """Where a load found its data, by the text after "LVL"; None when that does not tell.

    perf joins several words by "or", such as "L3 or L3 hit", where the processor tells in two ways.
    """
    text = level.strip()
    missed = text.endswith(" miss")
    text = re.sub(r" (hit|miss)$", "", text)
    # "Remote" may stand before all the rest, and how far away it is before that.
    is_remote = text.startswith("Remote ")
    if is_remote and not _ELSEWHERE.match(text):
        text = text.removeprefix("Remote ")
    hops = _HOPS.match(text)
    text = text[hops.end() :] if hops else text
    words = set(text.split(" or "))
    if any(not _of_word(word) and word not in _NEUTRAL for word in words):
        return None
    told = words - set(_NEUTRAL)
    if is_remote:
        return "far" if told or "Any cache" in words else None
    if hops:
        return "cache" if hops[1] == "core, same node" else "far"
    if told == _EITHER:
        return "cache"
    found = {_of_word(word) for word in told}
    if len(found) != 1:
        return None
    (one,) = found
    if missed and one != "far":
        # Of what missed, only the last level tells where it went.
        return "far" if told <= {"L3", "L4"} else None
    return one


def _of_word(word: str) -> Distance | None:
    return "far" if _ELSEWHERE.fullmatch(word) else _WORDS.get(word)
