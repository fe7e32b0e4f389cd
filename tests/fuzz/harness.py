# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gives damaged files to all readers of this package and of the patched compiler.

A reader must use a damaged input, or refuse it with its exit status and one message: no crash, no
hang, no traceback. Seed and number of a case determine the damage, so `--case=READER:NUMBER` runs
a case again and shows its output. Prints a row for each reader with the number of outcomes:
`refused`; `silent`: the same result as for the sound input; `used`: another result; and failures:
`crash`, `hang`, `traceback`, `mute`: refused without a message, `altered`: a result that damage
must not cause. Exit status 1 if a reader failed; its inputs are then in OUTPUT/cases.
"""

import argparse
import logging
import os
import random
import re
import resource
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler_opt_perf.run.executor import WorkerError
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.seeds import derive_seed
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import BUILD
from tests.fuzz.mutations import DAMAGES, replace_file
from tests.fuzz.runners import MEMORY_MIB, FailedError, RefusedError
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

#: Outcomes that are failures of the reader.
FAILURES = ("crash", "hang", "traceback", "mute", "altered")
_OUTCOMES = (*FAILURES, "refused", "used", "silent")
# Share of inputs in which a file is replaced.
_SHARE_REPLACED = 0.06
_SOUND = -1


@dataclass(frozen=True)
class Case:
    """One run of a reader.

    Attributes:
      target: the reader's name.
      number: number of the damage; -1 for the sound input.
      seed: seed of the whole run.
      folder: holds the sound inputs, `sound/MAKER`, and receives `cases/READER-NUMBER`.
      toolchain: folder of the patched tools.
      expected: the reader's result for the sound input.
    """

    target: str
    number: int
    seed: int
    folder: Path
    toolchain: Path
    expected: bytes = b""

    @property
    def directory(self) -> Path:
        """The folder of the damaged input."""
        return self.folder / "cases" / f"{re.sub(r'[^a-z]+', '-', self.target)}-{self.number}"


@dataclass(frozen=True)
class CaseResult:
    """The result of a case.

    Attributes:
      outcome: one of `_OUTCOMES`.
      damage: the damaged file, and the kind of damage.
      message: the reader's message.
      found: the reader's result for a sound input.
    """

    outcome: str
    damage: str = ""
    message: str = ""
    found: bytes = b""


def _target(name: str) -> Target:
    return next(target for target in TARGETS if target.name == name)


def _damage(target: Target, folder: Path, generator: random.Random) -> str:
    """Damages one of the target's files; returns its name and the kind of damage."""
    found = {pattern: sorted(folder.glob(pattern)) for pattern in target.damaged}
    pattern = generator.choice([pattern for pattern, paths in found.items() if paths])
    path = generator.choice(found[pattern])
    if generator.random() < _SHARE_REPLACED:
        how = generator.choice(target.replacements)
        replace_file(path, how)
    else:
        content = path.read_bytes()
        how = target.damaged[pattern]
        path.write_bytes(DAMAGES[how](content, generator))
        target.seal(folder)
    return f"{path.relative_to(folder)}, {how}"


def run_case(case: Case) -> CaseResult:
    """Runs one case in this process; keeps its folder when the reader failed."""
    target = _target(case.target)
    logging.disable()
    limit = MEMORY_MIB << 20
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    shutil.rmtree(case.directory, ignore_errors=True)
    shutil.copytree(case.folder / "sound" / target.make.__name__, case.directory)
    (case.directory / "out").mkdir()
    damage = "none"
    if case.number != _SOUND:
        seed = derive_seed(case.seed, case.target, case.number)
        damage = _damage(target, case.directory, random.Random(seed))
    # Relative paths make messages and outputs the same in all cases.
    os.chdir(case.directory)
    try:
        found = target.run(case.directory, Toolchain.load(case.toolchain))
        outcome = "silent" if found == case.expected else "used"
        result = CaseResult(outcome, damage, found=found if case.number == _SOUND else b"")
    except RefusedError as refused:
        result = CaseResult("refused", damage, str(refused))
    except FailedError as failed:
        result = CaseResult(failed.how, damage, failed.message)
    except Exception:
        result = CaseResult("traceback", damage, traceback.format_exc())
    finally:
        os.chdir(case.folder)
    if result.outcome not in FAILURES:
        shutil.rmtree(case.directory, ignore_errors=True)
    return result


def _make(job: tuple[Callable[[Path, Toolchain], None], Path, Path]) -> None:
    make, folder, toolchain = job
    logging.disable()
    folder.mkdir(parents=True)
    make(folder, Toolchain.load(toolchain))


