"""The console of all commands: names from files cannot control the terminal, and tables fit into narrow ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich import console
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

__all__ = ["Console", "one_line"]

# Control characters but tab and line end, as the symbols that Unicode has for them, or as "�".
_VISIBLE = {i: chr(0x2400 + i) for i in range(32) if chr(i) not in "\t\n"}
_VISIBLE |= {127: "\u2421", **dict.fromkeys(range(128, 160), "\ufffd")}
# Marks of direction would show the rest of the line, such as a number, in another order.
_VISIBLE |= dict.fromkeys((0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\ufffd")


def one_line(name: str) -> Text:
    r"""Give a name for a cell of a table, without the lines that it may have.

    Examples
    --------
    >>> one_line("Oslo\nLost: 0").plain
    'Oslo␊Lost: 0'
    """
    return Text(name.translate({ord("\n"): "\u240a", ord("\t"): "\u2409"}))


_WIDEST, _NARROWEST = 1000, 20  # columns: more than any table has, and fewer than any terminal


def _as_lines(table: Table) -> console.Group:
    """Write a table that is too wide one cell to a line, so that no word or number is cut."""
    lines: list[console.RenderableType] = [] if table.title is None else [table.title]
    for row in zip(*(column.cells for column in table.columns), strict=True):
        for k, (column, cell) in enumerate(zip(table.columns, row, strict=True)):
            name = column.header.plain if isinstance(column.header, Text) else str(column.header)
            value = cell.copy() if isinstance(cell, Text) else Text.from_markup(str(cell))
            lines.append(Text.assemble("" if k == 0 else "  ", f"{name}: " if name else "", value, overflow="fold"))
    return console.Group(*lines)


class Console(console.Console):
    r"""A console of rich that shows control characters instead of sending them to the terminal.

    Examples
    --------
    >>> from rich.text import Text
    >>> Console().print(Text("station \x1b[31mA"))
    station ␛[31mA
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if self.width < _NARROWEST:  # some terminals, and COLUMNS=0, tell no width
            self.width = _NARROWEST

    def render(
        self, renderable: console.RenderableType, options: console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render to segments. Those that rich makes to control the terminal stay as they are."""
        if isinstance(renderable, Table):
            own = options or self.options
            if Measurement.get(self, own.update(max_width=_WIDEST), renderable).minimum > own.max_width:
                renderable = _as_lines(renderable)
        for segment in super().render(renderable, options):
            shown = segment.text if segment.control else segment.text.translate(_VISIBLE)
            yield segment if shown == segment.text else Segment(shown, segment.style)
