# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures what a large PMU profile costs a compilation at -O2.

Each module is compiled with both policies in release mode: without a profile, with a profile of 10
MB, and, where --reference names a clang of the series without its PMU patches, with that one.
Instructions are counted by the processor or, where it cannot, by QEMU's user mode; times are
processor times of interleaved runs. Both are given as ratios to the compilation without a profile.
Instructions do not depend on the machine's load.

The profile merges those of real programs, as `cop study collect` leaves them, with copies of them
under other names, as many as the size needs. So the modules of those programs find their data, and
the copies stand for the rest of a program of that size.
"""

import dataclasses
import itertools
import re
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from absl import logging

from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.corpus.program_table import PROGRAMS, Program
from compiler_opt_perf.corpus.programs import program_tree
from compiler_opt_perf.cost.timing import find_meter, processor_seconds
from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.execution.files import write_json, write_text
from compiler_opt_perf.execution.llvm import LLVM_VERSION, stock_tool
from compiler_opt_perf.pmu.manifest import SUFFIX, Manifest
from compiler_opt_perf.pmu.sample_profile import convert_to_binary, convert_to_text
from compiler_opt_perf.pmu.store import save_profile
from compiler_opt_perf.studies.common import StudyError
from compiler_opt_perf.studies.workloads import overlay_compiler
from compiler_opt_perf.toolchain.layout import BUILD

_PROFILE_BYTES = 10_000_000
_TIMEOUT_S = 3600.0

# Sources by program; LLVM's own are those of the patched tree, relative to llvm/lib.
_SOURCES = {
    "zstd": (
        "lib/compress/zstd_compress.c",
        "lib/compress/zstd_lazy.c",
        "lib/compress/zstd_opt.c",
        "lib/decompress/huf_decompress.c",
    ),
    "lua": ("src/lvm.c", "src/lparser.c"),
    "bzip2": ("compress.c",),
    "tcc": ("tccgen.c",),
    "minisat": ("minisat/core/Solver.cc",),
    "mujs": ("jsrun.c",),
}
_LLVM_SOURCES = ("CodeGen/MLRegAllocEvictAdvisor.cpp", "IR/AsmWriter.cpp")

MODULES = tuple(
    Path(source).stem for source in (*itertools.chain(*_SOURCES.values()), *_LLVM_SOURCES)
)

_RELEASE_MODE = (
    *("-mllvm", "-enable-ml-inliner=release"),
    *("-mllvm", "-regalloc-enable-advisor=release"),
)


@dataclasses.dataclass(frozen=True)
class Module:
    """A preprocessed source file, and the flags that its code depends on."""

    name: str
    source: Path
    flags: tuple[str, ...]


def large_profile(manifests: Sequence[Manifest], output: Path) -> Path:
    """Merges profiles, with copies under other names, to 10 MB of files in folder `output`."""
    size = sum(record.bytes for one in manifests for _, record in one.files())
    first = manifests[0]
    copies = -(-_PROFILE_BYTES // size)

    with tempfile.TemporaryDirectory(prefix="bench-compile-") as scratch:
        text, copied = Path(scratch) / "text", Path(scratch) / "copied"

        def write(number: int, path: Path) -> None:
            name = first.events[number].name
            with copied.open("w") as stream:
                for manifest in manifests:
                    convert_to_text(manifest.file(manifest.event(name)), text)
                    lines = text.read_text()
                    for copy in range(copies):
                        stream.write(renamed(lines, f"copy{copy}_") if copy else lines)
            convert_to_binary(copied, path)

        manifest = save_profile(
            output / f"large{SUFFIX}", first.program, first.collector, first.events, {}, None, write
        )
    logging.info(
        "%s: %d bytes, %d times the profiles of %s",
        manifest.path,
        sum(record.bytes for _, record in manifest.files()),
        copies,
        ", ".join(one.program.path for one in manifests),
    )
    return manifest.path


def renamed(text: str, prefix: str) -> str:
    """A sample profile in text form with `prefix` before each function's name."""
    nested = re.sub(r"^( +[\d.]+: )(?=\D.*:\d+$)", rf"\g<1>{prefix}", text, flags=re.MULTILINE)
    return re.sub(r"^(?=[^\s#!])", prefix, nested, flags=re.MULTILINE)


