# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How long do the project's two commands take on bare Debian systems, and do they pass?

Each command runs in a system of its own, which debootstrap makes from Debian's archive. It holds
the checkout at its commit, and `ca-certificates`, `git` and `make` besides the base system.
"""

import os
import shutil
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
from absl import logging

from benchmarks.common import BenchmarkError
from benchmarks.results import Table
from compiler_opt_perf.run.command import CommandError, run_command, start_command
from compiler_opt_perf.run.files import write_text
from compiler_opt_perf.run.memo import memo
from compiler_opt_perf.toolchain.layout import REPO_ROOT

#: Names of releases by their codenames.
RELEASES = {"trixie": "Debian 13", "bookworm": "Debian 12"}
#: The targets of make.
TARGETS = ("demo", "check")

_ARCHIVE = "http://deb.debian.org/debian"
_SECURITY = "http://deb.debian.org/debian-security"
_CHECKOUT = "compiler-opt-perf"
_TIMEOUT_S = 4 * 3600.0
# Settings of this machine's network, without which nothing may be downloaded.
_NETWORK = ("http_proxy", "https_proxy", "no_proxy", "PIP_CERT", "PIP_INDEX_URL", "SSL_CERT_FILE")
# The command has namespaces of its own, so that mounts and processes end with it.
_IN_SYSTEM = """
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
mount --rbind /sys "$0/sys"
exec chroot "$0" /bin/bash -c 'cd /"$0" && exec "$@"' "$@"
"""


class Outcome(msgspec.Struct, frozen=True):
    """How a command ended.

    Attributes:
      seconds: wall time.
      passed: whether its exit status was 0.
      environment_bytes: size of build/venv.
      build_bytes: size of build, the environment included.
      system_bytes: size of all else, Debian's packages for the most part.
    """

    seconds: float
    passed: bool
    environment_bytes: int
    build_bytes: int
    system_bytes: int


def study(
    folder: Path,
    releases: Sequence[str],
    targets: Sequence[str] = TARGETS,
    share: Sequence[Path] = (),
) -> list[Table]:
    """Runs make's targets on systems of the releases.

    What has ended for the same commit is not run again. A command's output is in
    FOLDER/RELEASE-TARGET.log.

    Args:
      releases: keys of RELEASES.
      targets: some of TARGETS.
      share: files of this machine that each system gets at the same path, certificates for one.

    Raises:
      BenchmarkError: this process is not root, or debootstrap is missing.
      CommandError: a system cannot be made.
    """
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        raise BenchmarkError(
            "systems are made by debootstrap as root: apt-get install debootstrap, then run this "
            "as root"
        )
    commit = _git("rev-parse", "HEAD")
    rows = []
    for release in releases:
        for target in targets:
            inputs = {"commit": commit, "release": release, "target": target}
            path = folder / f"{release}-{target}.json"
            run = partial(_run, folder, release, target, share)
            found = memo(path, inputs, Outcome, run)
            rows.append(
                [
                    RELEASES[release],
                    f"make {target}",
                    "yes" if found.passed else "no",
                    *(found.seconds, found.environment_bytes),
                    *(found.build_bytes, found.system_bytes),
                ]
            )
    columns = {
        "system": "text",
        "command": "text",
        "passes": "text",
        "time": "seconds:0",
        "build/venv": "bytes",
        "build": "bytes",
        "system without it": "bytes",
    }
    caption = "Each command on a bare system of its own, downloads included."
    return [Table.of("commands", caption, columns, rows)]


def _run(folder: Path, release: str, target: str, share: Sequence[Path]) -> Outcome:
    """Runs a target on a new system, which is deleted afterwards."""
    system = folder / f"{release}-{target}"
    # An interrupted run leaves one.
    shutil.rmtree(system, ignore_errors=True)
    _make_system(system, release, share)
    logging.info("%s: make %s; output in %s.log", RELEASES[release], target, system)
    command = in_system(system, "make", target)
    start, passed = time.monotonic(), True
    with open(f"{system}.log", "wb") as log, start_command(command, stdout=log, stderr=log) as run:
        try:
            run.finish(_TIMEOUT_S)
        except CommandError:
            passed = False
    seconds = time.monotonic() - start
    logging.info("It %s after %.0f s", "passed" if passed else "failed", seconds)
    build = system / _CHECKOUT / "build"
    sizes = [_size(path) for path in (build / "venv", build, system)]
    shutil.rmtree(system)
    return Outcome(seconds, passed, sizes[0], sizes[1], sizes[2] - sizes[1])


def _make_system(system: Path, release: str, share: Sequence[Path]) -> None:
    logging.info("Making a bare %s in %s", RELEASES[release], system)
    run_command(
        ["debootstrap", "--variant=minbase", "--include=ca-certificates,git,make", release,
         system, _ARCHIVE],
        timeout_s=1800,
    )  # fmt: skip
    write_text(
        system / "etc/apt/sources.list",
        f"deb {_ARCHIVE} {release} main\ndeb {_SECURITY} {release}-security main\n",
    )
    for path in share:
        copy = system / path.absolute().relative_to("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    _git("clone", "--quiet", "--no-hardlinks", str(REPO_ROOT), str(system / _CHECKOUT))


def in_system(system: Path, *command: str) -> list[str]:
    """The command line that runs a command in the checkout of a system."""
    kept = [f"{name}={os.environ[name]}" for name in _NETWORK if name in os.environ]
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    shell = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-ec", _IN_SYSTEM]
    return ["env", "-i", "HOME=/root", path, *kept, *shell, str(system), _CHECKOUT, *command]


def _size(path: Path) -> int:
    """Bytes on the disk of a folder; 0 if there is none."""
    if not path.exists():
        return 0
    run = run_command(["du", "--summarize", "--block-size=1", path], timeout_s=600)
    return int(run.stdout.split()[0])


def _git(*arguments: str) -> str:
    return run_command(["git", *arguments], cwd=REPO_ROOT, timeout_s=600).stdout.strip()
