# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs of what the gate accepted, and of its history."""

from pathlib import Path
from typing import Any

from absl import flags

from compiler_opt_perf.cli.options import define_path, html_path
from compiler_opt_perf.cli.verb import Table, UsageError, Verb

# cop gate accept


def _define_accept(values: flags.FlagValues) -> None:
    define_path(values, "baseline", "the baseline to write")
    define_path(values, "reason", "why the candidate may be as it is, for the history")
    define_path(values, "store", "the history, JSON lines; bots may share one")


def _accept(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.compare.history import accept

    if len(arguments) != 1:
        raise UsageError("expected one file that `cop gate check --measured` wrote")
    baseline = Path(values.baseline)
    event = accept(Path(arguments[0]), baseline, Path(values.store), values.reason)
    print(f"{baseline}: accepted; changed: {', '.join(event.changed) or 'nothing'}")


# cop gate history


def _define_history(values: flags.FlagValues) -> None:
    flags.DEFINE_integer(
        "last", 20, "events to show, the latest", lower_bound=1, flag_values=values
    )
    define_path(values, "html", "write a page with plots to this file instead", required=False)


def _history(values: Any, arguments: list[str]) -> Table | None:
    from compiler_opt_perf.compare.history import describe, document, events

    if len(arguments) != 1:
        raise UsageError("expected one history, as `cop gate check --store` writes it")
    html = html_path(values)
    found = events(Path(arguments[0]))[-values.last :]
    if html is not None:
        # Loads matplotlib.
        from compiler_opt_perf.pages.gate import write_page

        write_page(found, html)
        print(html)
        return None
    return Table(lambda: describe(found), lambda: document(found))


VERBS: tuple[Verb, ...] = (
    Verb(
        "gate accept",
        "Make what a check measured the baseline, and say why in the history.",
        "gate accept build/measured.json --baseline=build/baseline.json"
        " --store=build/gate.jsonl --reason='smaller by 2%, one module is larger'",
        _define_accept,
        _accept,
        arguments="MEASURED.json",
    ),
    Verb(
        "gate history",
        "Show the checks of a history, and what was accepted, with the reasons.",
        "gate history build/gate.jsonl --last=50 --html=build/gate.html",
        _define_history,
        _history,
        arguments="HISTORY.jsonl",
        json_version=1,
    ),
)
