# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the demo in miniature: all its steps on smaller programs, so that it cannot rot unseen."""

import subprocess
from pathlib import Path

import pytest

from compiler_opt_perf.toolchain.installation import Toolchain

# Divisions in a chain take long: the run is long enough to be timed with few instructions, and so
# quickly simulated.
_PROGRAM = """
#include <cstdio>
#include <cstdlib>
static double share(double x, double whole) { return whole / (whole / x + 1); }
static double fold(double x, double whole) {
  return share(share(share(share(share(x, whole), whole), whole), whole), whole);
}
int main(int, char **argv) {
  double sum = 0, whole = std::atof(argv[1]);
  for (int i = 0; i < 6000000; ++i)
    sum = fold(sum + i, whole);
  std::printf("%g\\n", sum);
}
"""
_RECIPE = """
seed = 1
hidden = [8]
margin = 1.0
copies = true
[programs]
training = ["minisat"]
validation = ["tinyxml"]
test = ["jsoncpp"]
[[stages]]
algorithm = "labels"
iterations = 1
sites = 4
steps = 50
"""


@pytest.mark.compiler
@pytest.mark.long(40)
def test_the_demo_shows_each_gain_and_goes_on(
    repo_root: Path, toolchain: Toolchain, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "program.cpp").write_text(_PROGRAM)
    (tmp_path / "recipe.toml").write_text(_RECIPE)
    variables = {
        "OUT": tmp_path / "demo",
        "TREE": tree,
        "DEV": toolchain.directory.name,
        # Its own: a test that runs beside this one may build others with other policies inside.
        "RELEASE": "demo-test",
        "SOURCES": "program.cpp",
        "COMPILE": "",
        "PROGRAM": "program",
        "RUN": "./program 1234567890123",
        "RUN2": "./program 98765432109",
        "ROUNDS": 6,
        "UNSEEN": "tinyxml",
        "RECIPE": tmp_path / "recipe.toml",
    }
    command = ["make", "-f", "tools/demo.mk", *(f"{key}={one}" for key, one in variables.items())]

    def run() -> str:
        done = subprocess.run(command, cwd=repo_root, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    shown = run()
    for figure in ("instructions", "by flags: 1", "tinyxml", "jsoncpp"):
        assert figure in shown
    page = (tmp_path / "demo" / "report.html").read_text()
    titles = ("Profile of program", "Builds of tree", "inline-size", "Training of a policy")
    places = [page.index(f"<h2>{title}") for title in titles]
    assert places == sorted(places)
    assert page.count("<table>") == page.count("<svg") == len(titles)
    # Nothing is left to do.
    again = run()
    assert "Training" not in again and "Done" in again
