# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import math
import xml.etree.ElementTree as ElementTree
from typing import Any

import msgspec
import pytest

from compiler_opt_perf.compare.baseline import (
    Artifact,
    Baseline,
    Detail,
    Environment,
    ProgramRow,
    pack,
)
from compiler_opt_perf.compare.check import CheckResult, Finding, check
from compiler_opt_perf.compare.check_tables import describe, junit, lnt, markdown
from compiler_opt_perf.compare.errors import CompareError
from compiler_opt_perf.compare.limits import DEFAULT, read_limits
from compiler_opt_perf.compare.testing import sample

LIMITS = read_limits(DEFAULT)


def _checked(baseline: dict[str, Any] | None = None, **changes: Any) -> dict[str, Finding]:
    """The findings of level total by metric, of a change in the module p/a."""
    result = check(sample(**(baseline or {})), sample(**changes), LIMITS)
    return {one.metric: one for one in result.findings if one.level == "total"}


def _detail(**changes: Any) -> bytes:
    return pack(Detail(**changes))


@pytest.mark.parametrize(
    ("metric", "changes", "before", "after", "verdict"),
    [
        ("text", {"text": 1032}, 2000, 2032, "same"),
        ("text", {"text": 1033}, 2000, 2033, "worse"),
        ("text", {"text": 967}, 2000, 1967, "better"),
        ("score", {"detail": _detail(scores={"f": 2.0, "g": 1.01})}, 1, None, "worse"),
        ("score", {"detail": _detail(scores={"f": 2.0, "h": 99.0})}, 1, 1, "same"),
        ("memory", {"memory": (81_000, 81_000)}, 80_050, 81_000, "same"),
        ("memory", {"memory": (85_000, 85_000)}, 80_050, 85_000, "worse"),
        ("effort", {"effort": (1.1e6, 1.1e6)}, 2.001e6, 2.1005e6, "worse"),
        # Noisy measurements tell less.
        ("effort", {"effort": (1.02e6, 1.18e6)}, 2.001e6, 2.1005e6, "same"),
        ("instructions", {"instructions": 5.02e6}, 1e7, 1.002e7, "worse"),
        ("instructions", {"instructions": 5.004e6}, 1e7, 1.0004e7, "same"),
        ("cycles", {"cycles": 2.7e6}, 5e6, 5.2e6, "worse"),
        ("unreplayed", {"unreplayed": "too many unmapped blocks"}, 0, 1, "worse"),
        ("with-pmu", {"with_pmu": 1}, 1.0, 0.75, "worse"),
        ("differing", {"differing": 0}, 0.5, 0.25, "worse"),
        ("differing", {"differing": 2}, 0.5, 0.75, "worse"),
        ("stale", {"stale": 1}, 0, 1, "worse"),
        ("fallbacks", {"fallbacks": 1, "warnings": ("x",)}, 0, 1, "worse"),
        ("modes", {"modes": "release and development mode differ"}, 0, 1, "worse"),
        ("nondeterminism", {"objects": ("1", "2")}, 0, 1, "worse"),
    ],
)
def test_each_metric_has_its_limit(
    metric: str, changes: dict[str, Any], before: float, after: float | None, verdict: str
) -> None:
    findings = _checked(**changes)
    found = findings[metric]
    if after is None:
        # Four functions have a ratio, one of them another one.
        after = math.exp(math.log(1.02 / 1.01) / 4)
    assert (found.before, found.verdict) == (before, verdict)
    assert found.after == pytest.approx(after)
    others = {one.metric for one in findings.values() if one.verdict == "worse"}
    assert others == ({metric} if verdict == "worse" else set())


def _with_programs(*programs: ProgramRow) -> Baseline:
    return msgspec.structs.replace(sample(), programs=programs)


def test_linked_text_is_compared_of_programs_that_both_have() -> None:
    before = _with_programs(ProgramRow(name="p", linked=1000), ProgramRow(name="q", linked=10))
    after = _with_programs(ProgramRow(name="p", linked=1065))
    findings = {(one.metric, one.name): one for one in check(before, after, LIMITS).findings}
    total, program = findings["linked", "total"], findings["linked", "p"]
    assert (total.before, total.after, total.verdict) == (1000, 1065, "worse")
    assert (program.allowed, program.verdict) == (64, "worse")
    assert not any(metric == "linked" and "/" in name for metric, name in findings)
    after = _with_programs(ProgramRow(name="p", message="ld.lld: exit status 1"))
    result = check(before, after, LIMITS)
    (unlinked,) = (one for one in result.worse if one.metric == "unlinked")
    assert unlinked.why is not None and unlinked.why.causes[1:] == ("p: ld.lld: exit status 1",)
    assert not any(one.metric == "linked" for one in result.findings)


