# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Do rates of mispredictions make programs by PGO faster, as hints that a branch is unpredictable?

Branches of lines that the PMU profile knows as mispredicted get `!unpredictable` in the IR, before
all passes. LLVM then prefers a select. The same is done with an exchanged profile, and with all
branches. Each build has counters of its own, so that they fit its IR.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import msgspec

from benchmarks.changes import mean_change, percent_change
from benchmarks.common import counted_run, counters_profile, saved
from benchmarks.inline_builds import FLAGS, InlineBuilds
from benchmarks.programs.workloads import HELD_OUT, ONLY_ONCE, TIMED
from benchmarks.results import Cell, Interval, Table
from benchmarks.timing import ROUNDS
from compiler_opt_perf.profile.profile import Profile
from compiler_opt_perf.run.files import exclusive, sha256, write_json
from compiler_opt_perf.run.memo import memo
from compiler_opt_perf.toolchain.installation import Toolchain

PROGRAMS = tuple(one for one in HELD_OUT if one in TIMED and one not in ONLY_ONCE)
#: A line's branches are marked from this share of mispredictions on.
LEAST_RATE = 0.1
_MISPREDICTED, _BRANCHES = "conditional-branch-mispredicts", "conditional-branches"
_BASE = "no hints"
#: Builds that are compared with the one without hints, by whose rates branches are marked.
ARMS = _OWN, _EXCHANGED, _ALL = "by the profile", "by an exchanged profile", "all branches"
# As clang makes it, before any pass.
_TO_IR = ("-Xclang", "-disable-llvm-passes", "-S", "-emit-llvm")

#: Whether a branch is to be marked, by its function and line offset.
Chooser = Callable[[str, int], bool]


def mark(text: str, wanted: Chooser) -> tuple[str, int]:
    """Marks conditional branches of textual IR; returns it with their number.

    Branches without a line are left alone.
    """
    starts = dict(re.findall(r"^(!\d+) = distinct !DISubprogram\(.*?\bline: (\d+)", text, re.M))
    lines = dict(re.findall(r"^(!\d+) = (?:distinct )?!DILocation\(line: (\d+)", text, re.M))
    number = 1 + max((int(one) for one in re.findall(r"^!(\d+) = ", text, re.M)), default=-1)
    function, start = "", 0
    marked, count = [], 0
    for line in text.splitlines():
        if found := re.match(r'define .*?@"?([^"(]+)"?\(', line):
            scope = re.search(r"!dbg (!\d+)", line)
            function, start = found[1], int(starts.get(scope[1], 0)) if scope else 0
        elif line.startswith("  br i1 ") and (place := re.search(r"!dbg (!\d+)", line)):
            # As LLVM counts a function's lines, in 16 bits.
            offset = (int(lines.get(place[1], start)) - start) & 0xFFFF
            if wanted(function, offset):
                count += 1
                line += f", !unpredictable !{number}"
        marked.append(line)
    return ("\n".join([*marked, f"!{number} = !{{}}", ""]) if count else text), count


class Counted(msgspec.Struct, frozen=True):
    """A build with hints, and what it executes in the profiled run.

    Attributes:
      marks: branches with a hint.
      instructions, mispredicted: executed; callgrind's predictor.
    """

    marks: int
    instructions: int
    mispredicted: int


class HintBuilds(InlineBuilds):
    """One program by PGO, with hints and without."""

    @cached_property
    def rates(self) -> dict[str, dict[int, list[int]]]:
        """By function and line offset: executed conditional branches, and mispredicted ones."""
        return _rates(Profile.load(self.profile))

    @property
    def hard_share(self) -> float:
        """The percentage of mispredictions that is on lines with `LEAST_RATE`."""
        pairs = [pair for own in self.rates.values() for pair in own.values()]
        hard = sum(missed for branches, missed in pairs if _is_hard(branches, missed))
        return round(100 * hard / max(sum(missed for _, missed in pairs), 1), 4)

    def _chooser(self, name: str) -> Chooser:
        if name in (_BASE, _ALL):
            return lambda _function, _line: name == _ALL
        rates = self.rates if name == _OWN else _rates(Profile.load(self._shuffled))
        return lambda function, line: _is_hard(*rates.get(function, {}).get(line, (0, 0)))

    def objects(self, name: str) -> list[Path]:
        """Compiles the build without hints, or one of the `ARMS`. Raises CommandError."""
        return self._compiled(name)[0]

    def _compiled(self, name: str) -> tuple[list[Path], int]:
        """The objects, and how many branches have a hint."""
        folder = self._of(name)
        objects = [folder / f"{number}.o" for number in range(len(self.built.units))]
        units = [path.with_suffix(".ll") for path in objects]
        clang = self.toolchain.clang

        def compile() -> int:
            folder.mkdir(parents=True, exist_ok=True)
            self.compile(clang, [*FLAGS, *_TO_IR], units)
            chooser, marks = self._chooser(name), 0
            for path in units:
                text, count = mark(path.read_text(), chooser)
                path.write_text(text)
                marks += count
            from_ir = [["-c", "-x", "ir", str(path.resolve())] for path in units]
            flags = ["-O2", "-w", "-ffunction-sections"]
            self._compile(clang, [*flags, "-fprofile-generate"], objects, None, None, from_ir)
            binary, raw, merged = (folder / end for end in (self.name, "raw", "merged.profdata"))
            self._link(objects, binary, "-fprofile-generate")
            counters_profile(binary, self.built.arguments, raw, merged)
            flags.append(f"-fprofile-use={merged.resolve()}")
            self._compile(clang, flags, objects, None, None, from_ir)
            return marks

        inputs = {
            "profile": sha256(self.profile),
            "clang": sha256(clang.resolve()),
            "units": self.built.units,
            "least": LEAST_RATE,
        }
        return objects, memo(folder / "objects.json", inputs, int, compile, objects)

    def counted(self, name: str) -> Counted:
        """Counts a build's run. Raises CommandError."""
        (objects, marks), folder = self._compiled(name), self._of(name)
        binary = folder / self.name

        def count() -> Counted:
            self._link(objects, binary)
            arguments = self.built.arguments
            dump = counted_run(binary, arguments, self.folder, "--branch-sim=yes")
            totals = dict(zip(dump.columns, dump.totals(), strict=True))
            return Counted(marks, totals["Ir"], totals["Bcm"])

        inputs = {"objects": list(map(sha256, objects)), "arguments": self.built.arguments}
        return memo(folder / "counted.json", inputs, Counted, count)


