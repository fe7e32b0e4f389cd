# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Entry point of `cop`: runs the verb that the command line names, turns errors into messages."""

import signal
import sys
from collections.abc import Sequence

import click

from compiler_opt_perf.cli.verbs import COP
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import explained
from compiler_opt_perf.run.progress import log_to_stderr
from compiler_opt_perf.run.symbol_names import printable_lines

_EXIT_FAILURE = 1
_EXIT_USAGE = 2
# Shells add a signal's number to it.
_EXIT_SIGNAL = 128
# What a command line without a verb shows. docs/models.md has the same road in more words.
_START = """\
compiler-opt-perf: machine-learned optimisation in LLVM, with PMU data

A faster program, by the profile of a run:
  cop toolchain build                                    once: the patched compiler, named dev
  cop profile collect --binary=PROGRAM --output=p.pmu.json -- ARGUMENTS
  cop policy flags --toolchain=dev --profile=p.pmu.json --inline-model=inline-speed --output=p.cfg
  build/toolchain/dev/bin/clang --config=p.cfg -O2 ...

A smaller C++ program, without a profile:
  cop policy flags --toolchain=dev --inline-model=inline-size --output=s.cfg
  build/toolchain/dev/bin/clang++ --config=s.cfg -Oz ...

cop --help lists all verbs, cop VERB --help tells of one, docs/index.md of everything.
"""


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


def find_command(words: Sequence[str]) -> tuple[click.Command, str, list[str]]:
    """The group or verb that `words` (without "cop") begin with.

    Returns:
      the command, its name with "cop", and the words after the name.
    """
    command: click.Command = COP
    name, rest = "cop", list(words)
    while rest and isinstance(command, click.Group) and rest[0] in command.commands:
        command = command.commands[rest[0]]
        name += f" {rest.pop(0)}"
    return command, name, rest


def _say(text: str) -> None:
    print(printable_lines(text), file=sys.stderr)


def run(argv: Sequence[str]) -> int:
    """Runs one command line (without the program's name) and returns its exit status."""
    log_to_stderr()
    if not argv:
        print(_START, end="")
        return 0
    if argv[:1] == ["help"]:
        argv = [*argv[1:], "--help"]
    _, label, _ = find_command(argv)
    try:
        with COP.make_context("cop", list(argv)) as context:
            status: int = COP.invoke(context)
            return status
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.UsageError as error:
        _say(f"{label}: {error.format_message()}\nSee: {label} --help")
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
