"""Riders who walk on, measured on the records of Jersey City without any model of the city.

Pickups at a station with four bikes or more while a neighbour is empty, less those that are expected there, as a share
of the riders who are expected at the empty one. Expected are hour-of-week means of minutes with six bikes or more,
times the factor of the whole city on that day, or in that hour. The factor matters: a busy hour empties one station and
raises the counts of all others. Standard errors are by weeks that are left out in turn (jackknife).
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

ZONE, FIRST, LAST = "America/New_York", "2020-11-01", "2021-05-01"
AMPLE, STOCKED = 6, 4
_TURNS, _SLOTS = 6, 168
_PRIOR = 10.0  # pickups of the city's week that each station's week is shrunk to

Table = NDArray[np.float64]


def walked_shares(data: Path, rings: tuple[float, ...], by: str) -> pd.DataFrame:
    """Measure the share of riders who walk on to one station, by ring of distance.

    Parameters
    ----------
    data : Path
        Folder of the shared data.
    rings : tuple of float
        Bounds of the rings in metres.
    by : str
        ``day`` or ``hour``: what the factor of the whole city is for.
    """
    stations = pd.read_csv(data / "citibike_jersey_city/stations.csv").sort_values("station_ix")
    minutes = pd.date_range(FIRST, LAST, freq="min", tz=ZONE, inclusive="left")
    pickups, listed = _pickups(data, stations, minutes), _listed(data, len(stations), minutes)
    expected = _expected(pickups, listed >= AMPLE, minutes, by)
    week = np.arange(len(minutes)) // (7 * 1440)
    metres = _metres(stations)
    found = []
    for near, far in pairwise(rings):
        extra, wanted = np.zeros(week[-1] + 1), np.zeros(week[-1] + 1)
        for empty, other in zip(*np.nonzero((metres >= near) & (metres < far)), strict=True):
            at = (listed[empty] == 0) & (listed[other] >= STOCKED)
            extra += np.bincount(week[at], pickups[other, at] - expected[other, at], len(extra))
            wanted += np.bincount(week[at], expected[empty, at], len(extra))
        without = (extra.sum() - extra) / (wanted.sum() - wanted)
        error = np.sqrt((len(extra) - 1) * without.var())
        found.append((extra.sum() / wanted.sum(), error))
    return pd.DataFrame(found, columns=[f"measured by {by}", "se"])


def _pickups(data: Path, stations: pd.DataFrame, minutes: pd.DatetimeIndex) -> Table:
    trips = pd.read_parquet(data / "citibike_jersey_city/trips_2015-09_2021-04.parquet")
    local = pd.to_datetime(trips["started_at"])
    trips, local = trips[(local >= FIRST) & (local < LAST)], local[(local >= FIRST) & (local < LAST)]
    at = local.dt.tz_localize(ZONE, ambiguous=True, nonexistent="shift_forward")
    minute = ((at - minutes[0]) // pd.Timedelta(minutes=1)).to_numpy()
    names = {
        str(name): ix
        for column in ("legacy_id", "short_name")
        for name, ix in zip(stations[column], stations["station_ix"], strict=True)
    }
    found = np.zeros((len(stations), len(minutes)))
    np.add.at(found, (trips["start_station_id"].astype(str).map(names).to_numpy(dtype=int), minute), 1)
    return found


def _listed(data: Path, stations: int, minutes: pd.DatetimeIndex) -> NDArray[np.int16]:
    """Bikes listed when each minute begins; -1 where nothing is rented or known."""
    status = pd.read_parquet(data / "citibike_jersey_city/station_status_2020-05_2022-06.parquet")
    first = int(minutes[0].timestamp())
    found = np.full((stations, len(minutes)), -1, dtype=np.int16)
    for station, rows in status.sort_values("last_reported").groupby("station_ix"):
        renting = rows["is_renting"] & rows["is_installed"]
        listed = np.where(renting, rows["num_bikes_available"], -1)
        before = np.searchsorted(rows["last_reported"].to_numpy(), first + 60 * np.arange(len(minutes))) - 1
        found[int(str(station))] = np.where(before >= 0, listed[np.maximum(before, 0)], -1)
    return found


def _expected(pickups: Table, ample: NDArray[np.bool_], minutes: pd.DatetimeIndex, by: str) -> Table:
    slot = (minutes.day_of_week * 24 + minutes.hour).to_numpy()
    local = minutes.tz_localize(None)
    seen = np.where(ample, pickups, 0.0)
    factor = np.ones(len(minutes))
    for _ in range(_TURNS):
        count = np.stack([np.bincount(slot, one, _SLOTS) for one in seen])
        time = np.stack([np.bincount(slot, one * factor, _SLOTS) for one in ample])
        level = count.sum(axis=1) / np.maximum(time.sum(axis=1), 1.0)  # some stations never had that many
        plain = level[:, None] * count.sum(axis=0) / (level @ time)
        week = plain * (count + _PRIOR) / (plain * time + _PRIOR)
        usual = sum(one * mine[slot] for one, mine in zip(ample, week, strict=True))
        factor = np.ones(len(minutes))
        for unit in {"day": ["D"], "hour": ["D", "h"]}[by]:  # hours are few pickups: their factor is beside the day's
            group = pd.factorize(local.floor(unit))[0]
            found, likely = np.bincount(group, seen.sum(axis=0)), np.bincount(group, usual * factor)
            factor = factor * ((found + 5.0) / (likely + 5.0))[group]
    return np.asarray(week[:, slot] * factor)


def _metres(stations: pd.DataFrame) -> Table:
    north, east = np.radians(stations["lat"].to_numpy()), np.radians(stations["lon"].to_numpy())
    metres = 6_371_000 * np.hypot(north[:, None] - north, (east[:, None] - east) * np.cos(north.mean()))
    return np.where(np.eye(len(stations), dtype=bool), np.nan, metres)
