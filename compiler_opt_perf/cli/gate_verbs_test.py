# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The gate as a build bot uses it: what passes, and what is caught, with its cause."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from compiler_opt_perf.cli.gate_verbs import EXIT_WORSE
from compiler_opt_perf.cli.main import run
from compiler_opt_perf.compare import record as recording
from compiler_opt_perf.compare.baseline import read_baseline
from compiler_opt_perf.compare.limits import DEFAULT, read_limits
from compiler_opt_perf.compare.testing import (
    corpus_of,
    failing_toolchain,
    profile_of,
    write_program,
)
from compiler_opt_perf.run.memo import note
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT

pytestmark = pytest.mark.compiler

MODELS = REPO_ROOT / "lit_tests" / "Inputs"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> Path:
    """A program with a baseline: `inline-default` decides as the policy in the toolchain does."""
    folder = tmp_path_factory.mktemp("gate")
    sources = write_program(folder / "p")
    corpus = corpus_of(sources, toolchain, "p")
    profile = profile_of(sources, toolchain, "p")
    words = ["gate", "record", f"--corpus={corpus / 'train'}", f"--corpus={corpus / 'held_out'}"]
    words += ["--problem=inline-size", f"--model={MODELS / 'inline-default'}"]
    words += [f"--toolchain={toolchain.directory}", f"--release-toolchain={toolchain.directory}"]
    words += [f"--profile=p={profile}", "--compile-time=none", "--repetitions=2", "--workers=1"]
    assert run([*words, f"--output={folder / 'baseline.json'}"]) == 0
    return folder


def _check(
    folder: Path, capsys: pytest.CaptureFixture[str], *flags: str
) -> tuple[int, dict[str, Any]]:
    """The exit status, and what is said as JSON."""
    capsys.readouterr()
    words = ["gate", "check", str(folder / "baseline.json"), "--json", "--workers=1"]
    status = run([*words, *flags])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (document["verdict"] == "worse") == (status == EXIT_WORSE)
    return status, document


def _worse(document: dict[str, Any]) -> dict[str, list[str]]:
    """Metrics whose total is worse, with their causes."""
    return {
        one["metric"]: one["why"]["causes"]
        for one in document["findings"]
        if one["verdict"] == "worse" and one["level"] == "total"
    }


def test_a_good_candidate_passes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = {name: folder / f"good.{name}" for name in ("junit", "markdown", "measured")}
    flags = [f"--{name}={path}" for name, path in written.items()]
    status, document = _check(folder, capsys, *flags)
    assert (status, document["changed"], _worse(document)) == (0, [], {})
    totals = {one["metric"]: one for one in document["findings"] if one["level"] == "total"}
    assert totals["decisions"]["after"] == 24 and totals["with-pmu"]["after"] == 1.0
    assert totals["modes"]["verdict"] == totals["nondeterminism"]["verdict"] == "same"
    suite = ElementTree.parse(written["junit"]).getroot()
    assert int(suite.get("tests", "0")) == len(suite) > 15 and suite.get("failures") == "0"
    assert "**inline-size, 3 modules: passes." in written["markdown"].read_text()
    measured, baseline = read_baseline(written["measured"]), read_baseline(folder / "baseline.json")
    assert [one.detail for one in measured.modules] == [one.detail for one in baseline.modules]
    assert not list(folder.glob("*.work"))


