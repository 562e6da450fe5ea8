"""`unmet fleet`: many cities in one go."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from unmet.cli import _options as flags
from unmet.cli._console import Console, one_line
from unmet.cli._ending import end_with_failures
from unmet.cli._progress import stoppable, zone_progress

__all__ = ["fleet_command"]


def fleet_command(
    cities: Annotated[
        Path,
        typer.Argument(
            help="Folder whose subfolders have an unmet.toml each, or a TOML file with a list: "
            'cities = ["oslo/unmet.toml", "bergen/unmet.toml"].'
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the results: a folder per city, and the page over all.")] = Path(
        "out/fleet"
    ),
    jobs: flags.Jobs = None,
    engine: flags.Engine = "processes",
    quiet: flags.Quiet = False,
    as_json: flags.AsJson = False,
) -> None:
    """Estimate many cities, and write one table and one page over all of them.

    Each city is run as `unmet run` with its unmet.toml. Writes fleet.html, which links to the report of each city, and
    cities.parquet, with one row per city. A city that fails, also because its unmet.toml is not valid, does not stop
    the others.

    You can interrupt it at any time. The same command continues.

    Exit code 0: all zones of all cities estimated; 1: some cities or zones failed; 2: invalid input, nothing was
    written.

    Example: unmet fleet cities/ --out out/fleet --engine spark://master:7077
    """
    from unmet.engines import find_executor
    from unmet.pipeline.cities import PAGE, find_cities, run_cities

    stderr = Console(stderr=True, quiet=quiet)
    found = find_cities(cities, out)
    with stoppable(stderr), zone_progress(stderr, "Estimating cities", "cities") as progress:
        rows = run_cities(found, out, executor=find_executor(engine), jobs=jobs, progress=progress)
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=2))
    elif not quiet:
        console, table = Console(), Table()
        for name in ("City", "Zones", "Observed", "Lost", "90 % interval", "Lost of wanted", "Walked on"):
            table.add_column(name, justify="left" if name == "City" else "right")
        for row in sorted((row for row in rows if row.reason is None), key=lambda row: -row.lost):
            numbers = f"{row.zones:,}", f"{row.observed:,.0f}", f"{row.lost:,.0f}"
            interval = f"{row.lost_q05:,.0f} to {row.lost_q95:,.0f}"
            table.add_row(one_line(row.city), *numbers, interval, f"{row.lost_share:.1%}", f"{row.walked_on:,.0f}")
        console.print(table)
        console.print(Text.assemble("Page: ", (str(out / PAGE), "bold")), soft_wrap=True)
    failed = [row for row in rows if row.reason is not None or row.zones_failed]
    if failed:
        end_with_failures(
            f"{len(failed)} of {len(rows)} cities, or some of their zones, have no estimate", str(out / PAGE)
        )
