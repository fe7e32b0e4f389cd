# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a command on damaged copies of a model: `damage.py MODEL SCRATCH -- COMMAND...`.

The path of each copy is appended to the last argument of the command. Exit status 1 with an error
message counts as refused, 0 as used; anything else is a crash, which is printed.
"""

import random
import shutil
import subprocess
import sys
from pathlib import Path

_SEED = 19
_MODELS = 100


def damage(model: bytes, generator: random.Random) -> bytes:
    """The model cut off at a random place, or with a few random bytes replaced."""
    if generator.random() < 0.2:
        return model[: generator.randrange(len(model))]
    damaged = bytearray(model)
    for _ in range(generator.choice([1, 1, 2, 8])):
        position = generator.randrange(len(damaged))
        damaged[position] = generator.choice(
            [0, 255, damaged[position] ^ 1 << generator.randrange(8)]
        )
    return bytes(damaged)


def main() -> None:
    source, scratch, command = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[4:]
    model = (source / "model.tflite").read_bytes()
    scratch.mkdir(parents=True, exist_ok=True)
    shutil.copy(source / "output_spec.json", scratch)
    generator = random.Random(_SEED)
    refused = used = 0
    for index in range(_MODELS):
        (scratch / "model.tflite").write_bytes(damage(model, generator))
        argv = [*command[:-1], command[-1] + str(scratch)]
        result = subprocess.run(argv, capture_output=True, timeout=60, check=False)
        if result.returncode == 0:
            used += 1
        elif result.returncode == 1 and b"error: " in result.stderr:
            refused += 1
        else:
            print(f"model {index} of seed {_SEED}: {result.returncode}\n{result.stderr!r}")
    crashes = _MODELS - refused - used
    print(f"{_MODELS} models: {refused} refused, {used} used, {crashes} crashes")


if __name__ == "__main__":
    main()
