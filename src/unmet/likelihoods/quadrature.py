"""Moments of any likelihood times a Gaussian: slow and robust.

Used to test closed forms, and to define a likelihood by its logarithm.

Naming: ``g = log p(observation | f) + log N(f | m, v)`` is the log of the tilted density, ``c`` its mode,
``x = f − c``. Arrays over nodes and rows have the shape ``(nodes, rows)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unmet._exceptions import InputError, NumericalError
from unmet._typing import Array, IntArray
from unmet.likelihoods.base import Likelihood, Observations, Tilted

__all__ = ["QuadratureLikelihood", "adaptive_panels", "graded_panels", "highest_points"]

# Gauss–Legendre rule of a panel. It is accepted where it agrees with the same rule on the panel's two halves.
_PANEL_NODES, _PANEL_WEIGHTS = np.polynomial.legendre.leggauss(16)
_PANEL_AGREEMENT = 1e-9
# Panels are halved at most `_DEPTH` times. After `_PATIENCE` halvings disagreement is rounding error (of counts of a
# billion and more), so the tolerance grows with every further halving, up to 1e-4.
_DEPTH, _PATIENCE = 16, 7
# The domain ends where g has fallen by this much at two consecutive doublings of the distance.
_DROP = 60.0
# Distances from m, in sd, at which the mode is first searched: spaced by a tenth at the centre, up to 80,000.
_SEARCH = np.sinh(np.linspace(-12, 12, 241))


@dataclass(frozen=True)
class QuadratureLikelihood(Likelihood):
    """A likelihood of one's own, from nothing but its logarithm.

    It has no hyper-parameters. The tilted density may have any smooth shape, as long as its highest peak is
    at or next to the best of 241 points, and nothing matters beyond a valley of ``exp(−60)``. Accurate to
    about 1e-9, and many times slower than a likelihood with its own rule.

    Parameters
    ----------
    log_likelihood : callable
        ``(obs, f) → log p(obs | f)``, where f and the result have shape ``(k, n)`` for n observations.
    moments : callable, optional
        ``f → (mean, variance)`` of demand given f, for `rate` and `predict`.
    sampler : callable, optional
        ``(f, rng) → demand`` drawn given f, for `sample`.

    Examples
    --------
    Errors with heavy tails (Student's t with four degrees of freedom):

    >>> def student(obs, f):
    ...     return -2.5 * np.log1p((obs.lower - f) ** 2 / 4)
    >>> obs = Observations(np.array([0.5, 9.0]), np.array([0.5, 9.0]))
    >>> QuadratureLikelihood(student).tilted(obs, np.zeros(2), np.ones(2)).d1.round(3)
    array([0.239, 0.568])
    """

    log_likelihood: Callable[[Observations, Array], Array]
    moments: Callable[[Array], tuple[Array, Array]] | None = None
    sampler: Callable[[Array, np.random.Generator], Array] | None = None

    def tilted(self, obs: Observations, mean: Array, var: Array) -> Tilted:
        """Compute the moments of ``p(obs | f) N(f | mean, var)``."""

        def g(rows: IntArray, f: Array) -> Array:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                value = self.log_likelihood(obs[rows], f) - 0.5 * (f - mean[rows]) ** 2 / var[rows]
            return np.where(np.isnan(value), -np.inf, value)

        n = mean.size
        centre, peak = highest_points(g, mean, np.sqrt(var))
        sides = [graded_panels(g, centre, peak, np.sqrt(var), side) for side in (-1.0, 1.0)]
        row, low, high = (np.concatenate(parts) for parts in zip(*sides, strict=True))
        width = np.zeros(n)
        np.maximum.at(width, row, np.maximum(-low, high))

        def integrands(rows: IntArray, x: Array) -> list[Array]:
            w = np.exp(g(rows, centre[rows] + x) - peak[rows])
            return [w, w * x, w * x**2]

        scale = width / np.sqrt(2 * _DROP)
        z, x, xx = adaptive_panels(integrands, row, low, high, np.stack([np.ones(n), scale, scale**2]))
        first = x / z
        shrink = (xx / z - first**2) / var
        return Tilted(
            log_z=peak - 0.5 * np.log(2 * np.pi * var) + np.log(z),
            d1=(centre - mean + first) / var,
            d2=(shrink - 1) / var,
            shrink=shrink,
            d_theta=np.empty((n, 0)),
        )

    def _moments(self, f: Array) -> tuple[Array, Array]:
        if self.moments is None:
            raise InputError("This method needs a function f → (mean, variance) of demand. Give it as `moments`.")
        return self.moments(f)

    def rate(self, f: Array) -> Array:
        """Return expected demand given latent values, from `moments`."""
        return self._moments(f)[0]

    def rate_moments(self, mean: Array, var: Array) -> tuple[Array, Array]:
        """Return mean and variance of `rate` for ``f ~ N(mean, var)``."""
        expected, between, _ = self._spread(mean, var)
        return expected, between

    def rate_covariance(self, mean: Array, cov: Array) -> tuple[Array, Array]:
        """Raise `InputError`: the covariance of rates needs integrals over pairs of latent values."""
        raise InputError(
            "The covariance of rates is not available for a likelihood given by its logarithm. "
            "Estimate it from draws of f."
        )

    def predict(self, mean: Array, var: Array) -> tuple[Array, Array]:
        """Return mean and variance of demand for ``f ~ N(mean, var)``."""
        expected, between, within = self._spread(mean, var)
        return expected, between + within

    def _spread(self, mean: Array, var: Array) -> tuple[Array, Array, Array]:
        """Return mean of demand, variance of its mean, and mean of its variance (trapezoidal rule over ±8.5 sd)."""
        t = np.linspace(-8.5, 8.5, 171)[:, None]
        weight = np.exp(-0.5 * t**2) / np.exp(-0.5 * t**2).sum()
        m, v = self._moments(mean + t * np.sqrt(var))
        expected = (weight * m).sum(axis=0)
        return expected, (weight * (m - expected) ** 2).sum(axis=0), (weight * v).sum(axis=0)

    def quantile(self, mean: Array, var: Array, q: Array) -> Array:
        """Raise `InputError`: a log-likelihood alone does not determine the distribution of demand."""
        raise InputError(
            "Quantiles are not available for a likelihood given by its logarithm. Estimate them from draws of `sample`."
        )

    def sample(self, f: Array, rng: np.random.Generator) -> Array:
        """Draw demand given latent values, by `sampler`."""
        if self.sampler is None:
            raise InputError("This method needs a function (f, rng) → demand. Give it as `sampler`.")
        return self.sampler(f, rng)


Density = Callable[[IntArray, Array], Array]


def highest_points(g: Density, mean: Array, sd: Array) -> tuple[Array, Array]:
    """Return the highest point of each row: the best of a wide grid, then of finer and finer grids around it."""
    rows = np.arange(mean.size)
    points = mean + _SEARCH[:, None] * sd
    for _ in range(28):
        value = g(rows, points)
        best = np.argmax(value, axis=0)
        last = len(points) - 1
        low, high = points[np.maximum(best - 1, 0), rows], points[np.minimum(best + 1, last), rows]
        centre, peak = points[best, rows], value[best, rows]
        points = np.concatenate([np.linspace(low, high, 8), centre[None]])
        points.sort(axis=0)
    lost = np.flatnonzero(~np.isfinite(peak))
    if lost.size:
        i = int(lost[0])
        raise NumericalError(
            f"The log-likelihood of row {i} is nowhere finite within 80,000 standard deviations of the mean "
            f"{mean[i]:.4g} (sd {sd[i]:.4g}). Check that the observation is possible."
        )
    return centre, peak


def graded_panels(g: Density, centre: Array, peak: Array, sd: Array, side: float) -> tuple[IntArray, Array, Array]:
    """Return the first panels of one side, doubling from where g begins to fall to the end of the domain."""
    n = centre.size
    every = np.arange(n)
    # Start with the smallest step that changes c in double precision.
    x = np.maximum(1e-10 * sd, 8 * np.spacing(np.abs(centre)))
    inner, open_rows, fallen = np.zeros(n), np.ones(n, dtype=bool), np.zeros(n, dtype=bool)
    parts: list[tuple[IntArray, Array, Array]] = []
    for _ in range(200):
        drop = peak - g(every, (centre + side * x)[None])[0]
        begun = open_rows & (drop > 0.5)
        parts.append((every[begun], inner[begun], x[begun]))
        inner = np.where(begun, x, inner)
        gone = drop > _DROP
        open_rows &= ~(gone & fallen)
        fallen = gone
        if not open_rows.any():
            row, near, far = (np.concatenate(p) for p in zip(*parts, strict=True))
            near, far = side * near, side * far
            return row, np.minimum(near, far), np.maximum(near, far)
        x = 2 * x
    i = int(np.flatnonzero(open_rows)[0])
    raise NumericalError(f"The tilted density of row {i} does not decrease. Check that its log-likelihood is bounded.")


def adaptive_panels(
    integrands: Callable[[IntArray, Array], list[Array]],
    row: IntArray,
    low: Array,
    high: Array,
    scales: Array,
) -> Array:
    """Integrate over panels, halving each until Gauss–Legendre on it agrees with that on its halves.

    Parameters
    ----------
    integrands : callable
        ``(rows, x) → q integrands``. x and each integrand have shape ``(nodes, panels)``; the first one is a density.
    row, low, high : arrays of shape (panels,)
        Row number of each first panel, and the panel's ends.
    scales : array of shape (k, rows)
        Scales of the first k integrands. Their errors, relative to the row's mass times these scales, decide when
        a panel is accepted.

    Returns
    -------
    array of shape (q, rows)
    """

    def rule(row: IntArray, low: Array, high: Array) -> Array:
        half = 0.5 * (high - low)
        x = _PANEL_NODES[:, None] * half + 0.5 * (low + high)
        return np.stack([_PANEL_WEIGHTS @ v for v in integrands(row, x)]) * half

    def by_row(row: IntArray, values: Array) -> Array:
        return np.stack([np.bincount(row, weights=v, minlength=scales.shape[1]) for v in values])

    whole = rule(row, low, high)
    tolerance = _PANEL_AGREEMENT * by_row(row, whole[:1]) * scales
    total = np.zeros((whole.shape[0], scales.shape[1]))
    for depth in range(_DEPTH):
        if depth > _PATIENCE:
            tolerance = 4 * tolerance
        middle = 0.5 * (low + high)
        left, right = rule(row, low, middle), rule(row, middle, high)
        k = len(scales)
        done = (np.abs(left[:k] + right[:k] - whole[:k]) <= tolerance[:, row]).all(axis=0)
        total += by_row(row[done], (left + right)[:, done])
        more = ~done
        if not more.any():
            return total
        row = np.concatenate([row[more], row[more]])
        low, high = np.concatenate([low[more], middle[more]]), np.concatenate([middle[more], high[more]])
        whole = np.concatenate([left[:, more], right[:, more]], axis=1)
    raise NumericalError("Adaptive quadrature did not converge. Check that the log-likelihood is smooth.")
