# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From the command of a build to the arguments of `clang -cc1`.

The compiler that the command names is never started: our clang takes its place. So do launchers
such as ccache, and the assembler and the linker are not reached. What is left of a command are
options, of which those that load code or choose programs are refused.
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

# Limits of one run of the compiler; a command may name a source without an end, such as a device.
TIMEOUT_S = 300.0
MEMORY_MIB = 16 * 1024

_COMPILER = re.compile(
    r"(?:(?P<prefix>[\w.+-]+)-)?(?P<name>clang|clang\+\+|gcc|g\+\+|cc|c\+\+|icx|icpx)"
    r"(?:-\d[\w.]*)?(?:\.exe)?"
)
# A prefix of a cross compiler's name is its target.
_TARGET = re.compile(
    r"(?:x86_64|i[3-6]86|aarch64|arm|thumb|riscv|powerpc|ppc|mips|s390|sparc|loongarch|wasm)\w*-\w.*"
)
# Programs whose further words, options too, come before the compiler.
_LAUNCHERS = {
    *("ccache", "sccache", "distcc", "icecc", "buildcache", "gomacc", "rewrapper", "env", "nice"),
    *("ionice", "time", "cmake", "libtool", "python", "python3"),
}
# Options of the driver that load code, name a program to start, or a file of further options. The
# last is one of -cc1, of which the driver writes the file all the same.
_RUNS = (
    *("-fplugin", "-fpass-plugin", "--hipspv-pass-plugin", "-B", "--prefix", "--config"),
    *("-wrapper", "-ccc-", "--amdgpu-arch-tool", "--nvptx-arch-tool", "--offload-arch-tool"),
    *("-fthinlto-distributor", "-Xthinlto-distributor", "-serialize-diagnostic-file"),
)
_XCLANG_RUNS = ("-load", "-plugin", "-add-plugin")
# The same for values of -mllvm.
_LLVM_RUNS = ("load", "pass-plugin")
# With these the driver only lists jobs. It starts a tool that asks for the machine's GPU, for
# "native" and without an architecture, and looks for it in its current folder, too. For a
# reproducer it starts itself, which writes files. For a library it deletes an old one. Most
# commands have no use for these, of which it would warn.
_ONLY_LISTS = (
    *("-c", "--offload-arch-tool=/dev/null", "-fno-crash-diagnostics", "-Qunused-arguments"),
)
# Other modes of the driver, such as the one of cl, have other spellings of all options.
_MODE = "--driver-mode="
_MODES = (f"{_MODE}gcc", f"{_MODE}g++")
# What stops at a warning of another compiler, keeps files of the steps in between, names the
# assembler or the linker, which a compilation does not reach, or GCC's files of options, of which
# clang knows none; and what turns reproducers on.
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
# Options with a file that the driver deletes though it only lists jobs, and the output.
_TAKEN_OUT_WITH_VALUE = {"-MJ", "-serialize-diagnostics", "--serialize-diagnostics", "-o"}
# IR is wanted, and objects of it, not bitcode for a linker.
_WITHOUT_LTO = {
    "-flto": "-fno-lto",
    "-fwhole-program-vtables": "-fno-whole-program-vtables",
    "-fvirtual-function-elimination": "-fno-virtual-function-elimination",
    "-fsanitize=": "-fno-sanitize=cfi",
}
# Of files of arguments, "@file", for one command; they may name each other.
_MOST_FILES = 64
_MOST_BYTES = 1024 * 1024
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_JOB = re.compile(rf"^ ({_QUOTED}(?: {_QUOTED})*)$", re.MULTILINE | re.DOTALL)


def compiler_position(words: Sequence[str]) -> int | None:
    """Where among the words of a command the compiler is; None where it is only a launcher's.

    A word of any name is taken for a compiler where it comes first.
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
    """Whether a command compiles to bitcode for a link."""
    options = [word for word in words if word.startswith(("-flto", "-fno-lto"))]
    return bool(options) and options[-1].startswith("-flto")


def driver_words(
    command: Sequence[str], directory: Path, extra: Sequence[str] = (), *, trusted: bool = False
) -> list[str]:
    """The options and inputs of a command, for clang's driver.

    Args:
      command: as the build has it, with launchers and the compiler.
      directory: that it is run in.
      extra: options that come last, before "--".
      trusted: options that load code or name programs are kept.

    Raises:
      CorpusError: names an option that is refused, or a file of arguments that cannot be read.
    """
    position = compiler_position(command)
    if position is None:
        raise CorpusError(f"names no compiler: {shlex.join(command)}")
    words = _expanded(command[position + 1 :], directory)
    extra = list(extra)
    if not trusted:
        _refuse_programs(words)
    match = _COMPILER.fullmatch(Path(command[position]).name)
    # First, for the last word of the command may take what follows for its value.
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
    """What the driver would pass to `clang -cc1` for one compilation of `command`; input last.

    Args:
      source: which of several sources in the command.
      extra, trusted: as for `driver_words`.

    Raises:
      CorpusError: the command does not compile exactly one file, or has an option that is refused.
      CommandError: the driver rejects it.
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
    # After "--" a source may have any name; -cc1 would take this one for an option or a list.
    return [*arguments, f"./{source_word}" if source_word[:1] in ("-", "@") else source_word]


def _stem(word: str) -> str:
    return re.sub(r"(-?\d[\d.]*)?(\.exe)?$", "", Path(word).name)


def _expanded(words: Sequence[str], directory: Path) -> list[str]:
    """The words with those of files, "@file", in the place of the files' names."""
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
        # Whatever comes before: it may be the value of another option.
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
    """The words but for what is taken out; none of that is left, whatever comes before it."""
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
        # After -Xclang, the value has an -Xclang of its own.
        if word in _TAKEN_OUT_WITH_VALUE and next(rest, "") == "-Xclang" and frontend:
            next(rest, "")
    return kept


def _jobs(listing: str) -> list[list[str]]:
    """The arguments of each `clang -cc1` in what `clang -###` prints, "-cc1" first."""
    found = []
    for line in _JOB.findall(listing):
        # Within quotes the driver writes a backslash before ", \ and $.
        words = [
            re.sub(r"\\(.)", r"\1", w[1:-1], flags=re.S) for w in re.findall(_QUOTED, line, re.S)
        ]
        if words[1:2] == ["-cc1"]:
            found.append(words[1:])
    return found


def _with_header_for_precompiled(words: Sequence[str]) -> list[str]:
    """The arguments with the text of a header in the place of its precompiled form.

    That form belongs to one compiler and one level. CMake names both, one after the other.
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
