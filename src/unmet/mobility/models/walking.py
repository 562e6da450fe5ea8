"""Riders who find a zone empty and walk on to the next: how likely by distance, and where they end up.

A rider at an empty zone i tries the others in order of distance. The chance to be served at zone j, available in a
share A of the time, is ``P(i→j) = w(d_ij) A_j Π_{k nearer} (1 − w(d_ik) A_k)``. So in a bin in which i is out for a
share ``b``, zone j expects ``λ_i b P(i→j)`` walkers besides its own riders (a *background*), and
``λ_i b (1 − Σ_j P(i→j))`` riders are lost. ``w`` falls with distance; `unmet.mobility.models.walking_learning` learns
it.
"""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy.special import expit, logit

from unmet._exceptions import FileFormatError, InputError
from unmet._storage.folders import check_regular
from unmet._typing import Array, IntArray
from unmet.mobility.zones.distance import curve_through

__all__ = ["DEFAULT_WALKING", "NO_WALKING", "PRIOR_SD", "REACH", "Walking", "Walks", "read_curve"]

KNOTS = np.array([0.0, 150.0, 250.0, 350.0, 500.0, 700.0])
"""Metres; between them ``w`` is a monotone cubic (`curve_through`), and beyond the last it is 0."""

REACH = float(KNOTS[-1])
"""Metres that nobody walks beyond."""

