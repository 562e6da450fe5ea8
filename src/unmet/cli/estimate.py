"""`unmet estimate`: estimate the demand of every zone of a panel."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from unmet._exceptions import InputError
from unmet.cli import _options as flags
from unmet.cli._console import Console
from unmet.cli._progress import stoppable, zone_progress
from unmet.cli._tables import end_if_zones_failed, print_estimate
from unmet.mobility.models.registry import DEFAULT_DRAWS, DEFAULT_MODEL

if TYPE_CHECKING:
    from unmet.mobility.runs.run import RunResult

__all__ = ["estimate_command"]

_SIDES = ("pickups", "returns", "both")


def estimate_command(
    panel: flags.PanelFileArgument,
    out: Annotated[
        Path, typer.Option(help="Folder for the results; earlier results are replaced when the new ones are complete.")
    ],
    model: flags.Model = DEFAULT_MODEL,
    side: Annotated[
        str,
        typer.Option(
            help="What to estimate: pickups, returns (in the folder returns of the results), or both. Plans of "
            "`unmet targets` use the returns."
        ),
    ] = "pickups",
    horizon: flags.Horizon = None,
    seed: flags.Seed = 0,
    draws: flags.Draws = DEFAULT_DRAWS,
    walk: flags.Walk = "learn",
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
    and hours of the week, with intervals), system.parquet (rate of all zones per bin) and run.json. The tables of
    --side returns have the same columns: observed are returns, demand the wanted ones, and exposure time with a free
    dock.

    You can interrupt it at any time. The same command continues, with results identical to the last bit.

    Exit code 0: all zones estimated; 1: some zones failed, with reasons in zones.parquet; 2: invalid input, nothing
    was written.

    Example: unmet estimate panel.parquet --out run/ --weather weather.csv --holidays US --jobs 4
    """
    from unmet.engines import find_executor
    from unmet.mobility.demand import LatentDemand
    from unmet.mobility.panel.file import open_panel
    from unmet.mobility.panel.returns import check_docks

    if side not in _SIDES:
        raise InputError(f"side: expected one of {', '.join(_SIDES)}; got {side!r}.")
    stderr = Console(stderr=True, quiet=quiet)
    estimator = LatentDemand(
        model,
        draws=draws,
        seed=seed,
        walk=walk,
        weather=weather,
        weather_columns=flags.parse_columns(weather_columns),
        timezone=timezone,
        holidays=holidays,
        horizon=horizon,
    )
    common: dict[str, Any] = {"jobs": jobs, "executor": find_executor(engine)}
    results = []
    if side == "both":
        with open_panel(panel) as opened:
            check_docks(opened)  # before hours of work on the pickups
    if side != "returns":
        with stoppable(stderr), zone_progress(stderr, "Estimating zones") as progress:
            tell = partial(_tell, stderr)
            results.append(estimator.fit(panel, out, **common, progress=progress, tell=tell))
    if side != "pickups":
        with stoppable(stderr), zone_progress(stderr, "Estimating returns") as progress:
            results.append(estimator.fit_returns(panel, out, **common, progress=progress))
    for result in results:
        _print(result, quiet, as_json)
    for result in results:
        end_if_zones_failed(result)


def _tell(console: Console, note: str) -> None:
    console.print(Text(note))


def _print(result: RunResult, quiet: bool, as_json: bool) -> None:
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
