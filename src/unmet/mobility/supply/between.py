"""The chance that a station had a vehicle between two looks that are far apart, and how sure that is.

Without trips nobody knows what happened between two looks. Let riders take and bring vehicles at some rates, and take
none from an empty station. Given the numbers at both looks, the number between them is a bridge of that birth-death
process. The share of the time without a vehicle has a mean and a variance, tabulated by the two numbers and both rates.

Rates are learnt from the looks themselves: the variance of the change over an interval is the sum of both rates, and
its mean their difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm

from unmet.mobility.clock.bins import Integers
from unmet.mobility.supply.served import Served, rounded
from unmet.mobility.supply.spells import Spells
from unmet.mobility.supply.states import EMPTY, VEHICLES
from unmet.mobility.supply.usual_rates import HOURS_OF_WEEK, Calendar

__all__ = ["Activity", "Between", "learn_between", "time_at_zero"]

Floats = NDArray[np.float64]

MOST = 12
"""Vehicles at a look that are told apart; more count as so many."""

_ROOM = 24  # states of the process beyond `MOST`
_PARTS = 24  # of an interval, for the integrals over time
_MOVES = np.geomspace(0.02, 60.0, 18)  # geometric mean of the moves expected, at which shares are tabulated
_RATIOS = np.geomspace(1 / 16, 16.0, 9)  # pickups over returns
_LEAST = 0.1  # a rate over the mean of both
_OWN = 30.0  # moves of a station that weigh as much as the city's activity
_OWN_DAYS = 5.0  # intervals of a station at an hour of the day that weigh as much as no drift
_NOTABLE = 1e-4


@dataclass(frozen=True)
class Activity:
    """Moves at some stations.

    Attributes
    ----------
    station : array of int
        The stations, ascending.
    scale : array
        Moves over those of a mean station.
    drift : array, shape (stations, 24)
        Vehicles brought less those taken per minute, by hour of the day.
    """

    station: Integers
    scale: Floats
    drift: Floats


@dataclass(frozen=True)
class Between:
    """Activity of a system, learnt from looks that are far apart.

    Attributes
    ----------
    calendar : Calendar
        Hours of the period.
    shape : array, shape (168,)
        Mean of pickups and returns per minute of a mean station, by hour of the week.
    rebalancing : int
        Vehicles at once that a van moves.
    longest : float
        Minutes between two looks beyond which nothing is said.
    """

    calendar: Calendar
    shape: Floats
    rebalancing: int
    longest: float

    def activity(self, spells: Spells) -> Activity:
        """Return the activity of some stations, from their vehicles."""
        moves = _moves(spells, self)
        station = np.unique(spells.owner)
        at = np.searchsorted(station, spells.owner[moves.row])
        squared, usual = (np.bincount(at, weights=v, minlength=len(station)) for v in (moves.squared, moves.usual))
        cell = at * 24 + moves.hour % 24
        change, minutes, number = (
            np.bincount(cell, weights=v, minlength=24 * len(station))
            for v in (moves.change, moves.minutes, np.ones(len(cell)))
        )
        drift = change / np.maximum(minutes, 1.0) * number / (number + _OWN_DAYS)
        return Activity(station, (squared + _OWN) / (usual + _OWN), drift.reshape(-1, 24))

    def served(self, spells: Spells, activity: Activity, docks: bool = False) -> Served:
        """Return the chance of a vehicle (or of a dock) between the looks of some stations, and its variance."""
        row = _intervals(spells, self.longest)
        length = (spells.end[row] - spells.begin[row]).astype(float)
        hour = _hour(self.calendar, spells.begin[row])
        station = np.minimum(np.searchsorted(activity.station, spells.owner[row]), len(activity.station) - 1)
        mean = self.shape[hour] * activity.scale[station]
        drift = activity.drift[station, hour % 24] * (-1 if docks else 1)
        taken, brought = (np.maximum(mean - side * drift / 2, _LEAST * mean) * length for side in (1, -1))
        out, variance = _share_at_zero(spells.supply[row], spells.supply[row + 1], taken, brought)
        shown = spells.reason[row] == VEHICLES
        some = np.abs(1.0 - out - shown) > _NOTABLE
        row, shown = row[some], shown[some]
        variance = np.rint(variance * length * 1024) / 1024  # so that sums are exact in any order
        return Served(
            spells.owner[row], spells.begin[row], spells.end[row], rounded(1.0 - out[some]), shown, variance[some]
        )


def learn_between(spells: Spells, calendar: Calendar, rebalancing: int, longest: float) -> Between:
    """Learn the activity of a system from the spells of some stations."""
    flat = Between(calendar, np.ones(HOURS_OF_WEEK), rebalancing, longest)
    found = _moves(spells, flat)
    moves, time = (np.bincount(found.hour, v, HOURS_OF_WEEK) for v in (found.squared, found.minutes))
    mean = (moves.sum() + 1e-6) / (time.sum() + 1.0)
    return Between(calendar, (moves + 5.0) / (time + 5.0 / mean), rebalancing, longest)


def time_at_zero(taken: float, brought: float) -> tuple[Floats, Floats]:
    """Mean and variance of the share of time at zero, by the numbers at both ends, shape (MOST + 1, MOST + 1).

    Parameters
    ----------
    taken, brought : float
        Vehicles expected to be taken in the interval if there are always some, and to be brought.

    Examples
    --------
    A station shows one vehicle at both of two looks, between which one pickup is expected:

    >>> mean, variance = time_at_zero(1.0, 1.0)
    >>> round(float(mean[1, 1]), 2), round(float(variance[1, 1]) ** 0.5, 2)
    (0.14, 0.23)
    """
    size = MOST + 1 + _ROOM
    rate = np.diag(np.full(size - 1, brought), 1) + np.diag(np.full(size - 1, taken), -1)
    rate -= np.diag(rate.sum(axis=1))
    part = expm(rate / _PARTS)
    power = [np.eye(size)]
    for _ in range(_PARTS):
        power.append(power[-1] @ part)
    ahead = np.array([p[: MOST + 1, 0] for p in power])  # from the first look to zero
    stays = np.array([p[0, 0] for p in power])
    back = np.array([p[0, : MOST + 1] for p in power])[::-1]  # from zero to the second look
    whole = power[-1][: MOST + 1, : MOST + 1]
    weight = np.full(_PARTS + 1, 1.0 / _PARTS)
    weight[[0, -1]] /= 2  # trapezoidal rule
    mean = np.einsum("t,ta,tb->ab", weight, ahead, back) / whole
    lag = np.abs(np.subtract.outer(np.arange(_PARTS + 1), np.arange(_PARTS + 1)))
    both = np.where(np.arange(_PARTS + 1) >= np.arange(_PARTS + 1)[:, None], stays[lag], 0.0)
    both = 2 * both * np.outer(weight, weight)
    both[np.diag_indices(_PARTS + 1)] /= 2
    second = np.einsum("st,sa,tb->ab", both, ahead, back) / whole
    return mean, np.maximum(second - mean**2, 0.0)


@cache
def _tables() -> Floats:
    """Mean and variance of the share of time at zero: moves, ratios, which, first and second number."""
    return np.array([[time_at_zero(m * np.sqrt(q), m / np.sqrt(q)) for q in _RATIOS] for m in _MOVES])


def _share_at_zero(first: Integers, second: Integers, taken: Floats, brought: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of the share of time at zero, interpolated between tabulated moves."""
    tables = _tables()
    a, b = (np.minimum(number, MOST).astype(np.int64) for number in (first, second))
    (move, of_move), (ratio, of_ratio) = _place(np.sqrt(taken * brought), _MOVES), _place(taken / brought, _RATIOS)
    total = np.zeros((2, len(a)))
    for i, weight in ((move, 1 - of_move), (move + 1, of_move)):
        for j, share in ((ratio, 1 - of_ratio), (ratio + 1, of_ratio)):
            total += weight * share * tables[i, j, :, a, b].T
    return total[0], total[1]


