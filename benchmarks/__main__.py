# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The commands `python -m benchmarks NAME`: each runs a benchmark and shows its tables.

Modules of benchmarks are imported when they run, so that `--help` is quick.
"""

import functools
import importlib
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from absl import logging

from benchmarks import results
from benchmarks.options import ToolchainFolder, keys_of
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import explained
from compiler_opt_perf.run.llvm import LLVM_VERSION
from compiler_opt_perf.run.progress import log_to_stderr
from compiler_opt_perf.toolchain.installation import MOCK_SET, Toolchain
from compiler_opt_perf.toolchain.layout import BUILD

_TOOLCHAIN = click.option(
    "--toolchain",
    type=ToolchainFolder(),
    default=MOCK_SET,
    show_default=True,
    help="Folder of the patched tools, or the name of one in build/toolchain.",
)
_PROCESSOR = click.option(
    "--processor",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Processor to which timed runs are bound.",
)
# Of studies of the forty programs.
_ROUNDS = click.option(
    "--rounds", type=click.IntRange(6), default=15, show_default=True, help="Timed runs."
)
_PREPARE = click.option(
    "--prepare", is_flag=True, help="All but the times, on a machine that is not idle."
)


def _only(module: str) -> Callable[..., Any]:
    return click.option(
        "--only",
        type=keys_of(module, "PROGRAMS"),
        help="Programs to measure, separated by commas; default: all.",
    )


@click.group(context_settings={"max_content_width": 100})
def main() -> None:
    """Measurements that are repeated for releases.

    Each command writes its tables as data to benchmarks/results/NAME.json and prints them. With
    --only it writes to its own folder, because the published figures are of all programs. `idle`
    means that the machine must do nothing else. Commands need `cop toolchain build`.
    """


def _benchmark(
    name: str, summary: str, question: str, plot: results.Plot | None, folder: str | None = None
) -> Callable[[Callable[..., list[results.Table]]], click.Command]:
    """Makes a command of a function that returns tables.

    Args:
      summary: what is measured, the time it takes, and whether an idle machine is needed.
      question: that the tables answer.
      plot: the picture, if there is one; columns that a run did not measure are left out.
      folder: name of the default folder in build/.
    """
    default = str(BUILD / (folder or f"bench-{name}"))

    def decorate(function: Callable[..., list[results.Table]]) -> click.Command:
        @functools.wraps(function)
        def run(folder: Path, output: Path | None, **values: Any) -> None:
            folder = folder.resolve()
            folder.mkdir(parents=True, exist_ok=True)
            tables = function(folder, **values)
            if not tables:
                return
            partial = values.get("only") is not None
            path = output or (folder if partial else results.FOLDER) / f"{name}.json"
            words = ["python", "-m", "benchmarks", *sys.argv[1:]]
            command = shlex.join(words)
            picture = plot and plot.of_known(tables)
            found = results.measured_now(path.stem, question, command, tables, picture)
            results.write(found, path)
            for table in tables:
                print(f"{table.caption}\n\n{table.markdown()}")
            logging.info("%s", path)

        options = [
            click.option(
                "--folder",
                type=click.Path(path_type=Path),
                default=default,
                show_default=True,
                help="Folder for builds and results of steps; what is there is not done again.",
            ),
            click.option(
                "--output",
                type=click.Path(path_type=Path),
                help=f"File for the tables.  [default: benchmarks/results/{name}.json, or "
                f"FOLDER/{name}.json with --only]",
            ),
        ]
        for option in reversed(options):
            run = option(run)
        return main.command(name, help=f"{question}\n\n{summary}", short_help=summary)(run)

    return decorate


@_benchmark(
    "collect",
    "Collection of PMU profiles: time, memory, size, locations. 15 minutes.",
    "What does collecting PMU data by simulation cost?",
    results.Plot("collect", ["slowdown"]),
)
@_only("collect")
def _collect(folder: Path, only: list[str] | None) -> list[results.Table]:
    from benchmarks import collect

    return collect.study(only or collect.PROGRAMS, folder)


@_benchmark(
    "compile-cost",
    "Instructions of the compiler with policies and a profile of 10 MB. Half an hour.",
    "What do the policies and a PMU profile cost the compiler?",
    results.Plot("instructions", ["mean of small", "mean of large"]),
)
@_only("compile_cost")
@_TOOLCHAIN
def _compile_cost(
    folder: Path, only: list[str] | None, toolchain: Toolchain
) -> list[results.Table]:
    from benchmarks import compile_cost

    return compile_cost.study(only or compile_cost.PROGRAMS, folder, toolchain)


def _of_programs(name: str, summary: str, question: str, plot: results.Plot) -> None:
    """Makes the command of a study of programs of Debian, by the module of the same name."""
    module = name.replace("-", "_")

    @_benchmark(name, summary, question, plot, "bench-harm")
    @_only(module)
    @_ROUNDS
    @_PREPARE
    @_TOOLCHAIN
    def _run(
        folder: Path, only: list[str] | None, rounds: int, prepare: bool, toolchain: Toolchain
    ) -> list[results.Table]:
        of_programs = importlib.import_module(f"benchmarks.{module}")
        names = only or tuple(of_programs.PROGRAMS)
        found: list[results.Table] = of_programs.study(
            names, folder, toolchain, rounds=rounds, prepare=prepare
        )
        return found


_of_programs(
    "harm",
    "Times of forty programs of Debian that their own build systems build. An hour or two, idle.",
    "Does any program become slower by the policies?",
    results.Plot("worst", ["policies", "AutoFDO", "PGO-ThinLTO"]),
)
_of_programs(
    "constants",
    "Twenty programs by a profile with other constants of the compiler. Two hours, times idle.",
    "Does any constant of the compiler make builds by a profile faster?",
    results.Plot("sums", ["AutoFDO", "PGO-ThinLTO"]),
)
_of_programs(
    "small-cold",
    "Forty programs with small cold code, -Os and -Oz, on other inputs. An hour, times idle.",
    "What does it cost to compile cold code for size?",
    results.Plot("sums", ["text", "time"]),
)
_of_programs(
    "large",
    "CPython, PostgreSQL, LevelDB and clasp by profiles and policies. Two hours, times idle.",
    "What do profiles and policies give large programs?",
    results.Plot("sums", ["text", "time"]),
)


@_benchmark(
    "patch",
    "The programs of `harm` by AutoFDO and PGO, before a patch and with it. Hours, times idle.",
    "What does a patch of the compiler change in forty programs?",
    results.Plot("sums", ["instructions", "time"]),
    "bench-harm",
)
@_only("patch")
@click.option(
    "--earlier",
    type=ToolchainFolder(),
    required=True,
    help="The tools before the patch; builds of `harm` by them are used.",
)
@_ROUNDS
@_PREPARE
@_TOOLCHAIN
def _patch(
    folder: Path,
    only: list[str] | None,
    earlier: Toolchain,
    rounds: int,
    prepare: bool,
    toolchain: Toolchain,
) -> list[results.Table]:
    from benchmarks import patch

    names = only or tuple(patch.PROGRAMS)
    return patch.study(names, folder, toolchain, earlier, rounds=rounds, prepare=prepare)


@_benchmark(
    "hits",
    "Lookups in a profile at other levels, with PGO and ThinLTO. Half an hour.",
    "How much of a profile do other compilations find?",
    results.Plot("found", ["executions, exact", "executions, flattened"]),
)
@_only("hits")
@_TOOLCHAIN
def _hits(folder: Path, only: list[str] | None, toolchain: Toolchain) -> list[results.Table]:
    from benchmarks import hits

    return hits.study(only or hits.PROGRAMS, folder, toolchain)


@_benchmark(
    "inline-speed",
    "Instructions of programs inlined in many ways, with a profile and without. Hours.",
    "What do PMU data add to inlining for speed?",
    results.Plot("instructions", ["policy", "shuffled PMU data"]),
)
@_only("inline_speed")
@click.option("--ways", type=keys_of("ways", "INLINING"), help="Ways of compiling; default: all.")
@click.option("--judge/--no-judge", default=True, help="Count the held-out runs, too.")
@_TOOLCHAIN
def _inline_speed(
    folder: Path,
    only: list[str] | None,
    ways: list[str] | None,
    judge: bool,
    toolchain: Toolchain,
) -> list[results.Table]:
    from benchmarks import inline_speed
    from benchmarks.ways import INLINING

    return inline_speed.study(
        only or inline_speed.PROGRAMS,
        folder,
        toolchain,
        ways=ways or tuple(INLINING),
        judge=judge,
    )


@_benchmark(
    "policies",
    "Times of programs by the shipped policies, AutoFDO, PGO and ThinLTO. Hours, idle.",
    "Do the two policies for speed make programs faster?",
    results.Plot("time", ["both policies", "both, shuffled profile"]),
    folder="bench-inline-speed",
)
@_only("policies")
@click.option("--ways", type=keys_of("policies", "WAYS"), help="Ways of compiling; default: all.")
@click.option("--rounds", type=click.IntRange(3), default=48, show_default=True, help="Timed runs.")
@click.option(
    "--layouts",
    type=click.IntRange(3),
    default=24,
    show_default=True,
    help="Layouts of functions that take turns in the rounds.",
)
@_PROCESSOR
@_TOOLCHAIN
def _policies(
    folder: Path,
    only: list[str] | None,
    ways: list[str] | None,
    rounds: int,
    layouts: int,
    processor: int,
    toolchain: Toolchain,
) -> list[results.Table]:
    from benchmarks import policies

    return policies.study(
        only or policies.PROGRAMS,
        folder,
        toolchain,
        ways=ways or policies.WAYS,
        rounds=rounds,
        layouts=layouts,
        processor=processor,
    )


@_benchmark(
    "rank",
    "Predicted costs of variants against measured times. Hours; the time half an hour, idle.",
    "Do evaluators order compilations of a program as the clock does?",
    results.Plot("tau", ["registers", "inlining", "branches"]),
)
@_only("rank")
@click.option("--kinds", type=keys_of("variants", "KINDS"), help="Of variants; default: all.")
@click.option("--steps", type=keys_of("rank", "STEPS"), help="Steps to do; default: all.")
@click.option("--rounds", type=click.IntRange(3), default=15, show_default=True, help="Timed runs.")
@_PROCESSOR
@click.option("--cpu", default="host", show_default=True, help="A CPU file, or the name of one.")
@click.option(
    "--model",
    "models",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Folder of a learned cost model to compare; may be repeated.",
)
@click.option(
    "--earlier",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The llvm-trace-cost of another build, whose mca-pmu is compared, too.",
)
@_TOOLCHAIN
def _rank(
    folder: Path,
    only: list[str] | None,
    kinds: list[str] | None,
    steps: list[str] | None,
    rounds: int,
    processor: int,
    cpu: str,
    models: tuple[Path, ...],
    earlier: Path | None,
    toolchain: Toolchain,
) -> list[results.Table]:
    from benchmarks import rank
    from benchmarks.variants import KINDS
    from compiler_opt_perf.blocks.cpu_files import cpu_file

    return rank.study(
        only or rank.PROGRAMS,
        folder,
        toolchain,
        kinds=kinds or tuple(KINDS),
        steps=steps or tuple(rank.STEPS),
        rounds=rounds,
        processor=processor,
        cpu=cpu_file(cpu),
        models=models,
        earlier=earlier,
    )


@_benchmark(
    "cycles",
    "Predicted against measured cycles of runs and their parts. Half an hour, idle.",
    "Do PMU data make predicted cycles of real runs better?",
    results.Plot("parts", ["without PMU data", "with", "of other parts"]),
)
@_only("cycles")
@click.option(
    "--model",
    type=click.Path(path_type=Path),
    default="models/cost-znver3",
    show_default=True,
    help="Folder of a learned cost model that knows this CPU.",
)
@click.option("--cpu", default="host", show_default=True, help="A CPU file, or the name of one.")
@click.option("--rounds", type=click.IntRange(1), default=30, show_default=True, help="Timed runs.")
@_PROCESSOR
@_TOOLCHAIN
def _cycles(
    folder: Path,
    only: list[str] | None,
    model: Path,
    cpu: str,
    rounds: int,
    processor: int,
    toolchain: Toolchain,
) -> list[results.Table]:
    from benchmarks import cycles
    from compiler_opt_perf.blocks.cpu_files import cpu_file
    from compiler_opt_perf.blocks.model import load

    return cycles.study(
        only or cycles.PROGRAMS,
        folder,
        toolchain,
        load(model),
        cpu=cpu_file(cpu),
        rounds=rounds,
        processor=processor,
    )


@_benchmark(
    "throughput",
    "Modules a second that a training compiles. 5 minutes, after make train-inline.",
    "How fast does training compile, and does it matter where?",
    results.Plot("ways", ["against plain clang"]),
)
@click.option(
    "--corpora",
    type=click.Path(path_type=Path),
    default=str(BUILD / "train-inline" / "corpora"),
    show_default=True,
    help="Folder of corpora for inline-size.",
)
@click.option(
    "--model",
    type=click.Path(path_type=Path),
    default="models/inline-size",
    show_default=True,
    help="Folder of a policy.",
)
@click.option("--modules", type=click.IntRange(1), default=40, show_default=True, help="At random.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Of all ways.")
@_TOOLCHAIN
def _throughput(
    folder: Path, corpora: Path, model: Path, modules: int, rounds: int, toolchain: Toolchain
) -> list[results.Table]:
    from benchmarks import throughput

    return throughput.study(corpora, model, toolchain, modules=modules, rounds=rounds)


@_benchmark(
    "size-columns",
    "Text and file size of programs: outliner, ThinLTO, and the policy for size. Two hours.",
    "How small do the builds become that users for size have?",
    results.Plot("means", ["inline-size", "outliner", "outliner-ThinLTO"]),
)
@_only("size_columns")
@_TOOLCHAIN
def _size_columns(
    folder: Path, only: list[str] | None, toolchain: Toolchain
) -> list[results.Table]:
    from benchmarks import size_columns

    return size_columns.study(only or size_columns.PROGRAMS, folder, toolchain)


@_benchmark(
    "size-folding",
    "What the policy for size does with identical functions, which the linker folds. An hour.",
    "What becomes of identical functions with the policy for size?",
    None,
)
@click.option(
    "--margin",
    type=click.FloatRange(0, 4),
    default=1.5,
    show_default=True,
    help="Of the compiler's own decision, for a second table.",
)
@_only("size_folding")
@_TOOLCHAIN
def _size_folding(
    folder: Path, only: list[str] | None, toolchain: Toolchain, margin: float
) -> list[results.Table]:
    from benchmarks import size_folding

    return size_folding.study(only or size_folding.PROGRAMS, folder, toolchain, margin)


@_benchmark(
    "forwarding",
    "Time and predicted cycles where loads cannot be forwarded to. Two minutes, idle for the time.",
    "Does the judge see loads that the processor cannot forward to?",
    results.Plot("ways", ["time, ratio", "`mca-pmu`"]),
)
@_TOOLCHAIN
def _forwarding(folder: Path, toolchain: Toolchain) -> list[results.Table]:
    from benchmarks import forwarding

    return forwarding.study(folder, toolchain)


@_benchmark(
    "recording",
    "Time and memory of recorded and profiled runs of three programs. Five minutes, idle.",
    "What does it take to record a candidate's own run?",
    results.Plot("recording", ["recorded", "profiled"]),
)
@_only("recording")
def _recording(folder: Path, only: list[str] | None) -> list[results.Table]:
    from benchmarks import recording

    return recording.study(only or list(recording.PROGRAMS), folder)


@_benchmark(
    "pinned",
    "Instructions and text with copies of locals for cold calls. An hour, idle for a time.",
    "Does it pay to keep cold calls from pinning locals to memory?",
    results.Plot("example", ["time"]),
)
@_only("pinned")
@_TOOLCHAIN
def _pinned(folder: Path, only: list[str] | None, toolchain: Toolchain) -> list[results.Table]:
    from benchmarks import pinned

    return pinned.study(pinned.PROGRAMS if only is None else only, folder, toolchain)


@_benchmark(
    "decision",
    "Instructions and time of one decision in release mode. Two minutes, idle for the time.",
    "What does one decision cost, and do the three modes agree?",
    results.Plot("decision", ["ns, C++", "ns, TensorFlow"]),
)
def _decision(folder: Path) -> list[results.Table]:
    from benchmarks import decision

    return decision.study(folder)


@_benchmark(
    "series",
    f"Builds and tests LLVM {LLVM_VERSION} with each part of the patch series. Half an hour.",
    "Does each part of the patch series build and pass its tests by itself?",
    results.Plot("parts", ["build"]),
)
def _series(folder: Path) -> list[results.Table]:
    from benchmarks import series

    return series.study(folder)


@_benchmark(
    "hosts",
    "`make demo` and `make check` on bare Debian systems, as root. An hour and a half, idle.",
    "How long do the two commands take on a bare system, and do they pass?",
    results.Plot("commands", ["time"]),
)
@click.option("--only", type=keys_of("hosts", "RELEASES"), help="Releases; default: all.")
@click.option("--targets", type=keys_of("hosts", "TARGETS"), help="Targets of make; default: all.")
@click.option(
    "--share",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="File of this machine that the systems need at the same path, such as a certificate; may "
    "be repeated.",
)
def _hosts(
    folder: Path, only: list[str] | None, targets: list[str] | None, share: tuple[Path, ...]
) -> list[results.Table]:
    from benchmarks import hosts

    return hosts.study(folder, only or tuple(hosts.RELEASES), targets or hosts.TARGETS, share=share)


@main.command("render", short_help="Tables and pictures of docs/results/ and README.md. Seconds.")
@click.option("--check", is_flag=True, help="Write nothing; fail if a page is not as it must be.")
def _render(check: bool) -> None:
    """Writes the tables and pictures of docs/results/ and README.md from benchmarks/results/."""
    from benchmarks import first_page, render

    names = ", ".join(render.update(check=check) + first_page.update(check=check))
    if check and names:
        raise click.ClickException(f"{names}: rendered otherwise; run python -m benchmarks render")


if __name__ == "__main__":
    log_to_stderr()
    # An exception ends the commands that are running, too; the signal alone would not.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        main(prog_name="python -m benchmarks")
    except (UserError, OSError) as error:
        sys.exit(f"error: {explained(error)}")
