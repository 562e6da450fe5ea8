"""Time of each zone in each state: spells of constant state, and minutes between edges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmet.mobility.clock.bins import DAY, Integers
from unmet.mobility.supply.polls import MISSED_POLLS
from unmet.mobility.supply.silence import SHORTEST_SILENCE, Feed, StationActivity, minutes_within
from unmet.mobility.supply.states import (
    EMPTY,
    FAR_APART,
    FEED_SILENT,
    IMPLAUSIBLE,
    LEFT,
    NO_RECORD,
    NOT_INSTALLED,
    NOT_RENTING,
    NOT_REOPENED,
    OUTSIDE_HOURS,
    REASONS,
    SILENT,
    STANDSTILL,
    UNDETERMINED,
    UNUSED,
    VEHICLES,
)
from unmet.mobility.supply.status_log import StatusRecords

__all__ = [
    "OVERRIDES",
    "Override",
    "Spells",
    "Tally",
    "combine_stations",
    "count_minutes",
    "integrate",
    "no_spells",
    "plain_spells",
    "silent_gaps",
    "status_spells",
]

_STATION_REASONS = range(NO_RECORD)

IMPROBABLE_CHANGES = 30.0
"""Number of records expected of a station, by its usual share of the feed, from which its silence is improbable. Of the
silences of real stations, 99.9 % contain less than 7 to 23 expected records."""

GONE_AFTER = 7 * DAY
"""Minutes. A station that is silent for longer is gone, and no longer counts for its zone."""

BRIEF_CLOSURE = 360
"""Minutes. A station that was empty before a closure up to this long, and is empty after it, is open and out of stock.
Stations report for some minutes that they do not rent for many reasons."""


UNUSED_AFTER, UNUSED_RISES = 2 * DAY, 20.0
"""A station without a vehicle for longer (in minutes), to which more vehicles would usually have been brought by riders
in that time, is closed."""


@dataclass(frozen=True)
class Spells:
    """Stretches of constant state, sorted by `owner` (a station or a zone) and time, without overlap.

    Time outside all spells is ``no_record``. `supply` counts vehicles that can be rented. `early` are the seconds from
    the record to the full minute at which a station's spell begins, if that matters: trips in between come after it.
    """

    owner: Integers
    begin: Integers
    end: Integers
    reason: NDArray[Any]
    supply: NDArray[Any]
    early: NDArray[Any] | None = None

    def select(self, chosen: NDArray[np.bool_] | Integers) -> Spells:
        """Return the chosen spells."""
        early = None if self.early is None else self.early[chosen]
        owner, begin, end = self.owner[chosen], self.begin[chosen], self.end[chosen]
        return Spells(owner, begin, end, self.reason[chosen], self.supply[chosen], early)


def no_spells() -> Spells:
    """Return spells of no one."""
    nothing = np.empty(0, dtype=np.int64)
    return Spells(nothing, nothing, nothing, nothing, np.empty(0))


# Later ones replace earlier ones: opening hours are certain, and an outage of the feed explains a standstill.
OVERRIDES = (STANDSTILL, FAR_APART, FEED_SILENT, OUTSIDE_HOURS)


@dataclass(frozen=True)
class Override:
    """A stretch in which the whole system has one reason: one of `OVERRIDES`."""

    begin: int
    end: int
    reason: int


@dataclass(frozen=True)
class Tally:
    """Minutes by reason, and supply, of each zone between consecutive edges.

    Attributes
    ----------
    minutes : dict of int to array of shape (zones, stretches)
        Minutes by reason, for the reasons that occur. They sum to the length of the stretch.
    vehicle_minutes : array, shape (zones, stretches)
        Sum of the supply over the available minutes.
    """

    minutes: dict[int, Integers]
    vehicle_minutes: NDArray[np.float64]

    def by_state(self, state: str) -> Integers:
        """Return the minutes in a state, of shape (zones, stretches)."""
        total = np.zeros(self.vehicle_minutes.shape, dtype=np.int64)
        for code, of in enumerate(REASONS.values()):
            if of == state and code in self.minutes:
                total += self.minutes[code]
        return total


def status_spells(
    records: StatusRecords,
    feed: Feed,
    activity: StationActivity,
    silent: Integers,
    closures: Integers,
    implausible: Integers,
) -> Spells:
    """Make the spells of stations from their records.

    Parameters
    ----------
    records : StatusRecords
        Sorted records.
    feed : Feed
        Activity of all stations, by which the silence of one is judged.
    activity : StationActivity
        Activity of each station.
    silent, closures : array of shape (k, 2)
        Stretches (begin, end) in which the feed was silent, and in which the whole system was closed.
    implausible : array
        Stations that are not believed when they show no vehicle.
    """
    spells = _shown(records, feed)
    reason = np.where((spells.reason == EMPTY) & np.isin(spells.owner, implausible), IMPLAUSIBLE, spells.reason)
    reason = _mark_not_reopened(spells.owner, spells.begin, reason, closures)
    spells = _cut_silence(replace(spells, reason=reason), feed, activity.feed_share)
    return _mark_unused(spells, activity, silent)


def plain_spells(records: StatusRecords, feed: Feed, feed_share: NDArray[np.float64]) -> Spells:
    """Make the spells of stations from their records, believing all of them, as `status_spells` does not."""
    return _cut_silence(_shown(records, feed), feed, feed_share)


def _shown(records: StatusRecords, feed: Feed) -> Spells:
    """Make the spells that the records show, each until the next record."""
    # If several records come into force in the same minute, only the last one counts.
    last = np.ones(len(records), dtype=bool)
    last[:-1] = records.is_new[1:] | (records.minute[1:] != records.minute[:-1])
    owner, begin, reason = records.station[last], records.minute[last], records.reason[last]
    end = np.empty_like(begin)
    end[:-1] = begin[1:]
    end[np.append(owner[1:] != owner[:-1], True)] = feed.last + 1
    early = (60 * begin - records.second[last] - records.origin).astype(np.int8)
    return Spells(owner, begin, end, reason, np.where(reason == VEHICLES, records.available[last], 0), early)


def _mark_not_reopened(owner: Integers, begin: Integers, reason: NDArray[Any], closures: Integers) -> NDArray[Any]:
    """Change spells without a vehicle that follow a closure to ``not_reopened``, until a vehicle is there.

    The closure is one of the station, or one of the system in which the vehicles disappeared. A brief closure of a
    station that was empty before changes nothing.
    """
    row = np.arange(len(reason))
    is_first = np.append(True, owner[1:] != owner[:-1])
    empty = reason == EMPTY
    shut = (reason == NOT_RENTING) | (reason == NOT_INSTALLED)
    # The first spell of each run of empty ones, and of each run of closed ones.
    new_empty = empty & (is_first | ~np.append(False, empty[:-1]))
    new_shut = shut & (is_first | ~np.append(False, shut[:-1]))
    start = np.maximum.accumulate(np.where(new_empty, row, 0))
    runs = np.flatnonzero(new_empty)
    before = np.maximum(runs - 1, 0)
    after_closure = shut[before] & ~is_first[runs]
    closed_at = np.maximum.accumulate(np.where(new_shut, row, 0))[before]
    was_empty = empty[np.maximum(closed_at - 1, 0)] & ~is_first[closed_at]
    brief = begin[runs] - begin[closed_at] <= BRIEF_CLOSURE
    begun = np.searchsorted(closures[:, 0], begin[runs], "right")
    within = (begun > np.searchsorted(closures[:, 1], begin[runs], "right")) & ~is_first[runs]
    marked = np.zeros(len(reason), dtype=bool)
    marked[runs] = (after_closure & ~(was_empty & brief)) | within
    return np.where(empty & marked[start], NOT_REOPENED, reason)


def _mark_unused(spells: Spells, activity: StationActivity, silent: Integers) -> Spells:
    """Change long runs of empty spells in which many vehicles would have been brought to ``unused``.

    Nobody saw whether any was brought while the feed was silent, so that time does not count.
    """
    empty = spells.reason == EMPTY
    new = empty & ~np.append(False, empty[:-1] & (spells.owner[1:] == spells.owner[:-1]))
    runs = np.flatnonzero(new)
    number = np.cumsum(new) - 1
    heard = spells.end - minutes_within(silent, spells.end) - spells.begin + minutes_within(silent, spells.begin)
    length = np.bincount(number[empty], heard[empty], len(runs))
    long = length > UNUSED_AFTER
    if not long.any():
        return spells
    of_station = spells.owner[runs]
    idle = np.bincount(of_station[long], length[long], len(activity.rises))
    rate = activity.rises / np.maximum(activity.open_minutes - idle, DAY)
    long &= length * rate[of_station] > UNUSED_RISES
    return replace(spells, reason=np.where(empty & long[np.maximum(number, 0)], UNUSED, spells.reason))


def silent_gaps(
    station: Integers, begin: Integers, end: Integers, feed: Feed, feed_share: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Return which silences of stations, after minute `begin` and before `end`, are improbable while others report."""
    silent = np.zeros(len(begin), dtype=bool)
    long = np.flatnonzero(end - begin > SHORTEST_SILENCE)
    if len(long):
        heard = np.concatenate([[0], np.cumsum(feed.records)])
        meanwhile = heard[end[long] - feed.first] - heard[begin[long] + 1 - feed.first]
        at = begin[long] - feed.first
        polls = meanwhile / np.maximum(feed.stations[at] - 1, 1)
        missed = polls > MISSED_POLLS + 0.5  # some polls leave others out too
        unlikely = meanwhile * feed_share[station[long]] > IMPROBABLE_CHANGES
        silent[long] = np.where(feed.cadence.polled_at(at), missed, unlikely)
    return silent


