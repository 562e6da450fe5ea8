"""The truth behind the records: what became of every rider, and how each station-hour really was."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from unmet._typing import Array, IntArray
from unmet.simulate.demand import Layout, Riders, shocks
from unmet.simulate.operation import Fate, History
from unmet.simulate.settings import Settings
from unmet.simulate.states import bounds, everywhere, states
from unmet.simulate.troubles import Trouble

__all__ = ["Clock", "order_of_trips", "rider_table", "state_table", "station_hours"]


@dataclass(frozen=True)
class Clock:
    """Seconds of the simulation as moments."""

    epoch: int
    timezone: str

    def utc(self, seconds: IntArray) -> pd.DatetimeIndex:
        """In UTC; negative seconds are no moment."""
        moments = (seconds + self.epoch).astype("datetime64[s]")
        moments[seconds < 0] = np.datetime64("NaT")
        return pd.DatetimeIndex(moments.astype("datetime64[us]")).tz_localize("UTC")

    def wall(self, seconds: IntArray) -> pd.DatetimeIndex:
        """Local time, without its time zone."""
        return self.utc(seconds).tz_convert(self.timezone).tz_localize(None)


def order_of_trips(history: History) -> IntArray:
    """The riders who got a bike, in order of departure."""
    riders = np.flatnonzero(history.started >= 0)
    return riders[np.argsort(history.started[riders], kind="stable")]


def rider_table(ids: pd.Series, riders: Riders, history: History, clock: Clock, ride_ids: list[str]) -> pd.DataFrame:
    """Every wanted trip once, with its fate."""
    names = pd.Series([fate.name.lower() for fate in Fate], dtype="str")
    ride = pd.Series(index=range(len(riders.time)), dtype="str")
    ride.iloc[order_of_trips(history)] = ride_ids
    return pd.DataFrame(
        {
            "wanted_at": clock.utc(riders.time),
            "station_id": ids.array.take(riders.origin),
            "destination_id": ids.array.take(riders.destination),
            "fate": names.array.take(history.fate),
            "served_at": clock.utc(history.started),
            "served_station_id": ids.array.take(history.start_station, allow_fill=True),
            "ride_id": ride.array,
            "arrived_at": clock.utc(history.arrived),
            "returned_at": clock.utc(history.ended),
            "returned_station_id": ids.array.take(history.end_station, allow_fill=True),
        }
    )


def state_table(ids: pd.Series, stock: IntArray, horizon: int, clock: Clock) -> pd.DataFrame:
    """The true number of bikes of each kind from each change to the station's next."""
    nowhere = np.empty(0, dtype=np.intp)
    s = states(stock, horizon, nowhere, nowhere)
    counts = {"rentable": s.rentable, "unusable": s.unusable, "disabled": s.disabled}
    return pd.DataFrame(
        {
            "station_id": ids.array.take(s.station),
            "time": clock.utc(s.time),
            **{name: count.astype(np.int16) for name, count in counts.items()},
        }
    )


def station_hours(
    settings: Settings, city: Layout, rate: Array, riders: Riders, history: History, troubles: list[Trouble]
) -> pd.DataFrame:
    """Rates, riders by outcome and shares of time, one row per station and hour."""
    n_hours, n_stations = rate.shape
    wanted = _per_hour(riders.origin, riders.time, n_stations, n_hours)
    shares = _shares(settings, city, history.stock, troubles, 3600 * n_hours)
    return pd.DataFrame(
        {
            "station_id": city.table["station_id"].array.take(np.repeat(np.arange(n_stations), n_hours)),
            "start": np.tile(settings.hours().tz_convert("UTC"), n_stations),
            "rate": rate.T.ravel(),
            "wanted": wanted,
            "exposure": shares.pop("exposure"),
            "stockout": shares.pop("stockout"),
            "shock": shocks(settings, city).T.ravel(),
            **_departures(riders, history, n_stations, n_hours),
            **_returns(riders, history, n_stations, n_hours),
            **shares,
        }
    )


def _per_hour(station: IntArray, time: IntArray, n_stations: int, n_hours: int) -> IntArray:
    """Count by station and hour; what happens after the last hour is left out."""
    inside = time < 3600 * n_hours
    cell = station[inside] * n_hours + time[inside] // 3600
    return np.bincount(cell, minlength=n_stations * n_hours).astype(np.int32)


def _departures(riders: Riders, history: History, n_stations: int, n_hours: int) -> dict[str, IntArray]:
    """Wanted = served here + walked on + lost + closed; observed = served here + walked in."""
    counts = {}
    names = {"served_here": Fate.SERVED, "walked_on": Fate.WALKED, "lost": Fate.LOST, "closed": Fate.CLOSED}
    for name, fate in names.items():
        who = history.fate == fate
        counts[name] = _per_hour(riders.origin[who], riders.time[who], n_stations, n_hours)
    walked = history.fate == Fate.WALKED
    counts["walked_in"] = _per_hour(history.start_station[walked], history.started[walked], n_stations, n_hours)
    return counts


def _returns(riders: Riders, history: History, n_stations: int, n_hours: int) -> dict[str, IntArray]:
    """Wanted returns = returned here + rode on; observed returns = returned here + rode in."""
    rode = history.started >= 0
    here = rode & (history.ended == history.arrived)
    on = rode & ~here
    where = {
        "wanted_returns": (rode, riders.destination, history.arrived),
        "returned_here": (here, riders.destination, history.arrived),
        "rode_on": (on, riders.destination, history.arrived),
        "rode_in": (on, history.end_station, history.ended),
    }
    return {name: _per_hour(place[who], time[who], n_stations, n_hours) for name, (who, place, time) in where.items()}


def _shares(
    settings: Settings, city: Layout, stock: IntArray, troubles: list[Trouble], horizon: int
) -> dict[str, Array]:
    """Shares of each station-hour in each true state, and the mean number of unusable bikes."""
    edges = np.arange(0, horizon, 3600)
    extra = zip(everywhere(edges, settings.stations), bounds(troubles, settings.stations), strict=True)
    s = states(stock, horizon, *(np.concatenate(pair) for pair in extra))
    rents, accepts = np.ones((2, len(s.time)), dtype=bool)
    for trouble in troubles:
        rents[s.rows(trouble)] &= trouble.does.rents
        accepts[s.rows(trouble)] &= trouble.does.returns
    following = np.append(s.time[1:], 0)
    length = np.where(following > s.time, following, horizon) - s.time
    cell = s.station * len(edges) + s.time // 3600
    free = (city.capacity + city.store)[s.station] - s.listed - s.disabled
    amounts = {
        "exposure": rents & (s.rentable > 0),
        "stockout": rents & (s.rentable == 0),
        "out_though_listed": rents & (s.rentable == 0) & (s.unusable > 0),
        "dock_exposure": accepts & (free > 0),
        "full": accepts & (free == 0),
        "unusable": s.unusable,
    }
    size = settings.stations * len(edges)
    return {name: np.bincount(cell, length * amount, size) / 3600.0 for name, amount in amounts.items()}
