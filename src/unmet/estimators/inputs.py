"""Checks of all inputs and settings of the estimators, and their conversion to arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import column_or_1d, validate_data

from unmet._exceptions import InputError
from unmet._numbers import read_numbers, refuse_other_kinds, refuse_other_order
from unmet._typing import Array
from unmet.estimators.frames import naming_rows, refuse_words_and_times
from unmet.estimators.labels import observations
from unmet.kernels.base import refuse_repeated_names
from unmet.likelihoods.base import Observations

__all__ = [
    "KINDS",
    "all_or_nothing",
    "choice",
    "numbers",
    "probabilities",
    "read_rows",
    "read_table",
    "whole_number",
]

KINDS = ("demand", "latent")
"""Kinds of quantiles and draws: of a new, uncensored observation, or of the latent function."""

# Squares of numbers in this range are finite in double precision, and so are sums of many of them.
_SMALLEST, _LARGEST = 1e-150, 1e150


@contextmanager
def all_or_nothing(estimator: BaseEstimator) -> Iterator[None]:
    """Clear fitted attributes before a fit; restore them if the fit fails.

    Parameters
    ----------
    estimator : estimator
        The estimator that is being fitted.
    """
    before = dict(vars(estimator))
    for name in before:
        if name.endswith("_") and not name.startswith("_"):
            delattr(estimator, name)
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def read_table(estimator: BaseEstimator, X: Any, *, reset: bool) -> Array:
    """Convert inputs to an array of finite numbers; record (`reset`) or check names and number of columns.

    Parameters
    ----------
    estimator : estimator
        Holds names and number of columns.
    X : array-like or DataFrame of shape (n, d)
        Inputs.
    reset : bool
        Whether to record the columns instead of checking them.

    Returns
    -------
    array of shape (n, d)
    """
    # The class is asked what it is: a frame may have a column of any name.
    if hasattr(type(X), "column_names") and hasattr(type(X), "to_pandas"):
        X = X.to_pandas()  # an Arrow table: its columns are arrays, not names
    a_dict = isinstance(X, Mapping) and not hasattr(X, "shape")  # some sparse matrices are mappings
    if a_dict or hasattr(type(X), "collect"):
        raise InputError(
            f"X must be an array or a frame; got {type(X).__name__}. Make one of it: pd.DataFrame(X), or X.collect()."
        )
    if hasattr(X, "columns"):
        refuse_repeated_names(X.columns)
    if getattr(X, "shape", (1,))[:1] == (0,):
        raise InputError(f"X must have at least one row; got shape {X.shape}. Check how its rows were selected.")
    refuse_words_and_times(X)
    refuse_other_kinds(X, "X")
    with naming_rows(X):
        return _numbers(estimator, X, reset=reset)


def _numbers(estimator: BaseEstimator, X: Any, *, reset: bool) -> Array:
    try:
        table = np.asarray(validate_data(estimator, X, dtype=np.float64, ensure_all_finite=False, reset=reset))
    except (ValueError, OverflowError) as error:
        raise InputError(str(error)) from None
    names = [repr(name) for name in getattr(estimator, "feature_names_in_", range(table.shape[1]))]
    bad = np.argwhere(~np.isfinite(table))
    if bad.size:
        row, column = (int(i) for i in bad[0])
        raise InputError(
            f"X must not contain NaN or infinity; column {names[column]}, row {row} is {table[row, column]} "
            f"({len(bad)} such values in all). Drop such rows, or fill them in (sklearn.impute).",
            row=row,
        )
    for name, values in zip(names, table.T, strict=True):
        _refuse_extreme(values, "X", f"column {name}")
    return table


def read_rows(
    estimator: BaseEstimator, X: Any, y: Any, censored: Any, lower: Any, upper: Any, *, reset: bool = True
) -> tuple[Array, Observations]:
    """Convert the arguments of `fit` to inputs and observations.

    Parameters
    ----------
    estimator : estimator
        Records names and number of columns.
    X : array-like or DataFrame of shape (n, d)
        Inputs.
    y, censored, lower, upper : array-like of shape (n,) or None
        See `unmet.estimators.labels.observations`.
    reset : bool
        Whether names and number of columns are noted, or compared with those noted before.
    """
    refuse_other_order(X, y=y, censored=censored, lower=lower, upper=upper)
    table = read_table(estimator, X, reset=reset)
    if y is None and lower is None and upper is None:
        raise InputError("fit requires y to be passed, but the target y is None. Give y, or lower= and upper=.")
    refuse_other_kinds(y, "y")
    with naming_rows(X, y, censored, lower, upper):
        obs = observations(len(table), None if y is None else column_or_1d(y, warn=True), censored, lower, upper)
    by_bounds = lower is not None or upper is not None
    for values, name in ((obs.lower, "lower" if by_bounds else "y"), (obs.upper, "upper" if by_bounds else "y")):
        _refuse_extreme(values[np.isfinite(values)], name, "it")
    return table, obs


def _refuse_extreme(values: Array, name: str, what: str) -> None:
    largest = float(np.abs(values).max(initial=0.0))
    if largest and not _SMALLEST <= largest <= _LARGEST:
        raise InputError(
            f"{name} must be 0 or between {_SMALLEST:g} and {_LARGEST:g} in size; {what} goes up to {largest:.3g}, "
            "whose square overflows or underflows in double precision. Change its units."
        )


def whole_number(name: str, value: Any, least: int) -> None:
    """Raise `InputError` unless the value is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InputError(f"{name} must be a whole number of {least} or more; got {value!r}.")


def choice(name: str, value: Any, allowed: tuple[str | None, ...]) -> None:
    """Raise `InputError` unless the value is one of `allowed`."""
    if value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(str(a) for a in allowed)}; got {value!r}.")


def numbers(given: Any) -> Array | None:
    """Convert to an array of floats; return None if that fails."""
    try:
        return read_numbers(given, "")
    except InputError:
        return None


def probabilities(q: Any) -> Array:
    """Convert one or several probabilities to an array of zero or one dimension."""
    levels = numbers(q)
    if levels is None or levels.ndim > 1 or not ((levels > 0) & (levels < 1)).all():
        raise InputError(f"q must be one or several probabilities between 0 and 1; got {q!r}.")
    return levels
