"""How often somebody looks at the feed, learnt hour by hour.

Two kinds of intervals are measured: between minutes in which the feed says anything, and between the records of a
station. The usual interval of an hour is the median over the time that intervals cover, in that hour, the one before
and the one after, on the day itself and on three days before and after it. So a cadence that changes within a file, or
every evening, is followed; and an outage, which is one interval of many, does not count.

Intervals are *regular* if most of the time is covered by intervals near the median. Those of polls are. Those of
changes are not: if changes come at random, 13 % of the time is covered by intervals within 12 % of the median.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unmet.mobility.clock.bins import DAY, Integers

__all__ = ["Cadence", "Intervals", "looks_with_own_times", "pool", "usual_intervals"]

HOUR = 60
REGULAR = 0.6
"""Share of the time covered by intervals near the median from which on intervals are regular. In the first and the last
hour of another cadence, it is two thirds."""

FEWEST = 10
"""Intervals without which they are not called regular."""

_SOONEST = 7  # minutes; with more frequent looks, changes show nearly all pickups
_TOO_SOON = 0.0003  # share of records within the interval of looks; 1/3 if records come at random
_TWO_INTERVALS = 2.5  # two, and errors of both
_FEWEST_APART = 500
_NEAR = 0.12  # of the median, and a minute of rounding
_DAYS_AROUND = 3
# Intervals of up to a day in classes that are 12 % wide, or a minute.
_EDGES = np.unique(np.round(1.12 ** np.arange(70)).astype(np.int64))
_EDGES = _EDGES[_EDGES <= DAY]
_CLASS = np.searchsorted(_EDGES, np.arange(DAY + 1), side="right") - 1
_LENGTH = np.sqrt(_EDGES * np.maximum(np.append(_EDGES[1:], DAY + 1) - 1, _EDGES))  # middle of each class


@dataclass(frozen=True)
class Cadence:
    """Looks at the feed, by hour from its first minute.

    Attributes
    ----------
    minutes : array
        The usual interval between two minutes with a record: that of the looks, if there are fewer than changes.
    regular : array of bool
        Whether these intervals are regular.
    polled : array of bool
        Whether a look lists every station (and the feed has no quiet hours), or only those that changed.
    own : float
        Minutes between looks that keep the time at which each station last reported, from `looks_with_own_times`.
    """

    minutes: NDArray[np.float64]
    regular: NDArray[np.bool_]
    polled: NDArray[np.bool_]
    own: float = 0.0

    @property
    def usual(self) -> float:
        """The usual interval of half of the hours or more."""
        return float(np.median(self.minutes))

    @property
    def looks(self) -> float:
        """The usual interval between looks, 0 if at most hours every change has its own time."""
        return float(np.median(self.apart))

    @property
    def apart(self) -> NDArray[np.float64]:
        """The usual interval between looks of each hour, 0 if every change has its own time.

        Of looks with a time of their own, three records of a station are two intervals apart or more, so that `own` is
        not less than twice the interval. Where it is much more, stations report at all times in between.
        """
        looks = self.polled | (self.regular & (self.minutes >= self.own / _TWO_INTERVALS))
        return np.where(looks, self.minutes, self.own)

    @property
    def always(self) -> NDArray[np.bool_]:
        """Whether every change has its own time, as if somebody looked all the time."""
        return ~self.regular & ~self.polled & (self.own == 0)

    def at(self, minute: Integers) -> NDArray[np.float64]:
        """Return the usual interval at some minutes, counted from the first of the feed."""
        return self.minutes[minute // HOUR]

    def always_at(self, minute: Integers) -> NDArray[np.bool_]:
        """Return whether every change has its own time at some minutes, counted from the first of the feed."""
        return self.always[minute // HOUR]

    def polled_at(self, minute: Integers) -> NDArray[np.bool_]:
        """Return whether looks list every station at some minutes, counted from the first of the feed."""
        return self.polled[minute // HOUR]


class Intervals:
    """Time covered by intervals, by the hour in which they begin and the class of their length.

    An interval counts for an hour at most, so that an outage does not outweigh the looks around it.
    """

    def __init__(self, minutes: int) -> None:
        self._hours = -(-minutes // HOUR)
        self.covered = np.zeros((self._hours, len(_EDGES)))
        self.number = np.zeros(self._hours)

    def add(self, begin: Integers, length: Integers) -> None:
        """Add intervals, in minutes from the first of the feed. Those without length are left out."""
        some = length > 0
        hour, length = begin[some] // HOUR, length[some]
        cell = hour * len(_EDGES) + _CLASS[np.minimum(length, DAY)]
        self.covered += np.bincount(cell, np.minimum(length, HOUR), self.covered.size).reshape(self.covered.shape)
        self.number += np.bincount(hour, minlength=self._hours)

    def include(self, others: Intervals) -> None:
        """Add all intervals of others over the same time."""
        self.covered += others.covered
        self.number += others.number


def usual_intervals(intervals: Intervals) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the usual interval of each hour, and the share of its time that intervals near it cover.

    The share is zero where intervals are too few to tell.

    Examples
    --------
    Polls every ten minutes, with one outage of five hours:

    >>> at = np.array([m for m in range(0, 1440, 10) if not 600 < m < 900])
    >>> intervals = Intervals(1440)
    >>> intervals.add(at[:-1], np.diff(at))
    >>> minutes, near = usual_intervals(intervals)
    >>> round(np.median(minutes)), bool(np.median(near) >= REGULAR)
    (10, True)
    """
    covered, number = pool(intervals.covered), pool(intervals.number)
    known = np.flatnonzero(number)
    if len(known) == 0:
        return np.full(len(number), np.inf), np.zeros(len(number))
    # An hour in which no interval begins is like the one before.
    like = known[np.maximum(np.searchsorted(known, np.arange(len(number)), side="right") - 1, 0)]
    covered, number = covered[like], number[like]
    running = np.cumsum(covered, axis=1)
    median = _LENGTH[(2 * running >= running[:, -1:]).argmax(axis=1)]
    near = np.abs(_LENGTH - median[:, None]) <= _NEAR * median[:, None] + 1
    return median, np.where(number >= FEWEST, (covered * near).sum(axis=1) / running[:, -1], 0.0)


