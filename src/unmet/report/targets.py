"""Make the plan of a run, and write it as tables: CSV, Parquet and GeoJSON.

============== ========================================================================================
table          rows
============== ========================================================================================
targets        one per station: level now, target and band, riders turned away, gain; best first
moves          one per pair of stations: vehicles to move, gain, how sure; best first
fleet          riders turned away with other numbers of vehicles
next_bikes     where the next vehicles gain most
next_docks     where the next docks gain most
docks_to_move  stations that should be larger or smaller
============== ========================================================================================
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from unmet._exceptions import InputError
from unmet.mobility.planning.growth import costs_of_docks, dock_moves, fleet_losses, more_bikes, more_docks
from unmet.mobility.planning.levels import Levels, levels_from_panel, levels_from_status
from unmet.mobility.planning.period import choose_period
from unmet.mobility.planning.plan import DEPOT, Plan, PlanOptions, make_plan
from unmet.mobility.planning.rates import scenario_rates
from unmet.mobility.planning.riding import Habits, ride_plan
from unmet.mobility.records.files import Given
from unmet.report.beside import returned_rates
from unmet.report.export import FORMATS, appearing, copy_table
from unmet.report.places import centre, geometry
from unmet.report.source import RunSource, open_run

__all__ = ["habits_of", "move_table", "plan_run", "write_targets"]

_MORE = 10  # vehicles and docks to place next


def plan_run(
    source: RunSource,
    options: PlanOptions | None = None,
    *,
    status: Given = None,
    stations: Given = None,
    levels: Levels | None = None,
) -> Plan:
    """Plan the moves of a run that was opened by `open_run`.

    Parameters
    ----------
    source : RunSource
        The run.
    options : PlanOptions, optional
        Day, fleet, moves and penalties.
    status, stations : path, list of paths or frame, optional
        Status with the levels now, and the stations that its ids refer to; default: levels from the panel.
    levels : Levels, optional
        The levels, if they are known otherwise.
    """
    chosen = options or PlanOptions()
    if stations is not None and status is None:
        raise InputError(
            "stations: a table of stations is read with --status only, for its ids. Name the status, or leave out "
            "the stations: levels are then those of the panel."
        )
    period = choose_period(source.bins, chosen.day, chosen.start, chosen.hours)
    rates = scenario_rates(
        source.connection,
        source.zones,
        source.system,
        source.bins,
        period,
        scenarios=chosen.scenarios,
        seed=chosen.seed,
        returned=returned_rates(source),
        shock_variance=source.shock_variance,
    )
    if levels is None and status is None:
        levels = levels_from_panel(source.connection, source.zones, source.bins, period, source.unusable)
    elif levels is None:
        timezone = str(source.summary.get("timezone", "UTC"))
        levels = levels_from_status(source.zones, status, stations, timezone, period.day)
    plan = make_plan(source.zones, rates, levels, period, chosen)
    return ride_plan(plan, source.zones, habits_of(source))


def habits_of(source: RunSource) -> Habits:
    """Return how far riders walk and how often vehicles break, as the run and its panel found them."""
    curve = (source.info.get("joint") or {}).get("walking")
    usable = (source.summary.get("usable_supply") or {}).get("parameters") or {}
    breakage = float(usable.get("breakage", 0.0))
    if curve is None:
        return Habits(breakage=breakage)
    return Habits(tuple(curve["metres"]), tuple(curve["chance"]), breakage)


def write_targets(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    options: PlanOptions | None = None,
    *,
    status: Given = None,
    stations: Given = None,
    formats: Sequence[str] = FORMATS,
    panel: str | os.PathLike[str] | None = None,
    trust: bool = False,
) -> tuple[Plan, pd.DataFrame, list[Path]]:
    """Plan the moves of a run and write the tables of the plan into a folder.

    Parameters
    ----------
    run : path
        The folder written by ``unmet estimate`` or ``unmet run``.
    out : path
        The folder for the tables, created if missing. Existing files are replaced when all tables are complete.
    options, status, stations
        As of `plan_run`.
    formats : sequence of str
        Some of ``csv``, ``parquet``, ``geojson``.
    panel, trust
        As of `unmet.report.export.export_tables`.

    Returns
    -------
    tuple of Plan, pandas.DataFrame and list of pathlib.Path
        The plan, its moves with the names of stations, and the paths of the files.
    """
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        raise InputError(f"formats: expected some of {', '.join(FORMATS)}; got {', '.join(formats) or 'none'}.")
    folder = Path(out)
    with open_run(run, panel, trust=trust) as source:
        plan = plan_run(source, options, status=status, stations=stations)
        moves, cost = move_table(plan, source.zones), costs_of_docks(plan)
        tables = {
            "targets": plan.table.drop(columns=["number"]),
            "moves": moves.drop(columns=["source", "target"]),
            "fleet": fleet_losses(plan),
            "next_bikes": _named(more_bikes(plan, _MORE), source.zones),
            "next_docks": _named(more_docks(plan, _MORE, cost), source.zones),
            "docks_to_move": _named(dock_moves(plan, _MORE, cost), source.zones),
        }
        with appearing(folder) as aside:
            for name, table in tables.items():
                for kind in ("csv", "parquet"):
                    if kind in formats:
                        source.connection.register("plan_rows", table)
                        copy_table(source.connection, "SELECT * FROM plan_rows", aside / f"{name}.{kind}", kind)
                        source.connection.unregister("plan_rows")
            if "geojson" in formats:
                for name, features in (
                    ("targets", _station_features(plan, source)),
                    ("moves", _move_features(moves, source)),
                ):
                    text = json.dumps({"type": "FeatureCollection", "features": features}, ensure_ascii=False)
                    (aside / f"{name}.geojson").write_text(text, encoding="utf-8")
            names = sorted(path.name for path in aside.iterdir())
            given = [item for group in (status, stations) for item in (group if isinstance(group, list) else [group])]
            paths = [Path(item) for item in given if isinstance(item, str | os.PathLike)]
            source.check_outputs(*(folder / name for name in names), inputs=paths)
    return plan, moves, [folder / name for name in names]


def move_table(plan: Plan, zones: pd.DataFrame) -> pd.DataFrame:
    """Return the moves with ids and names of both stations; the depot has no id."""
    table = plan.moves.copy()
    for end, column in (("from", "source"), ("to", "target")):
        for place, key in enumerate(("zone", "name")):
            values = [None if i == DEPOT else zones[key].iloc[i] for i in table[column]]
            if key == "name":
                values = ["depot" if i == DEPOT else v for i, v in zip(table[column], values, strict=True)]
            table.insert((0 if end == "from" else 2) + place, f"{end}_{key}", pd.Series(values, dtype="str"))
    return table


def _named(table: pd.DataFrame, zones: pd.DataFrame) -> pd.DataFrame:
    chosen = zones.iloc[table["number"]]
    named = table.drop(columns=["number"])
    for place, key in enumerate(("zone", "name")):
        named.insert(place, key, pd.Series(chosen[key].tolist(), dtype="str"))
    return named


def _station_features(plan: Plan, source: RunSource) -> list[dict[str, Any]]:
    features = []
    for row in plan.table.to_dict("records"):
        properties = _properties(row, ("lat", "lon", "number"))
        where = geometry(source.zones.iloc[row["number"]])
        features.append({"type": "Feature", "id": row["zone"], "geometry": where, "properties": properties})
    return features


def _move_features(moves: pd.DataFrame, source: RunSource) -> list[dict[str, Any]]:
    """Return a line per move; a move from or to the depot or an unknown place has no geometry."""
    features = []
    for row in moves.to_dict("records"):
        ends = [None if row[end] == DEPOT else centre(source.zones.iloc[row[end]]) for end in ("source", "target")]
        line = [[at[1], at[0]] for at in ends if at is not None]
        where = {"type": "LineString", "coordinates": line} if len(line) == 2 else None
        properties = _properties(row, ("source", "target"))
        features.append({"type": "Feature", "geometry": where, "properties": properties})
    return features


def _properties(row: dict[Any, Any], without: tuple[str, ...]) -> dict[str, Any]:
    return {str(k): None if pd.isna(v) else v for k, v in row.items() if k not in without}
