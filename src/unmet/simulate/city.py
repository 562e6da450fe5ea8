"""A whole simulated city: its records as an operator would publish them, and the truth behind them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet._storage.writing import replacing
from unmet._typing import Array, IntArray
from unmet.simulate.demand import Layout, Riders, Stream, draw_riders, layout, rates, stream, weather
from unmet.simulate.feed import availability, draw_outages, status_log
from unmet.simulate.operation import Fate, History, Outage, operate
from unmet.simulate.settings import Settings

__all__ = ["City", "check_folder", "simulate_city"]

_FILES = {
    "trips": "trips.parquet",
    "status": "status.parquet",
    "stations": "stations.csv",
    "weather": "weather.csv",
    "truth": "truth.parquet",
    "true_rate": "true_rate.parquet",
    "moves": "moves.parquet",
    "events": "events.csv",
}
_SETTINGS_FILE = "settings.json"


@dataclass(frozen=True)
class City:
    """A simulated city. The first four tables are what an operator has; the others are the truth behind them.

    Attributes
    ----------
    settings : Settings
        What it was made from.
    trips : pandas.DataFrame
        Trips as in Citi Bike's files since 2021: ``ride_id``, ``started_at``, ``start_station_id``, ...
        Times are naive local wall-clock times, as in the real files: in the hour that comes twice in autumn
        they are ambiguous; `truth` has the same departures in UTC.
    status : pandas.DataFrame
        GBFS station_status as a change log; ``last_reported`` in POSIX seconds.
    stations : pandas.DataFrame
        ``station_ix`` (as in `status`), ``station_id`` (as in `trips`), ``name``, ``lat``, ``lon``,
        ``capacity``.
    weather : pandas.DataFrame
        Hourly: ``time`` (UTC), ``temperature`` (°C), ``precipitation`` (mm), ``wind_speed`` (m/s).
    truth : pandas.DataFrame
        Every wanted trip once: ``wanted_at`` (UTC), ``station_id`` and ``destination_id`` wanted, ``fate``
        (``served``; ``walked`` to ``served_station_id``; ``lost`` at an open and empty station; ``closed``:
        the station was closed or dead), and ``served_at``, ``served_station_id``, ``ride_id`` of the trip.
    true_rate : pandas.DataFrame
        One row per station and hour: ``station_id``, ``start`` (UTC), ``rate`` (expected wanted trips,
        constant within the hour), ``wanted`` (how many there were), ``exposure`` and ``stockout`` (true
        shares of the hour with a bike to rent, and open without one; the rest is closed).
    moves : pandas.DataFrame
        The trucks' stops: ``time`` (UTC), ``station_id``, ``bikes`` (unloaded, or loaded where negative).
    events : pandas.DataFrame
        Outages: ``kind`` (``closure``, ``silent station``, ``zero station``, ``feed gap``), ``station_id``
        (missing: all stations), ``start``, ``end`` (UTC).
    fleet : int
        The number of bikes.
    """

    settings: Settings
    trips: pd.DataFrame
    status: pd.DataFrame
    stations: pd.DataFrame
    weather: pd.DataFrame
    truth: pd.DataFrame
    true_rate: pd.DataFrame
    moves: pd.DataFrame
    events: pd.DataFrame
    fleet: int

    def summary(self) -> dict[str, float]:
        """Wanted trips by fate, and the share of open station-time without a bike."""
        fates = self.truth["fate"].value_counts()
        is_open = float((self.true_rate["exposure"] + self.true_rate["stockout"]).sum())
        return {
            "wanted": len(self.truth),
            **{fate.name.lower(): int(fates.get(fate.name.lower(), 0)) for fate in Fate},
            "out_of_stock": float(self.true_rate["stockout"].sum()) / is_open if is_open else 0.0,
        }

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write all tables into a folder, which appears whole or not at all.

        Parameters
        ----------
        folder : path
            Must not exist or be empty.
        overwrite : bool
            Replace a folder that holds nothing but a simulated city.

        Returns
        -------
        pathlib.Path
            The folder: ``trips.parquet``, ``status.parquet``, ``stations.csv``, ``weather.csv``,
            ``truth.parquet``, ``true_rate.parquet``, ``moves.parquet``, ``events.csv``, ``settings.json``.
            Equal cities give equal bytes.
        """
        target = check_folder(folder, overwrite=overwrite)
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as aside:
            aside.mkdir()
            for name, file in _FILES.items():
                _write(getattr(self, name), aside / file)
            settings = json.dumps({**asdict(self.settings), "fleet": self.fleet}, indent=2)
            (aside / _SETTINGS_FILE).write_text(settings + "\n", encoding="utf-8")
        return target


