"""Vehicles taken and brought back, read off the changes of availability.

Between two records of an open station, a fall of the available vehicles is pickups and a rise is returns, except:

- where the station was closed before or after, or either record is that of a dead station, it is neither: when a
  system closes, its vehicles vanish from the feed at once and nobody rides them;
- vehicles that turned disabled (or back) at the same moment are neither;
- a change of `rebalancing` vehicles or more at once is taken for a van, and shown apart;
- a change found after a silence (of the feed or the station) is neither: nobody knows when it happened.

What is taken and brought back between two looks at the feed cancels out and is missed: on Jersey City's feed, looked at
every five minutes, about 8 % of the trips.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unmet.mobility.availability import silent_gaps
from unmet.mobility.clock import Minutes
from unmet.mobility.silence import Feed
from unmet.mobility.statuslog import Block

__all__ = ["REBALANCING", "Changes", "find_changes", "known_changes", "moves"]

REBALANCING = 8
"""Vehicles at once that a van moves. In Jersey City 6 to 8 agrees best with the trips (5 to 10 hardly differ)."""


@dataclass(frozen=True)
class Changes:
    """Moves of vehicles at stations: in which minute a record shows them, and between which two records.

    Attributes
    ----------
    station, minute : array
        Where, and the minute in which the record came.
    before, after : array
        The full minutes at which the two records came into force.
    fall, rise : array
        Vehicles taken and brought; one of them is zero.
    """

    station: Minutes
    minute: Minutes
    before: Minutes
    after: Minutes
    fall: NDArray[np.int16]
    rise: NDArray[np.int16]

    def select(self, chosen: NDArray[np.bool_]) -> Changes:
        """Keep some of the changes."""
        return Changes(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))


def moves(block: Block) -> tuple[NDArray[np.bool_], NDArray[np.int16], NDArray[np.int16]]:
    """For each record but the first: whether vehicles moved since the one before, how many were taken and brought."""
    gained = np.diff(block.available)
    disabled = np.diff(block.disabled)
    fall = -gained - np.maximum(disabled, 0)
    rise = gained + np.minimum(disabled, 0)
    is_open = block.is_open
    moved = ((fall > 0) | (rise > 0)) & is_open[1:] & is_open[:-1] & ~block.is_new[1:]
    return moved, fall, rise


def find_changes(block: Block) -> Changes:
    """Find every move of vehicles between two consecutive records of an open station."""
    moved, fall, rise = moves(block)
    later = np.flatnonzero(moved) + 1
    return Changes(
        block.station[later],
        block.minute_of_arrival(later),
        block.minute[later - 1],
        block.minute[later],
        np.maximum(fall[later - 1], 0),
        np.maximum(rise[later - 1], 0),
    )


def known_changes(changes: Changes, feed: Feed, share: NDArray[np.float64], silent: Minutes) -> Changes:
    """Leave out the changes that came to light after a silence of the feed or of the station."""
    begun, ended = (
        np.searchsorted(silent[:, 0], changes.after),
        np.searchsorted(silent[:, 1], changes.before, "right"),
    )
    alone = silent_gaps(changes.station, changes.before, changes.after, feed, share)
    return changes.select((begun <= ended) & ~alone)
