# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests that collector and compiler know the suffixes that LLVM's passes give to functions."""

import re
from collections import defaultdict

import pytest

from compiler_opt_perf.run.llvm import LLVM_VERSION
from compiler_opt_perf.run.symbol_names import (
    COPY_SUFFIXES,
    PART_SUFFIXES,
    canonical_name,
)
from compiler_opt_perf.toolchain.layout import BUILD

pytestmark = pytest.mark.compiler

_TREE = BUILD / f"llvm-{LLVM_VERSION}"
_FOLDERS = (
    *(f"llvm/lib/{part}" for part in ("CGData", "CodeGen", "IR", "LTO", "Linker", "Target/X86")),
    *(f"llvm/lib/{part}" for part in ("Transforms", "Analysis")),
    *(f"llvm/include/llvm/{part}" for part in ("CodeGen", "IR", "Transforms")),
)

# A string literal that begins with a dot. `_NAMING` must match nearby.
_LITERAL = re.compile(r'"((?:\.[A-Za-z_]\w*)+)\.?"')
_NAMING = re.compile(
    r"Function::Create\(|Function::createWithDefaultAttr\(|[cC]loneFunction|createClone\(|createFunction"
    r"|\b(?:F|Fn|NF|MF|GV|NewF|NewFn|TheFn|Func|Clone|Callee|FAlias|OrigF|Function|Replacement"
    r"|newFunction|oldFunction)(?:->|\.)[sg]etName\(|NewName|Suffix"
)

# Literals that are no suffix of a function with line numbers, and what they are.
_IRRELEVANT = {
    ".Frame": "a type",
    ".ID": "a variable",
    "._": "a check of Erlang's names",
    ".b": "a variable",
    ".bc": "a file",
    ".body": "a variable",
    ".cfi_jt": "a table of jumps, without lines",
    ".coro_frame_ty": "a type",
    ".dot": "a file",
    ".gcc_exception_table": "a section",
    ".hwasan": "a variable",
    ".hwasan.descriptor": "a variable",
    ".init": "a variable",
    ".invalid": "an intrinsic that does not exist any more",
    ".module_ctor": "a function of the sanitizers, without lines",
    ".old": "an intrinsic of an older LLVM",
    ".resumers": "a variable",
    ".__uniq": "a part of the name, by -funique-internal-linkage-names",
}

# Known suffixes that no pass of this LLVM has as a literal with a dot, and their origins.
_ELSEWHERE = {
    "extracted": "CodeExtractor, which puts the dot in front of any name",
    "part": "GCC",
    "constprop": "GCC",
    "isra": "GCC",
    "localalias": "GCC",
    "lto_priv": "GCC",
    "warm": "BOLT",
    "argelim": "a later LLVM",
    "argprom": "a later LLVM",
    "retelim": "a later LLVM",
    "inline": "clang, for the bodies of its builtins",
}


def _literals() -> dict[str, list[str]]:
    """The places of each literal that looks like a suffix, by the literal."""
    found = defaultdict(list)
    for folder in _FOLDERS:
        for path in sorted((_TREE / folder).rglob("*")):
            if path.suffix not in (".cpp", ".h"):
                continue
            lines = [line.split("//")[0] for line in path.read_text().splitlines()]
            for number, line in enumerate(lines):
                if "ELFSection" in line or "tarts_with" in line:
                    continue
                for literal in _LITERAL.finditer(line):
                    if _NAMING.search(" ".join(lines[max(0, number - 2) : number + 1])):
                        found[literal[1]].append(f"{path.relative_to(_TREE)}:{number + 1}")
    return found


def test_every_suffix_that_a_pass_appends_is_known() -> None:
    literals = _literals()
    assert len(literals) > 30
    unknown = {
        suffix: places
        for suffix, places in literals.items()
        if canonical_name(f"f{suffix}") != "f" and suffix not in _IRRELEVANT
    }
    assert not unknown, "add them to symbol_names.py and PMUSampleFile.cpp, or to _IRRELEVANT"
    assert not _IRRELEVANT.keys() - literals.keys()
    words = {word for suffix in literals for word in suffix[1:].split(".")}
    assert {*PART_SUFFIXES, *COPY_SUFFIXES} - words == _ELSEWHERE.keys()


def test_collector_and_compiler_have_one_list() -> None:
    source = (_TREE / "llvm/lib/Analysis/PMUSampleFile.cpp").read_text()
    table = re.search(r"PassSuffixes\[\] = \{(.*?)\};", source, re.DOTALL)
    assert table is not None
    assert tuple(re.findall(r'"(\w+)"', table[1])) == PART_SUFFIXES + COPY_SUFFIXES
