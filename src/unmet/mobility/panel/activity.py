"""Activity of a whole system per minute, from its feed and its trips, and when it pauses.

`watch_status` and `watch_trips` measure the activity per minute. `find_pauses` finds from it when the whole system is
silent, stands still, is looked at too rarely or is outside its opening hours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from unmet.mobility.clock.bins import Integers
from unmet.mobility.panel.groups import ZoneGroups
from unmet.mobility.panel.options import PanelOptions
from unmet.mobility.panel.trip_counts import TripCounts
from unmet.mobility.panel.usable import bridges_looks
from unmet.mobility.records.opening import read_opening_hours
from unmet.mobility.supply.coverage import missing_trips, outside_coverage
from unmet.mobility.supply.feed_activity import FeedCounts, feed_of_trips, watch_feed
from unmet.mobility.supply.polls import Polls
from unmet.mobility.supply.silence import (
    Feed,
    StationActivity,
    far_apart,
    join,
    repeat_daily,
    silent_stretches,
    standstills,
)
from unmet.mobility.supply.spells import Override
from unmet.mobility.supply.states import FAR_APART, FEED_SILENT, OUTSIDE_HOURS, STANDSTILL
from unmet.mobility.supply.status_log import StatusLog

__all__ = ["NO_STRETCHES", "Activity", "Pauses", "find_pauses", "watch_status", "watch_trips"]

NO_STRETCHES = np.empty((0, 2), dtype=np.int64)
"""No stretches (begin, end)."""


@dataclass(frozen=True)
class Activity:
    """Activity of a system per minute.

    Attributes
    ----------
    feed : Feed
        Activity of the whole feed, or of the trips.
    holes : array
        Stretches (begin, end) of the period that the trips do not cover.
    has_trips : bool
        Whether there are trips.
    stations : StationActivity, optional
        Activity of each station, by its status. None without status.
    silent : array
        Stretches (begin, end) in which the feed is silent.
    missing : array
        Stretches (begin, end) without trips that the status does not explain. They are in `holes`.
    """

    feed: Feed
    holes: Integers
    has_trips: bool
    stations: StationActivity | None = None
    silent: Integers = field(default_factory=lambda: NO_STRETCHES)
    missing: Integers = field(default_factory=lambda: NO_STRETCHES)


@dataclass(frozen=True)
class Pauses:
    """When a whole system says nothing or is closed.

    Attributes
    ----------
    overrides : list of Override
        All of them, with their reasons.
    silent : array
        Stretches (begin, end) in which the feed is silent, or looked at too rarely to infer pickups.
    closures : array
        Stretches (begin, end) in which the whole system stands still.
    """

    overrides: list[Override]
    silent: Integers
    closures: Integers


def watch_status(
    log: StatusLog,
    polls: Polls | None,
    trips: TripCounts | None,
    period: tuple[int, int],
    rebalancing: int,
    groups: ZoneGroups,
) -> Activity:
    """Measure the activity of the feed, and find the trips that are missing in it.

    Parameters
    ----------
    log : StatusLog
        Sorted status.
    polls : Polls, optional
        The polls, if the records contain them.
    trips : TripCounts, optional
        Trips beside the status.
    period : tuple of int
        First minute of the panel, and the one behind its last.
    rebalancing : int
        A change of so many vehicles at once is rebalancing.
    groups : ZoneGroups
        Groups of zones to work on.
    """
    nothing = np.empty(0, dtype=np.int64)
    starts, moves = (nothing, nothing) if trips is None else (trips.starts, trips.moves)
    both = (max(period[0], int(starts[0])), min(period[1], int(starts[-1]) + 1)) if len(starts) else None
    feed, stations = watch_feed(log, moves, rebalancing, both, partial(_over_parts, log, groups))
    feed = replace(feed, polls=polls)
    silent, missing = silent_stretches(feed), NO_STRETCHES
    holes = _holes(starts, period)
    if trips is not None:
        missing = missing_trips(starts, feed, silent)
        holes = _either(holes, missing)
    return Activity(feed, holes, trips is not None, stations, silent, missing)


def watch_trips(trips: TripCounts, period: tuple[int, int]) -> Activity:
    """Measure the activity of a system without status: only its moves are known.

    Parameters
    ----------
    trips : TripCounts
        The trips.
    period : tuple of int
        First minute of the panel, and the one behind its last.
    """
    return Activity(feed_of_trips(trips.starts), _holes(trips.starts, period), has_trips=True)


def find_pauses(activity: Activity, options: PanelOptions, period: tuple[int, int], timezone: str) -> Pauses:
    """Find when the whole system is silent, stands still, is looked at too rarely or is outside its opening hours.

    Parameters
    ----------
    activity : Activity
        Activity of the feed, or of the trips.
    options : PanelOptions
        Opening hours, and whether supply is learnt.
    period : tuple of int
        First minute of the panel, and the one behind its last.
    timezone : str
        Time zone of the opening hours.
    """
    feed = activity.feed
    still, silent = standstills(feed, activity.silent)
    reason = np.where(repeat_daily(silent, feed), FAR_APART, FEED_SILENT)  # a gap that repeats is no outage
    overrides = [Override(b, e, r) for (b, e), r in zip(silent.tolist(), reason.tolist(), strict=True)]
    overrides += _overrides(still, STANDSTILL)
    if activity.stations is not None:
        bridged = options.supply == "usable" and bridges_looks(feed, activity.has_trips)
        apart = far_apart(feed, activity.holes, bridged)
        overrides += _overrides(apart, FAR_APART)
        silent = _either(silent, apart)
    if options.hours is not None:
        shut = read_opening_hours(options.hours).closed(period[0], period[1] - 1, timezone)
        overrides += _overrides(shut, OUTSIDE_HOURS)
    return Pauses(overrides, silent, still)


def _overrides(stretches: Integers, reason: int) -> list[Override]:
    return [Override(begin, end, reason) for begin, end in stretches.tolist()]


def _holes(starts: Integers, period: tuple[int, int]) -> Integers:
    """Return the stretches of the period that trips do not cover: without trips, all of it."""
    return outside_coverage(starts, period[0], period[1] - 1)


def _either(some: Integers, others: Integers) -> Integers:
    """Join the stretches of both."""
    both = np.concatenate([some, others])
    return join(both[np.argsort(both[:, 0], kind="stable")], 1)


def _over_parts(log: StatusLog, groups: ZoneGroups, count: Callable[[StatusLog], FeedCounts]) -> Sequence[FeedCounts]:
    """Count the records of each group, in the order of the groups; or all in this process.

    Counts per minute are large: with fewer records than minutes, counting is faster than sending the counts.
    """
    if len(groups) == 1 or log.records.sum() < len(groups) * (log.last_minute - log.first_minute):
        return [count(log)]
    found = dict(groups.each(count, lambda number: log.cut(*groups.stations_of(number))))
    return [found[number] for number in range(len(groups))]
