"""`unmet backtest`: compare demand models on a panel."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from unmet._exceptions import InputError
from unmet.cli import _options as flags
from unmet.cli._console import Console
from unmet.cli._ending import end_with_failures
from unmet.cli._progress import zone_progress
from unmet.mobility.models.registry import COMPARED_MODELS, MODELS

if TYPE_CHECKING:
    import pandas as pd

    from unmet.mobility.backtest.compare import Backtest
    from unmet.mobility.panel.file import PanelFile

__all__ = ["backtest_command"]

_FAILED = 5
_trial = partial(typer.Option, rich_help_panel="Trials")
_decision = partial(typer.Option, rich_help_panel="Decisions")


def backtest_command(
    context: typer.Context,
    panel: Annotated[
        Path,
        typer.Argument(
            help="Panel file written by `unmet panel`; with --decisions a folder of `unmet simulate`, or the "
            "unmet.toml of a run, whose days are replayed."
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="Folder for the scores; nothing is written unless all of them are complete.")
    ],
    models: Annotated[
        str,
        typer.Option(help=f"Models to compare, separated by commas: {', '.join(MODELS)}."),
    ] = ",".join(COMPARED_MODELS),
    tasks: Annotated[str, _trial(help="Tasks, separated by commas: held-out, replay.")] = "held-out,replay",
    hide: Annotated[
        str,
        _trial(
            metavar="<weeks|hours|stock>",
            help="Hide whole weeks; or 5 % of the fully stocked hours; or the stock of some days in all zones at once, "
            "with riders who walk on. With hours and stock, the city as one is compared with city-factor and "
            "local-factor.",
        ),
    ] = "weeks",
    folds: Annotated[int, _trial(min=1, help="Number of trials per task; each hides other weeks.")] = 1,
    share: Annotated[
        float, _trial(help="Share of weeks hidden (held-out) or of days with reduced supply (replay).")
    ] = 0.2,
    decisions: Annotated[
        bool,
        _decision("--decisions", help="Act on the plans of each model in a city, and count the riders turned away."),
    ] = False,
    days: Annotated[int, _decision(min=1, help="Last days of the city to plan.")] = 7,
    moves: Annotated[
        float, _decision(min=0.0, max=1.0, help="Vehicles that may be moved, as a share of the fleet.")
    ] = 0.5,
    returns: Annotated[bool, _decision("--returns", help="Estimate returns with each model too.")] = False,
    seed: Annotated[int, _trial(min=0, help="Random seed; the same seed gives the same scores.")] = 0,
    draws: Annotated[int, _trial(min=20, help="Number of posterior draws per model.")] = 200,
    weather: flags.Weather = None,
    weather_columns: flags.WeatherColumns = None,
    timezone: flags.WeatherTimezone = None,
    holidays: flags.Holidays = None,
    jobs: flags.Jobs = None,
    engine: flags.Engine = "processes",
    quiet: flags.Quiet = False,
) -> None:
    """Compare demand models on data whose truth is known.

    Task held-out hides whole weeks; the models estimate their demand. Task replay reduces supply on some days: each
    day starts with few vehicles and is out of stock once they are taken, and the models estimate the trips that this
    removed.

    With --hide hours, single hours with full supply are hidden, and neighbours and the hours around them stay visible,
    as in a stock-out. Writes hidden_hours.csv.

    With --hide stock, some days of every zone start with few vehicles. Riders who find nothing walk to the next zones
    as in a measured curve, and are counted there. Writes cut_stock.csv.

    With --decisions, each model learns from the first days of a city and plans the last days. The riders of these days
    ride from the planned levels, with the same fleet and number of moves for all models. In a recorded city they are
    the recorded trips, and the riders that the default model finds lost. Writes decisions.csv (per day and model) and
    decisions_summary.csv.

    Look at the bias first. A good model has a bias near 0 in both tasks, also in bins with little exposure.

    Writes scores.parquet (per zone), summary.csv (all zones, with standard errors), fits.parquet (per fit, with the
    reason if it failed) and backtest.md.

    Exit code 0: all fits succeeded; 1: some fits failed, with reasons in fits.parquet; 2: invalid input, nothing was
    written.

    Example: unmet backtest panel.parquet --out backtest/ --models exposure,cgp,weekly-mean --weather weather.csv
    """
    if hide not in ("weeks", "hours", "stock"):
        raise InputError(f"hide: expected weeks, hours or stock, got {hide!r}.")
    _refuse_unused(context, "decisions" if decisions else hide)
    if decisions:
        _backtest_decisions(
            panel, out, models, quiet, held_out=days, moves_share=moves, returns=returns, draws=draws, jobs=jobs
        )
        return
    # Imported here to keep `unmet --help` fast.
    from unmet.engines import find_executor
    from unmet.mobility.backtest.compare import backtest
    from unmet.mobility.backtest.output import writing_backtest
    from unmet.mobility.features.bins import bin_features
    from unmet.mobility.panel.file import open_panel

    stderr = Console(stderr=True, quiet=quiet)
    with open_panel(panel) as opened:
        features = bin_features(
            opened,
            weather=weather,
            weather_columns=flags.parse_columns(weather_columns),
            timezone=timezone,
            holidays=holidays,
        )
        for gap in features.gaps.itertuples():
            stderr.print(Text(f"{gap.column} is missing in {gap.bins} bins, from {gap.first:%Y-%m-%d %H:%M} UTC."))
        if hide == "hours":
            _backtest_hours(opened, out, features.frame, seed, draws, stderr)
            return
        if hide == "stock":
            _backtest_stock(opened, out, features.frame, seed, share, stderr)
            return
        with writing_backtest(out) as write, zone_progress(stderr, "Backtesting zones") as progress:
            result = backtest(
                opened,
                _names(models),
                features=features.frame,
                tasks=_names(tasks),
                folds=folds,
                share=share,
                seed=seed,
                draws=draws,
                jobs=jobs,
                executor=find_executor(engine),
                progress=progress,
            )
            write(result)
    if not quiet:
        _print_summary(Console(), result, out)
    if len(result.failed):
        end_with_failures(
            f"{len(result.failed)} of {len(result.fits)} fits failed; the others are done",
            str(out / "fits.parquet"),
        )


_PLANNING = ("days", "moves", "returns")
_FEATURES = ("weather", "weather_columns", "timezone", "holidays")
_UNUSED = {
    "weeks": _PLANNING,
    "hours": ("models", "tasks", "folds", "share", *_PLANNING, "jobs", "engine"),
    "stock": ("models", "tasks", "folds", "draws", *_PLANNING, "jobs", "engine"),
    "decisions": ("tasks", "hide", "folds", "share", "seed", *_FEATURES, "engine"),
}


def _refuse_unused(context: typer.Context, kind: str) -> None:
    """Refuse options that were given and would be ignored."""
    for name in _UNUSED[kind]:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            chosen = {"decisions": "with --decisions", "weeks": "without --decisions"}.get(kind, f"with --hide {kind}")
            raise InputError(f"--{name.replace('_', '-')}: has no effect {chosen}. Leave it out.")


def _backtest_hours(
    panel: PanelFile, out: Path, features: pd.DataFrame, seed: int, draws: int, stderr: Console
) -> None:
    """Compare the city as one with two baselines on hidden hours, and write the scores."""
    from unmet._storage.writing import write_text, writing
    from unmet.mobility.backtest.hours import hidden_hours
    from unmet.mobility.backtest.output import folder_for

    with folder_for(out, ["hidden_hours.csv"]), stderr.status("hiding hours") as status:
        scores = hidden_hours(panel, features=features, seed=seed, draws=draws, progress=status.update)
        with writing(out):
            write_text(out / "hidden_hours.csv", scores.to_csv(index=False))
    if stderr.quiet:
        return
    table = Table(title=f"{int(scores['rows'].iloc[0]):,} hidden hours", title_justify="left")
    for name in ("model", "CRPS", "90 % intervals cover", "bias"):
        table.add_column(name, justify="left" if name == "model" else "right")
    for row in scores.to_dict("records"):
        table.add_row(row["model"], f"{row['crps']:.4f}", f"{row['calibration_90']:.1%}", f"{row['bias']:+.1%}")
    Console().print(table)
    Console().print(Text(f"Written to {out}"))


def _backtest_stock(
    panel: PanelFile, out: Path, features: pd.DataFrame, seed: int, share: float, stderr: Console
) -> None:
    """Compare the city as one with islands and two baselines on days of cut stock, and write the scores."""
    from unmet._storage.writing import write_text, writing
    from unmet.mobility.backtest.output import folder_for
    from unmet.mobility.backtest.stock import cut_stock

    with folder_for(out, ["cut_stock.csv"]), stderr.status("cutting stock") as status:
        scores = cut_stock(panel, features=features, seed=seed, share=share, progress=status.update)
        with writing(out):
            write_text(out / "cut_stock.csv", scores.to_csv(index=False))
    if stderr.quiet:
        return
    first = scores.iloc[0]
    title = f"{first['turned_away']:,.0f} riders turned away, of whom {first['walked_on']:,.0f} walked on"
    table = Table(title=title, title_justify="left")
    for name in ("model", "turned away", "bias", "walked on", "bias where walkers came"):
        table.add_column(name, justify="left" if name == "model" else "right")
    for row in scores.to_dict("records"):
        table.add_row(
            row["model"], f"{row['turned_away_found']:,.0f}", f"{row['bias']:+.1%}", f"{row['walked_on_found']:,.0f}",
            f"{row['received_bias']:+.1%}",
        )  # fmt: skip
    Console().print(table)
    Console().print(Text(f"Written to {out}"))


def _backtest_decisions(given: Path, out: Path, models: str, quiet: bool, **options: Any) -> None:
    """Compare the decisions of models in the simulated city of a folder, or in the recorded city of an unmet.toml."""
    from unmet._storage.temporary import temporary_folder
    from unmet.mobility.backtest.output import folder_for
    from unmet.pipeline import make_settings
    from unmet.pipeline.decisions import DECISION_MODELS, FILES, compare_decisions
    from unmet.pipeline.worlds import recorded_world, simulated_world
    from unmet.simulate import read_city

    chosen = DECISION_MODELS if models == ",".join(COMPARED_MODELS) else tuple(_names(models))
    stderr = Console(stderr=True, quiet=quiet)
    with folder_for(out, FILES), stderr.status("reading the city") as status, temporary_folder() as scratch:
        if given.suffix == ".toml":
            settings = make_settings(given)
            common = {"returns": options["returns"], "jobs": options["jobs"]}
            city = recorded_world(settings, scratch, **common, progress=status.update)
        else:
            city = simulated_world(read_city(given))
        result = compare_decisions(city, models=chosen, progress=status.update, **options)
        result.save(out)
    if not quiet:
        table = Table(title="Riders turned away on the planned days", title_justify="left")
        for name in ("model", "error", "moves", "no bike", "no dock", "together", "of observed", "promised"):
            table.add_column(name, justify="left" if name == "model" else "right", no_wrap=name == "model")
        for row in result.summary().to_dict("records"):
            ratio, promise, error = row["against_observed"], row["promise"], row["accuracy_error"]
            table.add_row(
                Text(str(row["model"])), f"{error:.1%}" if error == error else "", f"{row['moves']:,}",
                f"{row['no_bike']:,}", f"{row['no_dock']:,}", f"{row['turned_away']:,}",
                f"{ratio:.1%}" if ratio == ratio else "", f"{promise:.1%}" if promise > 0 else "",
            )  # fmt: skip
        Console().print(table)
        Console().print(Text(f"Written to {out}"))


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
        title = Text(f"{len(failed)} of {len(result.fits)} fits failed", style="bold red")
        table = Table(title=title, title_justify="left")
        for name in ("zone", "model", "task", "reason"):
            table.add_column(name, overflow="fold")
        for _, fit in failed.head(_FAILED).iterrows():
            # As Text: a name from a file must not be read as markup.
            table.add_row(*(Text(str(fit[name])) for name in ("zone", "model", "task", "reason")))
        if len(failed) > _FAILED:
            table.add_row("…", "", "", f"and {len(failed) - _FAILED} more in fits.parquet")
        console.print(table)
    console.print(Text(f"Processor time: {result.fits['seconds'].sum():.0f} s. Written to {out}"))
