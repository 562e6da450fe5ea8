"""Moments of a log-concave likelihood times a Gaussian, by quadrature around the mode of the product.

Naming: ``l`` is the log-likelihood, ``g = l + log N(f | m, v)`` the log of the tilted density, ``c`` a point
near its mode, ``x = f − c``. Arrays over nodes and rows have the shape ``(nodes, rows)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from unmet._exceptions import NumericalError
from unmet._typing import Array, BoolArray, IntArray
from unmet.likelihoods.base import Tilted
from unmet.likelihoods.quadrature import adaptive_panels

__all__ = ["Curve", "LogConcave", "log_concave_tilted"]

# The domain ends where g has fallen by `_DROP`, or by an amount within `_DROP_WINDOW`. An exponential tail then has
# 2e-7 of the variance outside the domain; a Gaussian tail has much less.
_DROP = 23.0
_DROP_WINDOW = (21.5, 32.0)
# Nodes of the trapezoidal rule, and of its second attempt. On a Gaussian the spacing h is 0.45 sd (0.9 sd for every
# other node) and the error is 2·exp(−2π²/h²): 1e-42 (5e-11).
_NODES = (31, 61)
# The rule is accepted where it agrees with the rule on every other node to this tolerance in log_z, mean (in sd)
# and shrink.
_AGREEMENT = 1e-6
# Each side of the mode starts with panels graded from both of its ends: this many per end, each 4 times as wide as
# the one before.
_GRADES = 12
# Variance below which log-likelihoods are straight lines on the scale of the density (for counts up to 10,000).
_TINY = 1e-5
# Rows are processed in blocks of this many. An array of 31 nodes then stays in the cache, and below the 128 KiB
# above which the C library requests fresh pages from the system for every allocation.
_BLOCK = 512


class Curve(NamedTuple):
    """A log-likelihood as a function of f: its value and its first two derivatives."""

    value: Array
    slope: Array
    curvature: Array


class LogConcave(Protocol):
    """Concave log-likelihoods, one per row."""

    def __getitem__(self, rows: Any) -> LogConcave:
        """Return the log-likelihoods of the given rows (repeats allowed)."""
        ...

    def __call__(self, f: Array, /) -> Curve:
        """Return value, slope and curvature at f of shape ``(rows,)`` or ``(nodes, rows)``."""
        ...


Gradient = Callable[[IntArray, Array], Array]
"""``(rows, f) → derivatives`` of the log-likelihood by p hyper-parameters, shapes (nodes, rows) → (p, nodes, rows)."""


def log_concave_tilted(
    curve: LogConcave,
    mean: Array,
    var: Array,
    start: Array,
    gradient: Gradient | None = None,
    n_theta: int = 0,
) -> Tilted:
    """Compute the moments of ``exp(curve) N(f | mean, var)``.

    Safeguarded Newton finds the mode c. The domain extends on each side to the point where g has fallen by 23.
    The trapezoidal rule integrates over it; the rule converges exponentially on smooth functions that vanish at
    both ends. A row where it disagrees with the rule on every other node (a cliff on one side of a broad Gaussian)
    is integrated again by adaptive Gauss–Legendre panels.

    Derivatives are computed from the moments by the identity that does not cancel: ``d1 = (E[f] − m)/v = E[l']``
    and ``d2 = (Var[f]/v − 1)/v = Cov[f, l']/v`` under the tilted density (integration by parts).

    Parameters
    ----------
    curve : LogConcave
        The log-likelihoods.
    mean, var : array of shape (n,)
        Means and variances of the Gaussians; ``var > 0``.
    start : array of shape (n,)
        A guess of the mode.
    gradient : callable, optional
        Derivatives of the log-likelihood by `n_theta` hyper-parameters.
    n_theta : int
        Number of hyper-parameters.

    Returns
    -------
    Tilted
    """
    n = mean.size
    blocks = [slice(i, min(i + _BLOCK, n)) for i in range(0, n, _BLOCK)]
    out = Tilted(np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty((n, n_theta)))
    for b in blocks:
        placed = _Placed.find(curve[b], mean[b], var[b], start[b])
        rows = np.arange(b.start, b.stop)
        by_theta = None if gradient is None else (lambda i, f, rows=rows: gradient(rows[i], f))
        sums = _integrate(placed, by_theta, n_theta)
        out.log_z[b] = placed.peak + np.log(sums[0])
        out.d1[b], out.d2[b], out.shrink[b] = _derivatives(sums, placed, slice(None))
        out.d_theta[b] = (sums[_N_SUMS:] / sums[0]).T
    return out


_N_SUMS = 6  # of w, w·x, w·x², w·Δl', w·x·Δl', w·l''; then w·∂l/∂θ


def _derivatives(sums: Array, placed: _Placed, rows: IntArray | slice) -> tuple[Array, Array, Array]:
    """Return ``d1, d2, shrink`` from the integrals, by the identity that does not cancel.

    Moments of f lose digits of d2 as ``1/(1 − shrink)``. Where they do, moments of l' are used. l' decreases in f, so
    ``Cov[f, l'] ≤ 0`` even for sums over nodes that miss a cliff. Where f hardly varies, l' loses digits as well, and
    ``d2 = E[l''] + Var[l']`` with ``Var[l'] = l''² Var[f]``.
    """
    var = placed.var[rows]
    x, xx, dl, xdl, l2 = sums[1:_N_SUMS] / sums[0]
    spread = xx - x**2
    sharp = spread < 0.99 * var
    d2 = np.where(var < _TINY, l2 + l2**2 * spread, (xdl - x * dl) / var)
    d2 = np.where(sharp, (spread / var - 1) / var, d2)
    d1 = np.where(sharp, (placed.offset[rows] + x) / var, placed.slope[rows] + dl)
    return d1, d2, np.where(sharp, spread / var, 1 + var * d2)


@dataclass(frozen=True)
class _Placed:
    """Tilted log densities, with a point near the mode and the ends of the domain for each."""

    curve: LogConcave
    centre: Array
    offset: Array  # c − m
    var: Array
    peak: Array  # g(c)
    value: Array  # l(c)
    slope: Array  # l'(c)
    sd: Array  # from the curvature of g at c
    left: Array  # distance from c to the left end of the domain, and to the right end
    right: Array

    @staticmethod
    def find(curve: LogConcave, mean: Array, var: Array, start: Array) -> _Placed:
        """Find the mode by Newton's method, and the ends by Newton's method on the log of the drop."""
        centre, at = _mode(curve, mean, var, start)
        offset = centre - mean
        with np.errstate(over="ignore", invalid="ignore"):
            sd = 1 / np.sqrt(1 / var - at.curvature)
            peak = at.value - 0.5 * offset**2 / var - 0.5 * np.log(2 * np.pi * var)
        bad = np.flatnonzero(~(np.isfinite(peak) & (sd > 0)))
        if bad.size:
            i = int(bad[0])
            raise NumericalError(
                f"The likelihood cannot be evaluated in double precision at the latent value {centre[i]:.4g} "
                f"(mean {mean[i]:.4g}, variance {var[i]:.4g}). "
                "Check the hyper-parameters and the scale of the data."
            )
        placed = _Placed(curve, centre, offset, var, peak, at.value, at.slope, sd, sd, sd)
        left, right = (_reach(placed, side) for side in (-1.0, 1.0))
        return replace(placed, left=left, right=right)

    def drop(self, rows: IntArray | slice, x: Array) -> tuple[Array, Curve]:
        """Return ``g(c) − g(c + x)`` and the log-likelihood at ``c + x``."""
        at = self.curve[rows](self.centre[rows] + x)
        gaussian = x * (0.5 * x + self.offset[rows]) / self.var[rows]
        return self.value[rows] - at.value + gaussian, at

    def downhill(self, rows: IntArray, x: Array, at: Curve) -> Array:
        """Return ``−g'`` at ``c + x``; `at` is the log-likelihood there."""
        return (x + self.offset[rows]) / self.var[rows] - at.slope


def _mode(curve: LogConcave, mean: Array, var: Array, start: Array) -> tuple[Array, Curve]:
    """Return a point within 0.05 sd of the mode (by Newton's own estimate), and the log-likelihood there."""
    f = start.copy()
    low, high = np.full(f.size, -np.inf), np.full(f.size, np.inf)
    value, slope, curvature = (np.empty_like(f) for _ in range(3))
    active = np.arange(f.size)
    for _ in range(200):
        here, precision = f[active], 1 / var[active]
        with np.errstate(over="ignore", invalid="ignore"):
            at = curve[active](here)
            lost = ~np.isfinite(at.value)  # exp overflows: the rate is far too high
            uphill = np.where(lost, -np.inf, at.slope - (here - mean[active]) * precision)
            bend = np.where(lost, 1.0, precision - at.curvature)
        value[active], slope[active], curvature[active] = at
        low[active] = np.where(uphill >= 0, here, low[active])
        high[active] = np.where(uphill <= 0, here, high[active])
        settled = np.abs(uphill) <= 0.05 * np.sqrt(bend)
        if settled.all():
            break
        lower, upper = low[active], high[active]
        step = here + np.where(lost, -100.0, uphill / bend)
        outside = (step <= lower) | (step >= upper)
        with np.errstate(invalid="ignore"):
            middle = 0.5 * (lower + upper)
        f[active] = np.where(settled, here, np.where(outside & np.isfinite(middle), middle, step))
        active = active[~settled]
    else:
        i = int(active[0])
        raise NumericalError(
            f"No mode found for the tilted density with mean {mean[i]:.4g} and variance {var[i]:.4g}. "
            "Check that the log-likelihood is concave."
        )
    return f, Curve(value, slope, curvature)


def _reach(placed: _Placed, side: float) -> Array:
    """Return the distance from c to the point where g has fallen by about 23, on one side.

    Solves ``log drop = log 23`` over ``log x`` by Newton's method in a bracket. The function is linear where g is a
    power (a Gaussian needs no step), and its slope is at least 1 everywhere because g is concave.
    """
    log_x = np.log(np.sqrt(2 * _DROP) * placed.sd)
    low, high = np.full(log_x.size, -np.inf), np.full(log_x.size, np.inf)
    active = np.arange(log_x.size)
    for turn in range(200):
        here = np.exp(log_x[active])
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            drop, at = placed.drop(active, side * here)
            steepness = here * side * placed.downhill(active, side * here, at) / drop
            step = np.log(_DROP / drop) / np.maximum(steepness, 1.0)
        short = drop <= _DROP_WINDOW[0]
        far = ~(drop <= _DROP_WINDOW[1])  # or exp overflowed
        missed = short | far
        if not missed.any():
            return np.asarray(np.exp(log_x))
        step = np.where(short & ~(drop > 1e-2), 1.0, step)  # c is not quite the mode
        step = np.where(far & ~np.isfinite(step), -1.0, step)
        low[active] = np.where(short, log_x[active], low[active])
        high[active] = np.where(far, log_x[active], high[active])
        active, step = active[missed], step[missed]
        ahead = log_x[active] + step
        with np.errstate(invalid="ignore"):
            middle = 0.5 * (low[active] + high[active])
        # Bisect on every other turn: Newton's method can jump between the two ends of the bracket for long.
        halve = (ahead <= low[active]) | (ahead >= high[active]) | (turn % 2 == 1)
        log_x[active] = np.where(halve & np.isfinite(middle), middle, ahead)
    i = int(active[0])
    raise NumericalError(
        f"The tilted density around {placed.centre[i]:.4g} does not decrease. Check that the log-likelihood is concave."
    )


def _integrands(placed: _Placed, rows: IntArray | slice, x: Array) -> list[Array]:
    """Return the integrands of `_derivatives` at ``c + x`` (without the gradient by hyper-parameters)."""
    drop, at = placed.drop(rows, x)
    w = np.exp(-drop)
    wx = w * x
    dl = at.slope - placed.slope[rows]
    return [w, wx, wx * x, w * dl, wx * dl, w * at.curvature]


def _integrate(placed: _Placed, gradient: Gradient | None, n_theta: int) -> Array:
    """Compute all integrals by the trapezoidal rule, and by panels for the rows where it is not accepted."""
    rows = np.arange(placed.centre.size)
    sums = np.empty((_N_SUMS + n_theta, rows.size))
    for nodes in _NODES:
        sums[:, rows], believed = _trapezoid(placed, rows, nodes, gradient)
        rows = rows[~believed]
        if not rows.size:
            return sums
    z, x, xx = sums[:3, rows]
    sharp = xx / z - (x / z) ** 2 < 0.9 * placed.var[rows]
    sums[:, rows] = _panels(placed, rows, sharp, gradient)
    return sums


def _trapezoid(placed: _Placed, rows: IntArray, nodes: int, gradient: Gradient | None) -> tuple[Array, BoolArray]:
    """Compute integrals by the trapezoidal rule, and whether they agree with those of every other node.

    They are compared in log_z, mean (in sd) and shrink, and shrink by both identities as well. For smooth integrands
    the error is about the square of the difference. Where a cliff falls between two nodes, the error is at most the
    difference. The rule is never accepted where nodes are too far apart for the curvature at the mode.
    """
    spacing = (placed.left + placed.right)[rows] / (nodes - 1)
    x = np.arange(nodes)[:, None] * spacing - placed.left[rows]
    values = _integrands(placed, rows, x)
    full = np.stack([v.sum(axis=0) for v in values])
    half = np.stack([v[::2].sum(axis=0) for v in values])
    var = placed.var[rows]
    fine, coarse = (_derivatives(s, placed, rows) for s in (full, half))
    x1, x2 = full[1:3] / full[0]
    with np.errstate(invalid="ignore"):
        believed = (
            (spacing < placed.sd[rows])
            & (np.abs(2 * half[0] / full[0] - 1) < _AGREEMENT)
            & (np.abs(coarse[0] - fine[0]) * np.sqrt(var) < _AGREEMENT * np.sqrt(fine[2]))
            & (np.abs(coarse[2] - fine[2]) < _AGREEMENT * fine[2])
            & (np.abs((x2 - x1**2) / var - fine[2]) < _AGREEMENT)
        )
    if gradient is not None:  # every other node is accurate enough (checked above), and derivatives of tails are slow
        by_theta = gradient(rows, placed.centre[rows] + x[::2])
        full = np.concatenate([full, 2 * np.einsum("kn,pkn->pn", values[0][::2], by_theta)])
    return full * spacing, believed


def _panels(placed: _Placed, rows: IntArray, sharp: BoolArray, gradient: Gradient | None) -> Array:
    """Compute the same integrals by adaptive panels. Those of l' are not used where the likelihood is sharp."""

    def integrands(which: IntArray, x: Array) -> list[Array]:
        at = rows[which]
        values = _integrands(placed, at, x)
        by_theta = () if gradient is None else values[0] * gradient(at, placed.centre[at] + x)
        return [*values, *by_theta]

    panels = [_side(placed, rows, side) for side in (-1.0, 1.0)]
    row, low, high = (np.concatenate(parts) for parts in zip(*panels, strict=True))
    scale = (placed.left + placed.right)[rows] / np.sqrt(8 * _DROP)
    scales = np.stack([scale**p for p in (0, 1, 2, -1, 0, -2)])
    scales[3:, sharp] = np.inf
    return adaptive_panels(integrands, row, low, high, scales)


def _side(placed: _Placed, rows: IntArray, side: float) -> tuple[IntArray, Array, Array]:
    """Return the first panels of one side, graded from the curvature at the mode and from the slope at the end.

    The quadrature then resolves any structure on the scale of the curvature at c or of the slope at the end.
    """
    reach = (placed.left if side < 0 else placed.right)[rows]
    _, at = placed.drop(rows, side * reach)
    decay = _DROP / (side * placed.downhill(rows, side * reach, at))
    growing = 4.0 ** np.arange(_GRADES)[:, None]
    from_mode = np.minimum(2 * placed.sd[rows] * growing, 0.5 * reach)
    from_end = reach - np.minimum(decay * growing, 0.5 * reach)
    edges = np.concatenate([np.zeros((1, rows.size)), from_mode, from_end[::-1], reach[None]])
    k, which = np.nonzero(edges[1:] > edges[:-1])
    near, far = side * edges[k, which], side * edges[k + 1, which]
    return which, np.minimum(near, far), np.maximum(near, far)
