"""The state of every station at every change and at any other moment asked for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unmet._typing import BoolArray, IntArray
from unmet.simulate.troubles import Trouble

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

    def rows(self, trouble: Trouble) -> slice | BoolArray:
        """Index of the states inside a trouble."""
        if trouble.station is None:
            return (self.time >= trouble.start) & (self.time < trouble.end)
        first, end = np.searchsorted(self.station, [trouble.station, trouble.station + 1])
        inside = np.searchsorted(self.time[first:end], [trouble.start, trouble.end])
        return slice(first + int(inside[0]), first + int(inside[1]))


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


def bounds(troubles: list[Trouble], stations: int) -> tuple[IntArray, IntArray]:
    """The starts and ends of troubles, at the stations that they concern.

    A dead station's are given for every station, because they always were and cities must not change with
    the version.
    """
    at, when = [], []
    for trouble in troubles:
        alone = trouble.station is not None and trouble.kind not in ("silent station", "zero station")
        for s in (trouble.station,) if alone else range(stations):
            at += [s, s]
            when += [trouble.start, trouble.end]
    return np.array(at, dtype=np.intp), np.array(when, dtype=np.intp)
