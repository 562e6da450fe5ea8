"""`unmet export`: write the numbers of a report as tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from unmet._exceptions import InputError
from unmet.cli import _options as flags
from unmet.cli._console import Console

__all__ = ["export_command"]

_CONTENTS = {
    "headline": "totals of the system with intervals",
    "zones": "one row per zone",
    "hours_of_week": "one row per zone and hour of the week",
    "act": "zones and hours where one more vehicle would serve most riders",
    "weeks": "one row per area, week and quantity",
    "bins": "one row per zone and bin",
    "totals": "all totals with their quantiles",
    "quality": "rejected, repaired and noted rows",
    "demand": "one row per zone and bin: unique_id, ds, y",
}


def export_command(
    run: Annotated[Path, typer.Argument(help="Folder written by `unmet estimate` or `unmet run`.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the tables; created if missing. With --to nixtla: a .parquet or .csv file."),
    ] = None,
    format_: Annotated[
        str,
        typer.Option("--format", help="Formats, separated by commas: csv, parquet, geojson."),
    ] = "csv,parquet,geojson",
    to: Annotated[
        str | None,
        typer.Option(
            metavar="<place>",
            help="Instead of --out and --format: duckdb://FILE, postgresql://USER@HOST/DATABASE, FILE.xlsx, a folder "
            "for Parquet files, or nixtla (unique_id, ds, y).",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="In a database: name of the run, whose rows are replaced; default: the folder's name."),
    ] = None,
    schema: Annotated[str, typer.Option(help="In a database: schema of the tables; created if missing.")] = "unmet",
    panel: Annotated[
        Path | None,
        typer.Option(help="Panel file of the run, if it was moved."),
    ] = None,
    trust: flags.Trust = False,
    quiet: flags.Quiet = False,
    as_json: flags.AsJson = False,
) -> None:
    """Write the tables behind a report: zones, hours of the week, bins, where to act, totals, data quality.

    CSV opens in a spreadsheet; a text that looks like a formula is prefixed with an apostrophe. Parquet keeps types and
    names unchanged. GeoJSON contains the zones with their points or polygons.

    In a database, each table has a column run. One transaction replaces the rows of this run; those of other runs stay.
    Leave the password out of the address and set PGPASSWORD: other users can see the arguments of a command.

    Example: unmet export run/ --out tables/ --format csv,geojson

    Example: unmet export run/ --to postgresql://me@localhost/city
    """
    from unmet.report import export_tables

    if to is not None:
        _export_to(to, run, out, name, schema, panel, trust, quiet, as_json)
        return
    if out is None:
        raise InputError("expected --out FOLDER for files, or --to for a database or a workbook; got neither.")
    formats = [name.strip().lower() for name in format_.split(",") if name.strip()]
    stderr = Console(stderr=True, quiet=quiet)
    with stderr.status("reading the run") as status:
        paths = export_tables(
            run, out, formats=formats, panel=panel, trust=trust, progress=lambda name: status.update(f"writing {name}")
        )
    if as_json:
        typer.echo(json.dumps({"files": [str(path) for path in paths]}))
    elif not quiet:
        Console().print(_table(paths))


def _export_to(
    to: str,
    run: Path,
    out: Path | None,
    name: str | None,
    schema: str,
    panel: Path | None,
    trust: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    from unmet.report.destinations import export_to

    stderr = Console(stderr=True, quiet=quiet)
    with stderr.status("reading the run") as status:
        exported = export_to(
            run,
            to,
            out=out,
            name=name,
            schema=schema,
            panel=panel,
            trust=trust,
            progress=lambda table: status.update(f"writing {table}"),
        )
    if as_json:
        typer.echo(json.dumps({"place": exported.place, "rows": exported.rows}))
    elif not quiet:
        table = Table(box=None, padding=(0, 2), title=f"Written to {escape(exported.place)}", title_justify="left")
        table.add_column("table")
        table.add_column("rows", justify="right")
        table.add_column("contents")
        for title, rows in exported.rows.items():
            table.add_row(title, f"{rows:,}", _CONTENTS.get(title, ""))
        Console().print(table)


def _table(paths: list[Path]) -> Table:
    table = Table(box=None, padding=(0, 2), title=f"Written to {escape(str(paths[0].parent))}", title_justify="left")
    table.add_column("file")
    table.add_column("size", justify="right")
    table.add_column("contents")
    for path in paths:
        size = path.stat().st_size
        shown = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"
        table.add_row(path.name, shown, _CONTENTS.get(path.stem, ""))
    return table
