# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Answers a compiler in interactive mode: `interactive_host.py CHANNEL COMMAND...`.

Advises 1 each time and prints the int64 features of one element, one line an observation. The
format is that of llvm/lib/Analysis/InteractiveModelRunner.cpp.
"""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path


def main() -> None:
    channel, command = sys.argv[1], sys.argv[2:]
    outgoing, incoming = f"{channel}.out", f"{channel}.in"
    for name in (outgoing, incoming):
        Path(name).unlink(missing_ok=True)
        os.mkfifo(name)
    # Opening blocks until the compiler opens the other end, in this order.
    with (
        subprocess.Popen(command) as compiler,
        open(incoming, "wb") as advice,
        open(outgoing, "rb") as features,
    ):
        names = [feature["name"] for feature in json.loads(features.readline())["features"]]
        observation = struct.Struct(f"<{len(names)}q")
        while line := features.readline():
            if "observation" not in json.loads(line):
                continue
            values = observation.unpack(features.read(observation.size))
            features.readline()
            print(*(f"{name}={value}" for name, value in zip(names, values, strict=True)))
            advice.write(struct.pack("<q", 1))
            advice.flush()
    sys.exit(compiler.returncode)


if __name__ == "__main__":
    main()
