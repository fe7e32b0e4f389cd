# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shows the progress of long work: a live bar on a terminal, or a log line every ten seconds."""

import contextlib
import logging as standard_logging
import sys
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from absl import flags, logging

from compiler_opt_perf.run.symbol_names import printable_lines

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

_SECONDS_BETWEEN_LINES = 10.0


class _Formatter(standard_logging.Formatter):
    """Masks control characters, which names from untrusted files can hold."""

    def format(self, record: standard_logging.LogRecord) -> str:
        return printable_lines(super().format(record))


def log_to_stderr() -> None:
    """Shows log messages with the time on standard error."""
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)
    handler = logging.get_absl_handler()
    handler.setFormatter(_Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    flags.FLAGS.mark_as_parsed()


@contextlib.contextmanager
def stage(what: str) -> Iterator[None]:
    """Logs how long a part of the work took, unless it fails."""
    # Imported here for the time that its NumPy takes.
    from compiler_opt_perf.run.timing import seconds_so_far

    start, processor_start = time.monotonic(), seconds_so_far()
    yield
    logging.info(
        "%s: %.1f s (%.1f s of processor time)",
        what,
        time.monotonic() - start,
        seconds_so_far() - processor_start,
    )


def pace(count: int, seconds: float) -> str:
    """The speed of work as text: items a second, or seconds an item if that is above one."""
    if not count:
        return "none yet"
    each = max(seconds, 1e-9) / count
    return f"{1 / each:.1f}/s" if each < 1 else f"{each:.1f} s each"


class Progress:
    """Counts items of a known total, and shows rate and remaining time under a label if given."""

    def __init__(self, label: str | None, total: int):
        self._label = label
        self._total = total
        self._done = 0
        self._start = self._last_line = time.monotonic()
        self._bar: RichProgress | None = None
        if label is not None and sys.stderr.isatty():
            self._bar = _bar()
            self._task = self._bar.add_task(label, total=total, rate="")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        if self._label is not None and kind is None:
            elapsed = time.monotonic() - self._start
            logging.info("%s: %d in %.1f s", self._label, self._done, elapsed)

    def advance(self, count: int = 1) -> None:
        """Notes `count` more items as done."""
        self._done += count
        if self._label is None:
            return
        now = time.monotonic()
        rate = pace(self._done, now - self._start)
        if self._bar is not None:
            self._bar.update(self._task, advance=count, rate=rate)
        elif now - self._last_line >= _SECONDS_BETWEEN_LINES and self._done < self._total:
            self._last_line = now
            remaining = (self._total - self._done) * (now - self._start) / max(self._done, 1)
            logging.info(
                "%s: %d of %d, %s, %.0f s left",
                self._label,
                self._done,
                self._total,
                rate,
                remaining,
            )


def _bar() -> "RichProgress":
    # Imported here, since workers and most commands have no terminal.
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        *progress.Progress.get_default_columns(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[rate]}"),
        console=Console(stderr=True),
        transient=True,
    )
