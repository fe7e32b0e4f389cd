# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a command on a PMU profile with a damaged file: `damage.py MANIFEST EVENT COMMAND...`.

The manifest is given the size and the checksum of each file first. Each damage keeps the size. Exit
status 1 with an error that names the checksum counts as refused, 0 as used; anything else is a
crash, which is printed.
"""

import hashlib
import json
import random
import subprocess
import sys
from pathlib import Path

_SEED = 7
_PROFILES = 60


def main() -> None:
    manifest_path, event_name, command = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    manifest = json.loads(manifest_path.read_text())
    for event in manifest["events"]:
        data = (manifest_path.parent / event["file"]).read_bytes()
        event |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        if event["name"] == event_name:
            path, sound = manifest_path.parent / event["file"], data
    manifest_path.write_text(json.dumps(manifest))
    print("sound:", subprocess.run(command, capture_output=True, check=False).returncode)

    generator = random.Random(_SEED)
    refused = used = 0
    for index in range(_PROFILES):
        damaged = bytearray(sound)
        for position in generator.sample(range(len(sound)), generator.choice([1, 2, 8])):
            damaged[position] ^= 1 << generator.randrange(8)
        path.write_bytes(damaged)
        result = subprocess.run(command, capture_output=True, timeout=60, check=False)
        if result.returncode == 0:
            used += 1
        elif result.returncode == 1 and b"differs from its sha256" in result.stderr:
            refused += 1
        else:
            print(f"profile {index} of seed {_SEED}: {result.returncode}\n{result.stderr!r}")
    crashes = _PROFILES - refused - used
    print(f"{_PROFILES} profiles: {refused} refused, {used} used, {crashes} crashes")


if __name__ == "__main__":
    main()
