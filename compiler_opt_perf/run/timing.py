# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures runs of programs: processor time, or instructions."""

import resource
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from compiler_opt_perf.run.command import CommandError, run_command, start_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.qemu import qemu_words

_PLUGIN = Path(__file__).with_name("instructions.c")
_COUNTED = "instructions:u"
# Under QEMU, the limit of time is so many times as long.
_QEMU_PATIENCE = 30


def processor_seconds(
    argv: Sequence[str | Path], cpu: int | None = None, env: Mapping[str, str] | None = None
) -> float:
    """Runs a program, its output discarded; returns its user and system time.

    Args:
      cpu: the processor that it is bound to; None for any.
      env: variables added to this process's environment.

    Raises:
      CommandError: it cannot be started, or ended with another status than 0.
    """
    bound = [] if cpu is None else ["taskset", "--cpu-list", str(cpu)]
    null = subprocess.DEVNULL
    with start_command([*bound, *argv], env=env, stdout=null, stderr=null) as command:
        return command.finish().processor_seconds


def seconds_so_far(*, own: bool = True) -> float:
    """User and system time so far of the processes that this process has waited for.

    Args:
      own: whether to add this process's own time.
    """
    whose = [resource.RUSAGE_CHILDREN, *[resource.RUSAGE_SELF] * own]
    usages = map(resource.getrusage, whose)
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@dataclass(frozen=True)
class Meter:
    """A way to measure a command; it can be sent to another process.

    Attributes:
      how: "perf" and "qemu" count instructions, "time" takes user and system time.
      plugin: for "qemu", the plugin that `find_meter` built.
    """

    how: Literal["perf", "qemu", "time"]
    plugin: Path | None = None

    @property
    def counts(self) -> bool:
        """Whether it counts instructions, which other load of the machine does not change."""
        return self.how != "time"

    def __str__(self) -> str:
        tools = {
            "perf": "by the processor (perf stat)",
            "qemu": "by QEMU's user mode (runs differ by less than 0.001%)",
        }
        return f"instructions, counted {tools[self.how]}" if self.counts else "processor time"

    def measure(self, argv: Sequence[str | Path], timeout_s: float | None = None) -> float:
        """Runs a command; returns the instructions, or the seconds, that it took.

        Raises:
          CommandError: it failed, or took longer than `timeout_s` (wall clock; under QEMU, than 30
            times that).
        """
        if not self.counts:
            return run_command(argv, timeout_s=timeout_s).processor_seconds
        with tempfile.TemporaryDirectory(prefix="meter-") as folder:
            output = Path(folder) / "count"
            counter = self.counter(output)
            if self.how == "qemu":
                timeout_s = None if timeout_s is None else _QEMU_PATIENCE * timeout_s
            run_command([*counter, *argv], timeout_s=timeout_s)
            count = counted(output)
            if count is None:
                raise CommandError(
                    "failed", f"{counter[0]}: counted nothing", shlex.join(map(str, argv))
                )
            return float(count)

    def counter(self, output: Path) -> list[str]:
        """The words before a command that count its instructions; `counted` reads the output."""
        if self.how == "qemu":
            return [*qemu_words(), "-plugin", f"{self.plugin},output={output}"]
        return ["perf", "stat", "-x,", f"-e{_COUNTED}", f"-o{output}", "--"]


def find_meter(kind: str, folder: Path) -> Meter:
    """A meter that works on this machine.

    Args:
      kind: "instructions", "processor-time", or "auto": instructions where they can be counted, by
        the processor or by QEMU (15 to 30 times as slow as the command itself), else time.
      folder: where QEMU's plugin is built.

    Raises:
      CommandError: QEMU's plugin cannot be built.
    """
    if kind == "processor-time":
        return Meter("time")
    if _processor_counts(folder):
        return Meter("perf")
    if kind == "auto" and shutil.which(qemu_words()[0]) is None:
        return Meter("time")
    plugin = folder.absolute() / "instructions.so"
    run_command([stock_tool("clang"), "-O2", "-fPIC", "-shared", _PLUGIN, "-o", plugin])
    return Meter("qemu", plugin)


def _processor_counts(folder: Path) -> bool:
    output = folder / "perf-stat"
    try:
        run_command(["perf", "stat", "-x,", f"-e{_COUNTED}", f"-o{output}", "--", "true"])
        return counted(output) is not None
    except (CommandError, OSError):
        return False


def counted(output: Path) -> int | None:
    """The number in the output of `Meter.counter`; None if nothing was counted."""
    text = output.read_text()
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    number = next(lines, "").partition(",")[0]
    return int(number) if number.isdigit() else None
