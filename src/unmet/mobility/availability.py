"""In which state every minute of every zone was, and why.

A minute's state is that of its first instant. Each minute has one *reason*, and each reason belongs to one state:

============== ============= ==========================================================================
state          reason        what is known
============== ============= ==========================================================================
``available``  vehicles      at least one station of the zone rents and has a vehicle
``stockout``   empty         the zone rents and none of its open stations has a vehicle
``closed``     not_renting   the last record of each station says so
``closed``     not_installed likewise
``closed``     dead          a docked station with neither a vehicle nor a free dock: riders who take the last
                             vehicle leave a dock behind them
``closed``     standstill    nothing moves in the whole system although it usually would, and the feed lives
``closed``     hours         outside the opening hours
``unknown``    feed_silent   the feed as a whole is silent improbably long
``unknown``    silent        the station is silent improbably long while the others report
``unknown``    undetermined  netted supply: trips alone do not tell whether a vehicle was left
``unknown``    no_record     no record yet, none any more, or a station that has been silent for a week
============== ============= ==========================================================================

In a zone of several stations the first reason of this order that holds for any of them is the zone's: vehicles,
undetermined, silent, empty, not_renting, dead, not_installed, no_record. So a zone is in stock-out only when all of
its open stations are and none could secretly have a vehicle, and a station that is not there does not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmet.mobility.clock import DAY, Minutes
from unmet.mobility.silence import SHORTEST_SILENCE, Feed
from unmet.mobility.statuslog import NOT_INSTALLED, NOT_RENTING, NOTHING_AT_ALL, OPEN, Block

__all__ = [
    "REASONS",
    "STATES",
    "Override",
    "Spells",
    "Tally",
    "combine_stations",
    "count_minutes",
    "own_reason",
    "silent_gaps",
    "status_spells",
]

STATES = ("available", "stockout", "closed", "unknown")

REASONS: dict[str, str] = {  # reason -> state, in the order in which a zone of several stations takes them
    "vehicles": "available",
    "undetermined": "unknown",
    "silent": "unknown",
    "empty": "stockout",
    "not_renting": "closed",
    "dead": "closed",
    "not_installed": "closed",
    "no_record": "unknown",
    "feed_silent": "unknown",
    "standstill": "closed",
    "hours": "closed",
}
_CODE = {reason: code for code, reason in enumerate(REASONS)}
VEHICLES, UNDETERMINED, SILENT, EMPTY = (_CODE[r] for r in ("vehicles", "undetermined", "silent", "empty"))
NO_RECORD, FEED_SILENT = _CODE["no_record"], _CODE["feed_silent"]
STANDSTILL, HOURS = _CODE["standstill"], _CODE["hours"]
_OWN = range(NO_RECORD)  # what a station says or does not say itself

IMPROBABLE_CHANGES, IMPROBABLE_POLLS = 30.0, 3.0
"""Records that a station would have sent, had it kept its usual share of the feed's, in a silence too long to believe.
In a change log stations are quiet by chance (99.9 % of real ones below 7 to 23 such records); a poll lists them all."""

GONE_AFTER = 7 * DAY
"""A station silent for longer is taken to be gone: it no longer decides over its zone."""


@dataclass(frozen=True)
class Spells:
    """Stretches of constant state, sorted by `owner` (a station or a zone) and time, without overlap.

    What is in none is ``no_record``. `supply` counts vehicles that can be rented.
    """

    owner: Minutes
    begin: Minutes
    end: Minutes
    reason: Minutes
    supply: NDArray[np.float64]


@dataclass(frozen=True)
class Override:
    """A stretch in which the whole system has a reason of its own: `FEED_SILENT`, `STANDSTILL` or `HOURS`."""

    begin: int
    end: int
    reason: int


@dataclass(frozen=True)
class Tally:
    """Minutes by reason and the mean supply, for each zone and each stretch between two edges.

    Attributes
    ----------
    minutes : array of int, shape (len(REASONS), zones, stretches)
        They sum to the length of the stretch over the reasons.
    vehicle_minutes : array, shape (zones, stretches)
        The integral of supply over the available minutes.
    """

    minutes: NDArray[np.int64]
    vehicle_minutes: NDArray[np.float64]

    def by_state(self, state: str) -> NDArray[np.int64]:
        """Minutes in a state, shape (zones, stretches)."""
        codes = [code for reason, code in _CODE.items() if REASONS[reason] == state]
        total: NDArray[np.int64] = self.minutes[codes].sum(axis=0)
        return total


def status_spells(
    block: Block, feed: Feed, share: NDArray[np.float64], has_docks: NDArray[np.bool_]
) -> Spells:
    """Read the stations' own states off their records.

    Parameters
    ----------
    block : Block
        Sorted records.
    feed : Feed
        Of all stations: silence of one is judged by what the others say meanwhile.
    share : array
        Each station's usual share of the feed's records.
    has_docks : array of bool
        Whether each station has docks.
    """
    minute = block.minute
    # Of several records that come into force at the same minute only the last is ever in force.
    last = np.ones(len(block), dtype=bool)
    last[:-1] = (block.station[1:] != block.station[:-1]) | (minute[1:] != minute[:-1])
    owner, begin, supply = block.station[last], minute[last], block.available[last]
    end = np.full(len(begin), feed.last + 1, dtype=np.int64)
    same = owner[1:] == owner[:-1]
    end[:-1][same] = begin[1:][same]
    reason = own_reason(block.says[last], supply, has_docks[owner])
    supply = np.where(reason == VEHICLES, supply, 0)
    return _cut_silence(Spells(owner, begin, end, reason, supply.astype(float)), feed, share)


def own_reason(says: Minutes, available: Minutes, has_docks: NDArray[np.bool_]) -> Minutes:
    """The reason that a record gives by itself."""
    table = np.empty(4, dtype=np.int64)
    table[[OPEN, NOT_RENTING, NOT_INSTALLED, NOTHING_AT_ALL]] = (
        VEHICLES,
        _CODE["not_renting"],
        _CODE["not_installed"],
        _CODE["dead"],
    )
    reason = table[says]
    reason[(says == NOTHING_AT_ALL) & ~has_docks] = EMPTY
    reason[(says == OPEN) & (available == 0)] = EMPTY
    return reason


def silent_gaps(
    station: Minutes, begin: Minutes, end: Minutes, feed: Feed, share: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Whether a station's silence after minute `begin` and before `end` is improbable while the others report."""
    heard = np.concatenate([[0], np.cumsum(feed.records)])
    long = np.flatnonzero(end - begin > SHORTEST_SILENCE)
    meanwhile = heard[end[long] - feed.first] - heard[begin[long] + 1 - feed.first]
    silent = np.zeros(len(begin), dtype=bool)
    most = IMPROBABLE_POLLS if feed.polled else IMPROBABLE_CHANGES
    silent[long] = meanwhile * share[station[long]] > most
    return silent


