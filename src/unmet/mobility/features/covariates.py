"""Covariates of demand: calendar, holidays, daylight and weather.

Every function takes a panel, a frame with ``zone, start`` (UTC), ``start_local`` (local time) and ``minutes``, and
returns a new frame with columns added. Nothing is filled in: a bin without a weather reading has NaN, and
`Weathered.gaps` lists those bins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from unmet._exceptions import InputError
from unmet._typing import Array
from unmet.mobility.clock.public_holidays import public_holidays

__all__ = ["Weathered", "add_calendar", "add_daylight", "add_holidays", "add_weather", "solar_elevation"]

# Height of the sun's centre at sunrise and sunset, in degrees: refraction 34', half its disc 16'.
_HORIZON = -0.833


def add_calendar(panel: pd.DataFrame) -> pd.DataFrame:
    """Add ``t`` (days since the panel's first bin), ``hour``, ``day_of_week`` and ``hour_of_week``.

    All but `t` are in local time at the bin's start: `hour` is from 0 to 24, with fractions; `day_of_week` is 0 on
    Monday; ``hour_of_week = 24 * day_of_week + hour``.

    Examples
    --------
    >>> start = pd.to_datetime(["2021-03-14 06:30", "2021-03-14 07:30"], utc=True)
    >>> panel = pd.DataFrame({"zone": "a", "start": start, "minutes": 60})
    >>> panel["start_local"] = start.tz_convert("America/New_York").tz_localize(None)
    >>> add_calendar(panel)[["t", "hour", "day_of_week", "hour_of_week"]].round(3)
           t  hour  day_of_week  hour_of_week
    0  0.000   1.5            6         145.5
    1  0.042   3.5            6         147.5
    """
    start, local = _starts(panel), _local(panel)
    result = panel.copy()
    hour = local.dt.hour + local.dt.minute / 60 + local.dt.second / 3600
    result["t"] = (start - start.min()) / pd.Timedelta(days=1)
    result["hour"] = hour
    result["day_of_week"] = local.dt.day_of_week
    result["hour_of_week"] = 24 * local.dt.day_of_week + hour
    return result


def add_holidays(panel: pd.DataFrame, country: str, subdivision: str | None = None) -> pd.DataFrame:
    """Add ``holiday``: whether the bin starts on a public holiday, in local time.

    Parameters
    ----------
    panel : DataFrame
        Needs ``start_local``.
    country, subdivision : str
        Codes of the package `holidays`: ``"US"``, ``"NY"``.

    Examples
    --------
    >>> panel = pd.DataFrame({"start_local": pd.to_datetime(["2021-07-04 09:00", "2021-07-06 09:00"])})
    >>> add_holidays(panel, "US")["holiday"].tolist()
    [True, False]
    """
    local = _local(panel)
    code = country if subdivision is None else f"{country}:{subdivision}"
    days = public_holidays(code, (int(year) for year in local.dt.year.dropna().unique()))
    result = panel.copy()
    result["holiday"] = local.dt.date.isin(days).to_numpy(dtype=bool)
    return result


def add_daylight(panel: pd.DataFrame, latitude: float, longitude: float) -> pd.DataFrame:
    """Add ``daylight``: the share of the bin between sunrise and sunset, to the minute.

    Examples
    --------
    >>> panel = pd.DataFrame({"start": pd.to_datetime(["2021-06-21 04:00", "2021-06-21 09:00"], utc=True)})
    >>> panel["minutes"] = 60
    >>> add_daylight(panel, 40.72, -74.04)["daylight"].round(2).tolist()  # the sun rises at 9:25 UTC
    [0.0, 0.58]
    """
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
        raise InputError(
            f"daylight: expected a latitude of -90 to 90 and a longitude of -180 to 180; "
            f"got {latitude!r} and {longitude!r}."
        )
    start = _starts(panel)
    minutes = _column(panel, "minutes").to_numpy(dtype=np.int64)
    if minutes.size and minutes.min() < 1:
        raise InputError(f"daylight: expected bins of at least one minute; got one of {minutes.min()}.")
    result = panel.copy()
    seconds = start.dt.as_unit("s").dt.tz_localize(None).to_numpy().astype(np.int64)
    # All zones of a panel have the same bins: each is computed once.
    bins, place = np.unique(np.column_stack([seconds, minutes]), axis=0, return_inverse=True)
    shares = np.empty(len(bins))
    step = max(1, 1_000_000 // int(minutes.max(initial=1)))
    for low in range(0, len(bins), step):
        part = bins[low : low + step]
        ends = np.cumsum(part[:, 1])
        first = np.repeat(part[:, 0], part[:, 1])
        nth = np.arange(ends[-1]) - np.repeat(ends - part[:, 1], part[:, 1])
        light = solar_elevation(first + 60 * nth + 30.0, latitude, longitude) > _HORIZON
        shares[low : low + step] = np.add.reduceat(light.astype(float), ends - part[:, 1]) / part[:, 1]
    result["daylight"] = shares[place.ravel()]
    return result


def solar_elevation(seconds: Array, latitude: float, longitude: float) -> Array:
    """Give the height of the sun's centre above the horizon in degrees, without refraction.

    The low-precision formulas of the Astronomical Almanac (Michalsky 1988, Solar Energy 40(3), 227-235):
    good to 0.01 degrees for the years 1950 to 2050, a few seconds of sunrise in the latitudes of cities.

    Parameters
    ----------
    seconds : array
        Since 1970-01-01 UTC.
    latitude, longitude : float
        Degrees, north and east positive.

    Examples
    --------
    >>> noon = np.array([1_624_276_800.0])  # 2021-06-21 12:00 UTC
    >>> solar_elevation(noon, 23.44, 0.0).round(0)
    array([90.])
    """
    n = np.asarray(seconds, dtype=np.float64) / 86400.0 - 10957.5  # days since J2000.0
    mean_longitude = 280.460 + 0.9856474 * n
    anomaly = np.radians(357.528 + 0.9856003 * n)
    ecliptic = np.radians(mean_longitude + 1.915 * np.sin(anomaly) + 0.020 * np.sin(2 * anomaly))
    obliquity = np.radians(23.439 - 4e-7 * n)
    right_ascension = np.arctan2(np.cos(obliquity) * np.sin(ecliptic), np.cos(ecliptic))
    declination = np.arcsin(np.sin(obliquity) * np.sin(ecliptic))
    # Greenwich mean sidereal time, as an angle.
    sidereal = np.radians((280.46061837 + 360.98564736629 * n) % 360.0)
    hour_angle = sidereal + np.radians(longitude) - right_ascension
    phi = np.radians(latitude)
    height = np.sin(phi) * np.sin(declination) + np.cos(phi) * np.cos(declination) * np.cos(hour_angle)
    elevation: Array = np.degrees(np.arcsin(np.clip(height, -1.0, 1.0)))
    return elevation


@dataclass(frozen=True)
class Weathered:
    """A panel with weather.

    Attributes
    ----------
    panel : DataFrame
        The panel with the weather columns added; NaN in bins without a reading.
    gaps : DataFrame
        ``column, first, last, bins``: runs of bins without a value, per weather column (UTC).
    max_age : Timedelta
        Largest age of a reading.
    """

    panel: pd.DataFrame
    gaps: pd.DataFrame
    max_age: pd.Timedelta


def add_weather(panel: pd.DataFrame, weather: pd.DataFrame, max_age: str | pd.Timedelta | None = None) -> Weathered:
    """Add the latest weather known at each bin's start, if it is not too old.

    Parameters
    ----------
    panel : DataFrame
        Needs ``start`` (UTC).
    weather : DataFrame
        Column ``at`` (UTC; naive times are read as UTC) and numbers, such as the table ``weather`` of
        `unmet.mobility.records.read.Records`. Columns of the panel are refused.
    max_age : str or Timedelta, optional
        An older reading is not used: the bin has NaN and is in the gaps. By default 1.05 times the typical step of
        the readings, so that a daily reading covers a day of 25 hours.

    Examples
    --------
    >>> panel = pd.DataFrame({"start": pd.date_range("2021-01-01", periods=4, freq="12h", tz="UTC")})
    >>> weather = pd.DataFrame({"at": pd.to_datetime(["2021-01-01", "2021-01-03"]), "rain": [0.5, 0.0]})
    >>> result = add_weather(panel, weather, max_age="24h")
    >>> result.panel["rain"].tolist()
    [0.5, 0.5, 0.5, nan]
    >>> result.gaps[["column", "bins"]].to_dict("records")
    [{'column': 'rain', 'bins': 1}]
    """
    start = _starts(panel)
    at = _utc(_column(weather, "at"), "weather")
    columns = [c for c in weather.columns if c != "at" and pd.api.types.is_numeric_dtype(weather[c])]
    taken = [c for c in columns if c in panel.columns]
    if taken:
        raise InputError(f"weather: the panel already has {', '.join(map(repr, taken))}; rename these columns.")
    if at.duplicated().any():
        many = int(at.duplicated().sum())
        raise InputError(f"weather: {many} readings have the same time as another; keep one of each time.")
    order = np.argsort(at.to_numpy(), kind="stable")
    times = at.to_numpy()[order]
    age = _max_age(times, max_age)
    starts = start.to_numpy()
    position = np.searchsorted(times, starts, side="right") - 1
    known = position >= 0
    if len(times):
        known &= starts - times[np.maximum(position, 0)] <= age.to_timedelta64()
    added = {}
    for column in columns:
        values = weather[column].to_numpy(dtype=np.float64, na_value=np.nan)[order]
        added[column] = np.where(known, values[np.maximum(position, 0)] if len(times) else np.nan, np.nan)
    # Joined at once: a frame into which columns are inserted one by one becomes slow, and pandas warns.
    result = pd.concat([panel, pd.DataFrame(added, index=panel.index)], axis=1)
    return Weathered(result, _gaps(result, start, columns), age)


def _max_age(times: npt.NDArray[np.datetime64], given: str | pd.Timedelta | None) -> pd.Timedelta:
    if given is not None:
        try:
            age = pd.Timedelta(given)
        except ValueError as error:
            raise InputError(f"max_age: expected a length of time such as '24h', got {given!r}.") from error
        if not age >= pd.Timedelta(0):
            raise InputError(f"max_age: expected a length of time such as '24h', got {given!r}.")
        return age
    if len(times) < 2:
        return pd.Timedelta(hours=24)
    return pd.Timedelta(np.median(np.diff(times).astype("timedelta64[s]").astype(np.int64)) * 1.05, unit="s")


def _gaps(panel: pd.DataFrame, start: pd.Series, columns: list[str]) -> pd.DataFrame:
    """List the runs of bins without a value; bins are the panel's distinct starts, in order."""
    rows: list[tuple[str, pd.Timestamp, pd.Timestamp, int]] = []
    bins, first_row = np.unique(start.to_numpy(), return_index=True)
    for column in columns:
        missing = panel[column].isna().to_numpy()[first_row]
        edges = np.flatnonzero(np.diff(np.concatenate([[False], missing, [False]]).astype(np.int8)))
        for low, high in zip(edges[::2], edges[1::2], strict=True):
            first, last = (pd.Timestamp(bins[i], tz="UTC") for i in (low, high - 1))
            rows.append((str(column), first, last, int(high - low)))
    return pd.DataFrame(rows, columns=["column", "first", "last", "bins"])


def _column(frame: pd.DataFrame, name: str) -> pd.Series:
    if name not in frame.columns:
        raise InputError(f"expected a column {name!r}; found: {', '.join(map(str, frame.columns))}.")
    return frame[name]


def _starts(panel: pd.DataFrame) -> pd.Series:
    return _utc(_column(panel, "start"), "start")


def _utc(times: pd.Series, what: str) -> pd.Series:
    """Convert times to naive UTC, for arithmetic."""
    if not pd.api.types.is_datetime64_any_dtype(times):
        raise InputError(f"{what}: expected times, got a column of {times.dtype}.")
    if times.isna().any():
        raise InputError(f"{what}: {int(times.isna().sum())} times are missing.")
    return times.dt.tz_convert("UTC").dt.tz_localize(None) if times.dt.tz is not None else times


def _local(panel: pd.DataFrame) -> pd.Series:
    """Give local times: naive times unchanged, aware ones without their zone."""
    local = _column(panel, "start_local")
    if not pd.api.types.is_datetime64_any_dtype(local):
        raise InputError(f"start_local: expected times, got a column of {local.dtype}.")
    return local.dt.tz_localize(None) if local.dt.tz is not None else local
