"""How long each zone was in each state: spells of constant state, and minutes counted between edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmet.mobility.clock.bins import DAY, Integers
from unmet.mobility.supply.silence import MISSED_POLLS, SHORTEST_SILENCE, Feed
from unmet.mobility.supply.states import (
    EMPTY,
    FEED_SILENT,
    NO_RECORD,
    OUTSIDE_HOURS,
    REASONS,
    SILENT,
    STANDSTILL,
    UNDETERMINED,
    VEHICLES,
)
from unmet.mobility.supply.status_log import StatusRecords

__all__ = [
    "Override",
    "Spells",
    "Tally",
    "combine_stations",
    "count_minutes",
    "no_spells",
    "silent_gaps",
    "status_spells",
]

_OWN = range(NO_RECORD)  # what a station says or does not say itself

IMPROBABLE_CHANGES = 30.0
"""Records that a station would have sent, had it kept its usual share of the feed's, in a silence too long to believe:
real ones are quiet by chance, but 99.9 % of their silences stay below 7 to 23 such records."""

GONE_AFTER = 7 * DAY
"""A station silent for longer is taken to be gone: it no longer decides over its zone."""


@dataclass(frozen=True)
class Spells:
    """Stretches of constant state, sorted by `owner` (a station or a zone) and time, without overlap.

    What is in none is ``no_record``. `supply` counts vehicles that can be rented.
    """

    owner: Integers
    begin: Integers
    end: Integers
    reason: NDArray[Any]
    supply: NDArray[Any]


def no_spells() -> Spells:
    """Return spells of no one."""
    nothing = np.empty(0, dtype=np.int64)
    return Spells(nothing, nothing, nothing, nothing, np.empty(0))


@dataclass(frozen=True)
class Override:
    """A stretch in which the whole system has a reason of its own: `FEED_SILENT`, `STANDSTILL` or `OUTSIDE_HOURS`."""

    begin: int
    end: int
    reason: int


@dataclass(frozen=True)
class Tally:
    """Minutes by reason and the mean supply, for each zone and each stretch between two edges.

    Attributes
    ----------
    minutes : dict of int to array of shape (zones, stretches)
        By reason, of those that occur; they sum to the length of the stretch.
    vehicle_minutes : array, shape (zones, stretches)
        The integral of supply over the available minutes.
    """

    minutes: dict[int, Integers]
    vehicle_minutes: NDArray[np.float64]

    def by_state(self, state: str) -> Integers:
        """Minutes in a state, shape (zones, stretches)."""
        total = np.zeros(self.vehicle_minutes.shape, dtype=np.int64)
        for code, of in enumerate(REASONS.values()):
            if of == state and code in self.minutes:
                total += self.minutes[code]
        return total


def status_spells(block: StatusRecords, feed: Feed, feed_share: NDArray[np.float64]) -> Spells:
    """Read the stations' own states off their records.

    Parameters
    ----------
    block : StatusRecords
        Sorted records.
    feed : Feed
        Of all stations: silence of one is judged by what the others say meanwhile.
    feed_share : array
        Each station's usual share of the feed's records.
    """
    # Of several records that come into force at the same minute only the last is ever in force.
    last = np.ones(len(block), dtype=bool)
    last[:-1] = block.is_new[1:] | (block.minute[1:] != block.minute[:-1])
    owner, begin, reason = block.station[last], block.minute[last], block.reason[last]
    end = np.empty_like(begin)
    end[:-1] = begin[1:]
    end[np.append(owner[1:] != owner[:-1], True)] = feed.last + 1
    supply = np.where(reason == VEHICLES, block.available[last], 0)
    return _cut_silence(Spells(owner, begin, end, reason, supply), feed, feed_share)


def silent_gaps(
    station: Integers, begin: Integers, end: Integers, feed: Feed, feed_share: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Whether a station's silence after minute `begin` and before `end` is improbable while the others report."""
    silent = np.zeros(len(begin), dtype=bool)
    long = np.flatnonzero(end - begin > SHORTEST_SILENCE)
    if len(long):
        heard = np.concatenate([[0], np.cumsum(feed.records > 0 if feed.polled else feed.records)])
        meanwhile = heard[end[long] - feed.first] - heard[begin[long] + 1 - feed.first]
        if feed.polled:
            silent[long] = meanwhile > MISSED_POLLS
        else:
            silent[long] = meanwhile * feed_share[station[long]] > IMPROBABLE_CHANGES
    return silent


