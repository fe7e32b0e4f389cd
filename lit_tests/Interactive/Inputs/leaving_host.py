# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A host that reads the header and never answers: `leaving_host.py CHANNEL COMMAND...`."""

import os
import subprocess
import sys
from pathlib import Path


def main() -> None:
    channel, command = sys.argv[1], sys.argv[2:]
    outgoing, incoming = f"{channel}.out", f"{channel}.in"
    for name in (outgoing, incoming):
        Path(name).unlink(missing_ok=True)
        os.mkfifo(name)
    with subprocess.Popen(command) as compiler:
        # Opening blocks until the compiler opens the other end, in this order.
        advice = os.open(incoming, os.O_WRONLY)
        with open(outgoing, "rb") as features:
            features.readline()
            os.close(advice)
            while features.read(4096):
                pass
    sys.exit(compiler.returncode)


if __name__ == "__main__":
    main()
