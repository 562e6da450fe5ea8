"""Who wants to ride when, from where and to where: all that happens whatever the supply.

Every source of randomness is a stream of its own, so that changing one option does not scramble the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum, auto
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
from pandas.tseries.holiday import USFederalHolidayCalendar
from scipy.signal import lfilter

from unmet._typing import Array, BoolArray, IntArray
from unmet.simulate.settings import Settings

__all__ = [
    "UNTIL_FOUND",
    "Layout",
    "Riders",
    "Stream",
    "draw_riders",
    "hour_of_week",
    "layout",
    "rates",
    "shocks",
    "stream",
    "weather",
]

# Shocks, calibrated on a real city of 612 stations. There a factor of the whole city in each hour lowers the
# dispersion of hourly counts by 0.033 = 0.18**2, and a factor of the neighbourhood by some 0.04. The covariance of
# standardised residuals is .096 within 250 m, .070 to 500 m, .043 to 1 km, .009 to 2 km; simulated with 400 stations
# and the default demand it is .08, .06, .03, .00.
_CITY_SHOCK, _LOCAL_SHOCK = 0.18, 0.25
_SHOCK_LENGTH = 600.0  # metres
_SHOCK_HOURS = 3.0
_BRIEFLY = 1200.0  # seconds, the mean time for which a bike is briefly unusable
UNTIL_FOUND = -1
_CENTRE, _CENTRE_HOURS = (40.7200, -74.0400), -5.0  # and its hours east of UTC in winter
_STREETS = (
    "Ash",
    "Birch",
    "Cedar",
    "Dock",
    "Elm",
    "Ferry",
    "Grove",
    "Harbor",
    "Iron",
    "Juniper",
    "King",
    "Lake",
)


class Stream(IntEnum):
    """The independent sources of randomness; new ones go at the end, so that old seeds keep their cities."""

    POSITIONS = auto()
    STATIONS = auto()
    WEATHER = auto()
    TREND = auto()
    DISPERSION = auto()
    ARRIVALS = auto()
    MOMENTS = auto()
    DESTINATIONS = auto()
    PACE = auto()
    WALKING = auto()
    BREAKAGE = auto()
    MEMBERSHIP = auto()
    SERVICE = auto()
    CLOSURES = auto()
    DEAD_STATIONS = auto()
    FEED_GAPS = auto()
    REPEATS = auto()
    RIDE_IDS = auto()
    SHOCKS = auto()
    UNUSABLE = auto()
    INSPECTIONS = auto()
    REOPENINGS = auto()
    STATION_TROUBLES = auto()
    POLLS = auto()
    POLL_REPEATS = auto()
    RELOCATIONS = auto()


def stream(settings: Settings, name: Stream) -> np.random.Generator:
    """The generator of one source of randomness."""
    return np.random.default_rng([settings.seed, int(name)])


@dataclass(frozen=True)
class Layout:
    """The stations: where they are, how large, how busy, and what kind of place they stand in."""

    table: pd.DataFrame  # as an operator publishes it
    capacity: IntArray
    popularity: Array  # of departures, mean 1
    pull: Array  # of arrivals; where it differs from popularity (a hill, a terminus) bikes drain or pile up
    mix: Array  # (stations, 3): residential, office, leisure shares
    distance: Array  # (stations, stations), metres
    store: IntArray  # bikes that a valet can hold beside the docks, which the feed does not show


def _longitude(settings: Settings) -> float:
    """Longitude of the middle: 15 degrees for each hour of the time zone. Readers of records compare the two."""
    zone = ZoneInfo(settings.timezone)
    offsets = [zone.utcoffset(datetime(2020, month, 1)) for month in (1, 7)]
    hours = min(offset.total_seconds() for offset in offsets if offset is not None) / 3600
    if hours == _CENTRE_HOURS:
        return _CENTRE[1]
    return (_CENTRE[1] + 15 * (hours - _CENTRE_HOURS) + 180) % 360 - 180


def layout(settings: Settings) -> Layout:
    """Scatter stations evenly over a disc; offices gather in the centre, busy places get more docks."""
    n = settings.stations
    rng = stream(settings, Stream.POSITIONS)
    radius = np.sqrt(n / (np.pi * settings.density)) * 1000.0
    place = np.empty((n, 2))
    for i in range(n):  # best of ten candidates: far from those already there (Mitchell 1991)
        r, angle = radius * np.sqrt(rng.random(10)), 2 * np.pi * rng.random(10)
        candidates = np.column_stack([r * np.cos(angle), r * np.sin(angle)])
        apart = np.hypot(*(candidates[:, None] - place[None, :i]).transpose(2, 0, 1)).min(axis=1, initial=np.inf)
        place[i] = candidates[np.argmax(apart)]
    distance = np.hypot(*(place[:, None] - place[None]).transpose(2, 0, 1))

    rng = stream(settings, Stream.STATIONS)
    central = np.exp(-((np.hypot(*place.T) / (0.55 * radius)) ** 2))
    mix = rng.gamma(np.column_stack([2.2 - 1.5 * central, 0.4 + 2.4 * central, np.full(n, 0.8)]))
    mix /= mix.sum(axis=1, keepdims=True)
    popularity = np.exp(0.45 * rng.standard_normal(n)) * (0.8 + 0.6 * central)
    popularity /= popularity.mean()
    docks = 24.0 * popularity**0.7 * np.exp(0.15 * rng.standard_normal(n))
    capacity = np.clip(np.rint(docks), 10, 70).astype(np.intp)

    pull = popularity * np.exp(0.25 * rng.standard_normal(n))

    lat = _CENTRE[0] + place[:, 1] / 111_320.0
    lon = _longitude(settings) + place[:, 0] / (111_320.0 * np.cos(np.deg2rad(_CENTRE[0])))
    ids = [f"SIM{i + 1:03d}" for i in range(n)]
    names = [f"{_STREETS[i % len(_STREETS)]} St & {i // len(_STREETS) + 1} Ave" for i in range(n)]
    table = pd.DataFrame(
        {
            "station_ix": np.arange(n, dtype=np.int16),
            "station_id": ids,
            "short_name": ids,
            "name": names,
            "lat": lat.round(7),
            "lon": lon.round(7),
            "capacity": capacity,
        }
    )
    return Layout(table, capacity, popularity, pull, mix, distance, np.zeros(n, dtype=np.intp))


def weather(settings: Settings) -> pd.DataFrame:
    """Hourly temperature (°C), rain (mm) and wind (m/s): season, hour, slow weather, rain in spells."""
    hours = settings.hours()
    n = len(hours)
    rng = stream(settings, Stream.WEATHER)
    slow, gusty = (_autoregression(rng.standard_normal(n), memory) for memory in (48.0, 12.0))
    # A chain of two states: an hour of rain starts with probability 1/60 and ends with probability 1/5.
    change = rng.random(n)
    wet = np.empty(n, dtype=bool)
    raining = False
    for i, u in enumerate(change.tolist()):
        raining = u >= 1 / 5 if raining else u < 1 / 60
        wet[i] = raining
    rain = np.where(wet, rng.gamma(0.8, 1.5, n), 0.0)
    season = -np.cos(2 * np.pi * (hours.day_of_year.to_numpy() - 20) / 365.25)
    daily = np.cos(2 * np.pi * (hours.hour.to_numpy() - 15) / 24)
    return pd.DataFrame(
        {
            "time": hours.tz_convert("UTC"),
            "temperature_c": np.round(12.5 + 12.0 * season + 4.0 * daily + 4.0 * slow - 2.0 * wet, 1),
            "precipitation_mm": rain.round(1),
            "wind_speed_ms": np.round(3.5 * np.exp(0.4 * gusty), 1),
        }
    )


def _autoregression(noise: Array, memory: float) -> Array:
    """Standard normal noise made slow: unit variance, correlation exp(-1/memory) from hour to hour."""
    rho = np.exp(-1.0 / memory)
    noise = noise * np.sqrt(1 - rho**2)
    noise[0] /= np.sqrt(1 - rho**2)  # start in the stationary state
    return np.asarray(lfilter([1.0], [1.0, -rho], noise, axis=0))


def hour_of_week(hours: pd.DatetimeIndex) -> IntArray:
    """0 to 167 from Monday midnight, by the wall clock; a US federal holiday is ridden like a Sunday."""
    holidays = USFederalHolidayCalendar().holidays(hours[0].tz_localize(None), hours[-1].tz_localize(None))
    free = hours.tz_localize(None).normalize().isin(holidays)
    day = np.where(free, 6, hours.day_of_week.to_numpy())
    return np.asarray(24 * day + hours.hour.to_numpy(), dtype=np.intp)


def _shapes() -> tuple[Array, Array]:
    """Departures and attraction by kind of place (residential, office, leisure) and hour of week."""
    hour = np.arange(24) + 0.5

    def day(*bumps: tuple[float, float, float]) -> Array:
        gap = [np.abs(hour - centre) for centre, _, _ in bumps]
        parts = (
            height * np.exp(-0.5 * (np.minimum(g, 24 - g) / width) ** 2)
            for g, (_, width, height) in zip(gap, bumps, strict=True)
        )
        return np.asarray(0.02 + sum(parts))

    def week(weekday: Array, weekend: Array) -> Array:
        return np.concatenate([np.tile(weekday, 5), np.tile(weekend, 2)])

    free_day = day((13.5, 3.5, 0.45), (21.0, 2.5, 0.10))
    leave = np.stack(
        [
            week(day((8.3, 1.2, 1.0), (14.0, 3.0, 0.2), (18.5, 2.0, 0.35)), free_day),
            week(day((8.5, 1.5, 0.25), (12.8, 1.5, 0.35), (17.6, 1.3, 1.1)), 0.5 * free_day),
            week(day((12.5, 3.0, 0.35), (19.0, 2.5, 0.55)), day((15.0, 3.2, 0.95), (22.0, 2.0, 0.2))),
        ]
    )
    attract = np.stack(
        [
            week(day((8.3, 1.5, 0.25), (14.0, 3.0, 0.3), (18.3, 2.0, 1.1), (23.0, 2.0, 0.3)), free_day),
            week(day((8.5, 1.2, 1.3), (12.8, 1.5, 0.4), (17.5, 1.5, 0.35)), 0.5 * free_day),
            week(day((12.0, 3.0, 0.35), (18.5, 2.5, 0.6)), day((14.0, 3.2, 0.95), (20.0, 2.5, 0.3))),
        ]
    )
    return leave / leave.mean(axis=1, keepdims=True), attract


def rates(settings: Settings, city: Layout, conditions: pd.DataFrame) -> Array:
    """The expected number of wanted trips, (hours, stations); constant within an hour."""
    hours = settings.hours()
    leave, _ = _shapes()
    weekly = city.mix @ leave[:, hour_of_week(hours)]
    sky = settings.weather_effect * (
        -(((conditions["temperature_c"].to_numpy() - 24.0) / 22.0) ** 2)
        - 0.7 * -np.expm1(-conditions["precipitation_mm"].to_numpy())
        - 0.03 * np.maximum(conditions["wind_speed_ms"].to_numpy() - 5.0, 0.0)
    )
    # The city grows by 15 % a year and each station wanders on its own, over about four months.
    rng = stream(settings, Stream.TREND)
    year = np.arange(len(hours)) / 8766.0
    phase = 2 * np.pi * (rng.random((settings.stations, 1)) + 3.0 * year)
    drift = settings.trend_effect * (0.14 * year + 0.12 * np.sin(phase) * rng.standard_normal((settings.stations, 1)))
    base = settings.demand / 24.0 * city.popularity[:, None] * weekly
    rate = np.ascontiguousarray((base * np.exp(sky + drift)).T)
    return rate * np.exp(shocks(settings, city)) if settings.shock_effect else rate


def shocks(settings: Settings, city: Layout) -> Array:
    """Draw the shocks: log-scale changes of demand beyond season, weather and trend, of shape (hours, stations).

    A Gaussian process: one part shared by the whole city, one with correlation ``exp(-d / 600 m)``, both
    autoregressive in time. The factor ``exp(shocks)`` has mean 1.
    """
    n, shape = settings.stations, (len(settings.hours()), settings.stations)
    if not settings.shock_effect:
        return np.zeros(shape)
    rng = stream(settings, Stream.SHOCKS)
    noise = rng.standard_normal((shape[0], n + 1))
    nearness = np.linalg.cholesky(np.exp(-city.distance / _SHOCK_LENGTH) + 1e-9 * np.eye(n))
    parts = _CITY_SHOCK * noise[:, :1] + _LOCAL_SHOCK * (noise[:, 1:] @ nearness.T)
    strength = settings.shock_effect
    variance = strength**2 * (_CITY_SHOCK**2 + _LOCAL_SHOCK**2)
    return np.asarray(strength * _autoregression(parts, _SHOCK_HOURS) - 0.5 * variance)


@dataclass(frozen=True)
class Riders:
    """Everyone who wants a bike, in order of time; arrays of equal length."""

    time: IntArray  # seconds from the start
    origin: IntArray
    destination: IntArray
    pace: Array  # multiplies the riding time
    temper: Array  # uniform; decides how far the rider walks
    breaks: BoolArray  # the bike is broken at the end, and everybody can see it
    unusable: IntArray  # seconds after the end in which the bike is listed but cannot be rented, or UNTIL_FOUND
    casual: BoolArray


def draw_riders(settings: Settings, city: Layout, rate: Array) -> Riders:
    """Draw arrivals from the rates and give each rider a destination, a pace and a temper."""
    mean = rate
    if settings.dispersion:
        shape = 1.0 / settings.dispersion
        mean = rate * stream(settings, Stream.DISPERSION).gamma(shape, 1.0 / shape, rate.shape)
    count = stream(settings, Stream.ARRIVALS).poisson(mean)
    cell = np.repeat(np.arange(count.size), count.ravel())
    hour, origin = np.divmod(cell, settings.stations)
    n = len(cell)
    time = 3600 * hour + stream(settings, Stream.MOMENTS).integers(0, 3600, n)
    destination = _destinations(settings, city, hour, origin)
    order = np.argsort(time, kind="stable")
    chance = {name: stream(settings, name).random(n) for name in (Stream.WALKING, Stream.BREAKAGE, Stream.MEMBERSHIP)}
    return Riders(
        time=time[order],
        origin=origin[order],
        destination=destination[order],
        pace=np.exp(0.25 * stream(settings, Stream.PACE).standard_normal(n))[order],
        temper=chance[Stream.WALKING][order],
        breaks=(chance[Stream.BREAKAGE] < settings.breakage)[order],
        unusable=_unusable_seconds(settings, n),
        casual=(chance[Stream.MEMBERSHIP] < 0.15 + 0.3 * city.mix[origin, 2])[order],
    )


def _unusable_seconds(settings: Settings, n: int) -> IntArray:
    """For each trip, how long its bike is listed but cannot be rented after the return."""
    seconds = np.zeros(n, dtype=np.intp)
    if settings.unusable or settings.briefly_unusable:
        rng = stream(settings, Stream.UNUSABLE)
        chance, length = rng.random(n), rng.exponential(_BRIEFLY, n)
        until_found = chance < settings.unusable
        briefly = ~until_found & (chance < settings.unusable + settings.briefly_unusable)
        seconds[until_found] = UNTIL_FOUND
        seconds[briefly] = 1 + length[briefly].astype(np.intp)
    return seconds


def _destinations(settings: Settings, city: Layout, hour: IntArray, origin: IntArray) -> IntArray:
    """Gravity: attraction of the place at that hour of the week, falling with distance over 1.5 km."""
    _, attract = _shapes()
    near = np.exp(-city.distance / 1500.0)
    np.fill_diagonal(near, 0.15)  # round trips are few
    chance = stream(settings, Stream.DESTINATIONS).random(len(hour))
    clock = hour_of_week(settings.hours())[hour]
    destination = np.empty(len(hour), dtype=np.intp)
    order = np.argsort(clock, kind="stable")
    bounds = np.searchsorted(clock[order], np.arange(169))
    for h in np.unique(clock):
        rows = order[bounds[h] : bounds[h + 1]]
        weight = near * (city.pull * (city.mix @ attract[:, h]))
        cumulated = np.cumsum(weight, axis=1)
        cumulated /= cumulated[:, -1:]
        # One sorted line for all origins: origin i's distribution function lies in (i, i + 1].
        line = (cumulated + np.arange(settings.stations)[:, None]).ravel()
        found = np.searchsorted(line, chance[rows] + origin[rows], side="right")
        destination[rows] = found - settings.stations * origin[rows]
    return destination
