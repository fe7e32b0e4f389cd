# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a verb of the console command is: its flags, its help, what it calls."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from absl import flags


class UsageError(Exception):
    """A command line that cannot be meant; the message says what to write instead."""


@dataclass(frozen=True)
class Verb:
    """One verb.

    Attributes:
      name: as typed, e.g. "corpus extract".
      summary: one sentence.
      example: a command line that works, without the leading "cop".
      define: adds the verb's flags.
      run: does the work, given the parsed flags and the arguments that are no flags; returns the
        exit status, None for 0.
      statuses: the exit statuses besides those of all verbs, with what they mean.
    """

    name: str
    summary: str
    example: str
    define: Callable[[flags.FlagValues], None]
    run: Callable[[flags.FlagValues, list[str]], int | None]
    statuses: Mapping[int, str] = dataclasses.field(default_factory=dict)

    def flag_values(self) -> flags.FlagValues:
        """The verb's own flags; it knows no others, so that a misspelt one is an error."""
        values = flags.FlagValues()
        values.set_gnu_getopt(True)
        self.define(values)
        return values

    def help(self) -> str:
        """Summary, example and flags."""
        lines = [f"cop {self.name}: {self.summary}", "", "Example:", f"  cop {self.example}", ""]
        values = self.flag_values()
        names = sorted(values)
        if names:
            lines.append("Flags:")
        for name in names:
            flag = values[name]
            # A required flag has a validator and no default.
            default = "" if flag.default is None else f" (default: {flag.default_as_str})"
            lines.append(f"  --{name}: {flag.help}{default}")
        if self.statuses:
            lines += ["", "Exit status, besides 0 (done), 1 (failed) and 2 (wrong command line):"]
            lines += [f"  {status}: {meaning}" for status, meaning in self.statuses.items()]
        return "\n".join(lines)


def parse_program(argv: Sequence[str], values: flags.FlagValues, description: str) -> None:
    """Parses the flags of a program that is no verb, such as a benchmark in tools/.

    Ends the program after `--help`, which prints `description`, its docstring, and the flags; and
    with a message when the command line is wrong.
    """
    if {"-h", "--help"} & set(argv[1:]):
        print(
            f"{description.strip()}\n\nFlags:\n{values.get_help(include_special_flags=False).strip()}"
        )
        raise SystemExit(0)
    try:
        rest = values(list(argv))[1:]
    except flags.Error as error:
        raise SystemExit(f"{argv[0]}: {error}; --help lists the flags") from None
    if rest:
        raise SystemExit(f"{argv[0]}: unknown arguments: {' '.join(rest)}; --help lists the flags")
