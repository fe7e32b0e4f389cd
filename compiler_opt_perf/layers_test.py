# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A module imports only from floors below its own (and from its own package).

docs/design/architecture.md shows the same.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

FLOORS = {
    "run": 0,
    "binary": 1,
    "toolchain": 1,
    "corpus": 2,
    "profile": 2,
    # Reads recordings of perf with profile's parser.
    "trace": 3,
    "policy": 3,
    "blocks": 4,
    "cost": 5,
    "train": 6,
    "compare": 7,
    "trial": 7,
    # Alone loads matplotlib and templates.
    "pages": 8,
    "cli": 9,
}
PACKAGE = Path(__file__).parent


def _modules(path: Path) -> set[str]:
    """What the file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return names


def _imported(path: Path) -> set[str]:
    """Packages of ours that the file imports, anywhere in it."""
    prefix = "compiler_opt_perf."
    return {name.split(".")[1] for name in _modules(path) if name.startswith(prefix)}


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


def test_public_errors_are_for_the_user() -> None:
    """`cop` shows a UserError as a message; a module's private errors begin with `_`."""
    wrong = [
        f"{path.relative_to(PACKAGE)}: {node.name}"
        for path in sorted(PACKAGE.glob("*/**/*.py"))
        # The fuzzer's own errors never reach a command.
        if not path.name.endswith("_test.py") and path.parent.name != "fuzz"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        if any(isinstance(base, ast.Name) and base.id == "Exception" for base in node.bases)
        if node.name != "UserError"
    ]
    assert not wrong


def test_pages_are_written_in_one_room() -> None:
    drawing = {"jinja2", "matplotlib"}
    rooms = {
        path.relative_to(PACKAGE).parts[0]
        for path in PACKAGE.glob("*/**/*.py")
        if drawing & {name.partition(".")[0] for name in _modules(path)}
    }
    assert rooms == {"pages"}
    templates = {path.relative_to(PACKAGE).parts[0] for path in PACKAGE.glob("*/**/*.j2")}
    assert templates == {"pages"}


def _modules_of_jobs(path: Path) -> set[str]:
    """Modules of the functions that the file hands to a pool's `map`."""
    tree = ast.parse(path.read_text())
    here = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    origin = {node.name: here for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            origin |= {alias.name: node.module for alias in node.names}
    return {
        origin[word.id]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr == "map"
        # The function, or the one that a functools.partial is of.
        for word in ast.walk(node.args[0])
        if isinstance(word, ast.Name) and word.id in origin
    }


def test_workers_import_neither_plots_nor_bars_nor_solvers_nor_tensorflow() -> None:
    """Each worker imports the module of its job."""
    modules = {
        module
        for path in PACKAGE.glob("*/**/*.py")
        if not path.name.endswith("_test.py")
        for module in _modules_of_jobs(path)
    }
    assert {"compiler_opt_perf.train.compilation", "compiler_opt_perf.cost.batch"} < modules
    code = f"""
import sys
import compiler_opt_perf.run.pool
for module in {sorted(modules)}:
    __import__(module)
    heavy = {{"jinja2", "lightgbm", "matplotlib", "ray", "rich", "scipy", "tensorflow"}}
    heavy &= set(sys.modules)
    assert not heavy, f"{{module}} loads {{heavy}}"
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def _used() -> dict[str, set[str]]:
    """Room to the rooms that it imports from; tests do not count."""
    used: dict[str, set[str]] = {room: set() for room in FLOORS}
    for path in PACKAGE.glob("*/**/*.py"):
        room = path.relative_to(PACKAGE).parts[0]
        if not path.name.endswith("_test.py") and path.name not in ("conftest.py", "testing.py"):
            used[room] |= _imported(path) - {room}
    return used


def _picture_line(room: str, used: dict[str, set[str]]) -> str:
    """The room with those that it rests on, without what one of these rests on in its turn."""

    def below(name: str) -> set[str]:
        return used[name].union(*(below(other) for other in used[name]))

    direct = used[room].difference(*(below(other) for other in used[room]))
    return f"{room:11} ──> {', '.join(sorted(direct))}" if direct else room


def test_architecture_shows_rooms_and_imports() -> None:
    page = (PACKAGE.parent / "docs" / "design" / "architecture.md").read_text()
    picture = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[0].splitlines()
    rooms = [line.split()[0] for line in picture]
    floors = [FLOORS[room] for room in rooms]
    assert floors == sorted(floors, reverse=True), "from the top floor down"
    used = _used()
    assert picture == [_picture_line(room, used) for room in rooms]
    table = page[page.index("| room |") :].partition("\n\n")[0]
    assert sorted(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == sorted(FLOORS)
    assert sorted(rooms) == sorted(FLOORS)


def test_architecture_names_the_top_level_folders() -> None:
    root = PACKAGE.parent
    page = (root / "docs" / "design" / "architecture.md").read_text()
    table = page[page.index("| folder |") :].partition("\n\n")[0]
    named = re.findall(r"^\| `(\w+)`", table, re.MULTILINE)
    here = {path.name for path in root.iterdir() if path.is_dir() and path.name[0] != "."}
    # Made by the build, by Bazel and by Python.
    made = {"build", "__pycache__", "compiler_opt_perf.egg-info"}
    assert set(named) == {name for name in here - made if not name.startswith("bazel-")}


def test_the_package_does_without_benchmarks() -> None:
    wrong = [
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.glob("**/*.py")
        if any(name.partition(".")[0] == "benchmarks" for name in _modules(path))
    ]
    assert not wrong