def looks_with_own_times(apart: Integers) -> float:
    """Return the minutes between rare looks that keep the time at which each station last reported; 0 if none are.

    Each look shows one time of each station. So of three records of a station, the last comes more than one interval
    between looks after the first: its time is later than the look that showed the second, which came an interval or
    more after the look that showed the first. If records come at random, every length of time occurs.

    Parameters
    ----------
    apart : array of int
        Number of records by the minutes since the last but one of the same station.

    Examples
    --------
    >>> random = 100 * np.arange(200)
    >>> looks_with_own_times(random)
    0.0
    >>> looks_with_own_times(np.where(np.arange(200) < 10, 0, random))
    10.0
    """
    below = np.concatenate([[0], np.cumsum(apart)])
    minutes = np.arange(_SOONEST, len(apart) // 2)
    within, beyond = below[minutes], below[2 * minutes] - below[minutes]
    found = minutes[(within <= _TOO_SOON * beyond) & (beyond >= _FEWEST_APART)]
    return float(found.max()) if len(found) else 0.0


def pool(by_hour: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum each hour with the one before and the one after, on its day and on three days before and after."""
    pooled = np.zeros_like(by_hour)
    for day in range(-_DAYS_AROUND, _DAYS_AROUND + 1):
        for shift in range(24 * day - 1, 24 * day + 2):
            if abs(shift) < len(by_hour):
                low, high = max(0, shift), len(by_hour) + min(0, shift)
                pooled[low - shift : high - shift] += by_hour[low:high]
    return pooled