def check_folder(folder: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """The folder's full path if a city may be saved there, before anything is computed.

    Raises
    ------
    InputError
        Where it exists and is not an empty folder; with `overwrite`, where it holds more than a city.
    """
    target = Path(folder).resolve()
    if not target.exists():
        return target
    if not target.is_dir():
        raise InputError(f"{folder} is a file: expected a folder to write the city to. Name another.")
    present = {entry.name for entry in target.iterdir()}
    if present and not overwrite:
        raise InputError(f"{folder} is not empty. Name another folder, or ask to overwrite (--overwrite).")
    strange = sorted(present - {*_FILES.values(), _SETTINGS_FILE})
    if strange:
        raise InputError(
            f"{folder} holds more than a simulated city ({', '.join(map(repr, strange[:3]))}) "
            "and is not overwritten. Name another folder."
        )
    return target


def _write(table: pd.DataFrame, path: Path) -> None:
    if path.suffix == ".csv":
        table.to_csv(path, index=False, lineterminator="\n")
        return
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")  # one thread writes the same bytes every time
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("city_table", table)
        quoted = str(path).replace("'", "''")
        connection.execute(f"COPY city_table TO '{quoted}' (FORMAT parquet, COMPRESSION zstd)")


def simulate_city(
    stations: int = 40,
    days: int = 120,
    *,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> City:
    """Simulate a bike-share city whose true demand is known.

    Riders arrive by a Poisson process whose hourly rate follows the hour of the week, the kind of place,
    weather, holidays and a slow trend (negative binomial counts with `dispersion`). Whoever finds a bike
    rides; whoever does not walks to a neighbour or is lost. Bikes come back after a lognormal riding time, to
    the nearest free dock; trucks pull stocks towards a target at night.

    Parameters
    ----------
    stations, days, seed : int
        Size and seed.
    progress : callable, optional
        Called as ``progress(done, days)`` after every simulated day.
    **options
        Any other field of `Settings`: ``start``, ``timezone``, ``demand``, ``fleet_share``, ``rebalancing``,
        ``walk_probability``, ``walk_reach``, ``dispersion``, ``weather_effect``, ``trend_effect``,
        ``breakage``, ``closures``, ``dead_stations``, ``feed_gaps``.

    Returns
    -------
    City

    Examples
    --------
    >>> city = simulate_city(stations=8, days=7, seed=1)
    >>> summary = city.summary()
    >>> summary["served"] == len(city.trips)
    True
    >>> summary["wanted"] == summary["served"] + summary["lost"]
    True
    """
    settings = Settings(stations=stations, days=days, seed=seed, **options)
    hours = settings.hours()
    epoch, horizon = int(hours[0].timestamp()), 3600 * len(hours)
    place, sky = layout(settings), weather(settings)
    rate = rates(settings, place, sky)
    riders = draw_riders(settings, place, rate)
    outages = draw_outages(settings, horizon)
    history = operate(settings, place, riders, outages, progress)
    clock = _Clock(epoch, settings.timezone)
    ids = place.table["station_id"]
    ride_ids = _ride_ids(settings, int((history.started >= 0).sum()))
    return City(
        settings=settings,
        trips=_trips(place, riders, history, clock, ride_ids),
        status=status_log(settings, place, history.stock, outages, epoch, horizon),
        stations=place.table,
        weather=sky,
        truth=_truth(ids, riders, history, clock, ride_ids),
        true_rate=_true_rate(settings, ids, rate, riders, availability(settings, history.stock, outages, horizon)),
        moves=_moves(ids, history.stops, clock),
        events=_events(ids, outages, clock),
        fleet=history.fleet,
    )


@dataclass(frozen=True)
class _Clock:
    """Seconds of the simulation as moments."""

    epoch: int
    timezone: str

    def utc(self, seconds: IntArray) -> pd.DatetimeIndex:
        """In UTC; negative seconds are no moment."""
        moments = (seconds + self.epoch).astype("datetime64[s]")
        moments[seconds < 0] = np.datetime64("NaT")
        return pd.DatetimeIndex(moments.astype("datetime64[us]")).tz_localize("UTC")

    def wall(self, seconds: IntArray) -> pd.DatetimeIndex:
        """What a clock on the wall shows."""
        return self.utc(seconds).tz_convert(self.timezone).tz_localize(None)


def _ride_ids(settings: Settings, count: int) -> list[str]:
    """Distinct 16-digit hexadecimal names in no visible order: an odd factor permutes the 64-bit integers."""
    start = np.uint64(stream(settings, Stream.RIDE_IDS).integers(0, 2**64, dtype=np.uint64))
    numbers = start + np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return [f"{number:016X}" for number in numbers.tolist()]


def _order_of_trips(history: History) -> IntArray:
    """The riders who got a bike, in order of departure."""
    riders = np.flatnonzero(history.started >= 0)
    return riders[np.argsort(history.started[riders], kind="stable")]


def _trips(place: Layout, riders: Riders, history: History, clock: _Clock, ride_ids: list[str]) -> pd.DataFrame:
    who = _order_of_trips(history)
    start, end = history.start_station[who], history.end_station[who]
    name, ident, lat, lon = (place.table[column].array for column in ("name", "station_id", "lat", "lon"))
    kinds = pd.Series(["member", "casual"], dtype="str").array
    return pd.DataFrame(
        {
            "ride_id": ride_ids,
            "rideable_type": "classic_bike",
            "started_at": clock.wall(history.started[who]),
            "ended_at": clock.wall(history.ended[who]),
            "start_station_name": name.take(start),
            "start_station_id": ident.take(start),
            "end_station_name": name.take(end),
            "end_station_id": ident.take(end),
            "start_lat": lat.take(start),
            "start_lng": lon.take(start),
            "end_lat": lat.take(end),
            "end_lng": lon.take(end),
            "member_casual": kinds.take(riders.casual[who].astype(np.intp)),
        }
    )


def _truth(ids: pd.Series, riders: Riders, history: History, clock: _Clock, ride_ids: list[str]) -> pd.DataFrame:
    names = pd.Series([fate.name.lower() for fate in Fate], dtype="str")
    ride = pd.Series(index=range(len(riders.time)), dtype="str")
    ride.iloc[_order_of_trips(history)] = ride_ids
    return pd.DataFrame(
        {
            "wanted_at": clock.utc(riders.time),
            "station_id": ids.array.take(riders.origin),
            "destination_id": ids.array.take(riders.destination),
            "fate": names.array.take(history.fate),
            "served_at": clock.utc(history.started),
            "served_station_id": ids.array.take(history.start_station, allow_fill=True),
            "ride_id": ride.array,
        }
    )


def _true_rate(
    settings: Settings, ids: pd.Series, rate: Array, riders: Riders, shares: tuple[Array, Array]
) -> pd.DataFrame:
    n_hours, n_stations = rate.shape
    cell = riders.origin * n_hours + riders.time // 3600
    exposure, stockout = shares
    return pd.DataFrame(
        {
            "station_id": ids.array.take(np.repeat(np.arange(n_stations), n_hours)),
            "start": np.tile(settings.hours().tz_convert("UTC"), n_stations),
            "rate": rate.T.ravel(),
            "wanted": np.bincount(cell, minlength=rate.size).astype(np.int32),
            "exposure": exposure.ravel(),
            "stockout": stockout.ravel(),
        }
    )


def _moves(ids: pd.Series, stops: IntArray, clock: _Clock) -> pd.DataFrame:
    return pd.DataFrame(
        {"time": clock.utc(stops[:, 0]), "station_id": ids.array.take(stops[:, 1]), "bikes": stops[:, 2]}
    )


def _events(ids: pd.Series, outages: list[Outage], clock: _Clock) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "kind": pd.Series([o.kind for o in outages], dtype="str"),
            "station_id": pd.Series([None if o.station is None else ids[o.station] for o in outages], dtype="str"),
            "start": clock.utc(np.array([o.start for o in outages], dtype=np.intp)),
            "end": clock.utc(np.array([o.end for o in outages], dtype=np.intp)),
        }
    )
