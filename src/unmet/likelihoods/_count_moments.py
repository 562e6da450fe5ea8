"""Tilted moments of counts, over the log of the own expected count: which rule serves which row.

* The cavity is *narrow*, and the likelihood hardly bends across it: Gauss–Hermite nodes about the cavity's mean. Most
  rows of a long record are like this once EP has begun: thousands of other counts have narrowed the cavity, and the
  row's own count says little. 13 nodes then do what takes the next rule 31 nodes, after a search for the mode and for
  the ends of the domain.
* The tilted density is *log-concave*: the rule about its mode (`unmet.likelihoods._log_concave`).
* It may have *two peaks*, because a count may come from its background: panels about both
  (`unmet.likelihoods._background`).
"""

from __future__ import annotations

import numpy as np
from scipy import special

from unmet._typing import Array, BoolArray, IntArray
from unmet.likelihoods._background import BackgroundCurve, two_peaked_tilted
from unmet.likelihoods._count_curves import CountCurve
from unmet.likelihoods._log_concave import log_concave_tilted
from unmet.likelihoods.base import Tilted

__all__ = ["count_tilted"]

# A row is narrow if the cavity has at most this variance, and if across one sd of it the log-likelihood changes by at
# most `_RISE` with a curvature (times the variance) of at most `_BEND`. Errors of log_z, of d1 in sd and of shrink are
# then below 1e-7 for dispersions from 0 to 1, with background and without (13 nodes, against 64).
_WIDEST, _RISE, _BEND = 0.15, 1.0, 0.25
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(13)
_WEIGHTS /= _WEIGHTS.sum()
_MIDDLE = len(_NODES) // 2  # the node at the mean
_LARGEST_MEAN = 100.0  # of a log count; far larger ones overflow
_BLOCK = 1024  # rows at once: an array of all nodes stays in the cache


def count_tilted(curve: CountCurve | BackgroundCurve, mean: Array, var: Array, n_theta: int) -> Tilted:
    """Compute the moments of ``exp(curve) N(f | mean, var)``.

    Parameters
    ----------
    curve : CountCurve or BackgroundCurve
        Log-likelihoods over the log of the own expected count.
    mean, var : arrays of shape (n,)
        Of that log; ``var > 0``.
    n_theta : int
        1 for the derivative by the log of the dispersion as well, or 0.
    """
    n = mean.size
    out = Tilted(np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty((n, n_theta)))
    narrow = _is_narrow(curve, mean, var)
    concave = ~narrow if isinstance(curve, CountCurve) else ~narrow & curve.concave_with(var)
    for rows, rule in ((narrow, _narrow_tilted), (concave, _concave_tilted), (~(narrow | concave), _two_peaked)):
        if rows.any():
            some = slice(None) if rows.all() else np.flatnonzero(rows)
            part = rule(curve[some], mean[some], var[some], n_theta)
            out.log_z[some], out.d1[some], out.d2[some] = part.log_z, part.d1, part.d2
            out.shrink[some], out.d_theta[some] = part.shrink, part.d_theta
    return out


def _is_narrow(curve: CountCurve | BackgroundCurve, mean: Array, var: Array) -> BoolArray:
    """Rows that `_narrow_tilted` is accurate for: exact counts, by bounds of slope and curvature at the mean.

    The slope of a Poisson count, ``y q − e^u`` with the own share q, bounds that of any dispersion. The curvature is at
    most ``e^u``, and with background ``e^u + y/4``.
    """
    counts, s = (curve, 0.0) if isinstance(curve, CountCurve) else (curve.counts, curve.background)
    narrow = (var <= _WIDEST) & (mean <= _LARGEST_MEAN)
    if counts.at_least or not narrow.any():
        return np.zeros(mean.shape, dtype=bool)
    own = np.exp(np.minimum(mean, _LARGEST_MEAN))
    rise = np.abs(counts.y * own / np.maximum(own + s, 1e-300) - own)
    bend = own + np.where(np.asarray(s) > 0, 0.25 * counts.y, 0.0)
    return np.asarray(narrow & (rise**2 * var <= _RISE**2) & (bend * var <= _BEND))


def _narrow_tilted(curve: CountCurve | BackgroundCurve, mean: Array, var: Array, n_theta: int) -> Tilted:
    """Compute the moments where `_is_narrow`, with nodes about the cavity's mean.

    ``d1 = E[l']`` and ``d2 = E[l''] + Var[l']`` under the tilted density (integration by parts).
    """
    n = mean.size
    out = Tilted(np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty((n, n_theta)))
    for i in range(0, n, _BLOCK):
        b = slice(i, i + _BLOCK)
        here = curve[b]
        f = mean[b] + np.multiply.outer(_NODES, np.sqrt(var[b]))
        at = here(f)
        at_mean = at.value[_MIDDLE]
        weight = _WEIGHTS[:, None] * np.exp(at.value - at_mean)
        z = weight.sum(axis=0)
        weight /= z
        slope = np.einsum("kn,kn->n", weight, at.slope)
        bend = np.einsum("kn,kn->n", weight, at.curvature + (at.slope - slope) ** 2)
        out.log_z[b], out.d1[b], out.d2[b] = at_mean + np.log(z), slope, bend
        out.shrink[b] = 1 + var[b] * bend
        if n_theta:
            out.d_theta[b, 0] = np.einsum("kn,kn->n", weight, here.by_log_dispersion(f))
    return out


def _concave_tilted(curve: CountCurve | BackgroundCurve, mean: Array, var: Array, n_theta: int) -> Tilted:
    """Compute the moments where the tilted density is log-concave."""

    def by_dispersion(rows: IntArray, eta: Array) -> Array:
        return curve[rows].by_log_dispersion(eta)[None]

    start = _near_mode(curve, mean, var)
    return log_concave_tilted(curve, mean, var, start, by_dispersion if n_theta else None, n_theta)


def _two_peaked(curve: CountCurve | BackgroundCurve, mean: Array, var: Array, n_theta: int) -> Tilted:
    """Compute the moments where the tilted density may have two peaks."""
    assert isinstance(curve, BackgroundCurve), "counts without background are log-concave"
    return two_peaked_tilted(curve, mean, var, _near_mode(curve, mean, var), n_theta)


def _near_mode(curve: CountCurve | BackgroundCurve, mean: Array, var: Array) -> Array:
    """Return the mode of the tilted density without background and dispersion."""
    counts = curve if isinstance(curve, CountCurve) else curve.counts
    mode = _poisson_mode(counts.y, mean, var)
    # The slope of "at least y" is never below that of the exact count, nor below 0.
    return np.maximum(mode, mean) if counts.at_least else mode


def _poisson_mode(y: Array, mean: Array, var: Array) -> Array:
    """Return the mode of ``Poisson(y | exp(η)) N(η | mean, var)``: solves ``η + v e^η = m + v y`` by Wright's ω."""
    u = mean + var * y
    t = u + np.log(var)
    omega = special.wrightomega(t)  # v e^η
    with np.errstate(divide="ignore"):
        return np.where(t > 0, np.log(omega) - np.log(var), u - omega)
