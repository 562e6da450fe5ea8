"""`unmet estimate`: estimate the demand of every zone of a panel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from unmet.cli import _options as flags
from unmet.cli._console import Console
from unmet.cli._progress import stoppable, zone_progress
from unmet.cli._tables import end_if_zones_failed, print_estimate
from unmet.mobility.models.registry import DEFAULT_MODEL

__all__ = ["estimate_command"]


def estimate_command(
    panel: flags.PanelFileArgument,
    out: Annotated[
        Path, typer.Option(help="Folder for the results; earlier results are replaced when the new ones are complete.")
    ],
    model: flags.Model = DEFAULT_MODEL,
    horizon: flags.Horizon = None,
    seed: flags.Seed = 0,
    draws: flags.Draws = 400,
    weather: flags.Weather = None,
    weather_columns: flags.WeatherColumns = None,
    timezone: flags.WeatherTimezone = None,
    holidays: flags.Holidays = None,
    jobs: flags.Jobs = None,
    engine: flags.Engine = "processes",
    quiet: flags.Quiet = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print run.json instead of tables.", rich_help_panel=flags.RUN_PANEL)
    ] = False,
) -> None:
    """Estimate demand and lost trips of every zone and bin.

    Writes demand.parquet (one row per zone and bin), zones.parquet (one row per zone), totals.parquet (system, zones
    and hours of the week, with intervals), system.parquet (rate of all zones per bin) and run.json.

    You can interrupt it at any time. The same command continues, with results identical to the last bit.

    Exit code 0: all zones estimated; 1: some zones failed, with reasons in zones.parquet; 2: invalid input, nothing
    was written.

    Example: unmet estimate panel.parquet --out run/ --weather weather.csv --holidays US --jobs 4
    """
    from unmet.execution import find_executor
    from unmet.mobility.demand import LatentDemand

    stderr = Console(stderr=True, quiet=quiet)
    estimator = LatentDemand(
        model,
        draws=draws,
        seed=seed,
        weather=weather,
        weather_columns=flags.parse_columns(weather_columns),
        timezone=timezone,
        holidays=holidays,
        horizon=horizon,
    )
    with stoppable(stderr), zone_progress(stderr, "Estimating zones") as progress:
        result = estimator.fit(
            panel,
            out,
            jobs=jobs,
            executor=find_executor(engine),
            progress=progress,
            tell=lambda note: stderr.print(Text(note)),
        )
    if as_json:
        typer.echo(json.dumps(result.info, indent=2, default=str))
    elif not quiet:
        console, info = Console(), result.info
        print_estimate(console, result)
        console.print(
            Text(
                f"Took {info['wall_seconds'] / 60:.1f} minutes with {info['jobs']} processes; processor time "
                f"{info['costs']['cpu_seconds']:.0f} s. Written to {result.out}"
            )
        )
    end_if_zones_failed(result)
