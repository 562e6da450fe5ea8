"""How many pickups to expect at a station in any hour if there is something to rent.

A first pass over the records: `rate = profile of the station by hour of the week × factor of the city in that very
hour`. Profiles lean on the city's where a station's own pickups are few. All minutes with a vehicle listed are used,
each for what so many listed vehicles are worth on average. (Only those with many vehicles would do, were it not for how
they end: a count that stops when demand was high makes rates too high, the more so the finer they are.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unmet.mobility.clock.bins import Integers, wall_minutes
from unmet.mobility.supply.timeline import Timeline

__all__ = ["RateTally", "UsualRates"]

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
class UsualRates:
    """Pickups per minute by station and hour.

    Attributes
    ----------
    profile : array, shape (stations, 168)
        By hour of the week, from Monday 0:00 local time.
    city : array, shape (hours,)
        Factor of the whole city in each hour; 0 where the feed or the system is not open.
    hour_of_week : array of int, shape (hours,)
        Of each hour.
    first : int
        The first hour, since 1970-01-01 UTC.
    """

    profile: Floats
    city: Floats
    hour_of_week: Integers
    first: int

    def expected(self, station: Integers, begin: Integers, end: Integers) -> Floats:
        """Pickups expected from minute `begin` to minute `end`, station by station (ascending)."""
        total = np.empty(len(station))
        edges = np.flatnonzero(np.diff(station, prepend=-1, append=-1))
        for low, high in zip(edges[:-1], edges[1:], strict=True):
            rate = self.profile[station[low], self.hour_of_week] * self.city
            running = np.concatenate([[0.0], np.cumsum(60 * rate)])
            at = np.stack([begin[low:high], end[low:high]]) - 60 * self.first
            hour = np.clip(at // 60, 0, len(rate) - 1)
            before, until = running[hour] + rate[hour] * (at - 60 * hour)
            total[low:high] = until - before
        return total


class RateTally:
    """Integers and pickups by listed number, station and hour, collected from one part of the stations after the other.

    Parameters
    ----------
    stations : int
        How many there are.
    first, last : int
        The first and the last minute of the records.
    timezone : str
        The system's.
    shut : array, shape (k, 2)
        Stretches (begin, end) in which the whole system is closed or its feed silent.
    """

    def __init__(self, stations: int, first: int, last: int, timezone: str, shut: Integers) -> None:
        self.first = first // 60
        hours = last // 60 + 1 - self.first
        wall = wall_minutes(60 * (self.first + np.arange(hours)), timezone)
        self.hour_of_week = (wall // 60 - _MONDAY) % HOURS_OF_WEEK
        self.open = _minutes_by_hour(shut[:, 0], shut[:, 1], self.first, hours) < 30
        self.pickups, self.minutes = (np.zeros((_CLASSES, stations, hours), dtype=np.uint8) for _ in range(2))

    def add(self, timeline: Timeline) -> None:
        """Add the stations of a timeline."""
        edges = np.flatnonzero(np.diff(timeline.station, prepend=-1, append=-1))
        hours = len(self.open)
        number = np.minimum(timeline.listed, _CLASSES)
        hour = np.clip((timeline.end - 1) // 60 - self.first, 0, hours - 1)
        for low, high in zip(edges[:-1], edges[1:], strict=True):
            station = timeline.station[low]
            for row in range(_CLASSES):
                here = low + np.flatnonzero(number[low:high] == row + 1)
                taken = np.bincount(hour[here], weights=timeline.pickups[here], minlength=hours)
                minutes = _minutes_by_hour(timeline.begin[here], timeline.end[here], self.first, hours)
                self.pickups[row, station] = np.minimum(taken, 255) * self.open
                self.minutes[row, station] = minutes * self.open

    def rates(self, rounds: int = 4) -> UsualRates:
        """Fit profiles, the city's factors and what few vehicles are worth to each other, in a few rounds.

        The model is `pickups ~ Poisson(worth[listed] × profile × city × minutes)`, fitted one factor at a time.
        """
        which = self.hour_of_week
        city, worth = np.ones(len(which), dtype=np.float32), np.ones(_CLASSES)
        pickups = self.pickups.sum(axis=0, dtype=np.float32)
        own_pickups = _by_hour_of_week(pickups, which)
        for _ in range(rounds):
            minutes = np.einsum("csh,c->sh", self.minutes, worth.astype(np.float32))
            own_minutes = _by_hour_of_week(minutes * city, which)
            mean = (own_pickups.sum() + 1e-3) / (own_minutes.sum() + 1.0)
            shape = (own_pickups.sum(axis=0) + 60 * mean) / (own_minutes.sum(axis=0) + 60)
            level = (own_pickups.sum(axis=1) + 1) / (own_minutes @ shape + 1)
            profile = (own_pickups + OWN_PICKUPS) / (own_minutes + OWN_PICKUPS / (level[:, None] * shape))
            usual = profile.astype(np.float32)[:, which]
            city = (pickups.sum(axis=0) + CITY_PICKUPS) / (np.einsum("sh,sh->h", usual, minutes) + CITY_PICKUPS)
            usual *= city
            for row in range(_CLASSES - 1):
                expected = np.einsum("sh,sh->", usual, self.minutes[row])
                worth[row] = (self.pickups[row].sum() + WORTH_PICKUPS) / (expected + WORTH_PICKUPS)
        return UsualRates(profile, city * self.open, which, self.first)


def _minutes_by_hour(begin: Integers, end: Integers, first: int, hours: int, height: Floats | None = None) -> Floats:
    """Integrate what is `height` (or one) from `begin` to `end`, hour by hour.

    Each stretch gives a ramp: its integral is piecewise linear in time, with slopes that add up.
    """
    height = np.ones(len(begin)) if height is None else height
    slope, value = np.zeros(hours + 2), np.zeros(hours + 2)
    for at, sign in ((begin, 1.0), (end, -1.0)):
        hour, minute = np.divmod(np.clip(at - 60 * first, 0, 60 * hours), 60)
        value += np.bincount(hour, weights=sign * height * (60 - minute), minlength=hours + 2)
        slope += np.bincount(hour + 1, weights=sign * height, minlength=hours + 2)
    total: Floats = (value + 60 * np.cumsum(slope))[:hours]
    return total


def _by_hour_of_week(values: NDArray[np.floating], which: Integers) -> Floats:
    """Sum the columns of equal hour of the week."""
    order = np.argsort(which, kind="stable")
    found, first = np.unique(which[order], return_index=True)
    table = np.zeros((len(values), HOURS_OF_WEEK))
    table[:, found] = np.add.reduceat(values[:, order], first, axis=1)
    return table
