# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Counts by source location, written as LLVM sample profiles, one file per event."""

import re
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from compiler_opt_perf.binary.symbolize import CallSite, Line, Location
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.events import Combination, Event
from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.files import input_lines, require_space
from compiler_opt_perf.run.llvm import stock_tool

# A call target of a line, after a space. Names may contain spaces and colons.
_TARGET = re.compile(r" (.+?):(\d+)(?= |$)")


class FunctionSamples:
    """Counts of one function, or of one inlined copy of it.

    Attributes:
      lines: line -> one count per event.
      targets: line with calls -> callee -> number of calls.
      callees: call site -> counts of the copy inlined there.
    """

    __slots__ = ("callees", "lines", "targets")

    def __init__(self) -> None:
        self.lines: dict[Line, list[int]] = {}
        self.targets: dict[Line, Counter[str]] = {}
        self.callees: dict[CallSite, FunctionSamples] = {}


class SampleProfile:
    """The counts of a program by source location, for several events.

    Attributes:
      events: the events, in the order of counts.
      functions: linkage name of the function that holds the instructions -> its counts.
      entries: linkage name -> number of calls that entered the function.
      located: for each event, the sum of all counts, before scaling by duplication factors.
    """

    def __init__(self, events: Sequence[Event]):
        self.events = tuple(events)
        self.functions: dict[str, FunctionSamples] = {}
        self.entries: Counter[str] = Counter()
        self.located = [0] * len(self.events)
        self._copies: set[tuple[Location, Line]] = set()

    def _samples(self, location: Location) -> FunctionSamples:
        samples = self.functions.setdefault(location.function, FunctionSamples())
        for call_site in location.call_sites:
            samples = samples.callees.setdefault(call_site, FunctionSamples())
        return samples

    def add(self, location: Location, counts: Sequence[int]) -> None:
        """Adds one instruction's `counts`, one per event, to its source line.

        Flow-sensitive discriminators tell copies of a line in several basic blocks apart; these
        are kept apart until `add_up_copies`.
        """
        lines = self._samples(location).lines
        offset, discriminator = location.line
        line = Line(offset, discriminator | location.copy)
        if location.copy:
            self._copies.add((location, line))
        known = lines.setdefault(line, [0] * len(self.events))
        for index, (event, count) in enumerate(zip(self.events, counts, strict=True)):
            self.located[index] += count
            if event.scaled_by_duplication:
                count *= location.duplication
            known[index] = max(known[index], count) if event.kind == "max" else known[index] + count

    def add_up_copies(self) -> None:
        """Adds the counts of a line's copies in several basic blocks, for events of any kind.

        The copies execute in different iterations or on different paths, so executions add up.
        Without flow-sensitive discriminators the duplication factor corrects for copies.
        """
        for location, copy in self._copies:
            lines = self._samples(location).lines
            counts = lines.pop(copy)
            known = lines.get(location.line, [0] * len(counts))
            lines[location.line] = [sum(pair) for pair in zip(known, counts, strict=True)]
        self._copies.clear()

    def add_call(self, location: Location | None, callee: str, count: int) -> None:
        """Adds `count` calls of `callee`; `location` is None if the call site is unknown."""
        self.entries[callee] += count
        if location is not None:
            targets = self._samples(location).targets
            targets.setdefault(location.line, Counter())[callee] += count

    def largest(self, event: Event) -> "SampleProfile":
        """A profile of `event` alone, with each line's largest count over all events."""
        result = SampleProfile([event])

        def reduce(samples: FunctionSamples) -> FunctionSamples:
            reduced = FunctionSamples()
            for line, counts in samples.lines.items():
                reduced.lines[line] = [max(counts)]
                result.located[0] += max(counts)
            reduced.callees = {site: reduce(inner) for site, inner in samples.callees.items()}
            return reduced

        result.functions = {name: reduce(samples) for name, samples in self.functions.items()}
        return result

    def read(self, event: Event, path: Path) -> None:
        """Adds the counts and call targets of one event from a text or binary profile.

        Raises the errors of `convert_to_text`.
        """
        with tempfile.TemporaryDirectory(prefix="pmu-profile-") as folder:
            text = Path(folder) / "text"
            convert_to_text(path, text)
            self.read_text(event, text)

    def read_text(self, event: Event, path: Path) -> None:
        """Adds the counts and call targets of one event from a profile in LLVM's text format.

        Raises:
          PmuError: the file is not such a profile; the message names the line.
        """
        index = self.events.index(event)
        stack: list[FunctionSamples] = []
        try:
            for number, text in enumerate(input_lines(path), 1):
                try:
                    self._read_line(index, text.rstrip("\n"), stack)
                except (ValueError, IndexError) as error:
                    raise PmuError(
                        f"{path}:{number}: not a line of a sample profile in text form; "
                        "collect the profile again"
                    ) from error
        except OSError as error:
            raise PmuError(f"{path}: cannot be read: {error.strerror}") from error

    def _read_line(self, index: int, text: str, stack: list[FunctionSamples]) -> None:
        """Adds one line. Raises ValueError or IndexError: the line is malformed.

        Args:
          index: the event's index.
          text: the line.
          stack: the enclosing functions, outermost first; updated.
        """
        content = text.lstrip(" ")
        depth = len(text) - len(content)
        if not content or content.startswith(("#", "!")):
            return
        if depth == 0:
            name, _, head = content.rsplit(":", 2)
            self.entries[name] += int(head)
            stack[:] = [self.functions.setdefault(name, FunctionSamples())]
            return
        if depth > len(stack):
            raise ValueError
        del stack[depth:]
        place, _, rest = content.partition(": ")
        offset, _, discriminator = place.partition(".")
        line = Line(int(offset), int(discriminator or 0))
        if rest[0].isdigit():
            count_text, space, targets = rest.partition(" ")
            count = int(count_text)
            stack[-1].lines.setdefault(line, [0] * len(self.events))[index] += count
            self.located[index] += count
            for callee, calls in _TARGET.findall(space + targets):
                stack[-1].targets.setdefault(line, Counter())[callee] += int(calls)
        else:
            callee, total = rest.rsplit(":", 1)
            int(total)
            inner = stack[-1].callees.setdefault(CallSite(line, callee), FunctionSamples())
            stack.append(inner)

    def write(self, event: Event, path: Path) -> None:
        """Writes the profile of one event in LLVM's extensible binary format.

        Raises the errors of `merge_profiles`.
        """
        with tempfile.TemporaryDirectory(prefix="pmu-profile-") as folder:
            text = Path(folder) / "text"
            self.write_text(event, text)
            convert_to_binary(text, path)

    def write_text(self, event: Event, path: Path) -> None:
        """Writes the profile of one event in LLVM's text format.

        llvm/ProfileData/SampleProfReader.h describes the format. Locations with a count of zero
        are left out, except in profiles of kind "max" (executions): there, a location with zeros
        for all events was not executed. Function entries and call targets count executions, so
        only profiles of kind "max" have them. Equal counts give equal bytes.
        """
        index = self.events.index(event)
        with_calls = event.kind == "max"
        with path.open("w", encoding="utf-8") as stream:
            empty = True
            for name in sorted(self.functions):
                total, lines = _render(self.functions[name], index, with_calls, 1)
                if lines:
                    entries = self.entries[name] if with_calls else 0
                    stream.write(f"{name}:{total}:{entries}\n")
                    stream.writelines(lines)
                    empty = False
            if empty:
                # LLVM rejects an empty file, so an event that never occurred lists its functions.
                for name in sorted(self.functions):
                    stream.write(f"{name}:0:0\n")

    def flattened(self) -> "SampleProfile":
        """The same counts without inline stacks: inlined copies are added to their function.

        Nothing remains of an inlined call instruction. In a profile of kind "max" its line gets as
        many executions as the inlined copy was entered.
        """
        flat = SampleProfile(self.events)
        for name, samples in self.functions.items():
            self._flatten_into(flat, name, samples, self.entries[name])
        return flat

    def _flatten_into(
        self, flat: "SampleProfile", name: str, samples: FunctionSamples, calls: int
    ) -> None:
        """Adds a copy of the function `name` that was called `calls` times (0 if unknown)."""
        lines = {line: list(counts) for line, counts in samples.lines.items()}
        maxima = [index for index, event in enumerate(self.events) if event.kind == "max"]
        if maxima:
            flat.entries[name] += calls or entered(samples, maxima[0])
        calls_at: dict[Line, list[int]] = {}
        for site, inlined in samples.callees.items():
            into = calls_at.setdefault(site.line, [0] * len(self.events))
            for index in maxima:
                into[index] += entered(inlined, index)
            self._flatten_into(flat, site.callee, inlined, 0)
        for line, counts in calls_at.items():
            own = lines.setdefault(line, [0] * len(self.events))
            for index in maxima:
                own[index] = max(own[index], counts[index])
        target = flat.functions.setdefault(name, FunctionSamples())
        for line, counts in lines.items():
            known = target.lines.setdefault(line, [0] * len(self.events))
            for index, count in enumerate(counts):
                known[index] += count


