"""The trip records of a simulated city."""

from __future__ import annotations

import numpy as np
import pandas as pd

from unmet._typing import Array, IntArray
from unmet.simulate.demand import Layout, Riders, Stream, stream
from unmet.simulate.operation import History
from unmet.simulate.settings import Settings
from unmet.simulate.troubles import Trouble
from unmet.simulate.truth import Clock, order_of_trips

__all__ = ["ride_ids", "trip_table"]

_RELOCATION = 250.0  # metres that a station moves


def ride_ids(settings: Settings, count: int) -> list[str]:
    """Distinct 16-digit hexadecimal names in no visible order: an odd factor permutes the 64-bit integers."""
    start = np.uint64(stream(settings, Stream.RIDE_IDS).integers(0, 2**64, dtype=np.uint64))
    numbers = start + np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return [f"{number:016X}" for number in numbers.tolist()]


def trip_table(
    settings: Settings,
    place: Layout,
    riders: Riders,
    history: History,
    troubles: list[Trouble],
    clock: Clock,
    names: list[str],
) -> pd.DataFrame:
    """Trips as in Citi Bike's files since 2021, in order of departure."""
    who = order_of_trips(history)
    start, end = history.start_station[who], history.end_station[who]
    name, ident = (place.table[column].array for column in ("name", "station_id"))
    start_lat, start_lng = _positions(settings, place, troubles, start, history.started[who])
    end_lat, end_lng = _positions(settings, place, troubles, end, history.ended[who])
    kinds = pd.Series(["member", "casual"], dtype="str").array
    return pd.DataFrame(
        {
            "ride_id": names,
            "rideable_type": "classic_bike",
            "started_at": clock.wall(history.started[who]),
            "ended_at": clock.wall(history.ended[who]),
            "start_station_name": name.take(start),
            "start_station_id": ident.take(start),
            "end_station_name": name.take(end),
            "end_station_id": ident.take(end),
            "start_lat": start_lat,
            "start_lng": start_lng,
            "end_lat": end_lat,
            "end_lng": end_lng,
            "member_casual": kinds.take(riders.casual[who].astype(np.intp)),
        }
    )


def _positions(
    settings: Settings, place: Layout, troubles: list[Trouble], station: IntArray, time: IntArray
) -> tuple[Array, Array]:
    """Latitude and longitude of stations at given moments: before a move, the old position."""
    lat, lon = (place.table[column].to_numpy()[station] for column in ("lat", "lon"))
    moves = [trouble for trouble in troubles if trouble.kind == "move"]
    angles = 2 * np.pi * stream(settings, Stream.RELOCATIONS).random(len(moves))
    for move, angle in zip(moves, angles.tolist(), strict=True):
        before = (station == move.station) & (time < move.start)
        degrees = _RELOCATION / 111_320.0
        lon[before] += degrees * np.cos(angle) / np.cos(np.deg2rad(lat[before]))
        lat[before] += degrees * np.sin(angle)
    return lat.round(7), lon.round(7)
