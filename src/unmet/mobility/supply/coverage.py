"""Time that the trip files do not cover."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unmet.mobility.clock.bins import DAY, Bins, Integers, runs
from unmet.mobility.supply.silence import IMPROBABLE, Feed, expected_events, minutes_within

__all__ = ["covered_bins", "missing_trips", "outside_coverage"]

LONGEST_TRIP_GAP = 7 * DAY
"""Minutes. If no trip starts in the whole system for longer, the trip files do not cover the time."""

_NOTABLE = 0.1  # share of the moves of a bin


def covered_bins(bins: Bins, holes: Integers, feed: Feed | None = None) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which bins the trip files cover, and which they cover in part and not enough.

    A bin is covered if it has a minute outside every hole. With a feed, that is not enough if the feed shows 60 moves
    (`IMPROBABLE`) and a tenth of those of the bin within holes: trips of the rest would be taken for those of all.

    Parameters
    ----------
    bins : Bins
        The bins.
    holes : array, shape (n, 2)
        Stretches (begin, end) that the trip files do not cover, which do not overlap.
    feed : Feed, optional
        Moves that the status shows.
    """
    lost = minutes_within(holes, bins.edges)
    covered = np.diff(lost) < bins.minutes
    if feed is None:
        return covered, np.zeros_like(covered)
    inside = np.diff(minutes_within(holes - feed.first, np.arange(len(feed.moves) + 1)))
    at = np.clip(bins.edges - feed.first, 0, len(feed.moves))
    hidden, moves = (np.diff(np.append(0, np.cumsum(some))[at]) for some in (feed.moves * inside, feed.moves))
    partly = covered & (hidden >= IMPROBABLE) & (hidden > _NOTABLE * moves)
    return covered & ~partly, partly


def outside_coverage(minutes_with_trips: Integers, first: int, last: int) -> Integers:
    """Return the stretches (begin, end) of `first ... last` that the trip files do not cover.

    They cover the time between two trips of the system that are at most a week apart.
    """
    covered = np.zeros(last - first + 1, dtype=bool)
    if len(minutes_with_trips):
        at = np.unique(minutes_with_trips)
        breaks = np.flatnonzero(np.diff(at) > LONGEST_TRIP_GAP)
        for begin, end in zip(at[np.r_[0, breaks + 1]], at[np.r_[breaks, len(at) - 1]], strict=True):
            covered[max(0, begin - first) : max(0, end - first + 1)] = True
    return first + runs(~covered)


def missing_trips(minutes_with_trips: Integers, feed: Feed, silent: Integers) -> Integers:
    """Return the stretches (begin, end) without a trip that the status does not explain: a file seems to be missing.

    More than `IMPROBABLE` minutes with a trip were expected. Where the status is heard, it shows at least half of the
    usual moves; in a system that is closed it shows few. Or it is silent for half of the stretch, and says nothing.
    """
    at = minutes_with_trips[(minutes_with_trips >= feed.first) & (minutes_with_trips <= feed.last)] - feed.first
    begin, end = at[:-1] + 1, at[1:]
    minutes = len(feed.records)
    trips, _ = expected_events(np.bincount(at, minlength=minutes), feed.first, fewest_days=1)
    unheard = minutes_within(silent - feed.first, np.arange(minutes + 1))
    usual, _ = expected_events(feed.moves, feed.first, np.diff(unheard) > 0, fewest_days=1)
    shown = np.concatenate([[0], np.cumsum(feed.moves)])
    moves = shown[end] - shown[begin]
    unknown = 2 * (unheard[end] - unheard[begin]) >= end - begin
    open_ = (2 * moves >= usual[end] - usual[begin]) & ((2 * moves >= IMPROBABLE) | unknown)
    missing = open_ & (trips[end] - trips[begin] > IMPROBABLE)
    return feed.first + np.column_stack([begin[missing], end[missing]])
