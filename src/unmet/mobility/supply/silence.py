"""When a feed as a whole says nothing, and when a whole system stands still.

Both are judged from counts per minute. A change log is silent when nothing changes, so a quiet night is no outage:
silence tells something only where many events would have been expected. What is expected in an hour is the lower
quartile of the same hour on the days around it (14 before, 14 after, of those on which the feed lived): a quarter of
the days are quieter, so a Sunday's late morning is not measured by the working days. Of one to three days it is the
quietest. Where no other day is known, what was heard in the hour before a silence and in the hour after it tells, the
lesser of the two. To call a whole system closed takes a week of days.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmet.mobility.clock.bins import DAY, Integers, runs

__all__ = ["Feed", "expected_events", "outside_coverage", "silent_stretches", "standstills"]

SHORTEST_SILENCE = 30
"""Minutes: no shorter silence is taken for an outage or a closure."""

IMPROBABLE = 60.0
"""Expected events in a stretch without any that make it no accident: on a day with a fifth of the usual traffic 12
would remain, and a silence of exp(-12). In two years of two real systems what lies above was an outage of the collector
or of the system, a closure for snow, a curfew or a tropical storm; ordinary nights stay below 30, a blizzard at 55."""

_ALIVE = 0.1
"""Share of the usual records below which a feed does not live: closed systems kept to 0.4 and more of it."""

MISSED_POLLS = 3
"""A poll lists every station and has no quiet hours: so many missed ones are a silence."""

_DAYS_AROUND = 14
_FEED_QUANTILE = 0.999
LONGEST_TRIP_GAP = 7 * DAY
"""Minutes without any trip in the whole system after which the trip files are taken to have a hole."""


@dataclass(frozen=True)
class Feed:
    """What the whole feed did, minute by minute; index 0 is minute `first`.

    Attributes
    ----------
    first : int
        Minutes since 1970-01-01 UTC.
    records, moves : array
        Status records that came into force in each minute; changes that show that a vehicle moved.
    moving : array of bool
        Whether anything moved in each minute, by the status or by the trips.
    stations, shut : array
        Stations heard of so far, and how many of them said last that they do not rent.
    polled : bool
        Whether the feed lists every station at each poll (then it has no quiet hours) instead of changes only.
    """

    first: int
    records: Integers
    moves: Integers
    moving: NDArray[np.bool_]
    stations: Integers
    shut: Integers
    polled: bool

    @property
    def last(self) -> int:
        """The last minute into which a record fell."""
        return self.first + len(self.records) - 1


def expected_events(
    counts: Integers, first: int, skip: NDArray[np.bool_] | None = None, fewest_days: int = 7
) -> tuple[NDArray[np.float64], Integers]:
    """Events expected before each minute, and minutes of which nothing is known: running totals.

    Parameters
    ----------
    counts : array
        Events per minute, from minute `first` on.
    first : int
        Minutes since 1970-01-01 UTC.
    skip : array of bool, optional
        Minutes in which nothing is expected.
    fewest_days : int
        Other days on which the hour must be known.

    Returns
    -------
    expected, unknown : array
        One longer than `counts`. Minutes whose hour is known of fewer days count for nothing in `expected`.
    """
    lead = first % 60
    hours = -(-(lead + len(counts)) // 60)
    padded = np.zeros(hours * 60)
    padded[lead : lead + len(counts)] = counts
    usual = _usual_hour(padded.reshape(hours, 60).sum(axis=1), first // 60, fewest_days)
    rate = np.repeat(usual / 60, 60)[lead : lead + len(counts)]
    if skip is not None:
        rate = np.where(skip, 0.0, rate)
    return _running(np.nan_to_num(rate)), _running(np.isnan(rate).astype(np.int64))


def _running(values: NDArray[Any]) -> NDArray[Any]:
    """Totals before each value, and behind the last."""
    totals = np.zeros(len(values) + 1, dtype=values.dtype)
    np.cumsum(values, out=totals[1:])
    return totals


def _usual_hour(per_hour: NDArray[np.float64], first_hour: int, fewest_days: int) -> NDArray[np.float64]:
    """Lower quartile of the same hour on the live days around; NaN where too few of them are known."""
    n = len(per_hour)
    day = (first_hour + np.arange(n)) // 24
    day -= day[0]
    live = np.bincount(day, weights=per_hour)[day] > 0
    # The first and the last hour are seldom whole, and say nothing of what is usual.
    whole = np.ones(n, dtype=bool)
    whole[[0, -1]] = False
    known = np.where(live & whole, per_hour, np.nan)
    wide = np.concatenate([np.full(24 * _DAYS_AROUND, np.nan), known, np.full(24 * _DAYS_AROUND, np.nan)])
    shifts = [24 * (_DAYS_AROUND + d) for d in range(-_DAYS_AROUND, _DAYS_AROUND + 1) if d]
    others = np.sort(np.stack([wide[s : s + n] for s in shifts], axis=1), axis=1)  # NaN goes last
    count = np.count_nonzero(~np.isnan(others), axis=1)
    return np.where(count >= fewest_days, others[np.arange(n), count // 4], np.nan)


def silent_stretches(feed: Feed) -> Integers:
    """Rows (begin, end) in which the feed as a whole is silent without a reason: its collector was down.

    A silence counts when it is longer than 30 minutes and than 99.9 % of the feed's own gaps (between minutes with a
    record); when more than `IMPROBABLE` records would have been expected in it, or more than `MISSED_POLLS` polls; and
    when it does not start with half of the stations or more out of service: a closed system has nothing to say.
    Silences less than 30 minutes apart are one: a record that carries the time of a change, not of the look, may fall
    into the outage that delayed it.
    """
    heard = np.flatnonzero(feed.records)
    begin, end = heard[:-1] + 1, heard[1:]
    gap = np.diff(heard)
    if len(gap) == 0:
        return np.empty((0, 2), dtype=np.int64)
    longest_usual = float(np.quantile(gap, _FEED_QUANTILE))
    silent = gap > max(SHORTEST_SILENCE, longest_usual)
    if feed.polled:
        silent &= gap > MISSED_POLLS * np.median(gap)
    else:
        expected, unknown = expected_events(feed.records, feed.first, fewest_days=1)
        total = expected[end] - expected[begin]
        total += (unknown[end] - unknown[begin]) * _rate_beside(feed.records, begin, end)
        silent &= total > IMPROBABLE
    silent &= 2 * feed.shut[heard[:-1]] < feed.stations[heard[:-1]]
    return feed.first + _join(np.column_stack([begin[silent], end[silent]]), SHORTEST_SILENCE)


def _rate_beside(counts: Integers, begin: Integers, end: Integers) -> NDArray[np.float64]:
    """Events per minute in the hour before `begin` or in that from `end` on, whichever is less."""
    total = _running(counts)
    before = total[begin] - total[np.maximum(begin - 60, 0)]
    after = total[np.minimum(end + 60, len(counts))] - total[end]
    return np.minimum(before, after) / 60


def _join(stretches: Integers, apart: int) -> Integers:
    """Join stretches, in their order, that are less than `apart` minutes apart."""
    if len(stretches) == 0:
        return stretches
    end = np.maximum.accumulate(stretches[:, 1])
    far = stretches[1:, 0] - end[:-1] >= apart
    return np.column_stack([stretches[np.r_[True, far], 0], end[np.r_[far, True]]])


def standstills(feed: Feed, silent: Integers) -> tuple[Integers, Integers]:
    """Rows (begin, end) in which nothing moves anywhere although it usually would.

    Only the minutes outside `silent` count towards what would have been expected.

    Returns
    -------
    closed : array
        The feed reports all the while: the system was closed.
    silent : array
        It hardly does (less than a tenth of the records expected): nobody knows. These and the given ones, joined.
    """
    skip = np.zeros(len(feed.records), dtype=bool)
    for begin, end in silent - feed.first:
        skip[begin:end] = True
    moving = np.flatnonzero(feed.moving)
    begin, end = moving[:-1] + 1, moving[1:]
    expected, _ = expected_events(feed.moves, feed.first, skip)
    idle = (np.diff(moving) > SHORTEST_SILENCE) & (expected[end] - expected[begin] > IMPROBABLE)
    begin, end = begin[idle], end[idle]
    heard, usual = _running(np.where(skip, 0, feed.records)), expected_events(feed.records, feed.first, skip)[0]
    alive = heard[end] - heard[begin] >= _ALIVE * (usual[end] - usual[begin])
    found = feed.first + np.column_stack([begin, end])
    more = np.concatenate([silent, found[~alive]])
    return found[alive], _join(more[np.argsort(more[:, 0], kind="stable")], 1)


def outside_coverage(minutes_with_trips: Integers, first: int, last: int) -> Integers:
    """Rows (begin, end) of `first ... last` that the trip files do not cover.

    They cover what lies between two trips, anywhere in the system, that are no more than a week apart.
    """
    covered = np.zeros(last - first + 1, dtype=bool)
    if len(minutes_with_trips):
        at = np.unique(minutes_with_trips)
        breaks = np.flatnonzero(np.diff(at) > LONGEST_TRIP_GAP)
        for begin, end in zip(at[np.r_[0, breaks + 1]], at[np.r_[breaks, len(at) - 1]], strict=True):
            covered[max(0, begin - first) : max(0, end - first + 1)] = True
    return first + runs(~covered)
