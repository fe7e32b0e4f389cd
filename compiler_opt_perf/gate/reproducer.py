# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A folder that shows by itself what made a module worse."""

import dataclasses
import shlex
import shutil
from pathlib import Path

from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.cost.evaluator import EVALUATORS, REPLAY_FLAGS, Context, TraceReplay
from compiler_opt_perf.execution.content import manifest_files
from compiler_opt_perf.execution.files import atomic_directory
from compiler_opt_perf.gate.bisect import Bisection, decision_lines
from compiler_opt_perf.gate.measure import REPLAYED, Candidate, warning
from compiler_opt_perf.policies.problem import for_clang

_SCRIPT = "reproduce.sh"
_CPU = "cpu.json"
# Of what llvm-trace-cost reports of a run, by metric.
_REPORTED = {"instructions": "['instructions']", "cycles": "['cycles']['total']"}
_FILES = """
| file | content |
|---|---|
| `reproduce.sh` | compiles both and compares; `CLANG` and `LLVM_LITERT_LIBRARY` name other tools |
| `module.bc` | the module; with `module.thinlto.bc` if it is of a ThinLTO build |
| `model`, `profile` | the policy, and the PMU profile if there is one |
| `*.bbwindows`, `cpu.json` | the recorded run, which `TRACE_COST` replays, if there is one |
| `baseline.decisions` | all decisions as in the baseline (`-mlgo-decisions`) |
| `candidate.decisions` | the same, but for those below |
"""


def write_reproducer(found: Bisection, module: Module, candidate: Candidate, output: Path) -> None:
    """Writes the folder: the module, the policy, decisions, a script and a README.

    Raises:
      FileWriteError: it cannot be written, or holds other files.
    """
    with atomic_directory(output, ours=lambda path: (path / _SCRIPT).is_file()) as folder:
        for path, name in zip(module.inputs, ("module.bc", "module.thinlto.bc"), strict=False):
            shutil.copy(path, folder / name)
        shutil.copytree(candidate.model, folder / "model")
        profile = candidate.profiles.of(module.program)
        if profile is not None:
            (folder / "profile").mkdir()
            for path in manifest_files(profile):
                shutil.copy(path, folder / "profile" / path.name)
        changed = {**found.baseline, **found.causes}
        (folder / "baseline.decisions").write_text(decision_lines(found.baseline))
        (folder / "candidate.decisions").write_text(decision_lines(changed))
        if found.metric in REPLAYED:
            shutil.copy(candidate.traces[module.program], folder)
            if candidate.cpu is not None:
                shutil.copy(candidate.cpu, folder / _CPU)
        (folder / _SCRIPT).write_text(_script(found, module, candidate, profile))
        (folder / _SCRIPT).chmod(0o755)
        (folder / "README.md").write_text(_readme(found, candidate))


def _script(found: Bisection, module: Module, candidate: Candidate, profile: Path | None) -> str:
    own = dataclasses.replace(
        warning(module),
        bitcode=Path("module.bc"),
        thinlto_index=None if module.thinlto_index is None else Path("module.thinlto.bc"),
    )
    options = candidate.problem.development_options(
        model=Path("model"), profile=None if profile is None else Path("profile", profile.name)
    )
    lines = [
        "#!/bin/sh",
        f"# Compiles {shlex.quote(module.name)} with the baseline's decisions, and with some of the"
        " candidate's.",
        "set -eu",
        'cd "$(dirname "$0")"',
        f': "${{CLANG:={candidate.toolchain.clang}}}"',
        f': "${{LLVM_LITERT_LIBRARY:={candidate.toolchain.litert_library}}}"',
        "export LLVM_LITERT_LIBRARY",
    ]
    replayed = found.metric in REPLAYED
    for name in ("baseline", "candidate"):
        more = for_clang([*options, f"-mlgo-decisions={name}.decisions"])
        more += REPLAY_FLAGS if module.program in candidate.traces else ()
        if found.metric == "score":
            more += ["-opt-record-file", f"{name}.yaml", "-opt-record-format", "yaml"]
            more += ["-opt-record-passes", "^regalloc-score$"]
        _, *words = own.compile_command(candidate.toolchain.clang, Path(f"{name}.o"), more)
        lines.append(f'"$CLANG" {shlex.join(words)}')
    if found.metric == "score":
        lines.append("grep -E '^Function:|Score:' baseline.yaml candidate.yaml")
    elif replayed:
        evaluator = EVALUATORS[REPLAYED[found.metric]]
        assert isinstance(evaluator, TraceReplay)
        context = Context(
            tool=Path("llvm-trace-cost"),
            trace=Path(candidate.traces[module.program].name),
            cpu=None if candidate.cpu is None else Path(_CPU),
            profile=None if profile is None else Path("profile", profile.name),
            threads=1,
        )
        lines.append(f': "${{TRACE_COST:={candidate.toolchain.trace_cost}}}"')
        total = shlex.quote(
            f"import json, sys; print(json.load(sys.stdin){_REPORTED[found.metric]})"
        )
        for name in ("baseline", "candidate"):
            _, *words = map(str, evaluator.command([Path(f"{name}.o")], context))
            lines.append(f'"$TRACE_COST" {shlex.join(words)} -o {name}.json')
            lines.append(f'echo "{name}: $(python3 -c {total} < {name}.json) {found.unit}"')
    else:
        counted = "'/^\\.text/ { bytes += $2 } END { print bytes }'"
        lines += [
            f'echo "{name}: $(size -A {name}.o | awk {counted}) bytes of text"'
            for name in ("baseline", "candidate")
        ]
    return "\n".join(lines) + "\n"


def _readme(found: Bisection, candidate: Candidate) -> str:
    unit = f" {found.unit}" if found.unit == "bytes" else ""
    lines = [
        f"# {found.module}: {found.metric}",
        "",
        f"{found.before:g}{unit} in the baseline, {found.after:g} with the candidate; a module may "
        f"be worse by {found.allowed:g}. The two take {found.differing} decisions "
        f"({candidate.problem.name}) differently.",
        "",
        summary(found),
        _FILES,
        "The decisions, by key, with the baseline's and the candidate's:",
        "",
        "```text",
        *(f"{found.baseline[key]} -> {value} {key}" for key, value in found.causes.items()),
        "```",
        "",
    ]
    return "\n".join(lines)


def summary(found: Bisection) -> str:
    """What was found, in a sentence."""
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