def _cut_silence(spells: Spells, feed: Feed, feed_share: NDArray[np.float64]) -> Spells:
    """Turn improbably long silences of open stations into ``silent`` and, after a week, ``no_record``.

    A station that said that it is closed is believed until it says something else.
    """
    open_ = (spells.reason == VEHICLES) | (spells.reason == EMPTY)
    cut = np.flatnonzero(open_ & silent_gaps(spells.owner, spells.begin, spells.end, feed, feed_share))
    if len(cut) == 0:
        return spells
    end = spells.end.copy()
    end[cut] = spells.begin[cut] + 1
    gone = np.minimum(end[cut] + GONE_AFTER, spells.end[cut])
    return Spells(
        np.insert(spells.owner, cut + 1, spells.owner[cut]),
        np.insert(spells.begin, cut + 1, end[cut]),
        np.insert(end, cut + 1, gone),
        np.insert(spells.reason, cut + 1, SILENT),
        np.insert(spells.supply, cut + 1, 0),
    )


def combine_stations(spells: Spells, zone: Integers) -> Spells:
    """Join the spells of stations into spells of their zones; `zone` is that of each station.

    A sweep over the minutes at which any station of a zone changes, counting its stations by reason.
    """
    owner = np.concatenate([zone[spells.owner], zone[spells.owner]])
    minute = np.concatenate([spells.begin, spells.end])
    order = np.lexsort((minute, owner))
    owner, minute = owner[order], minute[order]
    last = np.ones(len(owner), dtype=bool)
    last[:-1] = (owner[1:] != owner[:-1]) | (minute[1:] != minute[:-1])

    def running(value: NDArray[Any]) -> NDArray[Any]:
        # What begins ends: the total is zero again behind the last event of each zone.
        return np.cumsum(np.concatenate([value, -value])[order])[last]

    reason = np.full(int(last.sum()), NO_RECORD, dtype=np.int64)
    for code in reversed(_OWN):
        held = spells.reason == code
        if held.any():
            reason[running(held.astype(np.int64)) > 0] = code
    supply = running(spells.supply)
    owner, begin = owner[last], minute[last]
    end = np.empty_like(begin)
    end[:-1], end[-1:] = begin[1:], begin[-1:]
    keep = reason != NO_RECORD
    return Spells(
        owner[keep],
        begin[keep],
        end[keep],
        reason[keep],
        np.where(reason == VEHICLES, supply, 0.0)[keep],
    )


def count_minutes(spells: Spells, zones: Integers, edges: Integers, overrides: list[Override]) -> Tally:
    """Count minutes by reason between consecutive edges, for each of `zones` (owners of `spells`, ascending).

    The running totals of each reason at the edges are all that is needed: no spell is ever cut. Nearly all spells are
    of available vehicles, whose minutes are what the others leave.
    """
    grid, of_stretch, override = _grid(edges, overrides)
    starts = np.flatnonzero(np.r_[True, np.diff(of_stretch) > 0])
    totals: dict[int, Integers] = {}
    at, first = _last_begun(spells.owner, spells.begin, zones, grid)
    left = _between(spells.begin, spells.end, None, at, first, grid)
    _add(totals, np.diff(grid) - left, NO_RECORD, override, starts)
    vehicle_minutes = _between(spells.begin, spells.end, spells.supply, at, first, grid).astype(float)
    for code in _OWN:
        held = np.flatnonzero(spells.reason == code) if code != VEHICLES else np.empty(0, dtype=np.int64)
        if len(held):
            owner, begin, end = spells.owner[held], spells.begin[held], spells.end[held]
            minutes = _between(begin, end, None, *_last_begun(owner, begin, zones, grid), grid)
            left -= minutes
            _add(totals, minutes, code, override, starts)
    _add(totals, left, VEHICLES, override, starts)
    vehicle_minutes[:, override >= 0] = 0.0
    return Tally(totals, _by_stretch(vehicle_minutes, starts))


