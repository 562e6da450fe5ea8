"""Progress through the zones of a panel, for commands that take their time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

__all__ = ["zone_progress"]


@contextmanager
def zone_progress(console: Console, title: str) -> Iterator[Callable[[int, int, str], None]]:
    """A bar with the time left; lines, one per tenth, where no terminal shows a bar."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    # Chunks come in seldom: the speed is that of the last ten minutes.
    with Progress(
        *columns,
        console=console,
        transient=True,
        speed_estimate_period=600,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task(title, total=None)
        first: tuple[int, float] | None = None
        tenths = 0

        def report(done: int, zones: int, note: str) -> None:
            nonlocal first, tenths
            if note:
                console.print(Text(note))
            if first is None:
                # What was finished before says nothing about the speed of this run.
                bar.reset(task, total=zones, completed=done)
                first, tenths = (done, time.monotonic()), 10 * done // zones
            bar.update(task, completed=done)
            if not console.is_terminal and 10 * done // zones > tenths:
                tenths = 10 * done // zones
                left = (time.monotonic() - first[1]) / (done - first[0]) * (zones - done)
                console.print(Text(f"{done} of {zones} zones, {left / 60:.1f} minutes left"))

        yield report
