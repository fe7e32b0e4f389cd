# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What do shipped policies with a PMU profile of 10 MB cost a compilation, small files included?

Modules of real programs are compiled at -O2 with line tables: by the default policies without a
profile, and by the policies inside a toolchain with the profile. Instructions of the compiler are
counted, which the machine's load does not change.

Policies change the code, and other code takes more or fewer instructions to compile. So modules
whose object files stay the same are also shown by themselves: they show what is paid for the
profile, the features and the decisions alone.

The profile merges those of all programs, with copies of them under other names, as many as the
size needs. So modules find their data, and the copies stand for the rest of a large program.
"""

import math
import random
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from absl import logging

from benchmarks.common import saved
from benchmarks.programs.workload import Built
from benchmarks.programs.workloads import COUNTED
from benchmarks.results import Cell, Table
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.profile.function_table import FunctionTable
from compiler_opt_perf.profile.index import index_of
from compiler_opt_perf.profile.manifest import SUFFIX, Manifest
from compiler_opt_perf.profile.sample_profile import convert_to_binary, convert_to_text
from compiler_opt_perf.profile.store import save_profile
from compiler_opt_perf.run.files import sha256, write_json
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.timing import Meter, find_meter
from compiler_opt_perf.toolchain.installation import Toolchain

PROGRAMS = (
    *("zstd", "lua", "bzip2", "tcc", "minisat", "lz4", "cmark"),
    *("mujs", "zlib", "libyaml", "jsoncpp", "yaml-cpp"),
)
MODULES = 100
#: Compilations of more instructions are large.
LARGE = 200_000_000
_PROFILE_BYTES = 10_000_000
_SEED = 1
# What a compilation with a profile needs.
_FLAGS = ("-O2", "-gline-tables-only", "-fdebug-info-for-profiling")
_TIMEOUT_S = 3600.0
_POLICIES = ("-mllvm", "-enable-ml-inliner=release", "-mllvm", "-regalloc-enable-advisor=release")


class Counted(NamedTuple):
    """A compilation: the compiler's instructions, and the SHA-256 of the object file."""

    instructions: int
    object: str


class Job(NamedTuple):
    """A module to compile by the default policies and, with `options`, by both policies."""

    module: str
    command: tuple[str, ...]
    options: tuple[str, ...]
    meter: Meter


def large_profile(manifests: Sequence[Manifest], path: Path) -> Path:
    """Merges profiles, with copies under other names, to 10 MB of files; returns the manifest."""
    size = sum(record.bytes for one in manifests for _, record in one.files())
    first, copies = manifests[0], math.ceil(_PROFILE_BYTES / size)
    functions = FunctionTable({})
    for one in manifests:
        table = one.read_functions()
        if table is not None:
            functions, _ = functions.merged(table)
    with tempfile.TemporaryDirectory(prefix="compile-cost-") as scratch:
        text, copied = Path(scratch) / "text", Path(scratch) / "copied"

        def write(number: int, output: Path) -> None:
            name = first.events[number].name
            with copied.open("w") as stream:
                for manifest in manifests:
                    convert_to_text(manifest.file(manifest.event(name)), text)
                    lines = text.read_text()
                    for copy in range(copies):
                        stream.write(renamed(lines, f"copy{copy}_") if copy else lines)
            convert_to_binary(copied, output)

        manifest = save_profile(
            path, first.program, first.collector, first.events, {}, functions, write
        )
    size = sum(record.bytes for _, record in manifest.files())
    index = index_of(path).stat().st_size
    logging.info("%s: %d copies, %d bytes, its index %d bytes", path, copies, size, index)
    return path


def renamed(text: str, prefix: str) -> str:
    """A sample profile in text form with `prefix` before each function's name."""
    nested = re.sub(r"^( +[\d.]+: )(?=\D.*:\d+$)", rf"\g<1>{prefix}", text, flags=re.MULTILINE)
    return re.sub(r"^(?=[^\s#!])", prefix, nested, flags=re.MULTILINE)


