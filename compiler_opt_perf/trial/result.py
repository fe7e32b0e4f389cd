# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a trial found, the verdict, and both as a table."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from compiler_opt_perf.run.files import read_input
from compiler_opt_perf.run.json_text import JsonError, convert, decode
from compiler_opt_perf.run.rounds import TimeChange
from compiler_opt_perf.run.table import NOTHING, percent, terminal
from compiler_opt_perf.trial.errors import TrialError

#: The JSON document that `cop try --json` prints.
KIND, JSON_VERSION = "try", 2

#: Builds whose sizes differ by no more, as a share, count as equally large.
SAME_SIZE = 0.002


class WayRun(msgspec.Struct, frozen=True):
    """What one way's program did in one of the user's runs.

    Attributes:
      instructions: executed by the program; None if they were not counted.
      instructions_change: against plain, as a share.
      seconds: median processor time.
      time_change: against plain.
      same_output: whether the standard output is plain's; None if plain's varies.
      round_seconds: processor time in each round, by which any two ways can be compared.
    """

    instructions: int | None
    instructions_change: float | None
    seconds: float
    time_change: TimeChange
    same_output: bool | None
    round_seconds: list[float] = []


class WayResult(msgspec.Struct, frozen=True):
    """One way.

    Attributes:
      name: as in the table.
      flags: for the compiler, in compilations and links.
      program: path of the built program.
      text_bytes: machine code of the linked program, in bytes.
      text_change: against plain, as a share.
      file_bytes: the program's file without symbols and debug info.
      file_change: against plain, as a share.
      runs: a result for each of the trial's runs.
    """

    name: str
    flags: str
    program: str
    text_bytes: int
    text_change: float
    file_bytes: int
    file_change: float
    runs: list[WayRun]


class TrialRun(msgspec.Struct, frozen=True):
    """One of the user's runs.

    Attributes:
      flag: "run" or "run2".
      command: its line.
      rounds: how many were timed.
      control: the change of time from plain to plain in other layouts: what chance does.
      resolution: the smallest change of time, as a share, that the control leaves beyond chance.
    """

    flag: str
    command: str
    rounds: int
    control: TimeChange
    resolution: float


class Verdict(msgspec.Struct, frozen=True):
    """Which build to take.

    Attributes:
      take: name of the way; None for plain.
      reasons: sentences, the decision first.
    """

    take: str | None
    reasons: list[str]


class Trial(msgspec.Struct, frozen=True):
    """A whole trial.

    Attributes:
      source: the user's tree.
      output: folder of all builds.
      build: the build's command.
      level: of optimisation.
      compiler: path of clang.
      counter: what counted instructions; None if nothing could.
      runs: the user's runs.
      ways: the first one is plain.
      verdict: which of them to take.
    """

    source: str
    output: str
    build: str
    level: str
    compiler: str
    counter: str | None
    runs: list[TrialRun]
    ways: list[WayResult]
    verdict: Verdict


def judge_time(ways: Sequence[WayResult], runs: Sequence[TrialRun]) -> Verdict:
    """The way that is faster on a run and slower on none; of several, the fastest.

    A way counts as faster where its interval is below zero and its change beyond what the control
    leaves to chance. For slower, one of the two is enough. Of ways that the control cannot tell
    apart, the first one is taken: it needs less.
    """
    candidates = []
    reasons = []
    for way in ways[1:]:
        pairs = list(zip(way.runs, runs, strict=True))
        faster = [one for one, run in pairs if _is_faster(one.time_change, run.resolution)]
        slower = _slower_on(way, runs)
        if any(one.same_output is False for one, _ in pairs):
            reasons.append(f"{way.name} prints something else than plain: do not take it.")
        elif slower:
            reasons.append(f"{way.name} is slower on {slower}.")
        elif not faster:
            reasons.append(f"{way.name} is no faster than plain by more than chance.")
        else:
            candidates.append(way)
    if not candidates:
        return Verdict(None, ["Take plain: no other build is faster.", *reasons])

    def mean(way: WayResult) -> float:
        return sum(one.time_change.value for one in way.runs) / len(way.runs)

    best = min(map(mean, candidates))
    chance = max(run.resolution for run in runs)
    taken = next(way for way in candidates if mean(way) <= best + chance)
    changes = " and ".join(_told(one, run) for one, run in zip(taken.runs, runs, strict=True))
    first = f"Take {taken.name}: {changes}."
    others = [
        f"{way.name} is faster than plain, too, but no faster than {taken.name} beyond chance."
        for way in candidates
        if way is not taken
    ]
    return Verdict(taken.name, [first, *others, *reasons])


def _is_faster(change: TimeChange, resolution: float) -> bool:
    return change.high < 0 and change.value < -resolution


def _is_slower(change: TimeChange, resolution: float) -> bool:
    return change.low > 0 or change.value > resolution


def _slower_on(way: WayResult, runs: Sequence[TrialRun]) -> str:
    """The runs on which a way is slower than plain, in words; empty if there is none."""
    return " and ".join(
        f"--{run.flag} ({percent(one.time_change.value)})"
        for one, run in zip(way.runs, runs, strict=True)
        if _is_slower(one.time_change, run.resolution)
    )


def _told(one: WayRun, run: TrialRun) -> str:
    if not _is_faster(one.time_change, run.resolution):
        return f"no change beyond chance on --{run.flag}"
    return f"{percent(one.time_change.value)} time on --{run.flag}"


