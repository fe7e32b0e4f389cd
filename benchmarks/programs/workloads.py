# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of real programs that benchmarks measure, with their runs.

A program has runs of different inputs:
  - `COUNTED`, to count, simulate or profile, and to choose by; it takes a second at most;
  - `TIMED`, to time many variants; it takes about a tenth of a second, and repeats short parts on
    little memory, because outer caches are shared with other machines; a shorter run is recorded;
  - `HELD_OUT`, to judge by; nothing is chosen by it. It takes a third of a second or more, and its
    inputs are of another kind.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

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
from compiler_opt_perf.corpus.program_table import PROGRAMS, Program
from compiler_opt_perf.corpus.programs import sqlite_amalgamation
from compiler_opt_perf.run.files import write_text
from compiler_opt_perf.toolchain.debian import debian_source
from compiler_opt_perf.toolchain.layout import REPO_ROOT

_SEED = 1


def _input(folder: Path) -> str:
    """The program's own sources, concatenated, where `build_program` leaves them in `folder`."""
    return str(folder / "input")


def _zstd_counted(folder: Path) -> Workload:
    """zstd -9 on its own source."""
    options = ("-9", "--single-thread", "-f", "-q", "-o", str(folder / "out.zst"))
    return Workload(PROGRAMS["zstd"], debian_source("libzstd"), (*options, _input(folder)))


def _zstd_timed(_: Path) -> Workload:
    """zstd -9 on Lua's sources, file by file, all of them several times; recorded once."""
    inputs = tuple(path for path in _sources("lua5.4") if path.stat().st_size >= 8 << 10)
    options, once = ("-9", "--single-thread", "--no-asyncio", "-q", "-c"), tuple(map(str, inputs))
    tree = debian_source("libzstd")
    workload = Workload(PROGRAMS["zstd"], tree, (*options, *5 * once), inputs)
    return _recorded(workload, (*options, *once))


def _sources(package: str) -> list[Path]:
    """The C sources of a package."""
    return sorted(debian_source(package).rglob("*.[ch]"))


def _on_lua(name: str, *options: str, times: int = 1) -> Callable[[Path], Workload]:
    """A compressor of the corpus on Lua's sources, so many times in a row; recorded on a part."""

    def workload(folder: Path) -> Workload:
        text = b"".join(path.read_bytes() for path in _sources("lua5.4"))
        return _on_texts(name, folder, times * text, text[:200_000], *options)

    return workload


def _on_texts(name: str, folder: Path, text: bytes, part: bytes, *options: str) -> Workload:
    """A program of the corpus on a text; recorded on another one."""
    workload = _on_text(name, folder, text, *options)
    path = folder / "part"
    path.write_bytes(part)
    return _recorded(workload, (*options, str(path)), path)


def _recorded(workload: Workload, arguments: Sequence[str], *inputs: Path) -> Workload:
    """A run, with a shorter one that reads other files, too."""
    return replace(workload, shorter=tuple(arguments), inputs=(*workload.inputs, *inputs))


def _cmark_timed(folder: Path) -> Workload:
    """cmark on its own documents and tests, several times."""
    tree = debian_source("cmark")
    files = sorted([*tree.glob("*.md"), *tree.glob("test/*.txt")])
    text = b"\n".join(path.read_bytes() for path in files)
    return _on_texts("cmark", folder, 24 * text, 4 * text)


def _on_sources(name: str, *options: str) -> Callable[[Path], Workload]:
    """A program of the corpus on its own sources."""

    def workload(folder: Path) -> Workload:
        program = PROGRAMS[name]
        tree = debian_source(program.source_package)
        return Workload(program, tree, (*options, _input(folder)))

    return workload


# Lua seeds hashes and the pivots of large sorts with the time: no two runs are alike.
_LUA_FLAGS = ("-Dluai_makeseed(L)=1u", "-Dl_randomizePivot()=1u")


def _on_script(
    name: str, script: str, flags: tuple[str, ...] = (), rounds: int | None = None
) -> Callable[[Path], Workload]:
    """An interpreter of the corpus.

    Args:
      script: name of a file beside this one, which says what it does.
      rounds: what the script gets as its argument, for a recorded run a fifth of it.
    """

    def workload(folder: Path) -> Workload:
        source = Path(__file__).parent / script
        path = folder / f"script{source.suffix}"
        write_text(path, source.read_text())
        workload = _on_file(name, path, flags=flags)
        if rounds is None:
            return workload
        whole = replace(workload, arguments=(*workload.arguments, str(rounds)))
        return _recorded(whole, (*workload.arguments, str(rounds // 5)))

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


def _on_documents(name: str, records: int, times: int = 1) -> Callable[[Path], Workload]:
    """The same, so many times; recorded on a fifth of the records, and half as often."""

    def workload(folder: Path) -> Workload:
        workload = _on_document(name, records, seed=2)(folder)
        path = folder / "part.json"
        write_document(path, records // 5, seed=2)
        whole = replace(workload, arguments=times * workload.arguments)
        return _recorded(whole, max(1, times // 2) * [str(path)], path)

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


def _sqlite_timed(folder: Path) -> Workload:
    """SQLite's own benchmark; recorded at a quarter of its size."""
    workload = _sqlite("--verify", "--size", "8")(folder)
    return _recorded(workload, (*workload.arguments[:-1], "2"))


def _amalgamation(folder: Path) -> Path:
    return sqlite_amalgamation(debian_source("sqlite3"), folder / "amalgamation")


def _tcc_on_sqlite(folder: Path) -> Workload:
    """tcc on SQLite's amalgamation, which includes little."""
    source, output = _amalgamation(folder) / "sqlite3.c", folder / "output.o"
    workload = _tcc(f"-I{source.parent}", "-c", str(source), "-o", str(output))
    return replace(workload, inputs=(source,), output=output)


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


def _passed_local(_: Path) -> Workload:
    """A loop in which a call that never runs keeps a local in memory."""
    program = Program(
        "passed-local",
        source_package="none",
        sources=("passed_local.cpp",),
        libraries=("-lstdc++",),
    )
    tree = REPO_ROOT / "compiler_opt_perf" / "train" / "testdata"
    return _recorded(Workload(program, tree, ("6000",)), ("200",))


# By name, the workload, given a folder for its inputs. Before a counted run, the program must be
# built in that folder.
COUNTED: dict[str, Callable[[Path], Workload]] = {
    "zstd": _zstd_counted,
    "lmdb": _lmdb(40_000, 100),
    "lua": _on_script("lua", "counted.lua", _LUA_FLAGS),
    "bzip2": _on_sources("bzip2", "-k", "-f"),
    "sqlite": _sqlite("--size", "10"),
    "tcc": _tcc_on_sqlite,
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
    "passed-local": _passed_local,
    "bzip2": _on_lua("bzip2", "-c", "-k"),
    "zlib": _on_lua("zlib", "-c", "-9", times=2),
    "lz4": _on_lua("lz4", "-9", "-c", "-q", times=4),
    "libyaml": _on_documents("libyaml", 1_500, times=20),
    "minisat": _minisat(lambda path: write_formula(path, 2)),
    "cmark": _cmark_timed,
    "mujs": _on_script("mujs", "timed.js", rounds=25),
    "tcc": _tcc_on_sqlite,
    "lua": _on_script("lua", "timed.lua", _LUA_FLAGS, rounds=5),
    "jsoncpp": _on_documents("jsoncpp", 6_000),
    "yaml-cpp": _on_documents("yaml-cpp", 1_500),
    "zstd": _zstd_timed,
    "sqlite": _sqlite_timed,
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
