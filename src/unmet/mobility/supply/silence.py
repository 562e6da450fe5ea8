"""Silences of the whole feed, and standstills of the whole system.

Both are found from counts per minute. A change log is silent if nothing changes, so a quiet night is not an outage: a
silence is significant only if many events were expected in it. The expected number in an hour is the lower quartile of
the same hour on the days around it (14 before and 14 after, without days on which the feed was down). A quarter of the
days are quieter, so a Sunday morning is not compared with working days only. With one to three days it is the quietest.
Without any other day it is the number in the hour before the silence or in the hour after it, whichever is smaller. A
standstill requires at least seven days.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmet.mobility.clock.bins import DAY, Integers
from unmet.mobility.supply.cadence import HOUR, Cadence
from unmet.mobility.supply.polls import MISSED_POLLS, Polls

__all__ = [
    "Feed",
    "StationActivity",
    "expected_events",
    "far_apart",
    "join",
    "minutes_within",
    "repeat_daily",
    "silent_stretches",
    "standstills",
]

SHORTEST_SILENCE = 30
"""Minutes. Shorter silences are never an outage or a closure."""

IMPROBABLE = 60.0
"""Number of expected events from which a stretch without any is an outage or a closure. On a day with a fifth of the
usual traffic 12 would still be expected, and silence would have probability exp(-12). In two years of two real systems,
all stretches above it were outages of the collector or the system, closures for snow, curfews or a tropical storm.
Ordinary nights stay below 30; a blizzard reached 55."""

MISSED_RECORDS = 30.0
"""Records expected in a gap, by the quieter of the hours before and after it, from which on it is none of the feed's
own, if there is one at the same time of many days."""

_DAILY, _FEWEST_DAYS = 0.2, 3
"""Share and number of the days with a gap at the same time from which on it is one that repeats."""

_SHORTEST_SPAN = 7
"""Days from the first to the last of the gaps at the same time from which on it is one that repeats. Outages of one
fault, such as a job that fails at the same hour until somebody mends it, are often on some days in a row."""

LONGEST_LOOK = 15
"""Minutes between two looks up to which pickups can be inferred; between later ones, most cancel out with returns."""

_ALIVE = 0.1
"""Share of the expected records below which the feed is down. Feeds of closed systems kept at least 0.4 of it."""

_DAYS_AROUND = 14


@dataclass(frozen=True)
class Feed:
    """Activity of the whole feed per minute. Index 0 is minute `first`.

    Attributes
    ----------
    first : int
        Minutes since 1970-01-01 UTC.
    records, moves : array
        Status records that came into force in each minute, and those of them that show a move of a vehicle.
    moving : array of bool
        Whether a vehicle moved in each minute, according to status or trips.
    stations, shut : array
        Number of stations that reported so far, and of those whose last record is not open.
    cadence : Cadence
        How often somebody looks, and whether a look lists every station or only changes.
    polls : Polls, optional
        The polls themselves, if the collector kept them.
    """

    first: int
    records: Integers
    moves: Integers
    moving: NDArray[np.bool_]
    stations: Integers
    shut: Integers
    cadence: Cadence
    polls: Polls | None = None

    @property
    def last(self) -> int:
        """Last minute with a record or a poll."""
        return self.first + len(self.records) - 1


@dataclass(frozen=True)
class StationActivity:
    """Activity of each station, in the order of zones.

    Attributes
    ----------
    feed_share : array
        Usual records per record of all other stations.
    since, until : array
        Minutes of its first and its last record.
    rises, open_minutes : array
        Vehicles brought between two records, without large changes at once; minutes from a record of an open station to
        its next.
    within : tuple of int
        Stretch (begin, end) that trips cover too, or the whole feed.
    falls, open_within : array
        Vehicles taken between two records, without large changes at once, and minutes open, in that stretch.
    run_station, run_begin, run_end : array
        Stretches in which all records show an open station without a vehicle, sorted.
    cadence : float
        Usual minutes between two looks at the feed.
    """

    feed_share: NDArray[np.float64]
    since: Integers
    until: Integers
    rises: Integers
    open_minutes: Integers
    within: tuple[int, int]
    falls: Integers
    open_within: Integers
    run_station: Integers
    run_begin: Integers
    run_end: Integers
    cadence: float


def expected_events(
    counts: Integers, first: int, skip: NDArray[np.bool_] | None = None, fewest_days: int = 7
) -> tuple[NDArray[np.float64], Integers]:
    """Return running totals of the expected events and of the minutes without an expectation.

    Parameters
    ----------
    counts : array
        Events per minute, from minute `first` on.
    first : int
        Minutes since 1970-01-01 UTC.
    skip : array of bool, optional
        Minutes in which nothing is expected.
    fewest_days : int
        Number of other days that the expectation of an hour needs.

    Returns
    -------
    expected, unknown : array
        Totals before each minute, and after the last. Minutes of hours with fewer days add nothing to `expected`.
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
    """Return the totals before each value, and after the last."""
    totals = np.zeros(len(values) + 1, dtype=values.dtype)
    np.cumsum(values, out=totals[1:])
    return totals


