# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Real programs from Debian's source packages: how each is built.

One table row a program. The programs' own build systems are not used: a list of sources and flags
builds in seconds, the same way for each, and yields compile_commands.json as a by-product.
"""

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from absl import logging

from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.execution.files import atomic_write, write_json, write_text
from compiler_opt_perf.execution.llvm import stock_tool
from compiler_opt_perf.execution.pool import Pool

_TIMEOUT_S = 600.0


class ProgramError(Exception):
    """A program that is unknown or does not build."""


@dataclass(frozen=True)
class Program:
    """How to build and run one program.

    Attributes:
      name: what it is called here; also the binary's file name.
      source_package: Debian's name of it.
      sources: globs relative to the source tree.
      excluded: paths that the globs match and the program does not need.
      flags: preprocessor and language flags; relative include folders refer to the source tree.
      libraries: link flags.
      generated: headers (name, text) that the package's own build system would write.
      workload_inputs: globs, relative to the source tree, whose files make up an input for runs.
    """

    name: str
    source_package: str
    sources: tuple[str, ...]
    flags: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    generated: tuple[tuple[str, str], ...] = ()
    workload_inputs: tuple[str, ...] = ()


PROGRAMS: dict[str, Program] = {
    program.name: program
    for program in (
        Program(
            name="zstd",
            source_package="libzstd",
            sources=(
                "lib/common/*.c",
                "lib/compress/*.c",
                "lib/decompress/*.c",
                "lib/dictBuilder/*.c",
                "programs/*.c",
            ),
            flags=(
                "-DZSTD_DISABLE_ASM",
                "-DZSTD_MULTITHREAD",
                "-DXXH_NAMESPACE=ZSTD_",
                "-DDEBUGLEVEL=0",
                "-Ilib",
                "-Ilib/common",
                "-Ilib/dictBuilder",
            ),
            libraries=("-lpthread",),
            workload_inputs=("lib/*/*.[ch]", "programs/*.[ch]"),
        ),
        Program(
            name="lua",
            source_package="lua5.4",
            sources=("src/*.c",),
            excluded=("src/luac.c",),
            flags=("-DLUA_USE_LINUX", "-DLUA_COMPAT_5_3", "-Isrc"),
            libraries=("-lm", "-ldl"),
            generated=(
                ("lua5.4-deb-multiarch.h", '#define DEB_HOST_MULTIARCH "x86_64-linux-gnu"\n'),
            ),
        ),
        Program(
            name="bzip2",
            source_package="bzip2",
            sources=("*.c",),
            # Tests and tools with a main of their own.
            excluded=("bzip2recover.c", "dlltest.c", "mk251.c", "spewG.c", "unzcrash.c"),
            flags=("-D_FILE_OFFSET_BITS=64",),
            workload_inputs=("*.[ch]", "manual.*"),
        ),
        Program(
            name="cmark",
            source_package="cmark",
            sources=("src/*.c",),
            flags=("-DCMARK_STATIC_DEFINE", "-Isrc"),
            generated=(
                (
                    "config.h",
                    "#include <stdbool.h>\n"
                    "#define HAVE___BUILTIN_EXPECT\n"
                    "#define CMARK_ATTRIBUTE(list) __attribute__(list)\n"
                    "#define CMARK_INLINE inline\n",
                ),
                ("cmark_export.h", "#define CMARK_EXPORT\n"),
                (
                    "cmark_version.h",
                    '#define CMARK_VERSION 0\n#define CMARK_VERSION_STRING "Debian"\n',
                ),
            ),
            workload_inputs=("*.md", "test/*.txt"),
        ),
        Program(
            name="jansson",
            source_package="jansson",
            sources=("src/*.c", "test/bin/json_process.c"),
            flags=("-DHAVE_CONFIG_H", "-DHAVE_STDINT_H", "-Isrc"),
            generated=(
                ("jansson_private_config.h", "#define INITIAL_HASHTABLE_ORDER 3\n"),
                (
                    "jansson_config.h",
                    "#define JSON_INLINE inline\n"
                    "#define JSON_INTEGER_IS_LONG_LONG 1\n"
                    "#define JSON_HAVE_LOCALECONV 1\n"
                    "#define JSON_HAVE_ATOMIC_BUILTINS 1\n"
                    "#define JSON_HAVE_SYNC_BUILTINS 1\n"
                    "#define JSON_PARSER_MAX_DEPTH 2048\n",
                ),
            ),
        ),
        Program(
            name="libgsm",
            source_package="libgsm",
            sources=("src/*.c",),
            flags=("-DSASR", "-DNeedFunctionPrototypes=1", "-Iinc"),
            libraries=("-lm",),
        ),
        Program(
            name="libyaml",
            source_package="libyaml",
            sources=("src/*.c", "tests/run-parser.c"),
            flags=(
                "-DYAML_VERSION_MAJOR=0",
                "-DYAML_VERSION_MINOR=2",
                "-DYAML_VERSION_PATCH=5",
                '-DYAML_VERSION_STRING="0.2.5"',
                "-Iinclude",
            ),
        ),
        Program(
            name="lz4",
            source_package="lz4",
            sources=("lib/*.c", "programs/*.c"),
            flags=("-DXXH_NAMESPACE=LZ4_", "-Ilib"),
            workload_inputs=("lib/*.[ch]", "programs/*.[ch]", "tests/*.[ch]"),
        ),
        Program(
            name="minisat",
            source_package="minisat2",
            sources=("minisat/simp/*.cc", "minisat/core/Solver.cc", "minisat/utils/*.cc"),
            flags=("-std=c++98", "-D__STDC_LIMIT_MACROS", "-D__STDC_FORMAT_MACROS", "-I."),
            libraries=("-lstdc++", "-lm", "-lz"),
        ),
        Program(
            name="mujs",
            source_package="mujs",
            sources=("*.c",),
            excluded=("one.c", "pp.c"),
            flags=("-std=c99",),
            libraries=("-lm",),
        ),
        Program(
            name="tcc",
            source_package="tcc",
            sources=("tcc.c", "libtcc.c", "tcc[aegpr]*.c", "i386-asm.c", "x86_64-*.c"),
            excluded=("tccpe.c",),
            flags=("-DONE_SOURCE=0", "-DTCC_TARGET_X86_64", "-I."),
            libraries=("-lm", "-ldl", "-lpthread"),
            generated=(
                ("config.h", '#define TCC_VERSION "Debian"\n#define CONFIG_TCC_STATIC 0\n'),
            ),
        ),
        Program(
            name="zlib",
            source_package="zlib",
            sources=("*.c", "test/minigzip.c"),
            flags=("-DHAVE_UNISTD_H", "-D_LARGEFILE64_SOURCE=1", "-I."),
            workload_inputs=("*.[ch]", "*/*.[ch]"),
        ),
    )
}


def find_program(name: str) -> Program:
    """The program of that name. Raises ProgramError, which lists the known names."""
    if name not in PROGRAMS:
        raise ProgramError(f"{name}: unknown program; known are {', '.join(sorted(PROGRAMS))}")
    return PROGRAMS[name]


def sqlite_amalgamation(tree: Path, output: Path) -> Path:
    """Makes SQLite's single source file, beside its benchmark `speedtest1.c`; returns `output`.

    Args:
      tree: the unpacked source package sqlite3; never written to.
      output: a folder; what is there is not made again.
    """
    if (output / "sqlite3.c").exists():
        return output
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
    return output


@dataclass(frozen=True)
class BuiltProgram:
    """What build_program leaves in its output folder."""

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
    """The program's source files, relative to `tree`, in a fixed order. Raises ProgramError."""
    sources: list[Path] = []
    for pattern in program.sources:
        found = sorted(path.relative_to(tree) for path in tree.glob(pattern))
        if not found:
            raise ProgramError(
                f"{tree}: no file matches {pattern}; is it the source of {program.source_package}?"
            )
        sources += [path for path in found if str(path) not in program.excluded]
    return sources