def _cut_silence(spells: Spells, feed: Feed, feed_share: NDArray[np.float64]) -> Spells:
    """Change improbable silences of open stations to ``silent`` and, after a week, to ``no_record``.

    A station that reported that it is closed stays closed until its next record. One that is silent for more than a
    week, until the end of the feed, left it.
    """
    open_ = (spells.reason == VEHICLES) | (spells.reason == EMPTY)
    cut = np.flatnonzero(open_ & silent_gaps(spells.owner, spells.begin, spells.end, feed, feed_share))
    if len(cut) == 0:
        return spells
    end = spells.end.copy()
    end[cut] = spells.begin[cut] + 1
    left = (spells.end[cut] > feed.last) & (spells.end[cut] - end[cut] > GONE_AFTER)
    gone = np.where(left, spells.end[cut], np.minimum(end[cut] + GONE_AFTER, spells.end[cut]))
    return Spells(
        np.insert(spells.owner, cut + 1, spells.owner[cut]),
        np.insert(spells.begin, cut + 1, end[cut]),
        np.insert(end, cut + 1, gone),
        np.insert(spells.reason, cut + 1, np.where(left, LEFT, SILENT)),
        np.insert(spells.supply, cut + 1, 0),
        None if spells.early is None else np.insert(spells.early, cut + 1, 0),
    )


