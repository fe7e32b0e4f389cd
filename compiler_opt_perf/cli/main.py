# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Entry point of `cop`: finds the verb, parses its flags, turns errors into one message."""

import difflib
import signal
import sys
from collections.abc import Sequence

from compiler_opt_perf import __version__
from compiler_opt_perf.cli.verb import EXIT_STATUSES, Table, UsageError, Verb
from compiler_opt_perf.cli.verbs import VERBS
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import explained
from compiler_opt_perf.run.progress import log_to_stderr
from compiler_opt_perf.run.symbol_names import printable_lines

_EXIT_FAILURE = 1
_EXIT_USAGE = 2
# Shells add a signal's number to it.
_EXIT_SIGNAL = 128
# Verbs that had another name.
_EARLIER = {"trace stats": "trace show"}


class Terminated(KeyboardInterrupt):
    """A request to end, by another signal than the keyboard's; nothing is finished then either.

    Attributes:
      signal: its number.
    """

    def __init__(self, number: int):
        super().__init__(number)
        self.signal = number


def _terminate(number: int, frame: object) -> None:
    # The first one counts: what cleans up shall not be interrupted.
    for other in _ENDING:
        signal.signal(other, signal.SIG_IGN)
    raise Terminated(number)


# Sent by batch systems and build bots, and by a terminal that closes.
_ENDING = (signal.SIGTERM, signal.SIGHUP)


def overview(verbs: Sequence[Verb]) -> str:
    """The verbs with their summaries."""
    lines = [
        f"compiler-opt-perf {__version__}: machine-learned optimisation in LLVM, with PMU data"
    ]
    lines += ["", "Verbs (cop VERB --help tells more):"]
    lines += [_listed(verbs), "", f"Exit status: {EXIT_STATUSES}"]
    return "\n".join(lines)


def _listed(verbs: Sequence[Verb]) -> str:
    width = max(len(verb.name) for verb in verbs)
    return "\n".join(f"  {verb.name:{width}}  {verb.summary}" for verb in verbs)


def find_verb(words: Sequence[str]) -> tuple[Verb, list[str]]:
    """The verb that `words` begin with, and the words after it. Raises UsageError."""
    for verb in VERBS:
        name = verb.name.split()
        if list(words[: len(name)]) == name:
            return verb, list(words[len(name) :])
    group = _group(words)
    if group and len(words) == 1:
        raise UsageError(f"{words[0]}: expected one of its verbs\n{_listed(group)}")
    typed = " ".join(words[:2])
    # In a group, its name alone would be like all of them.
    guesses = [typed] if group else [typed, words[0]]
    names = [verb.name for verb in group or VERBS]
    alike = [name for guess in guesses for name in difflib.get_close_matches(guess, names, n=2)]
    alike += [name for name in names if words[0] in name.split()[1:]]
    if typed in _EARLIER:
        alike = [_EARLIER[typed]]
    hint = f"; did you mean {' or '.join(map(repr, dict.fromkeys(alike)))}?" if alike else ""
    others = f"\ncop {words[0]} --help lists the verbs of {words[0]}" if group else ""
    raise UsageError(f"no verb {typed!r}{hint}{others}")


def _group(words: Sequence[str]) -> list[Verb]:
    """The verbs whose first word is that of `words`."""
    return [verb for verb in VERBS if words and verb.name.split()[0] == words[0]]


def _say(text: str) -> None:
    print(printable_lines(text), file=sys.stderr)


def run(argv: Sequence[str]) -> int:
    """Runs one command line (without the program's name) and returns its exit status."""
    log_to_stderr()
    if argv[:1] == ["help"] and len(argv) > 1:
        argv = [*argv[1:], "--help"]
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(overview(VERBS))
        return 0
    if len(argv) == 2 and argv[1] in ("-h", "--help") and len(_group(argv)) > 1:
        print(overview(_group(argv)))
        return 0
    if argv[0] == "--version":
        print(__version__)
        return 0
    label = "cop"
    try:
        verb, rest = find_verb(argv)
        label = f"cop {verb.name}"
        options = rest[: rest.index("--")] if "--" in rest else rest
        if "--help" in options or "-h" in options:
            print(verb.help())
            return 0
        values, arguments = verb.parse(rest)
        result = verb.run(values, arguments)
        if isinstance(result, Table):
            print(verb.shown(result, values["json"].value), end="")
            return result.status
        return result or 0
    except UsageError as error:
        _say(f"{label}: {error}\nSee: {label} --help")
        return _EXIT_USAGE
    except KeyboardInterrupt as interrupt:
        number = interrupt.signal if isinstance(interrupt, Terminated) else signal.SIGINT
        how = (
            "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
        )
        print(f"{label}: {how}; nothing unfinished is left behind", file=sys.stderr)
        return _EXIT_SIGNAL + number
    except OSError as error:
        # A full disk, a folder without permission: where it was met does not matter to the user.
        _say(f"{label}: error: {explained(error)}")
        return _EXIT_FAILURE
    except UserError as error:
        # Any other exception is a bug of ours and shows where it is.
        _say(f"{label}: error: {error}")
        return _EXIT_FAILURE


def main() -> None:
    """Console script."""
    for number in _ENDING:
        # Not where the parent has it ignored, as nohup does.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _terminate)
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
