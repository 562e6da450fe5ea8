"""Slow, plain references: 40-digit probabilities of counts, and tilted moments on a very fine grid."""

from __future__ import annotations

from collections.abc import Callable
from decimal import MAX_EMAX, Decimal, localcontext

import mpmath as mp
import numpy as np

DIGITS = 40


def tilted_on_a_grid(
    log_likelihood: Callable[[np.ndarray], np.ndarray], mean: float, var: float, nodes: int = 40_001
) -> tuple[float, float, float]:
    """log_z, mean and variance of ``exp(log_likelihood(f)) N(f | mean, var)`` for one unimodal row.

    Ever finer grids for the mode, doubling for the points where the log density has fallen by 60, then the
    plain trapezoidal sum over `nodes` evenly spaced points.
    """

    def g(f):
        with np.errstate(over="ignore", invalid="ignore"):
            value = log_likelihood(np.asarray(f)) - 0.5 * (f - mean) ** 2 / var
        return np.where(np.isnan(value), -np.inf, value)

    sd = np.sqrt(var)
    low, high = mean - 1e6 * sd - 100, mean + 1e6 * sd + 100
    while True:
        f = np.linspace(low, high, 2001)
        best = int(np.argmax(g(f)))
        new_low, new_high = f[max(best - 1, 0)], f[min(best + 1, 2000)]
        if new_high - new_low >= high - low or new_high - new_low < 1e-13 * (1 + abs(f[best])):
            break
        low, high = new_low, new_high
    mode = f[best]
    ends = []
    for side in (-1, 1):
        inner, outer = 0.0, 1e-9 * min(sd, 1.0)
        while g(mode) - g(mode + side * outer) < 60:
            inner, outer = outer, 2 * outer
        for _ in range(60):
            middle = 0.5 * (inner + outer)
            inner, outer = (middle, outer) if g(mode) - g(mode + side * middle) < 60 else (inner, middle)
        ends.append(outer)
    x = np.linspace(-ends[0], ends[1], nodes)
    log_w = log_likelihood(mode + x) - log_likelihood(np.asarray(mode)) - x * (0.5 * x + (mode - mean)) / var
    w = np.exp(log_w)
    z, first = w.sum(), (w * x).sum() / w.sum()
    second = (w * (x - first) ** 2).sum() / z
    log_z = float(g(mode)) - 0.5 * np.log(2 * np.pi * var) + np.log(z * (x[1] - x[0]))
    return log_z, (mode - mean) + first, second


def count_log_probability(y: int, eta: float, dispersion: float, at_least: bool) -> mp.mpf:
    """``log P(Y = y)`` or ``log P(Y ≥ y)`` with 40 digits or more; dispersion 0 is Poisson."""
    with mp.workdps(DIGITS + 20):
        mu = mp.exp(mp.mpf(eta))
        if dispersion == 0:
            if at_least:
                return mp.log(mp.gammainc(y, 0, mu, regularized=True))
            return y * mp.mpf(eta) - mu - mp.loggamma(y + 1)
        r = 1 / mp.mpf(dispersion)
        share, rest = mu / (r + mu), r / (r + mu)
        if at_least:
            return mp.log(_betainc(y, r, share, rest))
        binomial = mp.loggamma(y + r) - mp.loggamma(r) - mp.loggamma(y + 1)
        return binomial + y * mp.log(share) + r * mp.log(rest)


def _betainc(y: int, r: mp.mpf, share: mp.mpf, rest: mp.mpf) -> mp.mpf:
    """``P(Y ≥ y)`` by summing what is on the shorter side of y (in decimals, which are faster)."""
    pmf = mp.exp(mp.loggamma(y + r) - mp.loggamma(r) - mp.loggamma(y + 1) + y * mp.log(share) + r * mp.log(rest))
    with localcontext(prec=DIGITS + 20, Emin=-MAX_EMAX, Emax=MAX_EMAX):
        p, shape = Decimal(mp.nstr(share, DIGITS + 20)), Decimal(mp.nstr(r, DIGITS + 20))
        total, term, k = Decimal(0), Decimal(1), y
        if (y + r) * share < y and share < 0.99:  # terms fall from y on, and soon
            smallest = Decimal(10) ** (-DIGITS - 10)
            while term > total * smallest:
                total += term
                term *= p * (k + shape) / (k + 1)
                k += 1
            return pmf * mp.mpf(str(total))
        for k in range(y - 1, -1, -1):  # P(Y < y)
            term *= (k + 1) / (p * (k + shape))
            total += term
        return 1 - pmf * mp.mpf(str(total))


def count_curve(y: int, eta: float, dispersion: float, at_least: bool) -> tuple[float, float, float]:
    """The same and its first two derivatives by eta: closed forms in so many digits that nothing cancels."""
    with mp.workdps(DIGITS + 20):
        mu = mp.exp(mp.mpf(eta))
        value = count_log_probability(y, eta, dispersion, at_least=False)
        scale = 1 + mp.mpf(dispersion) * mu
        slope = (y - mu) / scale
        curvature = -mu * (1 + mp.mpf(dispersion) * y) / scale**2
        if at_least:
            tail = count_log_probability(y, eta, dispersion, at_least=True)
            hazard = y * mp.exp(value - tail)
            value, slope, curvature = tail, hazard, hazard * (slope - hazard)
        return float(value), float(slope), float(curvature)


def derivative(function: Callable[[mp.mpf], mp.mpf], at: float, order: int = 1) -> mp.mpf:
    """Central difference with a step that 60 digits can bear: 1e-10 of the function's scale or better."""
    with mp.workdps(DIGITS + 20):
        h, x = mp.mpf(10) ** -10, mp.mpf(at)
        if order == 1:
            return (function(x + h) - function(x - h)) / (2 * h)
        return (function(x + h) - 2 * function(x) + function(x - h)) / h**2
