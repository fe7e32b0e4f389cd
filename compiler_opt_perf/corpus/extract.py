# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Extracts a corpus from compile_commands.json."""

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from absl import logging

from compiler_opt_perf.corpus.corpus import CorpusError, split_names, write_description
from compiler_opt_perf.execution.command import CommandError, run_command
from compiler_opt_perf.execution.files import atomic_directory
from compiler_opt_perf.execution.pool import Pool

# IR before any optimisation: what an inliner policy is asked about.
FRONTEND = "frontend"
# IR as the code generator gets it: a register-allocation policy's compilations skip the middle end,
# which its decisions cannot change, and take a third of the time.
OPTIMIZED = "optimized"
STAGES = (FRONTEND, OPTIMIZED)

_TIMEOUT_S = 300.0
# Failures often have one cause; the first few tell it.
_FAILURES_SHOWN = 3

# `-cc1` arguments that name inputs, outputs, headers, macros or folders: the IR has them already,
# and without them a corpus can move to another machine.
_DROPPED_WITH_VALUE = {
    "-o",
    "-x",
    "-main-file-name",
    "-dependency-file",
    "-MT",
    "-MQ",
    "-include",
    "-isystem",
    "-iquote",
    "-idirafter",
    "-isysroot",
    "-internal-isystem",
    "-internal-externc-isystem",
    "-resource-dir",
    "-I",
    "-D",
    "-U",
    "-ferror-limit",
    "-pch-through-header",
}
_DROPPED = {"-MP", "-MG", "-MV", "-sys-header-deps", "-fcolor-diagnostics", "-pthread"}
_DROPPED_PREFIXES = (
    "-I",
    "-D",
    "-U",
    "-std=",
    "-fdebug-compilation-dir=",
    "-fcoverage-compilation-dir=",
    "-W",
    "-f",
)
# Of the -f options, only those that steer code generation from IR stay.
_KEPT_F_PREFIXES = (
    "-ffunction-sections",
    "-fdata-sections",
    "-funique-",
    "-faddrsig",
    "-fno-addrsig",
    "-fmath-errno",
    "-ffp-contract=",
    "-fno-rounding-math",
    "-fbasic-block-",
    "-fsplit-machine-functions",
    "-fno-jump-tables",
    "-funroll-loops",
    "-fno-unroll-loops",
    "-fdebug-info-for-profiling",
    "-fexceptions",
    "-fcxx-exceptions",
    "-fno-verbose-asm",
    "-fno-use-cxa-atexit",
    "-fcf-protection",
)


@dataclass(frozen=True)
class _Unit:
    name: str
    directory: Path
    command: tuple[str, ...]


@dataclass(frozen=True)
class _Job:
    unit: _Unit
    clang: Path
    opt_level: str
    stage: str
    output: Path


def codegen_arguments(cc1: Sequence[str]) -> list[str]:
    """The `-cc1` arguments that still mean something when the input is IR."""
    kept: list[str] = []
    words = iter(cc1)
    for word in words:
        if word in _DROPPED_WITH_VALUE:
            next(words, None)
        elif word in ("-mllvm", "-target-cpu", "-tune-cpu", "-target-feature", "-triple"):
            kept += [word, next(words)]
        elif word not in _DROPPED and (
            not word.startswith(_DROPPED_PREFIXES) or word.startswith(_KEPT_F_PREFIXES)
        ):
            kept.append(word)
    return kept


def cc1_arguments(clang: Path, command: Sequence[str], directory: Path) -> list[str]:
    """What the driver would pass to `clang -cc1` for one compilation of `command`.

    Raises:
      CorpusError: the command does not compile exactly one file.
      CommandError: the driver rejects it.
    """
    listing = run_command([clang, "-###", *command[1:]], cwd=directory, timeout_s=_TIMEOUT_S)
    jobs = [line for line in listing.stderr.splitlines() if '"-cc1"' in line]
    words = [shlex.split(job)[1:] for job in jobs]
    if len(words) != 1 or "-emit-obj" not in words[0]:
        raise CorpusError(f"not the compilation of one file to an object: {shlex.join(command)}")
    return words[0]


