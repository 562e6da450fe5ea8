"""Numbers of vehicles between two looks: a bridge of a birth-death process that stops at zero.

Riders take and bring vehicles at constant rates, and take none from an empty station (an M/M/1 queue). Given the
numbers at both looks, the share of the time without a vehicle has a mean and a variance, and some pickups cancelled out
with returns. All are tabulated by the two numbers and both rates, and interpolated.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm

from unmet.mobility.clock.bins import Integers

__all__ = [
    "MOST",
    "MOVES",
    "RATIOS",
    "bridge",
    "cancelled_pairs",
    "into_table",
    "log_probabilities",
    "place",
    "probability",
    "time_at_zero",
]

Floats = NDArray[np.float64]

MOST = 24
"""Vehicles at a look that are told apart; more count as so many."""

FLEETING = 0.05
"""Share of the time in which a last vehicle cannot be had, for reasons that leave no trace.

Rare looks do not tell it. It is the centre of the prior of the model that knows the trips; Jersey City has .10 to .16.
"""

LOAD = 5
"""Fewest vehicles that a van moves."""

_ROOM = 16  # states of the process beyond `MOST`
_PARTS = 24  # of an interval, for the integrals over time
MOVES = np.geomspace(0.001, 60.0, 36)
"""Geometric means of the vehicles expected to be taken and to be brought, at which all is tabulated."""

RATIOS = np.geomspace(1 / 16, 16.0, 9)
"""Vehicles expected to be taken over those to be brought, likewise."""


_WEIGHT = np.full(_PARTS + 1, 1.0 / _PARTS)
_WEIGHT[[0, -1]] /= 2  # trapezoidal rule


def _powers(taken: float, brought: float) -> Floats:
    """Transition matrices of the process over 0, 1, ... `_PARTS` parts of the interval."""
    size = MOST + 1 + _ROOM
    rate = np.diag(np.full(size - 1, brought), 1) + np.diag(np.full(size - 1, taken), -1)
    rate -= np.diag(rate.sum(axis=1))
    part = expm(rate / _PARTS)
    power = [np.eye(size)]
    for _ in range(_PARTS):
        power.append(power[-1] @ part)
    return np.array(power)


def cancelled_pairs(taken: float, brought: float) -> Floats:
    """Pickups that cancelled out with returns, expected given the numbers at both looks.

    That is the pickups beyond the fall from one look to the other; as many returns are beyond its rise. The shape is
    (MOST + 1, MOST + 1), with the first number as its row.

    Parameters
    ----------
    taken, brought : float
        As in `time_at_zero`.

    Examples
    --------
    A station shows five vehicles at both of two looks, between which two pickups and two returns are expected:

    >>> round(float(cancelled_pairs(2.0, 2.0)[5, 5]), 2)
    1.73
    """
    power = _powers(taken, brought)
    # A pickup at time t takes the number from n to n - 1.
    pickups = np.einsum("t,tan,tnb->ab", _WEIGHT, power[:, : MOST + 1, 1:], power[::-1, :-1, : MOST + 1], optimize=True)
    number = np.arange(MOST + 1)
    fall = np.maximum(np.subtract.outer(number, number), 0)
    pairs: Floats = np.maximum(taken * pickups / power[-1][: MOST + 1, : MOST + 1] - fall, 0.0)
    return pairs


def time_at_zero(taken: float, brought: float, fleeting: float = 0.0) -> tuple[Floats, Floats, Floats]:
    """Probability of the second number, and mean and variance of the share of time at zero, by both numbers.

    Each has shape (MOST + 1, MOST + 1), with the first number as its row.

    Parameters
    ----------
    taken, brought : float
        Vehicles expected to be taken in the interval if there are always some, and to be brought.
    fleeting : float
        Share of the time at one that counts as time at zero.

    Examples
    --------
    A station shows one vehicle at both of two looks, between which one pickup is expected:

    >>> _, mean, variance = time_at_zero(1.0, 1.0)
    >>> round(float(mean[1, 1]), 2), round(float(variance[1, 1]) ** 0.5, 2)
    (0.14, 0.23)
    """
    power = _powers(taken, brought)
    ahead = np.array([p[: MOST + 1, 0] for p in power])  # from the first look to zero
    stays = np.array([p[0, 0] for p in power])
    back = np.array([p[0, : MOST + 1] for p in power])[::-1]  # from zero to the second look
    whole = power[-1][: MOST + 1, : MOST + 1]
    weight = _WEIGHT
    mean = np.einsum("t,ta,tb->ab", weight, ahead, back) / whole
    one, of_one = (np.array([p[at] for p in power]) for at in ((slice(MOST + 1), 1), (1, slice(MOST + 1))))
    left = np.einsum("t,ta,tb->ab", weight, one, of_one[::-1]) / whole
    lag = np.abs(np.subtract.outer(np.arange(_PARTS + 1), np.arange(_PARTS + 1)))
    both = np.where(np.arange(_PARTS + 1) >= np.arange(_PARTS + 1)[:, None], stays[lag], 0.0)
    both = 2 * both * np.outer(weight, weight)
    both[np.diag_indices(_PARTS + 1)] /= 2
    second = np.einsum("st,sa,tb->ab", both, ahead, back) / whole
    return whole, mean + fleeting * left, np.maximum(second - mean**2, 0.0)


def bridge(first: Integers, second: Integers, taken: Floats, brought: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Interpolate `time_at_zero` and `cancelled_pairs` for many intervals: probability, mean, variance and pairs.

    Parameters
    ----------
    first, second : array of int
        Vehicles at both looks, any shape that begins with that of the rates.
    taken, brought : array, one axis
        Vehicles expected to be taken if there are always some, and to be brought.
    """
    moves = np.sqrt(taken * brought)
    found = _interpolate(_tables(), first, second, moves, taken / brought)
    return found[0], found[1], found[2], found[3] * moves[:, *(None,) * (np.ndim(first) - 1)]