def compile_commands(
    program: Program,
    tree: Path,
    output: Path,
    *,
    clang: Path,
    flags: Sequence[str] = ("-O2", *PROFILING_FLAGS.split()),
) -> list[dict[str, Any]]:
    """The compilations of a program, as compile_commands.json has them; nothing is compiled.

    Args:
      tree: the unpacked source package; never written to.
      output: receives the headers that the package's own build system would write; the commands'
        object files lie in it.

    Raises:
      ProgramError: the tree is not this program's.
    """
    tree = tree.resolve()
    objects = output.resolve() / "objects"
    headers = output.resolve() / "generated"
    for name, text in program.generated:
        write_text(headers / name, text)
    includes = [f"-I{headers}"] if program.generated else []
    commands = []
    for source in program_sources(program, tree):
        target = objects / source.with_suffix(".o")
        argv = [str(clang), *flags, *program.flags, *includes, "-w"]
        argv += ["-c", str(source), "-o", str(target)]
        commands.append({"directory": str(tree), "file": str(source), "arguments": argv})
    return commands


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

    Args:
      tree: the unpacked source package; never written to.
      output: receives the binary, the object files, `compile_commands.json` and `input`.

    Raises:
      ProgramError: the tree is not this program's.
      CommandError: the compiler's own error.
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
        run_command(
            [
                clang,
                "-fuse-ld=lld",
                "-Wl,--build-id",
                *object_files,
                *program.libraries,
                "-o",
                temporary,
            ],
            timeout_s=_TIMEOUT_S,
        )
    binary.chmod(0o755)
    logging.info("%s: %d sources, %d bytes", binary, len(jobs), binary.stat().st_size)
    workload_input = _write_input(program, tree, output / "input")
    # Written last: where this file exists, the other results do, too.
    write_json(output / "compile_commands.json", commands)
    return BuiltProgram(binary, output / "compile_commands.json", workload_input)


def _write_input(program: Program, tree: Path, path: Path) -> Path | None:
    """Concatenates the program's own sources: real text, the same bytes on each machine."""
    files = [file for pattern in program.workload_inputs for file in sorted(tree.glob(pattern))]
    if not files:
        return None
    with atomic_write(path) as temporary, open(temporary, "wb") as stream:
        for file in files:
            stream.write(file.read_bytes())
    return path
