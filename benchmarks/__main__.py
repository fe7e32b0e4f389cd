# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The commands `python -m benchmarks NAME`: each runs a benchmark and shows its tables.

Modules of benchmarks are imported when they run, so that `--help` is quick.
"""

import importlib
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from absl import logging

from benchmarks import results
from benchmarks.options import (
    CPU,
    LAYOUTS,
    OF_DEBIAN,
    PREPARE,
    PROCESSOR,
    TOOLCHAIN,
    Option,
    ToolchainFolder,
    keys_of,
    model,
    most,
    rounds,
    ways,
)
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import explained
from compiler_opt_perf.run.llvm import LLVM_VERSION
from compiler_opt_perf.run.progress import log_to_stderr
from compiler_opt_perf.toolchain.layout import BUILD


@click.group(context_settings={"max_content_width": 100})
def main() -> None:
    """Measurements that are repeated for releases.

    Each command writes its tables as data to benchmarks/results/NAME.json and prints them. With
    --only it writes to its own folder, because the published figures are of all programs. `idle`
    means that the machine must do nothing else. Commands need `cop toolchain build`.
    """


def _benchmark(
    name: str,
    summary: str,
    question: str,
    plot: results.Plot | None = None,
    options: Sequence[Option] = (),
    *,
    some: str | None = "PROGRAMS",
    folder: str | None = None,
) -> None:
    """Makes a command of the `study` in the module of the same name.

    Args:
      summary: what is measured, the time it takes, and whether an idle machine is needed.
      question: that the tables answer.
      plot: the picture, if there is one; columns that a run did not measure are left out.
      options: of the command, each of an argument of `study`.
      some: the module's table from which --only takes some; None if there is none.
      folder: name of the default folder in build/.
    """
    module = name.replace("-", "_")
    chosen = (some or "").lower()

    def run(folder: Path, output: Path | None, **values: Any) -> None:
        folder = folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        studied = importlib.import_module(f"benchmarks.{module}")
        partial = values.get(chosen) is not None
        if some and not partial:
            values[chosen] = tuple(getattr(studied, some))
        given = {key: value for key, value in values.items() if value is not None}
        tables: list[results.Table] = studied.study(folder=folder, **given)
        if not tables:
            return
        path = output or (folder if partial else results.FOLDER) / f"{name}.json"
        command = shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]])
        picture = plot and plot.of_known(tables)
        found = results.measured_now(path.stem, question, command, tables, picture)
        results.write(found, path)
        for table in tables:
            print(f"{table.caption}\n\n{table.markdown()}")
        logging.info("%s", path)

    own: list[Option] = [
        click.option(
            "--folder",
            type=click.Path(path_type=Path),
            default=str(BUILD / (folder or f"bench-{name}")),
            show_default=True,
            help="Folder for builds and results of steps; what is there is not done again.",
        ),
        click.option(
            "--output",
            type=click.Path(path_type=Path),
            help=f"File for the tables.  [default: benchmarks/results/{name}.json"
            + (f", or FOLDER/{name}.json with --only]" if some else "]"),
        ),
    ]
    if some:
        own.append(
            click.option(
                "--only",
                chosen,
                type=keys_of(module, some),
                help=f"{chosen.capitalize()} to measure, separated by commas; default: all.",
            )
        )
    command: Callable[..., None] = run
    for option in reversed([*own, *options]):
        command = option(command)
    main.command(name, help=f"{question}\n\n{summary}", short_help=summary)(command)


_benchmark(
    "collect",
    "Collection of PMU profiles: time, memory, size, locations. 15 minutes.",
    "What does collecting PMU data by simulation cost?",
    results.Plot("collect", ["slowdown"]),
)
_benchmark(
    "compile-cost",
    "Instructions of the compiler with policies and a profile of 10 MB. Half an hour.",
    "What do the policies and a PMU profile cost the compiler?",
    results.Plot("instructions", ["mean of small", "mean of large"]),
    [TOOLCHAIN],
)
_benchmark(
    "harm",
    "Times of forty programs of Debian that their own build systems build. An hour or two, idle.",
    "Does any program become slower by the policies?",
    results.Plot("worst", ["policies", "AutoFDO", "PGO-ThinLTO"]),
    OF_DEBIAN,
)
_benchmark(
    "constants",
    "Twenty programs by a profile with other constants of the compiler. Two hours, times idle.",
    "Does any constant of the compiler make builds by a profile faster?",
    results.Plot("sums", ["AutoFDO", "PGO", "PGO-ThinLTO"]),
    OF_DEBIAN,
    folder="bench-harm",
)
_benchmark(
    "small-cold",
    "Forty programs with small cold code, -Os and -Oz, on other inputs. An hour, times idle.",
    "What does it cost to compile cold code for size?",
    results.Plot("sums", ["text", "time"]),
    OF_DEBIAN,
    folder="bench-harm",
)
_benchmark(
    "large",
    "CPython, PostgreSQL, LevelDB and clasp by profiles and policies. Hours, times idle.",
    "What do profiles and policies give large programs?",
    results.Plot("sums", ["text", "time"]),
    OF_DEBIAN,
    folder="bench-harm",
)
_benchmark(
    "patch",
    "The programs of `harm` by AutoFDO and PGO, before a patch and with it. Hours, times idle.",
    "What does a patch of the compiler change in forty programs?",
    results.Plot("sums", ["instructions", "time"]),
    [
        click.option(
            "--earlier",
            type=ToolchainFolder(),
            required=True,
            help="The tools before the patch; builds of `harm` by them are used.",
        ),
        *OF_DEBIAN,
    ],
    folder="bench-harm",
)
_benchmark(
    "hits",
    "Lookups in a profile at other levels, with PGO and ThinLTO. Half an hour.",
    "How much of a profile do other compilations find?",
    results.Plot("found", ["executions, exact", "executions, flattened"]),
    [TOOLCHAIN],
)
_benchmark(
    "inline-speed",
    "Instructions of programs inlined in many ways, with a profile and without. Hours.",
    "What do PMU data add to inlining for speed?",
    results.Plot("instructions", ["policy", "shuffled PMU data"]),
    [
        ways("ways", "INLINING"),
        click.option("--judge/--no-judge", default=True, help="Count the held-out runs, too."),
        TOOLCHAIN,
    ],
)
_benchmark(
    "policies",
    "Times of programs by the shipped policies, AutoFDO, PGO and ThinLTO. Hours, idle.",
    "Do the two policies for speed make programs faster?",
    results.Plot("time", ["both policies", "both, shuffled profile"]),
    [ways("policies", "WAYS"), rounds(48), LAYOUTS, PROCESSOR, TOOLCHAIN],
    folder="bench-inline-speed",
)
_benchmark(
    "branch-hints",
    "Branches by PGO with !unpredictable by rates of mispredictions. An hour, times idle.",
    "Do rates of mispredictions, given as hints, make branches better?",
    results.Plot("time", ["by the profile", "all branches"]),
    [rounds(48), PROCESSOR, PREPARE, TOOLCHAIN],
)
_benchmark(
    "inline-search",
    "Single decisions of programs by PGO, taken the other way. Hours, times idle.",
    "What could any policy for inlining gain on top of PGO?",
    results.Plot("executed", ["PGO", "ThinLTO and PGO"]),
    [most(150), rounds(48), LAYOUTS, PROCESSOR, PREPARE, TOOLCHAIN],
    folder="bench-inline-speed",
)
_benchmark(
    "inline-labels",
    "Labels of decisions after the thin link of twenty programs, by a judge of cycles. Hours.",
    "Can inlining on top of PGO with ThinLTO be learnt?",
    results.Plot("learnt", ["4 others", "9 others", "all others"]),
    [most(30), CPU, TOOLCHAIN],
    folder="bench-harm",
)
_benchmark(
    "rank",
    "Predicted costs of variants against measured times. Hours; the time half an hour, idle.",
    "Do evaluators order compilations of a program as the clock does?",
    results.Plot("tau", ["registers", "inlining", "branches"]),
    [
        click.option("--kinds", type=keys_of("variants", "KINDS"), help="Variants; default: all."),
        click.option("--steps", type=keys_of("rank", "STEPS"), help="Steps to do; default: all."),
        *(rounds(15), PROCESSOR, CPU),
        click.option(
            "--model",
            "models",
            multiple=True,
            type=click.Path(path_type=Path),
            help="Folder of a learned cost model to compare; may be repeated.",
        ),
        click.option(
            "--earlier",
            type=click.Path(path_type=Path, exists=True, dir_okay=False),
            help="The llvm-trace-cost of another build, whose mca-pmu is compared, too.",
        ),
        TOOLCHAIN,
    ],
)
_benchmark(
    "cycles",
    "Predicted against measured cycles of runs and their parts. Half an hour, idle.",
    "Do PMU data make predicted cycles of real runs better?",
    results.Plot("parts", ["without PMU data", "with", "of other parts"]),
    [
        model("models/cost-znver3", "Folder of a learned cost model that knows this CPU."),
        *(CPU, rounds(30, 1), PROCESSOR, TOOLCHAIN),
    ],
)
_benchmark(
    "throughput",
    "Modules a second that a training compiles. 5 minutes, after make train-inline.",
    "How fast does training compile, and does it matter where?",
    results.Plot("ways", ["against plain clang"]),
    [
        click.option(
            "--corpora",
            type=click.Path(path_type=Path),
            default=str(BUILD / "train-inline" / "corpora"),
            show_default=True,
            help="Folder of corpora for inline-size.",
        ),
        model("models/inline-size"),
        click.option(
            "--modules", type=click.IntRange(1), default=40, show_default=True, help="At random."
        ),
        *(rounds(3, 1, "Of all ways."), TOOLCHAIN),
    ],
    some=None,
)
_benchmark(
    "size-columns",
    "Text and file size of programs: outliner, ThinLTO, and the policy for size. Two hours.",
    "How small do the builds become that users for size have?",
    results.Plot("means", ["inline-size", "outliner", "outliner-ThinLTO"]),
    [TOOLCHAIN],
)
_benchmark(
    "size-search",
    "Single decisions for size in each kind of build, taken the other way. An hour.",
    "How much could inlining save in each kind of build?",
    results.Plot("kept", ["search", "policy"]),
    [TOOLCHAIN],
    folder="bench-size-columns",
)
_benchmark(
    "hot-outlining",
    "Builds that leave alone what runs often: text, instructions and time. An hour, times idle.",
    "What does outlining cost at run time, and what is saved if hot blocks are left alone?",
    results.Plot("programs", ["time, no limit", "time, 8", "time, 0.5"]),
    [rounds(30, 6), PROCESSOR, PREPARE, TOOLCHAIN],
)
# These share the labels of single decisions, of all programs that train.
_OF_LABELS: Any = {"some": None, "folder": "bench-size-labels"}
_benchmark(
    "size-settings",
    "What is lost by one policy for size for builds that fold or outline and others. An hour.",
    "Does inlining for size need a policy for each kind of build?",
    results.Plot("kept", ["not folded", "folded", "folded and outlined"]),
    [TOOLCHAIN],
    **_OF_LABELS,
)
_benchmark(
    "size-rules",
    "Rules of few thresholds for size, by search on labels and on linked programs. An hour.",
    "Is a rule that a search finds as good as the network for size?",
    results.Plot("programs", ["rule, moved", "inline-size"]),
    [click.option("--generations", default=8, show_default=True, help="Of CMA-ES."), TOOLCHAIN],
    **_OF_LABELS,
)
_benchmark(
    "forwarding",
    "Time and predicted cycles where loads cannot be forwarded to. Two minutes, idle for the time.",
    "Does the judge see loads that the processor cannot forward to?",
    results.Plot("ways", ["time, ratio", "`mca-pmu`"]),
    [TOOLCHAIN],
    some=None,
)
_benchmark(
    "recording",
    "Time and memory of recorded and profiled runs of three programs. Five minutes, idle.",
    "What does it take to record a candidate's own run?",
    results.Plot("recording", ["recorded", "profiled"]),
)
_benchmark(
    "pinned",
    "Instructions and text with copies of locals for cold calls. An hour, idle for a time.",
    "Does it pay to keep cold calls from pinning locals to memory?",
    results.Plot("example", ["time"]),
    [TOOLCHAIN],
)
_benchmark(
    "decision",
    "Instructions and time of one decision in release mode. Two minutes, idle for the time.",
    "What does one decision cost, and do the three modes agree?",
    results.Plot("decision", ["ns, C++", "ns, TensorFlow"]),
    some=None,
)
_benchmark(
    "series",
    f"Builds and tests LLVM {LLVM_VERSION} with each part of the patch series. Half an hour.",
    "Does each part of the patch series build and pass its tests by itself?",
    results.Plot("parts", ["build"]),
    some=None,
)
_benchmark(
    "hosts",
    "`make demo` and `make check` on bare Debian systems, as root. An hour and a half, idle.",
    "How long do the two commands take on a bare system, and do they pass?",
    results.Plot("commands", ["time"]),
    [
        click.option("--targets", type=keys_of("hosts", "TARGETS"), help="Of make; default: all."),
        click.option(
            "--share",
            multiple=True,
            type=click.Path(path_type=Path, exists=True, dir_okay=False),
            help="File of this machine that the systems need at the same path, such as a "
            "certificate; may be repeated.",
        ),
    ],
    some="RELEASES",
)


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
