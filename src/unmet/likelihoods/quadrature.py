"""Moments of a likelihood times a Gaussian, by quadrature placed where their product has its mass.

Two ways, for two kinds of likelihood:

- `log_concave_tilted`: fast, for curves that are concave in f and know their derivatives (the count likelihoods).
- `QuadratureLikelihood`: slow and robust, for any function ``log p(observation | f)``; the oracle of closed forms.

Naming: ``g = log p(observation | f) + log N(f | m, v)`` is the log of the tilted density, ``c`` a point near its
mode, ``x = f − c``. Arrays over nodes and rows have the shape ``(nodes, rows)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from unmet._exceptions import InputError, NumericalError
from unmet._typing import Array, BoolArray, IntArray
from unmet.likelihoods.base import Observations, Tilted

__all__ = ["Curve", "LogConcave", "QuadratureLikelihood", "log_concave_tilted"]

# Ends of the domain: where g has fallen by about this much; what lies outside is 1e-8 of the whole at most.
_DROP = 20.0
_DROP_WINDOW = (17.0, 28.0)
# Nodes of the trapezoidal rule, and of its second try. On a Gaussian the spacing is 0.42 sd, that of every other
# node 0.84 sd, and the errors are 2·exp(−2π²/h²): 1e-48 and 2e-12.
_NODES = (31, 61)
# The rule is believed where it agrees with that of every other node: to this in log_z, mean (in sd), log variance.
_AGREEMENT = 1e-6
# Panels: Gauss–Legendre on each, against its two halves.
_PANEL_NODES, _PANEL_WEIGHTS = np.polynomial.legendre.leggauss(16)
_PANEL_AGREEMENT = 1e-9
# Most entries in one (nodes, rows) array: rows are taken in blocks of this many, to stay in the cache.
_BLOCK = 2048


class Curve(NamedTuple):
    """A log-likelihood over f: its value and its first two derivatives."""

    value: Array
    slope: Array
    curvature: Array


class LogConcave(Protocol):
    """Concave log-likelihoods, one per row."""

    def __getitem__(self, rows: Any) -> LogConcave:
        """The same for some of the rows (repeats allowed)."""
        ...

    def __call__(self, f: Array) -> Curve:
        """Value, slope and curvature at f of shape ``(rows,)`` or ``(nodes, rows)``."""
        ...


Gradient = Callable[[IntArray, Array], Array]
"""Derivatives of the log-likelihood by p hyper-parameters: rows, f ``(nodes, rows)`` → ``(p, nodes, rows)``."""


def log_concave_tilted(
    curve: LogConcave,
    mean: Array,
    var: Array,
    start: Array,
    gradient: Gradient | None = None,
    n_theta: int = 0,
) -> Tilted:
    """Moments of ``exp(curve) N(f | mean, var)``.

    The mode c by safeguarded Newton; on both sides of it the point where g has fallen by 20; between them the
    trapezoidal rule, which converges exponentially on smooth functions that vanish at both ends. A row on
    which it does not agree with the rule of every other node (a cliff on one side of a broad Gaussian) is
    integrated again by adaptive Gauss–Legendre panels.

    Moments are turned into derivatives by whichever identity does not cancel: ``d1 = (E[f] − m)/v = E[l']`` and
    ``d2 = (Var[f]/v − 1)/v = E[l''] + Var[l']``, expectations under the tilted density (integration by parts).

    Parameters
    ----------
    curve : LogConcave
        The log-likelihoods.
    mean, var : array of shape (n,)
        The Gaussians; ``var > 0``.
    start : array of shape (n,)
        A guess of the mode.
    gradient : callable, optional
        Derivatives of the log-likelihood by `n_theta` hyper-parameters.
    n_theta : int
        Their number.
    """
    n = mean.size
    blocks = [slice(i, min(i + _BLOCK, n)) for i in range(0, n, _BLOCK)]
    sums = np.empty((_N_SUMS + n_theta, n))
    centre = np.empty(n)
    peak = np.empty(n)
    slope = np.empty(n)
    for b in blocks:
        p = _Placed.find(curve[b], mean[b], var[b], start[b])
        rows = np.arange(b.start, b.stop)
        by_theta = None if gradient is None else (lambda i, f, rows=rows: gradient(rows[i], f))
        sums[:, b] = _integrate(p, by_theta, n_theta)
        centre[b], peak[b], slope[b] = p.centre, p.peak, p.slope
    return _as_tilted(sums, centre - mean, peak, slope, var)


_N_SUMS = 6  # of w, w·x, w·x², w·Δl', w·Δl'², w·l''; then w·∂l/∂θ


def _as_tilted(sums: Array, offset: Array, peak: Array, slope: Array, var: Array) -> Tilted:
    """Derivatives of log_z from the integrals; `offset` is ``c − m``, `slope` is ``l'(c)``."""
    z = sums[0]
    x, xx, dl, dl2, l2 = sums[1:_N_SUMS] / z
    spread = xx - x**2
    narrow = spread < 0.5 * var  # the likelihood is the sharper one
    d2 = np.where(narrow, (spread / var - 1) / var, l2 + dl2 - dl**2)
    return Tilted(
        log_z=peak + np.log(z),
        d1=np.where(narrow, (offset + x) / var, slope + dl),
        d2=d2,
        shrink=np.where(narrow, spread / var, 1 + var * d2),
        d_theta=(sums[_N_SUMS:] / z).T,
    )


@dataclass(frozen=True)
class _Placed:
    """Tilted log densities with a point near the mode of each, and the ends of its domain."""

    curve: LogConcave
    centre: Array
    offset: Array  # c − m
    var: Array
    peak: Array  # g(c)
    value: Array  # l(c)
    slope: Array  # l'(c)
    left: Array  # how far the domain goes to the left of c, and to the right
    right: Array

    @staticmethod
    def find(curve: LogConcave, mean: Array, var: Array, start: Array) -> _Placed:
        """Mode by Newton, ends by Newton on the logarithm of the drop."""
        centre, at = _mode(curve, mean, var, start)
        offset = centre - mean
        sd = 1 / np.sqrt(1 / var - at.curvature)
        peak = at.value - 0.5 * offset**2 / var - 0.5 * np.log(2 * np.pi * var)
        bad = np.flatnonzero(~np.isfinite(peak + sd))
        if bad.size:
            i = int(bad[0])
            raise NumericalError(
                f"the likelihood cannot be evaluated in double precision: the latent value there is about "
                f"{centre[i]:.4g} (mean {mean[i]:.4g}, variance {var[i]:.4g}); check hyper-parameters and scale of the data"
            )
        placed = _Placed(curve, centre, offset, var, peak, at.value, at.slope, sd, sd)
        left, right = (_reach(placed, side, sd) for side in (-1.0, 1.0))
        return _Placed(curve, centre, offset, var, peak, at.value, at.slope, left, right)

    def drop(self, rows: IntArray | slice, x: Array) -> tuple[Array, Curve]:
        """``g(c) − g(c + x)`` and the log-likelihood at ``c + x``."""
        at = self.curve[rows](self.centre[rows] + x)
        gaussian = x * (0.5 * x + self.offset[rows]) / self.var[rows]
        return self.value[rows] - at.value + gaussian, at


def _mode(curve: LogConcave, mean: Array, var: Array, start: Array) -> tuple[Array, Curve]:
    """A point within 0.05 sd of the mode (Newton's own estimate), and the log-likelihood there."""
    f = start.copy()
    low, high = np.full(f.size, -np.inf), np.full(f.size, np.inf)
    value, slope, curvature = (np.empty_like(f) for _ in range(3))
    active = np.arange(f.size)
    for _ in range(200):
        with np.errstate(over="ignore", invalid="ignore"):
            at = curve[active](f[active])
        value[active], slope[active], curvature[active] = at
        here, precision = f[active], 1 / var[active]
        lost = ~np.isfinite(at.value)  # beyond what exp can hold: the rate is far too high
        uphill = np.where(lost, -np.inf, at.slope - (here - mean[active]) * precision)
        bend = np.where(lost, 1.0, precision - at.curvature)
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
        raise NumericalError(f"no mode found for the tilted density with mean {mean[i]:.4g} and variance {var[i]:.4g}")
    return f, Curve(value, slope, curvature)


def _reach(placed: _Placed, side: float, sd: Array) -> Array:
    """Distance from c to where g has fallen by about 20, on one side.

    Newton for ``log drop = log 20`` over ``log x``: linear where g is a power (a Gaussian needs no step), and of slope at
    least 1 everywhere because g is concave, so that no step overshoots by more than the drop itself does.
    """
    log_x = np.log(np.sqrt(2 * _DROP) * sd)
    low, high = np.full(log_x.size, -np.inf), np.full(log_x.size, np.inf)
    active = np.arange(log_x.size)
    for _ in range(200):
        here = np.exp(log_x[active])
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            drop, at = placed.drop(active, side * here)
            downhill = (here + side * placed.offset[active]) / placed.var[active] - side * at.slope
            step = np.log(_DROP / drop) / np.maximum(here * downhill / drop, 1.0)
        short = drop <= _DROP_WINDOW[0]
        far = ~(drop <= _DROP_WINDOW[1])  # or beyond what exp can hold
        missed = short | far
        if not missed.any():
            return np.exp(log_x)
        step = np.where(short & ~(drop > 1e-2), 1.0, step)  # c is not quite the mode
        step = np.where(far & ~np.isfinite(step), -1.0, step)
        low[active] = np.where(short, log_x[active], low[active])
        high[active] = np.where(far, log_x[active], high[active])
        active, step = active[missed], step[missed]
        ahead = log_x[active] + step
        outside = (ahead <= low[active]) | (ahead >= high[active])
        middle = 0.5 * (low[active] + high[active])  # finite wherever a step leaves the bracket
        log_x[active] = np.where(outside, middle, ahead)
    i = int(active[0])
    raise NumericalError(f"the tilted density about {placed.centre[i]:.4g} does not fall off; is it log-concave?")


def _integrands(placed: _Placed, rows: IntArray | slice, x: Array) -> list[Array]:
    """What `_as_tilted` needs integrals of, but the gradient, at ``c + x``."""
    drop, at = placed.drop(rows, x)
    w = np.exp(-drop)
    wx = w * x
    dl = at.slope - placed.slope[rows]
    wdl = w * dl
    return [w, wx, wx * x, wdl, wdl * dl, w * at.curvature]


def _integrate(placed: _Placed, gradient: Gradient | None, n_theta: int) -> Array:
    """All integrals: the trapezoidal rule, and panels for the rows on which it is not believed."""
    rows = np.arange(placed.centre.size)
    sums = np.empty((_N_SUMS + n_theta, rows.size))
    for nodes in _NODES:
        sums[:, rows], believed = _trapezoid(placed, rows, nodes, gradient)
        rows = rows[~believed]
        if not rows.size:
            return sums
    sums[:, rows] = _panels(placed, rows, gradient)
    return sums


def _trapezoid(placed: _Placed, rows: IntArray, nodes: int, gradient: Gradient | None) -> tuple[Array, BoolArray]:
    """Integrals by the trapezoidal rule, and whether they agree with those of every other node.

    They are compared in mass, mean (in sd) and log variance. For smooth integrands the error is about the
    square of the difference; where a cliff falls between two nodes it is still no larger than that.
    """
    width = (placed.left + placed.right)[rows]
    spacing = width / (nodes - 1)
    x = np.linspace(0, 1, nodes)[:, None] * width - placed.left[rows]
    values = _integrands(placed, rows, x)
    full = np.stack([v.sum(axis=0) for v in values])
    half = np.stack([v[::2].sum(axis=0) for v in values[:3]])
    mean, mean_half = full[1] / full[0], half[1] / half[0]
    spread, spread_half = full[2] / full[0] - mean**2, half[2] / half[0] - mean_half**2
    with np.errstate(invalid="ignore", divide="ignore"):
        believed = (
            (np.abs(2 * half[0] / full[0] - 1) < _AGREEMENT)
            & (np.abs(mean_half - mean) < _AGREEMENT * np.sqrt(spread))
            & (np.abs(spread_half / spread - 1) < _AGREEMENT)
        )
    if gradient is not None:  # every other node is good enough, as just seen, and derivatives of tails are dear
        by_theta = gradient(rows, placed.centre[rows] + x[::2])
        full = np.concatenate([full, 2 * np.einsum("kn,pkn->pn", values[0][::2], by_theta)])
    return full * spacing, believed


def _panels(placed: _Placed, rows: IntArray, gradient: Gradient | None) -> Array:
    """The same integrals by adaptive panels, which begin as the two sides of c."""

    def integrands(which: IntArray, x: Array) -> list[Array]:
        at = rows[which]
        values = _integrands(placed, at, x)
        by_theta = () if gradient is None else values[0] * gradient(at, placed.centre[at] + x)
        return [*values, *by_theta]

    k = np.arange(rows.size)
    zero = np.zeros(rows.size)
    low, high = np.concatenate([-placed.left[rows], zero]), np.concatenate([zero, placed.right[rows]])
    scale = (placed.left + placed.right)[rows] / np.sqrt(8 * _DROP)
    return adaptive_panels(integrands, np.concatenate([k, k]), low, high, scale)


def adaptive_panels(
    integrands: Callable[[IntArray, Array], list[Array]], row: IntArray, low: Array, high: Array, scale: Array
) -> Array:
    """Integrals over panels, each halved until Gauss–Legendre on it agrees with that on its halves.

    Parameters
    ----------
    integrands : callable
        Rows and x of shape ``(nodes, panels)`` → q integrands of that shape, of which the first three are a density and its first two moments in x: these decide.
    row, low, high : arrays of shape (panels,)
        The row that each first panel belongs to, and its ends.
    scale : array of shape (rows,)
        Of x: an error counts relative to the row's mass, times scale or its square for the moments.

    Returns
    -------
    array of shape (q, rows)
    """

    def rule(row: IntArray, low: Array, high: Array) -> Array:
        half = 0.5 * (high - low)
        x = _PANEL_NODES[:, None] * half + 0.5 * (low + high)
        return np.stack([_PANEL_WEIGHTS @ v for v in integrands(row, x)]) * half

    def by_row(row: IntArray, values: Array) -> Array:
        return np.stack([np.bincount(row, weights=v, minlength=scale.size) for v in values])

    powers = np.stack([np.ones_like(scale), scale, scale**2])
    whole = rule(row, low, high)
    mass = by_row(row, whole[:1])[0]
    total = np.zeros((whole.shape[0], scale.size))
    for _ in range(60):
        middle = 0.5 * (low + high)
        left, right = rule(row, low, middle), rule(row, middle, high)
        error = np.abs(left[:3] + right[:3] - whole[:3]) / powers[:, row]
        done = (error <= _PANEL_AGREEMENT * mass[row]).all(axis=0)
        total += by_row(row[done], (left + right)[:, done])
        more = ~done
        if not more.any():
            return total
        row = np.concatenate([row[more], row[more]])
        low, high = np.concatenate([low[more], middle[more]]), np.concatenate([middle[more], high[more]])
        whole = np.concatenate([left[:, more], right[:, more]], axis=1)
    raise NumericalError("adaptive quadrature did not settle: is the log-likelihood smooth?")
