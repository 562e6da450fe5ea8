"""The level a station should start from, and the value of one more bike, dock or visit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unmet._exceptions import InputError
from unmet._numbers import read_count, read_numbers, read_rate
from unmet._typing import Array
from unmet.decisions.station import LARGEST_COST, MOST_DOCKS, expected_lost

__all__ = ["Target", "target_level", "value_of_a_dock", "value_of_bikes"]


@dataclass(frozen=True)
class Target:
    """The level with the lowest expected cost.

    Attributes
    ----------
    level : int
        The level with the lowest mean cost; the lowest such level where several tie.
    low, high : int
        The band: levels whose mean cost exceeds the minimum by at most the tolerance. A station inside its band
        needs no visit.
    cost : float
        Mean cost at `level`.
    """

    level: int
    low: int
    high: int
    cost: float


def target_level(cost: npt.ArrayLike, tolerance: float = 0.5) -> Target:
    """Find the level with the lowest cost, averaged over scenarios.

    Parameters
    ----------
    cost : array-like of shape (levels,) or (scenarios, levels)
        Expected cost by start level: see `LostRiders.cost`.
    tolerance : float
        Riders by which a level in the band may exceed the minimum.

    Returns
    -------
    Target

    Notes
    -----
    The cost is convex in the level, so the band has no holes.

    Examples
    --------
    >>> target_level([3.0, 1.2, 1.0, 1.4, 4.0])
    Target(level=2, low=1, high=3, cost=1.0)
    """
    array = _costs(cost)
    if array.ndim > 2:
        raise InputError(f"cost: expected one value per level, or scenarios by levels; got shape {array.shape}.")
    allowed = read_rate(tolerance, "tolerance")
    mean = array if array.ndim == 1 else array.mean(axis=0)
    best = int(mean.argmin())
    good = np.flatnonzero(mean <= mean[best] + allowed)
    return Target(best, int(good[0]), int(good[-1]), float(mean[best]))


def value_of_bikes(cost: npt.ArrayLike) -> Array:
    """Riders gained by one more bike at each level, ``cost[..., s] - cost[..., s + 1]``; one value fewer than levels.

    The gain falls from level to level (the cost is convex). It is negative beyond the target.

    Examples
    --------
    >>> value_of_bikes([3.0, 1.5, 1.0, 1.5]).tolist()
    [1.5, 0.5, -0.5]
    """
    return -np.diff(_costs(cost), axis=-1)


def _costs(cost: npt.ArrayLike) -> Array:
    array = read_numbers(cost, "cost")
    if array.ndim == 0 or array.size == 0 or not (np.abs(array) <= LARGEST_COST).all():
        raise InputError(
            f"cost: expected finite values, one per level, at most {LARGEST_COST:g} in size; got shape {array.shape}."
        )
    return array


def value_of_a_dock(
    rentals: npt.ArrayLike,
    returns: npt.ArrayLike,
    capacity: int,
    *,
    hours: float = 1.0,
    no_bike: float = 1.0,
    no_dock: float = 1.0,
) -> Array:
    """Riders gained by one more empty dock, for each start level of today's capacity.

    Parameters are those of `unmet.decisions.expected_lost` and the penalties of `LostRiders.cost`.

    Examples
    --------
    >>> gain = value_of_a_dock([1.0], [3.0], capacity=4)
    >>> bool((np.diff(gain) > 0).all())  # a fuller station gains more
    True
    """
    capacity = read_count(capacity, "capacity", 0, MOST_DOCKS - 1)
    now = expected_lost(rentals, returns, capacity, hours=hours).cost(no_bike, no_dock)
    larger = expected_lost(rentals, returns, capacity + 1, hours=hours).cost(no_bike, no_dock)
    return now - larger[..., :-1]
