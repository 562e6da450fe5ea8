"""From what a user says of each row (a mask, a side, or bounds) to `Observations`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from unmet._exceptions import InputError, UninformativeWarning
from unmet._typing import Array
from unmet.likelihoods.base import Observations, refuse_reversed
from unmet.likelihoods.counts import Poisson

__all__ = ["as_asked", "bounded_both_ways", "observations", "sides", "vector", "with_exposure"]

# Beyond this the likelihood of a rate is too narrow for quadrature in double precision.
_LARGEST_COUNT = 1e7


def observations(n: int, y: Any, censored: Any, lower: Any, upper: Any) -> Observations:
    """What is known of each row.

    Parameters
    ----------
    n : int
        Number of rows of X.
    y : array-like of shape (n,) or None
        Observed values; may be None where `lower` and `upper` tell all.
    censored : array-like of shape (n,) or None
        True, or +1: the truth is at least y; −1: at most y; False, or 0: exactly y.
    lower, upper : array-like of shape (n,) or None
        Bounds of the truth; NaN for none. Rows without either bound are exact at y.
    """
    values = None if y is None else vector(y, n, "y")
    if lower is None and upper is None:
        if values is None:
            raise InputError("y is None: give observed values, or lower= and upper=")
        _refuse_nonfinite(values, "y")
        side = sides(censored, n)
        return Observations(np.where(side < 0, -np.inf, values), np.where(side > 0, np.inf, values))
    if censored is not None:
        raise InputError("give either censored= or lower=/upper=, not both")
    low = np.full(n, np.nan) if lower is None else vector(lower, n, "lower").copy()
    high = np.full(n, np.nan) if upper is None else vector(upper, n, "upper").copy()
    for bound, name, end, sign in ((low, "lower", np.inf, "+"), (high, "upper", -np.inf, "−")):
        bad = np.flatnonzero(bound == end)
        if bad.size:
            raise InputError(
                f"{name} must not be {sign}infinity; row {bad[0]} is ({bad.size} such rows in all). "
                "Use NaN where there is no such bound"
            )
    refuse_reversed(low, high)
    free = ~(np.isfinite(low) | np.isfinite(high))
    if values is not None:
        outside = np.flatnonzero(~free & ((values < low) | (values > high)))
        if outside.size:
            i = int(outside[0])
            raise InputError(
                f"y must lie within its own bounds; row {i} has y = {values[i]} for [{low[i]}, {high[i]}] "
                f"({outside.size} such rows in all). Leave y NaN (or None) where only bounds are known"
            )
    if free.any():
        if values is None or not np.isfinite(values[free]).all():
            rows = np.flatnonzero(free if values is None else free & ~np.isfinite(values))
            raise InputError(
                f"rows without a finite lower or upper bound need an observed y; row {rows[0]} has none "
                f"({rows.size} such rows in all)"
            )
        low[free] = high[free] = values[free]
    return Observations(np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high))


def with_exposure(obs: Observations, exposure: Any, background: Any = None, *, counts: bool) -> Observations:
    """The same observations with the share of each bin in which demand could be served, and counts from elsewhere.

    Parameters
    ----------
    obs : Observations
        What is known of each row.
    exposure : array-like of shape (n,) or None
        Shares, 0…1; None for 1 throughout.
    background : array-like of shape (n,) or None
        Expected counts from elsewhere, at least 0; None for 0 throughout.
    counts : bool
        Whether the likelihood is one of counts; only these have exposure and background, and only whole numbers are
        counts.
    """
    if not counts:
        if exposure is not None:
            raise InputError(
                "exposure needs a count likelihood: what half a bin shows of a Gaussian total is not defined. Use "
                "likelihood='poisson' or 'negative-binomial', or mark such rows censored=True"
            )
        if background is not None:
            raise InputError(
                "background needs a count likelihood: use likelihood='poisson' or 'negative-binomial'. From a Gaussian "
                "y, subtract what is expected from elsewhere"
            )
        return obs
    below = np.flatnonzero(np.isneginf(obs.lower))
    if below.size:
        raise InputError(
            f"a count is known exactly or from below (at least y); row {below[0]} is known from above only "
            f"({below.size} such rows in all). Censoring from above (−1, or upper= alone) needs likelihood='gaussian'"
        )
    large = np.flatnonzero(obs.lower > _LARGEST_COUNT)
    if large.size:
        raise InputError(
            f"counts must be at most {_LARGEST_COUNT:g}: row {large[0]} has {obs.lower[large[0]]:.6g} ({large.size} "
            "such rows in all). Count in thousands, or use likelihood='gaussian': such counts are Gaussian"
        )
    shares = None if exposure is None else vector(exposure, len(obs), "exposure")
    others = None if background is None else vector(background, len(obs), "background")
    with_it = Observations(obs.lower, obs.upper, shares, others)
    Poisson().validate(with_it)
    return with_it


def bounded_both_ways(obs: Observations) -> bool:
    """Whether something bounds the truth from above and from below, and tells its scale; where not, says so.

    With every row censored to one side the evidence grows without end as f runs away to that side, so hyper-parameters
    cannot be learnt: they stay at their starting values. So they do where rows are censored to either side and none
    is exact: as in a classification without errors, the scale has no end.
    """
    above, below = np.isfinite(obs.upper).any(), np.isfinite(obs.lower).any()
    if not (above and below):
        side = "from above: the truth is at least" if below else "from below: the truth is at most"
        warnings.warn(
            f"all {len(obs)} rows are censored {side} what was seen, so the evidence has no maximum. Hyper-parameters "
            "are kept at their starting values, and estimates rest on them; give some exact rows, or bounds on both "
            "sides.",
            UninformativeWarning,
            stacklevel=3,
        )
        return False
    scaled = bool((np.isfinite(obs.upper) & np.isfinite(obs.lower)).any())
    if not scaled:
        warnings.warn(
            f"none of the {len(obs)} rows is exact or between two bounds, so nothing tells how far the truth goes "
            "beyond them: the evidence need not have a maximum. Hyper-parameters are kept at their start, and "
            "estimates rest on them; give some exact rows, or both bounds of some.",
            UninformativeWarning,
            stacklevel=3,
        )
    return scaled


def as_asked(X: Array, obs: Observations, censoring: str, *, counts: bool) -> tuple[Array, Observations]:
    """Rows as the `censoring` setting wants them: all, exact ones only, or all taken for exact.

    Rows of counts that say nothing are left out: exposure 0, and (with a warning) "at least 0".
    """
    if censoring == "drop":
        if not obs.exact.any():
            raise InputError(f"censoring='drop' leaves no rows: all {len(obs)} are censored. Use censoring='model'")
        X, obs = X[obs.exact], obs[obs.exact]
    if censoring == "ignore":
        low = np.where(np.isfinite(obs.lower), obs.lower, obs.upper)
        high = np.where(np.isfinite(obs.upper), obs.upper, obs.lower)
        middle = 0.5 * (low + high)
        obs = Observations(middle, middle, obs.exposure, obs.background)
    return _informative(X, obs) if counts else (X, obs)


def _informative(X: Array, obs: Observations) -> tuple[Array, Observations]:
    seen = np.ones(len(obs), dtype=bool) if obs.exposure is None else obs.exposure > 0
    if not seen.any():
        raise InputError(f"all {len(obs)} rows have exposure 0: nothing could be seen, so nothing can be learnt")
    vacuous = seen & ~obs.exact & (obs.lower == 0)
    if vacuous.any():
        warnings.warn(
            f"{int(vacuous.sum())} censored rows have a count of 0: demand of at least 0 carries no information, "
            "and they are left out.",
            UninformativeWarning,
            stacklevel=4,
        )
    keep = seen & ~vacuous
    if not keep.any():
        raise InputError(f"all {len(obs)} rows are censored at a count of 0 or have exposure 0: nothing can be learnt")
    return X[keep], obs[keep]


def vector(given: Any, n: int, name: str) -> Array:
    """One number per row of X."""
    try:
        values = np.asarray(given, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers; {error}") from None
    if values.ndim != 1:
        raise InputError(f"{name} must be one column of values; got an array of shape {values.shape}")
    if len(values) != n:
        raise InputError(f"{name} must have one value per row of X; got {len(values)} for {n} rows")
    return values


def _refuse_nonfinite(values: Array, name: str) -> None:
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise InputError(
            f"{name} must not contain NaN or infinity; row {bad[0]} is {values[bad[0]]} ({bad.size} such rows in all). "
            "Drop such rows, or say what is known of them with lower= and upper="
        )


def sides(censored: Any, n: int) -> Array:
    """Labels as −1, 0 or +1, one per row."""
    if censored is None:
        return np.zeros(n)
    labels = np.asarray(censored)
    if labels.shape != (n,):
        raise InputError(f"censored must have one label per row of X; got shape {labels.shape} for {n} rows")
    try:
        side = labels.astype(float)
    except (TypeError, ValueError):  # words, or nothing at all, among labels
        side = np.array([float(x) if isinstance(x, (bool, int, float, np.number, np.bool)) else np.nan for x in labels])
    side[[isinstance(label, (str, bytes)) for label in labels]] = np.nan  # "1" is a word too
    bad = np.flatnonzero(~np.isin(side, (-1.0, 0.0, 1.0)))
    if bad.size:
        label = labels[bad[0]].item() if isinstance(labels[bad[0]], np.generic) else labels[bad[0]]
        raise InputError(
            "censored must be True/False, or −1 (truth at most y), 0 (exact), +1 (truth at least y); "
            f"row {bad[0]} is {label!r} ({bad.size} such rows in all)"
        )
    return side
