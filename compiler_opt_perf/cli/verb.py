# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Groups and verbs of the console command: click's, with our help, hints and JSON documents."""

import difflib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from compiler_opt_perf.cli.parameters import parameters_of
from compiler_opt_perf.run.symbol_names import printable_lines

_Function = TypeVar("_Function", bound=Callable[..., Any])

# Of every verb.
EXIT_STATUSES = "0 done, 1 failed, 2 wrong command line, 128 + N ended by signal N"


@dataclass(frozen=True)
class Table:
    """What a verb shows; only the asked form is computed.

    Attributes:
      text: for people, with its last newline.
      content: the same for programs, as JSON values: names and plain numbers.
      status: the exit status, one of the verb's.
    """

    text: Callable[[], str]
    content: Callable[[], Mapping[str, Any]]
    status: int = 0


class Verb(click.Command):
    """One verb: a function, whose parameters are its flags and whose docstring is its summary.

    The function returns the exit status, None for 0, or a table to show.

    Attributes:
      example: a command line that works, without the leading "cop".
      statuses: the exit statuses besides those of all verbs, with their meaning.
      json_version: version of the JSON document that --json prints instead of the text
        (docs/reference/formats.md); 0 for a verb that shows no table, and has no such flag.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., int | Table | None],
        example: str,
        statuses: Mapping[int, str],
        json_version: int,
    ):
        flags = parameters_of(function)
        if json_version:
            help = "print the same as one JSON document"
            flags.append(click.Option(["--json"], is_flag=True, help=help))
        super().__init__(name, callback=function, params=flags, help=inspect.getdoc(function))
        self.example = example
        self.statuses = statuses
        self.json_version = json_version

    @property
    def summary(self) -> str:
        """One sentence; lines of the docstring are joined."""
        return " ".join((self.help or "").split())

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes an example and the exit statuses below the flags."""
        lines = ["", "Example:", f"  cop {self.example}", "", f"Exit status: {EXIT_STATUSES}"]
        lines += [f"  {status}: {meaning}" for status, meaning in self.statuses.items()]
        formatter.write("\n".join(lines) + "\n")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reads flags and arguments. Raises click.UsageError, with what may be meant."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if all("--" not in (one.metavar or "") for one in self.params):
                raise
            # Flags of a program or compiler that the verb runs.
            raise click.UsageError(
                f"{error.format_message()} Flags of what is run come after --", ctx
            ) from None

    def invoke(self, ctx: click.Context) -> int:
        """Runs the function, prints its table, and returns the exit status."""
        as_json = ctx.params.pop("json", False)
        if as_json and ctx.params.get("html"):
            raise click.UsageError("--html and --json: give one of them")
        result: int | Table | None = super().invoke(ctx)
        if not isinstance(result, Table):
            return result or 0
        print(self.shown(result, ctx.command_path.removeprefix("cop "), as_json), end="")
        return result.status

    def shown(self, table: Table, name: str, as_json: bool) -> str:
        """A table's text, or its JSON document, which says by `name` which verb it is of.

        Names in a table come from files of others: the text masks what would move a cursor.
        """
        if not as_json:
            return printable_lines(table.text())
        document = {"kind": name, "version": self.json_version, **table.content()}
        return json.dumps(document, indent=1, allow_nan=False) + "\n"


class Group(click.Group):
    """A group of verbs, or of groups: it lists its verbs, and hints at what was meant."""

    def verb(
        self,
        name: str,
        *,
        example: str,
        statuses: Mapping[int, str] | None = None,
        json_version: int = 0,
    ) -> Callable[[_Function], _Function]:
        """Adds a function as a verb; the arguments are attributes of `Verb`."""

        def add(function: _Function) -> _Function:
            self.add_command(Verb(name, function, example, statuses or {}, json_version))
            return function

        return add

    def verbs(self, path: str = "") -> Iterator[tuple[str, Verb]]:
        """All verbs below, with their names after `path`."""
        for name, command in self.commands.items():
            words = f"{path} {name}".strip()
            if isinstance(command, Group):
                yield from command.verbs(words)
            elif isinstance(command, Verb):
                yield words, command

    def listed(self, path: str) -> str:
        """A line for each verb: name and summary."""
        verbs = dict(self.verbs(path))
        width = max(map(len, verbs))
        return "\n".join(f"  {name:{width}}  {verb.summary}" for name, verb in verbs.items())

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes all verbs with their summaries."""
        head = f"{self.help}\n\nVerbs (cop VERB --help tells more):\n"
        formatter.write(f"{head}{self.listed(_path(ctx))}\n\nExit status: {EXIT_STATUSES}\n")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuses a command line that names no verb. Raises click.UsageError."""
        own = {name for one in self.get_params(ctx) for name in one.opts}
        if not args or (args[0].startswith("-") and args[0] not in own):
            path = _path(ctx)
            # All verbs of all groups would move the answer off the screen.
            verbs = f"one of these verbs\n{self.listed(path)}" if path else "a verb"
            raise click.UsageError(f"expected {verbs}", ctx)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that `args` begin with. Raises click.UsageError, with what may be meant."""
        if args[0] in self.commands:
            return super().resolve_command(ctx, args)
        path = _path(ctx)
        typed = f"{path} {args[0]}" if path else " ".join(args[:2])
        names = [name for name, _ in self.verbs(path)]
        # Names of one group are alike by the group's name.
        alike = [] if path else difflib.get_close_matches(typed, names, n=2)
        # Among the short words of all groups, more must be alike than usual.
        words = sorted({name.split()[-1] for name in names})
        near = difflib.get_close_matches(args[0], words, n=2, cutoff=0.6 if path else 0.75)
        alike += [name for name in names if name.split()[-1] in near]
        hint = f"; did you mean {' or '.join(map(repr, dict.fromkeys(alike)))}?" if alike else ""
        raise click.UsageError(f"no verb {typed!r}{hint}", ctx)


def _path(ctx: click.Context) -> str:
    """Names of the groups that the command line went into, without "cop"."""
    return ctx.command_path.partition(" ")[2]
