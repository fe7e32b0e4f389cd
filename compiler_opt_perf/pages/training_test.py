# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import pytest

from compiler_opt_perf.compare.testing import DIFFERENCES, write_imitation, write_search
from compiler_opt_perf.compare.training_run import read_run
from compiler_opt_perf.pages.training import write_page


@pytest.mark.compiler
def test_the_page_of_a_training_on_labels(tmp_path: Path) -> None:
    write_imitation(tmp_path / "run")
    run = read_run(tmp_path / "run")
    for name in ("a.html", "b.html"):
        write_page(run, DIFFERENCES, tmp_path / name)
    page = (tmp_path / "a.html").read_text()
    assert page == (tmp_path / "b.html").read_text()
    # Curve and histogram; results, three tables of differences, and settings.
    assert (page.count("<svg"), page.count("<table>")) == (2, 5)
    assert "half(int) in twice(int), call 7 of" not in page
    assert "main in twice(int), call 7 of half(int), twice:2&lt;half:1, #1" in page
    assert "q/c is left out: clang: exit status 1" in page
    assert "<td>seed</td><td>3</td>" in page
    assert "1 decisions are better taken the other way" in page


@pytest.mark.parametrize("ended", [True, False])
def test_the_page_of_a_search(tmp_path: Path, ended: bool) -> None:
    write_search(tmp_path)
    if not ended:
        (tmp_path / "training.json").unlink()
    write_page(read_run(tmp_path), None, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert ("not ended" in page, page.count("<svg"), page.count("<table>")) == (not ended, 1, 1)
    assert "Not compared; <code>--corpus</code> names" in page
    # What is no cost is not drawn as one.
    assert "candidates_failed 0" in page and "candidates_failed -->" not in page
    (tmp_path / "curve.jsonl").unlink()
    write_page(read_run(tmp_path), None, tmp_path / "page.html")
    assert "Nothing was measured yet." in (tmp_path / "page.html").read_text()
