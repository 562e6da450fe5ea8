"""`unmet backtest`: which model is right on this panel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from unmet.cli import _options as flags
from unmet.cli._ending import end_with_failures
from unmet.cli._progress import zone_progress

if TYPE_CHECKING:
    from unmet.mobility.backtest.compare import Backtest

__all__ = ["backtest_command"]

_FAILED = 5
_TRIALS = "Trials"


def backtest_command(
    panel: flags.PanelFileArgument,
    out: Annotated[Path, typer.Option(help="Folder for the scores; they appear whole or not at all.")],
    models: Annotated[
        str,
        typer.Option(
            help="Of exposure, cgp, ncgp, ncgp-a, tobit, observed, weekly-mean, drop-censored; commas between."
        ),
    ] = "exposure,weekly-mean,drop-censored,observed",
    tasks: Annotated[
        str, typer.Option(help="held-out, replay, or both with a comma.", rich_help_panel=_TRIALS)
    ] = "held-out,replay",
    folds: Annotated[
        int, typer.Option(min=1, help="Trials of each kind, with weeks of their own.", rich_help_panel=_TRIALS)
    ] = 1,
    share: Annotated[
        float, typer.Option(help="Share of weeks hidden, of days cut, in each trial.", rich_help_panel=_TRIALS)
    ] = 0.2,
    seed: Annotated[int, typer.Option(min=0, help="The same seed, the same scores.", rich_help_panel=_TRIALS)] = 0,
    draws: Annotated[int, typer.Option(min=20, help="Draws asked of each model.", rich_help_panel=_TRIALS)] = 200,
    weather: flags.Weather = None,
    weather_columns: flags.WeatherColumns = None,
    timezone: flags.WeatherTimezone = None,
    holidays: flags.Holidays = None,
    jobs: flags.Jobs = None,
    quiet: flags.Quiet = False,
) -> None:
    """Compare models where the truth is known.

    Held-out: whole weeks are hidden from the models, who say what demand was. Replay: on some days supply is cut; each
    starts with few vehicles and is out of stock once they are gone, and models should find what was not served.

    Bias comes first: a good model is near 0 on both, also where little exposure was left.

    Writes scores.parquet (every zone), summary.csv (zones together, with standard errors), fits.parquet (every fit,
    and why one failed) and backtest.md.

    Exit code 0: all fits done; 1: some could not be, the reasons are in fits.parquet; 2: nothing was done.

    For example: unmet backtest panel.parquet --out backtest/ --models exposure,cgp,weekly-mean --weather weather.csv
    """
    # Slow to import, and `unmet --help` should not be.
    from unmet.mobility.backtest.compare import backtest
    from unmet.mobility.backtest.output import writing_backtest
    from unmet.mobility.features.bins import bin_features
    from unmet.mobility.panel.file import open_panel

    told = Console(stderr=True, quiet=quiet)
    with open_panel(panel) as opened:
        features = bin_features(
            opened,
            weather=weather,
            weather_columns=flags.parse_columns(weather_columns),
            timezone=timezone,
            holidays=holidays,
        )
    for gap in features.gaps.itertuples():
        told.print(Text(f"No {gap.column} for {gap.bins} bins from {gap.first:%Y-%m-%d %H:%M} UTC on."))
    with writing_backtest(out) as write, zone_progress(told, "Backtesting zones") as progress:
        result = backtest(
            panel,
            _names(models),
            features=features.frame,
            tasks=_names(tasks),
            folds=folds,
            share=share,
            seed=seed,
            draws=draws,
            jobs=jobs,
            progress=progress,
        )
        write(result)
    if not quiet:
        _print_summary(Console(), result, out)
    if len(result.failed):
        end_with_failures(
            f"{len(result.failed)} of {len(result.fits)} fits could not be done; the others are done",
            str(out / "fits.parquet"),
        )


def _names(given: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))


def _print_summary(console: Console, result: Backtest, out: Path) -> None:
    from unmet.mobility.backtest.output import readable_tables

    for shown in readable_tables(result.summary):
        table = Table(title=Text(shown.title), title_justify="left", caption=Text(shown.note), caption_justify="left")
        for name in shown.columns:
            table.add_column(name, justify="left" if name == "model" else "right")
        for row in shown.rows:
            table.add_row(*map(Text, row))
        console.print(table)
    failed = result.failed
    if len(failed):
        title = Text(f"{len(failed)} of {len(result.fits)} fits could not be done", style="bold red")
        table = Table(title=title, title_justify="left")
        for name in ("zone", "model", "task", "reason"):
            table.add_column(name, overflow="fold")
        for _, fit in failed.head(_FAILED).iterrows():
            # A name from a file is text, never markup.
            table.add_row(*(Text(str(fit[name])) for name in ("zone", "model", "task", "reason")))
        if len(failed) > _FAILED:
            table.add_row("…", "", "", f"and {len(failed) - _FAILED} more in fits.parquet")
        console.print(table)
    console.print(Text(f"{result.fits['seconds'].sum():.0f} s of processor time. Written to {out}"))