def combine_stations(spells: Spells, zone: Integers) -> Spells:
    """Combine the spells of stations to spells of their zones. `zone` is the zone of each station.

    The function sweeps over the minutes at which any station of a zone changes, and counts its stations by reason.
    """
    owner = np.concatenate([zone[spells.owner], zone[spells.owner]])
    minute = np.concatenate([spells.begin, spells.end])
    order = np.lexsort((minute, owner))
    owner, minute = owner[order], minute[order]
    last = np.ones(len(owner), dtype=bool)
    last[:-1] = (owner[1:] != owner[:-1]) | (minute[1:] != minute[:-1])

    def running(value: NDArray[Any]) -> NDArray[Any]:
        # Every spell that begins ends, so the total is zero after the last event of each zone.
        return np.cumsum(np.concatenate([value, -value])[order])[last]

    reason = np.full(int(last.sum()), NO_RECORD, dtype=np.int64)
    for code in reversed(_STATION_REASONS):
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

    Running totals of each reason at the edges are enough; no spell is cut. Nearly all spells have available vehicles,
    so their minutes are the total less the other reasons.
    """
    grid, of_stretch, override = _grid(edges, overrides)
    starts = np.flatnonzero(np.r_[True, np.diff(of_stretch) > 0])
    totals: dict[int, Integers] = {}
    at, first = _last_begun(spells.owner, spells.begin, zones, grid)
    left = _between(spells.begin, spells.end, None, at, first, grid)
    _add(totals, np.diff(grid) - left, NO_RECORD, override, starts)
    vehicle_minutes = _between(spells.begin, spells.end, spells.supply, at, first, grid).astype(float)
    for code in _STATION_REASONS:
        held = np.flatnonzero(spells.reason == code) if code != VEHICLES else np.empty(0, dtype=np.int64)
        if len(held):
            owner, begin, end = spells.owner[held], spells.begin[held], spells.end[held]
            minutes = _between(begin, end, None, *_last_begun(owner, begin, zones, grid), grid)
            left -= minutes
            _add(totals, minutes, code, override, starts)
    _add(totals, left, VEHICLES, override, starts)
    vehicle_minutes[:, override >= 0] = 0.0
    return Tally(totals, _by_stretch(vehicle_minutes, starts))


def integrate(
    owner: Integers,
    begin: Integers,
    end: Integers,
    height: NDArray[np.float64],
    zones: Integers,
    edges: Integers,
    overrides: list[Override],
) -> NDArray[np.float64]:
    """Integrate a height over stretches between consecutive edges, for each of `zones`; zero under an override.

    The stretches are sorted by owner (a zone) and time and do not overlap.
    """
    grid, of_stretch, override = _grid(edges, overrides)
    area = _between(begin, end, height, *_last_begun(owner, begin, zones, grid), grid).astype(float)
    area[:, override >= 0] = 0.0
    total: NDArray[np.float64] = _by_stretch(area, np.flatnonzero(np.r_[True, np.diff(of_stretch) > 0]))
    return total


def _last_begun(owner: Integers, begin: Integers, zones: Integers, grid: Integers) -> tuple[Integers, Integers]:
    """Count the spells that began before each point of the grid, for each zone, and those before the zone's first."""
    first = np.searchsorted(owner, zones)
    behind = np.searchsorted(owner, zones, side="right")
    at = np.empty((len(zones), len(grid)), dtype=np.int64)
    for row, (low, high) in enumerate(zip(first, behind, strict=True)):
        at[row] = low + np.searchsorted(begin[low:high], grid, side="right")
    return at, first


