# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of real programs that benchmarks measure, with their runs.

A program has runs of different inputs:
  - `COUNTED`, to count, simulate or profile, and to choose by; it takes a second at most;
  - `TIMED`, to time variants; it repeats short parts on little memory, because outer caches are
    shared with other machines;
  - `HELD_OUT`, to judge by; nothing is chosen by it. It takes a third of a second or more, and its
    inputs are of another kind.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import NoneType

from benchmarks.programs.inputs import (
    write_coloring,
    write_document,
    write_formula,
    write_manifest,
    write_map,
    write_program,
    write_records,
)
from benchmarks.programs.workload import Workload
from compiler_opt_perf.corpus.program_table import PROGRAMS
from compiler_opt_perf.corpus.programs import sqlite_amalgamation
from compiler_opt_perf.run.files import sha256, write_text
from compiler_opt_perf.run.memo import memo
from compiler_opt_perf.toolchain.debian import debian_source

_SEED = 1


def _input(folder: Path) -> str:
    """The program's own sources, concatenated, where `build_program` leaves them in `folder`."""
    return str(folder / "input")


def _zstd_counted(folder: Path) -> Workload:
    """zstd -9 on its own source."""
    options = ("-9", "--single-thread", "-f", "-q", "-o", str(folder / "out.zst"))
    return Workload(PROGRAMS["zstd"], debian_source("libzstd"), (*options, _input(folder)))


def _zstd_timed(_: Path) -> Workload:
    """zstd -9 on sources of three of the programs, file by file, all of them several times."""
    tree = debian_source("libzstd")
    trees = (tree, debian_source("lua5.4"), debian_source("tcc"))
    files = sorted(path for tree in trees for path in tree.rglob("*.[ch]"))
    inputs = tuple(path for path in files if 8 << 10 <= path.stat().st_size < 200 << 10)
    arguments = ("-9", "--single-thread", "--no-asyncio", "-q", "-c", *map(str, 4 * inputs))
    return Workload(PROGRAMS["zstd"], tree, arguments, inputs)


def _on_sources(name: str, *options: str) -> Callable[[Path], Workload]:
    """A program of the corpus on its own sources."""

    def workload(folder: Path) -> Workload:
        program = PROGRAMS[name]
        tree = debian_source(program.source_package)
        return Workload(program, tree, (*options, _input(folder)))

    return workload


# Lua seeds hashes and the pivots of large sorts with the time: no two runs are alike.
_LUA_FLAGS = ("-Dluai_makeseed(L)=1u", "-Dl_randomizePivot()=1u")


def _on_script(name: str, script: str, flags: tuple[str, ...] = ()) -> Callable[[Path], Workload]:
    """An interpreter of the corpus.

    Args:
      script: name of a file beside this one, which says what it does.
    """

    def workload(folder: Path) -> Workload:
        source = Path(__file__).parent / script
        path = folder / f"script{source.suffix}"
        write_text(path, source.read_text())
        return _on_file(name, path, flags=flags)

    return workload


def _on_file(name: str, path: Path, *options: str, flags: tuple[str, ...] = ()) -> Workload:
    program = PROGRAMS[name]
    tree = debian_source(program.source_package)
    return Workload(program, tree, (*options, str(path)), (path,), flags=flags)


def _on_text(name: str, folder: Path, text: bytes, *options: str) -> Workload:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "text"
    path.write_bytes(text)
    return _on_file(name, path, *options)


def _on_document(name: str, records: int, seed: int = _SEED) -> Callable[[Path], Workload]:
    """A parser of the corpus on a document that is JSON, and so YAML."""

    def workload(folder: Path) -> Workload:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "document.json"
        write_document(path, records, seed)
        return _on_file(name, path)

    return workload


def _on_made(
    name: str, write: Callable[[Path, int, int], None], size: int, times: int = 1
) -> Callable[[Path], Workload]:
    """A program of the corpus on what one of `inputs` writes, so many times in a run."""

    def workload(folder: Path) -> Workload:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "made.json"
        write(path, size, 3)
        return _on_file(name, path, *(times - 1) * [str(path)])

    return workload