def _cut_silence(spells: Spells, feed: Feed, share: NDArray[np.float64]) -> Spells:
    """Turn improbably long silences of open stations into ``silent`` and, after a week, ``no_record``.

    A station that said that it is closed is believed until it says something else.
    """
    open_ = (spells.reason == VEHICLES) | (spells.reason == EMPTY)
    cut = np.flatnonzero(open_ & silent_gaps(spells.owner, spells.begin, spells.end, feed, share))
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
        np.insert(spells.supply, cut + 1, 0.0),
    )


def combine_stations(spells: Spells, zone: Minutes) -> Spells:
    """Join the spells of stations into spells of their zones; `zone` is that of each station.

    A sweep over the minutes at which any station of a zone changes, counting its stations by reason.
    """
    owner = np.concatenate([zone[spells.owner], zone[spells.owner]])
    minute = np.concatenate([spells.begin, spells.end])
    order = np.lexsort((minute, owner))
    owner, minute = owner[order], minute[order]
    last = np.ones(len(owner), dtype=bool)
    last[:-1] = (owner[1:] != owner[:-1]) | (minute[1:] != minute[:-1])

    def running(value: NDArray[np.generic]) -> NDArray[np.generic]:
        # What begins ends: the total is zero again behind the last event of each zone.
        total: NDArray[np.generic] = np.cumsum(np.concatenate([value, -value])[order])[last]  # type: ignore[operator]
        return total

    reason = np.full(int(last.sum()), NO_RECORD, dtype=np.int64)
    for code in reversed(_OWN):
        held = spells.reason == code
        if held.any():
            reason[running(held.astype(np.int64)) > 0] = code  # type: ignore[operator]
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


