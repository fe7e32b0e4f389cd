# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A folder that shows by itself what made a module worse."""

import dataclasses
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from compiler_opt_perf.compare.bisect import FAILURES, Bisection, InputTrial, Question
from compiler_opt_perf.compare.subject import REPLAYED, Subject, warning
from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.cost.evaluator import EVALUATORS, REPLAY_FLAGS, TraceReplay
from compiler_opt_perf.policy.problem import decision_lines, for_clang
from compiler_opt_perf.run.content import manifest_files
from compiler_opt_perf.run.files import (
    atomic_directory,
    copy_folder,
    make_executable,
    require_file,
)

_SCRIPT = "reproduce.sh"
_CPU = "cpu.json"
_FILES = """
| file | content |
|---|---|
| `reproduce.sh` | compiles both and compares; {variables} name other tools |
| `module.bc` | the module; with `module.thinlto.bc` if it is of a ThinLTO build |
| `baseline`, `candidate` | of each side: `model`, the policy; `profile`, if there is one; \
`decisions`, if they are given (`-mlgo-decisions`) |
| `run`, `cpu.json` | the recorded run that `TRACE_COST` replays, if there is one |
"""
# Where llvm-trace-cost reports a metric.
_REPORTED = {"instructions": "['instructions']", "cycles": "['cycles']['total']"}


@dataclass(frozen=True)
class Side:
    """One of the two compilations that are compared.

    Attributes:
      name: of its folder.
      subject: compiler, policy and profile.
      decisions: by key, those that are not left to the policy.
    """

    name: str
    subject: Subject
    decisions: Mapping[str, int] = field(default_factory=dict)


def write_decisions(found: Bisection, candidate: Subject, output: Path) -> None:
    """Writes a folder with the decisions that make a module worse.

    Raises:
      FileWriteError: it cannot be written, or holds other files.
      OSError: the policy's folder, or the profile's, holds a symbolic link.
    """
    sides = [
        Side("baseline", candidate, found.baseline),
        Side("candidate", candidate, {**found.baseline, **found.causes}),
    ]
    question = found.question
    lines = [
        f"The two take {found.differing} decisions ({candidate.problem.name}) differently.",
        "",
        summary(found),
        "",
        "The decisions, by key, with the baseline's and the candidate's:",
        "",
        "```text",
        *(f"{found.baseline[key]} -> {value} {key}" for key, value in found.causes.items()),
        "```",
    ]
    _write(question, found.after, sides, lines, output)


def write_inputs(question: Question, before: InputTrial, after: InputTrial, output: Path) -> None:
    """Writes a folder with the input, or the compiler, that makes a module worse.

    Raises:
      FileWriteError: it cannot be written, or holds other files.
    """
    sides = [Side("baseline", before.subject), Side("candidate", after.subject)]
    lines = [f"Worse by this alone: {after.what}. `baseline` is: {before.what}."]
    _write(question, after.value, sides, lines, output)


def _write(
    question: Question, after: float, sides: Sequence[Side], lines: Sequence[str], output: Path
) -> None:
    module, metric = question.module, question.metric
    with atomic_directory(output, ours=lambda path: (path / _SCRIPT).is_file()) as folder:
        for path, name in zip(module.inputs, ("module.bc", "module.thinlto.bc"), strict=False):
            require_file(path)
            shutil.copyfile(path, folder / name)
        for side in sides:
            copy_folder(side.subject.model, folder / side.name / "model")
            profile = side.subject.profiles.of(module.program)
            if profile is not None:
                (folder / side.name / "profile").mkdir()
                for path in manifest_files(profile):
                    shutil.copyfile(path, folder / side.name / "profile" / path.name)
            if side.decisions:
                (folder / side.name / "decisions").write_text(decision_lines(side.decisions))
        candidate = sides[1].subject
        if metric.name in REPLAYED:
            shutil.copyfile(candidate.traces[module.program], folder / _run(candidate, module))
            if candidate.cpu is not None:
                shutil.copyfile(candidate.cpu, folder / _CPU)
        (folder / _SCRIPT).write_text(_script(question, sides))
        make_executable(folder / _SCRIPT)
        unit = f" {metric.unit}" if metric.unit == "bytes" else ""
        variables = ", ".join(f"`{name}`" for name in _tools(question, sides))
        head = [
            f"# {module.name}: {metric.name}",
            "",
            f"{question.start:g}{unit} in the baseline, {after:g} with the candidate; a module may "
            f"be worse by {question.allowed:g}.",
            *lines,
            _FILES.format(variables=variables),
        ]
        (folder / "README.md").write_text("\n".join(head))


def _run(candidate: Subject, module: Module) -> str:
    """The name of the recorded run; its suffix tells the tool what it is."""
    return f"run{candidate.traces[module.program].suffix}"


