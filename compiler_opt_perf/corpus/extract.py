# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Extracts a corpus from compile_commands.json."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from absl import logging

from compiler_opt_perf.corpus.corpus import (
    DESCRIPTION,
    CorpusError,
    is_module_name,
    split_names,
    without_side_outputs,
    write_description,
)
from compiler_opt_perf.execution.command import CommandError, run_command
from compiler_opt_perf.execution.files import atomic_directory
from compiler_opt_perf.execution.json_text import JsonError, parse_json
from compiler_opt_perf.execution.pool import Pool

# IR before any optimisation: what an inliner policy is asked about.
FRONTEND = "frontend"
# IR as the code generator gets it: a register-allocation policy's compilations skip the middle end,
# which its decisions cannot change, and take a third of the time.
OPTIMIZED = "optimized"
STAGES = (FRONTEND, OPTIMIZED)
# Of the files of a module.
_SUFFIXES = (".bc", ".cmd")

_TIMEOUT_S = 300.0
# Failures often have one cause; the first few tell it.
_FAILURES_SHOWN = 3

# `-cc1` arguments that name inputs, headers, macros or folders, or that only the front end of a
# language reads: the IR has them already, and without them a corpus can move to another machine.
_DROPPED_WITH_VALUE = {
    "-x",
    "-main-file-name",
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
    "-fmessage-length",
    "-pch-through-header",
}
_DROPPED = {"-pthread"}
_DROPPED_PREFIXES = (
    "-I",
    "-D",
    "-U",
    "-std=",
    "-W",
    "-fdebug-compilation-dir=",
    "-fcoverage-compilation-dir=",
    "-fdebug-prefix-map=",
    "-fcoverage-prefix-map=",
    "-fmacro-prefix-map=",
    "-fmodule",
    "-fprebuilt-module-path=",
    "-fcolor-diagnostics",
    "-fdiagnostics",
    "-fmessage-length",
    "-ferror-limit",
    "-fansi-escape-codes",
    # The front end gives the functions in it other attributes.
    "-fsanitize-ignorelist=",
    "-fsanitize-system-ignorelist=",
)
# The IR alone does not say what these do, and what they name is no part of a corpus: compiled
# without, modules would be those of another build.
_REFUSED_PREFIXES = (
    "-fprofile-instrument-use-path=",
    "-fprofile-sample-use=",
    "-fprofile-remapping-file=",
    "-fmemory-profile-use=",
    "-fprofile-list=",
    "-fsanitize-coverage-allowlist=",
    "-fsanitize-coverage-ignorelist=",
    "-fxray-",
    "-fthinlto-index=",
    "-fplugin",
    "-fpass-plugin=",
    "-fbasic-block-sections=list=",
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
    """The `-cc1` arguments that still mean something when the input is IR.

    Options that are not known here are kept.

    Raises:
      CorpusError: one cannot be part of a corpus, but changes the code.
    """
    kept: list[str] = []
    words = iter(without_side_outputs(cc1))
    for word in words:
        if word in _DROPPED_WITH_VALUE:
            next(words, None)
        elif word in ("-mllvm", "-target-cpu", "-tune-cpu", "-target-feature", "-triple"):
            kept += [word, next(words, "")]
        elif word.startswith(_REFUSED_PREFIXES):
            raise CorpusError(
                f"compiled with {word}, which a corpus cannot hold; extract it from a build without"
            )
        elif word not in _DROPPED and not word.startswith(_DROPPED_PREFIXES):
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
    # Without the files of dependencies, say, which are those of the user's build.
    source = cc1[-1]
    cc1 = ["-emit-llvm-bc" if word == "-emit-obj" else word for word in cc1[:-1]]
    # Passes walk use lists: without their order the IR file compiles to slightly other code.
    cc1 = [cc1[0], "-emit-llvm-uselists", *without_side_outputs(cc1[1:])]
    cc1 += ["-o", str(bitcode), source]
    (cc1 if job.stage == FRONTEND else arguments).insert(1, "-disable-llvm-passes")
    run_command([job.clang, *cc1], cwd=job.unit.directory, timeout_s=_TIMEOUT_S)
    (job.output / f"{job.unit.name}.cmd").write_bytes("\0".join(arguments).encode())


def _read_units(program: str, path: Path) -> list[_Unit]:
    remedy = "write it with CMake's -DCMAKE_EXPORT_COMPILE_COMMANDS=ON or with `bear -- make`"
    try:
        entries = parse_json(path.read_bytes())
    except OSError as error:
        raise CorpusError(f"{path}: {error.strerror}; {remedy}") from error
    except JsonError as error:
        raise CorpusError(f"{path}{error.place}: not JSON: {error}; {remedy}") from error
    if not isinstance(entries, list):
        raise CorpusError(f"{path}: expected a list of commands; {remedy}")
    found: list[tuple[Path, Path, tuple[str, ...]]] = []
    for number, entry in enumerate(entries):
        try:
            directory = path.parent.absolute() / entry["directory"]
            source = Path(os.path.normpath(directory / entry["file"]))
            words = entry.get("arguments") or shlex.split(entry["command"])
            for text in (str(directory), str(source), *words):
                if "\0" in text:
                    raise ValueError("a NUL character")
            if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
                raise TypeError("arguments are no list of strings")
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
    again = []
    for source, directory, words in found:
        name = f"{program}/{source.relative_to(root).with_suffix('')}"
        if not is_module_name(name):
            raise CorpusError(
                f"{path}: {name!r} cannot be the name of a module; name programs by letters and "
                "digits, without '..' (PROGRAM=compile_commands.json), and sources printably"
            )
        # The same source compiled twice (static and shared, say) is one module: the first.
        if name in units:
            again.append(name)
        else:
            units[name] = _Unit(name, directory, words)
    if again:
        logging.warning(
            "%s: of %d sources compiled more than once the first compilation is taken: %s",
            path,
            len(set(again)),
            ", ".join(sorted(set(again))),
        )
    return list(units.values())


def is_extracted(folder: Path) -> bool:
    """Whether a folder holds what `extract_corpus` wrote, and nothing else."""
    expected: set[Path] = set()
    for side in ("train", "held_out"):
        try:
            description = parse_json((folder / side / DESCRIPTION).read_bytes())
            names = [str(name) for name in description["modules"]]
        except (OSError, JsonError, KeyError, TypeError):
            return False
        expected |= {folder / side / f"{name}{suffix}" for name in names for suffix in _SUFFIXES}
        expected.add(folder / side / DESCRIPTION)
    return all(path in expected or path.is_dir() for path in folder.rglob("*"))


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
      FileWriteError: the disk is full, or `output` holds files that are no extracted corpora.
    """
    for name in commands:
        if not is_module_name(name) or "/" in name or name.startswith("."):
            raise CorpusError(
                f"{name!r} cannot be the name of a program; expected letters and digits "
                "(PROGRAM=compile_commands.json)"
            )
    units = [unit for name, path in commands.items() for unit in _read_units(name, path)]
    # The compiler runs in the folders of the sources: paths must not be relative to ours.
    with (
        atomic_directory(output.absolute(), ours=is_extracted) as temporary,
        Pool(workers) as pool,
    ):
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