def test_other_recorded_runs_are_refused() -> None:
    other = _changed(sample(), traces={"p": Artifact("p.bbwindows", "other")})
    with pytest.raises(CompareError, match="by other recorded runs, or for another CPU"):
        check(sample(), other, LIMITS)


def test_what_failed_before_is_no_worse_and_has_no_figures() -> None:
    broken: dict[str, Any] = {"status": "failed", "message": "clang: exit status 1", "text": 0}
    findings = _checked(**broken)
    assert findings["failures"].before == 1 and findings["failures"].after == 2
    # The module is in neither sum.
    assert findings["text"].before == findings["text"].after == 1000
    assert _checked(broken)["failures"].verdict == "better"
    assert _checked(broken, **broken)["failures"].verdict == "same"
    assert _checked(**{**broken, "status": "crashed"})["crashes"].verdict == "worse"


def _changed(baseline: Baseline, **changes: Any) -> Baseline:
    setup = msgspec.structs.replace(baseline.setup, **changes)
    return msgspec.structs.replace(baseline, setup=setup)


def test_causes_tell_what_is_known() -> None:
    other = Artifact("elsewhere", "9", "q, build-id 13")
    candidate = _changed(sample(with_pmu=0, warnings=("it knows only 2",)), profiles={"p": other})
    result = check(sample(), candidate, LIMITS)
    (why,) = (one.why for one in result.worse if one.name == "total" and one.metric == "with-pmu")
    assert why is not None
    assert why.causes == (
        "changed: profile of p",
        "the profile of p is of another program: it was collected of 'q', that of the baseline of "
        "'p'",
        "the compiler warns: it knows only 2",
    )
    # The same inputs elsewhere.
    moved = msgspec.structs.replace(
        sample(text=2000), environment=Environment("", "another CPU", 2, "Linux 6", "1.0")
    )
    why = check(sample(), moved, LIMITS).worse[0].why
    assert why is not None
    assert why.causes == (
        "compiler, policy and profiles are those of the baseline; it was measured elsewhere: "
        "machine another CPU, before a CPU",
    )


def _worse() -> CheckResult:
    detail = Detail({"f": 900, "_Z3newv": 300}, {"f": 2.0}, {"f g f.0 - #0": 0, "f h ? - #0": 0})
    text: dict[str, Any] = {"text": 1200, "detail": pack(detail), "modes": "a|b \x1b[31m<c>"}
    return check(sample(), _changed(sample(**text), policy=Artifact("m", "5")), LIMITS)


def test_functions_and_decisions_of_what_grew_are_named() -> None:
    (text,) = (one for one in _worse().worse if (one.metric, one.name) == ("text", "p/a"))
    assert text.why is not None
    grown = [(one.function, one.before, one.after) for one in text.why.functions]
    assert grown == [("_Z3newv", 0, 300), ("f", 600, 900)]
    assert text.why.differing == 1
    (decision,) = text.why.decisions
    assert (decision.key, decision.before, decision.after) == ("f g f.0 - #0", 1, 0)


def test_copies_in_several_modules_are_named_once() -> None:
    """An inline function that grows in all modules does not take the others' place."""
    grown = Detail({"f": 900, "g": 450}, {}, {"f g f.0 - #0": 0, "f h ? - #0": 1})
    candidate = sample(text=1200, detail=pack(grown))
    rows = [
        msgspec.structs.replace(row, text=1200, detail=pack(grown)) if row.is_ok else row
        for row in candidate.modules
    ]
    result = check(sample(), msgspec.structs.replace(candidate, modules=tuple(rows)), LIMITS)
    (text,) = (one for one in result.worse if (one.metric, one.name) == ("text", "total"))
    assert text.why is not None
    assert [(one.module, one.function) for one in text.why.functions] == [
        ("p/a", "f"),
        ("p/a", "g"),
    ]
    assert text.why.further == (2, 350)
    assert text.why.differing == 4
    assert [one.key for one in text.why.decisions] == ["f g f.0 - #0", "f h ? - #0"]


@pytest.mark.compiler
def test_the_table_shows_what_is_worse_and_why() -> None:
    shown = describe(_worse())
    assert "regalloc-evict, 3 modules: worse in 5 of the limits" in shown
    assert "Changed against the baseline: policy." in shown
    assert "text: +200 (+10.00%), allowed 32" in shown
    assert "p/a: new(): 0 bytes -> 300 bytes" in shown
    assert "decisions taken otherwise: 1, 1 of them:" in shown
    assert "p/a: g in f, call 0: candidate 0, in the baseline candidate 1" in shown
    # Which policy it is, and once what several findings have in common.
    assert shown.count("m (SHA-256 5)") == shown.count("decisions taken otherwise") == 1
    assert shown.startswith("changed: policy: m (SHA-256 5); in the baseline ")
    assert "a|b \N{REPLACEMENT CHARACTER}[31m<c>" in shown and "\x1b" not in shown


