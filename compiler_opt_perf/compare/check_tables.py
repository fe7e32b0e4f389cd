# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reports of a check: tables for terminals, Markdown for a pull request, files for build bots."""

import datetime
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from typing import Any

from compiler_opt_perf.compare.baseline import Baseline
from compiler_opt_perf.compare.check import CheckResult, Finding
from compiler_opt_perf.compare.decision_names import decided, names_in, place
from compiler_opt_perf.compare.metrics import SHARE
from compiler_opt_perf.run import table
from compiler_opt_perf.run.symbol_names import demangled, printable, shortened

# Columns of a name in the source; its least telling parts are left out first.
_NAME_WIDTH = 160
_MOST_ROWS = 20
_MOST_REASONS = 8
_COLUMNS = ("", "metric", "baseline", "candidate", "change", "allowed", "")
_NUMBERS = range(2, 6)


def value(number: float, unit: str, *, signed: bool = False) -> str:
    """A value as people read it."""
    sign = "+" if signed else ""
    if unit == SHARE:
        return f"{100 * number:{sign}.2f}%"
    if unit == "ratio":
        return f"{number:{sign}.4f}"
    if unit == "seconds":
        return f"{number:{sign}.3f} s"
    return f"{number:{sign},.0f}"


def _change(finding: Finding) -> str:
    change = value(finding.after - finding.before, finding.unit, signed=True)
    if finding.unit in (SHARE, "ratio") or not finding.before:
        return change
    return f"{change} ({100 * (finding.after / finding.before - 1):+.2f}%)"


def _cells(finding: Finding) -> list[str]:
    allowed = "" if finding.allowed is None else value(finding.allowed, finding.unit)
    return [
        printable(finding.name),
        finding.metric,
        value(finding.before, finding.unit),
        value(finding.after, finding.unit),
        _change(finding),
        allowed,
        "" if finding.verdict == "shown" else finding.verdict,
    ]


def headline(result: CheckResult) -> str:
    """One sentence."""
    of = f"{result.problem}, {result.modules:,} modules"
    changed = ", ".join(result.changed) or "nothing"
    verdict = f"worse in {len(result.worse)} of the limits" if result.worse else "passes"
    return f"{of}: {verdict}. Changed against the baseline: {changed}."


def answers(result: CheckResult) -> list[str]:
    """A sentence on a policy that decides as the default does, on one side only."""
    totals = {one.metric: one for one in result.findings if one.level == "total"}
    differing = totals.get("differing")
    if differing is None or bool(differing.before) == bool(differing.after):
        return []
    before, after = (value(one, SHARE) for one in (differing.before, differing.after))
    if differing.before:
        return [
            "The candidate's policy decides as the default does: none of its decisions differs, "
            f"in the baseline {before} did."
        ]
    return [
        f"The baseline's policy decided as the default does; {after} of the candidate's decisions "
        "differ."
    ]


def _rows(result: CheckResult) -> list[Finding]:
    """Totals, then programs and modules that are worse, then those that are better."""
    totals = [one for one in result.findings if one.level == "total"]
    others = [
        one
        for verdict in ("worse", "better")
        for one in result.findings
        if one.level != "total" and one.verdict == verdict
    ]
    return totals + others[:_MOST_ROWS]


def describe(result: CheckResult) -> str:
    """Tables for a terminal, and why something is worse."""
    lines = [*answers(result), *(f"changed: {printable(one)}" for one in result.changes)]
    lines += [""] * bool(lines)
    lines.append(table.terminal(_COLUMNS, map(_cells, _rows(result)), _NUMBERS).rstrip("\n"))
    for title, reasons in _first_reasons(result):
        lines += ["", title, *(f"  {reason}" for reason in reasons)]
    return "\n".join([*lines, "", headline(result)]) + "\n"


def _first_reasons(result: CheckResult) -> list[tuple[str, list[str]]]:
    """Titles and reasons of the first findings that are worse.

    Modules are left out where a program or the total has the same metric. A reason that several
    findings have stands once.
    """
    known = {one.metric for one in result.worse if one.level != "module"}
    told = [one for one in result.worse if one.level != "module" or one.metric not in known]
    reasons = []
    said: set[str] = set()
    for title, lines in _reasons(told[:_MOST_REASONS], result.problem):
        new = [line for line in lines if line not in said]
        said |= set(lines)
        reasons.append((title, new or ["as above"]))
    more = len(result.worse) - len(reasons)
    if more > 0:
        reasons.append((f"and {more} more, which --json and --junit have", []))
    return reasons


