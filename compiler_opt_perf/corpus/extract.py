# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Extracts a corpus from compile_commands.json, or from the output folder of a build."""

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from absl import logging

from compiler_opt_perf.corpus.build_commands import Command, log_left_out, read_commands
from compiler_opt_perf.corpus.build_output import BuiltModule, find_modules
from compiler_opt_perf.corpus.command_line import MEMORY_MIB, TIMEOUT_S, cc1_arguments, uses_lto
from compiler_opt_perf.corpus.corpus import (
    BITCODE_MAGIC,
    DESCRIPTION,
    FRONTEND,
    OPTIMIZED,
    CorpusDescription,
    CorpusError,
    is_module_name,
    split_names,
    write_description,
)
from compiler_opt_perf.corpus.options import OptionError, code_arguments, source_arguments
from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.files import atomic_directory, read_input
from compiler_opt_perf.run.json_text import JsonError, decode
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.pool import Pool

# Suffixes of the files of a module.
_SUFFIXES = (".bc", ".cmd", ".thinlto.bc")

# Failures often have one cause, which the first few show.
_FAILURES_SHOWN = 3
# Options for outputs, with and without a value; commands are compared without them.
_OUTPUT_VALUE = {"-o", "-MF", "-MT", "-MQ", "-MJ"}
_OUTPUT = {"-MD", "-MMD", "-MP"}
_OPTIONS_SHOWN = 8


@dataclass(frozen=True)
class _Compilation:
    """One source and the command that compiles it."""

    name: str
    source: Path
    directory: Path
    command: tuple[str, ...]


@dataclass(frozen=True)
class _Job:
    unit: _Compilation | BuiltModule
    clang: Path
    opt_level: str
    stage: str
    link_flags: tuple[str, ...]
    output: Path
    debug_info: bool
    trusted: bool


def _extract_one(job: _Job) -> None:
    bitcode = job.output / f"{job.unit.name}.bc"
    try:
        bitcode.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        # The name is too long, or another module's file has the name of this folder.
        raise CorpusError(f"its folder cannot be made: {error}") from error
    if isinstance(job.unit, _Compilation):
        arguments = _compile(job, job.unit, bitcode)
    elif job.unit.index is not None:
        arguments = _copy_linked(job, job.unit, bitcode)
    else:
        arguments = _copy_embedded(job, job.unit, bitcode)
    if not job.debug_info:
        _strip_debug_info(bitcode)
    (job.output / f"{job.unit.name}.cmd").write_bytes("\0".join(["-cc1", *arguments]).encode())


def _strip_debug_info(bitcode: Path) -> None:
    stripped = bitcode.with_suffix(".stripped")
    # Use lists keep their order, because passes walk them.
    words = ["--strip-debug", "--preserve-bc-uselistorder", "-o"]
    run_command(
        [stock_tool("opt"), *words, stripped, bitcode], timeout_s=TIMEOUT_S, memory_mib=MEMORY_MIB
    )
    stripped.replace(bitcode)


def _compile(job: _Job, unit: _Compilation, bitcode: Path) -> list[str]:
    """Compiles a source to bitcode; returns the -cc1 arguments that compile the bitcode."""
    cc1 = cc1_arguments(
        job.clang,
        unit.command,
        unit.directory,
        [job.opt_level],
        source=unit.source,
        trusted=job.trusted,
    )
    # The last word is the input file.
    arguments = _code_arguments(cc1[1:-1], trusted=job.trusted)
    try:
        kept = source_arguments(cc1[1:-1], trusted=job.trusted)
    except OptionError as error:
        raise CorpusError(
            f"compiled with {error}; extract it from a build without, or pass --trusted if you "
            "trust the build"
        ) from error
    if job.stage == FRONTEND:
        kept.insert(0, "-disable-llvm-passes")
    else:
        arguments.insert(0, "-disable-llvm-passes")
    _write_bitcode(job, kept, [cc1[-1]], bitcode, unit.directory)
    return arguments


def _code_arguments(words: Sequence[str], *, trusted: bool = False) -> list[str]:
    """Returns the -cc1 arguments that a corpus can hold. Raises CorpusError."""
    try:
        return code_arguments(words, trusted=trusted)
    except OptionError as error:
        raise CorpusError(f"compiled with {error}; extract it from a build without") from error


def _copy_embedded(job: _Job, unit: BuiltModule, bitcode: Path) -> list[str]:
    """Copies the bitcode out of an object; returns the -cc1 arguments that compile it."""
    arguments = _code_arguments(unit.command)
    optimized = "-disable-llvm-passes" in arguments
    if optimized and job.stage == FRONTEND:
        raise CorpusError(
            f"{unit.path}: its bitcode is optimised already; compile with -Xclang "
            "-fembed-bitcode=all, which embeds the front end's IR"
        )
    bitcode.write_bytes(unit.bitcode())
    if job.stage == OPTIMIZED and not optimized:
        frontend = bitcode.with_suffix(".frontend")
        bitcode.replace(frontend)
        _write_bitcode(job, arguments, ["-x", "ir", str(frontend)], bitcode, None)
        frontend.unlink()
        arguments.insert(0, "-disable-llvm-passes")
    return arguments


