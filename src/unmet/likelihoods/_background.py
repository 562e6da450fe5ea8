"""Counts that others add to: curves over the log of the own expected count, and their tilted moments.

Naming: ``u`` is the log of the own expected count ``e^u``, ``s`` the background, ``eta = log(e^u + s)`` the log of the
expected count, ``q = e^u/(e^u + s)`` the own share of it; ``g = l(u) + log N(u | m, v)`` the log of the tilted density.

A count well above its background may come from either, so ``l`` is not concave in u: it is level where ``e^u`` is far
below s, and rises from there. Its curvature is at most ``(y − s)²/(4y)`` for an exact count above s, 0 for one below,
and ``y/4`` for "at least y" (the curvature of ``eta`` is ``q(1 − q) ≤ 1/4``, the slope of the count's curve at most
``y − e^eta``). Where the cavity is narrower than that, g is concave and the rule of concave curves serves; elsewhere g
has up to two peaks, and panels are placed about both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from unmet._typing import Array, BoolArray, IntArray
from unmet.likelihoods._count_curves import CountCurve
from unmet.likelihoods._log_concave import Curve
from unmet.likelihoods.base import Tilted
from unmet.likelihoods.quadrature import adaptive_panels, graded_panels, highest_points

__all__ = ["BackgroundCurve", "two_peaked_tilted"]

# The cavity's precision must exceed the curve's largest curvature by this share for g to be treated as concave.
_MARGIN = 0.1


@dataclass(frozen=True)
class BackgroundCurve:
    """A `CountCurve` over the log of the own expected count, with a background per row.

    Examples
    --------
    Three riders where one walker was expected: the likelihood hardly changes for small own rates.

    >>> curve = BackgroundCurve(CountCurve(np.array([3.0]), 0.0, at_least=False), np.array([1.0]))
    >>> np.exp(curve(np.array([[-20.0], [np.log(2.0)]])).value).round(3).ravel()
    array([0.061, 0.224])
    """

    counts: CountCurve
    background: Array

    def __getitem__(self, rows: Any) -> BackgroundCurve:
        """The same for some of the rows."""
        return BackgroundCurve(self.counts[rows], self.background[rows])

    def __call__(self, u: Array) -> Curve:
        """Value, slope and curvature by ``u``: the chain rule with ``eta' = q``, ``eta'' = q(1 − q)``."""
        eta, own, others = self._total(u)
        at = self.counts(eta)
        return Curve(at.value, at.slope * own, at.curvature * own**2 + at.slope * own * others)

    def by_log_dispersion(self, u: Array) -> Array:
        """Derivative of the value by the logarithm of the dispersion, ``u`` held."""
        return self.counts.by_log_dispersion(self._total(u)[0])

    def _total(self, u: Array) -> tuple[Array, Array, Array]:
        """``log(e^u + s)``, the own share of the expected count and the others'."""
        with np.errstate(divide="ignore"):
            log_s = np.log(self.background)
        eta = np.logaddexp(u, log_s)
        return eta, np.exp(u - eta), np.exp(log_s - eta)

    def concave_with(self, var: Array) -> BoolArray:
        """Rows whose product with a Gaussian of that variance is surely log-concave."""
        y, s = self.counts.y, self.background
        if self.counts.at_least:
            steepest = np.where(s > 0, 0.25 * y, 0.0)
        else:
            steepest = np.where(s > 0, 0.25 * np.maximum(y - s, 0.0) ** 2 / np.maximum(y, 1.0), 0.0)
        return steepest * var < 1 - _MARGIN


def two_peaked_tilted(curve: BackgroundCurve, mean: Array, var: Array, guess: Array, n_theta: int) -> Tilted:
    """Moments of ``exp(curve) N(u | mean, var)`` where the product may have two peaks.

    Adaptive Gauss–Legendre panels, first placed about the highest point near the mean and about that near `guess`, the
    mode without background. Accurate to about 1e-9.
    """

    def g(rows: IntArray, u: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            value = curve[rows](u).value - 0.5 * (u - mean[rows]) ** 2 / var[rows]
        return np.where(np.isnan(value), -np.inf, value)

    sd = np.sqrt(var)
    narrow = 1 / np.sqrt(1 / var + curve.counts.y)
    found = [highest_points(g, mean, sd), highest_points(g, guess, narrow)]
    row, low, high = _panels_about(g, found, sd)
    centre, peak = (np.where(found[0][1] >= found[1][1], *pair) for pair in zip(*found, strict=True))

    def integrands(rows: IntArray, u: Array) -> list[Array]:
        x = u - centre[rows]
        w = np.exp(g(rows, u) - peak[rows])
        by_theta = [w * curve[rows].by_log_dispersion(u)] if n_theta else []
        return [w, w * x, w * x**2, *by_theta]

    z, x, xx, *by_theta = adaptive_panels(integrands, row, low, high, np.stack([np.ones(sd.size), sd, var]))
    first = x / z
    shrink = (xx / z - first**2) / var
    return Tilted(
        log_z=peak - 0.5 * np.log(2 * np.pi * var) + np.log(z),
        d1=(centre - mean + first) / var,
        d2=(shrink - 1) / var,
        shrink=shrink,
        d_theta=np.stack([b / z for b in by_theta], axis=1) if n_theta else np.empty((sd.size, 0)),
    )


def _panels_about(g: Any, found: list[tuple[Array, Array]], sd: Array) -> tuple[IntArray, Array, Array]:
    """First panels of each row: between all ends of the panels that are graded about either peak."""
    rows, edges = [], []
    for centre, peak in found:
        for side in (-1.0, 1.0):
            row, low, high = graded_panels(g, centre, peak, sd, side)
            rows += [row, row]
            edges += [centre[row] + low, centre[row] + high]
    row, edge = np.concatenate(rows), np.concatenate(edges)
    order = np.lexsort([edge, row])
    row, edge = row[order], edge[order]
    inside = (row[1:] == row[:-1]) & (edge[1:] > edge[:-1])
    return row[1:][inside], edge[:-1][inside], edge[1:][inside]
