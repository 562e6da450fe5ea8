"""The console of all commands: names from files cannot control the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich import console
from rich.segment import Segment

__all__ = ["Console"]

# Control characters but tab and line end, as the symbols that Unicode has for them, or as "�".
_VISIBLE = {i: chr(0x2400 + i) for i in range(32) if chr(i) not in "\t\n"}
_VISIBLE |= {127: "\u2421", **dict.fromkeys(range(128, 160), "\ufffd")}


class Console(console.Console):
    r"""A console of rich that shows control characters instead of sending them to the terminal.

    Examples
    --------
    >>> from rich.text import Text
    >>> Console().print(Text("station \x1b[31mA"))
    station ␛[31mA
    """

    def render(
        self, renderable: console.RenderableType, options: console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render to segments. Those that rich makes to control the terminal stay as they are."""
        for segment in super().render(renderable, options):
            shown = segment.text if segment.control else segment.text.translate(_VISIBLE)
            yield segment if shown == segment.text else Segment(shown, segment.style)