def markdown(result: CheckResult) -> str:
    """The same for a comment on a pull request."""
    said = [*answers(result), *(f"Changed: {printable(one)}" for one in result.changes)]
    parts = [f"**{table.literal(headline(result))}**", *map(table.literal, said)]
    rows = map(_cells, _rows(result))
    parts.append(table.markdown(_COLUMNS, rows, _NUMBERS, escaped=True).rstrip("\n"))
    for title, reasons in _first_reasons(result):
        parts.append(f"**{table.literal(title)}**")
        parts.append("\n".join(f"- {table.literal(reason.strip())}" for reason in reasons))
    return "\n\n".join(parts) + "\n"


def junit(result: CheckResult) -> str:
    """The same as JUnit's XML, a test case for each limit."""
    suite = ElementTree.Element("testsuite", name="cop gate")
    judged = [one for one in result.findings if one.verdict != "shown"]
    suite.set("tests", str(len(judged)))
    suite.set("failures", str(len(result.worse)))
    reasons = _reasons(result.worse, result.problem)
    for one in judged:
        name = printable(one.name)
        case = ElementTree.SubElement(suite, "testcase", classname=f"gate.{one.metric}", name=name)
        if one.verdict == "worse":
            title, lines = next(reasons)
            ElementTree.SubElement(case, "failure", message=title).text = "\n".join(lines)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def lnt(measured: Baseline) -> dict[str, Any]:
    """A report for LNT's server, version 2, with the metrics of its default suite "nts".

    A test is the compilation of a module. LNT sorts runs by the compiler's version, then the date.
    """
    setup, environment = measured.setup, measured.environment
    date = datetime.datetime.fromisoformat(environment.date).replace(tzinfo=None)
    version = re.search(r"version (\d[\d.]*)", setup.compiler.is_of)
    tests = []
    for module in measured.modules:
        test: dict[str, Any] = {"name": f"{setup.problem}/{module.name}"}
        test["compile_status"] = int(not module.is_ok)
        if module.is_ok:
            test["code_size"] = module.text
            test["mem_bytes"] = [1024 * kibibytes for kibibytes in module.memory]
            if setup.effort == "time":
                test["compile_time"] = list(module.effort)
        tests.append(test)
    return {
        "format_version": "2",
        "machine": {"name": environment.machine, "os": environment.system},
        "run": {
            "start_time": date.isoformat(timespec="seconds"),
            "end_time": date.isoformat(timespec="seconds"),
            "llvm_project_revision": f"{version[1] if version else '0'}-{date:%Y%m%d%H%M%S}",
            "compiler_version": setup.compiler.is_of,
            "policy": setup.policy.digest,
        },
        "tests": tests,
    }


def _title(finding: Finding) -> str:
    of = "" if finding.level == "total" else f" of {printable(finding.name)}"
    allowed = value(finding.allowed or 0.0, finding.unit)
    return f"{finding.metric}{of}: {_change(finding)}, allowed {allowed}"


def _reasons(findings: Sequence[Finding], problem: str) -> Iterator[tuple[str, list[str]]]:
    """For each finding that is worse, its title and why it is so."""
    keys = [change.key for one in findings if one.why for change in one.why.decisions]
    places = names_in(keys, _NAME_WIDTH)
    names = [change.function for one in findings if one.why for change in one.why.functions]
    shown = demangled(list(dict.fromkeys(names)))
    for one in findings:
        reason = one.why
        if reason is None:
            continue
        lines = [printable(cause) for cause in reason.causes]
        lines += [
            f"{printable(c.module)}: {shortened(shown[c.function], _NAME_WIDTH)}: "
            f"{_size(c.before, one)} -> {_size(c.after, one)}"
            for c in reason.functions
        ]
        number, grown = reason.further
        if number:
            by = f", by {_size(grown, one)} together" if grown else ""
            lines.append(f"{number:,} other functions are worse, too{by}")
        if reason.differing:
            shown_of = f", {len(reason.decisions)} of them:" if reason.decisions else ""
            lines.append(f"decisions taken otherwise: {reason.differing:,}{shown_of}")
        lines += [
            f"  {printable(c.module)}: {printable(place(c.key, places))}: "
            f"{decided(problem, c.after)}, in the baseline {decided(problem, c.before)}"
            for c in reason.decisions
        ]
        yield _title(one), lines


def _size(number: float, finding: Finding) -> str:
    return f"{number:,.2f}" if finding.metric == "score" else f"{number:,.0f} {finding.unit}"
