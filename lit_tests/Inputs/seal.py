# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Completes a hand-made PMU manifest: `seal.py MANIFEST`.

Sample profiles in text form are converted: each event gets a binary profile and a flattened one.
The index is written beside the manifest. An event without a total gets 1, so that the share of a
prior is its strength. `"functions": {"file": F, "names": N}` has the table F made of the text file
N, each line of which holds the name of a function and, optionally, the checksum of its control
flow.
"""

import dataclasses
import hashlib
import json
import struct
import sys
from pathlib import Path

from compiler_opt_perf.profile.index import index_of, write_index
from compiler_opt_perf.profile.manifest import FileRecord
from compiler_opt_perf.profile.sample_profile import convert_to_binary, flatten_profile


def function_table(text: str) -> bytes:
    """The table of the functions of profiled programs, of which docs/reference/formats.md tells."""
    entries = []
    for line in text.splitlines():
        name, *checksum = line.split()
        guid = int.from_bytes(hashlib.md5(name.encode()).digest()[:8], "little")
        entries.append((guid, int(checksum[0], 0) if checksum else 0))
    entries.sort()
    columns = [guid for guid, _ in entries] + [checksum for _, checksum in entries]
    return struct.pack(f"<8sII{len(columns)}Q", b"COPFUNCS", 1, len(entries), *columns)


def convert(event: dict[str, object], folder: Path) -> None:
    """Makes the binary files of an event of its text, which it names from then on as "text"."""
    name = str(event.get("text", event["file"]))
    if name.endswith(".afdo"):
        return
    text, binary, flat = (folder / (name + suffix) for suffix in ("", ".afdo", ".flat.afdo"))
    if text.read_bytes().strip():
        convert_to_binary(text, binary)
        flatten_profile("max" if event["kind"] == "max" else "sum", text, flat)
    else:
        binary.write_bytes(b"")
        flat.write_bytes(b"")
    event |= {"text": name, "file": binary.name, "flattened": {"file": flat.name}}


def seal(path: Path) -> None:
    """Completes the manifest, and writes its index."""
    manifest = json.loads(path.read_text())
    events, folder = manifest["events"], path.parent
    for event in events:
        event.setdefault("total", 1)
        convert(event, folder)
    records = [record for e in events for record in (e, e["flattened"])]
    files = [folder / record["file"] for record in records]
    table = None
    if functions := manifest.get("functions"):
        path_of_table = folder / functions["file"]
        if names := functions.pop("names", None):
            path_of_table.write_bytes(function_table((folder / names).read_text()))
        records.append(functions)
        table = path_of_table.read_bytes()
    for record in records:
        record |= dataclasses.asdict(FileRecord.of(folder / record["file"], record["file"]))
    path.write_text(json.dumps(manifest) + "\n")
    write_index(path.read_bytes(), files, table, index_of(path))


if __name__ == "__main__":
    seal(Path(sys.argv[1]))
