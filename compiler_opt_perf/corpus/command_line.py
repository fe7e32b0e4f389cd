# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Turns the compile command of a build into arguments of `clang -cc1`.

Our clang replaces the compiler and launchers such as ccache, which are never started. Assembler and
linker are not reached. Options that load code or choose programs are refused.
"""

import itertools
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from compiler_opt_perf.corpus.corpus import CorpusError
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.files import read_input

# Limits of one run of the compiler: a command may name an endless source, such as a device.
TIMEOUT_S = 300.0
MEMORY_MIB = 16 * 1024

_COMPILER = re.compile(
    r"(?:(?P<prefix>[\w.+-]+)-)?(?P<name>clang|clang\+\+|gcc|g\+\+|cc|c\+\+|icx|icpx)"
    r"(?:-\d[\w.]*)?(?:\.exe)?"
)
# Prefixes of cross compilers' names, which are targets.
_TARGET = re.compile(
    r"(?:x86_64|i[3-6]86|aarch64|arm|thumb|riscv|powerpc|ppc|mips|s390|sparc|loongarch|wasm)\w*-\w.*"
)
# Programs that start the compiler; their options come before it.
_LAUNCHERS = {
    *("ccache", "sccache", "distcc", "icecc", "buildcache", "gomacc", "rewrapper", "env", "nice"),
    *("ionice", "time", "cmake", "libtool", "python", "python3"),
}
# Driver options that load code, or name a program to start or a file of further options. The last
# belongs to -cc1, but the driver writes its file.
_RUNS = (
    *("-fplugin", "-fpass-plugin", "--hipspv-pass-plugin", "-B", "--prefix", "--config"),
    *("-wrapper", "-ccc-", "--amdgpu-arch-tool", "--nvptx-arch-tool", "--offload-arch-tool"),
    *("-fthinlto-distributor", "-Xthinlto-distributor", "-serialize-diagnostic-file"),
)
_XCLANG_RUNS = ("-load", "-plugin", "-add-plugin")
# The same for values of -mllvm.
_LLVM_RUNS = ("load", "pass-plugin")
# With these the driver only lists jobs. For "native" or a missing architecture, it would start a
# tool that detects the GPU, also from the current folder. For a crash reproducer it would start
# itself and write files; for a library it would delete an old one. -Qunused-arguments silences the
# warning that a command does not use these options.
_ONLY_LISTS = (
    *("-c", "--offload-arch-tool=/dev/null", "-fno-crash-diagnostics", "-Qunused-arguments"),
)
# Other driver modes, such as cl, spell all options differently.
_MODE = "--driver-mode="
_MODES = (f"{_MODE}gcc", f"{_MODE}g++")
# Options taken out: they make warnings of another compiler fatal, keep temporary files, name the
# assembler or linker, which are not reached, name GCC's spec files, or turn on crash reproducers.
_TAKEN_OUT = (
    "-Werror",
    "-pedantic-errors",
    "-save-temps",
    "--save-temps",
    "-fuse-ld=",
    "--ld-path=",
    "-fno-integrated-as",
    "-no-integrated-as",
    "-specs=",
    "--specs=",
    "-gen-reproducer",
    "-fcrash-diagnostics",
)
# Options whose file the driver deletes even when it only lists jobs, and the output.
_TAKEN_OUT_WITH_VALUE = {"-MJ", "-serialize-diagnostics", "--serialize-diagnostics", "-o"}
# Turn off LTO: the corpus needs IR that compiles to objects, not bitcode for a linker.
_WITHOUT_LTO = {
    "-flto": "-fno-lto",
    "-fwhole-program-vtables": "-fno-whole-program-vtables",
    "-fvirtual-function-elimination": "-fno-virtual-function-elimination",
    "-fsanitize=": "-fno-sanitize=cfi",
}
# Limits of response files ("@file") of one command, which may name each other.
_MOST_FILES = 64
_MOST_BYTES = 1024 * 1024
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_JOB = re.compile(rf"^ ({_QUOTED}(?: {_QUOTED})*)$", re.MULTILINE | re.DOTALL)


def compiler_position(words: Sequence[str]) -> int | None:
    """Returns the compiler's position in a command; None if there is only a launcher.

    The first word counts as a compiler whatever its name, unless it is a launcher.
    """
    launched = _stem(words[0]) in _LAUNCHERS
    for position, word in enumerate(words):
        if word.startswith("-"):
            if not launched:
                break
        elif "=" not in word and _COMPILER.fullmatch(Path(word).name):
            return position
    return None if launched else 0


def uses_lto(words: Sequence[str]) -> bool:
    """Whether a command compiles to bitcode for link-time optimisation."""
    options = [word for word in words if word.startswith(("-flto", "-fno-lto"))]
    return bool(options) and options[-1].startswith("-flto")


def driver_words(
    command: Sequence[str], directory: Path, extra: Sequence[str] = (), *, trusted: bool = False
) -> list[str]:
    """Returns the options and inputs of a command for clang's driver.

    Args:
      command: the build's command, with launchers and compiler.
      directory: its working directory.
      extra: options to append, before "--".
      trusted: whether to keep options that load code or name programs.

    Raises:
      CorpusError: an option is refused, or a response file cannot be read.
    """
    position = compiler_position(command)
    if position is None:
        raise CorpusError(f"names no compiler: {shlex.join(command)}")
    words = _expanded(command[position + 1 :], directory)
    extra = list(extra)
    if not trusted:
        _refuse_programs(words)
    match = _COMPILER.fullmatch(Path(command[position]).name)
    # These come first: the last word of the command may take a following word as its value.
    implied = [*_ONLY_LISTS]
    if match and match["name"].endswith(("++", "icpx")):
        implied.append("--driver-mode=g++")
    if match and _TARGET.fullmatch(match["prefix"] or ""):
        implied.append(f"--target={match['prefix']}")
    if uses_lto(words):
        extra += [off for on, off in _WITHOUT_LTO.items() if any(w.startswith(on) for w in words)]
    end = words.index("--") if "--" in words else len(words)
    options = _without_taken_out(words[:end])
    # A "--" that is an option's value ends no options: what follows must not look like one.
    sources = [f"./{word}" if word.startswith("-") else word for word in words[end + 1 :]]
    return [*implied, *options, *extra, *words[end : end + 1], *sources]


def cc1_arguments(
    clang: Path,
    command: Sequence[str],
    directory: Path,
    extra: Sequence[str] = (),
    *,
    source: Path | None = None,
    trusted: bool = False,
) -> list[str]:
    """Returns the arguments of `clang -cc1` for one compilation of `command`; the input is last.

    Args:
      source: selects one of several sources in the command.
      extra, trusted: as for `driver_words`.

    Raises:
      CorpusError: the command does not compile exactly one file, or an option is refused.
      CommandError: the driver rejects the command.
    """
    words = driver_words(command, directory, extra, trusted=trusted)
    listing = run_command(
        [clang, "-###", *words], cwd=directory, timeout_s=TIMEOUT_S, memory_mib=MEMORY_MIB
    )
    jobs = [job for job in _jobs(listing.stderr) if "-emit-obj" in job]
    if len(jobs) > 1 and source is not None:
        jobs = [job for job in jobs if os.path.normpath(directory / job[-1]) == str(source)]
    if len(jobs) != 1:
        raise CorpusError(f"not the compilation of one file to an object: {shlex.join(command)}")
    *arguments, source_word = _with_header_for_precompiled(jobs[0])
    # After "--" a source may begin with any character; -cc1 would take this one for an option.
    return [*arguments, f"./{source_word}" if source_word[:1] in ("-", "@") else source_word]


def _stem(word: str) -> str:
    return re.sub(r"(-?\d[\d.]*)?(\.exe)?$", "", Path(word).name)


def _expanded(words: Sequence[str], directory: Path) -> list[str]:
    """Replaces each response file, "@file", by its words. Raises CorpusError."""
    expanded: list[str] = []
    rest = list(reversed(words))
    files = 0
    while rest:
        word = rest.pop()
        if not word.startswith("@"):
            expanded.append(word)
            continue
        path = directory / word[1:]
        files += 1
        try:
            if files > _MOST_FILES:
                raise ValueError(f"more than {_MOST_FILES} files, or files that name each other")
            inner = shlex.split(read_input(path, _MOST_BYTES).decode())
        except (OSError, ValueError) as error:
            raise CorpusError(f"{path}: arguments cannot be read: {error}") from error
        rest += reversed(inner)
    return expanded


def _refuse_programs(words: Sequence[str]) -> None:
    previous = ""
    for word in words:
        if word.startswith(_MODE) and word not in _MODES:
            raise CorpusError(f"compiled with {word}; only commands like GCC's are understood")
        # Refused after any word, though it may be the value of another option.
        refused = (
            word.startswith(_RUNS)
            or (previous == "-Xclang" and word.startswith(_XCLANG_RUNS))
            or (previous == "-mllvm" and word.lstrip("-").startswith(_LLVM_RUNS))
        )
        if refused:
            raise CorpusError(
                f"compiled with {word}, which loads code, names a program or writes a file; "
                "--trusted says that you trust the build"
            )
        previous = word


def _without_taken_out(words: Sequence[str]) -> list[str]:
    """Removes unwanted options wherever they stand, with their values and -Xclang."""
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        with_value = word in _TAKEN_OUT_WITH_VALUE or word.startswith("-MJ")
        if not with_value and not word.startswith(_TAKEN_OUT):
            kept.append(word)
            continue
        frontend = kept[-1:] == ["-Xclang"]
        if frontend:
            kept.pop()
        # The value of an option after -Xclang has its own -Xclang.
        if word in _TAKEN_OUT_WITH_VALUE and next(rest, "") == "-Xclang" and frontend:
            next(rest, "")
    return kept


def _jobs(listing: str) -> list[list[str]]:
    """Returns the arguments of each `clang -cc1` that `clang -###` prints; "-cc1" is first."""
    jobs = []
    for line in _JOB.findall(listing):
        # The driver escapes ", \ and $ within quotes by a backslash.
        words = [
            re.sub(r"\\(.)", r"\1", w[1:-1], flags=re.S) for w in re.findall(_QUOTED, line, re.S)
        ]
        if words[1:2] == ["-cc1"]:
            jobs.append(words[1:])
    return jobs


def _with_header_for_precompiled(words: Sequence[str]) -> list[str]:
    """Replaces a precompiled header by the header's text.

    A precompiled header fits one compiler and level only. CMake names both, one after the other.
    """
    kept: list[str] = []
    included = {word for before, word in itertools.pairwise(words) if before == "-include"}
    rest = iter(words)
    for word in rest:
        if word != "-include-pch":
            kept.append(word)
            continue
        header = re.sub(r"\.(pch|gch)$", "", next(rest, ""))
        if header not in included:
            kept += ["-include", header]
    return kept
