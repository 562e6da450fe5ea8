"""`unmet estimate`: from a panel to the demand of a whole city."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from unmet.cli._progress import zone_progress

if TYPE_CHECKING:
    import pandas as pd

    from unmet.mobility.runs import RunResult

__all__ = ["estimate_command"]

_WORST = 5
_FAILED = 10
_FEATURES = "What may explain demand"
_MODEL = "Model"
_RUN = "Run"


def estimate_command(
    panel: Annotated[Path, typer.Argument(help="The panel, as `unmet panel` writes it.")],
    out: Annotated[Path, typer.Option(help="Folder of the run; what is there stays until the new is complete.")],
    model: Annotated[
        str,
        typer.Option(
            help="exposure, cgp, ncgp, ncgp-a, tobit, observed, weekly-mean or drop-censored.",
            rich_help_panel=_MODEL,
        ),
    ] = "exposure",
    horizon: Annotated[
        str | None,
        typer.Option(help="Go on beyond the panel's end by so much: 7d, 12h.", rich_help_panel=_MODEL),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same numbers.", rich_help_panel=_MODEL)] = 0,
    draws: Annotated[
        int, typer.Option(min=20, help="Joint draws behind the intervals of totals.", rich_help_panel=_MODEL)
    ] = 400,
    weather: Annotated[
        Path | None,
        typer.Option(help="Weather: a CSV or Parquet with a time and numbers.", rich_help_panel=_FEATURES),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option(
            help="Of the weather's times, where they do not say; else the panel's.", rich_help_panel=_FEATURES
        ),
    ] = None,
    holidays: Annotated[
        str | None,
        typer.Option(help="Public holidays of a country or a part of it: US, US:NY.", rich_help_panel=_FEATURES),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Worker processes; as many as processors.", rich_help_panel=_RUN),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.", rich_help_panel=_RUN)] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print run.json instead of tables.", rich_help_panel=_RUN)
    ] = False,
) -> None:
    """Estimate what demand was in every zone and bin, and how many trips were lost.

    Writes demand.parquet (one row per zone and bin), zones.parquet, totals.parquet (system, zones, hours of the week,
    with intervals of their own) and run.json.

    Stop it at any time: the same command goes on where it was, and the result is the same to the last bit.

    Exit code 0: all zones estimated; 1: some could not be, the reasons are in zones.parquet; 2: nothing was done.

    For example: unmet estimate panel.parquet --out run/ --weather weather.csv --holidays US --jobs 4
    """
    from unmet.mobility.binfeatures import bin_features
    from unmet.mobility.demand import DemandModel
    from unmet.mobility.horizon import horizon_bins, usual_minutes
    from unmet.mobility.panelfile import open_panel
    from unmet.mobility.runs import run_estimates

    settings = DemandModel(name=model, draws=draws, seed=seed)
    told = Console(stderr=True, quiet=quiet)
    with open_panel(panel) as opened:
        steps = horizon_bins(horizon, usual_minutes(opened.bins()))
        features = bin_features(opened, weather=weather, timezone=timezone, holidays=holidays, horizon=steps)
    for gap in features.gaps.itertuples():
        told.print(Text(f"No {gap.column} for {gap.bins} bins from {gap.first:%Y-%m-%d %H:%M} UTC on."))
    provenance = {
        "weather": None if weather is None else str(weather),
        "holidays": holidays,
        "weather_gaps": features.gaps.to_dict("records"),
        "weather_quality": features.quality.to_dict("records"),
    }
    try:
        with zone_progress(told, "Estimating zones") as progress:
            result = run_estimates(
                panel,
                settings,
                out,
                features=features.frame,
                jobs=jobs,
                horizon=steps,
                progress=progress,
                provenance=provenance,
            )
    except KeyboardInterrupt:
        told.print("Stopped. What is finished is kept: the same command goes on from there.")
        raise typer.Exit(130) from None
    if as_json:
        typer.echo(json.dumps(result.info, indent=2, default=str))
    elif not quiet:
        _print_summary(Console(), result)
    if result.failures:
        raise typer.Exit(1)


def _print_summary(console: Console, result: RunResult) -> None:
    info = result.info
    console.print(_totals_table(result))
    if len(worst := _worst(result.zones)):
        console.print(_zones_table(worst))
    if result.failures:
        console.print(_failures_table(result))
    costs = info["costs"]
    console.print(
        Text(
            f"{info['wall_seconds'] / 60:.1f} minutes, {costs['cpu_seconds']:.0f} s of processor time, "
            f"{info['jobs']} processes. Written to {result.out}"
        )
    )


def _totals_table(result: RunResult) -> Table:
    counts, totals = result.info["zones"], result.info["totals"]
    title = f"{counts['estimated']} of {counts['all']} zones, model {result.info['inputs']['model'].get('name', '')}"
    table = Table(title=Text(title), title_justify="left")
    for name in ("trips", "mean", "90 % interval", "of demand"):
        table.add_column(name, justify="left" if name == "trips" else "right")
    demand = totals["demand"]["mean"]
    for name in ("observed", "lost", "demand"):
        row = totals[name]
        interval = "" if name == "observed" else _interval(row["q05"], row["q95"])
        share = f"{row['mean'] / demand:.1%}" if demand > 0 else ""
        table.add_row(name, _count(row["mean"]), interval, share, style="bold" if name == "lost" else None)
    return table


def _worst(zones: pd.DataFrame) -> pd.DataFrame:
    fitted = zones[(zones["status"] == "ok") & (zones["lost_mean"] > 0)]
    return fitted.nlargest(_WORST, "lost_mean")


def _zones_table(worst: pd.DataFrame) -> Table:
    table = Table(title="Most trips lost", title_justify="left")
    for name in ("zone", "observed", "lost", "90 % interval", "of demand", "hours out of stock"):
        table.add_column(name, justify="left" if name == "zone" else "right")
    for _, row in worst.iterrows():
        hours = f"{row['stockout_minutes'] / 60:,.0f}" if "stockout_minutes" in worst.columns else ""
        table.add_row(
            Text(str(row["zone"])),  # a name from a file is text, never markup
            _count(row["observed"]),
            _count(row["lost_mean"]),
            _interval(row["lost_q05"], row["lost_q95"]),
            f"{row['lost_mean'] / row['demand_mean']:.1%}",
            hours,
        )
    return table


def _failures_table(result: RunResult) -> Table:
    failed = result.zones[result.zones["status"] == "failed"]
    table = Table(
        title=Text(f"{len(failed)} zones could not be estimated and are not in the totals", style="bold red"),
        title_justify="left",
    )
    table.add_column("zone")
    table.add_column("observed", justify="right")
    table.add_column("reason", overflow="fold")
    for _, row in failed.head(_FAILED).iterrows():
        table.add_row(Text(str(row["zone"])), _count(row["observed"]), Text(str(row["reason"])))
    if len(failed) > _FAILED:
        table.add_row("…", "", Text(f"and {len(failed) - _FAILED} more in zones.parquet"))
    return table


def _count(value: float) -> str:
    return f"{value:,.0f}" if value == value else ""  # not a number: nothing was seen


def _interval(low: float, high: float) -> str:
    return f"{_count(low)} – {_count(high)}"