def _extract_one(job: _Job) -> None:
    command = [*job.unit.command, job.opt_level]
    cc1 = cc1_arguments(job.clang, command, job.unit.directory)
    bitcode = job.output / f"{job.unit.name}.bc"
    bitcode.parent.mkdir(parents=True, exist_ok=True)
    # The last word is the input file.
    arguments = ["-cc1", *codegen_arguments(cc1[1:-1])]
    cc1 = ["-emit-llvm-bc" if word == "-emit-obj" else word for word in cc1]
    # Passes walk use lists: without their order the IR file compiles to slightly other code.
    cc1.insert(1, "-emit-llvm-uselists")
    cc1[cc1.index("-o") + 1] = str(bitcode)
    (cc1 if job.stage == FRONTEND else arguments).insert(1, "-disable-llvm-passes")
    run_command([job.clang, *cc1], cwd=job.unit.directory, timeout_s=_TIMEOUT_S)
    (job.output / f"{job.unit.name}.cmd").write_bytes("\0".join(arguments).encode())


def _read_units(program: str, path: Path) -> list[_Unit]:
    remedy = "write it with CMake's -DCMAKE_EXPORT_COMPILE_COMMANDS=ON or with `bear -- make`"
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CorpusError(f"{path}: {error.strerror}; {remedy}") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CorpusError(f"{path}: not JSON: {error}; {remedy}") from error
    if not isinstance(entries, list):
        raise CorpusError(f"{path}: expected a list of commands; {remedy}")
    found: list[tuple[Path, Path, tuple[str, ...]]] = []
    for number, entry in enumerate(entries):
        try:
            directory = Path(entry["directory"])
            source = Path(os.path.normpath(directory / entry["file"]))
            words = entry.get("arguments") or shlex.split(entry["command"])
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise CorpusError(
                f"{path}: entry {number}: expected directory, file and arguments or command "
                f"({type(error).__name__}: {error}); {remedy}"
            ) from error
        if source.suffix in (".s", ".S", ".asm"):
            continue
        found.append((source, directory, tuple(words)))
    if not found:
        raise CorpusError(f"{path}: holds no compilation; {remedy}")
    root = Path(os.path.commonpath([source.parent for source, _, _ in found]))
    units: dict[str, _Unit] = {}
    for source, directory, words in found:
        name = f"{program}/{source.relative_to(root).with_suffix('')}"
        # The same source compiled twice (static and shared, say) is one module: the first.
        units.setdefault(name, _Unit(name, directory, words))
    return list(units.values())


def extract_corpus(
    commands: dict[str, Path],
    output: Path,
    *,
    clang: Path,
    opt_level: str,
    stage: str,
    held_out_share: float,
    seed: int,
    workers: int | None = None,
) -> tuple[int, int]:
    """Writes `output/train` and `output/held_out`, two corpora in mlgo-utils layout.

    Args:
      commands: a compile_commands.json for each program's name.
      clang: the compiler whose driver and front end make the IR; its version must be the one of the
        compiler that reads it.
      opt_level: e.g. "-Oz"; replaces the level in the commands.
      stage: FRONTEND or OPTIMIZED.
      held_out_share: see split_names.

    Returns:
      The number of training and of held-out modules.

    Raises:
      CorpusError: unreadable commands, or nothing could be extracted.
      FileWriteError: the disk is full.
    """
    units = [unit for name, path in commands.items() for unit in _read_units(name, path)]
    # The compiler runs in the folders of the sources: paths must not be relative to ours.
    with atomic_directory(output.absolute()) as temporary, Pool(workers) as pool:
        train_names, held_out_names = split_names([u.name for u in units], held_out_share, seed)
        side = dict.fromkeys(train_names, "train") | dict.fromkeys(held_out_names, "held_out")
        jobs = [_Job(unit, clang, opt_level, stage, temporary / side[unit.name]) for unit in units]
        outcomes = pool.map(_extract_one, jobs, label=f"extracting IR ({stage}, {opt_level})")
        extracted: dict[str, list[str]] = {"train": [], "held_out": []}
        failed = []
        for job, outcome in zip(jobs, outcomes, strict=True):
            if outcome.error is None:
                extracted[side[job.unit.name]].append(job.unit.name)
                continue
            if not isinstance(outcome.error, CommandError | CorpusError):
                raise outcome.error
            failed.append(job.unit.name)
            if len(failed) <= _FAILURES_SHOWN:
                logging.warning("%s is left out: %s", job.unit.name, outcome.error)
        if failed:
            logging.warning("%d modules are left out: %s", len(failed), ", ".join(failed))
        for name, modules in extracted.items():
            if not modules:
                raise CorpusError(f"no {name} module could be extracted; see the warnings above")
            write_description(temporary / name, modules)
    return len(extracted["train"]), len(extracted["held_out"])
