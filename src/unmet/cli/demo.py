"""`unmet demo`: run everything on a simulated city and compare with its true demand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from unmet.cli import _options as flags
from unmet.cli._console import Console
from unmet.cli._progress import stage_progress, stoppable
from unmet.cli._tables import add_zone_column, count, end_if_zones_failed, interval, zone_labels

if TYPE_CHECKING:
    from unmet.pipeline.demo import Demo

__all__ = ["demo_command"]

_ZONES = 6


def demo_command(
    out: Annotated[Path, typer.Option(help="Folder for the city and the results.")] = Path("unmet-demo"),
    stations: Annotated[int, typer.Option(help="Number of stations.")] = 16,
    days: Annotated[int, typer.Option(help="Number of days.")] = 77,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the city.")] = 1,
    jobs: flags.Jobs = None,
    quiet: flags.Quiet = False,
    as_json: flags.AsJson = False,
) -> None:
    """Simulate a city, estimate its demand from its records, and compare with the truth. Takes about a minute.

    Writes the city's records as an operator would have them (city/), and the results (run/): a panel, estimates and
    report.html.
    """
    from unmet.pipeline.demo import run_demo

    stderr = Console(stderr=True, quiet=quiet)
    stderr.print(f"Simulating {stations} stations for {days} days and estimating demand from their records:")
    with stoppable(stderr), stage_progress(stderr) as progress:
        demo = run_demo(out, stations=stations, days=days, seed=seed, jobs=jobs, progress=progress)
    if as_json:
        typer.echo(json.dumps(demo.to_dict(), indent=2, default=str))
    elif not quiet:
        _print(Console(), demo, out)
    end_if_zones_failed(demo.outcome.estimate)


def _print(console: Console, demo: Demo, out: Path) -> None:
    console.print(_system_table(demo))
    console.print(_zones_table(demo))
    inside = demo.zones["lost_true"].between(demo.zones["lost_q05"], demo.zones["lost_q95"])
    console.print(
        f"In {inside.sum()} of {len(inside)} zones the true lost trips are within the 90 % interval.", highlight=False
    )
    console.print(Text(f"Records: {out / 'city'}   Tables: {demo.outcome.estimate.out}"), soft_wrap=True)
    console.print(Text.assemble("Report: ", (str(demo.outcome.report), "bold")), soft_wrap=True)


def _system_table(demo: Demo) -> Table:
    city = demo.system
    table = Table(title="Whole city, trips", title_justify="left")
    for name in ("", "observed", "estimated", "90 % interval", "true", "error"):
        table.add_column(name, justify="right" if name else "left")
    for name in ("demand", "lost"):
        mean, true = city[f"{name}_mean"], city[f"{name}_true"]
        table.add_row(
            name,
            count(city["observed"]) if name == "demand" else "",
            count(mean),
            interval(city[f"{name}_q05"], city[f"{name}_q95"]),
            count(true),
            f"{mean / true - 1:+.1%}" if true else "",
            style="bold" if name == "lost" else None,
        )
    return table


def _zones_table(demo: Demo) -> Table:
    table = Table(title="Zones with most lost trips", title_justify="left")
    add_zone_column(table)
    for name in ("observed", "demand", "true", "lost", "90 % interval", "true"):
        table.add_column(name, justify="right")
    labels = zone_labels(demo.zones)
    for _, row in demo.zones.nlargest(_ZONES, "lost_mean").iterrows():
        table.add_row(
            Text(labels[row["zone"]]),
            count(row["observed"]),
            count(row["demand_mean"]),
            count(row["demand_true"]),
            count(row["lost_mean"]),
            interval(row["lost_q05"], row["lost_q95"]),
            count(row["lost_true"]),
        )
    return table
