"""Trips by zone and minute: the pickups and returns of each bin, and what moved when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from duckdb import DuckDBPyConnection
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from unmet.mobility.clock import Bins, Minutes
from unmet.mobility.quality import QualityLog
from unmet.mobility.sql import fetch_one
from unmet.mobility.zones import Zones

__all__ = ["TripCounts", "count_trips", "loose_starts", "stage_trip_ends", "trip_minutes", "trip_moves"]

_VECTORS = 400  # of 2,048 rows at a time from DuckDB


@dataclass(frozen=True)
class TripCounts:
    """Pickups and returns, shape (zones, bins), on disk; `returns` is None where no trip says where it ended."""

    pickups: NDArray[np.int32]
    returns: NDArray[np.int32] | None
    used: int


def loose_starts(connection: DuckDBPyConnection) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where trips that name no station started: distinct latitudes and longitudes."""
    found = connection.execute(
        """SELECT DISTINCT start_lat AS lat, start_lon AS lon FROM trips
        WHERE start_station IS NULL AND start_lat IS NOT NULL AND start_lon IS NOT NULL ORDER BY ALL"""
    ).fetchnumpy()
    return np.asarray(found["lat"], dtype=float), np.asarray(found["lon"], dtype=float)


def stage_trip_ends(connection: DuckDBPyConnection, zones: Zones, stations: pd.DataFrame) -> None:
    """Make the temporary table ``trip_ends (what, zone, ix, minute, holds)``: a row per start (0) and return (1).

    `minute` is the one in which it happened, `holds` the first full minute that knows of it; `zone` and `ix` are -1
    where there is none.
    """
    connection.register("zone_of", pd.DataFrame({"station": stations["station"], "zone": zones.of_station}))
    ends = []
    for what, end, time in ((0, "start", "started_at"), (1, "end", "ended_at")):
        place, located = "zone", ""
        if zones.locate is not None:
            _locate(connection, zones, end)
            place = f"CASE WHEN {end}_station IS NULL THEN l.zone ELSE z.zone END"
            located = f"LEFT JOIN located_{end} l ON {end}_lat = l.lat AND {end}_lon = l.lon"
        ends.append(
            f"""SELECT {what}::UTINYINT AS what, coalesce({place}, -1)::INTEGER AS zone, coalesce(ix, -1)::INTEGER AS ix,
            (epoch_us({time}) // 60000000)::INTEGER AS minute,
            ((epoch_us({time}) + 59999999) // 60000000)::INTEGER AS holds
            FROM trips LEFT JOIN zones_by_ix z ON {end}_station = z.station {located} WHERE {time} IS NOT NULL"""
        )
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE zones_by_ix AS
        SELECT station, ix, zone FROM stations JOIN zone_of USING (station)"""
    )
    connection.execute(f"CREATE OR REPLACE TEMP TABLE trip_ends AS {' UNION ALL '.join(ends)}")
    connection.unregister("zone_of")


def _locate(connection: DuckDBPyConnection, zones: Zones, end: str) -> None:
    assert zones.locate is not None
    places = connection.execute(
        f"""SELECT DISTINCT {end}_lat AS lat, {end}_lon AS lon FROM trips
        WHERE {end}_station IS NULL AND {end}_lat IS NOT NULL AND {end}_lon IS NOT NULL"""
    ).df()
    places["zone"] = zones.locate(places["lat"].to_numpy(float), places["lon"].to_numpy(float))
    connection.register("places", places)
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE located_{end} AS SELECT lat::DOUBLE AS lat, lon::DOUBLE AS lon, zone FROM places"
    )
    connection.unregister("places")


def trip_minutes(connection: DuckDBPyConnection, *, starts_only: bool = False) -> Minutes:
    """Minutes in which any trip started (or ended), ascending, each once."""
    where = "WHERE what = 0" if starts_only else ""
    found = connection.execute(f"SELECT DISTINCT minute FROM trip_ends {where} ORDER BY minute").fetchnumpy()
    return np.asarray(found["minute"], dtype=np.int64)


def count_trips(
    connection: DuckDBPyConnection, zones: int, bins: Bins, folder: Path, log: QualityLog
) -> TripCounts:
    """Count trips by zone and bin; report those that fall in no zone or in no bin."""
    counts = []
    outside = nowhere = used = 0
    for what in (0, 1):
        table = open_memmap(folder / f"trips-{what}.npy", mode="w+", dtype=np.int32, shape=(zones, len(bins)))
        flat = table.reshape(-1)
        for chunk in _chunks(connection, f"SELECT zone, minute FROM trip_ends WHERE what = {what}"):
            zone = chunk["zone"].to_numpy(dtype=np.int64)
            bin_ = np.searchsorted(bins.edges, chunk["minute"].to_numpy(dtype=np.int64), side="right") - 1
            inside = (bin_ >= 0) & (bin_ < len(bins))
            known = zone >= 0
            cell, count = np.unique((zone * len(bins) + bin_)[inside & known], return_counts=True)
            flat[cell] += count.astype(np.int32)
            if what == 0:
                outside += int((~inside).sum())
                nowhere += int((inside & ~known).sum())
                used += int((inside & known).sum())
        counts.append(table)
    log.add("trips", "outside the panel's period", "noted", outside, "not in the panel")
    log.add("trips", "start in no zone", "noted", nowhere, "not in the panel")
    (ended,) = fetch_one(connection, "SELECT count(*) FROM trip_ends WHERE what = 1 AND zone >= 0")
    return TripCounts(counts[0], counts[1] if ended else None, used)


def _chunks(connection: DuckDBPyConnection, sql: str) -> Iterator[pd.DataFrame]:
    result = connection.execute(sql)
    while len(chunk := result.fetch_df_chunk(_VECTORS)):
        yield chunk


def trip_moves(connection: DuckDBPyConnection, order: Minutes) -> tuple[Minutes, Minutes, Minutes]:
    """Every pickup (-1) and return (+1) at a station, sorted by station (its place in `order`) and time.

    Minutes are the full ones from which a move holds; of those that share one, returns come first.
    """
    place = np.full(int(order.max()) + 1, -1, dtype=np.int64)
    place[order] = np.arange(len(order))
    found = connection.execute(
        "SELECT ix, holds, what FROM trip_ends WHERE ix >= 0 ORDER BY holds, what DESC"
    ).fetchnumpy()
    station = place[np.asarray(found["ix"], dtype=np.int64)]
    by_station = np.argsort(station, kind="stable")
    change = np.where(np.asarray(found["what"]) == 1, 1, -1)
    return station[by_station], np.asarray(found["holds"], dtype=np.int64)[by_station], change[by_station]
