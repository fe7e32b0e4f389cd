# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a command on a file damaged in many ways: `damage.py FILE [--seal=MANIFEST] COMMAND...`.

With --seal, the index of the PMU manifest is made of each damaged file, so that what reads the
index has to notice. Exit status 1 with an error message counts as refused, 0 as used; anything else
is a crash, which is printed. The file is sound again at the end.
"""

import random
import subprocess
import sys
from pathlib import Path

from seal import seal

from compiler_opt_perf.profile.errors import PmuError

_SEED = 19
_DAMAGES = 80


def damage(content: bytes, generator: random.Random) -> bytes:
    """The content cut off at a random place, or with a few random bytes changed."""
    if generator.random() < 0.2:
        return content[: generator.randrange(len(content))]
    damaged = bytearray(content)
    for position in generator.sample(range(len(content)), generator.choice([1, 2, 8])):
        flipped = content[position] ^ 1 << generator.randrange(8)
        damaged[position] = generator.choice(
            [b for b in (0, 255, flipped) if b != content[position]]
        )
    return bytes(damaged)


def main() -> None:
    path, command = Path(sys.argv[1]), sys.argv[2:]
    manifest = None
    if command[0].startswith("--seal="):
        manifest = Path(command.pop(0).removeprefix("--seal="))

    def outcome(content: bytes) -> str:
        path.write_bytes(content)
        if manifest is not None:
            try:
                seal(manifest)
            except PmuError:
                return "refused"
        result = subprocess.run(command, capture_output=True, timeout=60, check=False)
        if result.returncode == 0:
            return "used"
        if result.returncode == 1 and b"error: " in result.stderr:
            return "refused"
        return f"{result.returncode}\n{result.stderr!r}"

    sound = path.read_bytes()
    print("sound:", outcome(sound))
    generator = random.Random(_SEED)
    counts = {"refused": 0, "used": 0, "crashes": 0}
    for index in range(_DAMAGES):
        found = outcome(damage(sound, generator))
        if found not in counts:
            print(f"damage {index} of seed {_SEED}: {found}")
            found = "crashes"
        counts[found] += 1
    outcome(sound)
    print(f"{_DAMAGES} damaged:", ", ".join(f"{count} {name}" for name, count in counts.items()))


if __name__ == "__main__":
    main()
