"""How far riders walk on, learnt from the counts of zones beside empty ones (`unmet.mobility.models.walking`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from unmet._typing import Array, BoolArray, IntArray
from unmet.mobility.models.walking import DEFAULT_WALKING, NO_WALKING, PRIOR_SD, Walking, Walks

__all__ = ["Absorbed", "learn_walking"]

# Probability, before the records are seen, that riders of a system do not walk on at all.
_NOBODY = 0.1
# Riders by which the level of a group of bins is shrunk to 1, and the least that it can be.
_LEVEL_RIDERS, _LEAST_LEVEL = 5.0, 0.05
_LEAST_MEAN = 1e-9  # of a count


def learn_walking(
    walks: Walks,
    observed: Array,
    own: Array,
    riders: Array,
    *,
    dispersion: Array | float = 0.0,
    prior: Walking = DEFAULT_WALKING,
    absorbed: Absorbed | None = None,
    start: Walking | None = None,
    laplace: bool = True,
) -> Walking:
    """Learn ``w(d)`` from the counts of zones beside empty ones.

    Counts are negative binomial about own riders plus walkers. The most probable curve under a normal prior of `theta`
    about a given one, with the curvature there for its covariance (Laplace). If it is more probable that nobody walks,
    that is returned: a curve near zero is far from any that was measured, so the normal prior does not reach it.

    Parameters
    ----------
    walks : Walks
        Who was out and who had stock.
    observed : array of shape (zones, bins)
        Pickups; NaN where none were recorded.
    own : array of shape (zones, bins)
        Pickups expected of a zone's own riders: exposure times rate. It must not have been learnt from the count of
        the same zone and bin, or walkers would be taken for own riders (see `Shocks.left_out_mean`).
    riders : array of shape (n,)
        Riders expected to find the source of each row empty. They must not have been learnt from the count of the
        row's target, or chance would be taken for walkers (see `Shocks.elsewhere`).
    dispersion : float or array of shape (zones, bins)
        Of the counts beyond Poisson, with what is not known of `own`.
    prior : Walking
        About which the curve is shrunk.
    absorbed : Absorbed, optional
        Walkers that `own` was fitted beside. Without it, `own` is taken to be right whatever the curve.
    start : Walking, optional
        Where the search starts, such as the curve of the turn before; by default the prior.
    laplace : bool
        Whether to compute the covariance, and whether nobody walks. Without it the covariance is 0.
    """
    counts = _Counts.of(walks, observed, own, riders, dispersion, absorbed)

    def cost(theta: Array) -> tuple[float, Array]:
        distance = (theta - prior.theta) / PRIOR_SD
        value, slope = counts.log_likelihood(Walking(theta))
        return 0.5 * float(distance @ distance) - value, distance / PRIOR_SD - slope

    begin, options = prior.theta, {"gtol": 1e-3 * max(1.0, np.sqrt(len(counts.y)) / 10)}
    if start is not None and start.theta.size == begin.size:
        begin = start.theta
        if np.linalg.matrix_rank(start.covariance) == begin.size:
            options["hess_inv0"] = (start.covariance + start.covariance.T) / 2
    found = minimize(cost, begin, jac=True, method="BFGS", options=options)  # type: ignore[call-overload]
    if not laplace:
        return Walking(found.x)
    precision = _hessian(lambda theta: cost(theta)[1], found.x)
    # Laplace: the prior's volume that is left, ``|H|^-1/2 / sd^k``.
    evidence = -float(found.fun) - 0.5 * float(np.linalg.slogdet(precision * PRIOR_SD**2)[1])
    if counts.log_likelihood(NO_WALKING)[0] + np.log(_NOBODY / (1 - _NOBODY)) > evidence:
        return NO_WALKING
    return Walking(found.x, np.asarray(np.linalg.inv(precision), dtype=float))


@dataclass(frozen=True)
class Absorbed:
    """Own riders and walkers that the fits of zones were made with, by group of bins such as an hour of the day.

    A fit takes the riders that its background leaves out for own riders. So when the curve gives a group more walkers
    than its fit had, it has as many own riders less.

    Attributes
    ----------
    group : integer array of shape (zones, bins)
        Number of the group of each bin.
    own, walkers : arrays of shape (groups,)
        Expected in all bins of a group in which riders were counted.
    """

    group: IntArray
    own: Array
    walkers: Array

    @classmethod
    def by(cls, group: IntArray, groups: int, own: Array, walkers: Array, seen: BoolArray) -> Self:
        """Sum the bins that were seen; all arrays are of shape (zones, bins)."""
        sums = (np.bincount(group[seen], values[seen], minlength=groups) for values in (own, walkers))
        return cls(group, *(np.asarray(total, dtype=float) for total in sums))

    def level(self, walkers: Array) -> Array:
        """Own riders of each group over those of its fit, given the walkers of each bin, shape (zones, bins)."""
        return self.of_sums(np.bincount(self.group.ravel(), walkers.ravel(), minlength=len(self.own)))

    def of_sums(self, came: NDArray[Any]) -> Array:
        """The same, given the walkers of each group."""
        left = self.own + self.walkers - came + _LEVEL_RIDERS
        return np.asarray(np.maximum(left / (self.own + _LEVEL_RIDERS), _LEAST_LEVEL))

    def slope(self, level: Array) -> Array:
        """Derivative of each level by the walkers of its group."""
        return np.where(level > _LEAST_LEVEL, -1 / (self.own + _LEVEL_RIDERS), 0.0)


@dataclass(frozen=True)
class _Levels:
    """Level of own riders of the cells that walkers may come to, and likelihood of the other cells at that level."""

    absorbed: Absorbed
    of_cell: IntArray
    observed_elsewhere: Array
    own_elsewhere: Array

    @classmethod
    def of(cls, absorbed: Absorbed, observed: Array, own: Array, cells: IntArray) -> _Levels:
        group, y, expected = absorbed.group.ravel(), observed.ravel(), own.ravel()
        rest = np.isfinite(y)
        rest[cells] = False
        sums = (np.bincount(group[rest], v[rest], minlength=len(absorbed.own)) for v in (y, expected))
        return cls(absorbed, group[cells], *(np.asarray(total, dtype=float) for total in sums))

    def by_group(self, values: Array) -> Array:
        """Sum values of cells by group."""
        return np.asarray(np.bincount(self.of_cell, values, minlength=len(self.absorbed.own)), dtype=float)

    def level(self, walkers: Array) -> Array:
        """Factor of the own riders of each group, given the walkers of each cell."""
        return self.absorbed.of_sums(self.by_group(walkers))

    def elsewhere(self, level: Array) -> tuple[float, Array]:
        """Log likelihood of the bins without walkers, and its derivatives by the level of each group."""
        value = self.observed_elsewhere * np.log(level) - self.own_elsewhere * level
        return float(value.sum()), self.observed_elsewhere / level - self.own_elsewhere


@dataclass(frozen=True)
class _Counts:
    """Counts of the cells (zone and bin) that walkers may come to.

    Attributes
    ----------
    walks : Walks
        All walks.
    cell : integer array
        The cell that each walk leads to.
    riders : array
        Riders who find the source of each walk empty; 0 for a walk to a zone that was not counted.
    y, own, dispersion : arrays of shape (cells,)
        Pickups, own riders expected, dispersion.
    levels : _Levels or None
        How own riders change with the walkers.
    """

    walks: Walks
    cell: IntArray
    riders: Array
    y: Array
    own: Array
    dispersion: Array
    levels: _Levels | None

    @classmethod
    def of(
        cls,
        walks: Walks,
        observed: Array,
        own: Array,
        riders: Array,
        dispersion: Array | float,
        absorbed: Absorbed | None,
    ) -> _Counts:
        at = walks.target * observed.shape[1] + walks.bin
        counted = np.isfinite(observed).ravel()[at]
        come_to = np.zeros(observed.size, dtype=bool)
        come_to[at[counted]] = True
        cells, number = np.flatnonzero(come_to), np.cumsum(come_to) - 1
        cell, riders = np.where(counted, number[at], 0), np.where(counted, riders, 0.0)
        spread = np.broadcast_to(np.asarray(dispersion, dtype=float), observed.shape).ravel()[cells]
        levels = None if absorbed is None else _Levels.of(absorbed, observed, own, cells)
        return cls(walks, cell, riders, observed.ravel()[cells], own.ravel()[cells], spread, levels)

    def log_likelihood(self, walking: Walking) -> tuple[float, Array]:
        """Log likelihood of a curve, without what does not depend on it, and its derivatives by `theta`."""
        came = self.riders * self.walks.chances(walking)
        walkers = np.asarray(np.bincount(self.cell, came, minlength=len(self.y)), dtype=float)
        if self.levels is None:
            value, by_walkers = _log_counts(self.y, self.own + walkers, self.dispersion)
        else:
            level = self.levels.level(walkers)
            here, by_walkers = _log_counts(self.y, self.own * level[self.levels.of_cell] + walkers, self.dispersion)
            elsewhere, by_level = self.levels.elsewhere(level)
            value = here + elsewhere
            by_level = by_level + self.levels.by_group(self.own * by_walkers)
            by_walkers = by_walkers + (by_level * self.levels.absorbed.slope(level))[self.levels.of_cell]
        if not walking.theta.size:
            return value, np.empty(0)
        return value, self.walks.slope(walking, self.riders * by_walkers[self.cell])


def _log_counts(y: Array, mean: Array, dispersion: Array) -> tuple[float, Array]:
    """Log likelihood without what does not depend on the mean, and its derivatives by the means.

    Poisson counts are the limit of little dispersion.
    """
    r = 1 / np.maximum(dispersion, 1e-6)
    clipped = np.maximum(mean, _LEAST_MEAN)
    value = float(np.sum(y * np.log(clipped) - (y + r) * np.log1p(clipped / r)))
    return value, np.where(mean > _LEAST_MEAN, y / clipped - (y + r) / (r + clipped), 0.0)


def _hessian(slope: Callable[[Array], Array], at: Array, step: float = 0.02) -> Array:
    """By central differences of the slope; eigenvalues below the prior's are the prior's (nothing was learnt there)."""
    moves = step * np.eye(len(at))
    H = np.array([slope(at + move) - slope(at - move) for move in moves]) / (2 * step)
    values, vectors = np.linalg.eigh((H + H.T) / 2)
    return (vectors * np.maximum(values, 1 / PRIOR_SD**2)) @ vectors.T