# Shares of riders served within 150 m, 250, 350, 500 and 700 m of an empty station were .40, .22, .11, .034 and .003
# in a system of 612 stations (standard errors up to .02): this curve has those means over the area of each ring. (There
# are as many pairs of stations in a ring as it has area.)
_MEASURED = np.array([0.616, 0.306, 0.158, 0.0745, 0.0091])
PRIOR_SD = 0.35
"""Standard deviation of the prior of `Walking.theta` about the measured one.

Two systems were measured: .40, .22, .11 and .30, .20, .03 within 150 m, 250 and 350 m. In logits they are .1 to .4
apart, but for the last, whose standard error is as large as itself."""
_STEP = 1e-5  # of theta, for the curve's derivatives
_MOST_ROWS, _LEAST_METRES = 10_000, 10.0  # of a file with a curve; one that ends nearer is not in metres
_BLOCK = 20_000  # rows of walks whose arrays stay in the cache


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

    def jacobian(self, distance: Array) -> Array:
        """Derivatives of ``w`` at distances by `theta`, shape (5, n): central differences, to some 1e-9."""
        step = _STEP * np.eye(len(self.theta))
        ahead, behind = (curve_through(KNOTS, _values(self.theta + sign * step), distance) for sign in (1, -1))
        return np.asarray((ahead - behind) / (2 * _STEP))

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
        prior = np.eye(len(self.theta)) / PRIOR_SD**2
        precision = prior + share * (np.linalg.inv(self.covariance) - prior)
        return replace(self, covariance=np.asarray(np.linalg.inv(precision), dtype=float))

    def unseen(self) -> Self:
        """The curve with the covariance of the prior: no record tells it."""
        return replace(self, covariance=PRIOR_SD**2 * np.eye(len(self.theta)))

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
    if metres[0] >= KNOTS[-1] or metres[-1] < _LEAST_METRES:
        raise InputError(
            f"walk: expected distances in metres, some of them from {_LEAST_METRES:g} on and some below "
            f"{KNOTS[-1]:g}; got {metres[0]:,g} to {metres[-1]:,g} in {path}."
        )
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

    def of_source(self, zone: int) -> IntArray:
        """Rows of an empty zone, in order."""
        return np.arange(*np.searchsorted(self.source, [zone, zone + 1]))

    def of_target(self, zone: int) -> IntArray:
        """Rows of a neighbour, in order."""
        order, target = self._by_target
        return order[slice(*np.searchsorted(target, [zone, zone + 1]))]

    @cached_property
    def _by_target(self) -> tuple[IntArray, IntArray]:
        order = np.argsort(self.target, kind="stable")
        return order, self.target[order]

    @cached_property
    def _blocks(self) -> list[tuple[slice, int]]:
        """Stretches of rows with the same number of neighbours in each bin, and that number.

        They are short enough for their arrays to stay in the cache.
        """
        if not len(self):
            return []
        changes = (np.diff(self.source) != 0) | (np.diff(self.bin) != 0)
        first = np.concatenate([[0], np.flatnonzero(changes) + 1, [len(self)]])
        neighbours = np.diff(first)
        blocks = []
        runs = np.concatenate([[0], np.flatnonzero(np.diff(neighbours)) + 1, [len(neighbours)]])
        for begin, end in pairwise(runs.tolist()):
            count = int(neighbours[begin])
            step = max(_BLOCK // count, 1)
            blocks += [(slice(first[i], first[min(i + step, end)]), count) for i in range(begin, end, step)]
        return blocks

    @cached_property
    def _distances(self) -> tuple[Array, IntArray]:
        """Distances that occur, and the number of each row's: a pair of zones has one, and occurs in many bins."""
        distances, of_row = np.unique(self.distance, return_inverse=True)
        return distances, of_row

    def _success(self, walking: Walking) -> Array:
        """Chance of each row that a rider who comes by is served."""
        distances, of_row = self._distances
        return walking(distances)[of_row] * self.available

    def chances(self, walking: Walking) -> Array:
        """``P(i→j)`` of each row: not served by any nearer zone, then served by this one."""
        success, chance = self._success(walking), np.empty(len(self))
        for rows, count in self._blocks:
            s = success[rows].reshape(-1, count)
            chance[rows].reshape(-1, count)[:] = s * _left(s)
        return chance

    def slope(self, walking: Walking, weight: Array) -> Array:
        """Derivatives of ``Σ weight · P(i→j)`` by `theta` of the curve.

        The chain rule backwards: ``∂/∂s_k = left_k (weight_k − after_k)``, with ``after_k`` what is expected of a rider
        who was not served at k, ``after_{k−1} = weight_k s_k + (1 − s_k) after_k``.
        """
        success, by_success = self._success(walking), np.empty(len(self))
        for rows, count in self._blocks:
            s, here = (np.ascontiguousarray(values[rows].reshape(-1, count).T) for values in (success, weight))
            after, found = np.zeros(s.shape[1]), np.empty(s.shape)
            for k in range(count - 1, -1, -1):
                gain = here[k] - after
                found[k] = gain
                after = after + gain * s[k]
            by_success[rows].reshape(-1, count)[:] = (_left(s, axis=0) * found).T
        distances, of_row = self._distances
        by_chance = np.bincount(of_row, by_success * self.available, minlength=len(distances))
        return walking.jacobian(distances) @ by_chance

    def walked_on(self, walking: Walking, shape: tuple[int, int]) -> Array:
        """Chance that a rider who finds the zone empty is served elsewhere, shape (zones, bins)."""
        return _sums(self.source, self.bin, self.chances(walking), shape)

    def background(self, walking: Walking, rate: Array) -> Array:
        """Walkers expected at each zone and bin, given the rates of all, both of shape (zones, bins)."""
        return self.arrivals(walking, rate[self.source, self.bin] * self.out, rate.shape)

    def arrivals(self, walking: Walking, riders: Array, shape: tuple[int, ...]) -> Array:
        """Walkers expected at each zone and bin, given the riders who find the source of each row empty."""
        return _sums(self.target, self.bin, riders * self.chances(walking), shape)


def _left(success: Array, axis: int = 1) -> Array:
    """Chance that a rider was served by no nearer neighbour; neighbours are along the axis."""
    left = np.roll(np.cumprod(1 - success, axis=axis), 1, axis=axis)
    left[(slice(None), 0) if axis else 0] = 1.0
    return np.asarray(left)


def _sums(zone: IntArray, bin_: IntArray, values: Array, shape: tuple[int, ...]) -> Array:
    """Sum values by zone and bin."""
    total = np.bincount(zone * shape[1] + bin_, values, minlength=shape[0] * shape[1])
    return np.asarray(total.reshape(shape), dtype=float)