def fuzz(
    targets: Sequence[Target],
    numbers: Callable[[Target], Sequence[int]],
    seed: int,
    folder: Path,
    toolchain: Path,
    workers: int | None = None,
) -> dict[Case, CaseResult]:
    """Runs the cases with these numbers of each target.

    Args:
      targets: the readers.
      numbers: the numbers of each target's cases.
      seed: seed of the damage.
      folder: receives the inputs; its `sound` and `cases` are replaced.
      toolchain: folder of the patched tools.
      workers: number of workers; None for a default.

    Raises:
      WorkerError: a sound input is refused.
    """
    for name in ("sound", "cases"):
        shutil.rmtree(folder / name, ignore_errors=True)
    makers = list({target.make.__name__: target.make for target in targets}.values())
    with Pool(workers) as pool:
        jobs = [(make, folder / "sound" / make.__name__, toolchain) for make in makers]
        for made in pool.map(_make, jobs, timeout_s=300, label="sound inputs"):
            made.get()
        sound = [Case(target.name, _SOUND, seed, folder, toolchain) for target in targets]
        expected = {}
        for case, outcome in zip(sound, pool.map(run_case, sound, timeout_s=300), strict=True):
            result = outcome.get()
            if result.outcome != "used":
                raise WorkerError(f"{case.target}: the sound input: {result.message}")
            expected[case.target] = result.found
        cases = [
            Case(target.name, number, seed, folder, toolchain, expected[target.name])
            for target in targets
            for number in numbers(target)
        ]
        # Tools have their own limits; this limit is for readers in the worker process.
        limit = max(target.limit_s for target in targets)
        outcomes = pool.map(run_case, cases, timeout_s=limit + 10, label="damaged inputs")
    results = {}
    for case, outcome in zip(cases, outcomes, strict=True):
        if outcome.value is not None:
            results[case] = outcome.value
        elif isinstance(outcome.error, WorkerError):
            how = "hang" if "limit" in str(outcome.error) else "crash"
            results[case] = CaseResult(how, "see its folder", str(outcome.error))
        else:
            outcome.get()
    return results


def table(results: dict[Case, CaseResult]) -> str:
    """The number of inputs and of each outcome, one row per reader."""
    counts: dict[str, Counter[str]] = {}
    for case, result in results.items():
        counts.setdefault(case.target, Counter())[result.outcome] += 1
    total = sum(counts.values(), Counter())
    width = max(len(name) for name in (*counts, "reader"))
    lines = [f"| {'reader':{width}} | inputs | {' | '.join(_OUTCOMES)} |"]
    lines.append(f"|{'-' * (width + 2)}|{'---:|' * (1 + len(_OUTCOMES))}")
    for name, row in [*counts.items(), ("total", total)]:
        cells = [f"{row[outcome]:{len(outcome)}}" for outcome in _OUTCOMES]
        lines.append(f"| {name:{width}} | {row.total():6} | {' | '.join(cells)} |")
    return "\n".join(lines)


def describe(case: Case, result: CaseResult) -> str:
    """The outcome of a case, and the command that reproduces it."""
    command = f"{sys.executable} -m tests.fuzz --seed={case.seed}"
    command += f" --toolchain={case.toolchain} '--case={case.target}:{case.number}'"
    last = result.message.strip().splitlines()[-1:] or [""]
    return f"{result.outcome}: {case.target} ({result.damage}): {last[0][:300]}\n  {command}"


def main() -> None:
    """`python -m tests.fuzz`."""
    parser = argparse.ArgumentParser(
        "fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the damage")
    parser.add_argument(
        "--share", type=float, default=1.0, help="share of each reader's inputs to run"
    )
    parser.add_argument("--only", default="", help="only readers whose name contains this")
    parser.add_argument("--case", help="READER:NUMBER of one case to run and show in full")
    parser.add_argument("--output", default=BUILD / "fuzz", help="folder for the inputs")
    toolchain = BUILD / "toolchain" / "mock"
    parser.add_argument("--toolchain", default=toolchain, help="folder of the patched tools")
    values = parser.parse_args()
    only, _, number = (values.case or values.only).rpartition(":" if values.case else "\0")
    chosen = [target for target in TARGETS if (only or number) in target.name]
    if values.case is not None:
        chosen = [target for target in TARGETS if target.name == only]
    if not chosen or (values.case is not None and not number.isdecimal()):
        names = ", ".join(target.name for target in TARGETS)
        raise SystemExit(f"no such reader or case; readers are: {names}")

    def numbers(target: Target) -> Sequence[int]:
        if values.case is not None:
            return [int(number)]
        return range(max(1, round(target.inputs * values.share)))

    output = Path(values.output).absolute()
    if values.case is not None:
        output = Path(tempfile.mkdtemp(prefix="fuzz-"))
    folder = Path(values.toolchain).absolute()
    results = fuzz(chosen, numbers, values.seed, output, folder)
    if values.case is not None:
        for case, result in results.items():
            print(f"{result.outcome}: {result.damage}\n{result.message}\n{case.directory}")
        raise SystemExit(any(result.outcome in FAILURES for result in results.values()))
    failed = {case: result for case, result in results.items() if result.outcome in FAILURES}
    for case, result in failed.items():
        print(describe(case, result))
    print(table(results))
    raise SystemExit(1 if failed else 0)
