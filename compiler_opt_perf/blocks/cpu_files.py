# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The CPU files that come with the package, by name and for this machine."""

import json
import re
from pathlib import Path

import msgspec
from absl import logging

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
    """A CPU that there is no file of; the message lists those that there are."""


class _CpuFile(msgspec.Struct, frozen=True):
    """What Python needs of a CPU file."""

    mcpu: CText


def names() -> list[str]:
    """The names of the package's files, as clang's -mcpu calls the CPUs where it knows them."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def cpu_file(cpu: str) -> Path:
    """What `--cpu` names: a file, one of the package by its name, or the one of this machine.

    Raises:
      CpuFileError: there is no such file.
    """
    if cpu == HOST:
        host = host_cpu()
        path = _file_of(host)
        if path is None:
            raise CpuFileError(
                f"--cpu={HOST}: this machine is a {host}, of which there is no CPU file "
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
        f"--cpu={cpu}: no such file, and no CPU that there is a file of; there are {HOST}, "
        f"{', '.join(names())}; or {_MEASURE}"
    )


def llvm_name(path: Path) -> str:
    """LLVM's name of the CPU that a file is of. Raises JsonError, OSError."""
    return decode(read_input(path), _CpuFile, path).mcpu


def _file_of(cpu: str) -> Path | None:
    """The package's file of a CPU by LLVM's name: of that name, or one that has its model."""
    if cpu in names():
        return FOLDER / f"{cpu}.json"
    for path in sorted(FOLDER.glob("*.json")):
        if llvm_name(path) == cpu:
            return path
    return None


def host_cpu() -> str:
    """LLVM's name of the CPU of this machine. Raises CpuFileError."""
    found = re.search(r"Host CPU: (\S+)", run_command([stock_tool("llc"), "--version"]).stdout)
    if not found:
        raise CpuFileError("llc --version does not name the host's CPU")
    return found[1]