def test_a_worse_policy_is_caught(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = folder / "worse.xml"
    model = MODELS / "inline-one-block"
    files = (f"--junit={report}", f"--lnt={folder / 'lnt.json'}")
    status, document = _check(folder, capsys, f"--model={model}", *files)
    assert status == EXIT_WORSE
    tests = json.loads((folder / "lnt.json").read_text())["tests"]
    assert "inline-size/p/add" in [one["name"] for one in tests if one["code_size"]]
    worse = _worse(document)
    # The policy in the toolchain is the old one.
    assert worse.keys() == {"text", "linked", "differing", "modes"}
    assert worse["text"] == worse["linked"] == ["changed: policy"]
    (text,) = (
        one for one in document["findings"] if (one["metric"], one["name"]) == ("text", "p/add")
    )
    why = text["why"]
    grown = sum(one["after"] - one["before"] for one in why["functions"])
    assert grown > 0 and all(one["function"].startswith("step_add") for one in why["functions"])
    assert why["differing"] == 12
    assert why["decisions"][0]["key"].startswith("step_all_add step_add0 ")
    assert (why["decisions"][0]["before"], why["decisions"][0]["after"]) == (1, 0)
    suite = ElementTree.parse(report).getroot()
    failed = [case.get("classname") for case in suite if len(case)]
    assert suite.get("failures") == str(len(failed)) and "gate.text" in failed


def test_a_model_that_the_compiler_fails_with_is_caught(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = MODELS / "inline-unknown-feature"
    status, document = _check(folder, capsys, f"--model={model}")
    worse = _worse(document)
    assert status == EXIT_WORSE and set(worse) == {"failures"}
    assert worse["failures"][0] == "changed: policy"
    assert worse["failures"][1].startswith("p/add: clang: exit status 1; error: cannot use the mod")


def test_what_a_baseline_lacks_is_told(
    folder: Path, toolchain: Toolchain, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpora = read_baseline(folder / "baseline.json").setup.corpora
    words = ["gate", "record", *(f"--corpus={one}" for one in corpora), "--problem=inline-size"]
    words += [f"--toolchain={toolchain.directory}", "--compile-time=none", "--workers=1"]
    words.append(f"--output={tmp_path / 'baseline.json'}")
    assert run([*words, f"--model={MODELS / 'inline-unknown-feature'}"]) == 1
    shown = capsys.readouterr().err
    assert "none of the 3 modules compiles" in shown and "; p/add: clang: exit status 1;" in shown
    assert not (tmp_path / "baseline.json").exists()
    assert run([*words, f"--model={MODELS / 'inline-crash'}"]) == 0
    shown = capsys.readouterr().out
    assert "3 modules, 1 of which do not compile\nthe first of these, p/mix: clang: en" in shown


def test_a_model_that_crashes_the_compiler_on_one_module_is_caught(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, document = _check(folder, capsys, f"--model={MODELS / 'inline-crash'}")
    worse = _worse(document)
    assert status == EXIT_WORSE and set(worse) == {"crashes"}
    assert worse["crashes"][0] == "changed: policy"
    assert worse["crashes"][1].startswith("p/mix: clang: ended by SIGFPE")
    assert len(worse["crashes"]) == 2


def test_a_compiler_that_crashes_or_hangs_on_one_module_is_caught(
    folder: Path, toolchain: Toolchain, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = "*mix.bc*) kill -SEGV $$ ;;\n*main.bc*) sleep 100 ;;"
    broken = failing_toolchain(tmp_path / "broken", toolchain, cases)
    baseline = json.loads((folder / "baseline.json").read_text())
    baseline["setup"]["timeout_s"] = 6.0
    (tmp_path / "baseline.json").write_text(json.dumps(baseline))
    status, document = _check(tmp_path, capsys, f"--toolchain={broken}")
    worse = _worse(document)
    assert status == EXIT_WORSE and set(worse) == {"crashes", "timeouts"}
    assert worse["crashes"][0] == worse["timeouts"][0] == "changed: compiler"
    assert worse["crashes"][1].startswith("p/mix: clang: ended by SIGSEGV")
    assert worse["timeouts"][1].startswith("p/main: clang: killed after its limit of 6 s")
    # What is left can still be compared.
    (text,) = (
        one for one in document["findings"] if (one["metric"], one["name"]) == ("text", "total")
    )
    assert text["before"] == text["after"] > 0


def test_a_compiler_that_is_not_deterministic_is_caught(
    folder: Path, toolchain: Toolchain, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Each second compilation of a module has a smaller alignment of functions.
    seen = tmp_path / "seen"
    cases = (
        f'*add.bc*) if [ -e {seen} ]; then set -- "$@" -mllvm -align-all-functions=5; fi;'
        f" : > {seen} ;;"
    )
    broken = failing_toolchain(tmp_path / "broken", toolchain, cases)
    status, document = _check(folder, capsys, f"--toolchain={broken}")
    worse = _worse(document)
    assert status == EXIT_WORSE and "nondeterminism" in worse
    assert worse["nondeterminism"][1] == "p/add: 2 different object files of the same compilation"


def test_modes_that_differ_are_caught(
    folder: Path, toolchain: Toolchain, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # In release mode, one module is compiled as if the policy were none.
    cases = (
        "*-enable-ml-inliner=release*mix.bc*)\n"
        f'  exec "{toolchain.clang}" "$@" -mllvm -enable-ml-inliner=default ;;'
    )
    release = failing_toolchain(tmp_path / "release", toolchain, cases)
    status, document = _check(folder, capsys, f"--release-toolchain={release}")
    worse = _worse(document)
    assert status == EXIT_WORSE and set(worse) == {"modes"}
    assert worse["modes"][0] == "changed: release compiler"
    assert worse["modes"][1].startswith("p/mix: ") and len(worse["modes"]) == 2


def test_a_profile_of_another_program_is_caught(
    folder: Path, toolchain: Toolchain, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = profile_of(write_program(tmp_path / "q", name="other"), toolchain, "q")
    status, document = _check(folder, capsys, f"--profile=p={profile}")
    worse = _worse(document)
    assert status == EXIT_WORSE and set(worse) == {"with-pmu"}
    assert worse["with-pmu"] == [
        "changed: profile of p",
        "the profile of p is of another program: it was collected of 'q', that of the baseline of "
        "'p'",
    ]


def test_a_stale_profile_is_caught(
    folder: Path, toolchain: Toolchain, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edited = write_program(tmp_path / "p", edit="if (x > 40) t[1] ^= x;")
    profile = profile_of(edited, toolchain, "p")
    status, document = _check(folder, capsys, f"--profile=p={profile}")
    worse = _worse(document)
    assert status == EXIT_WORSE and set(worse) == {"stale"}
    assert worse["stale"] == [
        "changed: profile of p",
        "the profile is stale: 2 functions have changed since it was collected, 0 with that of the "
        "baseline; collect it again",
    ]


def test_limits_are_printed_to_be_changed(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["gate", "limits"]) == 0
    path = tmp_path / "limits.toml"
    path.write_text(capsys.readouterr().out)
    assert read_limits(path) == read_limits(DEFAULT)
    # One metric alone: the others are shown, and not judged.
    path.write_text("[modes]\ntotal = {}\n")
    model = MODELS / "inline-one-block"
    status, document = _check(folder, capsys, f"--limits={path}", f"--model={model}")
    assert status == EXIT_WORSE and set(_worse(document)) == {"modes"}
    shown = {one["metric"] for one in document["findings"] if one["verdict"] == "shown"}
    assert "text" in shown


def test_the_compilers_work_is_measured(
    folder: Path, toolchain: Toolchain, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["gate", "record", f"--corpus={folder / 'p/corpus/held_out'}", "--problem=inline-size"]
    words += [f"--model={MODELS / 'inline-default'}", f"--toolchain={toolchain.directory}"]
    words += ["--compile-time=processor-time", "--repetitions=2", "--workers=1"]
    assert run([*words, f"--output={tmp_path / 'baseline.json'}"]) == 0
    (mix,) = read_baseline(tmp_path / "baseline.json").modules
    assert len(mix.effort) == 7 and all(mix.effort)
    # A clock's noise has no bound: here it is shown, and not judged.
    (tmp_path / "limits.toml").write_text("[text]\ntotal = {}\n")
    status, document = _check(tmp_path, capsys, f"--limits={tmp_path / 'limits.toml'}")
    assert status == 0
    (effort,) = (
        one for one in document["findings"] if (one["metric"], one["level"]) == ("effort", "total")
    )
    assert (effort["unit"], effort["verdict"]) == ("seconds", "shown")
    assert effort["after"] > 0


def test_other_modules_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # One of the two corpora.
    words = ["gate", "check", str(folder / "baseline.json")]
    assert run([*words, f"--corpus={folder / 'p' / 'corpus' / 'held_out'}"]) == 1
    assert "2 modules of the corpora are not those of the baseline (p/add, p/main): name its " in (
        capsys.readouterr().err
    )


def test_an_interrupted_check_goes_on(
    folder: Path,
    toolchain: Toolchain,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = tmp_path / "calls"
    counting = failing_toolchain(tmp_path / "counting", toolchain, f"*.bc*) echo >> {calls} ;;")
    words = ["gate", "check", str(folder / "baseline.json"), f"--toolchain={counting}"]
    words += [f"--work={tmp_path / 'work'}", "--workers=1"]
    written: list[Path] = []

    def interrupted(path: Path, *rest: Any) -> Any:
        noted = note(path, *rest)
        written.append(path)
        if len(written) == 2:
            raise KeyboardInterrupt
        return noted

    monkeypatch.setattr(recording, "note", interrupted)
    assert run(words) == 130
    assert len(list((tmp_path / "work").glob("*.json"))) == 2
    monkeypatch.setattr(recording, "note", note)
    calls.write_text("")
    assert run(words) == 0
    # One module is left: two compilations, and one in development mode to compare modes.
    assert calls.read_text() == "\n" * 3
    assert not (tmp_path / "work").exists()