def count_minutes(spells: Spells, zones: Minutes, edges: Minutes, overrides: list[Override]) -> Tally:
    """Count minutes by reason between consecutive edges, for each of `zones` (owners of `spells`, ascending).

    The running totals of each reason at the edges are all that is needed: no spell is ever cut.
    """
    grid, of_stretch, override = _grid(edges, overrides)
    totals = np.zeros((len(REASONS), len(zones), len(edges) - 1), dtype=np.int64)
    length = spells.end - spells.begin
    begin, end = np.append(spells.begin, 0), np.append(spells.end, 0)  # so that there is an element -1
    first = np.searchsorted(spells.owner, zones)
    behind = np.searchsorted(spells.owner, zones, side="right")
    at = _spell_at(spells, zones, grid, first, behind)
    inside = at >= 0
    within = np.minimum(grid[None, :], end[at]) - begin[at]
    starts = np.flatnonzero(np.r_[True, np.diff(of_stretch) > 0])

    def between(weight: NDArray[Any]) -> NDArray[Any]:
        """Integrate a constant per spell from each point of the grid to the next."""
        total = np.concatenate([[0], np.cumsum(weight * length)])
        height = np.append(weight, 0)
        running = np.where(inside, total[at] + height[at] * within, total[first][:, None])
        return np.diff(running, axis=1)

    rest = np.broadcast_to(np.diff(grid), (len(zones), len(grid) - 1)).copy()
    for code in _OWN:
        held = spells.reason == code
        if not held.any():
            continue
        minutes = between(held.astype(np.int64))
        rest -= minutes
        _add(totals, minutes, code, override, starts)
    _add(totals, rest, NO_RECORD, override, starts)
    vehicle_minutes = between(spells.supply)
    vehicle_minutes[:, override >= 0] = 0.0
    return Tally(totals, np.add.reduceat(vehicle_minutes, starts, axis=1))


def _spell_at(spells: Spells, zones: Minutes, grid: Minutes, first: Minutes, behind: Minutes) -> Minutes:
    """Index of the spell that began last at or before each point of the grid; -1 where none of the zone did."""
    at = np.empty((len(zones), len(grid)), dtype=np.int64)
    for row, (low, high) in enumerate(zip(first, behind, strict=True)):
        found = np.searchsorted(spells.begin[low:high], grid, side="right") - 1
        at[row] = np.where(found >= 0, found + low, -1)
    return at


def _grid(edges: Minutes, overrides: list[Override]) -> tuple[Minutes, Minutes, Minutes]:
    """Add the overrides' ends to the edges; say of each piece its stretch and its override (-1 for none)."""
    ends = np.array([m for o in overrides for m in (o.begin, o.end)], dtype=np.int64)
    grid = np.unique(np.concatenate([edges, ends[(ends > edges[0]) & (ends < edges[-1])]]))
    override = np.full(len(grid) - 1, -1, dtype=np.int64)
    # Later ones win: opening hours are certain, an outage of the feed explains that nothing moved.
    for reason in (STANDSTILL, FEED_SILENT, HOURS):
        for o in overrides:
            if o.reason == reason:
                low, high = np.searchsorted(grid, [max(o.begin, grid[0]), min(o.end, grid[-1])])
                override[low:high] = reason
    return grid, np.searchsorted(edges, grid[:-1], side="right") - 1, override


def _add(totals: NDArray[np.int64], minutes: Minutes, code: int, override: Minutes, starts: Minutes) -> None:
    """Add minutes that a zone spent in `code`, but under the override's reason where that one goes before."""
    moved = np.zeros(len(override), dtype=bool)
    for reason in (STANDSTILL, FEED_SILENT, HOURS):
        if reason == HOURS or code in (VEHICLES, EMPTY, UNDETERMINED):
            here = override == reason
            if here.any():
                totals[reason] += np.add.reduceat(np.where(here, minutes, 0), starts, axis=1)
                moved |= here
    totals[code] += np.add.reduceat(np.where(moved, 0, minutes), starts, axis=1)
