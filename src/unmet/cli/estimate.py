"""`unmet estimate`: from a panel to the demand of a whole city."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from unmet.cli import _options as flags
from unmet.cli._progress import stoppable, zone_progress
from unmet.cli._tables import end_if_zones_failed, print_estimate
from unmet.mobility.models.registry import DEFAULT_MODEL

__all__ = ["estimate_command"]


def estimate_command(
    panel: flags.PanelFileArgument,
    out: Annotated[Path, typer.Option(help="Folder of the run; what is there stays until the new is complete.")],
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
    """Estimate what demand was in every zone and bin, and how many trips were lost.

    Writes demand.parquet (one row per zone and bin), zones.parquet, totals.parquet (system, zones, hours of the week,
    with intervals of their own) and run.json.

    Stop it at any time: the same command goes on where it was, and the result is the same to the last bit.

    Exit code 0: all zones estimated; 1: some could not be, the reasons are in zones.parquet; 2: nothing was done.

    For example: unmet estimate panel.parquet --out run/ --weather weather.csv --holidays US --jobs 4
    """
    from unmet.execution import find_executor
    from unmet.mobility.demand import LatentDemand

    told = Console(stderr=True, quiet=quiet)
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
    with stoppable(told), zone_progress(told, "Estimating zones") as progress:
        result = estimator.fit(
            panel,
            out,
            jobs=jobs,
            executor=find_executor(engine),
            progress=progress,
            tell=lambda note: told.print(Text(note)),
        )
    if as_json:
        typer.echo(json.dumps(result.info, indent=2, default=str))
    elif not quiet:
        console, info = Console(), result.info
        print_estimate(console, result)
        console.print(
            Text(
                f"{info['wall_seconds'] / 60:.1f} minutes, {info['costs']['cpu_seconds']:.0f} s of processor time, "
                f"{info['jobs']} processes. Written to {result.out}"
            )
        )
    end_if_zones_failed(result)
