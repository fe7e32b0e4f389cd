# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables of text and numbers: Markdown for files, lines for terminals, and the cells of both."""

from collections.abc import Container, Iterable, Sequence

#: What a cell says where there is no value.
NOTHING = "–"
# Markdown reads these characters as markup; a pipe alone would end a cell.
_MARKUP = str.maketrans({character: f"\\{character}" for character in "\\`*_{}[]<>()#|"})
_PIPE = str.maketrans({"|": "\\|"})
# Text that is not for a terminal is never wrapped.
_UNWRAPPED = 10_000


def percent(change: float | None, interval: tuple[float, float] | None = None) -> str:
    """A change as text: -0.01 as "-1.00%", with its interval as "-1.00% [-1.20, -0.80]"."""
    if change is None:
        return NOTHING
    text = f"{100 * change:+.2f}%"
    if interval is None:
        return text
    low, high = interval
    return f"{text} [{100 * low:+.2f}, {100 * high:+.2f}]"


def share(part: float, whole: float) -> str:
    """A part of a whole as text: "12.5%"."""
    return f"{100 * part / whole:.1f}%" if whole else NOTHING


def literal(text: str) -> str:
    """The text with all markup of Markdown escaped."""
    return text.translate(_MARKUP)


def markdown(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: Container[int] = (),
    *,
    escaped: bool = False,
) -> str:
    """The table in Markdown.

    Args:
      numbers: indices of the columns that are aligned to the right.
      escaped: whether all markup in the cells is escaped; otherwise only pipes are.
    """
    rules = ["---:" if column in numbers else "---" for column in range(len(head))]
    table = _MARKUP if escaped else _PIPE
    cells = ([cell.translate(table) for cell in row] for row in (head, *rows))
    lines = [f"| {' | '.join(row)} |\n" for row in cells]
    return "".join([lines[0], f"| {' | '.join(rules)} |\n", *lines[1:]])


def terminal(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: Container[int] = (),
    *,
    title: str = "",
    total: Sequence[str] = (),
) -> str:
    """The table as lines, as wide as the terminal, or as it needs where there is none.

    Args:
      numbers: indices of the columns that are aligned to the right.
      total: a last row, set apart; none if it is empty.
    """
    # Loading rich takes a tenth of a second, and workers must not.
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(
        width=None if Console().is_terminal else _UNWRAPPED, highlight=False, color_system=None
    )
    table = Table(box=box.SIMPLE_HEAD, title=Text(title) if title else None)
    for column, name in enumerate(head):
        table.add_column(Text(name), justify="right" if column in numbers else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    if total:
        table.add_section()
        table.add_row(*map(Text, total))
    with console.capture() as captured:
        console.print(table)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    return "\n".join(lines).strip("\n") + "\n"