def smallest(sizes: Sequence[tuple[int, int]]) -> int:
    """The number of the build to take for its size, by rules that keep each size from growing.

    It has the smallest file of those whose text is not larger than the first one's. Of files that
    are as small it has the least text. What is not larger, and as small, is by `SAME_SIZE`.

    Args:
      sizes: bytes of text and of the stripped file.
    """
    most_text = sizes[0][0] * (1 + SAME_SIZE)
    fitting = [number for number, (text, _) in enumerate(sizes) if text <= most_text]
    most = min(sizes[number][1] for number in fitting) * (1 + SAME_SIZE)
    return min((number for number in fitting if sizes[number][1] <= most), key=sizes.__getitem__)


def judge_size(ways: Sequence[WayResult], runs: Sequence[TrialRun]) -> Verdict:
    """The smallest way, of those that print what plain prints; and whether it is slower."""
    reasons = []
    candidates = [ways[0]]
    for way in ways[1:]:
        if any(one.same_output is False for one in way.runs):
            reasons.append(f"{way.name} prints something else than plain: do not take it.")
        else:
            candidates.append(way)
    best = candidates[smallest([(way.text_bytes, way.file_bytes) for way in candidates])]
    for way in candidates[1:]:
        sizes = f"file {percent(way.file_change)}, text {percent(way.text_change)}"
        if way.file_bytes < best.file_bytes and way.text_change > SAME_SIZE:
            reasons.append(f"{way.name} has more text than plain ({sizes}).")
        elif way.text_bytes < best.text_bytes:
            reasons.append(f"{way.name} has less text, but a larger file ({sizes}).")
    if best is ways[0]:
        return Verdict(None, ["Take plain: no other build has a smaller file.", *reasons])
    changes = f"{percent(best.file_change)} stripped file and {percent(best.text_change)} text"
    if slower := _slower_on(best, runs):
        reasons.insert(0, f"{best.name} is slower than plain on {slower}.")
    return Verdict(best.name, [f"Take {best.name}: {changes}.", *reasons])


def read_trial(path: Path) -> Trial:
    """Reads what `cop try --json` printed. Raises TrialError."""
    try:
        document = decode(read_input(path), dict[str, Any], path)
        if (document.get("kind"), document.get("version")) != (KIND, JSON_VERSION):
            raise TrialError(f"{path}: is not of `cop try --json`, version {JSON_VERSION}")
        return convert(document, Trial, path)
    except (OSError, JsonError) as error:
        raise TrialError(f"{path}: {error}; write it with `cop try --json`") from error


def is_trial(path: Path) -> bool:
    """Whether a file says that it is of `cop try --json`."""
    try:
        return decode(read_input(path), dict[str, Any], path).get("kind") == KIND
    except (OSError, JsonError):
        return False


def table(trial: Trial) -> tuple[list[str], list[list[str]]]:
    """Columns, and a row for each way."""
    head = ["build"]
    for run in trial.runs:
        head += [f"time, --{run.flag}", "instructions"]
    head += ["text", "file", "output"] if trial.runs else ["text", "file"]
    return head, list(_rows(trial))


def describe(trial: Trial) -> str:
    """The trial as a table, followed by the verdict and the flags of the build to take."""
    head, rows = table(trial)
    lines = [terminal(head, rows, range(1, len(head)))]
    for run in trial.runs:
        lines.append(
            f"--{run.flag}: {run.rounds} rounds, each with other layouts of the functions; "
            f"changes below {100 * run.resolution:.1f}% may be chance\n"
        )
    lines += ["\n", *(f"{reason}\n" for reason in trial.verdict.reasons)]
    taken = next((way for way in trial.ways if way.name == trial.verdict.take), None)
    if taken is not None:
        compiler = trial.compiler
        lines.append(
            f"Compile and link with these; keep {trial.output}, which they read:\n"
            f"  CC={compiler} CXX={compiler}++\n"
            f"  CFLAGS, CXXFLAGS and LDFLAGS: {taken.flags}\n"
        )
    return "".join(lines)


def _rows(trial: Trial) -> Iterator[list[str]]:
    plain = trial.ways[0]
    row = [f"plain ({trial.level})"]
    for one in plain.runs:
        counted = NOTHING if one.instructions is None else f"{one.instructions:,}"
        row += [f"{one.seconds:.3f} s", counted]
    row += [f"{plain.text_bytes:,} B", f"{plain.file_bytes:,} B"]
    if trial.runs:
        row.append(_same(plain))
    yield row
    if trial.runs:
        row = ["plain, other layouts"]
        for run in trial.runs:
            row += [_change(run.control), NOTHING]
        yield [*row, NOTHING, NOTHING, NOTHING]
    for way in trial.ways[1:]:
        row = [way.name]
        for one in way.runs:
            row += [_change(one.time_change), percent(one.instructions_change)]
        row += [percent(way.text_change), percent(way.file_change)]
        if trial.runs:
            row.append(_same(way))
        yield row


def _change(change: TimeChange) -> str:
    return percent(change.value, (change.low, change.high))


def _same(way: WayResult) -> str:
    found = [one.same_output for one in way.runs]
    if False in found:
        return "differs"
    return "varies" if None in found else "same"
