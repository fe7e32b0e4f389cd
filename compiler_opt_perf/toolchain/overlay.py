# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds what the overlay build must compile, and checks that linking it is sound.

The overlay links a few freshly compiled translation units (TUs) with the distribution's static
archives of the same LLVM. That is sound only if each TU that includes a patched header is compiled
again, or if the patch changes nothing in the header that the other TUs use.
"""

import os
import re
import tomllib
from collections import defaultdict, deque
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from pathlib import Path

from compiler_opt_perf.toolchain.layout import ToolchainError

# Folders whose code is linked into the tools, and the include paths it is compiled with.
_CODE = (
    "llvm/include", "llvm/lib", "llvm/tools/llc", "llvm/tools/llvm-lto2", "llvm/tools/opt",
    "clang/include", "clang/lib", "clang/tools/driver", "polly/include", "polly/lib",
    "lld/Common", "lld/ELF", "lld/include",
)  # fmt: skip
_INCLUDE_PATHS = ("llvm/include", "clang/include", "polly/include", "lld/include")
_HEADERS = (".h", ".def", ".inc")
_UNITS = (".cpp", ".c", ".cc")
# Files that are neither compiled nor included: build files, tests, text.
_INERT = re.compile(
    r"(^|/)CMakeLists\.txt$|\.(cmake|md|rst|txt|py)$|^(llvm|clang)/(docs|test|unittests|utils)/"
)
_UNIT_TEST = re.compile(r"^llvm/unittests/.*Test\.cpp$")
# Folders of the tools' main programs. No archive has them, so they are always compiled. The main
# program of ld.lld is in tools/overlay, for lld's own needs other formats than ELF.
TOOLS = {
    "clang": ("clang/tools/driver/",),
    "ld.lld": (),
    "llc": ("llvm/tools/llc/",),
    "llvm-lto2": ("llvm/tools/llvm-lto2/",),
    "opt": ("llvm/tools/opt/",),
}

# Macros that the overlay's build defines and the archives' build did not.
_DEVELOPMENT_MODE = "LLVM_HAVE_TFLITE"
_MODELS = "LLVM_HAVE_TF_AOT"
_SWITCHES = (_DEVELOPMENT_MODE, _MODELS)

# Upstream's version needs the sources of TensorFlow Lite, which the overlay lacks.
EVALUATOR = "llvm/lib/Analysis/TFLiteUtils.cpp"

# The most TUs that may include a patched header; more would make the overlay slow.
MAX_CLOSURE = 40

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]+"([^"\n]+)"', re.MULTILINE)


class UnsoundOverlayError(ToolchainError):
    """An archive member would disagree with a recompiled TU about a patched header."""


@dataclass(frozen=True)
class Allowance:
    """A patched header of which only the users of certain names need to be compiled again.

    Attributes:
      header: path in the LLVM tree.
      symbols: all names whose meaning, value or layout the patches change.
      reason: why nothing changes for the header's other users.
    """

    header: str
    symbols: tuple[str, ...]
    reason: str


def load_allowances(path: Path) -> tuple[Allowance, ...]:
    """Reads the `[[allow]]` tables of `overlay.toml`; returns () if there is no file.

    Raises:
      ToolchainError: a table lacks header, symbols or reason.
    """
    if not path.is_file():
        return ()
    try:
        document = tomllib.loads(path.read_text())
        tables = [
            Allowance(str(table["header"]), tuple(table["symbols"]), str(table["reason"]))
            for table in document.get("allow", [])
        ]
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise ToolchainError(
            f"{path}: every [[allow]] table needs header, symbols and reason: {error!r}"
        ) from error
    for table in tables:
        if not table.symbols or not table.reason.strip():
            raise ToolchainError(f"{path}: the entry for {table.header} gives no symbols or reason")
    return tuple(tables)


class IncludeGraph:
    """The includes of an LLVM tree's files, regardless of preprocessor conditions.

    Attributes:
      tree: the tree.
      files: all sources and headers, relative to the tree.
      switched: the files in which a macro of the build occurs, by macro.
    """

    def __init__(self, tree: Path):
        self.tree = tree
        self.files = self._list_files()
        self.switched: dict[str, set[str]] = {switch: set() for switch in _SWITCHES}
        self._includers: dict[str, set[str]] = defaultdict(set)
        by_name: dict[str, list[str]] = defaultdict(list)
        for file in self.files:
            by_name[file.rpartition("/")[2]].append(file)
        for file in self.files:
            text = (tree / file).read_bytes()
            for switch, files in self.switched.items():
                if switch.encode() in text:
                    files.add(file)
            for target in _INCLUDE.findall(text):
                for found in self._resolve(file, target.decode(errors="replace"), by_name):
                    self._includers[found].add(file)

    def _list_files(self) -> set[str]:
        files: set[str] = set()
        for part in _CODE:
            for folder, _, names in os.walk(self.tree / part):
                relative = os.path.relpath(folder, self.tree)
                files.update(f"{relative}/{n}" for n in names if n.endswith(_HEADERS + _UNITS))
        return files

    def _resolve(self, file: str, target: str, by_name: dict[str, list[str]]) -> list[str]:
        beside = f"{file.rpartition('/')[0]}/{target}"
        if "../" in target:
            beside = os.path.normpath(beside)
        if beside in self.files:
            return [beside]
        for path in _INCLUDE_PATHS:
            if f"{path}/{target}" in self.files:
                return [f"{path}/{target}"]
        # The include path is private to a library. To be safe, take each header that ends like it.
        suffix = "/" + target.lstrip("./")
        return [c for c in by_name.get(target.rpartition("/")[2], ()) if c.endswith(suffix)]

    def closure(self, headers: Iterable[str]) -> set[str]:
        """`headers` and all files that include one of them, directly or indirectly."""
        seen = set(headers)
        queue = deque(seen)
        while queue:
            for includer in self._includers.get(queue.popleft(), ()):
                if includer not in seen:
                    seen.add(includer)
                    queue.append(includer)
        return seen

    def mentioning(self, files: Iterable[str], names: Iterable[str]) -> set[str]:
        """The `files` in which one of `names` occurs as a whole word."""
        pattern = re.compile(
            rb"\b(" + b"|".join(re.escape(name.encode()) for name in names) + rb")\b"
        )
        return {file for file in files if pattern.search((self.tree / file).read_bytes())}


@dataclass(frozen=True)
class Plan:
    """The files to compile. All paths are relative to the tree.

    Attributes:
      common: TUs that do not depend on the models.
      model_dependent: TUs that include a compiled model or test whether one exists.
      mains: the TUs of a tool's main program, by tool.
      development_mode: whether the tree can evaluate models without TensorFlow Lite's sources.
      unit_tests: the series' C++ unit tests, which are linked with the overlay's objects.
    """

    common: tuple[str, ...]
    model_dependent: tuple[str, ...]
    mains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    development_mode: bool = True
    unit_tests: tuple[str, ...] = ()

    def units(self) -> set[str]:
        """All TUs that are compiled for the tools."""
        return {
            *self.common,
            *self.model_dependent,
            *(u for main in self.mains.values() for u in main),
        }


def make_plan(graph: IncludeGraph, changed: Iterable[str], allowed: Iterable[Allowance]) -> Plan:
    """Finds the TUs to compile: changed TUs, and users of a changed header or macro.

    Args:
      graph: includes of the patched tree.
      changed: files that differ from the pristine tree.
      allowed: headers of which only some users are compiled again.

    Raises:
      UnsoundOverlayError: the overlay cannot rebuild what depends on a changed file.
    """
    allowances = {allowance.header: allowance for allowance in allowed}
    units: set[str] = set()
    for file in sorted(changed):
        if file in graph.files and file.endswith(_UNITS):
            units.add(file)
        elif file in graph.files:
            units |= affected_units(graph, file, allowances.get(file))
        elif not _INERT.search(file):
            raise UnsoundOverlayError(
                f"{file}: patched, but the overlay cannot rebuild what depends on this file; "
                "change only C++ sources, headers, CMake files, tests and documentation"
            )
    # The archives were built without development mode and without models.
    development_mode = has_development_mode(graph.tree)
    if development_mode:
        units |= _units(graph.closure(graph.switched[_DEVELOPMENT_MODE]))
    model_dependent = _units(graph.closure(graph.switched[_MODELS]))
    mains = {
        tool: tuple(sorted(f for f in _units(graph.files) if f.startswith(folders)))
        for tool, folders in TOOLS.items()
    }
    common = units - model_dependent - {unit for main in mains.values() for unit in main}
    unit_tests = sorted(f for f in changed if _UNIT_TEST.search(f) and (graph.tree / f).is_file())
    return Plan(
        tuple(sorted(common)),
        tuple(sorted(model_dependent)),
        mains,
        development_mode,
        tuple(unit_tests),
    )


def has_development_mode(tree: Path) -> bool:
    """Whether `tree` has the evaluator by LiteRT, which development mode needs."""
    evaluator = tree / EVALUATOR
    return evaluator.is_file() and b"tensorflow/lite/" not in evaluator.read_bytes()


def affected_units(graph: IncludeGraph, header: str, allowance: Allowance | None) -> set[str]:
    """The TUs that must be compiled again because `header` is patched."""
    closure = graph.closure([header])
    if allowance is not None:
        users = graph.mentioning(closure - {header}, allowance.symbols)
        closure = graph.closure(users)
    return _units(closure)


def check(
    graph: IncludeGraph, changed: Iterable[str], allowed: Iterable[Allowance], compiled: Set[str]
) -> None:
    """Checks that linking the `compiled` TUs with the stock archives is sound.

    Raises:
      UnsoundOverlayError: a changed TU, or a user of a changed header, is not among them, or too
        many TUs include a changed header.
    """
    allowances = {allowance.header: allowance for allowance in allowed}
    for file in sorted(graph.files.intersection(changed)):
        if file.endswith(_UNITS):
            if file not in compiled:
                raise UnsoundOverlayError(f"{file}: patched, but not compiled by the overlay")
            continue
        affected = affected_units(graph, file, allowances.get(file))
        # The tools' main programs are always compiled.
        own = tuple(folder for folders in TOOLS.values() for folder in folders)
        extra = [unit for unit in affected if not unit.startswith(own)]
        if len(extra) > MAX_CLOSURE:
            raise UnsoundOverlayError(
                f"{file}: patched, and {len(extra)} translation units include it; move the new "
                "declarations to a header of their own or, when other users see no difference, "
                "name the changed symbols in overlay.toml beside the series"
            )
        missed = sorted(affected - compiled)
        if missed:
            raise UnsoundOverlayError(
                f"{file}: patched, but {len(missed)} of the translation units that include it come "
                f"from the stock archives: {', '.join(missed[:5])}"
            )


def check_allowances(changed: Iterable[str], allowed: Iterable[Allowance]) -> None:
    """Checks that each allowance is for a header among the `changed` files.

    Raises:
      UnsoundOverlayError: no patch touches an allowed header.
    """
    for header in sorted({allowance.header for allowance in allowed}.difference(changed)):
        raise UnsoundOverlayError(
            f"{header}: on the list of allowed headers, but no patch touches it; remove the entry"
        )


def _units(files: Iterable[str]) -> set[str]:
    return {file for file in files if file.endswith(_UNITS)}
