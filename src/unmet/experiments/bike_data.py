"""Daily pickups, stock-out labels and weather of zones, from three sources with one function each.

Every source returns `Zone`s. `write_zones` and `read_zones` store them in one CSV (zone, day, pickups, stockout, then
weather), which is also the format of a user's own data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from unmet._exceptions import FileFormatError, InputError
from unmet._storage.writing import write_text
from unmet._typing import Array, BoolArray
from unmet.experiments._data import data_file, read_table

__all__ = ["Say", "Zone", "nyc_stations", "read_zones", "write_zones", "zone_of"]

NYC_STATIONS = (368, 514, 128)
_KEYS = ("zone", "day", "pickups", "stockout")

NYC_COUNTS = "citibike_nyc/daily_counts_and_stockouts_2017.csv.gz"
NYC_WEATHER = "weather/nyc_2017-2018.csv"
NYC_ORIGIN = (
    "https://github.com/DanieleGammelli/variational-poisson-rnn (pickups) and half-hourly station status of Citi Bike, "
    "both open data of the operator"
)
Say = Callable[[str], None]


@dataclass(frozen=True)
class Zone:
    """Days of one zone.

    Attributes
    ----------
    name : str
        Name in tables.
    day : DatetimeIndex
        Local days, increasing. Days with too little data are left out.
    pickups : array
        Pickups of each day, treated as the true demand (paper section 4.4.2).
    stockout : array of bool
        Whether at some moment of the day no vehicle could be rented.
    weather : DataFrame
        One column per feature, without missing values.
    """

    name: str
    day: pd.DatetimeIndex
    pickups: Array
    stockout: BoolArray
    weather: pd.DataFrame

    @property
    def t(self) -> Array:
        """Days since the first."""
        return np.asarray((self.day - self.day[0]).days, dtype=float)

    def inputs(self) -> Array:
        """Return the columns of the models: the day, then weather in units of its own standard deviation."""
        weather = self.weather.to_numpy(float)
        spread = weather.std(axis=0)
        return np.column_stack([self.t, (weather - weather.mean(axis=0)) / np.where(spread > 0, spread, 1.0)])


def nyc_stations(say: Say = print) -> list[Zone]:
    """Read the single stations 368, 514 and 128 of Citi Bike in 2017."""
    columns = ("station_id", "day", "pickups", "n_snapshots", "n_active", "n_empty")
    counts = read_table(data_file(NYC_COUNTS, NYC_ORIGIN, _KEYS), columns)
    counts = counts.assign(day=pd.to_datetime(counts.day))
    weather = _nyc_weather()
    zones = []
    for station in NYC_STATIONS:
        own = counts[(counts.station_id == station) & counts.n_snapshots.gt(0)]
        # Days on which a station was out of service for some time are left out: that is not a stock-out.
        whole = own[own.n_active == own.n_snapshots]
        gone = len(own) - len(whole)
        say(f"station {station}: {len(own)} days of 2017 with status, {gone} left out (not in service all day)")
        table = pd.DataFrame({"day": whole.day, "pickups": whole.pickups, "stockout": whole.n_empty > 0})
        zones.append(zone_of(f"station {station}", table, weather, say))
    return zones


def _nyc_weather() -> pd.DataFrame:
    origin = "a daily reading of temperature, rain and wind for New York"
    columns = ("date", "temprature", "precip_prob", "wind_speed")
    table = read_table(data_file(NYC_WEATHER, origin, _KEYS), columns)
    weather = pd.DataFrame(
        {
            "temperature": table.temprature,
            "precipitation": table.precip_prob,
            "wind_speed": table.wind_speed.where(table.wind_speed < 9999),  # 9999 stands for no reading
        }
    )
    return weather.set_index(pd.to_datetime(table.date, format="%m/%d/%Y"))


def zone_of(name: str, table: pd.DataFrame, weather: pd.DataFrame, say: Say) -> Zone:
    """Return a zone from its days (day, pickups, stockout) and weather; days without weather are left out and noted."""
    joined = table.merge(weather, left_on="day", right_index=True, how="left").sort_values("day")
    known = joined.dropna()
    if len(known) < len(joined):
        say(f"{name}: {len(joined) - len(known)} days left out (no weather)")
    if known.day.duplicated().any():
        raise FileFormatError(f"{name}: {known.day[known.day.duplicated()].iloc[0]:%Y-%m-%d} occurs more than once.")
    if len(known) < 20 or not known.stockout.any() or known.stockout.all():
        raise InputError(
            f"{name}: needs 20 days or more, some with and some without a stock-out; has {len(known)} days, "
            f"{int(known.stockout.sum())} with one."
        )
    return Zone(
        name,
        pd.DatetimeIndex(known.day),
        known.pickups.to_numpy(float),
        known.stockout.to_numpy(bool),
        known[list(weather.columns)].reset_index(drop=True),
    )


def write_zones(zones: Sequence[Zone], path: Path) -> None:
    """Write zones to one CSV that `read_zones` reads."""
    frames = [
        pd.DataFrame(
            {
                "zone": z.name,
                "day": z.day.strftime("%Y-%m-%d"),
                "pickups": z.pickups,
                "stockout": z.stockout.astype(int),
            }
        ).join(z.weather)
        for z in zones
    ]
    write_text(path, pd.concat(frames).to_csv(index=False, lineterminator="\n"))


def read_zones(path: Path, say: Say = print) -> list[Zone]:
    """Read zones from a user's CSV: zone, day, pickups, stockout (0 or 1), and one or more numeric weather columns."""
    table = read_table(path, _KEYS)
    features = [c for c in table.columns if c not in _KEYS]
    if not features:
        raise FileFormatError(f"{path}: no weather; expected one or more numeric columns besides {', '.join(_KEYS)}.")
    if table.empty:
        raise FileFormatError(f"{path}: there is no row below the header; expected one for each zone and day.")
    table = table.assign(day=pd.to_datetime(table.day, errors="coerce"))
    for column in ("pickups", "stockout", *features):
        table[column] = pd.to_numeric(table[column], errors="coerce")
    if table[list(_KEYS)].isna().any(axis=None) or not table.stockout.isin([0, 1]).all() or (table.pickups < 0).any():
        raise FileFormatError(
            f"{path}: every row needs a zone, a day, pickups of zero or more, and a stockout of 0 or 1."
        )
    zones = []
    for name, own in table.groupby("zone", sort=False):
        days = own[["day", "pickups"]].assign(stockout=own.stockout.astype(bool))
        zones.append(zone_of(str(name), days, own.set_index("day")[features], say))
    return zones