def modules(only: Sequence[str], folder: Path) -> list[Module]:
    """Preprocesses the sources of some of `MODULES`."""
    folder.mkdir(parents=True, exist_ok=True)
    jobs: list[tuple[Path, Path, list[str]]] = []
    for name, sources in _SOURCES.items():
        program: Program = PROGRAMS[name]
        for header, text in program.generated:
            write_text(folder / name / header, text)
        tree = program_tree(program)
        own = [f"-I{(folder / name).resolve()}", *program.flags]
        jobs += [(tree, Path(source), own) for source in sources]
    llvm = BUILD / f"llvm-{LLVM_VERSION}"
    _, shared = overlay_compiler()
    jobs += [(llvm, Path("llvm/lib", s), shared) for s in _LLVM_SOURCES]

    result = []
    for tree, source, options in jobs:
        name = source.stem
        if name not in only:
            continue
        cxx = source.suffix != ".c"
        output = folder / f"{name}{'.ii' if cxx else '.i'}"
        clang = stock_tool("clang++" if cxx else "clang")
        argv: list[str | Path] = [clang, "-E", *options, tree / source, "-o", output]
        run_command(argv, cwd=tree, timeout_s=300)
        kept = [word for word in options if word.startswith(("-std=", "-f"))]
        result.append(Module(name, output, tuple(kept)))
    return result


def command(clang: Path, module: Module, extra: Sequence[str], folder: Path) -> list[str]:
    """The command that compiles a module."""
    options = ["-O2", "-w", *module.flags, *PROFILING_FLAGS.split(), *_RELEASE_MODE, *extra]
    return [str(clang), *options, "-c", str(module.source), "-o", str(folder / "out.o")]


def median_seconds(commands: Mapping[str, Sequence[str]], runs: int) -> dict[str, float]:
    """Median processor time of each command, all of them interleaved; 0 without runs."""
    limit = ["timeout", str(_TIMEOUT_S)]
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, argv in commands.items():
            seconds[name].append(processor_seconds([*limit, *argv]))
    return {name: statistics.median(values or [0.0]) for name, values in seconds.items()}


def _ratio(seconds: float, reference: float) -> str:
    return f"{seconds / reference:.3f}" if seconds else "not timed"


def study(
    only: Sequence[str],
    output: Path,
    *,
    profiles: Path,
    clang: Path,
    reference: Path | None = None,
    runs: int = 5,
) -> None:
    """Measures compilations of some of `MODULES`, and prints a table row by row.

    Args:
      profiles: the folder whose profiles make up the large one.
      clang: the compiler to measure.
      reference: a clang of the series without its PMU patches.
      runs: timed runs; with 0, instructions are counted and nothing is timed.

    Raises:
      StudyError: there is no profile.
    """
    manifests = [Manifest.load(path) for path in sorted(profiles.glob("*" + SUFFIX))]
    if not manifests:
        raise StudyError(
            f"{profiles}: no profiles; run make bench-collect first, or give --profiles"
        )
    output = output.absolute()
    output.mkdir(parents=True, exist_ok=True)
    meter = find_meter("instructions", output)
    profile = large_profile(manifests, output)
    configurations: dict[str, tuple[Path, tuple[str, ...]]] = {
        "none": (clang, ()),
        "profile": (clang, ("-mllvm", f"-pmu-profile={profile}")),
    }
    if reference:
        configurations["reference"] = (reference, ())
    others = [name for name in configurations if name != "none"]

    results: dict[str, dict[str, tuple[float, float]]] = {}
    columns = " | ".join(f"{name}: instructions | time" for name in others)
    print(f"| module | G instructions | s | {columns} |")
    print("|---" * (3 + 2 * len(others)) + "|")
    for module in modules(only, output / "modules"):
        commands = {
            name: command(compiler, module, extra, output)
            for name, (compiler, extra) in configurations.items()
        }
        counts = {name: meter.measure(argv, _TIMEOUT_S) for name, argv in commands.items()}
        times = median_seconds(commands, runs)
        results[module.name] = {name: (counts[name], times[name]) for name in commands}
        counted, seconds = results[module.name]["none"]
        cells = [module.name, f"{counted / 1e9:.2f}", f"{seconds:.1f}"]
        for name in others:
            other = results[module.name][name]
            cells += [f"{other[0] / counted:.4f}", _ratio(other[1], seconds)]
        print(f"| {' | '.join(cells)} |", flush=True)
        write_json(output / "results.json", results)
    for name in others:
        more, longer = (
            [row[name][i] / (row["none"][i] or 1) for row in results.values()] for i in (0, 1)
        )
        print(
            f"{name}: median {statistics.median(more):.4f} instructions, "
            f"{_ratio(statistics.median(longer), 1)} time; largest {max(more):.4f} instructions"
        )
