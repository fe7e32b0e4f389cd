# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prepares programs for rewards by record: compiles and links them by the compiler's own policy."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler_opt_perf.corpus.corpus import DESCRIPTION, Corpus, Module
from compiler_opt_perf.cost.evaluator import Replay
from compiler_opt_perf.cost.recording import Workload
from compiler_opt_perf.run.executor import Executor
from compiler_opt_perf.run.files import atomic_write, read_input, sha256
from compiler_opt_perf.run.memo import note, recall
from compiler_opt_perf.train.compilation import Compiler, scratch
from compiler_opt_perf.train.config import RunSettings
from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.recorded import Judged, ProgramRun

# Costs of two runs of a program may differ by this share. Else what a decision changes drowns.
_LARGEST_DIFFERENCE = 0.001


def described(runs: Mapping[str, RunSettings]) -> dict[str, ProgramRun]:
    """The runs of a recipe, by program. Raises TrainingError: a file is missing."""
    found = {}
    for program, own in runs.items():
        stdin = Path(own.stdin) if own.stdin else None
        inputs, more = (tuple(map(Path, names)) for names in (own.inputs, own.objects))
        for file in (*inputs, *more, *([stdin] if stdin else [])):
            if not file.is_file():
                raise TrainingError(f"[runs.{program}]: {file}: no such file")
        workload = Workload(own.arguments, stdin, inputs, True, own.timeout_s)
        found[program] = ProgramRun(workload, more, own.link)
    return found


@dataclass(frozen=True)
class _ObjectJob:
    compiler: Compiler
    module: Module


def _compiled(job: _ObjectJob) -> bytes:
    """The object file by the compiler's own policy. In a worker. Raises CommandError."""
    with scratch() as folder:
        target = folder / "module.o"
        job.compiler.compile(job.module, target, [])
        return read_input(target)


@dataclass(frozen=True)
class _ProgramJob:
    compiler: Compiler
    run: ProgramRun


def _recorded(job: _ProgramJob) -> Judged:
    """The program's cost. In a worker. Raises as `ProgramRun.judge`."""
    compiler = job.compiler
    assert isinstance(compiler.evaluator, Replay)
    return job.run.judge(compiler.evaluator, compiler.context, compiler.clang, {})


def prepared(compiler: Compiler, corpus: Corpus, folder: Path, pool: Executor) -> Compiler:
    """The compiler with programs whose default is linked, run and recorded; kept in `folder`.

    Raises:
      TrainingError: a module does not compile, a program cannot be linked, run and recorded, or
        does something else in its second run.
    """
    modules = _modules(corpus, compiler.runs)
    objects = _objects(compiler, modules, folder, pool)
    runs = {
        program: dataclasses.replace(
            run,
            objects={one.name: objects[one.name] for one in modules if one.program == program},
        )
        for program, run in compiler.runs.items()
    }
    defaults = _defaults(dataclasses.replace(compiler, runs=runs), folder, pool)
    runs = {name: dataclasses.replace(run, default=defaults[name]) for name, run in runs.items()}
    return dataclasses.replace(compiler, runs=runs)


def _modules(corpus: Corpus, programs: Mapping[str, ProgramRun]) -> Sequence[Module]:
    """The modules of the corpus and those that were held out from it, which are linked, too."""
    found = {one.name: one for one in corpus.modules}
    held_out = corpus.directory.with_name("held_out")
    if corpus.directory.name == "train" and (held_out / DESCRIPTION).exists():
        found |= {one.name: one for one in Corpus.load(held_out).modules}
    return [found[name] for name in sorted(found) if found[name].program in programs]


def _objects(
    compiler: Compiler, modules: Sequence[Module], folder: Path, pool: Executor
) -> dict[str, Path]:
    """Object files by module's name. Raises TrainingError."""
    clang = sha256(compiler.clang)
    paths = {one.name: folder / f"{one.name}.o" for one in modules}
    keys = {one.name: [clang, *one.fingerprint()] for one in modules}
    missing = [
        one
        for one in modules
        if recall(_noted(paths[one.name]), keys[one.name], str) != _digest(paths[one.name])
    ]

    def keep(job: _ObjectJob, content: bytes) -> None:
        path = paths[job.module.name]
        with atomic_write(path) as temporary:
            temporary.write_bytes(content)
        note(_noted(path), keys[job.module.name], str, sha256(path))

    jobs = [_ObjectJob(compiler, one) for one in missing]
    outcomes = pool.map(_compiled, jobs, label="objects of the programs", keep=keep)
    for one, outcome in zip(missing, outcomes, strict=True):
        if outcome.error is not None:
            raise TrainingError(
                f"{one.name}: does not compile, so that its program cannot be linked and "
                f"recorded: {outcome.error}"
            )
    return paths


def _noted(path: Path) -> Path:
    return path.with_suffix(".object.json")


def _digest(path: Path) -> str:
    return sha256(path) if path.exists() else "missing"


def _defaults(compiler: Compiler, folder: Path, pool: Executor) -> dict[str, Judged]:
    """What each program costs by the compiler's own policy. Raises TrainingError."""
    inputs = compiler.evaluator_inputs
    notes = {program: folder / f"{program}.run.json" for program in compiler.runs}
    found = {program: recall(path, inputs, Judged) for program, path in notes.items()}
    missing = [program for program, one in found.items() if one is None]
    jobs = [_ProgramJob(compiler, compiler.runs[program]) for program in missing]
    outcomes = pool.map(_recorded, [*jobs, *jobs], label="runs of the programs, twice each")
    for program, *both in zip(missing, outcomes[: len(jobs)], outcomes[len(jobs) :], strict=True):
        for outcome in both:
            if outcome.error is not None:
                raise TrainingError(
                    f"[runs.{program}]: cannot be linked, run and recorded by the compiler's own "
                    f"policy; see its link, objects and arguments: {outcome.error}"
                )
        first, second = (outcome.get() for outcome in both)
        _require_repeatable(program, first, second)
        found[program] = note(notes[program], inputs, Judged, first)
    return {program: one for program, one in found.items() if one is not None}


def _require_repeatable(program: str, first: Judged, second: Judged) -> None:
    """Raises TrainingError if two runs of the same program differ."""
    difference = abs(second.total / first.total - 1.0) if first.total else 0.0
    printed = first.output != second.output
    if printed or difference > _LARGEST_DIFFERENCE:
        what = "print something else" if printed else f"cost {100 * difference:.2f}% more or less"
        raise TrainingError(
            f"[runs.{program}]: two runs of the same program {what}, so that no candidate can be "
            "told from another. Make it do the same each time: give random numbers a seed, and "
            "take the time, threads and files that outlast a run out of it"
        )
