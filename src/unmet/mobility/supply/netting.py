"""Supply netted from trips and capacity, for systems without status. This is weaker evidence.

Each return adds a vehicle and each pickup takes one, between 0 and the station's capacity. Trip files do not contain
rebalancing: a pickup from an empty station shows that vehicles were brought, a return to a full one that vehicles were
taken. The level is then kept at its bound. The level at the beginning is unknown, so two levels are followed, one from
empty and one from full. They are equal once both met a bound. The station had a vehicle if the lower level is positive,
had none if the upper level is zero, and is undetermined otherwise.

Only trips of which both ends are known are netted: without its end, a vehicle that was ridden to another station would
be gone for ever. If more than one trip in twenty lacks an end, or more than one vehicle in twenty leaves the stations
and does not come back, all is undetermined.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmet.mobility.clock.bins import Integers
from unmet.mobility.supply.spells import Spells, no_spells
from unmet.mobility.supply.states import EMPTY, UNDETERMINED, VEHICLES

__all__ = ["Moves", "net_supply"]

_MOVES_AT_ONCE = 1_000_000  # some 150 bytes each


@dataclass(frozen=True)
class Moves:
    """Moves at stations, from which their supply is netted.

    Attributes
    ----------
    station, minute, change, capacity, covered
        As for `net_supply`.
    first : int
        Number of the station that `capacity` begins with.
    """

    station: NDArray[np.integer[Any]]
    minute: Integers
    change: NDArray[np.integer[Any]]
    capacity: Integers
    covered: Integers
    first: int = 0

    def cut(self, begin: int, end: int) -> Moves:
        """Return the moves at the stations from number `begin` up to `end`; numbers stay the same."""
        some = slice(*np.searchsorted(self.station, [begin, end]).tolist())
        capacity = self.capacity[begin - self.first : end - self.first]
        return Moves(self.station[some], self.minute[some], self.change[some], capacity, self.covered, begin)

    def blocks(self, zone: Integers, zones: range) -> Iterator[tuple[Integers, Moves]]:
        """Yield the moves of consecutive zones, a million or those of one zone at a time.

        Parameters
        ----------
        zone : array
            Zone of each station, ascending.
        zones : range
            The zones.
        """
        stations = np.searchsorted(zone, np.arange(zones.start, zones.stop + 1))
        before = np.searchsorted(self.station, stations)
        begin = 0
        while begin < len(zones):
            end = max(begin + 1, int(np.searchsorted(before, before[begin] + _MOVES_AT_ONCE, side="right")) - 1)
            end = min(end, len(zones))
            some = np.arange(zones.start + begin, zones.start + end)
            yield some, self.cut(int(stations[begin]), int(stations[end]))
            begin = end

    def spells(self) -> Spells:
        """Net the supply of the stations."""
        found = net_supply(self.station - self.first, self.minute, self.change, self.capacity, self.covered)
        return replace(found, owner=found.owner + self.first)


def net_supply(
    station: NDArray[np.integer[Any]],
    minute: Integers,
    change: NDArray[np.integer[Any]],
    capacity: Integers,
    covered: Integers,
) -> Spells:
    """Follow the possible levels of stations.

    Parameters
    ----------
    station, minute, change : array
        Moves sorted by station and time: +1 for a return, -1 for a pickup. `minute` is the first full minute after it.
    capacity : array
        Docks of each station. Supply of stations with unknown capacity (0) is undetermined.
    covered : array of shape (k, 2)
        Stretches (begin, end) that the trip files cover. The level is unknown at the beginning of each.

    Examples
    --------
    Two docks; a pickup, two returns and two pickups. Only then the station is certainly empty.

    >>> zeros = np.zeros(5, dtype=int)
    >>> spells = net_supply(zeros, np.arange(1, 6), np.array([-1, 1, 1, -1, -1]), np.array([2]), np.array([[0, 9]]))
    >>> [(int(b), int(e), int(r) == EMPTY) for b, e, r in zip(spells.begin, spells.end, spells.reason)][-1]
    (5, 9, True)
    """
    parts: list[tuple[Integers, ...]] = []
    for number in range(len(capacity)):
        if capacity[number] <= 0:
            begins, ends = covered[:, 0], covered[:, 1]
            none, one = np.zeros(len(covered), dtype=np.int64), np.ones(len(covered), dtype=np.int64)
            parts.append((one * number, begins, ends, none, one))
            continue
        low, high = np.searchsorted(station, [number, number + 1])
        for begin, end in covered:
            first, behind = low + np.searchsorted(minute[low:high], [begin, end])
            parts.append(
                _levels(int(number), minute[first:behind], change[first:behind], int(capacity[number]), begin, end)
            )
    if not parts:
        return no_spells()
    owner, begins, ends, lower, upper = (np.concatenate(column) for column in zip(*parts, strict=True))
    reason = np.where(lower > 0, VEHICLES, np.where(upper == 0, EMPTY, UNDETERMINED))
    return Spells(owner, begins, ends, reason, np.where(lower > 0, (lower + upper) / 2, 0.0))


def _levels(
    number: int, minute: Integers, change: NDArray[np.integer[Any]], capacity: int, begin: int, end: int
) -> tuple[Integers, ...]:
    lower, upper = [0], [capacity]
    for step in change.tolist():
        lower.append(min(capacity, max(0, lower[-1] + step)))
        upper.append(min(capacity, max(0, upper[-1] + step)))
    begins = np.concatenate([[begin], minute])
    last = np.append(begins[1:] != begins[:-1], True)  # the level after the last move of a minute counts
    begins = begins[last]
    return (
        np.full(len(begins), number, dtype=np.int64),
        begins,
        np.append(begins[1:], end),
        np.array(lower, dtype=np.int64)[last],
        np.array(upper, dtype=np.int64)[last],
    )
