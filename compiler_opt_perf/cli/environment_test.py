# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program that we run is in the place of one that its user runs: environment, signals, limits."""

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.toolchain.layout import REPO_ROOT

pytestmark = pytest.mark.compiler

# Tells all that a program can have from who started it.
_PROGRAM = r"""
#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv) {
  FILE *out = fopen(argv[1], "w");
  int others = 0;
  for (int file = 3; file < 1000; ++file)
    others += file != fileno(out) && fcntl(file, F_GETFD) >= 0;
  for (char **one = environ; *one; ++one)
    fprintf(out, "variable %s\n", *one);
  sigset_t blocked;
  sigprocmask(SIG_BLOCK, NULL, &blocked);
  for (int number = 1; number <= 64; ++number) {
    struct sigaction action;
    if (number == 32 || number == 33 || sigaction(number, NULL, &action))
      continue;
    fprintf(out, "signal %d=%s\n", number, action.sa_handler == SIG_IGN ? "ignored" : "default");
    fprintf(out, "blocked %d=%d\n", number, sigismember(&blocked, number));
  }
  fprintf(out, "locale =%s, %s\n", setlocale(LC_ALL, ""), nl_langinfo(CODESET));
  for (int kind = 0; kind < RLIM_NLIMITS; ++kind) {
    struct rlimit limit;
    getrlimit(kind, &limit);
    fprintf(out, "limit %d=%lx, %lx\n", kind, (long)limit.rlim_cur, (long)limit.rlim_max);
  }
  char folder[4096];
  fprintf(out, "priority =%d\n", getpriority(PRIO_PROCESS, 0));
  fprintf(out, "mask =%o\n", umask(0));
  fprintf(out, "folder =%s\n", getcwd(folder, sizeof folder));
  fprintf(out, "name =%s\n", strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0]);
  fprintf(out, "files =%d\n", others);
  return fclose(out);
}
"""

# Runs what follows its first word, in a place that is like no other.
_SHELL = """
trap '' USR1
umask 027
ulimit -s 6000
exec nice -n 3 "$@"
"""

_PERF = """
from pathlib import Path
from compiler_opt_perf.run.workload import Run
from compiler_opt_perf.profile.perf_record import RecordingPlan, record
recipe = RecordingPlan("generic", ("cpu-clock/period=1000000/u",), (), ())
record(recipe, Run(Path("program"), ["told"]), Path())
"""
_COMMAND = """
from compiler_opt_perf.run.command import run_command
run_command(["./program", "told"])
"""
_WORKER = """
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.pool import Pool
if __name__ == "__main__":
    with Pool(1) as pool:
        for outcome in pool.map(run_command, [["./program", "told"]]):
            outcome.get()
"""
_MEMORY = """
from pathlib import Path
from compiler_opt_perf.run.memory import with_peak_memory
from compiler_opt_perf.run.command import run_command
run_command(with_peak_memory(["./program", "told"], Path("peak")))
"""
_TIMED = """
from compiler_opt_perf.run.timing import processor_seconds
processor_seconds(["./program", "told"])
"""

_COP = ("-m", "compiler_opt_perf.cli.main")
_FILES = "files "
# What starts a program, and what it changes all the same: a simulator needs things of its own.
_WAYS: dict[str, tuple[Sequence[str], set[str]]] = {
    "callgrind": (
        (*_COP, "profile", "collect", "--binary=program", "--output=p.pmu.json", "--", "told"),
        # Its own signal, and files, of which the program can open fewer.
        {"variable LD_PRELOAD", "signal 64", "limit 7", _FILES},
    ),
    "trace": (
        (*_COP, "trace", "record", "--binary=program", "--output=p.bbtrace", "--", "told"),
        {_FILES},
    ),
    "perf": (
        ("perf.py",),
        {
            *("variable PATH", "variable PREFIX", "variable PERF_BUILDID_DIR"),
            *("variable DEBUGINFOD_URLS", "signal 12", "blocked 28", _FILES),
        },
    ),
    "command": (("command.py",), set()),
    # Ctrl-C is for its owner, and temporary files are in a folder of its own.
    "worker": (("worker.py",), {"blocked 2", "variable TMPDIR"}),
    "memory": (("memory.py",), set()),
    "timed": (("timed.py",), set()),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, and the scripts that run it."""
    folder = tmp_path_factory.mktemp("environment")
    (folder / "program.c").write_text(_PROGRAM)
    flags = [*PROFILING_FLAGS.split(), "-fbasic-block-address-map", "-Wl,--build-id"]
    clang = [str(stock_tool("clang")), "-O1", "-fuse-ld=lld", *flags]
    run_command([*clang, folder / "program.c", "-o", folder / "program"])
    scripts = {
        "perf": _PERF,
        "command": _COMMAND,
        "worker": _WORKER,
        "memory": _MEMORY,
        "timed": _TIMED,
    }
    for name, text in scripts.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def _told(argv: Sequence[str], folder: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """What the program tells when `argv` runs it, in an environment of `variables`."""
    (folder / "told").unlink(missing_ok=True)
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPO_ROOT), **variables}
    shell = ["/bin/sh", "-c", _SHELL, "sh", *argv]
    done = subprocess.run(
        shell,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        # Whoever runs the tests may have it ignored, as a shell has for jobs in the background.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert done.returncode == 0, done.stderr
    lines = (folder / "told").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.parametrize("variables", [{}, {"LC_CTYPE": "POSIX", "LANG": "C.UTF-8"}], ids=str)
@pytest.mark.parametrize("way", _WAYS)
def test_a_program_is_run_as_by_its_user(way: str, variables: dict[str, str], folder: Path) -> None:
    arguments, own = _WAYS[way]
    by_shell = _told(["./program", "told"], folder, variables)
    by_us = _told([sys.executable, *arguments], folder, variables)
    assert by_shell["signal 10"] == "ignored" and by_shell["name "] == "program"
    differing = {
        name
        for name in by_shell.keys() | by_us.keys()
        if by_shell.get(name) != by_us.get(name) and name not in own
    }
    assert not {name: (by_shell.get(name), by_us.get(name)) for name in differing}
