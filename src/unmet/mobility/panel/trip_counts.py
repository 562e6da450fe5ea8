"""Trips by zone and minute: pickups and returns of each bin, and the minutes of all moves."""

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
from unmet._storage.sql import fetch_one
from unmet.mobility.clock.bins import DAY, Bins, Integers, wall_minutes
from unmet.mobility.records.quality import QualityLog
from unmet.mobility.zones.build import Zones

__all__ = [
    "TripCounts",
    "check_resolution",
    "count_trips",
    "incomplete_trips",
    "loose_starts",
    "station_events",
    "trip_moves",
    "trip_span",
]

# A trip of which it is known where its vehicle left and where and when it came: at a station, or elsewhere.
_WHOLE = "coalesce(start_ix, start_lat) IS NOT NULL AND coalesce(end_ix, end_lat) IS NOT NULL AND ended_at IS NOT NULL"
_FEWEST_ROUNDED = 50  # trips; one of 60 starts at a full hour
_MINUTE_BITS, _FIRST_MINUTE = 34, 1 << 32  # minutes from before the year 1 to after 9999, counted from 0
_VECTORS = 100  # of 2,048 rows at a time from DuckDB


@dataclass(frozen=True)
class TripCounts:
    """Trips by zone and bin.

    Attributes
    ----------
    pickups, early, returns : array, shape (zones, bins)
        Numbers of trips, on disk; `early` are pickups in the first half of a bin, or None if times are rounded so that
        it is not known. `returns` is None if no trip has an end in a zone.
    used : int
        Trips that start in a zone and a bin.
    starts, moves : array
        Minutes in which any trip started, and in which any trip started or ended.
    first : int
        The zone with which the arrays begin.
    """

    pickups: NDArray[np.int32]
    early: NDArray[np.int32] | None
    returns: NDArray[np.int32] | None
    used: int
    starts: Integers
    moves: Integers
    first: int = 0

    def cut(self, begin: int, end: int) -> TripCounts:
        """Return the counts of the zones from `begin` up to `end`; in memory, unless they are all."""
        if end - begin == len(self.pickups):
            return self
        some = slice(begin - self.first, end - self.first)
        pickups = np.array(self.pickups[some])
        early, returns = (None if table is None else np.array(table[some]) for table in (self.early, self.returns))
        nothing = np.empty(0, dtype=np.int64)
        return TripCounts(pickups, early, returns, self.used, nothing, nothing, begin)


