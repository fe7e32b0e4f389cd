# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds real programs from Debian's source packages.

A list of sources and flags (corpus.program_table) replaces the programs' own build systems. It
builds in seconds, in the same way for each, and gives a compile_commands.json.
"""

import fnmatch
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any

from absl import logging

from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.corpus.corpus import DESCRIPTION, Corpus, Module
from compiler_opt_perf.corpus.extract import extract_corpus
from compiler_opt_perf.corpus.program_table import PROGRAMS, Program
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import (
    atomic_write,
    exclusive,
    make_executable,
    sha256,
    write_json,
    write_text,
)
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.memo import memo
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.toolchain.debian import debian_source
from compiler_opt_perf.toolchain.layout import BUILD
from compiler_opt_perf.toolchain.source import llvm_source

_TIMEOUT_S = 600.0


class ProgramError(UserError):
    """A program is unknown or does not build."""


def find_program(name: str) -> Program:
    """Returns the program of that name. Raises ProgramError with the known names."""
    if name not in PROGRAMS:
        raise ProgramError(f"{name}: unknown program; known are {', '.join(sorted(PROGRAMS))}")
    return PROGRAMS[name]


def program_tree(program: Program) -> Path:
    """Returns the program's source tree, fetched and unpacked if needed; SQLite's amalgamation.

    Raises:
      ToolchainError: the source cannot be fetched.
      CommandError: the amalgamation failed.
    """
    if program.source_package.startswith("llvm-toolchain-"):
        return llvm_source()
    tree = debian_source(program.source_package)
    if program.name != "sqlite":
        return tree
    with exclusive(BUILD / "sources" / ".sqlite.lock"):
        return sqlite_amalgamation(tree, BUILD / "sources" / "sqlite3-amalgamation")


def sqlite_amalgamation(tree: Path, output: Path) -> Path:
    """Makes SQLite's amalgamation, beside its benchmark `speedtest1.c`; returns `output`.

    Args:
      tree: the unpacked source package sqlite3; never written to.
      output: a folder; files of the same version are reused.
    """
    version = (tree / "manifest.uuid").read_text().strip()
    files = [output / name for name in ("sqlite3.h", "sqlite3.c", "speedtest1.c")]
    memo(output / "made.json", version, NoneType, partial(_amalgamate, tree, output), files)
    return output


def _amalgamate(tree: Path, output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    shutil.copy(tree / "test" / "speedtest1.c", output)
    with tempfile.TemporaryDirectory() as scratch:
        configure = tree / "configure"
        options = ("--disable-tcl", "--disable-readline")
        run_command([configure, *options], cwd=Path(scratch), env={"CC": str(stock_tool("clang"))})
        run_command(["make", "sqlite3.c"], cwd=Path(scratch))
        for name in ("sqlite3.h", "sqlite3.c"):
            with atomic_write(output / name) as temporary:
                shutil.copy(Path(scratch) / name, temporary)


@dataclass(frozen=True)
class BuiltProgram:
    """The files that `build_program` writes."""

    binary: Path
    compile_commands: Path
    workload_input: Path | None


@dataclass(frozen=True)
class _Compilation:
    argv: tuple[str, ...]
    directory: Path


def _compile(job: _Compilation) -> None:
    run_command(job.argv, cwd=job.directory, timeout_s=_TIMEOUT_S)


def program_sources(program: Program, tree: Path) -> list[Path]:
    """Lists the program's source files relative to `tree`, in fixed order. Raises ProgramError."""
    sources: list[Path] = []
    for pattern in program.sources:
        matches = sorted(path.relative_to(tree) for path in tree.glob(pattern))
        if not matches:
            raise ProgramError(
                f"{tree}: no file matches {pattern}; is it the source of {program.source_package}?"
            )
        sources += [path for path in matches if not _matches(path, program.excluded)]
    return sources


def _matches(path: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(str(path), pattern) for pattern in patterns)


def _from_template(text: str, values: Mapping[str, str]) -> str:
    """Expands a template like CMake's configure_file. Variables without a value become 0."""

    def define(line: re.Match[str]) -> str:
        name, rest = line.groups()
        return f"#define {name}{rest}" if name in values else f"/* #undef {name} */"

    text = re.sub(r"^[ \t]*#[ \t]*cmakedefine[ \t]+(\w+)(.*)$", define, text, flags=re.MULTILINE)
    return re.sub(r"@(\w+)@|\$\{(\w+)\}", lambda m: values.get(m[1] or m[2], "0"), text)


def compile_commands(
    program: Program,
    tree: Path,
    output: Path,
    *,
    clang: Path,
    flags: Sequence[str] = ("-O2", *PROFILING_FLAGS.split()),
) -> list[dict[str, Any]]:
    """Returns a program's compilations as entries of compile_commands.json, and compiles nothing.

    Args:
      tree: the unpacked source package; never written to.
      output: folder for headers that the package's own build system would write, and for the
        commands' object files.

    Raises:
      ProgramError: the tree is of another program.
    """
    tree = tree.resolve()
    objects = output.resolve() / "objects"
    headers = output.resolve() / "generated"
    for name, text in program.generated:
        write_text(headers / name, text)
    for name, template in program.templates:
        text = _from_template((tree / template).read_text(), dict(program.values))
        write_text(headers / name, text)
    includes = [f"-I{headers}"] if program.generated or program.templates else []
    commands = []
    for source in program_sources(program, tree):
        target = objects / source.with_suffix(".o")
        argv = [str(clang), *flags, *program.flags, *includes, "-w"]
        argv += ["-c", str(source), "-o", str(target)]
        commands.append({"directory": str(tree), "file": str(source), "arguments": argv})
    return commands


