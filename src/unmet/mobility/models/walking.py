"""Riders who find a zone empty and walk on to the next: how likely by distance, and where they end up.

A rider at an empty zone i tries the others in order of distance. The chance to be served at zone j, available in a
share A of the time, is ``P(i→j) = w(d_ij) A_j Π_{k nearer} (1 − w(d_ik) A_k)``. So in a bin in which i is out for a
share ``b``, zone j expects ``λ_i b P(i→j)`` walkers besides its own riders (a *background*), and
``λ_i b (1 − Σ_j P(i→j))`` riders are lost. ``w`` falls with distance; it is learnt from the counts of zones near empty
ones.
"""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit

from unmet._exceptions import FileFormatError, InputError
from unmet._storage.folders import check_regular
from unmet._typing import Array, BoolArray, IntArray
from unmet.mobility.zones.distance import curve_through

__all__ = ["DEFAULT_WALKING", "NO_WALKING", "REACH", "Absorbed", "Walking", "Walks", "learn_walking", "read_curve"]

KNOTS = np.array([0.0, 150.0, 250.0, 350.0, 500.0, 700.0])
"""Metres; between them ``w`` is a monotone cubic (`curve_through`), and beyond the last it is 0."""

REACH = float(KNOTS[-1])
"""Metres that nobody walks beyond."""

# Shares of riders served within 150 m, 250, 350, 500 and 700 m of an empty station were .40, .22, .11, .034 and .003
# in a system of 612 stations (standard errors up to .02): this curve has those means over the area of each ring. (There
# are as many pairs of stations in a ring as it has area.)
_MEASURED = np.array([0.616, 0.306, 0.158, 0.0745, 0.0091])
# Standard deviation of the prior about it: of the logits of the first value and of the ratio of each to the one before.
# Two systems were measured: .40, .22, .11 and .30, .20, .03 within 150 m, 250 and 350 m. In logits they are .1 to .4
# apart, but for the last, whose standard error is as large as itself.
_PRIOR_SD = 0.35
# Probability, before the records are seen, that riders of a system do not walk on at all.
_NOBODY = 0.1
# Riders by which the level of a group of bins is shrunk to 1, and the least that it can be.
_LEVEL_RIDERS, _LEAST_LEVEL = 5.0, 0.05
_MOST_ROWS = 10_000  # of a file with a curve


