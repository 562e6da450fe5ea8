"""What frames and series bring along besides numbers: columns that are none, names of rows, and their order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, time, timedelta
from typing import Any

import numpy as np
import pandas as pd

from unmet._exceptions import InputError

__all__ = ["naming_rows", "refuse_other_order", "refuse_words_and_times"]


def refuse_words_and_times(X: Any) -> None:
    """Refuse columns of times and of text, which are no numbers, and say what to make of them."""
    if not hasattr(X, "columns"):
        if _kind(X) in _TIME_KINDS:
            raise InputError(f"X must be numbers; got {_TIMES} ({X.dtype}). {_INSTEAD_OF_TIMES}")
        return
    for name in X.columns:
        if _kind(X[name]) in _NUMBER_KINDS:
            continue
        values = np.asarray(X[name])
        odd = _first_odd(values)
        if _kind(values) in _TIME_KINDS or isinstance(odd, _MOMENTS):
            raise InputError(
                f"X must be numbers; column {name!r} holds {_TIMES}, such as {values[0]}. {_INSTEAD_OF_TIMES}"
            )
        if odd is not None:
            what = "text" if isinstance(odd, str) else f"values of the type {type(odd).__name__}"
            raise InputError(
                f"X must be numbers; column {name!r} holds {what}, such as {odd!r}. Leave it out, or make columns of "
                "numbers of it, in a pipeline: sklearn.compose.make_column_transformer with OneHotEncoder"
            )


_MOMENTS = (date, time, timedelta, np.datetime64, np.timedelta64)
_NUMBER_KINDS, _TIME_KINDS = tuple("biuf"), tuple("Mm")  # as NumPy calls them
_TIMES = "dates or times"
_INSTEAD_OF_TIMES = (
    "Give what y depends on as numbers: hours since a start, (t - t.min()) / pd.Timedelta(hours=1), or parts such as "
    "t.dt.hour and t.dt.day_of_week"
)


def _kind(values: Any) -> str:
    return str(getattr(getattr(values, "dtype", None), "kind", ""))


def _first_odd(values: np.ndarray) -> Any:
    """The first value that cannot be read as a number; None where all can."""
    try:
        values.astype(float)
    except (TypeError, ValueError):
        for value in values:
            try:
                float("nan" if value is None or value is pd.NA else value)
            except (TypeError, ValueError):
                return value
    return None


def refuse_other_order(X: Any, **given: Any) -> None:
    """Refuse series whose rows have the names of X's rows in another order: rows are matched by position.

    Parameters
    ----------
    X : array-like
        Inputs.
    given : array-like
        What else was given for the same rows, by its name.
    """
    indexed = {name: rows.index for name, rows in {"X": X, **given}.items() if _has_index(rows)}
    if len(indexed) < 2:
        return
    (first, index), *others = indexed.items()
    for name, other in others:
        if index.equals(other) or len(index) != len(other):
            continue
        if index.isin(other).all() and other.isin(index).all():
            row = int(np.flatnonzero(np.asarray(index) != np.asarray(other))[0])
            raise InputError(
                f"{name} has the rows of {first} in another order: row {row} is {_shown(other[row])} there and "
                f"{_shown(index[row])} in {first}. Rows are matched by position: give {name}.loc[{first}.index], or "
                f"{name}.to_numpy() if positions are right as they are"
            )


@contextmanager
def naming_rows(*given: Any) -> Iterator[None]:
    """Add what an index calls the first row that an error names by its position."""
    try:
        yield
    except InputError as error:
        index = next((rows.index for rows in given if _has_index(rows)), None)
        found = re.search(r"\brow (\d+)\b", str(error))
        if index is None or found is None or index.equals(pd.RangeIndex(len(index))) or int(found[1]) >= len(index):
            raise
        said = f"{found[0]} (index {_shown(index[int(found[1])])})"
        raise type(error)(str(error).replace(found[0], said, 1)) from None


def _has_index(rows: Any) -> bool:
    return isinstance(rows, (pd.DataFrame, pd.Series))


def _shown(label: Any) -> str:
    return repr(label) if isinstance(label, str) else str(label)
