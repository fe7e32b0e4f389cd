# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which arguments of `clang -cc1` belong to a module of a corpus."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from compiler_opt_perf.corpus.corpus import CorpusError, without_side_outputs
from compiler_opt_perf.execution.command import run_command

# Limit of one run of the compiler.
TIMEOUT_S = 300.0

# `-cc1` arguments that name inputs, headers, macros or folders, or that only the front end of a
# language reads: the IR has them already, and without them a corpus can move to another machine.
_DROPPED_WITH_VALUE = {
    "-x",
    "-main-file-name",
    "-include",
    "-isystem",
    "-iquote",
    "-idirafter",
    "-isysroot",
    "-internal-isystem",
    "-internal-externc-isystem",
    "-resource-dir",
    "-I",
    "-D",
    "-U",
    "-ferror-limit",
    "-fmessage-length",
    "-pch-through-header",
}
# Bitcode in objects is a copy of a module as it was, which corpora are made of.
_DROPPED = {"-pthread", "-fembed-bitcode", "-fembed-bitcode=all"}
_DROPPED_PREFIXES = (
    "-I",
    "-D",
    "-U",
    "-std=",
    "-W",
    "-fdebug-compilation-dir=",
    "-fcoverage-compilation-dir=",
    "-fdebug-prefix-map=",
    "-fcoverage-prefix-map=",
    "-fmacro-prefix-map=",
    "-fmodule",
    "-fprebuilt-module-path=",
    "-fcolor-diagnostics",
    "-fdiagnostics",
    "-fmessage-length",
    "-ferror-limit",
    "-fansi-escape-codes",
    # The front end gives the functions in it other attributes.
    "-fsanitize-ignorelist=",
    "-fsanitize-system-ignorelist=",
)
# The IR alone does not say what these do, and what they name is no part of a corpus: compiled
# without, modules would be those of another build.
_REFUSED_PREFIXES = (
    "-fprofile-instrument-use-path=",
    "-fprofile-sample-use=",
    "-fprofile-remapping-file=",
    "-fmemory-profile-use=",
    "-fprofile-list=",
    "-fsanitize-coverage-allowlist=",
    "-fsanitize-coverage-ignorelist=",
    "-fxray-",
    "-fplugin",
    "-fpass-plugin=",
    "-fbasic-block-sections=list=",
    "-fthinlto-index=",
)


def codegen_arguments(cc1: Sequence[str]) -> list[str]:
    """The `-cc1` arguments that affect a compilation whose input is IR.

    Options that are not known here are kept.

    Raises:
      CorpusError: one cannot be part of a corpus, but changes the code.
    """
    kept: list[str] = []
    words = iter(without_side_outputs(cc1))
    for word in words:
        if word in _DROPPED_WITH_VALUE:
            next(words, None)
        elif word in ("-mllvm", "-target-cpu", "-tune-cpu", "-target-feature", "-triple"):
            value = next(words, "")
            if not value.startswith("-lto-embed-bitcode"):
                kept += [word, value]
        elif word.startswith(_REFUSED_PREFIXES):
            raise CorpusError(
                f"compiled with {word}, which a corpus cannot hold; extract it from a build without"
            )
        elif word not in _DROPPED and not word.startswith(_DROPPED_PREFIXES):
            kept.append(word)
    return kept


def cc1_arguments(clang: Path, command: Sequence[str], directory: Path) -> list[str]:
    """What the driver would pass to `clang -cc1` for one compilation of `command`.

    Raises:
      CorpusError: the command does not compile exactly one file.
      CommandError: the driver rejects it.
    """
    listing = run_command([clang, "-###", *command[1:]], cwd=directory, timeout_s=TIMEOUT_S)
    jobs = [line for line in listing.stderr.splitlines() if '"-cc1"' in line]
    words = [shlex.split(job)[1:] for job in jobs]
    if len(words) != 1 or "-emit-obj" not in words[0]:
        raise CorpusError(f"not the compilation of one file to an object: {shlex.join(command)}")
    return words[0]
