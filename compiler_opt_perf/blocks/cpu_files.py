# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds CPU files of the package, by name and for this machine."""

import json
import re
from pathlib import Path

import msgspec
from absl import logging

from compiler_opt_perf.profile.callgrind import Cache, CacheGeometry
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import read_input
from compiler_opt_perf.run.json_text import CText, decode
from compiler_opt_perf.run.llvm import stock_tool

FOLDER = Path(__file__).with_name("cpus")
HOST = "host"
_MEASURE = (
    "measure this machine with `cop cost calibrate --output=cpu.json` and give --cpu=cpu.json"
)


class CpuFileError(UserError):
    """There is no CPU file for a CPU; the message lists the files."""


class _CpuFile(msgspec.Struct, frozen=True):
    """The fields of a CPU file that are used here."""

    mcpu: CText
    last_level: str = ""


def names() -> list[str]:
    """The names of the package's CPU files; clang's -mcpu names where clang knows the CPU."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def cpu_file(cpu: str) -> Path:
    """The file that `--cpu` names: a path, a CPU of the package, or "host".

    Raises:
      CpuFileError: there is no such file.
    """
    if cpu == HOST:
        host = host_cpu()
        path = _file_of(host)
        if path is None:
            raise CpuFileError(
                f"--cpu={HOST}: this machine is a {host}, for which there is no CPU file "
                f"(there are {', '.join(names())}); {_MEASURE}"
            )
        logging.info(
            "--cpu=%s: taking %s, %s", HOST, path.stem, json.loads(path.read_text())["name"]
        )
        return path
    if cpu in names():
        return FOLDER / f"{cpu}.json"
    path = Path(cpu)
    if path.is_file():
        return path
    raise CpuFileError(
        f"--cpu={cpu}: neither a file nor a known CPU; known are {HOST}, "
        f"{', '.join(names())}; or {_MEASURE}"
    )


def llvm_name(path: Path) -> str:
    """LLVM's name of the CPU in a CPU file. Raises JsonError, OSError."""
    return decode(read_input(path), _CpuFile, path).mcpu


def caches(path: Path) -> CacheGeometry:
    """The caches to simulate for a CPU file: its last level, if it tells one, else the default's.

    Raises:
      CpuFileError: there is no such cache.
      JsonError: the file is damaged.
    """
    last_level = decode(read_input(path), _CpuFile, path).last_level
    if not last_level:
        return CacheGeometry()
    try:
        return CacheGeometry(ll=Cache.parse(last_level))
    except PmuError as error:
        raise CpuFileError(f"{path}: last_level: {error}") from error


def _file_of(cpu: str) -> Path | None:
    """The package's file for LLVM's name of a CPU: by file name, else by its field `mcpu`."""
    if cpu in names():
        return FOLDER / f"{cpu}.json"
    for path in sorted(FOLDER.glob("*.json")):
        if llvm_name(path) == cpu:
            return path
    return None


def host_cpu() -> str:
    """LLVM's name of this machine's CPU. Raises CpuFileError."""
    found = re.search(r"Host CPU: (\S+)", run_command([stock_tool("llc"), "--version"]).stdout)
    if not found:
        raise CpuFileError("llc --version does not name the host's CPU")
    return found[1]
