# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gives a hand-made PMU manifest the size and the checksum of each file: `seal.py MANIFEST`."""

import dataclasses
import json
import sys
from pathlib import Path

from compiler_opt_perf.pmu.manifest import FileRecord


def seal(path: Path) -> None:
    manifest = json.loads(path.read_text())
    for event in manifest["events"]:
        for record in (event, event.get("flattened")):
            if record:
                file = path.parent / record["file"]
                record |= dataclasses.asdict(FileRecord.of(file, record["file"]))
    path.write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    seal(Path(sys.argv[1]))