def _copy_linked(job: _Job, unit: BuiltModule, bitcode: Path) -> list[str]:
    """Copies a module after the thin link, with its index; returns the arguments that compile it.

    The link runs optimisation passes, so its compilations do, too, at every stage of the corpus.
    """
    assert unit.index is not None
    arguments = _code_arguments(unit.command)
    if not unit.command:
        # The linker puts each function and datum into its own section.
        words = [job.opt_level, "-ffunction-sections", "-fdata-sections", *job.link_flags]
        command = ["clang", *words, "-c", "-x", "ir", str(unit.path)]
        cc1 = cc1_arguments(job.clang, command, unit.path.parent)
        arguments = _code_arguments(cc1[1:-1])
    bitcode.write_bytes(unit.bitcode())
    index = read_input(unit.index)
    # Others may get the corpus: refuse other files that a command of the build names.
    if index and not index.startswith(BITCODE_MAGIC):
        raise CorpusError(f"{unit.index}: no index of a thin link; build it again")
    bitcode.with_name(f"{bitcode.stem}.thinlto.bc").write_bytes(index)
    return arguments


def _write_bitcode(
    job: _Job, arguments: Sequence[str], source: Sequence[str], bitcode: Path, cwd: Path | None
) -> None:
    words = ["-emit-llvm-bc" if word == "-emit-obj" else word for word in arguments]
    # Passes walk use lists: without their order, the IR compiles to slightly different code.
    cc1 = ["-cc1", "-emit-llvm-uselists", *words, "-o", str(bitcode), *source]
    run_command([job.clang, *cc1], cwd=cwd, timeout_s=TIMEOUT_S, memory_mib=MEMORY_MIB)


def _read_commands(program: str, path: Path) -> list[_Compilation]:
    """Reads the compilations of a program, one for each source. Raises CorpusError."""
    by_source: dict[Path, list[Command]] = {}
    for command in read_commands(path):
        by_source.setdefault(command.source, []).append(command)
    units = []
    unnamed = []
    differences: dict[str, list[str]] = {}
    for source, name in _names(program, by_source).items():
        if not is_module_name(name):
            unnamed.append(repr(name))
            continue
        commands = by_source[source]
        # With several configurations, the first one is often without optimisation.
        optimised = (command for command in commands if _optimises(command.words))
        chosen = next(optimised, commands[0])
        units.append(_Compilation(name, source, chosen.directory, chosen.words))
        for other in commands:
            difference = _difference(chosen.words, other.words)
            if difference:
                differences.setdefault(difference, []).append(name)
    if not units:
        raise CorpusError(
            f"{path}: {unnamed[0]} cannot be the name of a module; name programs by letters and "
            "digits, without '..' (PROGRAM=compile_commands.json), and sources printably"
        )
    if unnamed:
        log_left_out(path, {"cannot be the name of a module": unnamed})
    for difference, names in differences.items():
        logging.warning(
            "%s: %d sources are compiled more than once; taking the command %s: %s",
            path,
            len(names),
            difference,
            ", ".join(names),
        )
    if any(uses_lto(unit.command) for unit in units):
        logging.warning(
            "%s: compiling without -flto; for modules of a ThinLTO link, give the folder of the "
            "build (docs/thinlto.md)",
            path,
        )
    return units


def _names(program: str, sources: Iterable[Path]) -> dict[Path, str]:
    """Returns the modules' names: paths below the sources' common folder.

    Only sources that differ in nothing else keep their suffix.
    """
    root = Path(os.path.commonpath([source.parent for source in sources]))
    full = {source: f"{program}/{source.relative_to(root)}" for source in sources}
    names = {source: name.removesuffix(source.suffix) for source, name in full.items()}
    while True:
        count = Counter(names.values())
        if max(count.values()) == 1:
            return names
        names = {s: full[s] if count[name] > 1 else name for s, name in names.items()}


def _optimises(words: Sequence[str]) -> bool:
    levels = [word for word in words if word.startswith("-O")]
    return bool(levels) and levels[-1] != "-O0"


def _options(words: Sequence[str]) -> Counter[str]:
    """Counts the words of a command, without those for its outputs."""
    rest = iter(words[1:])
    kept: Counter[str] = Counter()
    for word in rest:
        if word in _OUTPUT_VALUE:
            next(rest, None)
        elif word not in _OUTPUT:
            kept[word] += 1
    return kept


def _difference(chosen: Sequence[str], other: Sequence[str]) -> str:
    """Describes how two commands differ, such as "with -O2 and without -g"; empty if equal."""
    parts = []
    first, second = _options(chosen), _options(other)
    for preposition, words in (("with", first - second), ("without", second - first)):
        if words:
            more = " ..." if len(words) > _OPTIONS_SHOWN else ""
            parts.append(f"{preposition} {' '.join(list(words)[:_OPTIONS_SHOWN])}{more}")
    return " and ".join(parts)


def _has_thinlto(unit: _Compilation | BuiltModule) -> bool:
    return isinstance(unit, BuiltModule) and unit.index is not None


