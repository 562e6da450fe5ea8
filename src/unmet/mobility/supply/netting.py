"""Supply netted from trips and capacity, where there is no status: weaker evidence.

Each return adds a vehicle and each pickup takes one, within 0 and the station's capacity. Vans are not in the trip
files, so a pickup from an empty station shows that one came, and a return to a full one that one left: the level is
held at its bounds. Where it stood at the beginning is unknown, so two levels are followed, one from empty and one from
full; once both met a bound they are the same. A station surely had a vehicle where the lower one is positive, surely
had none where the upper one is zero, and is undetermined in between.
"""

from __future__ import annotations

import numpy as np

from unmet.mobility.clock.bins import Integers
from unmet.mobility.supply.spells import Spells, no_spells
from unmet.mobility.supply.states import EMPTY, UNDETERMINED, VEHICLES

__all__ = ["net_supply"]


def net_supply(station: Integers, minute: Integers, change: Integers, capacity: Integers, covered: Integers) -> Spells:
    """Follow the possible levels of stations.

    Parameters
    ----------
    station, minute, change : array
        Moves sorted by station and time: +1 a return, -1 a pickup; `minute` is the full minute from which it holds.
    capacity : array
        Docks of each station; what happens at those of which they are not known (0) is undetermined.
    covered : array of shape (k, 2)
        Stretches (begin, end) for which the trips are known; each starts anew from not knowing.

    Examples
    --------
    Two docks; a pickup, then two returns, then two pickups: only then is it surely empty.

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
    number: int, minute: Integers, change: Integers, capacity: int, begin: int, end: int
) -> tuple[Integers, ...]:
    lower, upper = [0], [capacity]
    for step in change.tolist():
        lower.append(min(capacity, max(0, lower[-1] + step)))
        upper.append(min(capacity, max(0, upper[-1] + step)))
    begins = np.concatenate([[begin], minute])
    last = np.append(begins[1:] != begins[:-1], True)  # of several moves within a minute the last one counts
    begins = begins[last]
    return (
        np.full(len(begins), number, dtype=np.int64),
        begins,
        np.append(begins[1:], end),
        np.array(lower, dtype=np.int64)[last],
        np.array(upper, dtype=np.int64)[last],
    )
