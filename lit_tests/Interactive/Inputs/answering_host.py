# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A host that gives one answer to all: `answering_host.py NUMBER CHANNEL COMMAND...`."""

import os
import subprocess
import sys
from pathlib import Path


def main() -> None:
    answer = int(sys.argv[1]).to_bytes(8, "little", signed=True)
    channel, command = sys.argv[2], sys.argv[3:]
    outgoing, incoming = f"{channel}.out", f"{channel}.in"
    for name in (outgoing, incoming):
        Path(name).unlink(missing_ok=True)
        os.mkfifo(name)
    with (
        subprocess.Popen(command) as compiler,
        # Opening blocks until the compiler opens the other end, in this order.
        open(incoming, "wb", buffering=0) as advice,
        open(outgoing, "rb") as features,
    ):
        # Tensors may hold newlines, so that some answers come early; all are the same.
        for line in features:
            if b'"observation"' in line:
                try:
                    advice.write(answer)
                except BrokenPipeError:
                    break
    sys.exit(compiler.returncode)


if __name__ == "__main__":
    main()
