"""Tables of a report: headline, zones, hours of the week, and where one more vehicle helps most."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from unmet._exceptions import FileFormatError, InputError
from unmet._storage.sql import fetch_all, parquet_sql, path_literal, reading
from unmet._typing import Array
from unmet.mobility.clock.bins import HOURS_OF_WEEK
from unmet.mobility.clock.periods import DAYS, PARTS, hours_of
from unmet.mobility.supply.states import STATE_MINUTES
from unmet.report.source import RunSource

__all__ = [
    "ACT_ROWS",
    "OUTCOMES",
    "OUTCOME_COLUMNS",
    "act_table",
    "area_table",
    "check_truth",
    "first_of_each_choice",
    "flag_counts",
    "headline",
    "part_tables",
    "true_demand",
    "week_table",
    "zone_table",
]

ACT_ROWS = 40
"""Rows of the page's table of where to act."""

OUTCOMES = ("wanted", "served", "walked_on", "walked_in")
"""Outcomes of riders, beside those lost: quantities of the totals."""

OUTCOME_COLUMNS = tuple(f"{name}_{limit}" for name in OUTCOMES for limit in ("mean", "q05", "q95"))
"""Columns of these in the table of zones."""

_LIMITS = ("mean", "q05", "q95")
# Hours of the week are ranked only if they were out of stock for this long and this share of the time open.
_LEAST_MINUTES = 60.0
_LEAST_SHARE = 0.05
_DAY = 1440
_TRUTH = ("wanted_at", "station_id", "fate")


def zone_table(source: RunSource, truth: dict[str, int] | None = None) -> pd.DataFrame:
    """Return one row per zone: its name and position, trips by outcome with intervals, and the state of its fit.

    Parameters
    ----------
    source : RunSource
        The run.
    truth : dict, optional
        True demand, by zone.
    """
    zones = source.zones
    table = zones[["zone", "name", "lat", "lon", "capacity", "status", "reason", "observed"]].copy()
    estimated = [*(f"{name}_{limit}" for name in ("demand", "lost") for limit in _LIMITS), *OUTCOME_COLUMNS]
    for column in estimated:
        table[column] = zones[column] if column in zones.columns else np.nan
    # A failed zone has neither demand nor lost trips, whatever the file contains.
    table.loc[table["status"] != "ok", estimated] = np.nan
    demand = table["demand_mean"].to_numpy(dtype=float)
    table["lost_share"] = np.divide(
        table["lost_mean"].to_numpy(dtype=float), demand, out=np.full(len(table), np.nan), where=demand > 0
    )
    for state in STATE_MINUTES:
        table[state.replace("_minutes", "_hours")] = zones[state] / 60.0
    open_hours = (table["available_hours"] + table["stockout_hours"]).to_numpy(dtype=float)
    table["stockout_share"] = np.divide(
        table["stockout_hours"].to_numpy(dtype=float), open_hours, out=np.full(len(table), np.nan), where=open_hours > 0
    )
    table["converged"] = zones["converged"].astype("boolean") if "converged" in zones.columns else pd.NA
    table["message"] = zones["message"].fillna("") if "message" in zones.columns else ""
    extrapolated = flag_counts(source).get("extrapolation", {})
    table["extrapolated_bins"] = [extrapolated.get(zone, 0) for zone in table["zone"]]
    for name in ("area", "left_out"):
        if name in zones.columns:
            table[name] = zones[name]
    if truth is not None:
        table["true_demand"] = [truth.get(zone, 0) for zone in table["zone"]]
    return table


def part_tables(source: RunSource, weeks: pd.DataFrame) -> dict[tuple[str | None, str | None], pd.DataFrame]:
    """Return a table of zones for each kind of days and part of the day; there are none for long bins.

    Columns: ``observed, demand_mean, lost_mean, lost_q05, lost_q95, stockout_hours, open_hours, stockout_share``, in
    the order of the run's zones.

    Parameters
    ----------
    source : RunSource
        The run.
    weeks : pandas.DataFrame
        Its `week_table`.
    """
    totals = source.totals[source.totals["level"] == "zone_part"]
    rows = totals[totals["quantity"].isin(["observed", "demand", "lost"])]
    found = {}
    for (days, part), own in rows.groupby(["days", "part"], dropna=False):
        choice = (days if isinstance(days, str) else None, part if isinstance(part, str) else None)
        by_zone = own.pivot(index="zone", columns="quantity", values=["mean", "q05", "q95"]).reindex(
            source.zones["zone"]
        )
        hours = weeks[weeks["hour_of_week"].isin(hours_of(*choice))].groupby("zone")[["stockout_hours", "open_hours"]]
        spent = hours.sum().reindex(source.zones["zone"])
        found[choice] = pd.DataFrame(
            {
                "observed": by_zone["mean", "observed"].to_numpy(),
                "demand_mean": by_zone["mean", "demand"].to_numpy(),
                **{f"lost_{limit}": by_zone[limit, "lost"].to_numpy() for limit in _LIMITS},
                **{name: spent[name].to_numpy() for name in ("stockout_hours", "open_hours")},
                "stockout_share": (spent["stockout_hours"] / spent["open_hours"]).to_numpy(),
            }
        )
    return found


