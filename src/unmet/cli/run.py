"""`unmet run` and `unmet init`: from files to a report with one command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from unmet.cli import _options as flags
from unmet.cli._progress import stage_progress, stoppable
from unmet.cli._tables import end_if_zones_failed, print_estimate
from unmet.cli.panel import panel_facts
from unmet.mobility.models.registry import DEFAULT_MODEL

if TYPE_CHECKING:
    from unmet.pipeline import RunOutcome

__all__ = ["init_command", "print_run", "run_command"]


def run_command(
    ctx: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            help="Settings; unmet.toml in the current folder, where there is one.", rich_help_panel=flags.RUN_PANEL
        ),
    ] = None,
    out: Annotated[Path, flags.option("out")] = Path("out"),
    trips: flags.Trips = None,
    status: flags.Status = None,
    stations: flags.Stations = None,
    timezone: Annotated[str | None, flags.option("timezone")] = None,
    weather: flags.Weather = None,
    weather_columns: flags.WeatherColumns = None,
    holidays: flags.Holidays = None,
    map_: flags.Map = None,
    max_rejected: flags.MaxRejected = 0.2,
    force: flags.Force = False,
    zones: flags.Zones = "stations",
    every: flags.Every = "1h",
    start: flags.Start = None,
    end: flags.End = None,
    censored_rule: flags.CensoredRule = "any",
    rebalancing: flags.Rebalancing = 8,
    hours: flags.Hours = None,
    memory: flags.Memory = "2GB",
    model: flags.Model = DEFAULT_MODEL,
    horizon: flags.Horizon = None,
    seed: flags.Seed = 0,
    draws: flags.Draws = 400,
    jobs: flags.Jobs = None,
    engine: flags.Engine = "processes",
    title: flags.Title = None,
    truth: flags.Truth = None,
    quiet: flags.Quiet = False,
    as_json: flags.AsJson = False,
) -> None:
    r"""Go from an operator's files to a report: panel, estimate and page in one go.

    Give the files as flags, or write them into unmet.toml once (unmet init makes an example to fill in).

    Writes panel.parquet, estimate/ (demand.parquet, zones.parquet, totals.parquet, run.json) and report.html, a page
    that opens from disk. What is there stays until all of the new is complete; a stage is reused while nothing
    it depends on has changed. Stop it at any time: the same command goes on where it was.

    Exit code 0: done; 1: some zones could not be estimated, the report says which and why; 2: bad input, nothing was
    changed.

    For example:

      unmet run --trips 'trips/*.csv.gz' --status status.parquet \
          --stations stations.csv --timezone America/New_York
    """
    values = {name.rstrip("_"): value for name, value in locals().items()}
    from unmet.pipeline import make_settings, run
    from unmet.pipeline.config import CONFIG_NAME

    told = Console(stderr=True, quiet=quiet)
    if config is None and Path(CONFIG_NAME).is_file():
        config = Path(CONFIG_NAME)
    if config is not None:
        told.print(Text(f"Settings from {config}"), highlight=False)
    settings = make_settings(config, **_given(ctx, values))
    with stoppable(told), stage_progress(told) as progress:
        outcome = run(settings, progress=progress)
    if as_json:
        typer.echo(json.dumps(outcome.to_dict(), indent=2, default=str))
    elif not quiet:
        print_run(Console(), outcome)
    end_if_zones_failed(outcome.estimate)


def _given(ctx: typer.Context, values: dict[str, Any]) -> dict[str, Any]:
    """The settings that stand on the command line, which win over those of the file."""
    given = {}
    for name in ctx.params:
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            given[name.rstrip("_")] = values[name.rstrip("_")]
    for name in ("config", "quiet", "as_json"):
        given.pop(name, None)
    for name in ("trips", "status", "stations"):
        if name in given:
            given[name] = tuple(given[name])
    for name in ("weather", "truth"):
        if name in given:
            given[name] = str(given[name])
    if "weather_columns" in given:
        given["weather_columns"] = flags.parse_columns(given["weather_columns"])
    if "map" in given:
        given["map"] = flags.parse_map(given["map"])
    return given


def print_run(console: Console, outcome: RunOutcome) -> None:
    """What was found, and where it is."""
    console.print(panel_facts(outcome.panel))
    print_estimate(console, outcome.estimate)
    # Never broken over two lines: a path is to be copied.
    console.print(Text(f"Tables: {outcome.estimate.out}"), soft_wrap=True)
    console.print(Text.assemble("Report: ", (str(outcome.report), "bold")), soft_wrap=True)


def init_command(
    file: Annotated[Path, typer.Argument(help="File to write, or a folder for unmet.toml; never overwritten.")] = Path(
        "unmet.toml"
    ),
) -> None:
    """Write an example of unmet.toml, the settings of `unmet run`, with every setting explained.

    Fill in where your files are, and then: unmet run
    """
    from unmet.pipeline import write_example

    written = write_example(file)
    typer.echo(
        f"Wrote {written}. Fill in where your files are, and then: unmet run"
        + ("" if written == Path("unmet.toml") else f" --config {written}")
    )