def entered(samples: FunctionSamples, index: int) -> int:
    """The number of times an inlined copy was entered: the executions of its first executed line.

    A line with an inlined call was executed as often as the call's inlined copies were entered.

    Args:
      samples: the counts of the inlined copy.
      index: the index of an event of kind "max".
    """
    ran = {line: counts[index] for line, counts in samples.lines.items() if counts[index]}
    calls: Counter[Line] = Counter()
    for site, inlined in samples.callees.items():
        calls[site.line] += entered(inlined, index)
    ran |= {line: count for line, count in calls.items() if count}
    return ran[min(ran)] if ran else 0


def _render(
    samples: FunctionSamples, index: int, with_calls: bool, depth: int
) -> tuple[int, list[str]]:
    """The total of event `index` in `samples`, and its lines in the text format."""
    total = 0
    rendered = []
    indent = " " * depth
    for line in sorted(samples.lines):
        count = samples.lines[line][index]
        if count or (with_calls and not any(samples.lines[line])):
            total += count
            targets = _targets(samples.targets.get(line, {})) if with_calls else ""
            rendered.append(f"{indent}{_place(line)}: {count}{targets}\n")
    for call_site in sorted(samples.callees):
        callee_total, lines = _render(samples.callees[call_site], index, with_calls, depth + 1)
        if lines:
            total += callee_total
            rendered.append(
                f"{indent}{_place(call_site.line)}: {call_site.callee}:{callee_total}\n"
            )
            rendered.extend(lines)
    return total, rendered


