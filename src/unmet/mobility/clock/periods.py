"""Periods of a record that a report sums by: weeks, weekdays or weekends, and parts of the day.

A *period* is the part of a day on the weekdays, or the weekend, of one week, by the local clock: the mornings of the
weekdays of the week from Monday, 4 March 2024. Each has a number, so that sums of many zones can be kept by period.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from unmet.mobility.clock.bins import Integers

__all__ = ["DAYS", "LONGEST_BIN", "PARTS", "describe_periods", "hours_of", "period_numbers"]

PARTS: dict[str, range] = {
    "night": range(6),
    "morning": range(6, 10),
    "midday": range(10, 16),
    "evening": range(16, 20),
    "late": range(20, 24),
}
"""Parts of the day, and their hours."""

DAYS: dict[str, range] = {"weekdays": range(5), "weekends": range(5, 7)}
"""Kinds of days, and their days of the week, from Monday."""

LONGEST_BIN = 120
"""Minutes; longer bins reach into two parts of the day."""

_PART_OF_HOUR = np.repeat(np.arange(len(PARTS)), [len(hours) for hours in PARTS.values()])
_EPOCH = 3  # 1970-01-01 was a Thursday


def period_numbers(local: pd.DatetimeIndex) -> Integers:
    """Return the number of the period in which each local time lies.

    Examples
    --------
    >>> times = pd.DatetimeIndex(["2024-03-04 08:00", "2024-03-08 09:59", "2024-03-09 08:00"])
    >>> numbers = period_numbers(times)
    >>> numbers - numbers[0]
    array([0, 0, 5])
    """
    day = local.to_numpy().astype("datetime64[D]").astype(np.int64)
    week, weekday = np.divmod(day + _EPOCH, 7)
    kind = (weekday >= len(DAYS["weekdays"])).astype(np.int64)
    return np.asarray((week * len(DAYS) + kind) * len(PARTS) + _PART_OF_HOUR[local.hour.to_numpy()], dtype=np.int64)


def describe_periods(numbers: Integers) -> pd.DataFrame:
    """Return ``week`` (its Monday), ``days`` and ``part`` of periods.

    Examples
    --------
    >>> describe_periods(period_numbers(pd.DatetimeIndex(["2024-03-09 08:00"])))
            week      days     part
    0 2024-03-04  weekends  morning
    """
    rest, part = np.divmod(np.asarray(numbers, dtype=np.int64), len(PARTS))
    week, kind = np.divmod(rest, len(DAYS))
    monday = pd.DatetimeIndex((week * 7 - _EPOCH).astype("datetime64[D]"))
    return pd.DataFrame({"week": monday, "days": np.array([*DAYS])[kind], "part": np.array([*PARTS])[part]})


def hours_of(days: str | None, part: str | None) -> list[int]:
    """Return the hours of the week of a kind of days and a part of the day; None stands for all.

    Examples
    --------
    >>> hours_of("weekends", "morning")
    [126, 127, 128, 129, 150, 151, 152, 153]
    """
    chosen = range(7) if days is None else DAYS[days]
    return [24 * day + hour for day in chosen for hour in (range(24) if part is None else PARTS[part])]
