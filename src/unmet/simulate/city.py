"""A whole simulated city: its records as an operator would publish them, and the truth behind them."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet._memory import check_memory
from unmet._numbers import read_switch
from unmet._storage.files import read_whole, real_path
from unmet._storage.writing import replacing
from unmet._typing import IntArray
from unmet.simulate.demand import Layout, draw_riders, layout, rates, weather
from unmet.simulate.feed import status_log
from unmet.simulate.operation import Fate, operate
from unmet.simulate.settings import REALISTIC, Settings
from unmet.simulate.trips import ride_ids, trip_table
from unmet.simulate.troubles import Trouble, draw_troubles
from unmet.simulate.truth import Clock, rider_table, state_table, station_hours

__all__ = ["City", "check_folder", "read_city", "simulate_city"]

_FILES = {
    "trips": "trips.parquet",
    "status": "status.parquet",
    "stations": "stations.csv",
    "weather": "weather.csv",
    "truth": "truth.parquet",
    "true_rate": "true_rate.parquet",
    "states": "states.parquet",
    "moves": "moves.parquet",
    "events": "events.csv",
}
_SETTINGS_FILE = "settings.json"
_VALET_STORE = 2  # bikes beside the docks, per dock


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
        Hourly: ``time`` (UTC), ``temperature_c`` (°C), ``precipitation_mm`` (mm), ``wind_speed_ms`` (m/s).
    truth : pandas.DataFrame
        Every wanted trip once: ``wanted_at`` (UTC), ``station_id`` and ``destination_id`` wanted, ``fate``
        (``served``; ``walked`` to ``served_station_id``; ``lost`` at an open and empty station; ``closed``:
        the station was closed or dead), and ``served_at``, ``served_station_id``, ``ride_id`` of the trip;
        ``arrived_at`` (first at the destination), ``returned_at`` and ``returned_station_id``.
    true_rate : pandas.DataFrame
        One row per station and hour: ``station_id``, ``start`` (UTC), ``rate`` (expected wanted trips,
        constant within the hour), ``wanted`` (how many there were), ``exposure`` and ``stockout`` (true
        shares of the hour with a bike to rent, and open without one; the rest is closed), ``shock`` (the part of
        the log rate that no covariate explains).
        Departures: ``served_here``, ``walked_on``, ``lost``, ``closed`` (they add up to ``wanted``) and
        ``walked_in`` (trips of riders who wanted to start elsewhere; ``served_here + walked_in`` are the trips).
        Returns: ``wanted_returns`` (riders who came with a bike), ``returned_here``, ``rode_on`` (found no dock;
        the two add up to ``wanted_returns``) and ``rode_in`` (``returned_here + rode_in`` are the returns).
        Shares of the hour: ``out_though_listed`` (the part of ``stockout`` with a bike listed that nobody could
        rent), ``dock_exposure`` and ``full`` (open for returns, with and without a free dock).
        ``unusable`` is the mean number of bikes listed that nobody could rent.
    states : pandas.DataFrame
        The true number of bikes at each station from each change to its next: ``station_id``, ``time`` (UTC),
        ``rentable``, ``unusable`` (listed, but nobody can rent them), ``disabled``.
    moves : pandas.DataFrame
        The trucks' stops: ``time`` (UTC), ``station_id``, ``bikes`` (unloaded, or loaded where negative).
    events : pandas.DataFrame
        Troubles: ``kind`` (``closure``, ``reopening``, ``silent station``, ``zero station``, ``feed gap``,
        ``not yet open``, ``left``, ``quiet closure``, ``stuck terminal``, ``valet``, ``move``), ``station_id``
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
    states: pd.DataFrame
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

    def by_minute(self, column: str) -> IntArray:
        """A column of `states` at the start of each minute, (stations, minutes), stations in the order of `stations`.

        Examples
        --------
        >>> city = simulate_city(stations=4, days=2, seed=1, realistic=True)
        >>> out_though_listed = (city.by_minute("rentable") == 0) & (city.by_minute("unusable") > 0)
        >>> out_though_listed.shape
        (4, 2880)
        """
        begin = self.true_rate["start"].iloc[0]
        minutes = np.arange(60 * len(self.weather))
        states = self.states.groupby("station_id")
        rows = []
        for ident in self.stations["station_id"]:
            log = states.get_group(ident)
            since = np.ceil((log["time"] - begin).dt.total_seconds().to_numpy() / 60.0)
            rows.append(log[column].to_numpy(dtype=np.intp)[np.searchsorted(since, minutes, side="right") - 1])
        return np.stack(rows)

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
            ``truth.parquet``, ``true_rate.parquet``, ``states.parquet``, ``moves.parquet``,
            ``events.csv``, ``settings.json``.
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


def read_city(folder: str | os.PathLike[str]) -> City:
    """Simulate the city of a folder again, from its ``settings.json``: equal settings give equal cities.

    Raises
    ------
    InputError
        If the folder does not contain the settings of a city.
    """
    path = Path(folder) / _SETTINGS_FILE
    try:
        settings = json.loads(read_whole(path))
        del settings["fleet"]
        return simulate_city(**settings)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{str(folder)!r} is not the folder of a simulated city: {_SETTINGS_FILE} is missing or damaged. Make one "
            "with: unmet simulate --out city"
        ) from error


def check_folder(folder: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """The folder's full path if a city may be saved there, before anything is computed.

    Raises
    ------
    InputError
        Where it exists and is not an empty folder; with `overwrite`, where it holds more than a city.
    """
    read_switch(overwrite, "overwrite")
    target = real_path(Path(folder))
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


def _refuse_unknown(options: dict[str, Any]) -> None:
    """Refuse options that are no fields of `Settings`, with the nearest field."""
    known = [field.name for field in fields(Settings)]
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise InputError(f"There is no setting {name!r}.{hint} Settings are {', '.join(known)}.")


def _check_size(settings: Settings, hours: int) -> None:
    """Refuse a city that does not fit into memory. Numbers per hour, look at a station and trip are measured."""
    looks = sum(60.0 / minutes for minutes, _ in settings.cadences() if minutes)
    trips = settings.demand * settings.stations * settings.days
    numbers = settings.stations * hours * (45 + 16 * looks) + 100 * trips
    what = f"A city of {settings.stations:,} stations and {settings.days:,} days"
    check_memory(int(numbers), what, "Simulate fewer stations or days, fewer polls or less demand.")


def simulate_city(
    stations: int = 40,
    days: int = 120,
    *,
    seed: int,
    realistic: bool = False,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> City:
    """Simulate a bike-share city whose true demand is known.

    Riders arrive by a Poisson process whose hourly rate follows the hour of the week, the kind of place,
    weather, holidays and a slow trend (negative binomial counts with `dispersion`). Whoever finds a bike
    rides; whoever does not walks to a neighbour or is lost. Bikes come back after a lognormal riding time, to
    the nearest free dock; trucks pull stocks towards a target at night. By default every listed bike can be rented
    and nobody walks; `realistic` makes the city as real ones were measured to be.

    Parameters
    ----------
    stations, days, seed : int
        Size and seed.
    realistic : bool
        Start from `REALISTIC` instead of the defaults of `Settings`: bikes that are listed but cannot be rented,
        riders who walk on, shocks, a feed that is polled; each as strong as measured in real cities. Options win,
        so that ``realistic=True, walk_probability=0.0, shock_effect=0.0`` has neither walkers nor shocks.
    progress : callable, optional
        Called as ``progress(done, days)`` after every simulated day.
    **options
        Any other field of `Settings`.

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
    read_switch(realistic, "realistic")
    _refuse_unknown(options)
    settings = Settings(stations=stations, days=days, seed=seed, **(REALISTIC if realistic else {}) | options)
    hours = settings.hours()
    _check_size(settings, len(hours))
    epoch, horizon = int(hours[0].timestamp()), 3600 * len(hours)
    troubles = draw_troubles(settings, horizon)
    place, sky = _with_valets(layout(settings), troubles), weather(settings)
    rate = rates(settings, place, sky)
    riders = draw_riders(settings, place, rate)
    history = operate(settings, place, riders, troubles, progress)
    clock = Clock(epoch, settings.timezone)
    ids = place.table["station_id"]
    names = ride_ids(settings, int((history.started >= 0).sum()))
    return City(
        settings=settings,
        trips=trip_table(settings, place, riders, history, troubles, clock, names),
        status=status_log(settings, place, history.stock, troubles, epoch, horizon),
        stations=place.table,
        weather=sky,
        truth=rider_table(ids, riders, history, clock, names),
        true_rate=station_hours(settings, place, rate, riders, history, troubles),
        states=state_table(ids, history.stock, horizon, clock),
        moves=_moves(ids, history.stops, clock),
        events=_events(ids, troubles, clock),
        fleet=history.fleet,
    )


def _with_valets(place: Layout, troubles: list[Trouble]) -> Layout:
    valets = [t.station for t in troubles if t.kind == "valet" and t.station is not None]
    store = place.store.copy()
    store[valets] = _VALET_STORE * place.capacity[valets]
    return replace(place, store=store)


def _moves(ids: pd.Series, stops: IntArray, clock: Clock) -> pd.DataFrame:
    return pd.DataFrame(
        {"time": clock.utc(stops[:, 0]), "station_id": ids.array.take(stops[:, 1]), "bikes": stops[:, 2]}
    )


def _events(ids: pd.Series, troubles: list[Trouble], clock: Clock) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "kind": pd.Series([t.kind for t in troubles], dtype="str"),
            "station_id": pd.Series([None if t.station is None else ids[t.station] for t in troubles], dtype="str"),
            "start": clock.utc(np.array([t.start for t in troubles], dtype=np.intp)),
            "end": clock.utc(np.array([t.end for t in troubles], dtype=np.intp)),
        }
    )