def _place(line: Line) -> str:
    return f"{line.offset}.{line.discriminator}" if line.discriminator else str(line.offset)


def _targets(targets: Mapping[str, int]) -> str:
    return "".join(f" {name}:{targets[name]}" for name in sorted(targets))


def convert_to_binary(text: Path, output: Path) -> None:
    """Converts a text profile to LLVM's extensible binary format, which compilers read faster.

    Raises the errors of `merge_profiles`.
    """
    merge_profiles([text], output)


def convert_to_text(profile: Path, output: Path) -> None:
    """Converts a text or binary profile to the text format.

    Raises:
      MissingToolError: llvm-profdata is not installed.
      CommandError: llvm-profdata refused the profile.
      PmuError: llvm-profdata crashed on the profile.
      FileWriteError: the disk is full.
    """
    _merge("--text", [profile], output)


def flatten_profile(kind: Combination, profile: Path, output: Path) -> None:
    """Flattens a text or binary profile (see `SampleProfile.flattened`).

    Args:
      kind: the event's kind, "sum" or "max".
      profile: file to read.
      output: file to write.

    Raises:
      MissingToolError: llvm-profdata is not installed.
      CommandError: llvm-profdata refused the profile.
      PmuError: llvm-profdata crashed on the profile.
      FileWriteError: the disk is full.
    """
    event = Event("", kind, "")
    samples = SampleProfile([event])
    samples.read(event, profile)
    samples.flattened().write(event, output)


def merge_profiles(profiles: Sequence[Path], output: Path) -> None:
    """Adds up text or binary profiles, into LLVM's extensible binary format.

    Raises:
      MissingToolError: llvm-profdata is not installed.
      CommandError: llvm-profdata refused a profile.
      PmuError: llvm-profdata crashed on a profile.
      FileWriteError: the disk is full.
    """
    _merge("--extbinary", profiles, output)


def _merge(form: str, profiles: Sequence[Path], output: Path) -> None:
    tool = stock_tool("llvm-profdata")
    try:
        run_command(
            [tool, "merge", "--sample", form, *profiles, "-o", output],
            timeout_s=600,
        )
    except CommandError as error:
        # llvm-profdata's message for a full disk is "IO failure on output stream".
        require_space(output.parent)
        if error.kind != "crashed":
            raise
        names = ", ".join(map(str, profiles))
        raise PmuError(
            f"{names}: {'is' if len(profiles) == 1 else 'one is'} damaged: "
            f"{error.reason}; collect the profile again"
        ) from error