def _last_begun(owner: Integers, begin: Integers, zones: Integers, grid: Integers) -> tuple[Integers, Integers]:
    """For each zone and point of the grid, how many spells of all had begun; for each zone, how many before its own."""
    first = np.searchsorted(owner, zones)
    behind = np.searchsorted(owner, zones, side="right")
    at = np.empty((len(zones), len(grid)), dtype=np.int64)
    for row, (low, high) in enumerate(zip(first, behind, strict=True)):
        at[row] = low + np.searchsorted(begin[low:high], grid, side="right")
    return at, first


def _between(
    begin: Integers, end: Integers, height: NDArray[Any] | None, at: Integers, first: Integers, grid: Integers
) -> NDArray[Any]:
    """Integrate what is `height` (or one) in each spell and zero elsewhere, from each point of the grid to the next.

    The spell that began last may still go on at a point: what lies behind the point is taken off again.
    """
    area = end - begin if height is None else (end - begin) * height
    total = np.zeros(len(begin) + 1, dtype=np.result_type(area, np.int64))
    np.cumsum(area, out=total[1:])
    if len(begin) == 0:
        return np.zeros((len(at), len(grid) - 1), dtype=total.dtype)
    ahead = np.maximum(end[at - 1] - grid, 0) * (at > first[:, None])
    running = total[at] - (ahead if height is None else ahead * height[at - 1])
    difference: NDArray[Any] = np.diff(running, axis=1)
    return difference


def _grid(edges: Integers, overrides: list[Override]) -> tuple[Integers, Integers, Integers]:
    """Add the overrides' ends to the edges; say of each piece its stretch and its override (-1 for none)."""
    ends = np.array([m for o in overrides for m in (o.begin, o.end)], dtype=np.int64)
    grid = np.unique(np.concatenate([edges, ends[(ends > edges[0]) & (ends < edges[-1])]]))
    override = np.full(len(grid) - 1, -1, dtype=np.int64)
    # Later ones win: opening hours are certain, an outage of the feed explains that nothing moved.
    for reason in (STANDSTILL, FEED_SILENT, OUTSIDE_HOURS):
        for o in overrides:
            if o.reason == reason:
                low, high = np.searchsorted(grid, [max(o.begin, grid[0]), min(o.end, grid[-1])])
                override[low:high] = reason
    return grid, np.searchsorted(edges, grid[:-1], side="right") - 1, override


def _add(totals: dict[int, Integers], minutes: Integers, code: int, override: Integers, starts: Integers) -> None:
    """Add minutes that a zone spent in `code`, but under the override's reason where that one goes before."""
    moved = np.zeros(len(override), dtype=bool)
    for reason in (STANDSTILL, FEED_SILENT, OUTSIDE_HOURS):
        if reason == OUTSIDE_HOURS or code in (VEHICLES, EMPTY, UNDETERMINED):
            here = override == reason
            if here.any():
                totals[reason] = totals.get(reason, 0) + _by_stretch(np.where(here, minutes, 0), starts)
                moved |= here
    totals[code] = _by_stretch(np.where(moved, 0, minutes) if moved.any() else minutes, starts)


def _by_stretch(values: NDArray[Any], starts: Integers) -> NDArray[Any]:
    """Sum the pieces into which overrides cut the stretches."""
    if len(starts) == values.shape[1]:
        return values
    summed: NDArray[Any] = np.add.reduceat(values, starts, axis=1)
    return summed
