# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Completes a hand-made PMU manifest: `seal.py MANIFEST`.

Each file gets its size and checksum. An event without a total gets 1, so that the share of a prior
is its strength. `"functions": {"file": F, "names": N}` has the table F made of the text file N,
each line of which holds the name of a function and, optionally, the checksum of its control flow.
"""

import dataclasses
import hashlib
import json
import struct
import sys
from pathlib import Path

from compiler_opt_perf.profile.manifest import FileRecord


def function_table(text: str) -> bytes:
    """The table of the functions of profiled programs, of which docs/formats.md tells."""
    entries = []
    for line in text.splitlines():
        name, *checksum = line.split()
        guid = int.from_bytes(hashlib.md5(name.encode()).digest()[:8], "little")
        entries.append((guid, int(checksum[0], 0) if checksum else 0))
    entries.sort()
    columns = [guid for guid, _ in entries] + [checksum for _, checksum in entries]
    return struct.pack(f"<8sII{len(columns)}Q", b"COPFUNCS", 1, len(entries), *columns)


def seal(path: Path) -> None:
    manifest = json.loads(path.read_text())
    records = []
    for event in manifest["events"]:
        event.setdefault("total", 1)
        records += [event, event.get("flattened")]
    if functions := manifest.get("functions"):
        if names := functions.pop("names", None):
            table = function_table((path.parent / names).read_text())
            (path.parent / functions["file"]).write_bytes(table)
        records.append(functions)
    records.append(manifest.get("index"))
    for record in records:
        if record:
            file = path.parent / record["file"]
            record |= dataclasses.asdict(FileRecord.of(file, record["file"]))
    path.write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    seal(Path(sys.argv[1]))
