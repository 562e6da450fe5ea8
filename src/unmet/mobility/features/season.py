"""The usual weather of a season and an hour, for bins without a reading.

A reading is explained by the day of the year and the hour of the day, by sines and cosines. Their coefficients have a
normal prior around zero, so that a short record continues its trend with care: its weeks are a part of the yearly wave.
On daily temperatures of New York, records of 28 to 700 days forecast one and two weeks better this way than by a
straight trend or the median.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet._typing import Array

__all__ = ["usual_weather"]

# Readings of neighbouring days are alike: so many days count as one observation.
_SPELL = 3.0
# Standard deviation of the coefficients, in standard deviations of the readings.
_PRIOR = 2.0


def usual_weather(local: pd.DatetimeIndex, values: Array, at: pd.DatetimeIndex) -> Array:
    """Estimate the usual value of a weather column at some times.

    Amounts that are mostly zero, such as rain, are averaged on the scale ``log(1 + amount/mean)``, with the mean of
    their positive values: that is the scale of the demand models.

    Parameters
    ----------
    local : DatetimeIndex
        Local times of the readings.
    values : array
        The readings; NaN where there is none.
    at : DatetimeIndex
        Local times at which the usual value is wanted.

    Returns
    -------
    array
        Within the range of the readings.

    Examples
    --------
    >>> days = pd.date_range("2021-01-01", periods=730, freq="D")
    >>> temperature = 10 - 10 * np.cos(2 * np.pi * days.day_of_year.to_numpy() / 365.25)
    >>> july = pd.DatetimeIndex(["2023-07-02"])
    >>> usual_weather(days, temperature, july).round(1)
    array([20.])
    """
    known = np.isfinite(values)
    if not known.any():
        raise InputError("usual weather: expected at least one reading, found none.")
    local, values = local[known], np.asarray(values, dtype=float)[known]
    positive = values > 0
    amount = float(values[positive].mean()) if values.min() >= 0 and 0 < positive.mean() < 0.5 else None
    scaled = values if amount is None else np.log1p(values / amount)
    mean, spread = float(scaled.mean()), float(scaled.std())
    if spread == 0:
        return np.full(len(at), values[0])
    days = max(float((local.max() - local.min()) / pd.Timedelta(days=1)), 1.0)
    hourly = len(values) > 2 * days  # one reading a day says nothing about hours
    basis, wanted = _waves(local, hourly), _waves(at, hourly)
    centre = basis.mean(axis=0)
    basis, wanted = basis - centre, wanted - centre
    alike = _SPELL * max(len(values) / days, 1.0)  # readings that count as one observation
    precision = basis.T @ basis + alike / _PRIOR**2 * np.eye(basis.shape[1])
    weights = np.linalg.solve(precision, basis.T @ (scaled - mean))
    usual = np.clip(mean + wanted @ weights, scaled.min(), scaled.max())
    return np.asarray(usual if amount is None else amount * np.expm1(usual), dtype=float)


def _waves(times: pd.DatetimeIndex, hourly: bool) -> Array:
    """Sine and cosine of the day of the year, and two of each of the hour of the day."""
    year = 2 * np.pi * (times.day_of_year.to_numpy() - 1) / 365.25
    columns = [np.sin(year), np.cos(year)]
    if hourly:
        clock = 2 * np.pi * ((times - times.normalize()) / pd.Timedelta(days=1)).to_numpy(dtype=float)
        columns += [wave(k * clock) for k in (1, 2) for wave in (np.sin, np.cos)]
    return np.column_stack(columns)
