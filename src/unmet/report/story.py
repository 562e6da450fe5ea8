"""The story of a period: riders by week, and one stretch of weeks against another, with intervals from joint draws.

A *choice* is an area, weekdays or weekends, and a part of the day; None stands for all. The sums of every choice come
from the draws that a run keeps by area and period (`unmet.mobility.runs.periods`), never from adding limits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet._typing import Array, BoolArray
from unmet.mobility.clock.periods import DAYS, LONGEST_BIN, PARTS, describe_periods, period_numbers
from unmet.mobility.runs.periods import DRAWS, PeriodDraws, read_draws
from unmet.mobility.runs.totals import QUANTITIES as ALL_QUANTITIES
from unmet.mobility.runs.totals import ZoneDraws
from unmet.report.packing import pack
from unmet.report.source import RunSource

__all__ = [
    "Choice",
    "Comparison",
    "Weeks",
    "check_compare",
    "compare",
    "comparisons",
    "points",
    "read_weeks",
    "story_data",
    "week_rows",
]

Choice = tuple[str | None, str | None, str | None]
"""Area, kind of days, part of the day; None for all."""

QUANTITIES = ("wanted", "served", "walked_on", "lost")
"""Riders who came to a zone first; of those, served there, served nearby, and served nowhere."""

WEEK_COLUMNS = ("area", "week", "whole", "quantity", "mean", "q05", "q95")
_WEEK, _DAY, _YEAR = 7 * 1440, 1440, 52  # minutes, minutes, weeks
_LENGTHS = (1, 4, 13)  # weeks to compare
_SURE = 0.95
_UNUSUAL = 0.1  # change of a day's demand that is worth a mark
_LIMITS = (0.05, 0.95)


@dataclass(frozen=True)
class Weeks:
    """Draws by week, for every choice.

    Attributes
    ----------
    mondays : DatetimeIndex
        First day of each week.
    whole : array of bool
        Weeks of which the records have every day.
    draws : dict
        Choice → array of shape (quantities, weeks, draws), in the order of `QUANTITIES`.
    observed : dict
        Choice → recorded trips.
    """

    mondays: pd.DatetimeIndex
    whole: BoolArray
    draws: dict[Choice, Array]
    observed: dict[Choice, float]

    @property
    def areas(self) -> list[str]:
        """Names of the areas."""
        return sorted({area for area, _, _ in self.draws if area is not None})


def read_weeks(source: RunSource) -> Weeks:
    """Read the draws of a run and sum them by week, for every choice."""
    by_area = read_draws(source.folder / DRAWS)
    known = source.bins[~source.bins["future"]]
    local = pd.DatetimeIndex(known["start_local"])
    week_of_bin = describe_periods(period_numbers(local))["week"]
    minutes = known["minutes"].groupby(week_of_bin.to_numpy()).sum()
    mondays = pd.DatetimeIndex(minutes.index)
    whole = minutes.to_numpy() >= _WEEK - 60  # an hour less when clocks are set forward
    draws: dict[Choice, Array] = {}
    observed: dict[Choice, float] = {}
    named = [area for area in by_area if area]
    for area in [None, *named]:
        summed = _together(list(by_area.values())) if area is None else by_area[area]
        if summed is not None:
            for (days, part), (sums, trips) in _by_choice(summed, mondays, source).items():
                draws[area, days, part], observed[area, days, part] = sums, trips
    return Weeks(mondays, whole, draws, observed)


def _together(draws: list[PeriodDraws]) -> PeriodDraws | None:
    total = None
    for own in draws:
        total = own if total is None else total + own
    return total


def _by_choice(
    summed: PeriodDraws, mondays: pd.DatetimeIndex, source: RunSource
) -> dict[tuple[str | None, str | None], tuple[Array, float]]:
    """Sum by week the periods of each kind of days and part of the day; and sum the recorded trips."""
    names = describe_periods(summed.periods)
    week = mondays.get_indexer(pd.DatetimeIndex(names["week"]))
    own, widening = summed.draws, source.info.get("widening") or {}
    found: dict[tuple[str | None, str | None], tuple[Array, float]] = {}
    kinds = (None, *DAYS) if source.minutes <= _DAY else (None,)
    parts = (None, *PARTS) if source.minutes <= LONGEST_BIN else (None,)
    for days, part in product(kinds, parts):
        chosen = np.ones(len(names), dtype=bool)
        if days is not None:
            chosen &= (names["days"] == days).to_numpy()
        if part is not None:
            chosen &= (names["part"] == part).to_numpy()
        adding = ((np.arange(len(mondays))[:, None] == week) & chosen).astype(float)
        sums = ZoneDraws(*(adding @ values for values in (own.observed, own.lost, own.walked_on, own.walked_in)))
        named = dict(
            zip(ALL_QUANTITIES, sums.widened(**widening).quantities(widening.get("pickups", 0.0)), strict=True)
        )
        found[days, part] = np.stack([named[name] for name in QUANTITIES]), float(sums.observed.sum())
    return found


@dataclass(frozen=True)
class Comparison:
    """Two stretches of whole weeks.

    Attributes
    ----------
    key : str
        As of ``--compare``: ``4w``, or ``year``.
    now, then : str
        Names of both, for a sentence.
    this, that : slice
        Their weeks.
    """

    key: str
    now: str
    then: str
    this: slice
    that: slice


def comparisons(weeks: Weeks, first: str | None = None) -> list[Comparison]:
    """Give the comparisons that the record is long enough for, the one to show first at the head.

    Parameters
    ----------
    weeks : Weeks
        The weeks.
    first : str, optional
        ``4w`` (the last four weeks against the four before) or ``year`` (the same weeks of the year before); default:
        four weeks, or half of a shorter record.
    """
    stop, count = _last_whole(weeks.whole)
    lengths = [n for n in _LENGTHS if 2 * n <= count]
    usual = 4 if 4 in lengths else count // 2
    found = {f"{n}w": _against_before(n, stop) for n in sorted({usual, *lengths} - {0})}
    if count > _YEAR:
        found["year"] = _against_year(min(count - _YEAR, 13), stop)
    wanted = first or f"{usual}w"
    if first is not None and first not in found:
        found |= _asked(first, count, stop)
    return [found[wanted], *(own for key, own in found.items() if key != wanted)] if found else []


def _last_whole(whole: BoolArray) -> tuple[int, int]:
    """End of the last run of whole weeks, and its length."""
    at = np.flatnonzero(whole)
    if not at.size:
        return 0, 0
    stop = int(at[-1]) + 1
    gaps = np.flatnonzero(~whole[:stop])
    return stop, stop - (int(gaps[-1]) + 1 if gaps.size else 0)


def _against_before(n: int, stop: int) -> Comparison:
    now, then = ("the last week", "the week before") if n == 1 else (f"the last {n} weeks", f"the {n} weeks before")
    return Comparison(f"{n}w", now, then, slice(stop - n, stop), slice(stop - 2 * n, stop - n))


def _against_year(n: int, stop: int) -> Comparison:
    now = "the last week" if n == 1 else f"the last {n} weeks"
    then = "the same week a year before" if n == 1 else f"the same {n} weeks a year before"
    return Comparison("year", now, then, slice(stop - n, stop), slice(stop - n - _YEAR, stop - _YEAR))


def _asked(first: str, count: int, stop: int) -> dict[str, Comparison]:
    asked = check_compare(first)
    needed = _YEAR + 1 if asked is None else 2 * asked
    if needed > count:
        raise InputError(
            f"compare: {first} needs {needed} whole weeks of records; the record has {count}. Give fewer weeks."
        )
    assert asked is not None
    return {first: _against_before(asked, stop)}


def check_compare(given: str | None) -> int | None:
    """Check ``--compare``; return the number of weeks, or None for a year or nothing.

    Examples
    --------
    >>> check_compare("4w"), check_compare("year")
    (4, None)
    """
    match = re.fullmatch(r"0*([1-9]\d{0,3})w", given or "")
    if match is None and given not in (None, "year"):
        raise InputError(f"compare: expected a number of weeks such as 4w, or year; got {given!r}.")
    return None if match is None else int(match[1])


def compare(draws: Array, pair: Comparison) -> dict[str, Any]:
    """Compare the share of riders who were lost, and their number, in two stretches of weeks."""
    wanted, lost = draws[0], draws[QUANTITIES.index("lost")]
    this, that = (np.stack([wanted[s].sum(axis=0), lost[s].sum(axis=0)]) for s in (pair.this, pair.that))
    if min(this[0].min(), that[0].min()) <= 0:
        return {"key": pair.key, "sentence": f"No riders came in {pair.now} or in {pair.then}.", "verdict": "unclear"}
    shares = this[1] / this[0], that[1] / that[0]
    change = shares[0] - shares[1]
    fewer = float((change < 0).mean())
    verdict = "better" if fewer >= _SURE else "worse" if (change > 0).mean() >= _SURE else "unclear"
    numbers = {
        "this_share": float(shares[0].mean()),
        "that_share": float(shares[1].mean()),
        "change": float(change.mean()),
        **{f"change_{k}": float(v) for k, v in zip(("q05", "q95"), np.quantile(change, _LIMITS), strict=True)},
        "this_lost": float(this[1].mean()),
        "that_lost": float(that[1].mean()),
        "this_wanted": float(this[0].mean()),
        "that_wanted": float(that[0].mean()),
    }
    return {"key": pair.key, "verdict": verdict, "sentence": _sentence(pair, verdict, numbers), **numbers}


_ANSWERS = {"better": "Yes", "worse": "No, it is getting worse", "unclear": "No clear change"}
_LITTLE = {"better": "Yes, a little", "worse": "No, it is getting a little worse"}
_SMALL = 0.001  # a share; smaller changes are written with two decimals of a point


def _sentence(pair: Comparison, verdict: str, found: dict[str, float]) -> str:
    """Answer whether it is getting better, in one sentence."""
    mean, low, high = (points(found[name]) for name in ("change", "change_q05", "change_q95"))
    same = {mean, low, high} == {"0.0"}
    small = verdict != "unclear" and abs(found["change"]) < _SMALL  # both shares may be the same to one decimal
    digits = 2 if small else 1
    return (
        f"{(_LITTLE if small else _ANSWERS)[verdict]}: {found['this_share']:.{digits}%} of the riders who came in "
        f"{pair.now} were lost ({found['this_lost']:,.0f} of {found['this_wanted']:,.0f}), "
        f"{found['that_share']:.{digits}%} in {pair.then} "
        f"({found['that_lost']:,.0f} of {found['that_wanted']:,.0f}); "
        + ("the share is the same." if same else f"a change of {mean} points (90%: {low} to {high}).")
    )


def points(share: float) -> str:
    """Write the change of a share in percentage points, with its sign; with two decimals below 0.1 points.

    Examples
    --------
    >>> points(-0.0123), points(0.031), points(-0.0002), points(-0.00001)
    ('−1.2', '+3.1', '−0.02', '0.0')
    """
    text = f"{100 * share:+.{2 if abs(share) < _SMALL else 1}f}".replace("-", "−")
    return "0.0" if text[1:] == "0.00" else text


def week_rows(weeks: Weeks) -> pd.DataFrame:
    """Return one row per area (missing: all), week and quantity: mean and 90% limits, for export."""
    frames = []
    for (area, days, part), draws in weeks.draws.items():
        if days is None and part is None:
            for k, name in enumerate(QUANTITIES):
                low, high = np.quantile(draws[k], _LIMITS, axis=-1)
                frame = pd.DataFrame({"week": weeks.mondays.as_unit("us"), "whole": weeks.whole, "quantity": name})
                frame.insert(0, "area", pd.Series([area] * len(frame), dtype="str"))
                frames.append(frame.assign(mean=draws[k].mean(axis=-1), q05=low, q95=high))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(WEEK_COLUMNS))


def story_data(source: RunSource, first: str | None = None) -> dict[str, Any]:
    """Return the story as the page needs it: weeks, sums and comparisons of every choice, weather, unusual days."""
    weeks = read_weeks(source)
    pairs = comparisons(weeks, first)
    monday = [f"{day:%Y-%m-%d}" for day in weeks.mondays]
    unusual = (source.info.get("joint") or {}).get("unusual_days", [])
    choices = []
    for (area, days, part), draws in weeks.draws.items():
        choices.append(
            {
                "choice": [area, days, part],
                "weeks": pack([(column, 0.0) for column in _columns(draws)]),
                "totals": {name: _limits(draws[k].sum(axis=0)) for k, name in enumerate(QUANTITIES)},
                "observed": float(weeks.observed[area, days, part]),
                "compare": [compare(draws, pair) for pair in pairs],
            }
        )
    return {
        "weeks": monday,
        "whole": weeks.whole.tolist(),
        "quantities": list(QUANTITIES),
        "areas": weeks.areas,
        "days": [*DAYS] if any(days for _, days, _ in weeks.draws) else [],
        "parts": {name: [hours.start, hours.stop] for name, hours in PARTS.items()}
        if any(part for _, _, part in weeks.draws)
        else {},
        "choices": choices,
        "pairs": [{"key": p.key, "words": f"{p.now} against {p.then}"} for p in pairs],
        "weather": source.info.get("provenance", {}).get("weather_by_week") or {},
        "unusual": [day for day in unusual if abs(day["change"]) >= _UNUSUAL],
    }


def _columns(draws: Array) -> list[Array]:
    """Mean and limits of each quantity by week, and of the share of riders who were lost, one after the other."""
    wanted, lost = draws[0], draws[QUANTITIES.index("lost")]
    share = np.divide(lost, wanted, out=np.full_like(lost, np.nan), where=wanted > 0)
    with_share = np.concatenate([draws, share[None]])
    low, high = np.quantile(with_share, _LIMITS, axis=-1)
    mean = with_share.mean(axis=-1)
    return [column[k] for k in range(len(with_share)) for column in (mean, low, high)]


def _limits(draws: Array) -> dict[str, float]:
    low, high = np.quantile(draws, _LIMITS)
    return {name: float(f"{v:.9g}") for name, v in (("mean", draws.mean()), ("q05", low), ("q95", high))}
