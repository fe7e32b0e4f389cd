# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The simulator back-end: runs a program under valgrind's callgrind."""

import shlex
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from absl import logging

from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.workload import run_under
from compiler_opt_perf.run.command import run_command, signal_name
from compiler_opt_perf.run.workload import Run

_STDERR_BYTES_SHOWN = 2000

# Messages of valgrind that end a run, each with its cause and remedy.
_KNOWN_FAILURES = {
    "Unrecognised instruction": (
        "valgrind does not know one of its instructions (AVX-512?); "
        "compile it, and the libraries it uses, for x86-64-v3 at most"
    ),
    "Possibly corrupted debuginfo": (
        "valgrind cannot read the debug info of a shared library that the program loads; "
        "point LD_LIBRARY_PATH to a copy made with llvm-objcopy --strip-debug"
    ),
}


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


@dataclass(frozen=True)
class Cache:
    """One cache of the simulated processor.

    Attributes:
      size: bytes.
      ways: associativity.
      line: bytes in a line.

    Raises:
      PmuError: callgrind cannot simulate the cache. Line size and number of sets must be powers of
        two.
    """

    size: int
    ways: int
    line: int

    def __post_init__(self) -> None:
        if min(self.size, self.ways, self.line) <= 0:
            raise PmuError(f"cache {self}: size, ways and line size must be positive")
        if not _is_power_of_two(self.line) or self.line < 16:
            raise PmuError(f"cache {self}: the line size must be a power of two, at least 16 bytes")
        sets, rest = divmod(self.size, self.ways * self.line)
        if rest or not _is_power_of_two(sets):
            raise PmuError(
                f"cache {self}: size / (ways * line size) = "
                f"{self.size / (self.ways * self.line):g} sets, which must be a power of two; "
                "choose another size or number of ways"
            )

    def __str__(self) -> str:
        return f"{self.size},{self.ways},{self.line}"

    @classmethod
    def parse(cls, text: str) -> "Cache":
        """Parses "size,ways,line". Raises PmuError."""
        try:
            size, ways, line = (int(part) for part in text.split(","))
        except ValueError as error:
            raise PmuError(f"cache {text!r}: expected size,ways,line such as 32768,8,64") from error
        return cls(size, ways, line)


@dataclass(frozen=True)
class CacheGeometry:
    """The simulated caches: first level for instructions and data, last level for both.

    The default last level is one core's share of a server's last-level cache, because the other
    cores are busy too. callgrind's own detection is never used: it misreads recent processors.
    """

    i1: Cache = field(default_factory=lambda: Cache(32 * 1024, 8, 64))
    d1: Cache = field(default_factory=lambda: Cache(32 * 1024, 8, 64))
    ll: Cache = field(default_factory=lambda: Cache(2 * 1024 * 1024, 16, 64))

    def options(self) -> tuple[str, ...]:
        """callgrind's options for these caches."""
        return tuple(f"--{name}={cache}" for name, cache in self.as_dict().items())

    def as_dict(self) -> dict[str, str]:
        """The caches as in the manifest: {"I1": "32768,8,64", ...}."""
        return {"I1": str(self.i1), "D1": str(self.d1), "LL": str(self.ll)}


def options(geometry: CacheGeometry, within: str | None = None) -> tuple[str, ...]:
    """The options of valgrind that decide what it counts, without file names."""
    return (
        "--tool=callgrind",
        "--dump-instr=yes",
        "--cache-sim=yes",
        "--branch-sim=yes",
        *geometry.options(),
        "--combine-dumps=yes",
        "--trace-children=no",
        # A forked process inherits its parent's counts; a dump resets them to zero.
        "--dump-before=fork",
        "--dump-before=vfork",
        "--dump-before=_Fork",
        # By default callgrind counts a PLT entry's instructions as executions of the call.
        "--skip-plt=no",
        # A killed run would leave behind the pipes for a debugger.
        "--vgdb=no",
        *_only(within),
    )


def _only(function: str | None) -> tuple[str, ...]:
    """Options that count only while the outermost call of a function is active."""
    if function is None:
        return ()
    return ("--demangle=no", "--collect-atstart=no", f"--toggle-collect={function}")


def version() -> str:
    """The installed valgrind, as "valgrind-3.19.0".

    Raises:
      PmuError: valgrind is not installed.
    """
    if shutil.which("valgrind") is None:
        raise PmuError("valgrind: not found on PATH; install it (apt-get install valgrind)")
    return run_command(["valgrind", "--version"], timeout_s=60).stdout.strip()


def simulate(
    run: Run, directory: Path, geometry: CacheGeometry, within: str | None = None
) -> list[Path]:
    """Runs a program under callgrind; returns its dump, then the dumps of its forked processes.

    Counts of all threads are added up. A forked process is counted if it ends before the program;
    otherwise it is killed. Other programs that the program starts are not counted.

    Args:
      run: the run; its executable must have no debug info, because valgrind 3.19 fails on DWARF 5.
      directory: receives the dumps, valgrind's messages and the program's standard error.
      geometry: caches to simulate.
      within: linkage name; count only while this function is active. Caches and branch predictor
        still simulate the whole run.

    Raises:
      PmuError: valgrind is missing, or the run failed, crashed, hung or left no dump.
    """
    version()
    # Debian's `valgrind` is a script that changes LD_LIBRARY_PATH, which the program would inherit.
    valgrind = shutil.which(f"{shutil.which('valgrind')}.bin") or "valgrind"
    # callgrind opens its dump when the program ends, which may have changed its working directory.
    directory = directory.resolve()
    messages = directory / "valgrind.log"
    diagnostics = directory / "stderr"
    argv = [
        valgrind,
        *options(geometry, within),
        f"--callgrind-out-file={directory}/callgrind.out.%p",
        f"--log-file={messages}",
        *run.command,
    ]
    finished = run_under("callgrind", run, argv, diagnostics)
    dump = directory / f"callgrind.out.{finished.pid}"
    if finished.status != run.expected_status or not dump.exists():
        raise _failure(run, finished.status, messages, diagnostics)
    logging.info(
        "%s: simulated in %.1f s (%.1f s of processor time), with at most %.0f MiB of memory",
        run.name,
        finished.seconds,
        finished.processor_seconds,
        finished.peak_mib,
    )
    forked = sorted(path for path in directory.glob("callgrind.out.*") if path != dump)
    if forked:
        logging.info("%s: counted %d forked processes, too", run.name, len(forked))
    return [dump, *forked]


def _failure(run: Run, status: int, messages: Path, diagnostics: Path) -> PmuError:
    """The error that explains why the run gave no profile."""
    log = messages.read_text(errors="replace") if messages.exists() else ""
    printed = diagnostics.read_bytes()[-_STDERR_BYTES_SHOWN:].decode(errors="replace").strip()
    reasons = [remedy for message, remedy in _KNOWN_FAILURES.items() if message in log]
    if status < 0:
        what = f"ended by {signal_name(-status)} under callgrind"
    elif status != run.expected_status:
        what = f"exit status {status} under callgrind, expected {run.expected_status}"
        if not reasons:
            reasons = ["does the same command work without the profiler?"]
    else:
        what = "callgrind left no dump"
        reasons = reasons or [log.strip()[-_STDERR_BYTES_SHOWN:]]
    details = "".join(f"; {reason}" for reason in reasons)
    shown = "".join(f"\n  {line}" for line in printed.splitlines())
    command = shlex.join(run.command)
    return PmuError(f"{run.name}: {what}{details}{shown}\n  the command: {command}")
