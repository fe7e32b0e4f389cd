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
# Of another socket or cluster of cores, whatever it is: the core's own last level did not have it.
_REMOTE = re.compile(
    r"Remote (?:RAM|Cache) \(\d hops?\)"
    r"|(?:Remote )?(?:(?:core, same node|node, same socket|socket, same board|board) )?"
    r"(?P<what>.*)"
)
_UNTOLD = ("Any cache",)


def distance(level: str) -> Distance | None:
    """Where a load found its data, by the text after "LVL"; None when that does not tell.

    perf joins several words by "or", such as "L3 or L3 hit", where the processor tells in two ways.
    """
    text = level.strip()
    missed = text.endswith(" miss")
    words = re.sub(r" (hit|miss)$", "", text).split(" or ")
    found = {_of_word(word) for word in words if word not in _UNTOLD}
    if len(found) != 1:
        return None
    (one,) = found
    if missed and one != "far":
        # Of what missed, only the last level tells where it went.
        return "far" if words[0] in ("L3", "L4") else None
    return one


def _of_word(word: str) -> Distance | None:
    found = _REMOTE.fullmatch(word)
    what = found["what"] if found else None
    if what is None or what != word:
        remote_known = what is None or what in _WORDS or what in _UNTOLD
        return "far" if remote_known else None
    return _WORDS.get(word)
