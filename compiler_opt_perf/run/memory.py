# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures the peak memory of one command."""

import sys
from collections.abc import Sequence
from pathlib import Path

# The kernel counts the memory of the process that starts a program as the program's own. This
# process is large with all its imports, so that a small one starts the program. Python changes the
# locale and these signals as it starts; the program gets them back as they were.
_SMALL_PARENT = """
import os, resource, signal, sys
output, *argv = sys.argv[1:]
with open("/proc/self/environ", "rb") as stream:
    given = dict(entry.split(b"=", 1) for entry in stream.read().split(b"\\0") if b"=" in entry)
ignored = [signal.SIGPIPE, signal.SIGXFSZ]
child = os.posix_spawnp(argv[0], argv, given, setsigdef=ignored)
_, status, usage = os.wait4(child, 0)
with open(output, "w") as stream:
    stream.write(str(usage.ru_maxrss))
code = os.waitstatus_to_exitcode(status)
if code >= 0:
    sys.exit(code)
# The command has dumped its own core.
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
os.kill(os.getpid(), -code)
"""


def with_peak_memory(argv: Sequence[str | Path], output: Path) -> list[str]:
    """A command that runs `argv`, ends with its status, and writes its peak memory to `output`.

    The peak is a decimal number: resident memory in KiB of `argv`, or of the largest process that
    it waited for. The smallest measurable peak is 9 MiB, the size of the process that starts it.
    """
    small = [sys.executable, "-I", "-S", "-c", _SMALL_PARENT, str(output)]
    # Killed with its parent, as all commands are (run.command).
    return [*small, "setpriv", "--pdeathsig", "KILL", *map(str, argv)]