def probability(first: Integers, second: Integers, taken: Floats, brought: Floats) -> Floats:
    """Interpolate the probability of second numbers given the first; parameters are those of `bridge`."""
    found: Floats = _interpolate(_tables()[:1], first, second, np.sqrt(taken * brought), taken / brought)[0]
    return found


def _interpolate(tables: Floats, first: Integers, second: Integers, moves: Floats, ratios: Floats) -> Floats:
    """Each of some tables at the given numbers, moves and ratios."""
    a, b = (np.minimum(number, MOST).astype(np.int64) for number in (first, second))
    (move, of_move), (ratio, of_ratio) = place(moves, MOVES), place(ratios, RATIOS)
    total = np.zeros((len(tables), *a.shape))
    more = (slice(None), *(None,) * (a.ndim - 1))
    for i, weight in ((move, 1 - of_move), (move + 1, of_move)):
        for j, share in ((ratio, 1 - of_ratio), (ratio + 1, of_ratio)):
            total += (weight * share)[more] * tables[:, i[more], j[more], a, b]
    return total


def into_table(first: Integers, second: Integers) -> tuple[Integers, Integers]:
    """Move numbers beyond the tables into them: far from zero only differences count, up to `MOST`."""
    beyond = np.maximum(np.maximum(first, second) - MOST, 0)
    return np.maximum(first - beyond, 0), np.maximum(second - beyond, 0)


@cache
def log_probabilities(van: float) -> Floats:
    """Logarithms of the probabilities of second numbers, by moves, ratio and first number.

    With probability `van` a van came and moved `LOAD` vehicles or more.
    """
    number = np.arange(MOST + 1)
    moved = np.abs(np.subtract.outer(number, number)) >= LOAD  # each such number is as likely
    tables: Floats = np.log((1 - van) * _tables()[0] + van / (MOST + 1) * moved)
    return tables


@cache
def _tables() -> Floats:
    """Results of `time_at_zero`, and pairs per move, which change little with moves: which, moves, ratios, numbers."""

    def row(moves: float, ratio: float) -> tuple[Floats, ...]:
        rates = moves * np.sqrt(ratio), moves / np.sqrt(ratio)
        return (*time_at_zero(*rates, FLEETING), cancelled_pairs(*rates) / moves)

    found = np.array([[row(m, q) for q in RATIOS] for m in MOVES])
    return np.ascontiguousarray(found.transpose(2, 0, 1, 3, 4))


def place(values: Floats, grid: Floats) -> tuple[Integers, Floats]:
    """The point of a geometric grid below each value, and how far it is to the next."""
    place = np.interp(np.log(np.maximum(values, grid[0])), np.log(grid), np.arange(len(grid)))
    low = np.minimum(place.astype(np.int64), len(grid) - 2)
    return low, place - low
