"""`unmet targets`: plan where vehicles should be, and which to move."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from unmet.cli import _options as flags
from unmet.cli._console import Console
from unmet.cli._tables import count, counted, interval

if TYPE_CHECKING:
    import pandas as pd

    from unmet.mobility.planning import Plan

__all__ = ["targets_command"]

_SHOWN = 12
_plan = partial(typer.Option, rich_help_panel="The plan")
_files = partial(_plan, metavar="<path>")


def targets_command(
    run: Annotated[Path, typer.Argument(help="Folder written by `unmet estimate` or `unmet run`.")],
    out: Annotated[Path, typer.Option(help="Folder for the tables; created if missing.")],
    day: Annotated[
        str | None,
        _plan(
            help="Day to plan, YYYY-MM-DD, or a weekday such as monday for its usual day; default: the first day after "
            "the records. A day within the run's forecast (--horizon) uses the forecast, with its weather."
        ),
    ] = None,
    start: Annotated[
        str,
        _plan("--from", help="Time of day from which riders are counted: overnight (midnight), or a time as 06:00."),
    ] = "overnight",
    hours: Annotated[float, _plan(help="Hours until the next visit: a whole number of bins.")] = 24.0,
    status: Annotated[
        list[str] | None,
        _files(help="Status file or GBFS station_status document with the levels now; default: those of the panel."),
    ] = None,
    stations: Annotated[
        list[str] | None, _files(help="Table of stations, if the ids of --status differ from the run's.")
    ] = None,
    fleet: Annotated[
        int | None, _plan(min=0, help="Vehicles at stations after the moves; default: as many as now.")
    ] = None,
    moves: Annotated[int | None, _plan(min=0, help="Vehicles that the vans can move; default: no limit.")] = None,
    least_gain: Annotated[float, _plan(min=0.0, help="Riders that each moved vehicle must gain.")] = 0.1,
    no_bike: Annotated[float, _plan(min=0.0, help="Penalty of a rider who finds no vehicle (p).")] = 1.0,
    no_dock: Annotated[float, _plan(min=0.0, help="Penalty of a rider who finds no dock (h).")] = 1.0,
    draws: Annotated[int, _plan(min=20, help="Scenarios of the day.")] = 200,
    seed: flags.Seed = 0,
    format_: Annotated[
        str, typer.Option("--format", help="Formats, separated by commas: csv, parquet, geojson.")
    ] = "csv,parquet,geojson",
    panel: Annotated[Path | None, typer.Option(help="Panel file of the run, if it was moved.")] = None,
    trust: flags.Trust = False,
    quiet: flags.Quiet = False,
    as_json: flags.AsJson = False,
) -> None:
    """Plan a day: target level of each station, vehicles to move, and the riders that this gains.

    Counts riders turned away: those who find no vehicle or no dock at the station they come to.

    Writes targets (stations), moves, fleet (other numbers of vehicles), next_bikes, next_docks and docks_to_move.

    Example: unmet targets run/ --out plan/ --day monday --from overnight --status station_status.json --moves 60
    """
    from unmet.mobility.planning import PlanOptions
    from unmet.report.targets import write_targets

    options = PlanOptions(
        day=day, start=start, hours=hours, fleet=fleet, moves=moves, least_gain=least_gain,
        no_bike=no_bike, no_dock=no_dock, scenarios=draws, seed=seed,
    )  # fmt: skip
    formats = [name.strip().lower() for name in format_.split(",") if name.strip()]
    with Console(stderr=True, quiet=quiet).status("planning"):
        plan, listed, paths = write_targets(
            run, out, options, status=status, stations=stations, formats=formats, panel=panel, trust=trust
        )
    if as_json:
        typer.echo(json.dumps(_document(plan, listed, paths), indent=2))
    elif not quiet:
        _print(Console(), plan, listed, out)


def _document(plan: Plan, moves: pd.DataFrame, paths: list[Path]) -> dict[str, object]:
    return {
        "period": plan.period.words,
        "levels": plan.levels_from,
        "fleet": plan.fleet,
        "moved": plan.moved,
        "totals": plan.totals.to_dict("index"),
        "moves": json.loads(moves.drop(columns=["source", "target"]).to_json(orient="records")),
        "left_out": len(plan.left_out),
        "files": [str(path) for path in paths],
    }


def _print(console: Console, plan: Plan, moves: pd.DataFrame, out: Path) -> None:
    totals = plan.totals.to_dict("index")
    table = Table(title=Text(f"Riders turned away: {plan.period.words}"), title_justify="left")
    for name in ("", "no vehicle", "no dock", "together", "90 % interval"):
        table.add_column(name, justify="right" if name else "left")
    names = {"levels as now": "now", f"after {counted(plan.moved, 'move')}": "planned", "gain": "gain"}
    for name, key in names.items():
        row = totals[key]
        table.add_row(
            name, count(row["no_bike"]), count(row["no_dock"]), count(row["mean"]), interval(row["q05"], row["q95"]),
            style="bold" if name == "gain" else None,
        )  # fmt: skip
    console.print(table)
    shown = Table(title="Moves, best first", title_justify="left")
    for name in ("from", "to"):
        shown.add_column(name, no_wrap=True, overflow="ellipsis", max_width=24)
    for name in ("vehicles", "gain", "90 % interval", "sure"):
        shown.add_column(name, justify="right")
    for move in moves.head(_SHOWN).to_dict("records"):
        between = f"{move['gain_q05']:.1f} – {move['gain_q95']:.1f}"
        shown.add_row(
            Text(str(move["from_name"])), Text(str(move["to_name"])), str(move["bikes"]), f"{move['gain_mean']:.1f}",
            between, f"{move['sure']:.0%}",
        )  # fmt: skip
    if len(moves):
        console.print(shown)
    if len(moves) > _SHOWN:
        console.print(Text(f"… and {len(moves) - _SHOWN} more in {out / 'moves.csv'}"))
    if plan.left_out:
        reasons = "; ".join(sorted(set(plan.left_out.values())))
        console.print(Text(f"{counted(len(plan.left_out), 'zone')} not planned: {reasons}."))
    console.print(Text(f"Levels {plan.levels_from}: {plan.fleet:,} vehicles. Written to {out}"))
