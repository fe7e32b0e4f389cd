# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gives each event of a PMU manifest a flattened file: `flatten.py MANIFEST [--index]`.

With --index, all files become binary, and the manifest gets an index of them.
"""

import dataclasses
import json
import sys
from pathlib import Path

from compiler_opt_perf.profile.index import write_index
from compiler_opt_perf.profile.manifest import FileRecord
from compiler_opt_perf.profile.sample_profile import convert_to_binary, flatten_profile


def main() -> None:
    path = Path(sys.argv[1])
    manifest = json.loads(path.read_text())
    for event in manifest["events"]:
        output = path.parent / (event["file"] + ".flat")
        flatten_profile(event["kind"], path.parent / event["file"], output)
        event["flattened"] = dataclasses.asdict(FileRecord.of(output))
    if "--index" in sys.argv:
        files = []
        for event in manifest["events"]:
            for record in (event, event["flattened"]):
                file = path.parent / record["file"]
                binary = file.with_name(file.name + ".afdo")
                convert_to_binary(file, binary)
                record |= dataclasses.asdict(FileRecord.of(binary))
                files.append(binary)
        output = path.with_suffix(".index")
        write_index(files, output)
        manifest["index"] = dataclasses.asdict(FileRecord.of(output))
    path.write_text(json.dumps(manifest))


if __name__ == "__main__":
    main()
