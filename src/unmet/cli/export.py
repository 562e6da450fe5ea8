"""`unmet export`: the numbers of a report as tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from unmet.cli import _options as flags

__all__ = ["export_command"]

_HOLDS = {
    "headline": "the system's totals with intervals",
    "zones": "one row per zone",
    "hours_of_week": "one row per zone and hour of the week",
    "act": "where one more vehicle serves the most riders",
    "bins": "one row per zone and bin",
    "totals": "every total with its quantiles",
    "quality": "rows rejected, repaired and noted",
}


def export_command(
    run: Annotated[Path, typer.Argument(help="Folder that `unmet estimate` or `unmet run` wrote.")],
    out: Annotated[Path, typer.Option(help="Folder for the tables, made if need be.")],
    format_: Annotated[
        str,
        typer.Option("--format", help="Some of csv, parquet and geojson, with commas between."),
    ] = "csv,parquet,geojson",
    panel: Annotated[
        Path | None,
        typer.Option(help="The panel that the run was made from, where it has moved since."),
    ] = None,
    quiet: flags.Quiet = False,
    as_json: flags.AsJson = False,
) -> None:
    """Write the tables behind a report: zones, hours of the week, bins, where to act, totals, data quality.

    CSV opens in a spreadsheet (a name that looks like a formula gets an apostrophe before it), Parquet keeps types and
    names as they are, GeoJSON has the zones with their places or polygons.

    For example: unmet export run/ --out tables/ --format csv,geojson
    """
    from unmet.report import export_tables

    formats = [name.strip().lower() for name in format_.split(",") if name.strip()]
    told = Console(stderr=True, quiet=quiet)
    with told.status("reading the run") as status:
        paths = export_tables(
            run, out, formats=formats, panel=panel, progress=lambda name: status.update(f"writing {name}")
        )
    if as_json:
        typer.echo(json.dumps({"files": [str(path) for path in paths]}))
    elif not quiet:
        Console().print(_table(paths))


def _table(paths: list[Path]) -> Table:
    table = Table(box=None, padding=(0, 2), title=f"Written to {escape(str(paths[0].parent))}", title_justify="left")
    table.add_column("file")
    table.add_column("size", justify="right")
    table.add_column("holds")
    for path in paths:
        size = path.stat().st_size
        shown = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"
        table.add_row(path.name, shown, _HOLDS.get(path.stem, ""))
    return table
