# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints names and checksums of the functions in a file's .pseudo_probe_desc: `checksums.py FILE`.

FILE is an object file or a linked one; what the section holds is left in FILE.sums.
"""

import struct
import subprocess
import sys
from pathlib import Path

file = sys.argv[1]
section = ["--set-section-flags", ".pseudo_probe_desc=alloc", "-j", ".pseudo_probe_desc"]
subprocess.run(["llvm-objcopy", "-O", "binary", *section, file, f"{file}.sums"], check=True)
data = Path(f"{file}.sums").read_bytes()
lines = []
while data:
    _, checksum, length = struct.unpack_from("<QQB", data)
    lines.append(f"{data[17 : 17 + length].decode()} {checksum}")
    data = data[17 + length :]
print("\n".join(sorted(lines)))
