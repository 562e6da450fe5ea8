"""Checks of frames and series: columns that are not numbers, and labels of rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, time, timedelta
from typing import Any

import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet._numbers import has_index, shown_label

__all__ = ["naming_rows", "refuse_words_and_times"]


def refuse_words_and_times(X: Any) -> None:
    """Raise `InputError` if X has columns of times or text; the message suggests how to convert them.

    Parameters
    ----------
    X : array-like or DataFrame
        Inputs.
    """
    if not hasattr(X, "columns"):
        if _kind(X) in _TIME_KINDS:
            raise InputError(f"X must be numbers; got {_TIMES} ({X.dtype}). {_INSTEAD_OF_TIMES}.")
        return
    for name in X.columns:
        if _kind(X[name]) in _NUMBER_KINDS:
            continue
        values = np.asarray(X[name])
        odd = _first_odd(values)
        if _kind(values) in _TIME_KINDS or isinstance(odd, _MOMENTS):
            raise InputError(
                f"X must be numbers; column {name!r} contains {_TIMES}, such as {values[0]}. {_INSTEAD_OF_TIMES}."
            )
        if odd is not None:
            what = "text" if isinstance(odd, str) else f"values of the type {type(odd).__name__}"
            raise InputError(
                f"X must be numbers; column {name!r} contains {what}, such as {odd!r}. Leave it out, or encode it as "
                "numbers in a pipeline: sklearn.compose.make_column_transformer with OneHotEncoder."
            )


_MOMENTS = (date, time, timedelta, np.datetime64, np.timedelta64)
_NUMBER_KINDS, _TIME_KINDS = tuple("biuf"), tuple("Mm")  # NumPy's dtype.kind
_TIMES = "dates or times"
_INSTEAD_OF_TIMES = (
    "Convert times to numbers: hours since a start, (t - t.min()) / pd.Timedelta(hours=1), or parts such as "
    "t.dt.hour and t.dt.day_of_week"
)


def _kind(values: Any) -> str:
    return str(getattr(getattr(values, "dtype", None), "kind", ""))


def _first_odd(values: np.ndarray) -> Any:
    """Return the first value that cannot be read as a number; None if all can."""
    try:
        values.astype(float)
    except (TypeError, ValueError):
        for value in values:
            try:
                float("nan" if value is None or value is pd.NA else value)
            except (TypeError, ValueError):
                return value
    return None


@contextmanager
def naming_rows(*given: Any) -> Iterator[None]:
    """Add the index label of the row to an error that has a `row`.

    Parameters
    ----------
    given : array-like
        Arguments of the estimator. The first frame or series gives the index.
    """
    try:
        yield
    except InputError as error:
        index = next((rows.index for rows in given if has_index(rows)), None)
        row = error.row
        if index is None or row is None or index.equals(pd.RangeIndex(len(index))) or row >= len(index):
            raise
        raise type(error)(f"{error} Row {row} has the index label {shown_label(index[row])}.", row=row) from None
