# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a verb of the console command is: its flags, its help, what it calls."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from absl import flags

from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.symbol_names import printable_lines


class UsageError(UserError):
    """A command line that cannot be meant; the message says what to write instead."""


@dataclass(frozen=True)
class Table:
    """What a verb shows; only what is asked for is computed.

    Attributes:
      text: for people, with its last newline.
      content: the same for programs, as JSON values: names and plain numbers.
      status: the exit status, one of the verb's.
    """

    text: Callable[[], str]
    content: Callable[[], Mapping[str, Any]]
    status: int = 0


@dataclass(frozen=True)
class Verb:
    """One verb.

    Attributes:
      name: as typed, e.g. "corpus extract".
      summary: one sentence.
      example: a command line that works, without the leading "cop".
      define: adds the verb's flags.
      run: does the work, given the parsed flags and the arguments that are no flags; returns the
        exit status, None for 0, or what to show.
      arguments: what is given besides flags, as the usage line has it; empty for nothing.
      statuses: the exit statuses besides those of all verbs, with what they mean.
      json_version: of the JSON document that --json prints in the place of the text
        (docs/formats.md); 0 for a verb that shows no table, and has no such flag.
    """

    name: str
    summary: str
    example: str
    define: Callable[[flags.FlagValues], None]
    run: Callable[[flags.FlagValues, list[str]], int | Table | None]
    arguments: str = ""
    statuses: Mapping[int, str] = dataclasses.field(default_factory=dict)
    json_version: int = 0

    def flag_values(self) -> flags.FlagValues:
        """The verb's own flags; it knows no others, so that a misspelt one is an error."""
        values = flags.FlagValues()
        values.set_gnu_getopt(True)
        self.define(values)
        if self.json_version:
            flags.DEFINE_boolean(
                "json", False, "print the same as one JSON document", flag_values=values
            )
        return values

    def shown(self, table: Table, as_json: bool) -> str:
        """What is printed of a table: its text, or a document that says what it is.

        Names in a table come from files of others; what would move a terminal's cursor is masked.
        """
        if not as_json:
            return printable_lines(table.text())
        document = {"kind": self.name, "version": self.json_version, **table.content()}
        return json.dumps(document, indent=1, allow_nan=False) + "\n"

    def parse(self, words: Sequence[str]) -> tuple[flags.FlagValues, list[str]]:
        """The flags and the other arguments of a command line, without the verb's own words.

        Flags are written with dashes; underscores, as absl and LLVM's mlgo-utils have them, are the
        same.

        Raises:
          UsageError: a flag that the verb does not have, a wrong value, a required flag is missing,
            or there are other arguments and the verb takes none.
        """
        values = self.flag_values()
        end = list(words).index("--") if "--" in words else len(words)
        options = [_with_underscores(word) for word in words[:end]]
        try:
            rest: list[str] = values([self.name, *options, *words[end:]])[1:]
        except flags.Error as error:
            message = str(error)
            for name in values:
                message = message.replace(f"--{name}", f"--{_with_dashes(name)}")
            raise UsageError(message) from error
        if not self.arguments:
            no_arguments(rest)
        return values, rest

    def help(self) -> str:
        """Summary, usage, example and flags, the required ones first."""
        values = self.flag_values()
        required = [name for name in sorted(values) if _is_required(values[name])]
        others = [name for name in sorted(values) if name not in required]
        usage = [f"cop {self.name}"]
        usage += [f"--{_with_dashes(name)}={_placeholder(values[name])}" for name in required]
        usage += ["[flags]"] * bool(others) + [self.arguments] * bool(self.arguments)
        lines = [f"cop {self.name}: {self.summary}", "", "Usage:", f"  {' '.join(usage)}", ""]
        lines += ["Example:", f"  cop {self.example}", ""]
        for title, names in (("Required flags:", required), ("Flags:", others)):
            if names:
                lines.append(title)
            for name in names:
                flag = values[name]
                # Strings, and words like false, are in quotation marks there.
                text = (flag.default_as_str or "").strip("'[]")
                default = f" (default: {text})" if text else ""
                lines.append(f"  --{_with_dashes(name)}: {flag.help}{default}")
        lines += ["", f"Exit status: {EXIT_STATUSES}"]
        lines += [f"  {status}: {meaning}" for status, meaning in self.statuses.items()]
        return "\n".join(lines)


# Of every verb.
EXIT_STATUSES = "0 done, 1 failed, 2 wrong command line, 128 + N ended by signal N"


def no_arguments(arguments: Sequence[str]) -> None:
    """Refuses arguments that are no flags. Raises UsageError."""
    if arguments:
        raise UsageError(f"unexpected argument {arguments[0]!r}; flags are written --name=value")


def _with_dashes(name: str) -> str:
    return name.replace("_", "-")


def _with_underscores(word: str) -> str:
    """A word of the command line, with the flag's name as absl knows it."""
    if not word.startswith("--"):
        return word
    name, equals, value = word[2:].partition("=")
    return f"--{name.replace('-', '_')}{equals}{value}"


def _is_required(flag: flags.Flag) -> bool:
    return flag.default is None and any(
        "must have a value" in validator.message for validator in flag.validators
    )


def _placeholder(flag: flags.Flag) -> str:
    if isinstance(flag, flags.EnumFlag):
        return "|".join(str(value) for value in flag.parser.enum_values)
    return str(flag.name).upper().replace("_", "-")
