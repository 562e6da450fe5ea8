"""The period that a plan is made for, and the recent days that show how it may turn out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date

import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet._typing import IntArray

__all__ = ["RECENT_DAYS", "WEEKDAYS", "Period", "choose_period"]

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
OVERNIGHT = "overnight"
RECENT_DAYS = 28
"""Days of the records that shocks are drawn from."""
_SAME_WEEKDAYS = 4
_LONGEST_BIN = 360  # minutes; longer bins hide when a station runs empty


@dataclass(frozen=True)
class Period:
    """A period of a day, cut into the panel's bins.

    Attributes
    ----------
    day : pandas.Timestamp or None
        The day; None for the usual day of a weekday.
    weekday : int
        0 is Monday.
    first : int
        Minutes from midnight to the start of the period.
    hours : float
        Length of a bin.
    similar : tuple of integer arrays
        Rows of the bins table: the bins of the forecast, or the same period on the latest days of this weekday.
    recent : tuple of integer arrays
        The same period on each of the latest days of any weekday.
    forecast : bool
        Whether the run has a forecast of this period.
    follows : bool
        Whether the period is on the first day after the records.
    """

    day: pd.Timestamp | None
    weekday: int
    first: int
    hours: float
    similar: tuple[IntArray, ...]
    recent: tuple[IntArray, ...]
    forecast: bool
    follows: bool

    @property
    def intervals(self) -> int:
        """Number of bins."""
        return len(self.similar[0])

    @property
    def slots(self) -> IntArray:
        """Hour of the week of each bin; 0 is Monday from midnight."""
        minutes = self.first + np.arange(self.intervals) * round(60 * self.hours)
        return np.asarray((24 * self.weekday + minutes // 60) % 168, dtype=np.intp)

    @property
    def words(self) -> str:
        """Describe the period, such as ``Monday, 27 May 2024``."""
        name = WEEKDAYS[self.weekday]
        text = f"the usual {name}" if self.day is None else f"{name}, {self.day.day} {self.day:%B %Y}"
        length = self.intervals * self.hours
        if self.first == 0 and length == 24:
            return text
        end = self.first + round(60 * length)
        return f"{text}, {_clock(self.first)} to {_clock(end)}"


def _clock(minutes: int) -> str:
    return f"{minutes // 60 % 24:02d}:{minutes % 60:02d}"


def choose_period(bins: pd.DataFrame, day: str | None = None, start: str = OVERNIGHT, hours: float = 24.0) -> Period:
    """Choose the period of a plan and the days it is learnt from.

    Parameters
    ----------
    bins : pandas.DataFrame
        ``start_local, minutes, future`` of every bin, in order of time; also ``heard``, if known: the minutes of which
        something is known.
    day : str, optional
        ``2024-05-27``, or a weekday such as ``monday`` for its usual day; default: the first day after the records.
    start : str
        ``overnight`` (midnight) or a time of day such as ``06:00``.
    hours : float
        Length of the period: a whole number of bins, at most a day.

    Examples
    --------
    >>> local = pd.date_range("2024-03-04", periods=24 * 21, freq="h")
    >>> bins = pd.DataFrame({"start_local": local, "minutes": 60, "future": False})
    >>> period = choose_period(bins, start="06:00", hours=4)
    >>> period.words, len(period.similar), period.slots.tolist()
    ('Monday, 25 March 2024, 06:00 to 10:00', 3, [6, 7, 8, 9])
    """
    minutes = int(bins["minutes"].mode().iloc[0])
    if minutes > _LONGEST_BIN:
        raise InputError(
            f"Targets need bins of at most {_LONGEST_BIN // 60} hours, to see when stations run empty; this run has "
            f"bins of {minutes / 60:g} hours. Build the panel with --every 1h."
        )
    first = _minutes(start)
    count = hours * 60 / minutes
    if not (0 < hours <= 24 and count == round(count)):
        raise InputError(f"hours: expected a multiple of the bins' {minutes} minutes, at most 24 hours; got {hours:g}.")
    clock = bins["start_local"].dt.hour * 60 + bins["start_local"].dt.minute
    if not (clock == first).any():
        raise InputError(
            f"from: expected a time at which a bin starts, such as {_clock(int(clock.iloc[0]))} with these bins of "
            f"{minutes} minutes; got {_clock(first)}."
        )
    known = bins[~bins["future"]]
    next_day = (known["start_local"].iloc[-1] + pd.Timedelta(minutes=minutes)).ceil("D")
    if "heard" in bins and not bins["future"].any():
        # The last record is in force from the minute after it came, in which nothing else is known.
        next_day = (known["start_local"].iloc[-1] + pd.Timedelta(minutes=int(known["heard"].iloc[-1]) - 1)).ceil("D")
    chosen, weekday = _day(day, next_day)
    whole = _whole_periods(bins, first, round(count), minutes)
    ahead = bins["future"].to_numpy()
    past = {moment: rows for moment, rows in sorted(whole.items()) if not ahead[rows].any()}
    recent = tuple(list(past.values())[-RECENT_DAYS:])
    if chosen in whole and ahead[whole[chosen]].all():
        return Period(chosen, weekday, first, minutes / 60, (whole[chosen],), recent, True, chosen == next_day)
    similar = [rows for moment, rows in past.items() if moment.weekday() == weekday][-_SAME_WEEKDAYS:]
    if not similar:
        raise InputError(
            f"No {WEEKDAYS[weekday]} of the records has all bins from {_clock(first)} on for {hours:g} hours. Give "
            "another --day, or records of at least a week."
        )
    return Period(chosen, weekday, first, minutes / 60, tuple(similar), recent, False, chosen == next_day)


def _minutes(start: str) -> int:
    """Minutes from midnight."""
    if start == OVERNIGHT:
        return 0
    if found := re.fullmatch(r"([01]?\d|2[0-3])(?::([0-5]?\d))?", start, re.ASCII):
        return 60 * int(found[1]) + int(found[2] or 0)
    raise InputError(f"from: expected 'overnight' or a time of day such as 06:00; got {start!r}.")


def _day(day: str | None, next_day: pd.Timestamp) -> tuple[pd.Timestamp | None, int]:
    """Return the day, or None for a usual day, and its weekday."""
    if day is None:
        return next_day, int(next_day.weekday())
    names = [name for name in WEEKDAYS if len(day) >= 3 and name.lower().startswith(day.lower())]
    if names:
        return None, WEEKDAYS.index(names[0])
    try:
        chosen = pd.Timestamp(date.fromisoformat(day))
    except ValueError:
        raise InputError(f"day: expected YYYY-MM-DD or a weekday such as monday; got {day!r}.") from None
    return chosen, int(chosen.weekday())


def _whole_periods(bins: pd.DataFrame, first: int, count: int, minutes: int) -> dict[pd.Timestamp, IntArray]:
    """Map each day to the rows of its period, if all bins exist once, which may fail where the clock changes."""
    since = bins["start_local"] - pd.Timedelta(minutes=first)
    days = since.dt.normalize()
    place = ((since - days).dt.total_seconds() / 60 / minutes).to_numpy()
    found: dict[pd.Timestamp, IntArray] = {}
    for day in days.drop_duplicates():
        rows = np.flatnonzero((days == day).to_numpy() & (place < count))
        if len(rows) == count and (place[rows] == np.arange(count)).all():
            found[day] = rows
    return found
