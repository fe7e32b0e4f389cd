# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a command on a PMU profile with a damaged file: `damage.py MANIFEST EVENT COMMAND...`.

Each damage keeps the size. The command is run with the file's old checksum in the manifest, and
with a new one, so that what reads the file has to notice. Exit status 1 with an error of the
compiler counts as refused, 0 as used; anything else is a crash, which is printed.
"""

import dataclasses
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from compiler_opt_perf.pmu.manifest import FileRecord

_SEED = 7
_PROFILES = 60


def main() -> None:
    manifest_path, event_name, command = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    manifest: dict[str, Any] = json.loads(manifest_path.read_text())
    (event,) = [event for event in manifest["events"] if event["name"] == event_name]
    path = manifest_path.parent / event["file"]

    def seal() -> None:
        event.update(dataclasses.asdict(FileRecord.of(path)))
        manifest_path.write_text(json.dumps(manifest))

    seal()
    sound = path.read_bytes()
    print("sound:", subprocess.run(command, capture_output=True, check=False).returncode)
    for checksum in ("old", "new"):
        generator = random.Random(_SEED)
        refused = used = 0
        for index in range(_PROFILES):
            damaged = bytearray(sound)
            for position in generator.sample(range(len(sound)), generator.choice([1, 2, 8])):
                damaged[position] ^= 1 << generator.randrange(8)
            path.write_bytes(damaged)
            if checksum == "new":
                seal()
            result = subprocess.run(command, capture_output=True, timeout=60, check=False)
            if result.returncode == 0:
                used += 1
            elif result.returncode == 1 and b"error: " in result.stderr:
                refused += 1
            else:
                print(f"profile {index} of seed {_SEED}: {result.returncode}\n{result.stderr!r}")
        crashes = _PROFILES - refused - used
        print(f"{checksum} checksum: {refused} refused, {used} used, {crashes} crashes")


if __name__ == "__main__":
    main()
