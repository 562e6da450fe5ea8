"""Numbers that a caller gives: converted to floats, or refused with a sentence."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from unmet._exceptions import InputError
from unmet._typing import Array, BoolArray, IntArray

__all__ = [
    "LARGEST_COUNT",
    "has_index",
    "is_whole",
    "read_count",
    "read_counts",
    "read_generator",
    "read_mask",
    "read_numbers",
    "read_rate",
    "read_rates",
    "read_switch",
    "refuse_other_kinds",
    "refuse_other_order",
    "shown_label",
]

LARGEST_COUNT = 2**53
"""Up to here every whole number is a float."""

_LARGEST_RATE = 1e100
_OTHER_KINDS = {"M": "times", "m": "durations", "V": "records of several fields"}


def refuse_other_kinds(given: Any, name: str) -> None:
    """Raise `InputError` for arrays that NumPy would convert to floats, but which are not real numbers.

    The values behind a mask would be used, imaginary parts dropped, and times counted in any unit.

    Parameters
    ----------
    given : object
        The argument; only arrays and series have such kinds.
    name : str
        Its name, for messages.
    """
    if isinstance(given, np.ma.MaskedArray) and np.ma.is_masked(given):
        raise InputError(
            f"{name} has {np.ma.count_masked(given)} masked values. Drop their rows, or fill them in: "
            f"{name}.filled(value)."
        )
    kind = getattr(getattr(given, "dtype", None), "kind", "")
    if kind == "c":
        raise InputError(f"Complex data not supported: {name} must be real numbers; got {given.dtype}.")
    if kind in _OTHER_KINDS:
        raise InputError(f"{name} must be numbers; got {_OTHER_KINDS[kind]} ({given.dtype}).")


def read_numbers(given: Any, name: str) -> Array:
    """Convert an argument to an array of floats, of any shape; NaN and infinity stay, None and pd.NA become NaN.

    Examples
    --------
    >>> read_numbers([1, "2.5", None], "y").tolist()
    [1.0, 2.5, nan]
    >>> read_numbers(10**400, "y")
    Traceback (most recent call last):
    unmet._exceptions.InputError: y must be numbers; int too large to convert to float.
    """
    refuse_other_kinds(given, name)
    try:
        array = np.asarray(given)
        refuse_other_kinds(array, name)
        if array.dtype == object:
            import pandas as pd  # scores of plain arrays do without it

            array = np.where(pd.isna(array), np.nan, array)  # pd.NA refuses to be a float
        return array.astype(float)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name} must be numbers; {error}.") from None


def read_mask(given: Any, name: str, rows: int) -> BoolArray:
    """Convert an argument to one True or False per row. NumPy would take any text and any number but 0 for True.

    Examples
    --------
    >>> read_mask([0, 1.0, True], "where", 3).tolist()
    [False, True, True]
    >>> read_mask([0, 2], "where", 2)
    Traceback (most recent call last):
    unmet._exceptions.InputError: where must be True or False in every row; got 2.
    """
    mask = read_numbers(given, name)
    if mask.shape != (rows,):
        raise InputError(f"{name} must be one True or False per row ({rows}); got shape {mask.shape}.")
    wrong = mask[~np.isin(mask, (0.0, 1.0))]
    if wrong.size:
        raise InputError(f"{name} must be True or False in every row; got {wrong[0]:g}.")
    return mask.astype(bool)


def read_rates(given: Any, name: str) -> Array:
    """Convert an argument to an array of finite floats of at least 0, whose products do not overflow."""
    rates = read_numbers(given, name)
    if not ((rates >= 0) & (rates <= _LARGEST_RATE)).all():
        raise InputError(
            f"{name}: expected finite rates of at least 0, below {_LARGEST_RATE:g}; got {rates.min()} to {rates.max()}."
        )
    return rates


def read_rate(given: Any, name: str) -> float:
    """Convert an argument to one finite float of at least 0: a text such as ``"2"`` becomes a number, too.

    Examples
    --------
    >>> read_rate("2", "hours")
    2.0
    >>> read_rate([1, 2], "hours")
    Traceback (most recent call last):
    unmet._exceptions.InputError: hours: expected one number, got [1, 2].
    """
    rate = read_rates(given, name)
    if rate.ndim:
        raise InputError(f"{name}: expected one number, got {given!r:.60}.")
    return float(rate)


def read_generator(given: Any, name: str) -> np.random.Generator:
    """Return an argument that is a `numpy.random.Generator`; refuse all others."""
    if not isinstance(given, np.random.Generator):
        raise InputError(f"{name}: expected a numpy.random.Generator, such as default_rng(0); got {given!r:.60}.")
    return given


def read_counts(given: Any, name: str, most: int) -> IntArray:
    """Convert an argument to an array of integers from 0 to a limit, without rounding."""
    counts = read_numbers(given, name)
    wrong = counts[~((counts >= 0) & (counts <= most) & (counts == np.floor(counts)))]
    if wrong.size:
        raise InputError(f"{name}: expected whole numbers from 0 to {most:,}, got {wrong[0]:g}.")
    return counts.astype(np.intp)


def read_switch(given: Any, name: str) -> bool:
    """Return an argument that is True or False. Python would take any text for True, such as ``"no"``.

    Examples
    --------
    >>> read_switch("no", "return_std")
    Traceback (most recent call last):
    unmet._exceptions.InputError: return_std must be True or False; got 'no'.
    """
    if not isinstance(given, (bool, np.bool_)):
        raise InputError(f"{name} must be True or False; got {given!r:.60}.")
    return bool(given)


def is_whole(given: object) -> bool:
    """Return whether an argument is an integer; True and False are none."""
    return isinstance(given, Integral) and not isinstance(given, bool)


def read_count(given: Any, name: str, least: int, most: int) -> int:
    """Convert an argument to an integer between two limits, without rounding.

    Examples
    --------
    >>> read_count(np.float64(3.0), "capacity", 0, 10)
    3
    >>> read_count(3.5, "capacity", 0, 10)
    Traceback (most recent call last):
    unmet._exceptions.InputError: capacity: expected a whole number from 0 to 10, got 3.5.
    """
    whole = isinstance(given, Integral) or (isinstance(given, (float, np.floating)) and float(given).is_integer())
    if not whole or not least <= given <= most:
        raise InputError(f"{name}: expected a whole number from {least:,} to {most:,}, got {given!r:.60}.")
    return int(given)


def has_index(rows: Any) -> bool:
    """Return whether rows have labels, as those of a pandas frame or series."""
    return hasattr(type(rows), "iloc") and hasattr(type(rows), "index")


def shown_label(label: Any) -> str:
    """Show the label of a row."""
    return repr(label) if isinstance(label, str) else str(label)


def refuse_other_order(X: Any = None, **given: Any) -> None:
    """Raise `InputError` if series have the same index labels in another order. Rows are matched by position.

    Parameters
    ----------
    X : array-like, optional
        Inputs.
    given : array-like
        Other arguments for the same rows, by name.
    """
    indexed = {name: rows.index for name, rows in {"X": X, **given}.items() if has_index(rows)}
    if len(indexed) < 2:
        return
    (first, index), *others = indexed.items()
    for name, other in others:
        if index.equals(other) or len(index) != len(other):
            continue
        if index.isin(other).all() and other.isin(index).all():
            row = int(np.flatnonzero(np.asarray(index) != np.asarray(other))[0])
            raise InputError(
                f"{name} has the rows of {first} in another order: row {row} is {shown_label(other[row])} in {name} "
                f"and {shown_label(index[row])} in {first}. Rows are matched by position. Give "
                f"{name}.loc[{first}.index], or {name}.to_numpy() if the positions are right."
            )
