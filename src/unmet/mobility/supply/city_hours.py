"""Hours in which a whole city was busier or quieter than usual, from looks that are far apart.

Weather, seasons and holidays change all stations at once. The logarithm of the city's activity over the usual one is a
Gaussian process that forgets (Ornstein-Uhlenbeck), on a grid of values: a hidden Markov chain over the hours. How far
it strays, and how soon it forgets, is found by evidence.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unmet.mobility.clock.bins import Integers
from unmet.mobility.supply.between_broken import Looks
from unmet.mobility.supply.bridge import LOAD, MOST, into_table, probability

__all__ = ["find_city_hours"]

Floats = NDArray[np.float64]

_VALUES = np.linspace(-1.8, 1.8, 61)
_SPREADS = (0.15, 0.25, 0.4, 0.6)  # standard deviations of the process
_HOURS = (4.0, 12.0, 24.0)  # until its correlation is 1/e; with longer ones steps would be finer than the grid
_VAN = 0.03  # probability of a van in an interval
_ROUNDING = 1e-6  # of evidence: where nothing tells, all are equal
_FEWEST = 3  # vehicles at the first look, so that broken ones do not matter


def find_city_hours(looks: Looks, hour: Integers, hours: int) -> Floats:
    """Find the city's activity over the usual one in each hour; 1 if there is no sign that it changes.

    Parameters
    ----------
    looks : Looks
        Intervals with what is usually taken and brought in them.
    hour : array of int
        Hour of each, from 0.
    hours : int
        Number of hours.
    """
    told = (looks.first >= _FEWEST) & (np.abs(looks.first - looks.second) < LOAD)
    likelihood = _by_hour(looks.select(told), hour[told], hours)
    usual = float(likelihood[:, len(_VALUES) // 2].sum())  # all hours as usual
    chains = [_chain(spread, length) for spread in _SPREADS for length in _HOURS]
    evidence = [_filter(likelihood, *chain)[1] for chain in chains]
    best = int(np.argmax(evidence))
    if evidence[best] < usual + _ROUNDING:
        return np.ones(hours)
    return _smooth(likelihood, *chains[best]) @ np.exp(_VALUES)


def _by_hour(looks: Looks, hour: Integers, hours: int) -> Floats:
    """Log-likelihood of the second numbers by hour and value, shape (hours, values)."""
    first, second = into_table(looks.first, looks.second)
    result = np.empty((hours, len(_VALUES)))
    for at, value in enumerate(np.exp(_VALUES)):
        chance = (1 - _VAN) * probability(first, second, value * looks.taken, value * looks.brought)
        result[:, at] = np.bincount(hour, weights=np.log(chance + _VAN / (MOST + 1)), minlength=hours)
    return result


def _chain(spread: float, length: float) -> tuple[Floats, Floats]:
    """Distribution of the process, and that of the next hour's value by this hour's."""
    start = np.exp(-0.5 * (_VALUES / spread) ** 2)
    memory = np.exp(-1 / length)
    step = np.subtract.outer(memory * _VALUES, _VALUES) / (spread * np.sqrt(1 - memory**2))
    table = np.exp(-0.5 * step**2)
    return start / start.sum(), table / table.sum(axis=1, keepdims=True)


def _filter(likelihood: Floats, start: Floats, table: Floats) -> tuple[Floats, float]:
    """Distribution of each hour given the hours up to it, and the evidence."""
    result, evidence = np.empty_like(likelihood), 0.0
    highest = likelihood.max(axis=1, keepdims=True)
    density = np.exp(likelihood - highest)
    ahead = start
    for at, row in enumerate(density):
        joint = ahead * row
        total = joint.sum()
        evidence += float(np.log(total))
        result[at] = joint / total
        ahead = result[at] @ table
    return result, evidence + float(highest.sum())


def _smooth(likelihood: Floats, start: Floats, table: Floats) -> Floats:
    """Distribution of each hour given all hours."""
    result, _ = _filter(likelihood, start, table)
    for at in range(len(result) - 2, -1, -1):
        ahead = result[at] @ table
        result[at] *= table @ (result[at + 1] / np.maximum(ahead, 1e-300))
    return result
