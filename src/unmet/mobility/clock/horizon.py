"""Bins after the end of a panel: their number, and their starts by the local wall clock."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet.mobility.clock.bins import cut_bins

__all__ = ["bins_ahead", "future_bins", "horizon_bins", "usual_minutes"]

_UNITS = {"min": 1, "h": 60, "d": 24 * 60, "w": 7 * 24 * 60}
_LONGEST = (5 * 365 + 2) * 24 * 60  # minutes of five years


def usual_minutes(bins: pd.DataFrame) -> int:
    """Return the most frequent length of a panel's bins."""
    return int(bins["minutes"].mode().iloc[0])


def horizon_bins(horizon: str | None, minutes: int) -> int:
    """Return the number of bins in a length of time.

    Examples
    --------
    >>> horizon_bins("7d", 60)
    168
    """
    if horizon is None:
        return 0
    match = re.fullmatch(r"0*(\d+)\s*(min|h|d|w)", str(horizon).strip().lower(), re.ASCII)
    if match is None:
        raise InputError(f"horizon: expected a length of time such as 12h, 7d or 2w, got {horizon!r}.")
    if len(match[1]) > 9 or int(match[1]) * _UNITS[match[2]] > _LONGEST:
        raise InputError(f"horizon: expected at most five years, got {horizon:.20}; give days or weeks, such as 7d.")
    bins, rest = divmod(int(match[1]) * _UNITS[match[2]], minutes)
    if rest:
        raise InputError(f"horizon: {horizon} is not a whole number of the panel's bins of {minutes} minutes.")
    return bins


def bins_ahead(horizon: str | None, bins: pd.DataFrame, timezone: str | None) -> int:
    """Return the number of bins after those of a panel in a length of time; a day is one of the wall clock.

    Parameters
    ----------
    horizon : str or None
        Such as ``12h``, ``7d`` or ``2w``.
    bins, timezone
        As of `future_bins`.

    Examples
    --------
    >>> start = pd.to_datetime(["2020-11-01 03:00"], utc=True)  # before midnight, then clocks are set back
    >>> hour = pd.DataFrame({"start": start, "start_local": pd.to_datetime(["2020-10-31 23:00"]), "minutes": 60})
    >>> bins_ahead("1d", hour, "America/New_York"), bins_ahead("24h", hour, "America/New_York")
    (25, 24)
    """
    minutes = usual_minutes(bins)
    count = horizon_bins(horizon, minutes)
    if not count or timezone is None or minutes >= _UNITS["d"] or str(horizon).strip().lower()[-1] not in "dw":
        return count
    later = future_bins(bins, count + _UNITS["d"] // minutes, timezone)["start_local"]
    return int((later < later.iloc[0] + pd.Timedelta(minutes=count * minutes)).sum())


def future_bins(bins: pd.DataFrame, count: int, timezone: str | None = None) -> pd.DataFrame:
    """Return the bins after the last one of a panel: ``start, start_local, minutes``.

    Parameters
    ----------
    bins : DataFrame
        ``start`` (UTC), ``start_local``, ``minutes`` of the panel's bins.
    count : int
        Number of bins.
    timezone : str, optional
        Time zone whose wall clock cuts the bins. Without it, the last bin's offset from UTC is kept.

    Examples
    --------
    >>> start = pd.to_datetime(["2020-10-31 04:00"], utc=True)
    >>> day = pd.DataFrame({"start": start, "start_local": start.tz_localize(None), "minutes": 1440})
    >>> future_bins(day, 2, "America/New_York")["minutes"].tolist()  # clocks are set back on 1 November
    [1500, 1440]
    """
    every, last = usual_minutes(bins), bins.sort_values("start").iloc[-1]
    begin = last["start"] + pd.Timedelta(minutes=int(last["minutes"]))
    if timezone is None:
        start = begin + pd.to_timedelta(np.arange(count) * every, unit="min")
        local = start.tz_localize(None) + (last["start_local"] - last["start"].tz_localize(None))
        return pd.DataFrame({"start": start.as_unit("us"), "start_local": local.as_unit("us"), "minutes": every})
    first = int(begin.timestamp()) // 60
    # One day more than needed: bins are shorter when clocks are set forward.
    cut = cut_bins(first, first + count * every + 24 * 60, every, timezone)
    start = pd.to_datetime(cut.edges[:count] * 60, unit="s", utc=True)
    local = pd.DatetimeIndex(cut.start_local[:count])
    frame = {"start": start.as_unit("us"), "start_local": local.as_unit("us"), "minutes": cut.minutes[:count]}
    return pd.DataFrame(frame)
