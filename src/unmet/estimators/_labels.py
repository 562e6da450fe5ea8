"""From what a user says of each row (a mask, a side, or bounds) to `Observations`."""

from __future__ import annotations

from typing import Any

import numpy as np

from unmet._exceptions import InputError
from unmet._typing import Array
from unmet.likelihoods.base import Observations

__all__ = ["observations", "sides"]


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
    values = None if y is None else _vector(y, n, "y")
    if lower is None and upper is None:
        if values is None:
            raise InputError("y is None: give observed values, or lower= and upper=")
        _refuse_nonfinite(values, "y")
        side = sides(censored, n)
        return Observations(np.where(side < 0, -np.inf, values), np.where(side > 0, np.inf, values))
    if censored is not None:
        raise InputError("give either censored= or lower=/upper=, not both")
    low = np.full(n, np.nan) if lower is None else _vector(lower, n, "lower")
    high = np.full(n, np.nan) if upper is None else _vector(upper, n, "upper")
    free = ~(np.isfinite(low) | np.isfinite(high))
    if free.any():
        if values is None or not np.isfinite(values[free]).all():
            rows = np.flatnonzero(free if values is None else free & ~np.isfinite(values))
            raise InputError(
                f"rows without a finite lower or upper bound need an observed y; row {rows[0]} has none "
                f"({rows.size} such rows in all)"
            )
        low[free] = high[free] = values[free]
    return Observations(np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high))


def _vector(given: Any, n: int, name: str) -> Array:
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
    try:
        side = np.asarray(censored).astype(float)
    except (TypeError, ValueError):
        side = np.array([np.nan])
    if np.ndim(censored) != 1 or len(side) != n:
        raise InputError(f"censored must have one label per row of X; got shape {np.shape(censored)} for {n} rows")
    bad = np.flatnonzero(~np.isin(side, (-1.0, 0.0, 1.0)))
    if bad.size:
        raise InputError(
            "censored must be True/False, or −1 (truth at most y), 0 (exact), +1 (truth at least y); "
            f"row {bad[0]} is {np.asarray(censored)[bad[0]]!r} ({bad.size} such rows in all)"
        )
    return side
