# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Adds its lit tests to each patch of the series, at their place in LLVM's tree.

The tests are in `lit_tests`, where all of them run on the overlay's tools. Each test of the series
names its patch in a line `PATCH: <subject>`. Tests of tools/trace-cost belong to no patch.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from compiler_opt_perf.toolchain.layout import REPO_ROOT
from compiler_opt_perf.toolchain.patches import PatchError

LIT_TESTS = REPO_ROOT / "lit_tests"

# Folders of lit_tests, and their places in LLVM's tree.
_PLACES = {
    "DevMode": "llvm/test/Other/mlgo-development",
    "Inline": "llvm/test/Transforms/Inline/ML/policies",
    "Interactive": "llvm/test/Other/mlgo-interactive",
    "LoopUnroll": "llvm/test/Transforms/LoopUnroll",
    "PMUProfile": "llvm/test/Analysis/PMUProfile",
    "Outliner": "llvm/test/CodeGen/X86/outliner",
    "RegAlloc": "llvm/test/CodeGen/MLRegAlloc/policies",
    "Release": "llvm/test/Other/mlgo-release",
    "SampleProfile": "llvm/test/Transforms/SampleProfile/uninlined",
    "ThinLTO": "llvm/test/ThinLTO/X86/mlgo",
    "UnpinAllocas": "llvm/test/Transforms/UnpinAllocas",
}
# Tests of tools/trace-cost, which is not in LLVM's tree.
_OWN_TOOLS = "TraceCost"
# Tests that need clang or the linker belong to the test suites of these.
_CLANG_PLACE = "clang/test/CodeGen/mlgo"
_LINK_PLACE = "cross-project-tests/mlgo"
_SUFFIXES = (".ll", ".mir", ".c", ".cpp", ".test")

# `%S/Inputs/a`, `%S/../Inputs/a` or `%S/../PMUProfile/Inputs/a`: the folder and the path in it.
_INPUT = re.compile(r"%S/(?:\.\./(?:(\w+)/)?)?Inputs(?:/([\w.*/-]+))?")

_LOCAL_CONFIGURATION = """\
# What the tests here need that not every build has: the evaluator of development mode's models
# (LLVM_LITERT_LIBRARY), and the package that writes the checksums of PMU profiles.
import importlib.util
import os

config.suffixes = [".ll", ".mir", ".c", ".cpp", ".test"]
config.excludes = ["Inputs"]
config.available_features.update(["clang", "x86_64-linux"])
litert = os.environ.get("LLVM_LITERT_LIBRARY")
if litert:
    config.available_features.add("litert")
    config.environment["LLVM_LITERT_LIBRARY"] = litert
    config.substitutions.append(("%litert", litert))
if importlib.util.find_spec("compiler_opt_perf"):
    config.available_features.add("pmu-profiles")
inputs = os.path.join(os.path.dirname(__file__), "Inputs")
config.substitutions.append(("%seal", f"%python {inputs}/seal.py"))
"""


def lit_tests(root: Path = LIT_TESTS) -> list[Path]:
    """The lit tests of the series, sorted."""
    files = (path for path in root.rglob("*") if path.suffix in _SUFFIXES and path.is_file())
    return sorted(
        path for path in files if not {"Inputs", _OWN_TOOLS} & {*path.relative_to(root).parts}
    )


def group_by_patch(subjects: Iterable[str], root: Path = LIT_TESTS) -> dict[str, list[Path]]:
    """The lit tests of each patch, by its subject.

    Raises:
      PatchError: a test names no patch, or a patch that the series does not have.
    """
    known = set(subjects)
    tests: dict[str, list[Path]] = defaultdict(list)
    wrong = []
    for path in lit_tests(root):
        found = re.search(r"\bPATCH: (.+?)\s*$", path.read_text(), re.MULTILINE)
        if found and found[1] in known:
            tests[found[1]].append(path)
        else:
            name = (
                f"names '{found[1]}', which is not the subject of any patch"
                if found
                else "names no patch"
            )
            wrong.append(f"{path}: {name}")
    if wrong:
        raise PatchError(
            "every lit test names the patch that it tests, in a line 'PATCH: <subject>':\n"
            + "\n".join(wrong)
        )
    return dict(tests)


