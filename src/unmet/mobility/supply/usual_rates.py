"""How many pickups to expect at a station in any hour if there is something to rent.

A first pass over the records: `rate = profile of the station by hour of the week × factor of the city in that very
hour × what the station's own hours around it say`. Profiles lean on the city's where a station's own pickups are few.
All minutes with a vehicle listed are used, each for what so many listed vehicles are worth on average. (Minutes with
many vehicles alone would do, were it not for how they end: a count that stops when demand was high makes rates too
high, the more so the finer they are.)
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from unmet.mobility.clock.bins import Integers, wall_minutes
from unmet.mobility.supply.timeline import Timeline

__all__ = ["Calendar", "CityRates", "HourTally", "StationRates", "fit_city", "make_calendar", "tally_hours"]

Floats = NDArray[np.float64]
HOURS_OF_WEEK = 168
_MONDAY = 4 * 24  # 1970-01-01 was a Thursday

OWN_PICKUPS = 8.0
"""Pickups of a station in an hour of the week that weigh as much as the city's profile."""

CITY_PICKUPS = 10.0
"""Pickups of the city in one hour that weigh as much as its usual number."""

WORTH_PICKUPS = 20.0
"""Expected pickups with one or two vehicles listed that weigh as much as the belief that those are worth all others."""

_CLASSES = 3  # one listed, two, more


@dataclass(frozen=True)
class Calendar:
    """The hours of a period.

    Attributes
    ----------
    first : int
        The first hour, since 1970-01-01 UTC.
    hour_of_week : array of int
        Of each hour, from Monday 0:00 local time.
    is_open : array of bool
        Whether the system is open and its feed heard for half of the hour or more.
    """

    first: int
    hour_of_week: Integers
    is_open: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.hour_of_week)


