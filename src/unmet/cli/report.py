"""`unmet report`: write the report of a run as one HTML page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from unmet.cli import _options as flags
from unmet.cli._console import Console
from unmet.cli._progress import zone_progress

__all__ = ["report_command"]


def report_command(
    run: Annotated[Path, typer.Argument(help="Folder written by `unmet estimate` or `unmet run`.")],
    out: Annotated[
        Path | None,
        typer.Option(help="HTML file to write; default: report.html in the run's folder."),
    ] = None,
    panel: Annotated[
        Path | None,
        typer.Option(help="Panel file of the run, if it was moved."),
    ] = None,
    title: flags.Title = None,
    truth: flags.Truth = None,
    compare: flags.Compare = None,
    basemap: flags.Basemap = None,
    trust: flags.Trust = False,
    quiet: flags.Quiet = False,
    as_json: flags.AsJson = False,
) -> None:
    """Write the report of a run: headline, map, series of every zone, where to act, data and methods.

    The report is a single HTML file. It opens from disk and needs no network.

    Example: unmet report run/ --out report.html --title "Jersey City, winter 2021"
    """
    from unmet.report import write_report

    terminal = Console(stderr=True)
    # This takes seconds: show a bar in a terminal, and nothing in a log.
    with zone_progress(Console(stderr=True, quiet=quiet or not terminal.is_terminal), "Drawing zones") as progress:
        path = write_report(
            run,
            out,
            panel=panel,
            title=title,
            truth=truth,
            compare=compare,
            basemap=basemap,
            trust=trust,
            progress=lambda done, zones: progress(done, zones, ""),
        )
    size = path.stat().st_size
    if as_json:
        typer.echo(json.dumps({"report": str(path), "bytes": size}))
    elif not quiet:
        Console().print(Text(f"{path}: {size / 1e6:.1f} MB. Open it in a browser."))
