"""Pickups and returns, inferred from changes of availability.

Between two records of an open station, a fall of the available vehicles is pickups and a rise is returns. Exceptions:

- If the station was closed or dead at either record, the change is neither: when a system closes, its vehicles vanish
  from the feed at once and nobody rides them.
- Vehicles that became disabled (or functional again) at the same time are neither.
- A change of at least `rebalancing` vehicles at once is rebalancing, and counted separately.
- A change after a silence of the feed or the station is neither, because its time is unknown.

A pickup and a return between two polls of the feed cancel out. In a change log they leave a trace: a record that
repeats the one before. Stations repeat records for other reasons too (each night, or some minutes after a ride). So a
repeated record counts as one pickup and one return only if the station's last and next moves are at most `SWAP_WITHIN`
seconds away. In Jersey City's feed, polled every five minutes, 9 % of the trips leave no other trace, four of five
records counted this way hide a trip, and 6 % of the trips stay hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unmet.mobility.clock.bins import Integers
from unmet.mobility.supply.silence import Feed
from unmet.mobility.supply.spells import silent_gaps
from unmet.mobility.supply.status_log import StatusRecords

__all__ = ["SWAP_WITHIN", "Changes", "find_changes", "known_changes", "moves"]

SWAP_WITHIN = 1200
"""Largest number of seconds from a repeated record to the station's last and next move for it to count as a pickup and
a return. In Jersey City it hides a trip in 79 % of the cases if both are within 20 minutes, in 2 % if both are more
than two hours away."""


@dataclass(frozen=True)
class Changes:
    """Moves of vehicles, each between two records of a station.

    Attributes
    ----------
    station, minute : array
        Station, and the minute of the move: that of the second record in a change log, else halfway between the two.
    before, after : array
        The full minutes from which the two records are in force.
    fall, rise : array
        Vehicles taken and brought. One of them is zero, or both are one if they cancelled out.
    """

    station: Integers
    minute: Integers
    before: Integers
    after: Integers
    fall: NDArray[np.int16]
    rise: NDArray[np.int16]

    def select(self, chosen: NDArray[np.bool_]) -> Changes:
        """Return the chosen changes."""
        return Changes(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))


def moves(records: StatusRecords) -> tuple[NDArray[np.bool_], NDArray[np.int16], NDArray[np.int16]]:
    """Return, for each record but the first: whether vehicles moved since the last one, and how many fell and rose."""
    gained = np.diff(records.available)
    disabled = np.diff(records.disabled)
    fall = -gained - np.maximum(disabled, 0)
    rise = gained + np.minimum(disabled, 0)
    is_open = records.is_open
    moved = ((fall > 0) | (rise > 0)) & is_open[1:] & is_open[:-1] & ~records.is_new[1:]
    return moved, fall, rise


def find_changes(records: StatusRecords, feed: Feed, bridged: bool = False) -> Changes:
    """Find every move of vehicles between two consecutive records of an open station.

    Parameters
    ----------
    records : StatusRecords
        Sorted records.
    feed : Feed
        The whole feed. Where looks list every station, a repeated record has no meaning, and a move is taken to be
        halfway between the two records. A change log has its own time.
    bridged : bool
        Whether pickups that cancel out with returns between two looks are found otherwise. A repeated record is then
        both only where every change has its own time.
    """
    moved, fall, rise = moves(records)
    later = np.flatnonzero(moved) + 1
    fall, rise = np.maximum(fall[later - 1], 0), np.maximum(rise[later - 1], 0)
    swaps = np.empty(0, dtype=np.int64)
    if not feed.cadence.polled.all():
        swaps = _swaps(records, later)
        since = records.minute[swaps] - feed.first
        swaps = swaps[feed.cadence.always_at(since) if bridged else ~feed.cadence.polled_at(since)]
    one = np.ones(len(swaps), dtype=np.int16)
    order = np.argsort(np.concatenate([later, swaps]), kind="stable")
    later = np.concatenate([later, swaps])[order]
    before, after = records.minute[later - 1], records.minute[later]
    polled = feed.cadence.polled_at(after - feed.first)
    return Changes(
        records.station[later],
        np.where(polled, (before + after) // 2, records.minute_of_arrival(later)),
        before,
        after,
        np.concatenate([fall, one])[order],
        np.concatenate([rise, one])[order],
    )


def _swaps(records: StatusRecords, moved: Integers) -> Integers:
    """Find records that repeat the one before while the station is in use. `moved` are the records that show a move."""
    if len(moved) == 0:
        return np.empty(0, dtype=np.int64)
    is_open = records.is_open
    same = (np.diff(records.available) == 0) & (np.diff(records.disabled) == 0)
    repeats = np.flatnonzero(same & is_open[1:] & is_open[:-1] & ~records.is_new[1:]) + 1
    place = np.searchsorted(moved, repeats)
    near = (place > 0) & (place < len(moved))
    repeats, place = repeats[near], place[near]

    def is_near(move: Integers) -> NDArray[np.bool_]:
        away = np.abs(records.second[move] - records.second[repeats])
        near: NDArray[np.bool_] = (records.station[move] == records.station[repeats]) & (away <= SWAP_WITHIN)
        return near

    return repeats[is_near(moved[place - 1]) & is_near(moved[place])]


def known_changes(
    station: Integers,
    before: Integers,
    after: Integers,
    feed: Feed,
    feed_share: NDArray[np.float64],
    silent: Integers,
) -> NDArray[np.bool_]:
    """Return which changes between two records are not after a silence of the feed or of the station."""
    begun, ended = np.searchsorted(silent[:, 0], after), np.searchsorted(silent[:, 1], before, "right")
    known: NDArray[np.bool_] = (begun <= ended) & ~silent_gaps(station, before, after, feed, feed_share)
    return known
