"""Tables of an experiment for the terminal: rich tables that fit its width."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from unmet.experiments._tables import Table, is_numeric, plain

__all__ = ["print_table"]

_LONGEST_NAME = 28
_SHORT = 9  # heads up to this length are not broken into lines
_EDGES, _BETWEEN = 2, 3  # characters added at the sides of a table, and per column


def print_table(console: Console, table: Table) -> None:
    """Print a table. One that is too wide is split into parts, each with the columns that identify the rows."""
    console.print(Text(f"\n{table.title}", style="bold"))
    heads = [Text(str(c)) for c in table.shown.columns]
    columns = [table.shown.iloc[:, i] for i in range(len(heads))]
    bold = [console.is_terminal and i >= table.keys for i in range(len(heads))]  # names may contain stars
    texts = [[_text(plain(v), bold=b) for v in column] for column, b in zip(columns, bold, strict=True)]
    widths = [_width(head, column) for head, column in zip(heads, texts, strict=True)]
    for part in _parts(widths, table.keys, console.width):
        drawn = RichTable(box=SIMPLE_HEAD, pad_edge=False)
        for i in part:
            side = "right" if is_numeric(columns[i]) else "left"
            drawn.add_column(heads[i], justify=side, width=widths[i], overflow="ellipsis")  # type: ignore[arg-type]
        for row in zip(*(texts[i] for i in part), strict=True):
            drawn.add_row(*row)
        console.print(drawn)
    if table.note:
        console.print(Text(table.note))


def _width(head: Text, column: list[Text]) -> int:
    words = [head] if head.cell_len <= _SHORT else head.split(" ")
    return min(max(text.cell_len for text in [*column, *words]), _LONGEST_NAME)


def _parts(widths: list[int], keys: int, available: int) -> Iterator[list[int]]:
    """Yield the columns of each part: those that identify the rows, and as many others as fit."""
    names = list(range(keys))
    part = names.copy()
    for i in range(keys, len(widths)):
        if len(part) > keys and _EDGES + sum(widths[j] + _BETWEEN for j in [*part, i]) > available:
            yield part
            part = names.copy()
        part.append(i)
    yield part


def _text(text: str, *, bold: bool) -> Text:
    """Return text with parts between pairs of stars in bold. The stars stay if the terminal shows no bold type."""
    if not bold:
        return Text(text)
    return Text.assemble(*((piece, "bold" if i % 2 else "") for i, piece in enumerate(text.split("**"))))
