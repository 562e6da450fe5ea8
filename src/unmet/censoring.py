"""The paper's censoring processes: they hide known demand, so that models can be compared with the truth.

Each is a pure function of true values and a random generator. All of them reduce values towards zero by a fraction.
They label each row with the side on which the observation bounds the true value, if any.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import expit, logit

from unmet._exceptions import InputError
from unmet._numbers import read_mask, read_numbers
from unmet._typing import Array, BoolArray, IntArray

__all__ = ["Censored", "censor_labelled", "censor_random", "censor_where", "dropoff_probability", "rand_dropoff"]


@dataclass(frozen=True)
class Censored:
    """Observations after censoring.

    Attributes
    ----------
    y : array of shape (n,)
        Observed values.
    label : array of int, shape (n,)
        +1 where the true value is at least y, −1 where it is at most y, 0 where it is y. Pass it to `CensoredGP.fit` as
        ``censored=``.
    """

    y: Array
    label: IntArray

    @property
    def censored(self) -> BoolArray:
        """Mask of the rows that are censored, on either side."""
        return self.label != 0


def censor_where(y: Any, where: Any, low: float, high: float, rng: np.random.Generator) -> Censored:
    """Reduce the selected rows by a random fraction ``u ~ U[low, high]``: ``y ← (1 − u) y`` (paper section 4.2).

    Parameters
    ----------
    y : array-like of shape (n,)
        True values.
    where : array-like of bool, shape (n,)
        Rows to censor.
    low, high : float
        Range of the fraction, within [0, 1].
    rng : Generator
        Generator of the fractions. One is drawn per row, so that the result of a row does not depend on `where`.

    Returns
    -------
    Censored
        Labelled by the definition of censoring. A negative value moves *up* towards zero, so the observation is above
        the true value: its label is −1. A zero stays zero for any fraction, so nothing is hidden: its label is 0.

    Examples
    --------
    >>> censor_where([10.0, 10.0, -10.0], [False, True, True], 0.5, 0.5, np.random.default_rng(0))
    Censored(y=array([10.,  5., -5.]), label=array([ 0,  1, -1]))
    """
    truth = _values(y)
    chosen = read_mask(where, "where", truth.size)
    _check_share(low, "low")
    _check_share(high, "high")
    if low > high:
        raise InputError(f"low must not exceed high; got low={low}, high={high}.")
    share = rng.uniform(low, high, truth.size)
    return Censored(np.where(chosen, (1 - share) * truth, truth), np.where(chosen, np.sign(truth), 0).astype(np.intp))


def censor_random(
    y: Any,
    p: float,
    low: float,
    high: float,
    rng: np.random.Generator,
    *,
    labels: Literal["side-aware", "literal"] = "side-aware",
) -> Censored:
    """Reduce ``⌈p n⌉`` random rows by fractions ``U[low, high]`` (paper section 4.3).

    Parameters
    ----------
    y : array-like of shape (n,)
        True values.
    p : float
        Fraction of rows to censor, within [0, 1].
    low, high : float
        Range of the fraction by which a chosen row is reduced.
    rng : Generator
        Generator of the choice, then of the fractions.
    labels : {"side-aware", "literal"}
        "side-aware" labels each chosen row with the side of the true value (see `censor_where`). "literal" is the
        paper's reading: it labels every chosen row "at least y", which is false where the true value is negative.

    Returns
    -------
    Censored

    Examples
    --------
    >>> censor_random([4.0, 4.0, -4.0], 0.5, 1, 1, np.random.default_rng(1)).censored.sum()
    np.int64(2)
    """
    truth = _values(y)
    _check_share(p, "p")
    if labels not in ("side-aware", "literal"):
        raise InputError(f"labels must be 'side-aware' or 'literal'; got {labels!r}.")
    count = math.ceil(round(p * truth.size, 9))  # 0.1 · 30 is 3.0000000000000004 in binary
    chosen = np.zeros(truth.size, dtype=bool)
    chosen[rng.choice(truth.size, count, replace=False)] = True
    result = censor_where(truth, chosen, low, high, rng)
    return result if labels == "side-aware" else Censored(result.y, chosen.astype(np.intp))


def censor_labelled(y: Any, labelled: Any, c: float) -> Censored:
    """Reduce every labelled row by the fraction `c`: ``y ← (1 − c) y`` (paper section 4.4.2, second stage).

    The labels do not depend on c: with c = 0 they are "at least" for values that are exact.

    Parameters
    ----------
    y : array-like of shape (n,)
        True values.
    labelled : array-like of bool, shape (n,)
        Rows to censor.
    c : float
        Fraction, within [0, 1].

    Returns
    -------
    Censored

    Examples
    --------
    >>> censor_labelled([10.0, 20.0], [True, False], 0.3)
    Censored(y=array([ 7., 20.]), label=array([1, 0]))
    """
    truth = _values(y)
    label = read_mask(labelled, "labelled", truth.size)
    _check_share(c, "c")
    return Censored(np.where(label, (1 - c) * truth, truth), label.astype(np.intp))


def dropoff_probability(y: Any, previous_dropoffs: Any, gamma: float) -> Array:
    """Return the probability that a bin is censored under RandDropoff (paper algorithm 1, line 2).

    ``p = 1 / (1 + exp(ln((1 − γ)/γ) − (y − d)/y))``, where d are the dropoffs of the previous bin. p equals γ if
    pickups equal the previous dropoffs, and is larger if they exceed them, because vacant cabs were then scarce.

    For y = 0 the formula divides by zero. There was no demand in such a bin, hence nothing to hide: p = 0. That is also
    the limit of the formula for y → 0 if there were dropoffs.

    Parameters
    ----------
    y : array-like of shape (n,)
        True pickups, none negative.
    previous_dropoffs : array-like of shape (n,)
        Dropoffs of the bin before each, none negative.
    gamma : float
        Between 0 and 1, both excluded.

    Returns
    -------
    array of shape (n,)

    Examples
    --------
    >>> dropoff_probability([10.0, 10.0, 10.0, 0.0], [10.0, 0.0, 30.0, 5.0], 0.2).round(3)
    array([0.2  , 0.405, 0.033, 0.   ])
    """
    pickups, dropoffs = _values(y), _values(previous_dropoffs, "previous_dropoffs")
    if pickups.shape != dropoffs.shape:
        raise InputError(f"y and previous_dropoffs must have one length; got {pickups.size} and {dropoffs.size}.")
    if (pickups < 0).any() or (dropoffs < 0).any():
        raise InputError("Pickups and dropoffs are counts and cannot be negative.")
    if not 0 < gamma < 1:
        raise InputError(f"gamma must lie between 0 and 1, both excluded; got {gamma}.")
    wanted = pickups > 0
    excess = (pickups - dropoffs) / np.where(wanted, pickups, 1.0)
    return np.where(wanted, expit(logit(gamma) + excess), 0.0)


def rand_dropoff(y: Any, previous_dropoffs: Any, gamma: float, c: float, rng: np.random.Generator) -> Censored:
    """Censor by RandDropoff (paper algorithm 1).

    Each bin is labelled with the probability of `dropoff_probability`. Labelled bins keep ``(1 − c)`` of their pickups.
    One uniform number is drawn per bin: the same generator gives the same labels for every c, and a larger gamma only
    adds labels.

    Parameters
    ----------
    y, previous_dropoffs, gamma
        As in `dropoff_probability`.
    c : float
        Fraction by which labelled bins are reduced, within [0, 1].
    rng : Generator
        Generator of the labels.

    Returns
    -------
    Censored

    Examples
    --------
    >>> rand_dropoff([8.0, 6.0, 0.0], [0.0, 0.0, 0.0], 0.999, 0.5, np.random.default_rng(0))
    Censored(y=array([4., 3., 0.]), label=array([1, 1, 0]))
    """
    probability = dropoff_probability(y, previous_dropoffs, gamma)
    return censor_labelled(y, rng.random(probability.size) < probability, c)


def _values(given: Any, name: str = "y") -> Array:
    values = read_numbers(given, name)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise InputError(f"{name} must be one column of finite numbers; got shape {values.shape}, or NaN or infinity.")
    return values


def _check_share(value: float, name: str) -> None:
    if not 0 <= value <= 1:
        raise InputError(f"{name} must lie within [0, 1]; got {value}.")
