# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The patched clang as a program to measure: parts of it are compiled anew, with debug info."""

import shlex
from pathlib import Path

import msgspec

from benchmarks.common import run_all
from benchmarks.programs.workload import Built
from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.json_text import decode
from compiler_opt_perf.run.llvm import LLVM_PREFIX, LLVM_VERSION, stock_tool
from compiler_opt_perf.toolchain.debian import debian_source
from compiler_opt_perf.toolchain.layout import BUILD

# Units that take much of the time of clang -O2, relative to llvm/lib.
LLVM_UNITS = (
    "Analysis/BasicAliasAnalysis",
    "Analysis/InlineAdvisor",
    "Analysis/InstructionSimplify",
    "Analysis/ScalarEvolution",
    "Analysis/ValueTracking",
    "CodeGen/LiveInterval",
    "CodeGen/MachineInstr",
    "CodeGen/RegAllocEvictionAdvisor",
    "CodeGen/RegAllocGreedy",
    "CodeGen/SelectionDAG/SelectionDAG",
    "IR/ConstantRange",
    "IR/Value",
    "Support/APInt",
    "Support/FoldingSet",
    "Support/SmallPtrSet",
)


def patched_clang(output: Path) -> Built:
    """The patched clang, which compiles one file of zstd at -O2.

    Debian's archives have no debug info. The units of `LLVM_UNITS`, which take a good part of the
    time, are compiled anew for profiling and linked as the overlay links its own.
    """
    overlay, tree = BUILD / "overlay", BUILD / f"llvm-{LLVM_VERSION}"
    of_overlay = _overlay_compilations()
    launcher, shared = overlay_compiler()
    files = {unit: str(tree / f"llvm/lib/{unit}.cpp") for unit in LLVM_UNITS}
    objects = output / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    level = ("-O2", *PROFILING_FLAGS.split())
    mine = [objects / f"{number}.o" for number in range(len(files))]
    commands: list[list[str | Path]] = [
        [*launcher, *shared, *level, "-c", file, "-o", target.resolve()]
        for file, target in zip(files.values(), mine, strict=True)
    ]
    run_all(commands, output)

    stock = run_command([stock_tool("llvm-config"), "--link-static", "--system-libs"]).stdout
    parts = ("common.dir/", "main_clang.dir/", "models_dev.dir/")
    theirs = [
        overlay / entry.output
        for file, entry in of_overlay.items()
        if any(part in entry.output for part in parts) and file not in files.values()
    ]
    archives = sorted(
        file
        for pattern in ("libclang*.a", "libLLVM*.a", "libPolly*.a")
        for file in (LLVM_PREFIX / "lib").glob(pattern)
    )
    binary = output / "clang"
    options = ["-fuse-ld=lld", "-Wl,--gc-sections,--as-needed,--build-id,--start-group"]
    run_command(
        [stock_tool("clang++"), *options, *mine, *theirs, *archives, *stock.split(), "-o", binary],
        timeout_s=600,
    )

    source = output / "huf_compress.i"
    zstd = debian_source("libzstd") / "lib/compress/huf_compress.c"
    run_command([stock_tool("clang"), "-E", "-P", zstd, "-o", source], timeout_s=60)
    arguments = ["-cc1", "-triple", "x86_64-pc-linux-gnu", "-O2", "-emit-obj", "-x", "c"]
    arguments += ["-o", str(output / "out.o"), str(source)]
    return Built(binary, arguments)


def overlay_compiler() -> tuple[list[str], list[str]]:
    """How the overlay compiles LLVM's units: the compiler behind its launcher, and the options.

    Precompiled headers are left out, because they hold for one level of optimisation.
    """
    words = next(
        words
        for entry in _overlay_compilations().values()
        if "common.dir/" in entry.output and "-MD" in (words := shlex.split(entry.command))
    )
    first = next(index for index, word in enumerate(words) if word.startswith("-"))
    # The dependency file and the output come after these.
    rest = words[first : words.index("-MD")]
    options: list[str] = []
    while rest:
        if rest[0] == "-Xclang" and rest[1] in ("-include-pch", "-include"):
            # Before its value there is another -Xclang.
            del rest[:4]
        else:
            options.append(rest.pop(0))
    return words[:first], options


class _Compilation(msgspec.Struct, frozen=True):
    file: str
    command: str
    output: str


def _overlay_compilations() -> dict[str, _Compilation]:
    """Ninja's entries of the overlay's compilations, by source file."""
    listed = run_command(["ninja", "-C", BUILD / "overlay", "-t", "compdb"]).stdout
    database = decode(listed, tuple[_Compilation, ...], "ninja -t compdb")
    return {entry.file: entry for entry in database if "-c" in entry.command.split()}
