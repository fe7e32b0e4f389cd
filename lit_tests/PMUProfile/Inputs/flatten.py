# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gives each event of a PMU manifest a flattened file: `flatten.py MANIFEST`."""

import dataclasses
import json
import sys
from pathlib import Path

from compiler_opt_perf.pmu.manifest import FileRecord
from compiler_opt_perf.pmu.sample_profile import flatten_profile


def main() -> None:
    path = Path(sys.argv[1])
    manifest = json.loads(path.read_text())
    for event in manifest["events"]:
        output = path.parent / (event["file"] + ".flat")
        flatten_profile(event["kind"], path.parent / event["file"], output)
        event["flattened"] = dataclasses.asdict(FileRecord.of(output))
    path.write_text(json.dumps(manifest))


if __name__ == "__main__":
    main()