def _between(
    begin: Integers, end: Integers, height: NDArray[Any] | None, at: Integers, first: Integers, grid: Integers
) -> NDArray[Any]:
    """Integrate a function that is `height` (or one) in each spell, and zero elsewhere, between points of the grid.

    The last spell that began before a point may not have ended there: its time after the point is subtracted.
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
    """Add the ends of the overrides to the edges. Return the stretch and the override (-1 for none) of each piece."""
    ends = np.array([m for o in overrides for m in (o.begin, o.end)], dtype=np.int64)
    grid = np.unique(np.concatenate([edges, ends[(ends > edges[0]) & (ends < edges[-1])]]))
    override = np.full(len(grid) - 1, -1, dtype=np.int64)
    for reason in OVERRIDES:
        for o in overrides:
            if o.reason == reason:
                low, high = np.searchsorted(grid, [max(o.begin, grid[0]), min(o.end, grid[-1])])
                override[low:high] = reason
    return grid, np.searchsorted(edges, grid[:-1], side="right") - 1, override


def _add(totals: dict[int, Integers], minutes: Integers, code: int, override: Integers, starts: Integers) -> None:
    """Add the minutes of a reason, or add them to the override's reason if that takes precedence."""
    moved = np.zeros(len(override), dtype=bool)
    for reason in OVERRIDES:
        if reason == OUTSIDE_HOURS or code in (VEHICLES, EMPTY, UNDETERMINED):
            here = override == reason
            if here.any():
                totals[reason] = totals.get(reason, 0) + _by_stretch(np.where(here, minutes, 0), starts)
                moved |= here
    totals[code] = _by_stretch(np.where(moved, 0, minutes) if moved.any() else minutes, starts)


def _by_stretch(values: NDArray[Any], starts: Integers) -> NDArray[Any]:
    """Sum the pieces of each stretch."""
    if len(starts) == values.shape[1]:
        return values
    summed: NDArray[Any] = np.add.reduceat(values, starts, axis=1)
    return summed