@dataclass(frozen=True)
class Walking:
    """The chance ``w(d)`` to walk on to a zone at a distance, with its uncertainty.

    Parameters
    ----------
    theta : array of shape (5,) or (0,)
        Logit of w at no distance, then of the ratio of w at each knot to that at the one before: w falls whatever
        they are. Empty where nobody walks.
    covariance : array of shape (5, 5), optional
        Of `theta`; 0 where the curve is given.

    Examples
    --------
    >>> DEFAULT_WALKING(np.array([0.0, 200.0, 900.0])).round(2)
    array([0.62, 0.22, 0.  ])
    """

    theta: Array
    covariance: Array = field(default_factory=lambda: np.zeros((len(KNOTS) - 1,) * 2))

    @classmethod
    def from_values(cls, values: Array) -> Self:
        """The curve with given values at all knots but the last, where it is 0."""
        values = np.asarray(values, dtype=float)
        falls = values.shape == (len(KNOTS) - 1,) and bool((np.diff(values) <= 0).all())
        if not falls or not 0 <= values[-1] <= values[0] < 1:
            raise InputError(
                f"walk: expected {len(KNOTS) - 1} chances of at least 0 and below 1 that do not rise, at "
                f"{KNOTS[:-1].tolist()} metres; got {values.tolist()}."
            )
        ratios = np.divide(values[1:], values[:-1], out=np.zeros(values.size - 1), where=values[:-1] > 0)
        return cls(logit(np.append(values[0], ratios)))  # a ratio of 0 or 1 is an infinite logit, which `expit` undoes

    @property
    def values(self) -> Array:
        """``w`` at the knots."""
        return _values(self.theta)

    def __call__(self, distance: Array) -> Array:
        """``w`` at distances in metres."""
        return curve_through(KNOTS, self.values, distance)

    def draws(self, count: int, rng: np.random.Generator, distance: Array = KNOTS) -> Array:
        """``w`` at distances in metres, of curves drawn from what is known of it: shape (count, n). Each falls."""
        theta = np.broadcast_to(self.theta, (count, len(self.theta)))
        if self.covariance.any() and self.theta.size:
            theta = rng.multivariate_normal(self.theta, self.covariance, size=count, method="eigh")
        return curve_through(KNOTS, _values(theta), distance)

    def sd(self, draws: int = 400) -> Array:
        """Standard deviation of w at the knots."""
        return self.draws(draws, np.random.default_rng(0)).std(axis=0)

    def with_information(self, share: float) -> Self:
        """The curve with a share of the information of the records: with 0, its covariance is the prior's."""
        prior = np.eye(len(self.theta)) / _PRIOR_SD**2
        precision = prior + share * (np.linalg.inv(self.covariance) - prior)
        return replace(self, covariance=np.asarray(np.linalg.inv(precision), dtype=float))

    def in_doubt(self, other: Walking) -> Self:
        """The curve with its distance to another as one more standard deviation; unchanged if nobody walks there."""
        if self.theta.size != other.theta.size:
            return self
        gap = self.theta - other.theta
        return replace(self, covariance=self.covariance + np.outer(gap, gap))

    def describe(self) -> dict[str, Any]:
        """Describe the curve beside the measured one of another system, as JSON-able values."""
        names = ("metres", "chance", "sd", "measured_elsewhere")
        columns = (KNOTS, self.values, self.sd(), DEFAULT_WALKING.values)
        return {name: values.tolist() for name, values in zip(names, columns, strict=True)}

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able description."""
        return {"theta": self.theta.tolist(), "covariance": self.covariance.tolist()}

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> Self:
        """Read back what `to_dict` wrote."""
        try:
            return cls(np.array(description["theta"], dtype=float), np.array(description["covariance"], dtype=float))
        except (KeyError, TypeError, ValueError) as error:
            raise FileFormatError(f"The file does not contain a walking curve: {error!r}") from error


def read_curve(path: Path) -> tuple[float, ...]:
    """Read a curve from a CSV file with columns ``metres`` and ``chance``: its values at all knots but the last.

    Values at the knots are linear between the rows, and flat before the first and after the last row. The curve goes
    through them, and is 0 from 700 metres on.
    """
    check_regular(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            found = list(islice(reader, _MOST_ROWS + 1))
            rows = sorted((float(row["metres"]), float(row["chance"])) for row in found)
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise InputError(
            f"walk: expected a CSV file of numbers, with columns metres and chance; got {path}."
        ) from error
    except OSError as error:
        raise InputError(f"walk: {path} could not be read: {error.strerror}.") from error
    if not 0 < len(rows) <= _MOST_ROWS or not np.isfinite(rows).all():
        raise InputError(f"walk: expected finite numbers in {path}, in 1 to {_MOST_ROWS:,} rows.")
    if any(None in row for row in found):
        raise InputError(
            f"walk: some rows of {path} have more fields than its header. Write decimals with a point, such as 0.8."
        )
    metres, chance = np.array(rows).T
    names = Counter(reader.fieldnames or ())
    if metres[0] < 0 or not np.diff(metres).all() or names["metres"] + names["chance"] > 2:
        raise InputError(f"walk: expected one column metres of distances from 0, each once, and one chance in {path}.")
    return tuple(np.interp(KNOTS[:-1], metres, chance).tolist())


def _values(theta: Array) -> Array:
    """``w`` at the knots, along the last axis."""
    if not theta.shape[-1]:
        return np.zeros((*theta.shape[:-1], len(KNOTS)))
    return np.concatenate([np.cumprod(expit(theta), axis=-1), np.zeros((*theta.shape[:-1], 1))], axis=-1)


DEFAULT_WALKING = Walking.from_values(_MEASURED)
"""The measured curve of another system."""

NO_WALKING = Walking(np.empty(0))
"""Nobody walks on."""


@dataclass(frozen=True)
class Walks:
    """Who was out and who had stock: pairs of an empty zone and a neighbour, bin by bin.

    Rows are sorted by source, bin and distance. A source that was out in a bin has a row for each zone in reach.

    Attributes
    ----------
    source, target, bin : integer arrays of shape (n,)
        The empty zone, its neighbour and the bin.
    distance : array of shape (n,)
        Metres.
    out : array of shape (n,)
        Share of the bin in which the source was out.
    available : array of shape (n,)
        Share of that time in which the target had something to rent.
    """

    source: IntArray
    target: IntArray
    bin: IntArray
    distance: Array
    out: Array
    available: Array

    def __post_init__(self) -> None:
        order = np.lexsort([self.distance, self.bin, self.source])
        if not (order[1:] > order[:-1]).all():
            for name in ("source", "target", "bin", "distance", "out", "available"):
                object.__setattr__(self, name, getattr(self, name)[order])

    def __len__(self) -> int:
        return len(self.source)

    @cached_property
    def _events(self) -> tuple[IntArray, IntArray]:
        """Number of the source's bin that a row belongs to, and the row's rank by distance within it."""
        if not len(self):
            return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
        first = np.ones(len(self), dtype=bool)
        first[1:] = (self.source[1:] != self.source[:-1]) | (self.bin[1:] != self.bin[:-1])
        event = np.cumsum(first) - 1
        return event, np.arange(len(self)) - np.flatnonzero(first)[event]

    @cached_property
    def _by_rank(self) -> list[IntArray]:
        rank = self._events[1]
        order = np.argsort(rank, kind="stable")
        return np.split(order, np.cumsum(np.bincount(rank))[:-1]) if len(rank) else []

    @cached_property
    def _distances(self) -> tuple[Array, IntArray]:
        """Distances that occur, and the number of each row's: a pair of zones has one, and occurs in many bins."""
        distances, of_row = np.unique(self.distance, return_inverse=True)
        return distances, of_row

    def chances(self, walking: Walking) -> Array:
        """``P(i→j)`` of each row: not served by any nearer zone, then served by this one."""
        event, _ = self._events
        distances, of_row = self._distances
        success = walking(distances)[of_row] * self.available
        left = np.ones(int(event[-1]) + 1 if len(event) else 0)
        chance = np.empty(len(self))
        for rows in self._by_rank:
            here = event[rows]
            chance[rows] = left[here] * success[rows]
            left[here] -= chance[rows]
        return chance

    def walked_on(self, walking: Walking, shape: tuple[int, int]) -> Array:
        """Chance that a rider who finds the zone empty is served elsewhere, shape (zones, bins)."""
        total = np.zeros(shape)
        np.add.at(total, (self.source, self.bin), self.chances(walking))
        return total

    def background(self, walking: Walking, rate: Array) -> Array:
        """Walkers expected at each zone and bin, given the rates of all, both of shape (zones, bins)."""
        return self.arrivals(walking, rate[self.source, self.bin] * self.out, rate.shape)

    def arrivals(self, walking: Walking, riders: Array, shape: tuple[int, ...]) -> Array:
        """Walkers expected at each zone and bin, given the riders who find the source of each row empty."""
        total = np.zeros(shape)
        np.add.at(total, (self.target, self.bin), riders * self.chances(walking))
        return total