@pytest.mark.parametrize(
    ("before", "after", "answer"),
    [
        (
            2,
            0,
            "The candidate's policy decides as the default does: none of its decisions differs, ",
        ),
        (0, 2, "The baseline's policy decided as the default does; 100.00% of the candidate's dec"),
        (2, 1, None),
        (0, 0, None),
    ],
)
def test_the_answer_comes_first(before: int, after: int, answer: str | None) -> None:
    """9.26% -> 0.00% says nothing to who has not read what is counted."""
    sides = [
        msgspec.structs.replace(
            sample(),
            modules=tuple(
                msgspec.structs.replace(run, differing=differing) for run in sample().modules
            ),
        )
        for differing in (before, after)
    ]
    result = check(sides[0], sides[1], LIMITS)
    for shown in (describe(result), markdown(result).split("\n", 2)[2]):
        if answer is None:
            assert "as the default does" not in shown
        else:
            assert shown.replace("\\", "").startswith(answer)


@pytest.mark.compiler
def test_long_names_are_whole_and_further_functions_are_counted() -> None:
    name = "_ZN" + "".join(f"{len(part)}{part}" for part in ["namespace_" + "x" * 90, "f"]) + "Ev"
    functions = {f"f{number}": 700 - number for number in range(9)}
    key = f"{name} g {name}.3 - #0"
    before = pack(Detail({"f0": 600}, {}, {key: 1}))
    detail = pack(Detail({**functions, name: 2000}, {}, {key: 0}))
    result = check(sample(detail=before), sample(text=9000, detail=detail), LIMITS)
    shown = describe(result)
    assert f"g in namespace_{'x' * 90}::f(), call 3: candidate 0, in the baseline" in shown
    assert f"namespace_{'x' * 90}::f(): 0 bytes -> 2,000 bytes" in shown
    # f1 to f4 are shown, and the one with the long name; f0 grew by 100 bytes only.
    assert "5 other functions are worse, too, by 2,874 bytes together" in shown


@pytest.mark.compiler
def test_markdown_escapes_what_it_shows() -> None:
    shown = markdown(_worse())
    rows = [line for line in shown.splitlines() if line.startswith("|")]
    assert all(line.replace(r"\|", "").count("|") == 8 for line in rows)
    assert r"- a\|b" in shown and r"\[31m\<c\>" in shown


@pytest.mark.compiler
def test_junit_has_a_case_for_each_limit() -> None:
    suite = ElementTree.fromstring(junit(_worse()))
    failed = {(case.get("classname"), case.get("name")) for case in suite if len(case)}
    assert {("gate.text", "total"), ("gate.text", "p"), ("gate.modes", "p/a")} < failed
    assert suite.get("failures") == str(len(failed)) == "5"
    (modes,) = (
        case[0] for case in suite if case.get("name") == "p/a" and "modes" in str(case.attrib)
    )
    assert "<c>" in str(modes.text)


def test_other_modules_or_problems_are_refused() -> None:
    with pytest.raises(CompareError, match="on other modules than the baseline"):
        check(sample(), sample(digest="other"), LIMITS)
    with pytest.raises(CompareError, match="decides inline-size, the baseline regalloc-evict"):
        check(sample(), _changed(sample(), problem="inline-size"), LIMITS)


@pytest.mark.parametrize(
    ("effort", "compiler", "revision", "seconds"),
    [
        ("time", "clang version 22.1.8 (Debian)", "22.1.8-20261123120000", [1e6, 1.001e6]),
        ("qemu", "clang version 22", "22-20261123120000", None),
        ("none", "a compiler", "0-20261123120000", None),
    ],
)
def test_a_report_for_lnt(effort: Any, compiler: str, revision: str, seconds: Any) -> None:
    measured = sample()
    artifact = msgspec.structs.replace(measured.setup.compiler, is_of=compiler)
    setup = msgspec.structs.replace(measured.setup, effort=effort, compiler=artifact)
    report = lnt(msgspec.structs.replace(measured, setup=setup))
    assert report["format_version"] == "2"
    assert report["machine"] == {"name": "a CPU", "os": "Linux 6"}
    run = report["run"]
    assert run["llvm_project_revision"] == revision
    assert run["start_time"] == run["end_time"] == "2026-11-23T12:00:00"
    first, _, failed = report["tests"]
    assert first.pop("compile_time", None) == seconds
    assert first == {
        "name": "regalloc-evict/p/a",
        "compile_status": 0,
        "code_size": 1000,
        "mem_bytes": [1024 * 80_000, 1024 * 80_100],
    }
    assert failed == {"name": "regalloc-evict/q/c", "compile_status": 1}