def area_table(source: RunSource) -> pd.DataFrame:
    """Return one row per area: its zones, trips by outcome with intervals, time out of stock.

    An area is the sum of its zones, draw by draw, without those that are left out of the totals. There are no rows if
    the panel has no areas.
    """
    totals = source.totals[source.totals["level"] == "area"]
    names = totals["zone"].drop_duplicates().tolist()
    table = pd.DataFrame({"area": pd.Series(names, dtype="str")})
    zones = source.zones
    own = zones["area"] if "area" in zones.columns else pd.Series(dtype="str")
    kept = zones["left_out"].isna() if "left_out" in zones.columns else pd.Series(True, index=zones.index)
    table["zones"] = [int(((own == name) & kept).sum()) for name in names]
    table["left_out"] = [int(((own == name) & ~kept).sum()) for name in names]
    for quantity in ("observed", "demand", "lost", *OUTCOMES):
        some = totals[totals["quantity"] == quantity].set_index("zone")
        for limit in ("mean",) if quantity == "observed" else _LIMITS:
            column = quantity if quantity == "observed" else f"{quantity}_{limit}"
            table[column] = [some[limit].to_dict().get(name, np.nan) for name in names]
    minutes = [[float(zones.loc[(own == n) & kept, c].sum()) for n in names] for c in STATE_MINUTES[:2]]
    available, out = np.array(minutes[0]), np.array(minutes[1])
    is_open = available + out
    table["stockout_share"] = np.divide(out, is_open, out=np.full(len(names), np.nan), where=is_open > 0)
    return table


def flag_counts(source: RunSource) -> dict[str, dict[str, int]]:
    """Count the past bins with each flag, by zone."""
    if "flags" not in source.demand_columns:
        return {}
    counts: dict[str, dict[str, int]] = {}
    with reading("demand.parquet"):
        rows = fetch_all(
            source.connection,
            "SELECT unnest(string_split(flags, ';')) AS word, zone, count(*) FROM demand "
            "WHERE flags <> '' AND start <= (SELECT max(start) FROM panel) GROUP BY word, zone ORDER BY word, zone",
        )
    for word, zone, count in rows:
        counts.setdefault(word, {})[zone] = int(count)
    return counts


def headline(source: RunSource, zones: pd.DataFrame) -> dict[str, Any]:
    """Return the totals of the system with intervals, and the share of open zone-time out of stock.

    They are those of the zones that were estimated and are not left out of the totals.
    """
    system = source.totals[source.totals["level"] == "system"].set_index("quantity")
    found: dict[str, Any] = {
        name: {limit: float(system[limit].to_dict()[name]) for limit in _LIMITS}
        for name in ("observed", "demand", "lost", *OUTCOMES)
        if name in system.index
    }
    demand = found["demand"]["mean"]
    found["lost_share"] = found["lost"]["mean"] / demand if demand > 0 else None
    some = source.counted.to_numpy()
    minutes = {state.removesuffix("_minutes"): float(source.zones.loc[some, state].sum()) for state in STATE_MINUTES}
    is_open = minutes["available"] + minutes["stockout"]
    found["minutes"] = minutes
    found["stockout_share"] = minutes["stockout"] / is_open if is_open > 0 else None
    found["stockout_hours"] = minutes["stockout"] / 60.0
    found["zones"] = {
        "all": len(zones),
        "failed": int((zones["status"] != "ok").sum()),
        "left_out": int(source.zones["left_out"].notna().sum()) if "left_out" in source.zones.columns else 0,
        "not_converged": int((zones["converged"] == False).sum()),  # noqa: E712 - missing is neither
    }
    if "true_demand" in zones.columns:
        found["true_demand"] = int(zones.loc[some, "true_demand"].sum())
    return found