def loose_starts(connection: DuckDBPyConnection) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the distinct latitudes and longitudes at which trips without a station started."""
    found = connection.execute(
        """SELECT DISTINCT start_lat AS lat, start_lon AS lon FROM trips
        WHERE start_ix IS NULL AND start_lat IS NOT NULL AND start_lon IS NOT NULL ORDER BY ALL"""
    ).fetchnumpy()
    return np.asarray(found["lat"], dtype=float), np.asarray(found["lon"], dtype=float)


def trip_span(connection: DuckDBPyConnection) -> tuple[int, int, int]:
    """Return the minutes of the first and the last start, and of the last end (or start)."""
    first, last, end = fetch_one(
        connection,
        "SELECT epoch_us(first), epoch_us(last), epoch_us(last_end) FROM trip_span",
    )
    if first is None:
        raise InputError("The trips have no accepted row, so no panel can be built from them.")
    return first // 60_000_000, last // 60_000_000, max(last, end or last) // 60_000_000


def _select_ends(connection: DuckDBPyConnection, zones: Zones, columns: str) -> str:
    """Return SQL for some columns of all trips and ``start_at, end_at``: zones of ends without a station, else NULL."""
    joins, ends = "", []
    for end in ("start", "end"):
        at = "NULL::INTEGER"
        if zones.locate is not None:
            _locate(connection, zones, end)
            joins += f" LEFT JOIN located_{end} {end}_l ON {end}_lat = {end}_l.lat AND {end}_lon = {end}_l.lon"
            at = f"CASE WHEN {end}_ix IS NULL THEN {end}_l.zone END"
        ends.append(f"{at} AS {end}_at")
    return f"SELECT {columns} FROM (SELECT t.*, {', '.join(ends)} FROM trips t {joins})"


def _locate(connection: DuckDBPyConnection, zones: Zones, end: str) -> None:
    assert zones.locate is not None
    places = connection.execute(
        f"""SELECT DISTINCT {end}_lat AS lat, {end}_lon AS lon FROM trips
        WHERE {end}_ix IS NULL AND {end}_lat IS NOT NULL AND {end}_lon IS NOT NULL"""
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
    bins: Bins,
    span: tuple[int, int, int],
    folder: Path,
    log: QualityLog,
) -> TripCounts:
    """Count trips by zone and bin, in one pass. Report trips that are in no zone or in no bin."""
    shape = (len(zones), len(bins))
    pickups, early, returns = (
        open_memmap(folder / f"trips-{name}.npy", mode="w+", dtype=np.int32, shape=shape)
        for name in ("out", "early", "in")
    )
    started, ended = (np.zeros(span[2] - span[0] + 1, dtype=bool) for _ in range(2))
    outside = nowhere = loose = used = found = 0
    # -1 stands for a missing number, so that NumPy gets integers.
    whole = [f"coalesce({c}, -1)::INTEGER AS {c}" for c in ("start_ix", "end_ix", "start_at", "end_at")]
    whole += [f"coalesce(epoch_us({c}_at) // 60000000, -1)::INTEGER AS {c}" for c in ("started", "ended")]
    zone_of = np.append(zones.of_station, -1)
    for chunk in _chunks(connection, _select_ends(connection, zones, ", ".join(whole))):
        start, end = chunk["started"].to_numpy(), chunk["ended"].to_numpy()
        station = chunk["start_ix"].to_numpy()
        zone = np.maximum(zone_of[station], chunk["start_at"].to_numpy())
        started[start - span[0]] = True
        inside = _add(pickups, zone, start, bins)
        _add(early, np.where(_early(start, bins), zone, -1), start, bins)
        outside += int((~inside).sum())
        nowhere += int((inside & (zone < 0)).sum())
        loose += int((inside & (zone < 0) & (station < 0)).sum())
        used += int((inside & (zone >= 0)).sum())
        zone = np.maximum(zone_of[chunk["end_ix"].to_numpy()], chunk["end_at"].to_numpy())
        ended[end[end >= span[0]] - span[0]] = True
        _add(returns, zone, end, bins)
        found += int((zone >= 0).sum())
    log.add("trips", "outside the panel's period", "noted", outside, "not in the panel")
    if zones.locate is None:
        log.add(
            "trips",
            "no station, only coordinates",
            "rejected",
            loose,
            "these place a trip if zones are polygons or a grid",
        )
        nowhere -= loose
    log.add("trips", "start in no zone", "noted", nowhere, "not in the panel")
    starts, moves = span[0] + np.flatnonzero(started), span[0] + np.flatnonzero(started | ended)
    return TripCounts(pickups, early, returns if found else None, used, starts, moves)


def check_resolution(starts: Integers, every: int, used: int, timezone: str) -> bool:
    """Refuse trips of which only the day or the hour is known, if bins are shorter: all would be in the first.

    Return whether times are exact enough to tell the first half of a bin from the second.

    Parameters
    ----------
    starts : array
        Minutes in which any trip started.
    every : int
        Length of a bin, in minutes.
    used : int
        Number of trips; of few, all may start at full hours by chance.
    timezone : str
        Time zone of the wall clock.
    """
    if used < _FEWEST_ROUNDED or len(starts) < 2:
        return True
    wall = wall_minutes(starts, timezone)
    for unit, word, longer in ((DAY, "at midnight", "1d"), (60, "at a full hour", "1h")):
        if every < unit and not (wall % unit).any():
            raise InputError(
                f"All {used:,} trips start {word}, so their times are rounded, and bins are shorter. Give the column "
                f"of the exact time (--map started_at=THEIR_COLUMN), or bins of {longer} or more (--every {longer})."
            )
    unit = int(np.gcd.reduce(wall % DAY)) or DAY
    return unit == 1 or every % (2 * unit) == 0


def _add(table: NDArray[np.int32], zone: Integers, minute: NDArray[np.int32], bins: Bins) -> NDArray[np.bool_]:
    """Add one per trip to its zone and bin. Return which trips are in a bin."""
    bin_ = bins.of(minute)
    inside = (bin_ >= 0) & (bin_ < len(bins))
    chosen = inside & (zone >= 0)
    # A number of the table's type: NumPy is thirty times slower if it must convert.
    np.add.at(table.reshape(-1), zone[chosen] * len(bins) + bin_[chosen], np.int32(1))
    return inside


def _early(minute: NDArray[np.int32], bins: Bins) -> NDArray[np.bool_]:
    """Return which minutes are in the first half of their bin."""
    bin_ = np.clip(bins.of(minute), 0, len(bins) - 1)
    return np.asarray(2 * (minute - bins.edges[bin_]) < bins.minutes[bin_])


def _chunks(connection: DuckDBPyConnection, sql: str) -> Iterator[pd.DataFrame]:
    result = connection.execute(sql)
    while len(chunk := result.fetch_df_chunk(_VECTORS)):
        yield chunk


def station_events(connection: DuckDBPyConnection, order: Integers, folder: Path) -> tuple[Integers, Integers]:
    """Return the pickups and the returns at stations: station (its place in `order`) × 2**32 + second, sorted.

    The arrays are on disk, 8 bytes a trip.
    """
    place = np.full(len(order) + 1, -1, dtype=np.int64)
    place[order] = np.arange(len(order))
    (count,) = fetch_one(connection, "SELECT count(*) FROM trips")
    found = []
    for end, time in (("start", "started_at"), ("end", "ended_at")):
        packed = open_memmap(folder / f"events-{end}.npy", mode="w+", dtype=np.int64, shape=(max(count, 1),))
        filled = 0
        sql = f"SELECT {end}_ix AS ix, (epoch_us({time}) // 1000000)::BIGINT AS second FROM trips"
        for chunk in _chunks(connection, f"{sql} WHERE {end}_ix IS NOT NULL AND {time} IS NOT NULL"):
            behind = filled + len(chunk)
            packed[filled:behind] = (place[chunk["ix"].to_numpy(dtype=np.int64)] << 32) | chunk["second"].to_numpy()
            filled = behind
        packed[:filled].sort()
        found.append(packed[:filled])
    return found[0], found[1]


def incomplete_trips(connection: DuckDBPyConnection) -> tuple[int, float]:
    """Count the trips of stations of which an end is not known, and return by what share moves do not balance.

    The share is that of these trips or, if it is larger, by which the other trips leave more or fewer vehicles at
    stations than they take.
    """
    trips, whole, left, came = fetch_one(
        connection,
        f"""SELECT count(*), count(*) FILTER ({_WHOLE}), count(start_ix) FILTER ({_WHOLE}),
            count(end_ix) FILTER ({_WHOLE}) FROM trips WHERE start_ix IS NOT NULL OR end_ix IS NOT NULL""",
    )
    shares = (trips - whole) / max(trips, 1), abs(left - came) / max(left, came, 1)
    return trips - whole, max(shares)


def trip_moves(connection: DuckDBPyConnection, order: Integers) -> tuple[NDArray[np.int32], Integers, NDArray[np.int8]]:
    """Return the pickups (-1) and returns (+1) at stations, sorted by station (its position in `order`) and time.

    They are those of trips of which both ends are known, so that no vehicle is made or lost. The minute of a move is
    the first full minute after it. Within a minute, returns come first.
    """
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    # One number a move in place of three, for there may be millions: station, minute, and whether it is a pickup.
    at, rest = _MINUTE_BITS + 1, (1 << (_MINUTE_BITS + 1)) - 1
    holds = f"(((epoch_us({{}}) + 59999999) // 60000000 + {_FIRST_MINUTE}) << 1)"
    found = connection.execute(
        f"""WITH whole AS (FROM trips WHERE {_WHOLE})
        SELECT (start_ix::BIGINT << {at}) | {holds.format("started_at")} | 1 AS move
        FROM whole WHERE start_ix IS NOT NULL
        UNION ALL SELECT (end_ix::BIGINT << {at}) | {holds.format("ended_at")} FROM whole WHERE end_ix IS NOT NULL"""
    ).fetchnumpy()
    moves = np.ascontiguousarray(found.pop("move"), dtype=np.int64)
    moves = (place[moves >> at] << at) | (moves & rest)
    moves.sort()
    change = np.where(moves & 1, np.int8(-1), np.int8(1))
    return (moves >> at).astype(np.int32), ((moves & rest) >> 1) - _FIRST_MINUTE, change
