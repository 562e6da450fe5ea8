"""`unmet run` and `unmet init`: from an operator's files to a report with one command."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from unmet.cli import _options as flags
from unmet.cli._console import Console
from unmet.cli._ending import print_error
from unmet.cli._progress import stage_progress, stoppable
from unmet.cli._tables import end_if_zones_failed, forecast_table, print_estimate, zone_labels
from unmet.cli.panel import panel_facts
from unmet.mobility.models.registry import DEFAULT_DRAWS, DEFAULT_MODEL

if TYPE_CHECKING:
    from unmet.pipeline import RunOutcome

__all__ = ["init_command", "print_run", "run_command"]


def run_command(
    ctx: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            help="Settings file; default: unmet.toml in the current folder, if present.",
            rich_help_panel=flags.RUN_PANEL,
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
    date_order: flags.DateOrder = None,
    vehicle_type: flags.VehicleType = None,
    max_rejected: flags.MaxRejected = 0.2,
    force: flags.Force = False,
    zones: flags.Zones = "stations",
    every: flags.Every = "1h",
    start: flags.Start = None,
    end: flags.End = None,
    censored_rule: flags.CensoredRule = "any",
    rebalancing: flags.Rebalancing = 8,
    hours: flags.Hours = None,
    supply: flags.Supply = "usable",
    areas: flags.Areas = None,
    keep: flags.Keep = None,
    memory: flags.Memory = "2GB",
    model: flags.Model = DEFAULT_MODEL,
    side: flags.Side = "pickups",
    horizon: flags.Horizon = None,
    seed: flags.Seed = 0,
    draws: flags.Draws = DEFAULT_DRAWS,
    walk: flags.Walk = "learn",
    jobs: flags.Jobs = None,
    engine: flags.Engine = "processes",
    title: flags.Title = None,
    truth: flags.Truth = None,
    compare: flags.Compare = None,
    basemap: flags.Basemap = None,
    watch: Annotated[
        str | None,
        typer.Option(
            metavar="<time>",
            help="Run again every so often, until interrupted, to keep the report current: 1d, 6h. A round in which "
            "nothing changed does nothing.",
            rich_help_panel=flags.RUN_PANEL,
        ),
    ] = None,
    quiet: flags.Quiet = False,
    as_json: flags.AsJson = False,
) -> None:
    r"""Build the panel, estimate demand and write the report, from an operator's files.

    Give the files as flags, or in unmet.toml (unmet init writes an example).

    Writes panel.parquet, estimate/ (demand.parquet, zones.parquet, totals.parquet, system.parquet, run.json) and
    report.html, a page that opens from disk. Earlier results are replaced when all new ones are complete. A stage is
    reused if nothing it depends on has changed. You can interrupt the command at any time; the same command continues.

    Exit code 0: success; 1: some zones could not be estimated, and the report lists the reasons; 2: invalid input,
    nothing was changed.

    Example:

      unmet run --trips 'trips/*.csv.gz' --status status.parquet \
          --stations stations.csv --timezone America/New_York
    """
    from unmet.pipeline import make_settings, run
    from unmet.pipeline.config import CONFIG_NAME
    from unmet.pipeline.watching import keep_current

    stderr = Console(stderr=True, quiet=quiet)
    if config is None and Path(CONFIG_NAME).is_file():
        config = Path(CONFIG_NAME)
    if config is not None:
        stderr.print(Text(f"Settings from {config}"), highlight=False)
    settings = make_settings(config, **_given(ctx))

    def run_once() -> RunOutcome:
        with stage_progress(stderr) as progress:
            outcome = run(settings, progress=progress)
        if as_json:
            typer.echo(json.dumps(outcome.to_dict(), indent=2, default=str))
        elif not quiet:
            print_run(Console(), outcome)
        return outcome

    with stoppable(stderr):
        if watch is None:
            end_if_zones_failed(run_once().estimate)
        else:
            keep_current(run_once, flags.parse_duration(watch, "--watch", least=1.0), partial(_tell, as_json))


def _tell(as_json: bool, error: Exception) -> None:
    """Report the error of a round; the next round tries again."""
    print_error(
        2, error, f"{error} The earlier results are still in place; the next round tries again.", as_json=as_json
    )


def _given(ctx: typer.Context) -> dict[str, Any]:
    """Return the settings given on the command line, which override those of the file."""
    given = {}
    for name, value in ctx.params.items():
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            given[name.rstrip("_")] = value
    for name in ("config", "watch", "quiet", "as_json"):
        given.pop(name, None)
    for name in ("trips", "status", "stations"):
        if name in given:
            given[name] = tuple(given[name])
    for name in ("weather", "truth", "basemap"):
        if name in given:
            given[name] = str(given[name])
    if "weather_columns" in given:
        given["weather_columns"] = flags.parse_columns(given["weather_columns"])
    if "map" in given:
        given["map"] = flags.parse_map(given["map"])
    return given


def print_run(console: Console, outcome: RunOutcome) -> None:
    """Print the results of a run and the paths of its files."""
    from unmet.report.trust import summarise_checks

    console.print(panel_facts(outcome.panel))
    print_estimate(console, outcome.estimate)
    checks = json.loads(outcome.report.with_name("quality.json").read_text(encoding="utf-8"))
    console.print(Text(summarise_checks(checks)))
    print_story(console, outcome)
    # A path is copied from here, so it must not be wrapped.
    console.print(Text(f"Tables: {outcome.estimate.out}"), soft_wrap=True)
    console.print(Text.assemble("Report: ", (str(outcome.report), "bold")), soft_wrap=True)


def print_story(console: Console, outcome: RunOutcome) -> None:
    """Print whether it is getting better, and the forecast if there is one."""
    from unmet.report.forecast import forecast_by_bin, forecast_rows, forecast_sentence
    from unmet.report.source import open_run
    from unmet.report.story import compare, comparisons, read_weeks

    with open_run(outcome.settings.out, trust=True) as source:  # every file was hashed just now
        weeks = read_weeks(source)
        pairs = comparisons(weeks, outcome.settings.compare)
        rows = forecast_rows(source)
        by_bin = forecast_by_bin(source, rows)
    if pairs and (None, None, None) in weeks.draws:
        sentence = compare(weeks.draws[None, None, None], pairs[0])["sentence"]
        console.print(Text(f"Is it getting better? {sentence}"))
    if len(rows):
        console.print(Text(f"Forecast: {forecast_sentence(by_bin)}"))
        console.print(forecast_table(rows, zone_labels(outcome.estimate.zones)))


def init_command(
    file: Annotated[
        Path, typer.Argument(help="File to write, or a folder for unmet.toml; an existing file is never overwritten.")
    ] = Path("unmet.toml"),
) -> None:
    """Write an example of unmet.toml, the settings file of `unmet run`, with every setting explained.

    Fill in the paths of your files, then run: unmet run
    """
    from unmet.pipeline import write_example

    written = write_example(file)
    typer.echo(
        f"Wrote {written}. Fill in the paths of your files, then run: unmet run"
        + ("" if written == Path("unmet.toml") else f" --config {written}")
    )
