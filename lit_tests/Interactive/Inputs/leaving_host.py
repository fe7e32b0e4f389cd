# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A host that reads the header and leaves: `leaving_host.py [--reader-first] CHANNEL COMMAND...`.

It closes its writing end first, so that the compiler finds no answer. With --reader-first it closes
its reading end after the first question and answers that, so that the second can't be sent.
"""

import os
import subprocess
import sys
from pathlib import Path


def main() -> None:
    reader_first = sys.argv[1] == "--reader-first"
    channel, *command = sys.argv[1 + reader_first :]
    outgoing, incoming = f"{channel}.out", f"{channel}.in"
    for name in (outgoing, incoming):
        Path(name).unlink(missing_ok=True)
        os.mkfifo(name)
    with subprocess.Popen(command) as compiler:
        # Opening blocks until the compiler opens the other end, in this order.
        advice = os.open(incoming, os.O_WRONLY)
        with open(outgoing, "rb") as features:
            features.readline()
            if reader_first:
                while b'"observation"' not in features.readline():
                    pass
                features.close()
                os.write(advice, bytes(8))
            else:
                os.close(advice)
                while features.read(4096):
                    pass
    sys.exit(compiler.returncode)


if __name__ == "__main__":
    main()
