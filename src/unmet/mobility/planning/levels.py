"""Vehicles at each zone when a plan begins."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet._storage.sql import fetch_frame
from unmet._typing import Array, IntArray
from unmet.mobility.planning.period import Period
from unmet.mobility.records.files import Given
from unmet.mobility.records.read import read_records

__all__ = ["Levels", "levels_from_panel", "levels_from_status"]

_LAST_BINS = 24


@dataclass(frozen=True)
class Levels:
    """Vehicles at each zone of the zones table.

    Attributes
    ----------
    level : array of shape (zones,)
        Vehicles that can be rented; NaN if unknown.
    broken : integer array of shape (zones,)
        Vehicles that nobody can rent and that take a dock each.
    source : str
        Where the levels come from, in words.
    """

    level: Array
    broken: IntArray
    source: str


def levels_from_panel(
    connection: duckdb.DuckDBPyConnection,
    zones: pd.DataFrame,
    bins: pd.DataFrame,
    period: Period,
    unusable: pd.DataFrame | None = None,
) -> Levels:
    """Take the level from the panel: at the end of the records, or the usual one at the start of the period.

    The end of the records counts for the first day after them, and the usual level for any other day.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
        A run opened by `unmet.report.source.open_run`.
    zones, bins : pandas.DataFrame
        Zones and bins of the run.
    period : Period
        The period.
    unusable : pandas.DataFrame, optional
        ``zone, unusable``: expected number of listed vehicles that nobody can rent, at the end of the records. The
        level at that time is without them.
    """
    columns = {str(row[0]) for row in connection.execute("DESCRIBE panel").fetchall()}
    unknown = np.full(len(zones), np.nan)
    if "supply_mean" not in columns:
        return Levels(unknown, np.zeros(len(zones), dtype=np.intp), "unknown: the panel has no supply")
    last = int((~bins["future"]).sum())
    chosen = np.arange(max(last - _LAST_BINS, 0), last) if period.follows else _usual_starts(period, bins)
    connection.register("level_bins", pd.DataFrame({"number": chosen}))
    how = "arg_max(supply_mean, b.number)" if period.follows else "avg(supply_mean)"
    frame = fetch_frame(
        connection,
        f"""SELECT z.number AS zone, {how} AS level
        FROM (SELECT * REPLACE (zone::VARCHAR AS zone) FROM panel) p
        JOIN zone_numbers z USING (zone) JOIN bin_numbers b USING (start)
        SEMI JOIN level_bins l ON l.number = b.number
        WHERE supply_mean IS NOT NULL GROUP BY ALL""",
    )
    connection.unregister("level_bins")
    unknown[frame["zone"].to_numpy()] = np.rint(frame["level"].to_numpy(dtype=float))
    broken = np.zeros(len(zones), dtype=np.intp)
    if not period.follows:
        return Levels(unknown, broken, "usual at the start of the period")
    words = "at the end of the records"
    if unusable is not None and len(unusable):
        held = zones["zone"].map(unusable.groupby("zone")["unusable"].sum()).fillna(0.0).to_numpy(dtype=float)
        broken = np.clip(np.rint(held), 0.0, np.nan_to_num(unknown)).astype(np.intp)
    if broken.any():
        count = f"{broken.sum():,} listed {'vehicle' if broken.sum() == 1 else 'vehicles'}"
        words += f", without {count} that very probably nobody can rent"
    return Levels(unknown - broken, broken, words)


def _usual_starts(period: Period, bins: pd.DataFrame) -> IntArray:
    """Rows of the first bin of the period on the latest days of its weekday, or of any if the records have none."""
    if not period.forecast:
        return np.array([rows[0] for rows in period.similar], dtype=np.intp)
    first = np.array([rows[0] for rows in period.recent], dtype=np.intp)
    same = bins["start_local"].dt.day_of_week.to_numpy()[first] == period.weekday
    return first[same] if same.any() else first


def levels_from_status(
    zones: pd.DataFrame, status: Given, stations: Given, timezone: str, day: pd.Timestamp | None = None
) -> Levels:
    """Take the level from the last record of each station in status files or GBFS ``station_status`` documents.

    A station that is not installed has no level: nobody can rent there, and vans bring nothing.

    Parameters
    ----------
    zones : pandas.DataFrame
        ``zone, stations`` of the run; `stations` lists the ids of a zone's stations.
    status, stations : path, list of paths or frame
        Status, and the table of stations if the ids of the status are not those of the run. Stations that are not in
        the run are named in the source.
    timezone : str
        Time zone of the system.
    day : Timestamp, optional
        Day of the plan. The source says how old the status is, or how far ahead, if that is more than a day.
    """
    with read_records(status=status, stations=stations, timezone=timezone, max_rejected=1.0) as records:
        frame = fetch_frame(
            records.connection,
            """SELECT station::VARCHAR AS station, arg_max(available, rn) AS available,
                arg_max(coalesce(disabled, 0), rn) AS disabled, arg_max(coalesce(installed, true), rn) AS installed,
                max("at") AS moment
            FROM (SELECT *, max(second) OVER (PARTITION BY ix) AS newest FROM status) WHERE second = newest
            GROUP BY ALL""",
        ).set_index("station")
        rejected, reasons = _rejected(records.quality)
    removed, frame = int((~frame["installed"]).sum()), frame[frame["installed"]]
    level = np.full(len(zones), np.nan)
    broken = np.zeros(len(zones), dtype=np.intp)
    for i, (zone, members) in enumerate(zip(zones["zone"], zones["stations"], strict=True)):
        found = [s for s in _stations(zone, members) if str(s) in frame.index]
        if found:
            rows = frame.loc[[str(s) for s in found]]
            level[i], broken[i] = rows["available"].sum(), rows["disabled"].sum()
    if not len(frame):
        why = f"every row was rejected: {reasons}" if rejected else "it has no rows"
        why = f"none of its {removed:,} stations is installed" if removed else why
        raise InputError(f"status: has no levels of stations, because {why}. Give another file.")
    if not np.isfinite(level).any():
        known = ", ".join(map(str, frame.index[:3]))
        raise InputError(
            f"status: none of its stations ({known}, …) is a station of this run. Give the table of stations "
            "with --stations if the ids differ."
        )
    words = f"reported by the status of {frame['moment'].max():%Y-%m-%d %H:%M} UTC"
    words += _days_apart(pd.Timestamp(frame["moment"].max()), day, timezone)
    members = {str(s) for zone, own in zip(zones["zone"], zones["stations"], strict=True) for s in _stations(zone, own)}
    if unknown := [str(station) for station in frame.index if str(station) not in members]:
        some = ", ".join(unknown[:3]) + (", …" if len(unknown) > 3 else "")
        are = "station that is" if len(unknown) == 1 else "stations that are"
        words += f", without {len(unknown):,} {are} not in this run ({some})"
    if removed:
        words += f", without {removed:,} {'station that is' if removed == 1 else 'stations that are'} not installed"
    if rejected:
        words += f", without {rejected:,} rejected {'row' if rejected == 1 else 'rows'} ({reasons})"
    return Levels(level, broken, words)


def _days_apart(moment: pd.Timestamp, day: pd.Timestamp | None, timezone: str) -> str:
    utc = moment.tz_localize("UTC") if moment.tzinfo is None else moment
    apart = 0 if day is None else (day.normalize() - utc.tz_convert(timezone).tz_localize(None).normalize()).days
    if abs(apart) <= 1:
        return ""
    return f", {abs(apart):,} days {'before' if apart > 0 else 'after'} the day of the plan"


def _stations(zone: str, members: object) -> list[object]:
    return members if isinstance(members, list) else [zone]


def _rejected(quality: pd.DataFrame) -> tuple[int, str]:
    """Return how many rows of the status were rejected, and why."""
    rows = quality[(quality["source"] == "status") & (quality["action"] == "rejected")]
    return int(rows["rows"].sum()), ", ".join(f"{row.reason}: {row.rows:,}" for row in rows.itertuples())
