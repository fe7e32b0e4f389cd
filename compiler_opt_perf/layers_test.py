# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A module imports only from floors below its own (and from its own package)."""

import ast
from pathlib import Path

FLOORS = {
    "execution": 0,
    "binary": 1,
    "toolchain": 1,
    "corpus": 2,
    "pmu": 2,
    # Reads recordings of perf with pmu's parser.
    "traces": 3,
    "policies": 3,
    "cost": 4,
    "training": 5,
    "report": 6,
    "studies": 7,
    "cli": 8,
    # Damaged inputs for every reader.
    "fuzz": 9,
}
PACKAGE = Path(__file__).parent


def _imported(path: Path) -> set[str]:
    """Packages of ours that the file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    prefix = "compiler_opt_perf."
    return {name.split(".")[1] for name in names if name.startswith(prefix)}


def test_every_package_has_a_floor() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages == set(FLOORS)


def test_imports_point_downwards() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in sorted(PACKAGE.glob("*/**/*.py"))
        for name in _imported(path)
        for room in [path.relative_to(PACKAGE).parts[0]]
        if name != room and FLOORS[name] >= FLOORS[room]
    ]
    assert not wrong


def test_studies_share_modules_and_do_not_import_each_other() -> None:
    shared = {"common", "variant_builds", "variants", "workloads"}
    prefix = "compiler_opt_perf.studies."
    wrong = [
        f"{path.name} imports {node.module}"
        for path in sorted(PACKAGE.glob("studies/*.py"))
        if not path.name.endswith("_test.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module
        if node.module.startswith(prefix) and node.module.removeprefix(prefix) not in shared
    ]
    assert not wrong
