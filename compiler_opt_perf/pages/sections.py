# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of a page of comparisons: a profile, builds of a program, linked programs, a training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler_opt_perf.compare.linked import LinkedPrograms, table, title
from compiler_opt_perf.compare.training_run import TrainingRun
from compiler_opt_perf.compare.training_tables import headline
from compiler_opt_perf.pages import page
from compiler_opt_perf.pages.profile import bars, cost_share, places
from compiler_opt_perf.pages.training import curve_plot
from compiler_opt_perf.profile.hotspots import shown_rates, top_functions
from compiler_opt_perf.profile.profile import Profile
from compiler_opt_perf.profile.report import interval, penalties
from compiler_opt_perf.train.linked import COLUMNS, ProgramResult, cells, mean_cells
from compiler_opt_perf.trial.result import Trial
from compiler_opt_perf.trial.result import table as trial_table

_FUNCTIONS = 8
_BYTES = (
    "Bytes of machine code, linked without libraries, by the compiler's own decisions and with the "
    "policy. The column “objects” has the change before the link. Negative is better."
)
_COLOURS = ("tab:blue", "tab:orange", "tab:green")


@dataclass(frozen=True)
class Section:
    """A table with its picture.

    Attributes:
      text: paragraphs before the table.
      columns: of the table; without any there is no table.
      total: the table's last row; empty for none.
      picture: SVG; empty for none.
      notes: paragraphs after the picture.
    """

    title: str
    text: Sequence[str]
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    total: Sequence[str] = ()
    picture: str = ""
    notes: Sequence[str] = ()


def profile_section(profile: Profile) -> Section:
    """The functions of a program that lose most time."""
    rates = shown_rates(profile)
    spots = top_functions(profile, _FUNCTIONS)
    names = places(spots)
    return Section(
        f"Profile of {Path(profile.manifest.program.path).name}",
        [
            "The functions that lose most nominal cycles to cache misses and mispredicted branches "
            f"({penalties(profile)}), and their rates with 95% intervals."
        ],
        ["function", "cost", *(rate.name for rate in rates)],
        [
            [name, cost_share(profile, spot), *map(interval, spot.estimates)]
            for name, spot in zip(names, spots, strict=True)
        ],
        picture=bars(profile, spots, names) if spots else "",
    )


def trial_section(trial: Trial) -> Section:
    """The builds of a program that `cop try` compared."""
    columns, rows = trial_table(trial)
    label = f"against plain {trial.level}, %"
    if trial.runs:
        text = [
            "Changes of processor time have 95% intervals. “Other layouts” is plain again with its "
            "functions in other orders: what chance does.",
            "; ".join(f"--{run.flag} is {run.command}" for run in trial.runs) + ".",
        ]
        series = {}
        for number, run in enumerate(trial.runs):
            changes = {"plain, other layouts": run.control}
            changes |= {way.name: way.runs[number].time_change for way in trial.ways[1:]}
            series[f"--{run.flag}"] = {
                name: (100 * change.value, (100 * change.low, 100 * change.high))
                for name, change in changes.items()
            }
        picture = change_bars(f"time {label}", series)
    else:
        text = ["Bytes of machine code in the linked program, and of its file when it is stripped."]
        sizes = {
            "text": {way.name: (100 * way.text_change, None) for way in trial.ways[1:]},
            "file": {way.name: (100 * way.file_change, None) for way in trial.ways[1:]},
        }
        picture = change_bars(f"size {label}", sizes)
    return Section(
        f"Builds of {Path(trial.source).name} against plain {trial.level}",
        text,
        columns,
        rows,
        picture=picture,
        notes=[
            " ".join(trial.verdict.reasons),
            *(f"Flags of {way.name}: {way.flags}" for way in trial.ways),
        ],
    )


def linked_section(linked: LinkedPrograms) -> Section:
    """Programs that `cop compare programs` linked."""
    columns, rows, total = table(linked)
    return Section(
        title(linked),
        [_BYTES],
        columns,
        rows,
        total,
        _program_bars([one.result for one in linked.programs]),
        [f"The compiler fails on {name} with the policy." for name in linked.failed],
    )


def training_section(run: TrainingRun) -> Section:
    """A training: its test programs, or its curve where it linked none."""
    results = run.results
    programs = [
        ProgramResult(name, own.linked, own.objects)
        for name, own in (results.programs if results else {}).items()
    ]
    name = f"Training of a policy for {run.problem}"
    if not programs:
        return Section(
            name, headline(run).splitlines(), picture=curve_plot(run.curve) if run.curve else ""
        )
    return Section(
        name,
        [*headline(run).splitlines(), f"The test programs took no part in the training. {_BYTES}"],
        COLUMNS,
        list(map(cells, programs)),
        mean_cells(programs),
        _program_bars(programs),
    )


def _program_bars(programs: Sequence[ProgramResult]) -> str:
    """The change of each program's linked text; SVG."""
    if not programs:
        return ""
    changes = {one.name: (100 * one.change, None) for one in programs}
    return change_bars("linked text against the default, %", {"": changes})


def change_bars(
    label: str, series: Mapping[str, Mapping[str, tuple[float, tuple[float, float] | None]]]
) -> str:
    """A group of bars for each place, a bar for each series, with intervals as lines; SVG.

    Args:
      label: of the axis.
      series: by name, each place's change and the ends of its interval, if it has one; all with
        the same places in one order.
    """
    names = list(next(iter(series.values())))
    labels = [
        name if first else "" for name in names for first in (True, *(len(series) - 1) * [False])
    ]
    figure, axes = page.bar_plot(labels, label)
    width = 0.8
    for number, (name, changes) in enumerate(series.items()):
        rows = [len(series) * place + number for place in range(len(names))]
        values = [value for value, _ in changes.values()]
        axes.barh(rows, values, width, color=_COLOURS[number], label=page.literal(name))
        ends = [ends or (value, value) for value, ends in changes.values()]
        axes.hlines(rows, *zip(*ends, strict=True), color="#444444", linewidth=1)
    axes.axvline(0, color="black", linewidth=0.8)
    if len(series) > 1:
        axes.legend(fontsize=7)
    return page.svg(figure)