def week_table(source: RunSource, weeks: Iterable[dict[str, Array]]) -> pd.DataFrame:
    """Return one row per zone and hour of the week, with lost trips per hour out of stock.

    Parameters
    ----------
    source : RunSource
        The run.
    weeks : iterable of dict
        `unmet.report.series.WEEKLY` of each zone.
    """
    columns: dict[str, list[Array]] = {}
    for week in weeks:
        for name, values in week.items():
            columns.setdefault(name, []).append(values)
    together = {name: np.concatenate(values) for name, values in columns.items()}
    count = len(source.zones)
    slot = np.tile(np.arange(HOURS_OF_WEEK), count)
    stockout = np.nan_to_num(together["stockout"])
    table = pd.DataFrame(
        {
            "number": np.repeat(np.arange(count), HOURS_OF_WEEK),
            "zone": np.repeat(source.zones["zone"].to_numpy(dtype=object), HOURS_OF_WEEK),
            "name": np.repeat(source.zones["name"].to_numpy(dtype=object), HOURS_OF_WEEK),
            "hour_of_week": slot,
            "day": np.array(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], dtype=object)[slot // 24],
            "hour": slot % 24,
            "bins": together["bins"].astype(np.int64),
            "observed": together["observed"],
            "lost_mean": together["lost"],
            "lost_q05": together["low"],
            "lost_q95": together["high"],
            "demand_mean": together["demand"],
            "stockout_hours": stockout / 60.0,
            "open_hours": np.nan_to_num(together["open"]) / 60.0,
            "extrapolated_bins": together["extrapolated"].astype(np.int64),
        }
    )
    lost = np.nan_to_num(together["lost"])
    table["lost_per_stockout_hour"] = np.divide(
        lost, stockout / 60.0, out=np.full(len(table), np.nan), where=stockout > 0
    )
    # Hours in which no bin starts have no rows (daily bins start at midnight); a daily bin has no hour.
    table = table[table["bins"] > 0].reset_index(drop=True)
    table["hour"] = table["hour"].astype("Int64")
    if source.minutes >= _DAY:
        table["hour"] = pd.Series(pd.NA, index=table.index, dtype="Int64")
    if source.minutes >= 7 * _DAY:
        table["day"] = None
    return table


def act_table(weeks: pd.DataFrame, rows: int | None = ACT_ROWS) -> pd.DataFrame:
    """Return the zones and hours of the week with most lost trips per hour out of stock; all of them if `rows` is None.

    Only frequent stock-outs count: at least an hour in total, and a twentieth of the time that the zone was open.
    """
    minutes = weeks["stockout_hours"] * 60.0
    often = (minutes >= _LEAST_MINUTES) & (weeks["stockout_hours"] >= _LEAST_SHARE * weeks["open_hours"])
    chosen = weeks[often & (weeks["lost_mean"] > 0)]
    order = ["lost_per_stockout_hour", "lost_mean", "number", "hour_of_week"]
    return chosen.sort_values(order, ascending=[False, False, True, True])[:rows].reset_index(drop=True)


def first_of_each_choice(source: RunSource, table: pd.DataFrame, rows: int) -> pd.DataFrame:
    """Keep the first rows of each area, kind of days and part of the day, in their order.

    They contain the first rows of every choice of these, because a choice is a union of such cells.

    Parameters
    ----------
    source : RunSource
        The run.
    table : pandas.DataFrame
        With ``number`` (of the zone) and ``hour_of_week``.
    rows : int
        How many to keep.
    """
    cell_of_hour = {hour: k for k, cell in enumerate(product(DAYS, PARTS)) for hour in hours_of(*cell)}
    area = pd.Series(source.area_of, dtype=object).fillna("").to_numpy()[table["number"].to_numpy(dtype=int)]
    cells = pd.DataFrame({"area": area, "cell": table["hour_of_week"].map(cell_of_hour).to_numpy()})
    return table[(cells.groupby(["area", "cell"]).cumcount() < rows).to_numpy()].reset_index(drop=True)


def check_truth(truth: Path) -> str:
    """Check that a file is the truth of a simulated city; return its path as an SQL literal."""
    if not truth.is_file():
        raise InputError(f"There is no file {str(truth)!r}. Expected truth.parquet of a simulated city.")
    quoted = path_literal(str(truth))
    with reading(str(truth)), duckdb.connect() as connection:
        found = [row[0] for row in fetch_all(connection, f"DESCRIBE SELECT * FROM {parquet_sql(quoted)}")]
    missing = [c for c in _TRUTH if c not in found]
    if missing:
        raise FileFormatError(
            f"{truth}: is not truth.parquet of a simulated city: there is no column {', '.join(map(repr, missing))}."
        )
    return quoted


def true_demand(source: RunSource, truth: Path) -> dict[str, int]:
    """Count the trips wanted in each zone while it was open, from a simulated city's ``truth.parquet``."""
    quoted = check_truth(truth)
    known = source.bins[~source.bins["future"]]
    last = known.iloc[-1]
    end = last["start"] + pd.Timedelta(minutes=float(last["minutes"]))
    with reading(str(truth)):
        rows = fetch_all(
            source.connection,
            f"SELECT station_id::VARCHAR, count(*) FROM {parquet_sql(quoted)} "
            "WHERE wanted_at >= $1 AND wanted_at < $2 AND fate <> 'closed' GROUP BY 1",
            [known["start"].iloc[0].to_pydatetime(), end.to_pydatetime()],
        )
    wanted = {str(station): int(count) for station, count in rows}
    members = zip(source.zones["zone"], source.zones["stations"], strict=True)
    stations_of = [stations if isinstance(stations, list) else [zone] for zone, stations in members]
    if not wanted.keys() & {str(station) for stations in stations_of for station in stations}:
        raise InputError(f"{truth}: no station and time of the truth is in this run. Is it the truth of another city?")
    return {
        zone: sum(wanted.get(str(station), 0) for station in stations)
        for zone, stations in zip(source.zones["zone"], stations_of, strict=True)
    }
