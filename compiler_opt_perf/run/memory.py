# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Peak memory of one command."""

import sys
from collections.abc import Sequence
from pathlib import Path

# The kernel counts the memory of whoever starts a program as the program's own, up to then. So what
# starts it must be small, which this process, with all that it has imported, is not. What Python
# changes as it starts, the locale and these signals, is not for the program.
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
# What the command left of itself is enough.
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
os.kill(os.getpid(), -code)
"""


def with_peak_memory(argv: Sequence[str | Path], output: Path) -> list[str]:
    """A command that runs `argv`, ends as that does, and writes its peak memory to `output`.

    The peak is that of resident memory in KiB, of `argv` alone or of the largest process that it
    waited for, as a decimal number. A parent of 9 MiB is the least that can be told.
    """
    small = [sys.executable, "-I", "-S", "-c", _SMALL_PARENT, str(output)]
    # Killed with the parent, as commands of `execution.command` are.
    return [*small, "setpriv", "--pdeathsig", "KILL", *map(str, argv)]