def _usual_hour(per_hour: NDArray[np.float64], first_hour: int, fewest_days: int) -> NDArray[np.float64]:
    """Return the lower quartile of the same hour on the days around with any event. NaN if there are too few days."""
    n = len(per_hour)
    day = (first_hour + np.arange(n)) // 24
    day -= day[0]
    live = np.bincount(day, weights=per_hour)[day] > 0
    # The first and the last hour are rarely complete, so they are left out.
    whole = np.ones(n, dtype=bool)
    whole[[0, -1]] = False
    known = np.where(live & whole, per_hour, np.nan)
    wide = np.concatenate([np.full(24 * _DAYS_AROUND, np.nan), known, np.full(24 * _DAYS_AROUND, np.nan)])
    shifts = [24 * (_DAYS_AROUND + d) for d in range(-_DAYS_AROUND, _DAYS_AROUND + 1) if d]
    others = np.sort(np.stack([wide[s : s + n] for s in shifts], axis=1), axis=1)  # NaN goes last
    count = np.count_nonzero(~np.isnan(others), axis=1)
    return np.where(count >= fewest_days, others[np.arange(n), count // 4], np.nan)


def silent_stretches(feed: Feed) -> Integers:
    """Return the stretches (begin, end) in which the collector of the feed was down.

    A silence counts if all of these hold:

    - It is longer than 30 minutes, and than `MISSED_POLLS` usual intervals between two looks, before and after it.
    - More than `IMPROBABLE` records were expected in it, unless looks list every station.
    - At its start, less than half of the stations were closed: a closed system has no changes to report.

    Silences less than 30 minutes apart are joined. A record that has the time of the change, not of the poll, may fall
    into the outage that delayed it.

    If the polls are known, a silence is a gap in the polls, however short; and time with new documents is never one.
    """
    heard = feed.records > 0
    if feed.polls is not None:
        inside = (feed.polls.fresh >= feed.first) & (feed.polls.fresh <= feed.last)
        heard[feed.polls.fresh[inside] - feed.first] = True
        gaps = np.clip(feed.polls.gaps(), feed.first, feed.last + 1)
        unseen = np.concatenate([_unexplained(feed, np.flatnonzero(heard)), gaps[gaps[:, 0] < gaps[:, 1]]])
        return join(unseen[np.argsort(unseen[:, 0], kind="stable")], 1)
    return _unexplained(feed, np.flatnonzero(heard))


def _unexplained(feed: Feed, heard: Integers) -> Integers:
    """Return the stretches (begin, end) between minutes that were heard, by the rules of `silent_stretches`."""
    begin, end = heard[:-1] + 1, heard[1:]
    gap = np.diff(heard)
    if len(gap) == 0:
        return np.empty((0, 2), dtype=np.int64)
    usual = np.maximum(feed.cadence.at(heard[:-1]), feed.cadence.at(heard[1:]))
    silent = gap > np.maximum(SHORTEST_SILENCE, MISSED_POLLS * usual)
    if not silent.any():
        return np.empty((0, 2), dtype=np.int64)
    begin, end, heard = begin[silent], end[silent], heard[:-1][silent]
    expected, unknown = expected_events(feed.records, feed.first, fewest_days=1)
    total = expected[end] - expected[begin]
    total += (unknown[end] - unknown[begin]) * _rate_around(feed.records, begin, end)
    silent = (total > IMPROBABLE) | (feed.cadence.polled_at(heard) & feed.cadence.polled_at(end))
    silent &= 2 * feed.shut[heard] < feed.stations[heard]
    return feed.first + join(np.column_stack([begin[silent], end[silent]]), SHORTEST_SILENCE)


def far_apart(feed: Feed, within: Integers, bridged: bool = False) -> Integers:
    """Return the stretches (begin, end) in which looks are too far apart to infer pickups from them.

    They are regular, more than `LONGEST_LOOK` minutes apart, and three times as far apart as the feed's usual ones: a
    collector that slows down every evening. Or nothing is heard for so long at the same time of many days: before or
    after a look that lists every station, or though by the hours before and after `MISSED_RECORDS` records or more
    should have been. That is no outage, because usually nothing is heard then. A feed with few looks at all times has
    none; its summary says so.

    Parameters
    ----------
    feed : Feed
        The feed.
    within : array of shape (k, 2)
        Stretches (begin, end) in which pickups are inferred.
    bridged : bool
        Whether what could have happened between two looks is known. Regular looks are then never too far apart.
    """
    if feed.polls is not None:  # then a minute without a record is one in which nothing changed
        return np.empty((0, 2), dtype=np.int64)
    heard = np.flatnonzero(feed.records)
    hour, then = heard[:-1] // 60, heard[1:] // 60
    regular, minutes = feed.cadence.regular, feed.cadence.minutes
    known = bridged & (regular | feed.cadence.polled)
    usual = np.maximum(np.where(known, minutes, 0.0), feed.cadence.usual)
    longest = np.maximum(LONGEST_LOOK, MISSED_POLLS * usual)  # by hour
    slow = regular & (minutes > longest)
    begin, end = heard[:-1] + 1, heard[1:]
    missed = _rate_around(feed.records, begin, end) * (end - begin)
    gap = (end - begin >= LONGEST_LOOK) & (slow[hour] | slow[then])
    polled = feed.cadence.polled[hour] | feed.cadence.polled[then]
    long = end - begin >= np.maximum(longest[hour], longest[then])
    gap |= _daily(begin, end, long & (polled | (missed >= MISSED_RECORDS)), len(feed.records))
    # A look between two such stretches belongs to them: its minute is no exposure without its pickups.
    found = feed.first + join(np.column_stack([begin[gap], end[gap]]), 2)
    parts = [np.clip(found, begin, end) for begin, end in within]
    cut = np.concatenate([part[part[:, 0] < part[:, 1]] for part in parts]) if parts else found[:0]
    return cut[np.argsort(cut[:, 0], kind="stable")]


def repeat_daily(stretches: Integers, feed: Feed) -> NDArray[np.bool_]:
    """Return which stretches (begin, end) of a feed are gaps that repeat at the same time of many days, no outages.

    One of a day or more is at every time of the day, and does not repeat.
    """
    begin, end = (stretches - feed.first).T
    return _daily(begin, end, end - begin < DAY, len(feed.records))


def _daily(begin: Integers, end: Integers, chosen: NDArray[np.bool_], minutes: int) -> NDArray[np.bool_]:
    """Which of the chosen stretches have others at the same time of many days, over a week or the whole record.

    The same time is one up to an hour earlier or later: clocks are changed.
    """
    days = -(-minutes // DAY)
    change = np.zeros(days * DAY + 1, dtype=np.int64)
    np.add.at(change, np.maximum(begin[chosen] - HOUR, 0), 1)
    np.add.at(change, np.minimum(end[chosen] + HOUR, days * DAY), -1)
    inside = np.cumsum(change[:-1]).reshape(days, DAY) > 0
    span = days - inside.argmax(axis=0) - inside[::-1].argmax(axis=0)
    # A record that begins or ends at the time of the gap has one gap less.
    long = min(_SHORTEST_SPAN, minutes // DAY - 1)
    repeats = (inside.sum(axis=0) >= max(_DAILY * minutes / DAY, _FEWEST_DAYS)) & (span >= long)
    result: NDArray[np.bool_] = chosen & repeats[(begin + end) // 2 % DAY]
    return result


def _rate_around(counts: Integers, begin: Integers, end: Integers) -> NDArray[np.float64]:
    """Return the events per minute in the hour before `begin` or in the hour from `end` on, whichever is smaller."""
    total = _running(counts)
    before = total[begin] - total[np.maximum(begin - 60, 0)]
    after = total[np.minimum(end + 60, len(counts))] - total[end]
    return np.minimum(before, after) / 60


def join(stretches: Integers, apart: int) -> Integers:
    """Join sorted stretches that are less than `apart` minutes apart."""
    if len(stretches) == 0:
        return stretches
    end = np.maximum.accumulate(stretches[:, 1])
    far = stretches[1:, 0] - end[:-1] >= apart
    return np.column_stack([stretches[np.r_[True, far], 0], end[np.r_[far, True]]])


def minutes_within(stretches: Integers, until: Integers) -> Integers:
    """Return the minutes within sorted stretches (begin, end) before each of some minutes.

    Examples
    --------
    >>> minutes_within(np.array([[2, 5], [7, 9]]), np.array([1, 4, 6, 20]))
    array([0, 2, 3, 5])
    """
    begun = np.searchsorted(stretches[:, 0], until)
    total = np.concatenate([[0], np.cumsum(stretches[:, 1] - stretches[:, 0])])
    ends = np.concatenate([[0], stretches[:, 1]])
    result: Integers = total[begun] - np.where(begun > 0, np.maximum(ends[begun] - until, 0), 0)
    return result


def standstills(feed: Feed, silent: Integers) -> tuple[Integers, Integers]:
    """Find stretches (begin, end) in which no vehicle moves in the whole system although many moves were expected.

    Nothing is expected in the minutes of `silent`.

    Returns
    -------
    closed : array
        Stretches in which the feed reports: the system was closed.
    silent : array
        The given stretches, joined with those in which less than a tenth of the expected records came: the state of the
        system is unknown. If the polls are known, less than a tenth of them must have brought a new document too.
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
    if feed.polls is not None:
        alive |= feed.polls.fresh_share(*found.T) >= _ALIVE
    more = np.concatenate([silent, found[~alive]])
    return found[alive], join(more[np.argsort(more[:, 0], kind="stable")], 1)
