"""``unmet panel``: from an operator's files to a panel in a Parquet file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from unmet._exceptions import InputError
from unmet.mobility.panel import Panel, write_panel
from unmet.mobility.pickups import REBALANCING
from unmet.mobility.states import REASONS, WORDS

__all__ = ["panel_command"]

_PICKUPS_FROM = {
    "trips": "",
    "status": ", inferred from falls of availability",
    "trips and status": ", where there are no trips inferred from falls of availability",
}


def panel_command(
    out: Annotated[Path, typer.Option(help="Parquet file to write; it appears whole or not at all.")],
    timezone: Annotated[str, typer.Option(help="Time zone of the system, such as America/New_York.")],
    trips: Annotated[
        list[str] | None, typer.Option(help="Trip files: CSV, CSV.gz, zip, Parquet; a folder or a 'glob/*.csv.gz'.")
    ] = None,
    status: Annotated[
        list[str] | None,
        typer.Option(help="Station status: GBFS documents (a folder of snapshots) or a table of changes."),
    ] = None,
    stations: Annotated[
        list[str] | None,
        typer.Option(help="Stations: GBFS station_information or a table with id, lat, lon, capacity."),
    ] = None,
    zones: Annotated[
        str,
        typer.Option(
            help="stations | superhubs:200m (grouped) | superhubs:points.csv:200m (around points) | "
            "polygons.geojson | h3:9"
        ),
    ] = "stations",
    every: Annotated[str, typer.Option(help="Length of a bin, from 5min to 1w, by the local wall clock.")] = "1h",
    start: Annotated[str | None, typer.Option(help="Local time to start at; else where the records start.")] = None,
    end: Annotated[str | None, typer.Option(help="Local time to end at; else where the records end.")] = None,
    censored_rule: Annotated[
        str,
        typer.Option(help="Which bins are censored: any stock-out | minutes:10 (at least) | share:0.25 (at least)."),
    ] = "any",
    rebalancing: Annotated[
        int, typer.Option(help="Without trips: so many vehicles gone at once are a van, not riders.", min=2)
    ] = REBALANCING,
    hours: Annotated[str | None, typer.Option(help="Daily opening hours, 06:00-23:00; closed otherwise.")] = None,
    map_: Annotated[
        list[str] | None, typer.Option("--map", help="our_name=their_column, for headers that are not recognised.")
    ] = None,
    memory: Annotated[str, typer.Option(help="Memory to use; what does not fit goes to disk.")] = "2GB",
    max_rejected: Annotated[
        float, typer.Option(help="More than this share of a source rejected is an error.", min=0.0, max=1.0)
    ] = 0.2,
    force: Annotated[bool, typer.Option("--force", help="Go on however much was rejected.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print no summary.")] = False,
) -> None:
    """Build the panel: zone × time bin, with pickups, exposure and stock-outs.

    Give trips, station status, or both. With both, pickups come from the trips and supply from the status;
    with status alone, pickups are inferred from it; with trips alone, supply is netted from them.

    [bold]Example[/]

      unmet panel --trips 'trips/*.csv.gz' --status status.parquet --stations stations.csv
      --zones superhubs:200m --every 1h --timezone America/New_York --out panel.parquet
    """
    console = Console(stderr=True)
    with Progress(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console, transient=True
    ) as progress:
        task = progress.add_task("starting")
        made = write_panel(
            out,
            trips,
            status,
            stations,
            timezone=timezone,
            zones=zones,
            every=every,
            start=start,
            end=end,
            censored_rule=censored_rule,
            rebalancing=rebalancing,
            hours=hours,
            mapping=_mapping(map_ or []),
            memory=memory,
            max_rejected=max_rejected,
            force=force,
            progress=lambda step: progress.update(task, description=escape(step)),
        )
    if not quiet:
        _print(Console(), made, out)


def _mapping(pairs: list[str]) -> dict[str, str] | None:
    mapping = {}
    for pair in pairs:
        ours, equals, theirs = pair.partition("=")
        if not (ours and equals and theirs):
            raise InputError(f"--map: expected our_name=their_column, got {pair!r}.")
        mapping[ours.strip()] = theirs.strip()
    return mapping or None


def _print(console: Console, made: Panel, out: Path) -> None:
    summary = made.summary
    console.print(f"[bold]{escape(str(out))}[/]: {summary['rows']:,} rows", highlight=False)
    console.print(_facts(summary), _minutes(summary), sep="\n")
    rejected = made.quality[made.quality["reason"] != "read"]
    if len(rejected):
        console.print(_quality(rejected))


def _facts(summary: dict[str, Any]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    used = summary["trips_used"]
    share = summary["censored_share"]
    rows = {
        "period": f"{summary['start_local']} to {summary['end_local']} ({summary['timezone']}), "
        f"bins of {summary['every']}",
        "zones": f"{summary['zones']:,} of {summary['stations']:,} stations ({summary['zones_as']})",
        "status": f"{summary['status'] or 'none'}; {summary['feed_outages']} outages of the whole feed"
        if summary["status"]
        else "none: supply is netted from trips, which is weaker evidence",
        "trips used": "none" if used is None else f"{used:,}",
        "pickups": f"{summary['observed']:,.0f}" + _PICKUPS_FROM[summary["pickups_from"]],
        "censored bins": "no bin was open"
        if share is None
        else f"{share:.1%} of the {summary['bins_open']:,} in which a zone was open (rule: {summary['censored_rule']})",
    }
    for name, value in rows.items():
        table.add_row(name, escape(value))
    return table


def _minutes(summary: dict[str, Any]) -> Table:
    table = Table(box=None, padding=(0, 2), title="Minutes by state", title_justify="left", title_style="bold")
    table.add_column("state")
    table.add_column("minutes", justify="right")
    table.add_column("share", justify="right")
    table.add_column("why")
    total = max(sum(summary["minutes"].values()), 1)
    for state, minutes in summary["minutes"].items():
        why = {k: v for k, v in summary["reasons"].items() if REASONS[k] == state}
        reasons = "; ".join(
            f"{WORDS[k]} {v / total:.1%}" if len(why) > 1 else WORDS[k]
            for k, v in sorted(why.items(), key=lambda i: -i[1])
        )
        table.add_row(state, f"{minutes:,}", f"{minutes / total:.1%}", reasons)
    return table


def _quality(findings: pd.DataFrame) -> Table:
    table = Table(
        box=None, padding=(0, 2), title="Rejected, repaired and noted", title_justify="left", title_style="bold"
    )
    table.add_column("")
    table.add_column("what", no_wrap=True)
    table.add_column("rows", justify="right")
    table.add_column("share", justify="right")
    table.add_column("")
    order = {"rejected": 0, "repaired": 1, "noted": 2}
    for row in sorted(findings.to_dict("records"), key=lambda r: (order[r["action"]], r["source"])):
        what = f"{row['source']}: {row['reason']}"
        table.add_row(
            row["action"], escape(what), f"{row['rows']:,}", f"{row['share']:.2%}", escape(row["detail"] or "")
        )
    return table
