"""Progress bars and stage lines on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import typer
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from unmet.cli._console import Console
from unmet.cli._tables import duration
from unmet.pipeline.events import FIRST_TIME, Event, Stage

__all__ = ["stage_progress", "step_progress", "stoppable", "was_stopped", "zone_progress"]

_CONTINUE = "Interrupted. Finished work is kept; run the same command to continue."


@contextmanager
def zone_progress(console: Console, title: str, what: str = "zones") -> Iterator[Callable[[int, int, str], None]]:
    """Show a bar with the remaining time; without a terminal, print a line after each tenth."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    # Chunks finish rarely: estimate the speed from the last ten minutes.
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
                # Zones finished by an earlier run do not count for the speed of this one.
                bar.reset(task, total=zones, completed=done)
                first, tenths = (done, time.monotonic()), 10 * done // zones
            bar.update(task, completed=done)
            if not console.is_terminal and 10 * done // zones > tenths:
                tenths = 10 * done // zones
                left = (time.monotonic() - first[1]) / (done - first[0]) * (zones - done)
                console.print(Text(f"{done} of {zones} {what} done, {left / 60:.1f} minutes left"))

        yield report


@contextmanager
def stoppable(console: Console, sentence: str = _CONTINUE) -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into exit code 130 with a sentence; `unmet.cli.main` makes it 143 after SIGTERM."""
    try:
        yield
    except (KeyboardInterrupt, RuntimeError) as error:
        if not was_stopped(error):
            raise
        console.print(sentence)
        raise typer.Exit(130) from None


def was_stopped(error: BaseException) -> bool:
    """Whether this is Ctrl-C or SIGTERM. DuckDB raises a RuntimeError for it that only its text identifies."""
    return isinstance(error, KeyboardInterrupt) or str(error) == "Query interrupted"


@contextmanager
def step_progress(console: Console, title: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner with the current step."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(escape(title))
        yield lambda step: progress.update(task, description=escape(step))


_OF_ZONES = {"estimate": "Estimating zones", "returns": "Estimating returns"}


@contextmanager
def stage_progress(console: Console) -> Iterator[Callable[[Event], None]]:
    """Show a spinner or a bar for the current stage of a run, and a line for each finished stage."""
    with ExitStack() as shown:
        step: Callable[[str], None] | None = None
        zones: Callable[[int, int, str], None] | None = None

        def tell(event: Event) -> None:
            nonlocal step, zones
            if event.kind == "begin" and event.stage in _OF_ZONES:
                zones = shown.enter_context(zone_progress(console, _OF_ZONES[event.stage]))
            elif event.kind == "begin":
                step = shown.enter_context(step_progress(console, event.stage))
            elif event.kind == "step" and step is not None:
                step(event.text)
            elif event.kind == "zones" and zones is not None:
                zones(event.done, event.zones, event.text)
            elif event.kind == "note":
                console.print(Text(event.text))
            elif event.stage_result is not None:
                shown.close()
                console.print(_stage_line(event.stage_result))

        yield tell


def _stage_line(stage: Stage) -> Text:
    if stage.reused:
        how = f"reused: {stage.why}"
    elif stage.why == FIRST_TIME:
        how = f"done in {duration(stage.seconds)}"
    else:
        how = f"done again in {duration(stage.seconds)}: {stage.why}"
    return Text.assemble((f"{stage.name:<9}", "bold"), " ", how)
