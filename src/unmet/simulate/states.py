"""The state of every station at every change and at any other moment asked for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unmet._typing import BoolArray, IntArray
from unmet.simulate.operation import Outage

__all__ = ["States", "bounds", "everywhere", "states"]


@dataclass(frozen=True)
class States:
    """The state of stations from each moment until the station's next one, sorted by station and time."""

    station: IntArray
    time: IntArray
    rentable: IntArray
    disabled: IntArray
    unusable: IntArray  # listed, but nobody can rent them

    @property
    def listed(self) -> IntArray:
        """Bikes that a working feed shows as available."""
        return self.rentable + self.unusable

    def within(self, outage: Outage) -> BoolArray:
        """Which states are inside an outage."""
        inside = (self.time >= outage.start) & (self.time < outage.end)
        return inside if outage.station is None else inside & (self.station == outage.station)


def states(stock: IntArray, horizon: int, stations: IntArray, times: IntArray) -> States:
    """The states after every change (the last in a second counts) and at the extra moments asked for.

    Parameters
    ----------
    stock : array
        Rows of `unmet.simulate.operation.STOCK`.
    horizon : int
        The end of the period in seconds; later changes are left out.
    stations, times : array
        The extra moments, of equal length.
    """
    span = np.intp(horizon + 1)
    stock = stock[stock[:, 0] < horizon]
    changed = stock[:, 1] * span + stock[:, 0]
    order = np.argsort(changed, kind="stable")
    last = order[np.append(np.diff(changed[order]) > 0, True)]
    wanted = (times >= 0) & (times < horizon)
    moments = np.sort(np.concatenate([changed[last], stations[wanted] * span + times[wanted]]))
    moments = moments[np.append(np.diff(moments) > 0, True)]
    row = last[np.searchsorted(changed[last], moments, side="right") - 1]
    return States(moments // span, moments % span, stock[row, 2], stock[row, 3], stock[row, 4])


def everywhere(times: IntArray, stations: int) -> tuple[IntArray, IntArray]:
    """Each of the times at each of the stations."""
    return np.repeat(np.arange(stations), len(times)), np.tile(times, stations)


def bounds(outages: list[Outage]) -> IntArray:
    """The starts and ends of outages."""
    return np.array([t for o in outages for t in (o.start, o.end)], dtype=np.intp)
