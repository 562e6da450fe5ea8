"""Vehicles that riders take and bring, by the likelihood of the numbers at two looks.

The process is that of `unmet.mobility.supply.bridge`, so that a count that stops at zero is taken as such. Vans come,
too: with some probability a look shows any number. Moves are found on the grid of rates for which the process is
tabulated, and between its points, with priors for their logarithms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from unmet.mobility.clock.bins import Integers
from unmet.mobility.supply.bridge import MOST, MOVES, RATIOS, log_probabilities, place

__all__ = ["RiderMoves", "at_times_moves", "find_moves", "log_likelihoods"]

Floats = NDArray[np.float64]

_VANS = (0.003, 0.03, 0.2)  # probability of a van in an interval; each is as likely
_RATIO_SPREAD = 0.6  # prior standard deviation of the logarithm of vehicles taken over brought
_TOGETHER = 10_000
_FINER, _CELLS_AT_ONCE = 4, 400


@dataclass(frozen=True)
class RiderMoves:
    """Moves in an interval of some cells, such as hours of the day of a station.

    Attributes
    ----------
    moves, variance : array
        Posterior mean and variance of the logarithm of the geometric mean of vehicles taken and brought.
    ratio : array
        Posterior mean of the logarithm of vehicles taken over those brought.
    """

    moves: Floats
    variance: Floats
    ratio: Floats


def log_likelihoods(cell: Integers, first: Integers, second: Integers, cells: int) -> Floats:
    """Log-likelihood of the second numbers given the first, shape (cells, moves, ratios)."""
    kinds, number = np.unique(np.stack([cell, first, np.minimum(second, MOST)]), axis=1, return_counts=True)
    result = np.full((cells, len(MOVES), len(RATIOS)), -np.inf)
    for van in _VANS:
        total, table = np.zeros(result.shape), log_probabilities(van)
        for part in range(0, kinds.shape[1], _TOGETHER):
            of, a, b = kinds[:, part : part + _TOGETHER]
            edge = np.flatnonzero(np.diff(of, prepend=-1))
            terms = table[:, :, a, b].transpose(2, 0, 1) * number[part : part + _TOGETHER, None, None]
            total[of[edge]] += np.add.reduceat(terms, edge)
        np.logaddexp(result, total, out=result)
    return result


def at_times_moves(likelihood: Floats, times: float) -> Floats:
    """Return the likelihood at `times` as many moves, for intervals so much longer than others.

    It is linear between points of the grid. Beyond the grid it is that at its end.
    """
    low, more = place(MOVES * times, MOVES)
    result: Floats = (1 - more)[:, None] * likelihood[:, low] + more[:, None] * likelihood[:, low + 1]
    return result


def find_moves(likelihood: Floats, usual: Floats, spread: float) -> RiderMoves:
    """Find the moves of each cell.

    Parameters
    ----------
    likelihood : array, shape (cells, moves, ratios)
        From `log_likelihoods`.
    usual : array
        Moves to expect in each cell, the centre of the prior.
    spread : float
        Prior standard deviation of the logarithm of moves.
    """
    parts = [
        _posterior(likelihood[at : at + _CELLS_AT_ONCE], np.log(usual[at : at + _CELLS_AT_ONCE]), spread)
        for at in range(0, len(usual), _CELLS_AT_ONCE)
    ]
    return RiderMoves(*(np.concatenate([part[i] for part in parts]) for i in range(3)))


def _posterior(likelihood: Floats, log_usual: Floats, spread: float) -> tuple[Floats, Floats, Floats]:
    """Posterior moments of `RiderMoves`, on a grid that is finer than that of the tables.

    The likelihood is smooth between points of the grid. With many looks it is narrower than the distance of two.
    """
    log_moves, log_ratio = (_between_points(np.log(grid), _FINER) for grid in (MOVES, RATIOS))
    value = CubicSpline(np.log(MOVES), likelihood, axis=1)(log_moves)
    value = CubicSpline(np.log(RATIOS), value, axis=2)(log_ratio)
    value -= 0.5 * ((log_moves - log_usual[:, None]) / spread)[:, :, None] ** 2 + 0.5 * (log_ratio / _RATIO_SPREAD) ** 2
    weight = np.exp(value - value.max(axis=(1, 2), keepdims=True))
    weight /= weight.sum(axis=(1, 2), keepdims=True)
    of_moves = weight.sum(axis=2)
    mean = of_moves @ log_moves
    return mean, of_moves @ log_moves**2 - mean**2, weight.sum(axis=1) @ log_ratio


def _between_points(grid: Floats, parts: int) -> Floats:
    """The points of an even grid, and those that cut each of its intervals into parts."""
    return np.linspace(grid[0], grid[-1], parts * (len(grid) - 1) + 1)