def _is_hard(branches: int, missed: int) -> bool:
    return missed > 0 and missed >= LEAST_RATE * branches


def _rates(profile: Profile) -> dict[str, dict[int, list[int]]]:
    """Line offset -> [branches, mispredicted], all of a line's blocks together; by function."""
    places = [profile.index[name] for name in (_BRANCHES, _MISPREDICTED)]
    found: dict[str, dict[int, list[int]]] = {}
    for function, lines in profile.functions.items():
        own = found[function] = defaultdict(lambda: [0, 0])
        for line, counts in lines.items():
            own[line.offset] = [
                known + counts[place] for known, place in zip(own[line.offset], places, strict=True)
            ]
    return found


class Outcome(msgspec.Struct, frozen=True):
    """A program's results.

    Attributes:
      hard_share: percentage of mispredictions on lines with `LEAST_RATE`.
      counted: by build.
      times: by arm, the change of time in percent; nothing if no times were measured.
    """

    hard_share: float
    counted: dict[str, Counted]
    times: dict[str, Interval] = {}


def study(
    programs: Sequence[str],
    folder: Path,
    toolchain: Toolchain,
    *,
    rounds: int = ROUNDS,
    processor: int = 0,
    prepare: bool = False,
) -> list[Table]:
    """Builds, counts and times some of the `PROGRAMS`.

    Args:
      folder: for builds and results; what is there is not done again.
      prepare: all but the times.

    Raises:
      CommandError: a compiler or a run failed.
      PmuError: a profile cannot be read.
      BenchmarkError: programs of several builds compute different things.
    """
    builds = {name: HintBuilds(name, folder / name, toolchain) for name in programs}
    for name, own in builds.items():
        with exclusive(folder / f"{name}.lock"):
            counted = {build: own.counted(build) for build in (_BASE, *ARMS)}
            outcome = Outcome(own.hard_share, counted)
            if not prepare:
                timed = own.timed((_BASE, *ARMS), rounds, processor)
                changes = timed.changes({arm: (arm, _BASE) for arm in ARMS})
                outcome = msgspec.structs.replace(outcome, times=changes)
            write_json(folder / f"{name} hints.json", msgspec.to_builtins(outcome))
    found = saved(folder, PROGRAMS, " hints.json")
    return tables({name: msgspec.convert(own, Outcome) for name, own in found.items()})


def tables(found: Mapping[str, Outcome]) -> list[Table]:
    """What hints change: executed instructions, mispredictions and time."""
    rows: list[list[Cell]] = []
    columns: list[list[float]] = []
    for name, one in found.items():
        base, arms = one.counted[_BASE], [one.counted[arm] for arm in ARMS]
        changes = [percent_change(arm.instructions, base.instructions) for arm in arms]
        changes += [percent_change(arm.mispredicted, base.mispredicted) for arm in arms]
        columns.append(changes)
        rows.append([name, one.hard_share, *(arm.marks for arm in arms), *changes])
    means = [mean_change(column) for column in zip(*columns, strict=True)]
    rows.append(["geometric mean", None, *[None] * len(ARMS), *means])
    head = {"program": "text", "on such lines": "percent:0"}
    head |= {f"hints {arm}": "integer" for arm in ARMS}
    for what in ("instructions", "mispredicted"):
        head |= {f"{what}, {arm}": "percent:+2" for arm in ARMS}
    caption = (
        "Branches that get a hint, and what that changes in the profiled run by PGO: executed "
        "instructions, and mispredictions by callgrind's predictor. The share of mispredictions on "
        f"lines of which {LEAST_RATE:.0%} or more are mispredicted stands first."
    )
    made = [Table.of("counts", caption, head, rows)]
    timed = {name: one.times for name, one in found.items() if one.times}
    if timed:
        times: list[list[Cell]] = [
            [name, *(own[arm] for arm in ARMS)] for name, own in timed.items()
        ]
        arms_of = ([own[arm][0] for own in timed.values()] for arm in ARMS)
        times.append(["geometric mean", *map(mean_change, arms_of)])
        caption = "Change of processor time on an input that was not profiled, in other layouts."
        columns_of = {"program": "text"} | dict.fromkeys(ARMS, "percent:+1")
        made.append(Table.of("time", caption, columns_of, times))
    return made