def _place(values: Floats, grid: Floats) -> tuple[Integers, Floats]:
    """The point of a geometric grid below each value, and how far it is to the next."""
    place = np.interp(np.log(np.maximum(values, grid[0])), np.log(grid), np.arange(len(grid)))
    low = np.minimum(place.astype(np.int64), len(grid) - 2)
    return low, place - low


def _intervals(spells: Spells, longest: float) -> Integers:
    """The spells between two looks at an open station; the second look begins the spell behind."""
    known = (spells.reason == VEHICLES) | (spells.reason == EMPTY)
    joint = known[:-1] & known[1:] & (spells.owner[1:] == spells.owner[:-1]) & (spells.begin[1:] == spells.end[:-1])
    return np.flatnonzero(joint & (spells.end[:-1] - spells.begin[:-1] <= longest))


@dataclass(frozen=True)
class _Moves:
    """Changes over intervals away from zero, and half of their squared deviations from the station's usual change.

    `row` are the spells, `hour` is that of the week, and `usual` is what `squared` is for a mean station.
    """

    row: Integers
    hour: Integers
    minutes: Floats
    change: Floats
    squared: Floats
    usual: Floats


def _moves(spells: Spells, between: Between) -> _Moves:
    row = _intervals(spells, between.longest)
    change = (spells.supply[row + 1] - spells.supply[row]).astype(float)
    away = (spells.supply[row] >= 3) & (np.abs(change) < between.rebalancing)
    row, change = row[away], change[away]
    hour = _hour(between.calendar, spells.begin[row])
    minutes = (spells.end[row] - spells.begin[row]).astype(float)
    _, cell = np.unique(spells.owner[row] * 24 + hour % 24, return_inverse=True)
    number = np.bincount(cell)
    drift = np.bincount(cell, weights=change) / np.maximum(number, 1)
    squared = (change - drift[cell]) ** 2 * number[cell] / np.maximum(number[cell] - 1, 1) / 2
    usual = np.where(number[cell] > 1, between.shape[hour] * minutes, 0.0)
    return _Moves(row, hour, minutes, change, squared, usual)


def _hour(calendar: Calendar, minute: Integers) -> Integers:
    return calendar.hour_of_week[np.clip(minute // 60 - calendar.first, 0, len(calendar) - 1)]
