"""`unmet simulate`: write the records of a city whose true demand is known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from unmet.cli._console import Console

if TYPE_CHECKING:
    from unmet.simulate import City

__all__ = ["simulate_command"]

_SUPPLY = "Supply and demand"
_RIDERS = "Riders"
_TROUBLE = "Trouble in the records"


def simulate_command(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="Folder for the city; it appears only when complete.")],
    stations: Annotated[int, typer.Option(help="Number of stations.")] = 40,
    days: Annotated[int, typer.Option(help="Number of days.")] = 120,
    seed: Annotated[int, typer.Option(help="Random seed; the same seed gives the same bytes.")] = 1,
    start: Annotated[str, typer.Option(help="First local day, YYYY-MM-DD.")] = "2024-03-04",
    timezone: Annotated[str, typer.Option(help="Time zone of the city (IANA name).")] = "America/New_York",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing city in --out.")] = False,
    realistic: Annotated[
        bool,
        typer.Option(
            "--realistic",
            help="Unusable bikes, walkers, shocks and a polled feed, as strong as in real cities. Options win: "
            "--realistic --walk-probability 0 --shock-effect 0 leaves walkers and shocks out.",
        ),
    ] = False,
    demand: Annotated[
        float, typer.Option(help="Wanted trips per station on a mild, dry day.", rich_help_panel=_SUPPLY)
    ] = 75.0,
    fleet_share: Annotated[
        float, typer.Option(help="Bikes per dock; with fewer bikes, more trips are lost.", rich_help_panel=_SUPPLY)
    ] = 0.4,
    rebalancing: Annotated[
        float, typer.Option(help="Share of the imbalance that trucks remove at night.", rich_help_panel=_SUPPLY)
    ] = 0.6,
    breakage: Annotated[
        float, typer.Option(help="Probability that a returned bike is broken.", rich_help_panel=_SUPPLY)
    ] = 0.002,
    unusable: Annotated[
        float,
        typer.Option(help="Probability that a returned bike is broken but still listed.", rich_help_panel=_SUPPLY),
    ] = 0.0,
    briefly_unusable: Annotated[
        float,
        typer.Option(help="Probability that nobody can rent a returned bike for minutes.", rich_help_panel=_SUPPLY),
    ] = 0.0,
    density: Annotated[float, typer.Option(help="Stations per square kilometre.", rich_help_panel=_SUPPLY)] = 8.0,
    dispersion: Annotated[
        float, typer.Option(help="Overdispersion of arrivals; 0: Poisson.", rich_help_panel=_RIDERS)
    ] = 0.05,
    weather_effect: Annotated[float, typer.Option(help="Strength of weather; 0: none.", rich_help_panel=_RIDERS)] = 1.0,
    trend_effect: Annotated[
        float, typer.Option(help="Strength of the slow trend; 0: none.", rich_help_panel=_RIDERS)
    ] = 1.0,
    shock_effect: Annotated[
        float, typer.Option(help="Strength of unexplained shocks; 1: as measured.", rich_help_panel=_RIDERS)
    ] = 0.0,
    walk_probability: Annotated[
        float,
        typer.Option(
            help="Probability that a rider who finds no bike walks to a station next door.", rich_help_panel=_RIDERS
        ),
    ] = 0.0,
    walk_reach: Annotated[
        float,
        typer.Option(
            help="Distance in metres at which that probability has fallen to a third.", rich_help_panel=_RIDERS
        ),
    ] = 220.0,
    closures: Annotated[
        int,
        typer.Option(
            help="Number of system closures, when all bikes become disabled at once.", rich_help_panel=_TROUBLE
        ),
    ] = 0,
    dead_stations: Annotated[
        int, typer.Option(help="Number of stations that stop reporting or report zero.", rich_help_panel=_TROUBLE)
    ] = 0,
    feed_gaps: Annotated[
        int, typer.Option(help="Number of gaps in the whole feed while riding continues.", rich_help_panel=_TROUBLE)
    ] = 0,
    reopening_hours: Annotated[
        float, typer.Option(help="Mean hours until a station is back after a closure.", rich_help_panel=_TROUBLE)
    ] = 0.0,
    late_stations: Annotated[int, typer.Option(help="Stations that open late.", rich_help_panel=_TROUBLE)] = 0,
    leaving_stations: Annotated[int, typer.Option(help="Stations that leave for good.", rich_help_panel=_TROUBLE)] = 0,
    quiet_closures: Annotated[
        int, typer.Option(help="Stations closed for weeks that look empty.", rich_help_panel=_TROUBLE)
    ] = 0,
    stuck_terminals: Annotated[
        int, typer.Option(help="Stations whose feed shows no bike for ever.", rich_help_panel=_TROUBLE)
    ] = 0,
    valet_stations: Annotated[
        int, typer.Option(help="Stations with bikes that the feed does not show.", rich_help_panel=_TROUBLE)
    ] = 0,
    moving_stations: Annotated[int, typer.Option(help="Stations that move.", rich_help_panel=_TROUBLE)] = 0,
    polls: Annotated[
        str,
        typer.Option(
            help="What the collector writes. log: every change. 5: every station every 5 minutes. "
            "log:5: changes, looked for every 5 minutes. log,60: the first half a log, the second hourly.",
            rich_help_panel=_TROUBLE,
        ),
    ] = "log",
    evening_polls: Annotated[
        float,
        typer.Option(help="Minutes between polls from 18:00 to midnight; 0: as all day.", rich_help_panel=_TROUBLE),
    ] = 0.0,
) -> None:
    """Simulate a city whose true demand is known.

    Writes the files of an operator: trips.parquet (local wall-clock times), status.parquet, stations.csv, weather.csv.
    Also writes the truth: truth.parquet (every wanted trip and its fate), true_rate.parquet (expected and actual
    numbers of every station and hour), states.parquet (rentable and unusable bikes), moves.parquet, events.csv,
    settings.json.

    Example of a city with about 30 % of demand lost: unmet simulate --out hard/ --fleet-share 0.2 --rebalancing 0
    """
    options = {"seed": seed, **_given(context)}
    # Imported here to keep `unmet --help` fast.
    from unmet.simulate import check_folder

    check_folder(out, overwrite=overwrite)
    city = _simulate(options)
    folder = city.save(out, overwrite=overwrite)
    console = Console()
    console.print(_summary(city))
    console.print(Text(f"Written to {folder}"))


def _given(context: typer.Context) -> dict[str, Any]:
    """The options of the city on the command line: what is not given is left to the defaults or to --realistic."""
    values = {name: value for name, value in context.params.items() if name not in ("out", "overwrite")}
    sources = {name: context.get_parameter_source(name) for name in values}
    return {name: value for name, value in values.items() if getattr(sources[name], "name", "") != "DEFAULT"}


def _simulate(options: dict[str, Any]) -> City:
    from unmet.simulate import simulate_city

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Simulating days", total=None)
        return simulate_city(**options, progress=lambda done, total: bar.update(task, completed=done, total=total))


def _summary(city: City) -> Table:
    summary = city.summary()
    settings = city.settings
    wanted = summary["wanted"]
    table = Table(
        title=f"{settings.stations} stations, {city.fleet:,} bikes, {settings.days} days, seed {settings.seed}",
        title_justify="left",
    )
    table.add_column("")
    table.add_column("trips", justify="right")
    table.add_column("share", justify="right")
    rows = {
        "wanted": "wanted",
        "served where wanted": "served",
        "walked to a neighbour": "walked",
        "lost (station empty)": "lost",
        "turned away (station closed)": "closed",
    }
    for label, key in rows.items():
        share = summary[key] / wanted if wanted else 0.0
        table.add_row(label, f"{summary[key]:,}", f"{share:.1%}", style="bold" if key == "lost" else None)
    table.add_section()
    table.add_row("station-time out of stock", "", f"{summary['out_of_stock']:.1%}")
    return table
