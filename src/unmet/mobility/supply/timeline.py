"""Records of stations, cut into the steps of the model of usable supply.

A *timeline* has one row for every stretch of a station in which nothing changes. Polls that repeat each other are one
stretch. `to_steps` cuts and joins stretches so that no step is longer than `LONGEST_STEP`: short of vehicles a long
stretch is cut; with more listed than may be broken, all that happens within one step is one event, because it says
nothing about broken vehicles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from unmet.mobility.clock.bins import Integers
from unmet.mobility.supply.broken import MOST_BROKEN, Steps
from unmet.mobility.supply.pickups import find_changes, known_changes
from unmet.mobility.supply.silence import Feed
from unmet.mobility.supply.spells import Spells
from unmet.mobility.supply.states import EMPTY, VEHICLES
from unmet.mobility.supply.status_log import StatusRecords

__all__ = [
    "AMPLE",
    "EARLIEST",
    "LONGEST_STEP",
    "UNKNOWN",
    "CutSteps",
    "Events",
    "Timeline",
    "find_timeline",
    "status_events",
    "to_steps",
]

UNKNOWN = -1
"""Listed number where a station is closed, silent or has no record."""

AMPLE = MOST_BROKEN + 2
"""With so many listed, one can be rented whatever is broken."""

LONGEST_STEP = 120
"""Integers. Breakages of a step come at its end, after its repairs: at one repair a day that shifts one in 25."""

UNEXPLAINED = 3
"""Vehicles that came or went at once beyond what the trips explain, from which on a van was there. One or two are trips
that the feed shows a little earlier or later."""

EARLIEST = 59
"""Most seconds from a record to the full minute from which on it is in force."""

_PLENTY = 99  # stands for any number of vehicles that leaves one to rent
_STATION = 1 << 32


@dataclass(frozen=True)
class Timeline:
    """Stretches in which nothing changes at a station, in order of station and time.

    Attributes
    ----------
    station, begin, end : array of int
        Whose, its first minute, and the one behind its last.
    listed : array of int
        Vehicles listed meanwhile, or `UNKNOWN`. Between two records of the feed it follows the trips, if known.
    shown : array of bool
        Whether the feed shows a vehicle meanwhile.
    pickups, returned, disabled : array of int
        Vehicles taken, brought back and turned from listed to disabled at its end.
    visited : array of bool
        Whether a van brought or took vehicles at its end.
    """

    station: Integers
    begin: Integers
    end: Integers
    listed: Integers
    shown: NDArray[np.bool_]
    pickups: Integers
    returned: Integers
    disabled: Integers
    visited: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.station)

    def select(self, chosen: NDArray[np.bool_] | Integers | slice) -> Timeline:
        """Keep some of the stretches."""
        return Timeline(*(getattr(self, f.name)[chosen] for f in fields(self)))


@dataclass(frozen=True)
class Events:
    """Vehicles that moved at stations, in any order.

    Attributes
    ----------
    station, moment : array of int
        Where, and the second behind it. A trip cuts a stretch there, and counts from the next full minute on.
    pickups, returned, disabled : array of int
        Vehicles taken, brought back, and turned from listed to disabled.
    visited : array of bool
        Whether a van came.
    """

    station: Integers
    moment: Integers
    pickups: Integers
    returned: Integers
    disabled: Integers
    visited: NDArray[np.bool_]

    def select(self, chosen: NDArray[np.bool_]) -> Events:
        """Keep some of the events."""
        return Events(*(getattr(self, f.name)[chosen] for f in fields(self)))

    def __add__(self, other: Events) -> Events:
        return Events(*(np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self)))


def status_events(
    block: StatusRecords,
    feed: Feed,
    share: NDArray[np.float64],
    silent: Integers,
    rebalancing: int,
    covered: Callable[[Integers], NDArray[np.bool_]],
    ridden: Callable[[Integers, Integers, Integers], Integers],
) -> Events:
    """Find what the records of some stations show: pickups, returns, vans, vehicles that were disabled.

    Parameters
    ----------
    block : StatusRecords
        Sorted records.
    feed, share, silent
        The feed as a whole, each station's share of it, and the stretches in which it is silent.
    rebalancing : int
        Vehicles at once that a van moves.
    covered : callable
        Whether trips are known for some minutes: then pickups and returns are theirs, not those of the status, and
        vans are what the trips do not explain.
    ridden : callable
        Returns less pickups of stations, by their trips, after one minute and up to another.
    """
    others = _vans_and_disabled(block, covered, ridden)
    if covered(block.minute).all():
        return others
    found = find_changes(block, feed)
    changes = found.select(known_changes(found.station, found.before, found.after, feed, share, silent))
    changes = changes.select(~covered(changes.minute))
    van = (changes.fall >= rebalancing) | (changes.rise >= rebalancing)
    nothing = np.zeros(len(van), dtype=np.int64)
    moved = Events(
        changes.station,
        60 * changes.after,
        np.where(van, 0, changes.fall),
        np.where(van, 0, changes.rise),
        nothing,
        van,
    )
    return moved + others


def _vans_and_disabled(
    block: StatusRecords,
    covered: Callable[[Integers], NDArray[np.bool_]],
    ridden: Callable[[Integers, Integers, Integers], Integers],
) -> Events:
    """Find the vehicles that turned disabled and, where trips are known, the vans.

    Trips and vans change the sum of listed and disabled vehicles. Repairs and finds do not. Where a van brings vehicles
    while others turn disabled, the listed number may rise.
    """
    in_use = ~block.is_new[1:] & block.is_open[1:] & block.is_open[:-1]
    found, gained = np.diff(block.disabled), np.diff(block.available)
    many = np.flatnonzero(in_use & (np.abs(found + gained) >= UNEXPLAINED))
    station, before, after = block.station[many], block.minute[many], block.minute[many + 1]
    left = (found + gained)[many] - ridden(station, before, after)
    van = np.zeros(len(in_use), dtype=bool)
    van[many[(np.abs(left) >= UNEXPLAINED) & covered(before) & covered(after)]] = True
    turned = np.maximum(np.where(van, found, np.minimum(found, -gained)), 0)
    row = np.flatnonzero(in_use & (van | (turned > 0)))
    none = np.zeros(len(row), dtype=np.int64)
    return Events(
        block.station[row + 1], 60 * block.minute[row + 1], none, none, turned[row].astype(np.int64), van[row]
    )


def _begins(spells: Spells) -> Integers:
    """Station and second at which each spell begins."""
    early = 0 if spells.early is None else spells.early
    begins: Integers = spells.owner * _STATION + (60 * spells.begin - early)
    return begins


def find_timeline(spells: Spells, events: Events) -> Timeline:
    """Cut the spells of stations at the events, and join spells between which nothing happens.

    Events are in the order of their seconds. A vehicle that comes and goes within a minute has a stretch of no minutes:
    somebody could rent it, which is evidence.

    Parameters
    ----------
    spells : Spells
        The stations' own states, as `unmet.mobility.supply.spells.status_spells` finds them.
    events : Events
        Of the same stations.
    """
    if len(spells.owner) == 0:
        none, no = np.empty(0, dtype=np.int64), np.empty(0, dtype=bool)
        return Timeline(none, none, none, none, no, none, none, none, no)
    spells, events = _join(spells, events)
    first_of = _begins(spells)
    moment = events.station * _STATION + events.moment
    key = np.concatenate([first_of, np.sort(moment)])
    key.sort(kind="stable")  # two sorted runs
    key = key[np.append(True, key[1:] != key[:-1])]
    spell = np.searchsorted(first_of, key, side="right") - 1
    inside = (spell >= 0) & (key - spells.owner[spell] * _STATION < 60 * spells.end[spell])
    key, spell = key[inside], spell[inside]
    row = np.searchsorted(key, moment) - 1  # an event ends the stretch before it

    def at_end(values: NDArray[np.generic]) -> Integers:
        found: Integers = np.bincount(row, weights=values, minlength=len(key)).astype(np.int64)
        return found

    pickups, returned, disabled, visited = (
        at_end(v) for v in (events.pickups, events.returned, events.disabled, events.visited)
    )
    station = spells.owner[spell]
    shown = spells.reason[spell] == VEHICLES
    known = shown | (spells.reason[spell] == EMPTY)
    moved = np.concatenate([[0], np.cumsum(returned - pickups)])[:-1]
    since = moved - moved[np.searchsorted(spell, spell)]  # since the record that the feed shows
    listed = np.where(known, np.maximum(spells.supply[spell] + since, 0), UNKNOWN).astype(np.int64)
    begin = -(-(key - station * _STATION) // 60)
    end = np.minimum(np.append(begin[1:], 0), spells.end[spell])
    is_last = np.append(station[1:] != station[:-1], True)
    end[is_last] = spells.end[spell][is_last]
    happens = (pickups + returned + disabled + visited) > 0
    keep = np.ones(len(key), dtype=bool)
    keep[1:] = (listed[1:] != listed[:-1]) | (shown[1:] != shown[:-1]) | is_last[:-1] | happens[:-1]
    first = np.flatnonzero(keep)
    last = np.append(first[1:], len(key)) - 1
    some = (end[last] > begin[first]) | happens[last]
    first, last = first[some], last[some]
    return Timeline(
        station[first],
        begin[first],
        end[last],
        listed[first],
        shown[first],
        pickups[last],
        returned[last],
        disabled[last],
        visited[last] > 0,
    )


def _join(spells: Spells, events: Events) -> tuple[Spells, Events]:
    """Join the spells of an hour in which many vehicles are listed; keep the events within spells, at the joint's end.

    Such minutes say nothing about broken vehicles, and most records are of this kind. Polls that repeat each other are
    joined too, if nothing happens before the second.
    """
    of = np.searchsorted(_begins(spells), events.station * _STATION + events.moment) - 1
    inside = (of >= 0) & (spells.owner[of] == events.station) & (events.moment <= 60 * spells.end[of])
    events, of = events.select(inside), of[inside]
    taken = np.bincount(of, weights=events.pickups, minlength=len(spells.owner))
    hour = spells.begin // 60
    ample = (spells.reason == VEHICLES) & (spells.supply - taken >= AMPLE) & (hour == (spells.end - 1) // 60)
    idle = np.bincount(of, minlength=len(spells.owner)) == 0
    repeated = (spells.reason[1:] == spells.reason[:-1]) & (spells.supply[1:] == spells.supply[:-1]) & idle[:-1]
    joined = np.where(ample[1:] | ample[:-1], ample[1:] & ample[:-1] & (hour[1:] == hour[:-1]), repeated)
    joined &= (spells.begin[1:] == spells.end[:-1]) & (spells.owner[1:] == spells.owner[:-1])
    first = np.flatnonzero(np.append(True, ~joined))
    end = spells.end[np.append(first[1:], len(hour)) - 1]
    last = np.repeat(end, np.diff(np.append(first, len(hour))))
    before_next = 60 * last - (0 if spells.early is None else EARLIEST)
    events = replace(events, moment=np.where(ample[of], before_next[of], events.moment))
    return replace(spells.select(first), end=end), events


@dataclass(frozen=True)
class CutSteps:
    """Steps, and where they lie.

    Attributes
    ----------
    steps : Steps
        One station after the other.
    begin, end : array of int
        Minutes between which the listed number of each step held. `steps.minutes` goes on to the next step.
    shown : array of bool
        Whether the feed shows a vehicle meanwhile.
    """

    steps: Steps
    begin: Integers
    end: Integers
    shown: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.begin)

    @property
    def scarce(self) -> NDArray[np.bool_]:
        """Whether some vehicles are listed, but so few that all may be broken."""
        return (self.steps.listed > 0) & (self.steps.listed < AMPLE)


def to_steps(timeline: Timeline) -> CutSteps:
    """Cut and join the stretches into steps; expected pickups are left at zero."""
    scarce = (timeline.listed >= 1) & (timeline.listed < AMPLE)
    pieces = np.where(scarce, np.maximum(-(-(timeline.end - timeline.begin) // LONGEST_STEP), 1), 1)
    row = np.repeat(np.arange(len(timeline)), pieces)
    rank = np.arange(len(row)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begin = timeline.begin[row] + rank * LONGEST_STEP
    is_last = np.append(rank[1:] == 0, True)
    end = np.where(is_last, timeline.end[row], begin + LONGEST_STEP)
    station, listed = timeline.station[row], timeline.listed[row]
    plenty = (listed >= AMPLE) | (listed == UNKNOWN)
    same = (station[1:] == station[:-1]) & plenty[1:] & plenty[:-1]
    joined = same & (begin[1:] // LONGEST_STEP == begin[:-1] // LONGEST_STEP)
    first = np.flatnonzero(np.append(True, ~joined))
    last = np.append(first[1:], len(row)) - 1
    station, plenty = station[first], plenty[first]

    def summed(values: NDArray[np.generic]) -> Integers:
        total: Integers = np.add.reduceat(np.where(is_last, values[row], 0), first)
        return total

    begin, end = begin[first], end[last]
    until = np.append(begin[1:], end[-1:])
    of_station = np.append(station[1:] != station[:-1], True)
    steps = Steps(
        station,
        (np.where(of_station, end, until) - begin).astype(float),
        np.zeros(len(first)),
        np.where(plenty, _PLENTY, listed[first]),
        np.where(plenty, 0, summed(timeline.pickups)),
        summed(timeline.returned),
        summed(timeline.disabled),
        summed(timeline.visited.astype(np.int64)) > 0,
    )
    return CutSteps(steps, begin, end, timeline.shown[row][first])