def make_calendar(first: int, last: int, timezone: str, shut: Integers) -> Calendar:
    """Make the calendar from the first to the last minute; `shut` are stretches (begin, end), shape (k, 2)."""
    start = first // 60
    hours = last // 60 + 1 - start
    wall = wall_minutes(60 * (start + np.arange(hours)), timezone)
    closed = _minutes_by_hour(shut[:, 0], shut[:, 1], start, hours)
    return Calendar(start, (wall // 60 - _MONDAY) % HOURS_OF_WEEK, closed < 30)


@dataclass(frozen=True)
class HourTally:
    """Minutes and pickups of some stations by number listed (one, two, more), station and hour."""

    station: Integers
    minutes: NDArray[np.uint8]
    pickups: NDArray[np.uint8]


def tally_hours(timeline: Timeline, calendar: Calendar) -> HourTally:
    """Tally the stations of a timeline."""
    edges = np.flatnonzero(np.diff(timeline.station, prepend=-1, append=-1))
    hours = len(calendar)
    minutes, pickups = (np.zeros((_CLASSES, len(edges) - 1, hours), dtype=np.uint8) for _ in range(2))
    number = np.minimum(timeline.listed, _CLASSES)
    hour = np.clip((timeline.end - 1) // 60 - calendar.first, 0, hours - 1)
    for place, (low, high) in enumerate(itertools.pairwise(edges)):
        for row in range(_CLASSES):
            here = low + np.flatnonzero(number[low:high] == row + 1)
            taken = np.bincount(hour[here], weights=timeline.pickups[here], minlength=hours)
            lasted = _minutes_by_hour(timeline.begin[here], timeline.end[here], calendar.first, hours)
            pickups[row, place] = np.minimum(taken, 255) * calendar.is_open
            minutes[row, place] = lasted * calendar.is_open
    return HourTally(timeline.station[edges[:-1]], minutes, pickups)


@dataclass(frozen=True)
class Memory:
    """Weight of the hours around an hour: a neighbourhood may be busy that day, and few vehicles are left then.

    Attributes
    ----------
    pickups : float
        Expected pickups that weigh as much as the belief that an hour is as usual; infinite if others say nothing.
    hours : float
        Hours after which the weight of a pickup has fallen to `1 / e`.
    """

    pickups: float = np.inf
    hours: float = 1.0

    def factor(self, taken: NDArray[Any], expected: NDArray[Any], itself: bool = True) -> NDArray[np.float32]:
        """Factor of each hour, from pickups and those expected around it, shape (stations, hours).

        With `itself` false, the hour's own pickups are left out.
        """
        if np.isinf(self.pickups):
            return np.ones(taken.shape, dtype=np.float32)
        near, usual = (_around(values, np.exp(-1 / self.hours), itself) for values in (taken, expected))
        factor: NDArray[np.float32] = ((near + self.pickups) / (usual + self.pickups)).astype(np.float32)
        return factor


_MEMORIES = tuple(Memory(pickups, hours) for hours in (1.5, 4.0, 12.0) for pickups in (5.0, 10.0, 20.0, 40.0, 80.0))


@dataclass(frozen=True)
class CityRates:
    """Parameters that the stations of a city have in common.

    Attributes
    ----------
    calendar : Calendar
        Its hours.
    shape : array, shape (168,)
        Pickups per minute of a mean station by hour of the week.
    factor : array, shape (hours,)
        Of each hour, over what is usual at that hour of the week; 0 where the system is not open.
    worth : array, shape (3,)
        Pickups with one, two and more vehicles listed, over those expected.
    memory : Memory
        What other hours of a station say of an hour.
    """

    calendar: Calendar
    shape: Floats
    factor: Floats
    worth: Floats
    memory: Memory = Memory()

    def stations(self, tally: HourTally) -> StationRates:
        """Find the rates of some stations."""
        which = self.calendar.hour_of_week
        minutes = np.einsum("csh,c->sh", tally.minutes, self.worth.astype(np.float32)) * self.factor
        profile = _profiles(_by_hour_of_week(tally.pickups.sum(axis=0), which), minutes, self)
        taken, expected = _with_plenty(tally, profile[:, which] * self.factor)
        return StationRates(tally.station, profile, self.memory.factor(taken, expected), self)


@dataclass(frozen=True)
class StationRates:
    """Rates of some stations.

    Attributes
    ----------
    station : array of int
        The stations.
    profile : array, shape (stations, 168)
        Pickups per minute by hour of the week.
    own : array, shape (stations, hours)
        Factor of each hour, beside that of the city.
    city : CityRates
        Of their city.
    """

    station: Integers
    profile: Floats
    own: NDArray[np.float32]
    city: CityRates

    def expected(self, station: Integers, begin: Integers, end: Integers) -> Floats:
        """Pickups expected from minute `begin` to minute `end`, station by station (ascending)."""
        total = np.empty(len(station))
        calendar = self.city.calendar
        edges = np.flatnonzero(np.diff(station, prepend=-1, append=-1))
        for low, high in itertools.pairwise(edges):
            place = np.searchsorted(self.station, station[low])
            rate = self.profile[place][calendar.hour_of_week] * self.city.factor * self.own[place]
            running = np.concatenate([[0.0], np.cumsum(60 * rate)])
            at = np.stack([begin[low:high], end[low:high]]) - 60 * calendar.first
            hour = np.clip(at // 60, 0, len(rate) - 1)
            before, until = running[hour] + rate[hour] * (at - 60 * hour)
            total[low:high] = until - before
        return total


def _profiles(pickups: Floats, minutes: NDArray[Any], city: CityRates) -> Floats:
    own = _by_hour_of_week(minutes, city.calendar.hour_of_week)
    level = (pickups.sum(axis=1) + 1) / ((own * city.shape).sum(axis=1) + 1)
    profile: Floats = (pickups + OWN_PICKUPS) / (own + OWN_PICKUPS / (level[:, None] * city.shape))
    return profile


def fit_city(tally: HourTally, calendar: Calendar, rounds: int = 4) -> CityRates:
    """Fit the city's factors and what few vehicles are worth to the profiles of stations, one after the other.

    The model is `pickups ~ Poisson(worth[listed] × profile × factor × minutes)`.
    """
    which = calendar.hour_of_week
    pickups = tally.pickups.sum(axis=0, dtype=np.float32)
    own_pickups = _by_hour_of_week(pickups, which)
    city = CityRates(calendar, np.ones(HOURS_OF_WEEK), np.ones(len(which)), np.ones(_CLASSES))
    for _ in range(rounds):
        minutes = np.einsum("csh,c->sh", tally.minutes, city.worth.astype(np.float32))
        here = _by_hour_of_week(minutes * city.factor, which)
        mean = (own_pickups.sum() + 1e-3) / (here.sum() + 1.0)
        shape = (own_pickups.sum(axis=0) + 60 * mean) / (here.sum(axis=0) + 60)
        city = replace(city, shape=shape)
        usual = _profiles(own_pickups, minutes * city.factor, city).astype(np.float32)[:, which]
        expected = np.einsum("sh,sh->h", usual, minutes)
        factor = (pickups.sum(axis=0) + CITY_PICKUPS) / (expected + CITY_PICKUPS)
        worth = np.ones(_CLASSES)
        for row in range(_CLASSES - 1):
            expected_few = np.einsum("sh,h,sh->", usual, factor, tally.minutes[row])
            worth[row] = (tally.pickups[row].sum() + WORTH_PICKUPS) / (expected_few + WORTH_PICKUPS)
        city = replace(city, factor=factor, worth=worth)
    memory = _learn_memory(*_with_plenty(tally, usual * city.factor))
    return replace(city, factor=city.factor * calendar.is_open, memory=memory)


def _with_plenty(tally: HourTally, rate: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Pickups while three or more vehicles were listed, and those expected: apart from those that tell few apart.

    A rate per minute has shape (stations, hours).
    """
    return tally.pickups[-1].astype(np.float32), (tally.minutes[-1] * rate).astype(np.float32)


def _learn_memory(taken: NDArray[np.float32], expected: NDArray[np.float32]) -> Memory:
    """Choose what the hours around an hour say of it, by the Poisson likelihood of its pickups given theirs."""

    def gain(memory: Memory) -> float:
        factor = memory.factor(taken, expected, itself=False)
        return float((taken * np.log(factor) - expected * (factor - 1)).sum(dtype=np.float64))

    best = max(_MEMORIES, key=gain)
    return best if gain(best) > 0 else Memory()


def _around(values: NDArray[Any], decay: float, itself: bool) -> Floats:
    """Sum values along the hours with weights `decay ** distance`."""
    ahead = lfilter([1.0], [1.0, -decay], values, axis=1)
    back = lfilter([1.0], [1.0, -decay], values[:, ::-1], axis=1)[:, ::-1]
    total: Floats = ahead + back - (1 if itself else 2) * values
    return total


def _minutes_by_hour(begin: Integers, end: Integers, first: int, hours: int) -> Floats:
    """Count the minutes of stretches from `begin` to `end`, hour by hour.

    Each stretch gives a ramp: its integral is piecewise linear in time, with slopes that add up.
    """
    slope, value = np.zeros(hours + 2), np.zeros(hours + 2)
    for at, sign in ((begin, 1.0), (end, -1.0)):
        hour, minute = np.divmod(np.clip(at - 60 * first, 0, 60 * hours), 60)
        value += sign * np.bincount(hour, weights=60 - minute, minlength=hours + 2)
        slope += sign * np.bincount(hour + 1, minlength=hours + 2)
    total: Floats = (value + 60 * np.cumsum(slope))[:hours]
    return total


def _by_hour_of_week(values: NDArray[Any], which: Integers) -> Floats:
    """Sum the columns of equal hour of the week."""
    order = np.argsort(which, kind="stable")
    found, first = np.unique(which[order], return_index=True)
    table = np.zeros((len(values), HOURS_OF_WEEK))
    table[:, found] = np.add.reduceat(values[:, order], first, axis=1, dtype=np.float64)
    return table