def learn_walking(
    walks: Walks,
    observed: Array,
    own: Array,
    riders: Array,
    *,
    dispersion: Array | float = 0.0,
    prior: Walking = DEFAULT_WALKING,
    absorbed: Absorbed | None = None,
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
    """
    seen = np.isfinite(observed)
    rows = seen[walks.target, walks.bin]
    cells, cell = np.unique(walks.target[rows] * observed.shape[1] + walks.bin[rows], return_inverse=True)
    y, mine, came = observed.ravel()[cells], own.ravel()[cells], riders[rows]
    spread = np.broadcast_to(np.asarray(dispersion, dtype=float), observed.shape).ravel()[cells]
    level = None if absorbed is None else _Levels.of(absorbed, observed, own, cells)

    def log_likelihood(walking: Walking) -> float:
        chance = walks.chances(walking)[rows]
        walkers = np.asarray(np.bincount(cell, came * chance, minlength=len(cells)), dtype=float)
        factor, elsewhere = (1.0, 0.0) if level is None else level(walkers)
        return _log_counts(y, np.maximum(mine * factor + walkers, 1e-9), spread) + elsewhere

    def negative(theta: Array) -> float:
        distance = (theta - prior.theta) / _PRIOR_SD
        return -log_likelihood(Walking(theta)) + 0.5 * float(distance @ distance)

    found = minimize(negative, prior.theta, method="BFGS", options={"gtol": 1e-3 * max(1.0, np.sqrt(len(y)) / 10)})
    precision = _hessian(negative, found.x)
    # Laplace: the prior's volume that is left, ``|H|^-1/2 / sd^k``.
    evidence = -float(found.fun) - 0.5 * float(np.linalg.slogdet(precision * _PRIOR_SD**2)[1])
    if log_likelihood(NO_WALKING) + np.log(_NOBODY / (1 - _NOBODY)) > evidence:
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

    def __call__(self, walkers: Array) -> tuple[Array, float]:
        """Factor of the own riders of each cell, and the log likelihood of the bins without walkers."""
        level = self.absorbed.of_sums(np.bincount(self.of_cell, walkers, minlength=len(self.absorbed.own)))
        elsewhere = self.observed_elsewhere * np.log(level) - self.own_elsewhere * level
        return level[self.of_cell], float(elsewhere.sum())


def _log_counts(y: Array, mean: Array, dispersion: Array) -> float:
    """Log likelihood without what does not depend on the mean; Poisson counts are the limit of little dispersion."""
    r = 1 / np.maximum(dispersion, 1e-6)
    return float(np.sum(y * np.log(mean) - (y + r) * np.log1p(mean / r)))


def _hessian(function: Any, at: Array, step: float = 0.02) -> Array:
    """By central differences; eigenvalues below the prior's are those of the prior (nothing was learnt there)."""
    size = len(at)
    unit = step * np.eye(size)
    H = np.empty((size, size))
    centre = function(at)
    for i in range(size):
        for j in range(i + 1):
            if i == j:
                H[i, i] = (function(at + unit[i]) - 2 * centre + function(at - unit[i])) / step**2
            else:
                corners = [function(at + a * unit[i] + b * unit[j]) for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1))]
                H[i, j] = H[j, i] = (corners[0] - corners[1] - corners[2] + corners[3]) / (4 * step**2)
    values, vectors = np.linalg.eigh(H)
    return (vectors * np.maximum(values, 1 / _PRIOR_SD**2)) @ vectors.T