def is_extracted(folder: Path) -> bool:
    """Whether a folder holds the output of `extract_corpus` and nothing else."""
    expected: set[Path] = set()
    for side in ("train", "held_out"):
        try:
            path = folder / side / DESCRIPTION
            names = decode(read_input(path), CorpusDescription, path).modules
        except (OSError, JsonError):
            return False
        expected |= {folder / side / f"{name}{suffix}" for name in names for suffix in _SUFFIXES}
        expected.add(folder / side / DESCRIPTION)
    return all(path in expected or path.is_dir() for path in folder.rglob("*"))


def extract_corpus(
    builds: dict[str, Path],
    output: Path,
    *,
    clang: Path,
    opt_level: str,
    stage: str,
    held_out_share: float,
    seed: int,
    link_flags: Sequence[str] = (),
    debug_info: bool = True,
    trusted: bool = False,
    workers: int | None = None,
) -> tuple[int, int]:
    """Writes `output/train` and `output/held_out`, two corpora in mlgo-utils layout.

    Args:
      builds: input of each program by its name: a compile_commands.json, the output of `bazel
        aquery` (see corpus.build_commands), or the output folder of a build (see
        corpus.build_output).
      clang: the compiler whose driver and front end make the IR; it must have the version of the
        compiler that reads it.
      opt_level: optimisation level, e.g. "-Oz"; replaces the level in commands and of ThinLTO
        links. Bitcode in objects keeps its level.
      stage: FRONTEND or OPTIMIZED. Modules of ThinLTO builds are those after the thin link.
      held_out_share: share of the extracted modules to hold out; see split_names. If each program
        has one module, `held_out` is a corpus without modules.
      seed: seed of the split.
      link_flags: further clang options of ThinLTO links in one process.
      debug_info: whether modules keep debug info, which PMU features need.
      trusted: whether commands may load plugins and hold unknown options.
      workers: number of parallel compilations; see Pool.

    Returns:
      The number of training and of held-out modules.

    Raises:
      CorpusError: a command cannot be read, only some modules are of a ThinLTO build, or no module
        could be extracted.
      FileWriteError: the disk is full, or `output` holds files other than extracted corpora.
    """
    units, thinlto = _find_units(builds)
    # The compiler runs in the folders of the sources: relative paths would not work there.
    with atomic_directory(output.absolute(), ours=is_extracted) as temporary:
        flags, modules = tuple(link_flags), temporary / "modules"
        jobs = [
            _Job(unit, clang, opt_level, stage, flags, modules, debug_info, trusted)
            for unit in units
        ]
        names = _extract_all(jobs, workers, f"extracting IR ({stage}, {opt_level})")
        train, held_out = split_names(names, held_out_share, seed)
        if not held_out:
            logging.warning("no module is held out: each program has one module only")
        for side, members in (("train", train), ("held_out", held_out)):
            for name in members:
                _move_module(modules, temporary / side, name)
            write_description(temporary / side, members, thinlto=thinlto)
        # Failed extractions may have left files.
        shutil.rmtree(modules)
    return len(train), len(held_out)


def _find_units(builds: Mapping[str, Path]) -> tuple[list[_Compilation | BuiltModule], bool]:
    """Finds the modules to extract, and whether ThinLTO built them. Raises CorpusError."""
    units: list[_Compilation | BuiltModule] = []
    for name in builds:
        if not is_module_name(name) or "/" in name or name.startswith("."):
            raise CorpusError(
                f"{name!r} cannot be the name of a program; expected letters and digits "
                "(PROGRAM=compile_commands.json)"
            )
    for name, path in builds.items():
        units += find_modules(name, path) if path.is_dir() else _read_commands(name, path)
    thinlto = {_has_thinlto(unit): unit.name for unit in units}
    if len(thinlto) > 1:
        raise CorpusError(
            f"{thinlto[True]} is of a ThinLTO build and {thinlto[False]} is not; extract them into "
            "two corpora"
        )
    return units, True in thinlto


def _extract_all(jobs: Sequence[_Job], workers: int | None, label: str) -> list[str]:
    """Extracts modules in parallel; returns the names of those that succeeded, at least one.

    Raises:
      CorpusError: all of them failed.
    """
    names = []
    failed = []
    with Pool(workers) as pool:
        for job, outcome in zip(jobs, pool.map(_extract_one, jobs, label=label), strict=True):
            if outcome.error is None:
                names.append(job.unit.name)
                continue
            if not isinstance(outcome.error, CommandError | CorpusError):
                raise outcome.error
            failed.append(job.unit.name)
            if len(failed) <= _FAILURES_SHOWN:
                logging.warning("%s is left out: %s", job.unit.name, outcome.error)
    if failed:
        logging.warning("%d modules are left out: %s", len(failed), ", ".join(failed))
    if not names:
        raise CorpusError("no module could be extracted; see the warnings above")
    return names


def _move_module(source: Path, destination: Path, name: str) -> None:
    for suffix in _SUFFIXES:
        file = source / f"{name}{suffix}"
        if file.exists():
            (destination / name).parent.mkdir(parents=True, exist_ok=True)
            file.replace(destination / f"{name}{suffix}")
