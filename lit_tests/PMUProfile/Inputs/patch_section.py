# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Overwrites part of an extensible binary sample profile, on standard output.

`patch_section.py FILE TYPE OFFSET HEX`: bytes of the content of the first section of a type.
"""

import struct
import sys
from pathlib import Path


def main() -> None:
    path, wanted, place, data = sys.argv[1:]
    content = bytearray(Path(path).read_bytes())
    # The magic and the version are LEB128 numbers; a table of sections follows.
    position = 0
    for _ in range(2):
        while content[position] & 0x80:
            position += 1
        position += 1
    (number,) = struct.unpack_from("<Q", content, position)
    for index in range(number):
        entry = position + 8 + 32 * index
        kind, _, offset, _ = struct.unpack_from("<4Q", content, entry)
        if kind != int(wanted):
            continue
        patch = bytes.fromhex(data)
        start = offset + int(place)
        content[start : start + len(patch)] = patch
        break
    sys.stdout.buffer.write(content)


if __name__ == "__main__":
    main()