def _tools(question: Question, sides: Sequence[Side]) -> dict[str, Path]:
    """The variables that name the tools, with their defaults."""
    candidate = sides[1].subject
    tools = {f"CLANG_{side.name.upper()}": side.subject.toolchain.clang for side in sides}
    if question.metric.name in REPLAYED:
        tools["TRACE_COST"] = candidate.toolchain.trace_cost
    return {**tools, "LLVM_LITERT_LIBRARY": candidate.toolchain.litert_library}


def _script(question: Question, sides: Sequence[Side]) -> str:
    lines = [
        "#!/bin/sh",
        f"# Compiles {shlex.quote(question.module.name)} as in the baseline, and with what makes it"
        " worse.",
        "set -eu",
        'cd "$(dirname "$0")"',
        *(f': "${{{name}:={path}}}"' for name, path in _tools(question, sides).items()),
        "export LLVM_LITERT_LIBRARY",
    ]
    compiles = {side.name: _compile(question, side) for side in sides}
    for name, command in compiles.items():
        if question.metric.name == FAILURES:
            lines.append(f"if {command}; then echo '{name}: compiles'; else")
            lines.append(f'  echo "{name}: fails with exit status $?"; fi')
        else:
            lines.append(command)
    if question.metric.name == "score":
        lines.append("grep -E '^Function:|Score:' baseline.yaml candidate.yaml")
    elif question.metric.name in REPLAYED:
        for side in sides:
            lines += _replay(question, side)
    elif question.metric.name != FAILURES:
        counted = "'/^\\.text/ { bytes += $2 } END { print bytes }'"
        lines += [
            f'echo "{name}: $(size -A {name}.o | awk {counted}) bytes of text"' for name in compiles
        ]
    return "\n".join(lines) + "\n"


def _inside(question: Question, side: Side) -> Subject:
    """The side's subject, with the names that its files have in the folder."""
    subject, program = side.subject, question.module.program
    profile = subject.profiles.of(program)
    run = {program: Path(_run(subject, question.module))} if program in subject.traces else {}
    return dataclasses.replace(
        subject,
        model=Path(side.name, "model"),
        profiles=Profiles(profile and Path(side.name, "profile", profile.name)),
        traces=run,
        cpu=subject.cpu and Path(_CPU),
    )


def _compile(question: Question, side: Side) -> str:
    """The command that compiles a side."""
    module, subject = question.module, _inside(question, side)
    own = dataclasses.replace(
        warning(module),
        bitcode=Path("module.bc"),
        thinlto_index=module.thinlto_index and Path("module.thinlto.bc"),
    )
    options = subject.problem.development_options(
        model=subject.model, profile=subject.profiles.common
    )
    if side.decisions:
        options.append(f"-mlgo-decisions={side.name}/decisions")
    more = for_clang(options)
    more += REPLAY_FLAGS if subject.traces else ()
    if question.metric.name == "score":
        more += ["-opt-record-file", f"{side.name}.yaml", "-opt-record-format", "yaml"]
        more += ["-opt-record-passes", "^regalloc-score$"]
    _, *words = own.compile_command(subject.toolchain.clang, Path(f"{side.name}.o"), more)
    return f'"$CLANG_{side.name.upper()}" {shlex.join(words)}'


def _replay(question: Question, side: Side) -> list[str]:
    """The commands that replay the recorded run with a side's code, and print its cost."""
    evaluator = EVALUATORS[REPLAYED[question.metric.name]]
    assert isinstance(evaluator, TraceReplay)
    context = _inside(question, side).replay_context(question.module)
    _, *words = map(str, evaluator.command([Path(f"{side.name}.o")], context))
    program = f"import json, sys; print(json.load(sys.stdin){_REPORTED[question.metric.name]})"
    value = f"$(python3 -c {shlex.quote(program)} < {side.name}.json)"
    return [
        f'"$TRACE_COST" {shlex.join(words)} -o {side.name}.json',
        f'echo "{side.name}: {value} {question.metric.unit}"',
    ]


def summary(found: Bisection) -> str:
    """The result of a bisection, in a sentence."""
    tried = f"{found.compilations} compilations"
    if not found.causes:
        return (
            f"With the baseline's decisions it is {found.value:g}, worse, too: no decision is the "
            f"cause, but the compiler or the profile ({tried})."
        )
    number = len(found.causes)
    these = "This decision" if number == 1 else f"These {number} decisions"
    least = "none of them can be left out" if found.minimal else "fewer may be enough"
    least = "" if number == 1 and found.minimal else f"; {least}"
    verb = "makes" if number == 1 else "make"
    return (
        f"{these} of the candidate, with all others as in the baseline, {verb} it {found.value:g}"
        f"{least} ({tried})."
    )
