"""Whole minutes, and time bins cut by the wall clock of the place.

Time is counted in minutes since 1970-01-01 UTC. A *bin* is a stretch of minutes between two edges. Edges are the
minutes at which the local wall clock reaches a new bin. So a day on which the clocks change has 23 or 25 hourly bins, a
two-hour bin may last one or three hours, and every minute of UTC is in exactly one bin.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmet._exceptions import InputError

__all__ = [
    "DAY",
    "HOURS_OF_WEEK",
    "WEEK",
    "Bins",
    "Integers",
    "cut_bins",
    "hour_of_week",
    "parse_every",
    "parse_hours",
    "runs",
    "wall_minutes",
]

Integers = NDArray[np.int64]
"""Whole numbers: minutes, counts, or numbers of stations, zones and bins."""

DAY = 1440
"""Minutes of a day."""
WEEK = 7 * DAY
HOURS_OF_WEEK = 168
"""Hours of a week, from Monday 00:00 by the wall clock."""
_MONDAY = 4  # 1970-01-05, in days since 1970-01-01: multi-day bins are counted from a Monday
_UNITS = {"min": 1, "m": 1, "minute": 1, "minutes": 1, "h": 60, "hour": 60, "hours": 60, "d": DAY, "day": DAY}
_UNITS |= {"days": DAY, "w": WEEK, "week": WEEK}


@dataclass(frozen=True)
class Bins:
    """Consecutive time bins: bin `i` contains the minutes ``edges[i] ... edges[i + 1] - 1``.

    Attributes
    ----------
    edges : array of int, shape (n + 1,)
        Minutes since 1970-01-01 UTC.
    start_local : array of datetime64[s], shape (n,)
        Local time at the start of each bin.
    """

    edges: Integers
    start_local: NDArray[np.datetime64]

    def __len__(self) -> int:
        return len(self.edges) - 1

    @property
    def minutes(self) -> Integers:
        """Length of each bin."""
        return np.diff(self.edges)

    def of(self, minute: Integers | NDArray[np.int32]) -> Integers:
        """Return the number of the bin of each minute: -1 before the first bin, ``len(bins)`` after the last."""
        length = self.edges[1] - self.edges[0]
        if (np.diff(self.edges) == length).all():  # nearly always true for bins of an hour or less
            return np.clip((minute - self.edges[0]) // length, -1, len(self))
        return np.searchsorted(self.edges, minute, side="right") - 1

    @property
    def start(self) -> NDArray[np.datetime64]:
        """UTC time at the start of each bin."""
        return (self.edges[:-1] * 60).astype("datetime64[s]")


def parse_every(every: str | timedelta) -> int:
    """Convert the length of a bin, "15min", "1h", "1d", "1w" or a timedelta, to minutes: from 5 minutes to a week.

    Examples
    --------
    >>> parse_every("15min"), parse_every("2h"), parse_every("1w")
    (15, 120, 10080)
    """
    if isinstance(every, timedelta):
        seconds = every.total_seconds()
        minutes = int(seconds // 60) if seconds % 60 == 0 else -1
    else:
        match = re.fullmatch(r"\s*(\d{1,9})\s*([a-z]+)\s*", every.lower())
        if match is None or match[2] not in _UNITS:
            raise InputError(
                f"every: expected a whole number and min, h, d or w, such as 15min, 1h, 1d or 1w, got {every!r}."
            )
        minutes = int(match[1]) * _UNITS[match[2]]
    if not 5 <= minutes <= WEEK:
        raise InputError(f"every: expected a bin of 5 minutes to a week, in whole minutes, got {every!r}.")
    if minutes > DAY and minutes % DAY:
        raise InputError(f"every: expected whole days for a bin longer than a day, such as 2d, got {every!r}.")
    return minutes


def wall_minutes(minutes: Integers, timezone: str) -> Integers:
    """Convert UTC minutes to minutes of the local wall clock since 1970-01-01 00:00 on that clock."""
    utc = pd.to_datetime(minutes * 60, unit="s", utc=True)
    wall = utc.tz_convert(timezone).tz_localize(None).as_unit("s")
    return np.asarray(wall.asi8, dtype=np.int64) // 60


def hour_of_week(local: pd.DatetimeIndex | pd.Series) -> Integers:
    """Return the hour of the week of local times: 0 is Monday from midnight, 167 Sunday from 23:00.

    Examples
    --------
    >>> hour_of_week(pd.DatetimeIndex(["2024-01-01 00:30", "2024-01-07 23:00"])).tolist()
    [0, 167]
    """
    times = pd.DatetimeIndex(local)
    return np.asarray(24 * times.day_of_week + times.hour, dtype=np.int64)


def cut_bins(first: int, last: int, every: int, timezone: str) -> Bins:
    """Cut the minutes `first ... last` into bins of `every` wall-clock minutes. The first and last bin are whole.

    Bins shorter than a day start at local midnight and at each multiple of `every` after it. Longer bins start at local
    midnight; bins of several days are counted from a Monday.

    Examples
    --------
    The clocks of New York were set back on 1 November 2020, which had 25 hourly bins.

    >>> noon = lambda day: int(np.datetime64(day, "m").astype(int)) + 16 * 60
    >>> bins = cut_bins(noon("2020-11-01"), noon("2020-11-01"), 1440, "America/New_York")
    >>> len(cut_bins(int(bins.edges[0]), int(bins.edges[1]) - 1, 60, "America/New_York"))
    25
    """
    minutes = np.arange(first - every - 2 * DAY, last + every + 2 * DAY, _step(every), dtype=np.int64)
    if minutes[0] % _step(every):
        minutes -= minutes[0] % _step(every)
    wall = wall_minutes(minutes, timezone)
    if every < DAY:
        day, time = np.divmod(wall, DAY)
        key = day * DAY + time // every
        # When the clock is set back, a bin occurs twice: the second one starts when the clock shows its start.
        starts = (key[1:] != key[:-1]) | (time[1:] % every == 0)
    else:
        key = (wall // DAY - _MONDAY) // (every // DAY)
        starts = key[1:] != key[:-1]
    at = np.flatnonzero(starts) + 1
    edges = minutes[at]
    low = int(np.searchsorted(edges, first, side="right")) - 1
    high = int(np.searchsorted(edges, last, side="right"))
    return Bins(edges[low : high + 1], (wall[at[low:high]] * 60).astype("datetime64[s]"))


def _step(every: int) -> int:
    """Return the coarsest grid that contains every edge: offsets are quarters of an hour (everywhere since 1972)."""
    return int(np.gcd(every, 15))


def parse_hours(hours: str) -> tuple[int, int]:
    """Convert opening hours such as "06:00-23:00" to two minutes of the day.

    Examples
    --------
    >>> parse_hours("06:00-23:30")
    (360, 1410)
    """
    match = re.fullmatch(r"(\d{1,2}):([0-5]\d)\s*-\s*(\d{1,2}):([0-5]\d)", hours.strip())
    if match is None:
        raise InputError(f"hours: expected opening hours such as 06:00-23:00 (local time), got {hours!r}.")
    opens, closes = (int(match[i]) * 60 + int(match[i + 1]) for i in (1, 3))
    if opens == closes or max(opens, closes) > DAY:
        raise InputError(f"hours: expected a start and an end at different times of a day, got {hours!r}.")
    return opens, closes


def runs(mask: NDArray[np.bool_]) -> Integers:
    """Return the stretches in which `mask` is true, as rows (begin, end).

    Examples
    --------
    >>> runs(np.array([True, True, False, True])).tolist()
    [[0, 2], [3, 4]]
    """
    edges = np.diff(np.concatenate([[0], mask.astype(np.int8), [0]]))
    return np.column_stack([np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)]).astype(np.int64)
