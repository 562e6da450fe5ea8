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

from unmet._exceptions import InputError
from unmet.mobility.clock import Bins, Minutes
from unmet.mobility.quality import QualityLog
from unmet.mobility.sql import fetch_one
from unmet.mobility.zones import Zones

__all__ = ["TripCounts", "count_trips", "loose_starts", "trip_moves", "trip_span"]

_VECTORS = 400  # of 2,048 rows at a time from DuckDB


@dataclass(frozen=True)
class TripCounts:
    """Trips by zone and bin.

    Attributes
    ----------
    pickups, returns : array, shape (zones, bins)
        On disk; `returns` is None where no trip says where it ended.
    used : int
        Trips that start in a zone and a bin.
    starts, moves : array
        Minutes in which any trip started; in which any started or ended.
    """

    pickups: NDArray[np.int32]
    returns: NDArray[np.int32] | None
    used: int
    starts: Minutes
    moves: Minutes


def loose_starts(connection: DuckDBPyConnection) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where trips that name no station started: distinct latitudes and longitudes."""
    found = connection.execute(
        """SELECT DISTINCT start_lat AS lat, start_lon AS lon FROM trips
        WHERE start_station IS NULL AND start_lat IS NOT NULL AND start_lon IS NOT NULL ORDER BY ALL"""
    ).fetchnumpy()
    return np.asarray(found["lat"], dtype=float), np.asarray(found["lon"], dtype=float)


def trip_span(connection: DuckDBPyConnection) -> tuple[int, int, int]:
    """Minutes of the first and the last start, and of the last end (or start)."""
    first, last, end = fetch_one(
        connection,
        "SELECT epoch_us(min(started_at)), epoch_us(max(started_at)), epoch_us(max(ended_at)) FROM trips",
    )
    if first is None:
        raise InputError("The trips have no accepted row: there is nothing to build a panel from.")
    return first // 60_000_000, last // 60_000_000, max(last, end or last) // 60_000_000


def _select_ends(connection: DuckDBPyConnection, zones: Zones, stations: pd.DataFrame, columns: str) -> str:
    """SQL for some columns of both ends of all trips: ``start_zone, start_ix, end_zone, end_ix`` and those of trips."""
    place = pd.DataFrame({"station": stations["station"], "zone": zones.of_station, "ix": np.arange(len(stations))})
    connection.register("some_rows", place)
    connection.execute("CREATE OR REPLACE TEMP TABLE zone_of AS SELECT * FROM some_rows")
    connection.unregister("some_rows")
    joins, ends = "", []
    for end in ("start", "end"):
        zone = f"{end}_of.zone"
        joins += f" LEFT JOIN zone_of {end}_of ON {end}_station = {end}_of.station"
        if zones.locate is not None:
            _locate(connection, zones, end)
            zone = f"CASE WHEN {end}_station IS NULL THEN {end}_at.zone ELSE {zone} END"
            joins += f" LEFT JOIN located_{end} {end}_at ON {end}_lat = {end}_at.lat AND {end}_lon = {end}_at.lon"
        ends.append(f"coalesce({zone}, -1)::INTEGER AS {end}_zone, coalesce({end}_of.ix, -1)::INTEGER AS {end}_ix")
    return f"SELECT {columns} FROM (SELECT {', '.join(ends)}, started_at, ended_at FROM trips {joins})"


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


def count_trips(
    connection: DuckDBPyConnection,
    zones: Zones,
    stations: pd.DataFrame,
    bins: Bins,
    span: tuple[int, int, int],
    folder: Path,
    log: QualityLog,
) -> TripCounts:
    """Count trips by zone and bin, in one pass; report those that fall in no zone or in no bin."""
    shape = (len(zones), len(bins))
    pickups, returns = (
        open_memmap(folder / f"trips-{name}.npy", mode="w+", dtype=np.int32, shape=shape) for name in ("out", "in")
    )
    started, ended = (np.zeros(span[2] - span[0] + 1, dtype=bool) for _ in range(2))
    outside = nowhere = used = found = 0
    minutes = ", ".join(f"(epoch_us({t}_at) // 60000000)::INTEGER AS {t}" for t in ("started", "ended"))
    sql = _select_ends(connection, zones, stations, f"start_zone, end_zone, {minutes}")
    for chunk in _chunks(connection, sql):
        start, zone = chunk["started"].to_numpy(dtype=np.int64), chunk["start_zone"].to_numpy()
        started[start - span[0]] = True
        inside = _add(pickups, zone, start, bins)
        outside += int((~inside).sum())
        nowhere += int((inside & (zone < 0)).sum())
        used += int((inside & (zone >= 0)).sum())
        has_end = chunk["ended"].notna().to_numpy()
        end = chunk["ended"].to_numpy(dtype=float, na_value=0.0)[has_end].astype(np.int64)
        zone = chunk["end_zone"].to_numpy()[has_end]
        ended[end[end >= span[0]] - span[0]] = True
        _add(returns, zone, end, bins)
        found += int((zone >= 0).sum())
    log.add("trips", "outside the panel's period", "noted", outside, "not in the panel")
    log.add("trips", "start in no zone", "noted", nowhere, "not in the panel")
    starts, moves = span[0] + np.flatnonzero(started), span[0] + np.flatnonzero(started | ended)
    return TripCounts(pickups, returns if found else None, used, starts, moves)


def _add(table: NDArray[np.int32], zone: NDArray[np.int32], minute: Minutes, bins: Bins) -> NDArray[np.bool_]:
    """Add one per trip to its zone and bin; return which fall into a bin."""
    bin_ = bins.of(minute)
    inside = (bin_ >= 0) & (bin_ < len(bins))
    chosen = inside & (zone >= 0)
    np.add.at(table.reshape(-1), zone[chosen] * np.int64(len(bins)) + bin_[chosen], 1)
    return inside


def _chunks(connection: DuckDBPyConnection, sql: str) -> Iterator[pd.DataFrame]:
    result = connection.execute(sql)
    while len(chunk := result.fetch_df_chunk(_VECTORS)):
        yield chunk


def trip_moves(
    connection: DuckDBPyConnection, zones: Zones, stations: pd.DataFrame, order: Minutes
) -> tuple[Minutes, Minutes, Minutes]:
    """Every pickup (-1) and return (+1) at a station, sorted by station (its place in `order`) and time.

    Minutes are the full ones from which a move holds; of those that share one, returns come first.
    """
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    ends = _select_ends(connection, zones, stations, "*")
    found = connection.execute(
        f"""WITH ends AS ({ends}) SELECT ix, holds, change FROM (
            SELECT start_ix AS ix, (epoch_us(started_at) + 59999999) // 60000000 AS holds, -1 AS change FROM ends
            UNION ALL
            SELECT end_ix, (epoch_us(ended_at) + 59999999) // 60000000, 1 FROM ends WHERE ended_at IS NOT NULL)
        WHERE ix >= 0 ORDER BY holds, change DESC"""
    ).fetchnumpy()
    station = place[np.asarray(found["ix"], dtype=np.int64)]
    by_station = np.argsort(station, kind="stable")
    return (
        station[by_station],
        np.asarray(found["holds"], dtype=np.int64)[by_station],
        np.asarray(found["change"], dtype=np.int64)[by_station],
    )
