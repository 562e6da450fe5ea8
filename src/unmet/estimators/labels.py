"""Conversion of censoring labels (a mask, a side, or bounds) to `Observations`."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from unmet._exceptions import InputError, UninformativeWarning
from unmet._numbers import read_numbers, refuse_other_kinds
from unmet._typing import Array
from unmet.likelihoods.base import Likelihood, Observations, refuse_reversed

__all__ = ["as_asked", "bounded_both_ways", "observations", "sides", "vector", "with_exposure"]

# For larger counts the likelihood of a rate is too narrow for quadrature in double precision.
_LARGEST_COUNT = 1e7


def observations(n: int, y: Any, censored: Any, lower: Any, upper: Any) -> Observations:
    """Convert values and labels to `Observations`.

    Parameters
    ----------
    n : int
        Number of rows of X.
    y : array-like of shape (n,) or None
        Observed values. May be None if every row has `lower` or `upper`.
    censored : array-like of shape (n,) or None
        True or +1: the true value is at least y. −1: at most y. False or 0: exactly y.
    lower, upper : array-like of shape (n,) or None
        Bounds of the true value; NaN for no bound. Rows without bounds are exact at y.

    Returns
    -------
    Observations
    """
    values = None if y is None else vector(y, n, "y")
    if lower is None and upper is None:
        if values is None:
            raise InputError("y is None. Give observed values, or lower= and upper=.")
        _refuse_nonfinite(values, "y")
        side = sides(censored, n)
        return Observations(np.where(side < 0, -np.inf, values), np.where(side > 0, np.inf, values))
    if censored is not None:
        raise InputError("Give either censored= or lower=/upper=, not both.")
    low = np.full(n, np.nan) if lower is None else vector(lower, n, "lower").copy()
    high = np.full(n, np.nan) if upper is None else vector(upper, n, "upper").copy()
    for bound, name, end, sign in ((low, "lower", np.inf, "+"), (high, "upper", -np.inf, "−")):
        bad = np.flatnonzero(bound == end)
        if bad.size:
            raise InputError(
                f"{name} must not be {sign}infinity; row {bad[0]} is ({bad.size} such rows in all). "
                "Use NaN for no bound.",
                row=int(bad[0]),
            )
    refuse_reversed(low, high)
    free = ~(np.isfinite(low) | np.isfinite(high))
    if values is not None:
        outside = np.flatnonzero(~free & ((values < low) | (values > high)))
        if outside.size:
            i = int(outside[0])
            raise InputError(
                f"y must lie within its own bounds; row {i} has y = {values[i]} for [{low[i]}, {high[i]}] "
                f"({outside.size} such rows in all). Set y to NaN (or None) where only bounds are known.",
                row=i,
            )
    if free.any():
        if values is None or not np.isfinite(values[free]).all():
            rows = np.flatnonzero(free if values is None else free & ~np.isfinite(values))
            raise InputError(
                f"Rows without a finite lower or upper bound need an observed y; row {rows[0]} has none "
                f"({rows.size} such rows in all).",
                row=int(rows[0]),
            )
        low[free] = high[free] = values[free]
    return Observations(np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high))


def with_exposure(obs: Observations, exposure: Any, likelihood: Likelihood, background: Any = None) -> Observations:
    """The same observations with the share of each bin in which demand could be served, and counts from elsewhere.

    Parameters
    ----------
    obs : Observations
        The observations.
    exposure : array-like of shape (n,) or None
        Shares, 0…1; None for 1 throughout.
    likelihood : Likelihood
        Refuses what it cannot explain: only counts have exposure, and only whole numbers are counts.
    background : array-like of shape (n,) or None
        Expected counts from elsewhere, at least 0; None for 0 throughout. Only counts have it.
    """
    if likelihood.units == "log rate":
        _refuse_other_counts(obs)
    if exposure is not None:
        obs = replace(obs, exposure=vector(exposure, len(obs), "exposure"))
    if background is not None:
        if likelihood.units == "y":
            raise InputError(
                "background needs a count likelihood: use likelihood='poisson' or 'negative-binomial'. From a Gaussian "
                "y, subtract the expected value from elsewhere."
            )
        obs = replace(obs, background=vector(background, len(obs), "background"))
    likelihood.validate(obs)
    return obs


def _refuse_other_counts(obs: Observations) -> None:
    """Refuse counts that are known from above only or too large."""
    below = np.flatnonzero(np.isneginf(obs.lower))
    if below.size:
        raise InputError(
            f"A count must be exact or a lower bound (at least y); row {below[0]} has only an upper bound "
            f"({below.size} such rows in all). Use likelihood='gaussian' for upper bounds (−1, or upper= alone).",
            row=int(below[0]),
        )
    large = np.flatnonzero(obs.lower > _LARGEST_COUNT)
    if large.size:
        raise InputError(
            f"Counts must be at most {_LARGEST_COUNT:g}; row {large[0]} has {obs.lower[large[0]]:.6g} ({large.size} "
            "such rows in all). Count in thousands, or use likelihood='gaussian', which fits such counts well.",
            row=int(large[0]),
        )


def bounded_both_ways(obs: Observations) -> bool:
    """Return whether the data bound the true values from above and below, and determine their scale; warn if not.

    If every row is censored to the same side, the evidence grows without bound as f moves to that side, so
    hyper-parameters cannot be learnt and stay at their starting values. The same holds if rows are censored to either
    side and none is exact: as in classification without errors, the scale is unbounded.
    """
    above, below = np.isfinite(obs.upper).any(), np.isfinite(obs.lower).any()
    if not (above and below):
        side = "from above: the true value is at least" if below else "from below: the true value is at most"
        warnings.warn(
            f"All {len(obs)} rows are censored {side} the observed one, so the evidence has no maximum. "
            "Hyper-parameters are kept at their starting values, and estimates depend on them. Give some exact rows, "
            "or bounds on both sides.",
            UninformativeWarning,
            stacklevel=3,
        )
        return False
    scaled = bool((np.isfinite(obs.upper) & np.isfinite(obs.lower)).any())
    if not scaled:
        warnings.warn(
            f"None of the {len(obs)} rows is exact or has two bounds, so the data do not determine the scale of the "
            "true values, and the evidence may have no maximum. Hyper-parameters are kept at their starting values, "
            "and estimates depend on them. Give some exact rows, or both bounds of some rows.",
            UninformativeWarning,
            stacklevel=3,
        )
    return scaled


def as_asked(X: Array, obs: Observations, censoring: str, likelihood: Likelihood) -> tuple[Array, Observations]:
    """Rows as the `censoring` setting wants them: all, exact ones only, or all taken for exact.

    Counts without information are left out: exposure 0, and (with a warning) "at least 0".

    Parameters
    ----------
    X : array of shape (n, d)
        Inputs.
    obs : Observations
        Observations.
    censoring : {"model", "drop", "ignore"}
        The setting of `CensoredGP`.
    counts : bool
        Whether the likelihood is one of counts.

    Returns
    -------
    X : array
    obs : Observations
    """
    if censoring == "drop":
        if not obs.exact.any():
            raise InputError(f"censoring='drop' leaves no rows: all {len(obs)} are censored. Use censoring='model'.")
        X, obs = X[obs.exact], obs[obs.exact]
    if censoring == "ignore":
        low = np.where(np.isfinite(obs.lower), obs.lower, obs.upper)
        high = np.where(np.isfinite(obs.upper), obs.upper, obs.lower)
        middle = 0.5 * (low + high)
        obs = Observations(middle, middle, obs.exposure, background=obs.background)
    return _informative(X, obs) if likelihood.units == "log rate" else (X, obs)


def _informative(X: Array, obs: Observations) -> tuple[Array, Observations]:
    seen = np.ones(len(obs), dtype=bool) if obs.exposure is None else obs.exposure > 0
    if not seen.any():
        raise InputError(f"All {len(obs)} rows have exposure 0, so there is nothing to learn from.")
    vacuous = seen & ~obs.exact & (obs.lower == 0)
    if vacuous.any():
        warnings.warn(
            f"{int(vacuous.sum())} censored rows have a count of 0. Demand of at least 0 carries no information, "
            "so they are left out.",
            UninformativeWarning,
            stacklevel=4,
        )
    keep = seen & ~vacuous
    if not keep.any():
        raise InputError(
            f"All {len(obs)} rows are censored at a count of 0 or have exposure 0, so there is nothing to learn from."
        )
    return X[keep], obs[keep]


def vector(given: Any, n: int, name: str) -> Array:
    """Convert to one float per row of X.

    Parameters
    ----------
    given : array-like of shape (n,)
        The values.
    n : int
        Number of rows of X.
    name : str
        Name of the argument, for messages.
    """
    values = read_numbers(given, name)
    if values.ndim != 1:
        raise InputError(f"{name} must be one column of values; got an array of shape {values.shape}.")
    if len(values) != n:
        raise InputError(f"{name} must have one value per row of X; got {len(values)} for {n} rows.")
    return values


def _refuse_nonfinite(values: Array, name: str) -> None:
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise InputError(
            f"{name} must not contain NaN or infinity; row {bad[0]} is {values[bad[0]]} ({bad.size} such rows in all). "
            "Drop such rows, or give their bounds with lower= and upper=.",
            row=int(bad[0]),
        )


def sides(censored: Any, n: int) -> Array:
    """Convert labels to −1, 0 or +1, one per row.

    Parameters
    ----------
    censored : array-like of shape (n,) or None
        Labels; None for no censoring.
    n : int
        Number of rows of X.
    """
    if censored is None:
        return np.zeros(n)
    refuse_other_kinds(censored, "censored")
    try:
        labels = np.asarray(censored)
    except ValueError as error:
        raise InputError(f"censored must have one label per row of X; {error}.") from None
    if labels.shape != (n,):
        raise InputError(f"censored must have one label per row of X; got shape {labels.shape} for {n} rows.")
    try:
        side = labels.astype(float)
    except (TypeError, ValueError, OverflowError):  # strings, missing or huge values among the labels
        numbers = (bool, int, float, np.integer, np.floating, np.bool)
        side = np.array([float(x) if isinstance(x, numbers) and -1 <= x <= 1 else np.nan for x in labels])
    side[[isinstance(label, (str, bytes)) for label in labels]] = np.nan  # also strings such as "1"
    bad = np.flatnonzero(~np.isin(side, (-1.0, 0.0, 1.0)))
    if bad.size:
        label = labels[bad[0]].item() if isinstance(labels[bad[0]], np.generic) else labels[bad[0]]
        raise InputError(
            "censored must be True/False, or −1 (true value at most y), 0 (exact), +1 (true value at least y); "
            f"row {bad[0]} is {label!r} ({bad.size} such rows in all).",
            row=int(bad[0]),
        )
    return side
