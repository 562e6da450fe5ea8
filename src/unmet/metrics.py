"""Scores of demand estimates, for complete truth and for censored truth.

Arguments follow scikit-learn: truth first. ``where=`` limits a score to some rows: ``where=~censored`` is the paper's
"only non-censored" column. `nlpd`, `coverage` and `concordance` also accept ``censored=`` (True or +1: the true value
is at least y; −1: at most y): a bound is then scored as a bound, not as the true value. `crps` accepts ``limit=``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtr

from unmet._exceptions import InputError
from unmet._normal import log_pdf
from unmet._numbers import read_mask, read_numbers, read_rate, refuse_other_order
from unmet._typing import Array, BoolArray

__all__ = ["bias", "concordance", "coverage", "crps", "crps_samples", "nlpd", "pinball", "r2", "rmse", "wape"]

_OPEN_ENDED = ("low", "high", "limit")  # may be infinite
_LARGEST = 1e150  # whose square is a number, as for estimators
_ROUNDING = 1e-14  # of a sum, as a share of the sum of sizes


def _columns(where: Any, **columns: Any) -> list[Array]:
    """Return vectors of one length, limited to the selected rows."""
    refuse_other_order(**columns, where=where)
    vectors = {name: read_numbers(column, name) for name, column in columns.items()}
    n = max((v.size for v in vectors.values() if v.ndim), default=1)
    full = {name: np.full(n, v) if v.ndim == 0 else v for name, v in vectors.items()}
    shapes = {name: v.shape for name, v in full.items()}
    if any(shape != (n,) for shape in shapes.values()):
        raise InputError(f"Expected vectors of one length; got {shapes}.")
    keep = _rows(where, n)
    if not keep.any():
        raise InputError("There are no rows to score: where is False everywhere, or the vectors are empty.")
    for name, v in full.items():
        allowed = "NaN" if name in _OPEN_ENDED else "NaN or infinity"
        bad = np.flatnonzero((np.isnan(v) if name in _OPEN_ENDED else ~np.isfinite(v)) & keep)
        if bad.size:
            raise InputError(
                f"{name} must not contain {allowed}; row {bad[0]} does ({bad.size} such rows in all).", row=int(bad[0])
            )
        large = np.flatnonzero(np.isfinite(v) & (np.abs(v) > _LARGEST) & keep)
        if large.size:
            raise InputError(
                f"{name} must be at most {_LARGEST:g} in size; row {large[0]} is {v[large[0]]:g}. Change its units.",
                row=int(large[0]),
            )
    if "censored" in full and not np.isin(full["censored"], (-1.0, 0.0, 1.0)).all():
        raise InputError("censored must be True/False, or −1, 0, +1.")
    return [v[keep] for v in full.values()]


def _rows(where: Any, n: int) -> BoolArray:
    return np.ones(n, dtype=bool) if where is None else read_mask(where, "where", n)


def rmse(y_true: Any, y_pred: Any, *, where: Any = None) -> float:
    """Return the root mean squared error (paper appendix A.1).

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n,)
        True and predicted values.
    where : array-like of bool, optional
        Rows to score.

    Examples
    --------
    >>> rmse([1.0, 2.0], [1.0, 4.0])
    1.4142135623730951
    """
    truth, guess = _columns(where, y_true=y_true, y_pred=y_pred)
    return float(np.sqrt(np.mean(np.square(guess - truth))))


def r2(y_true: Any, y_pred: Any, *, where: Any = None) -> float:
    """Return the coefficient of determination (paper appendix A.1): 1 is perfect, 0 the mean, negative worse than that.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n,)
        True and predicted values.
    where : array-like of bool, optional
        Rows to score.

    Examples
    --------
    >>> r2([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    1.0
    """
    truth, guess = _columns(where, y_true=y_true, y_pred=y_pred)
    spread = float(np.sum(np.square(truth - truth.mean())))
    if spread == 0 or np.ptp(truth) == 0:  # a mean may differ from equal numbers by rounding
        raise InputError("R² is not defined if the truth is constant. Use rmse.")
    return 1.0 - float(np.sum(np.square(guess - truth))) / spread


def bias(y_true: Any, y_pred: Any, *, where: Any = None) -> float:
    """Return total predicted over total true, minus one: −0.1 means that a tenth is missing.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n,)
        True and predicted values.
    where : array-like of bool, optional
        Rows to score.

    Examples
    --------
    >>> round(bias([10.0, 10.0], [9.0, 9.0]), 3)
    -0.1
    """
    truth, guess = _columns(where, y_true=y_true, y_pred=y_pred)
    if abs(truth.sum()) <= _ROUNDING * np.abs(truth).sum():
        raise InputError("Bias relative to the total is not defined if the truth sums to zero. Use rmse.")
    return float(guess.sum() / truth.sum() - 1.0)


def wape(y_true: Any, y_pred: Any, *, where: Any = None) -> float:
    """Return the weighted absolute percentage error: total absolute error over total truth.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n,)
        True and predicted values.
    where : array-like of bool, optional
        Rows to score.

    Examples
    --------
    >>> wape([10.0, 10.0], [9.0, 12.0])
    0.15
    """
    truth, guess = _columns(where, y_true=y_true, y_pred=y_pred)
    if np.abs(truth).sum() == 0:
        raise InputError("WAPE is not defined if the truth is zero everywhere. Use rmse.")
    return float(np.abs(guess - truth).sum() / np.abs(truth).sum())


def pinball(y_true: Any, y_quantile: Any, q: float, *, where: Any = None) -> float:
    """Return the mean pinball loss of predicted q-quantiles, which true quantiles minimise.

    Parameters
    ----------
    y_true, y_quantile : array-like of shape (n,)
        True values and predicted quantiles.
    q : float
        Probability of the quantiles, between 0 and 1.
    where : array-like of bool, optional
        Rows to score.

    Examples
    --------
    >>> pinball([1.0, 3.0], [2.0, 2.0], q=0.9)
    0.5
    """
    truth, guess = _columns(where, y_true=y_true, y_quantile=y_quantile)
    level = read_rate(q, "q")
    if not 0 < level < 1:
        raise InputError(f"q must lie between 0 and 1; got {q}.")
    miss = truth - guess
    return float(np.mean(np.maximum(level * miss, (level - 1) * miss)))


def nlpd(y_true: Any, mean: Any, std: Any, *, censored: Any = None, where: Any = None) -> float:
    """Return the negative log predictive density of normal predictions.

    A censored row contributes the negative log of the probability of its bound.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,)
        True values, and means and standard deviations of the predictions.
    censored : array-like of shape (n,), optional
        True or +1: the true value is at least y. −1: at most y. False or 0: exactly y.
    where : array-like of bool, optional
        Rows to score.

    Examples
    --------
    >>> round(nlpd([0.0], [0.0], [1.0]), 4), round(nlpd([0.0], [0.0], [1.0], censored=[True]), 4)
    (0.9189, 0.6931)
    """
    truth, mu, sd, side = _columns(where, y_true=y_true, mean=mean, std=std, censored=_given(censored))
    z = (truth - mu) / _positive(sd)
    return float(-np.mean(np.where(side == 0, log_pdf(z) - np.log(sd), log_ndtr(-side * z))))


def crps(y_true: Any, mean: Any, std: Any, *, limit: Any = None, where: Any = None) -> float:
    """Return the continuous ranked probability score of normal predictions, in the units of y; smaller is better.

    If demand could only be observed up to a known `limit` (the supply of each row, reached or not), the squared
    difference of distribution functions is integrated up to the limit only. The score is then proper for what could
    be observed (Gneiting & Ranjan 2011). A rule that integrates differently for censored and exact rows, without the
    limit of the exact ones, is not proper: it rewards predictions that are too low.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,)
        True values, and means and standard deviations of the predictions.
    limit : array-like of shape (n,), optional
        Value up to which each row could be observed.
    where : array-like of bool, optional
        Rows to score.

    References
    ----------
    Gneiting & Ranjan (2011), "Comparing density forecasts using threshold- and quantile-weighted scoring rules".

    Examples
    --------
    >>> round(crps([0.0], [0.0], [1.0]), 4), round(crps([0.0], [0.0], [1.0], limit=[0.0]), 4)
    (0.2337, 0.1168)
    """
    ends = np.inf if limit is None else limit
    truth, mu, sd, end = _columns(where, y_true=y_true, mean=mean, std=std, limit=ends)
    if (truth > end).any():
        raise InputError("y_true must not exceed the limit up to which it could be observed.")
    z, top = (truth - mu) / _positive(sd), (end - mu) / sd
    return float(np.mean(sd * (_squared_below(z) + _squared_below(-z) - _squared_below(-top))))


def _squared_below(x: Array) -> Array:
    """Return ``∫ Φ²`` up to x."""
    x = np.maximum(x, -40.0)  # the integral is zero in double precision below
    return x * ndtr(x) ** 2 + 2 * ndtr(x) * np.exp(log_pdf(x)) - ndtr(np.sqrt(2) * x) / np.sqrt(np.pi)


def crps_samples(y_true: Any, samples: Any, *, where: Any = None) -> float:
    """Return the continuous ranked probability score of predictions given as draws.

    Unbiased in the number of draws (Zamo & Naveau 2018, the fair score).

    Parameters
    ----------
    y_true : array-like of shape (n,)
        True values.
    samples : array-like of shape (size, n)
        Draws of the predictions.
    where : array-like of bool, optional
        Rows to score.

    Examples
    --------
    >>> round(crps_samples([0.0], [[-1.0], [0.0], [1.0]]), 4)
    0.0
    """
    (truth,) = _columns(where, y_true=y_true)
    rows = truth.size if where is None else np.size(where)
    draws = read_numbers(samples, "samples")
    if draws.ndim != 2 or draws.shape[1] != rows or len(draws) < 2:
        raise InputError(f"samples must be draws × rows, two draws or more, for {rows} rows; got {draws.shape}.")
    draws = np.sort(draws[:, _rows(where, rows)], axis=0)
    if not (np.abs(draws) <= _LARGEST).all():
        raise InputError(f"samples must not contain NaN, infinity or numbers above {_LARGEST:g} in size.")
    size = len(draws)
    # E|X − X'| from order statistics: Σ (2k − size − 1) x_(k) · 2/(size (size − 1))
    rank = 2 * np.arange(1, size + 1) - size - 1
    spread = 2 * (rank @ draws) / (size * (size - 1))
    return float(np.mean(np.abs(draws - truth).mean(axis=0) - 0.5 * spread))


def coverage(y_true: Any, low: Any, high: Any, *, censored: Any = None, where: Any = None) -> float:
    """Return the fraction of rows whose true value lies in ``[low, high]``.

    A censored row counts only if its bound contradicts the interval (the true value is at least y > high: missed).
    All other censored rows are left out, so that coverage under censoring is a lower estimate.

    Parameters
    ----------
    y_true, low, high : array-like of shape (n,)
        True values, and ends of the intervals.
    censored : array-like of shape (n,), optional
        True or +1: the true value is at least y. −1: at most y. False or 0: exactly y.
    where : array-like of bool, optional
        Rows to score.

    Examples
    --------
    >>> coverage([1.0, 5.0], [0.0, 0.0], [2.0, 2.0])
    0.5
    """
    truth, lo, hi, side = _columns(where, y_true=y_true, low=low, high=high, censored=_given(censored))
    if (crossed := np.flatnonzero(lo > hi)).size:
        raise InputError(
            f"low must not exceed high; {crossed.size} intervals do, the first from {lo[crossed[0]]:g} to "
            f"{hi[crossed[0]]:g}. Swap or correct them."
        )
    missed = ((side > 0) & (truth > hi)) | ((side < 0) & (truth < lo))
    judged = (side == 0) | missed
    if not judged.any():
        raise InputError("Coverage cannot be judged: every row is censored and no bound contradicts its interval.")
    return float(np.mean(((truth >= lo) & (truth <= hi) & (side == 0))[judged]))


def concordance(y_true: Any, y_pred: Any, *, censored: Any = None, where: Any = None) -> float:
    """Return the fraction of comparable pairs that the predictions order correctly (Harrell's C); 0.5 is guessing.

    A pair is comparable if its order is certain: both exact and different, or the bound of a censored row beyond the
    exact value of the other.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n,)
        True and predicted values.
    censored : array-like of shape (n,), optional
        True or +1: the true value is at least y. −1: at most y. False or 0: exactly y.
    where : array-like of bool, optional
        Rows to score.

    Examples
    --------
    >>> concordance([1.0, 2.0, 3.0], [1.0, 3.0, 2.0])
    0.6666666666666666
    """
    truth, guess, side = _columns(where, y_true=y_true, y_pred=y_pred, censored=_given(censored))
    upper = np.where(side > 0, np.inf, truth)
    lower = np.where(side < 0, -np.inf, truth)
    right = total = 0.0
    for i in range(truth.size):  # rows j that row i is certainly below
        sure = (upper[i] < lower) | ((upper[i] == lower) & ((side > 0) & (side[i] == 0)))
        total += sure.sum()
        right += (guess[i] < guess[sure]).sum() + 0.5 * (guess[i] == guess[sure]).sum()
    if total == 0:
        raise InputError("No pair of rows can be ordered: all are tied or censored.")
    return float(right / total)


def _given(censored: Any) -> Any:
    return 0.0 if censored is None else censored


def _positive(sd: Array) -> Array:
    if not (sd > 0).all():
        raise InputError("std must be positive everywhere.")
    return sd