def measure(job: Job) -> dict[str, Counted]:
    """Counts the compilations of a module by the "default" policies, and by "both"."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="compile-cost-") as scratch:
        output = Path(scratch) / "module.o"
        for way, options in {"default": (), "both": job.options}.items():
            command = [*job.command, *options, "-o", str(output)]
            count = int(job.meter.measure(command, _TIMEOUT_S))
            found[way] = Counted(count, sha256(output))
    return found


def _percent(changes: Iterable[float]) -> float | None:
    logs = [math.log(change) for change in changes]
    return 100 * math.expm1(sum(logs) / len(logs)) if logs else None


def _worst(changes: Iterable[float]) -> float | None:
    return max((100 * (change - 1) for change in changes), default=None)


def tables(counts: Mapping[str, Mapping[str, Counted]]) -> list[Table]:
    """All modules and those whose object file stays the same, then each of these and the others."""
    modules: list[tuple[str, int, float, str]] = []
    for module, row in counts.items():
        default, both = row["default"], row["both"]
        kind = "same" if both.object == default.object else "other"
        change = both.instructions / default.instructions
        modules.append((module, default.instructions, change, kind))
    modules.sort(key=itemgetter(1))
    rows: list[list[Cell]] = []
    for which in ("all", "same"):
        chosen = [(size, c) for _, size, c, kind in modules if which in ("all", kind)]
        small = [change for size, change in chosen if size <= LARGE]
        large = [change for size, change in chosen if size > LARGE]
        summary: list[Cell] = [which, len(chosen), _percent(c for _, c in chosen)]
        summary += [len(small), _percent(small), _worst(small)]
        rows.append([*summary, len(large), _percent(large), _worst(large)])
    columns = {
        "object file": "text",
        "number": "integer",
        "mean": "percent:+2",
        "small": "integer",
        "mean of small": "percent:+2",
        "worst small": "percent:+2",
        "large": "integer",
        "mean of large": "percent:+2",
        "worst large": "percent:+2",
    }
    caption = (
        "Change of clang's instructions at `-O2` with line tables, against the default policies "
        "without a profile; geometric means. Small modules take at most 200 million instructions."
    )
    found = [Table.of("instructions", caption, columns, rows)]
    columns = {"module": "text", "million instructions": "integer", "change": "percent:+2"}
    for which, outcome in (("same", "stays the same"), ("other", "becomes another one")):
        caption = f"Modules whose object file {outcome}: instructions by the default policies."
        rows = [[name, n // 10**6, 100 * (c - 1)] for name, n, c, kind in modules if kind == which]
        found.append(Table.of(which, caption, columns, rows))
    return found


def jobs(cases: Mapping[str, Built], clang: Path, profile: Path, meter: Meter) -> list[Job]:
    """Some modules of all programs, always the same ones."""
    options = ("-mllvm", f"-pmu-profile={profile}", *_POLICIES)
    found = []
    for name, case in cases.items():
        for unit in case.units:
            module = f"{name} {Path(unit[-1]).name}"
            command = (str(clang), *_FLAGS, f"-working-directory={case.directory}", *unit)
            found.append(Job(module, command, options, meter))
    return random.Random(_SEED).sample(found, min(MODULES, len(found)))


def study(programs: Sequence[str], folder: Path, toolchain: Toolchain) -> list[Table]:
    """Measures modules of some of `PROGRAMS`; returns the tables.

    Modules that were counted with the same folder before are not counted again.
    """
    cases, manifests = {}, []
    for name in programs:
        own, path = folder / name, folder / f"{name}{SUFFIX}"
        cases[name] = COUNTED[name](own).build(own)
        if not path.is_file():
            collect(cases[name].binary, cases[name].arguments, path)
        manifests.append(Manifest.load(path))
    profile = folder / f"large{SUFFIX}"
    if not profile.is_file():
        large_profile(manifests, profile)
    meter = find_meter("instructions", folder)
    counts = {
        module: {way: Counted(**row) for way, row in rows.items()}
        for module, rows in saved(folder, ["counts"]).get("counts", {}).items()
    }
    wanted = jobs(cases, toolchain.clang, profile, meter)
    todo = [job for job in wanted if job.module not in counts]

    def keep(job: Job, found: dict[str, Counted]) -> None:
        counts[job.module] = found
        rows = {m: {w: c._asdict() for w, c in row.items()} for m, row in counts.items()}
        write_json(folder / "counts.json", rows)

    with Pool() as pool:
        for outcome in pool.map(measure, todo, label="counting", keep=keep):
            outcome.get()
    return tables({job.module: counts[job.module] for job in wanted})