def exported_tests(
    tests: Mapping[str, list[Path]], root: Path = LIT_TESTS
) -> Mapping[str, dict[str, bytes]]:
    """The test files that each patch adds to LLVM's tree: content by path, by the patch's subject.

    An input comes with each patch whose tests use it, even if an earlier patch has added it.

    Args:
      tests: the lit tests of each patch, by subject, from `group_by_patch`.
      root: the folder of the lit tests.

    Raises:
      PatchError: an input is missing, or two files would get one path in LLVM's tree.
    """
    files: dict[str, dict[str, bytes]] = {}
    contents: dict[str, bytes] = {}
    for subject, paths in tests.items():
        added: dict[str, bytes] = {}
        for path in paths:
            text = path.read_text()
            place = _place(path.relative_to(root).parts[0], text)
            for match in _INPUT.finditer(text):
                for file, name in _inputs(path, match):
                    added[f"{place}/Inputs/{name}"] = file.read_bytes()
            if "%seal" in text:
                added[f"{place}/Inputs/seal.py"] = (root / "Inputs" / "seal.py").read_bytes()
            added[f"{place}/lit.local.cfg"] = _LOCAL_CONFIGURATION.encode()
            if f"{place}/{path.name}" in contents:
                raise PatchError(
                    f"{path}: another test would become {place}/{path.name}; rename one"
                )
            added[f"{place}/{path.name}"] = _adapt(text).encode()
            for name, content in added.items():
                if contents.setdefault(name, content) != content:
                    raise PatchError(f"{path}: another file would become {name}; rename one")
        files[subject] = added
    return files


def _place(folder: str, text: str) -> str:
    commands = "\n".join(re.findall(r"(?:RUN|DEFINE): (.*)", text))
    if re.search(r"\bclang\b", commands) is None:
        return _PLACES.get(folder, f"llvm/test/Other/mlgo-{folder.lower()}")
    return _LINK_PLACE if re.search(r"\bld\.lld\b|\bllvm-lto2\b|-flto", commands) else _CLANG_PLACE


def _inputs(test: Path, match: re.Match[str]) -> list[tuple[Path, str]]:
    """The input files that a test mentions, with their paths in the folder `Inputs`.

    Raises:
      PatchError: no such file exists.
    """
    beside = test.parent / match[0].removeprefix("%S/").partition("Inputs")[0] / "Inputs"
    pattern = (match[2] or "").rstrip("/.")
    found: list[Path] = []
    for path in [beside] if not pattern else sorted(beside.glob(pattern)):
        found += [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    if not found and not pattern.endswith(("%", "-")):
        raise PatchError(f"{test}: {match[0]}: no such input")
    kept = (path for path in found if "__pycache__" not in path.parts)
    return [(path, str(path.relative_to(beside))) for path in kept]


def _adapt(text: str) -> str:
    """A test's text for LLVM's tree: its inputs are beside it, and it says what it requires."""
    text = _INPUT.sub(lambda match: "%S/Inputs" + (f"/{match[2]}" if match[2] else ""), text)
    lines = text.splitlines(keepends=True)
    needs = [
        feature
        for feature, sign in (("litert", "=development"), ("pmu-profiles", "%seal"))
        if sign in text
    ]
    for number, line in enumerate(lines):
        if "PATCH: " in line:
            # In LLVM's tree the test does not name its patch.
            prefix = line.partition("PATCH: ")[0]
            lines[number] = f"{prefix}REQUIRES: {', '.join(needs)}\n" if needs else ""
            break
    return "".join(lines)