def _on_mixture(name: str, *options: str, size: int) -> Callable[[Path], Workload]:
    """A compressor of the corpus on polygons of a map and SQLite's source, so many bytes of it."""

    def workload(folder: Path) -> Workload:
        folder.mkdir(parents=True, exist_ok=True)
        write_map(folder / "map.json", size // 1000, 3)
        source = (_amalgamation(folder) / "sqlite3.c").read_bytes()[:size]
        return _on_text(name, folder, (folder / "map.json").read_bytes() + source, *options)

    return workload


def _cmark_held_out(folder: Path) -> Workload:
    """cmark on the documents of zstd and of JsonCpp, again and again."""
    trees = (debian_source("libzstd"), debian_source("libjsoncpp"))
    documents = sorted(path for tree in trees for path in tree.rglob("*.md"))
    return _on_text("cmark", folder, 100 * b"\n".join(path.read_bytes() for path in documents))


def _tcc_held_out(folder: Path) -> Workload:
    """tcc on a program that nobody wrote."""
    folder.mkdir(parents=True, exist_ok=True)
    source, output = folder / "program.c", folder / "output.o"
    write_program(source, 20_000, seed=3)
    workload = _tcc("-c", str(source), "-o", str(output))
    return replace(workload, inputs=(source,), output=output)


def _lmdb(count: int, size: int, seed: int = _SEED) -> Callable[[Path], Workload]:
    """LMDB's loader, on random records in the text form of Berkeley DB's dumps."""

    def workload(folder: Path) -> Workload:
        folder.mkdir(parents=True, exist_ok=True)
        records, database = folder / "records", folder / "database"
        write_records(records, count, size, seed)
        arguments = ("-n", "-f", str(records), str(database))
        return Workload(PROGRAMS["lmdb"], debian_source("lmdb"), arguments, (records,), database)

    return workload


def _sqlite(*options: str) -> Callable[[Path], Workload]:
    """SQLite's own benchmark, in memory."""

    def workload(folder: Path) -> Workload:
        return Workload(PROGRAMS["sqlite"], _amalgamation(folder), ("--memdb", *options))

    return workload


def _amalgamation(folder: Path) -> Path:
    return sqlite_amalgamation(debian_source("sqlite3"), folder / "amalgamation")


def _tcc_counted(folder: Path) -> Workload:
    """tcc on SQLite's amalgamation, which includes little."""
    sqlite = _amalgamation(folder)
    target = ("-c", str(sqlite / "sqlite3.c"), "-o", str(folder / "output.o"))
    return _tcc(f"-I{sqlite}", *target)


def _tcc_timed(folder: Path) -> Workload:
    """tcc on SQLite, several times with other names, all into one object file."""
    whole = _amalgamation(folder) / "sqlite3.c"
    sources, output = [folder / f"copy{number}.c" for number in range(8)], folder / "output.o"

    def copy() -> None:
        text = whole.read_text()
        for number, source in enumerate(sources):
            write_text(source, text.replace("sqlite3", f"sqlite{number}copy"))

    memo(folder / "copies.json", sha256(whole), NoneType, copy, sources)
    workload = _tcc("-r", *map(str, sources), "-o", str(output))
    return replace(workload, inputs=tuple(sources), output=output)


def _tcc(*arguments: str) -> Workload:
    tree = debian_source("tcc")
    headers = (f"-B{tree}", "-I/usr/include/x86_64-linux-gnu")
    return Workload(PROGRAMS["tcc"], tree, (*headers, *arguments))


def _minisat(write: Callable[[Path], None]) -> Callable[[Path], Workload]:
    """MiniSat on a formula that is about as likely to be satisfiable as not."""

    def workload(folder: Path) -> Workload:
        folder.mkdir(parents=True, exist_ok=True)
        formula, header = folder / "formula.cnf", folder / "status.h"
        write(formula)
        # Its exit status tells the result, and is not that of a run which went well. With NDEBUG it
        # leaves by exit.
        text = "#include <cstdlib>\n#define NDEBUG\n#define exit(status) exit(0)\n"
        write_text(header, text)
        flags = ("-include", str(header.resolve()))
        return _on_file("minisat", formula, flags=flags)

    return workload


# By name, the workload, given a folder for its inputs. Before a counted run, the program must be
# built in that folder.
COUNTED: dict[str, Callable[[Path], Workload]] = {
    "zstd": _zstd_counted,
    "lmdb": _lmdb(40_000, 100),
    "lua": _on_script("lua", "counted.lua", _LUA_FLAGS),
    "bzip2": _on_sources("bzip2", "-k", "-f"),
    "sqlite": _sqlite("--size", "10"),
    "tcc": _tcc_counted,
    "minisat": _minisat(lambda path: write_formula(path, _SEED)),
    "lz4": _on_sources("lz4", "-9", "-f", "-q"),
    "cmark": _on_sources("cmark"),
    "mujs": _on_script("mujs", "counted.js"),
    "zlib": _on_sources("zlib", "-c", "-9"),
    "libyaml": _on_document("libyaml", 1500),
    "jsoncpp": _on_document("jsoncpp", 1500),
    "yaml-cpp": _on_document("yaml-cpp", 1500),
}
TIMED: dict[str, Callable[[Path], Workload]] = {
    "zstd": _zstd_timed,
    "lua": _on_script("lua", "timed.lua", _LUA_FLAGS),
    "sqlite": _sqlite("--size", "25", "--verify"),
    "tcc": _tcc_timed,
    "jsoncpp": _on_document("jsoncpp", 12_000, seed=2),
    "yaml-cpp": _on_document("yaml-cpp", 2_000, seed=2),
}
# Inputs of another kind, by which nothing is chosen.
HELD_OUT: dict[str, Callable[[Path], Workload]] = {
    "zstd": _on_mixture("zstd", "-9", "--single-thread", "--no-asyncio", "-q", "-c", size=8 << 20),
    "lmdb": _lmdb(20_000, 250, seed=3),
    "lua": _on_script("lua", "held_out.lua", _LUA_FLAGS),
    "bzip2": _on_mixture("bzip2", "-k", "-f", size=2 << 20),
    "sqlite": _sqlite("--size", "50", "--testset", "cte"),
    "tcc": _tcc_held_out,
    "minisat": _minisat(lambda path: write_coloring(path, 400, 935, 11)),
    "lz4": _on_mixture("lz4", "-9", "-f", "-q", size=5 << 20),
    "cmark": _cmark_held_out,
    "mujs": _on_script("mujs", "held_out.js"),
    "zlib": _on_mixture("zlib", "-c", "-9", size=3 << 19),
    "libyaml": _on_made("libyaml", write_manifest, 10_000, times=12),
    "jsoncpp": _on_made("jsoncpp", write_map, 1_800),
    "yaml-cpp": _on_made("yaml-cpp", write_manifest, 4_500),
}
# A run of these cannot be repeated: it adds to the database of an earlier run.
ONLY_ONCE = ("lmdb",)