def extract_programs(
    names: Sequence[str],
    builds: Path,
    corpus: Path,
    *,
    flags: Sequence[str],
    opt_level: str,
    stage: str,
    held_out_share: float,
) -> None:
    """Extracts the modules of programs of the table, split with seed 1; see `extract_corpus`.

    An existing corpus of the same sources is reused.

    Args:
      names: names of the programs.
      builds: folder for each program's compile_commands.json and generated headers.
      corpus: folder for train/ and held_out/; a memo of its inputs lies beside it.
      flags: compiler flags, as for `compile_commands`.

    Raises: as `program_tree`, `compile_commands` and `extract_corpus`.
    """
    clang = stock_tool("clang")
    programs = [find_program(name) for name in names]
    trees = [program_tree(program) for program in programs]

    def extract() -> None:
        commands = {}
        for program, tree in zip(programs, trees, strict=True):
            path = commands[program.name] = builds / program.name / "compile_commands.json"
            write_json(path, compile_commands(program, tree, path.parent, clang=clang, flags=flags))
        extract_corpus(
            commands,
            corpus,
            clang=clang,
            opt_level=opt_level,
            stage=stage,
            held_out_share=held_out_share,
            seed=1,
        )

    inputs = {
        "programs": [source_checksums(*pair) for pair in zip(programs, trees, strict=True)],
        "clang": sha256(clang.resolve()),
        "flags": flags,
        "opt_level": opt_level,
        "stage": stage,
        "held_out_share": held_out_share,
    }
    files = [corpus / part / DESCRIPTION for part in ("train", "held_out")]
    memo(corpus.with_name(f"{corpus.name}.memo.json"), inputs, NoneType, extract, files)


def source_checksums(program: Program, tree: Path) -> dict[str, Any]:
    """Returns checksums of the program's sources, as inputs of a `memo`. Raises ProgramError."""
    checksums = {str(path): sha256(tree / path) for path in program_sources(program, tree)}
    return {"program": repr(program), "sources": checksums}


def program_modules(
    name: str, builds: Path, corpora: Path, *, opt_level: str, stage: str
) -> tuple[Module, ...]:
    """Returns all modules of a program of the table; see `extract_programs`.

    They have no debug info, which takes time and has no effect on decisions for size.

    Args:
      builds: as for `extract_programs`.
      corpora: folder for one corpus folder a program.

    Raises: as `extract_programs`, and CorpusError.
    """
    corpus = corpora / name
    extract_programs(
        [name],
        builds,
        corpus,
        flags=(opt_level,),
        opt_level=opt_level,
        stage=stage,
        held_out_share=0.5,
    )
    parts = [corpus / part for part in ("train", "held_out")]
    return tuple(module for part in parts for module in Corpus.load(part).modules)


def link_flags(program: Program) -> tuple[str, ...]:
    """Returns link flags; those of a library make an image without duplicates that cannot run."""
    if not program.is_library:
        return program.libraries
    return ("-nostdlib", "-Wl,--entry=0", "-Wl,--unresolved-symbols=ignore-all")


def build_program(
    program: Program,
    tree: Path,
    output: Path,
    *,
    clang: Path,
    flags: Sequence[str] = ("-O2", *PROFILING_FLAGS.split()),
    workers: int | None = None,
) -> BuiltProgram:
    """Builds the program for profiling and writes compile_commands.json and the workload's input.

    A library without `main` is linked to an image of its code that cannot run.

    Args:
      tree: the unpacked source package; never written to.
      output: folder for the binary, object files, `compile_commands.json` and `input`.

    Raises:
      ProgramError: the tree is of another program.
      CommandError: the compiler or linker failed.
    """
    commands = compile_commands(program, tree, output, clang=clang, flags=flags)
    jobs = [_Compilation(tuple(c["arguments"]), Path(c["directory"])) for c in commands]
    for job in jobs:
        Path(job.argv[-1]).parent.mkdir(parents=True, exist_ok=True)
    with Pool(workers) as pool:
        for outcome in pool.map(_compile, jobs, label=f"building {program.name}"):
            outcome.get()
    binary = output / program.name
    with atomic_write(binary) as temporary:
        object_files = [job.argv[-1] for job in jobs]
        words = ["-Wl,--build-id", *link_flags(program)]
        run_command(
            [clang, "-fuse-ld=lld", *object_files, *words, "-o", temporary], timeout_s=_TIMEOUT_S
        )
    make_executable(binary)
    logging.info("%s: %d sources, %d bytes", binary, len(jobs), binary.stat().st_size)
    workload_input = write_input(program, tree, output / "input")
    # Written last: this file shows that all results exist.
    write_json(output / "compile_commands.json", commands)
    return BuiltProgram(binary, output / "compile_commands.json", workload_input)


def write_input(program: Program, tree: Path, path: Path) -> Path | None:
    """Concatenates the program's own sources: real text, with the same bytes on each machine.

    Returns:
      `path`; None for a program whose runs need no such input.
    """
    files = [file for pattern in program.workload_inputs for file in sorted(tree.glob(pattern))]
    if not files:
        return None
    with atomic_write(path) as temporary, open(temporary, "wb") as stream:
        for file in files:
            stream.write(file.read_bytes())
    return path
