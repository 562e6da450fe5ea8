"""Zones beside empty ones: for how much of each bin a zone was out while a neighbour had something to rent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmet.mobility.clock.bins import Minutes
from unmet.mobility.supply.spells import Override, Spells
from unmet.mobility.supply.states import EMPTY, VEHICLES

__all__ = ["Beside", "metres_between", "minutes_beside"]

_EARTH = 6_371_000.0


@dataclass(frozen=True)
class Beside:
    """Minutes of each bin in which `source` was out, and in which meanwhile `target`, so far away, had stock.

    Sorted by source, bin and distance. A source that was out in a bin has a row for each zone in reach.
    """

    source: Minutes
    target: Minutes
    bin: Minutes
    metres: NDArray[np.float64]
    out_minutes: Minutes
    both_minutes: Minutes


def metres_between(lat: NDArray[np.float64], lon: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distances between all places (haversine); NaN where one has no coordinates."""
    phi, lam = np.radians(lat), np.radians(lon)
    a = np.sin(np.subtract.outer(phi, phi) / 2) ** 2
    a += np.multiply.outer(np.cos(phi), np.cos(phi)) * np.sin(np.subtract.outer(lam, lam) / 2) ** 2
    return np.asarray(2 * _EARTH * np.arcsin(np.sqrt(np.clip(a, 0.0, 1.0))))


def minutes_beside(
    spells: Spells, edges: Minutes, overrides: list[Override], metres: NDArray[np.float64], reach: float
) -> Beside:
    """Measure for all zones; owners of `spells` are positions in `metres`.

    Each stretch in which a zone is out is cut at the edges of bins; the minutes of a neighbour in such a piece are a
    difference of its running total. No minute is a row.

    Parameters
    ----------
    spells : Spells
        Of zones.
    edges : array
        Edges of the bins, ascending.
    overrides : list of Override
        Stretches in which the whole system is silent or closed: they count for nobody.
    metres : array of shape (zones, zones)
        Distances between zones; NaN where not known.
    reach : float
        Metres beyond which nobody walks.
    """
    closed = np.array(sorted((o.begin, o.end) for o in overrides), dtype=np.int64).reshape(-1, 2)
    out = _open_stretches(spells, EMPTY, closed, len(metres))
    stocked = [_Running(*stretches) for stretches in _open_stretches(spells, VEHICLES, closed, len(metres))]
    parts = list(_of_each_source(out, stocked, edges, metres, reach))
    if not parts:
        none = np.empty(0, dtype=np.int64)
        return Beside(none, none, none, np.empty(0), none, none)
    return Beside(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _of_each_source(
    out: list[tuple[Minutes, Minutes]],
    stocked: list[_Running],
    edges: Minutes,
    metres: NDArray[np.float64],
    reach: float,
) -> Iterator[tuple[NDArray[Any], ...]]:
    for source, (begin, end) in enumerate(out):
        near = np.flatnonzero(metres[source] <= reach)  # NaN compares false
        near = near[near != source]
        near = near[np.argsort(metres[source, near], kind="stable")]
        low, high, bin_ = _cut(begin, end, edges)
        if not near.size or not low.size:
            continue
        bins, which = np.unique(bin_, return_inverse=True)
        out_minutes = np.bincount(which, high - low).astype(np.int64)
        both = np.empty((len(bins), len(near)), dtype=np.int64)
        for column, target in enumerate(near):
            both[:, column] = np.bincount(which, stocked[target](high) - stocked[target](low))
        yield (
            np.full(both.size, source),
            np.tile(near, len(bins)),
            np.repeat(bins, len(near)),
            np.tile(metres[source, near], len(bins)),
            np.repeat(out_minutes, len(near)),
            both.ravel(),
        )


@dataclass(frozen=True)
class _Running:
    """Minutes up to a minute that lie in any of some stretches, which do not overlap."""

    begin: Minutes
    end: Minutes

    def __call__(self, minute: Minutes) -> Minutes:
        total = np.concatenate([[0], np.cumsum(self.end - self.begin)])
        begun = np.searchsorted(self.begin, minute, side="right")
        last_end = np.append(self.end, 0)[begun - 1]  # of none begun: not used
        return np.where(begun > 0, total[begun] - np.maximum(last_end - minute, 0), 0)


def _open_stretches(spells: Spells, reason: int, closed: Minutes, zones: int) -> list[tuple[Minutes, Minutes]]:
    """Begin and end of the stretches with that reason, for each zone, without what overrides take."""
    held = spells.reason == reason
    owner, begin, end = spells.owner[held], spells.begin[held], spells.end[held]
    bounds = np.searchsorted(owner, np.arange(zones + 1))
    result = []
    for zone in range(zones):
        some = slice(bounds[zone], bounds[zone + 1])
        low, high = begin[some], end[some]
        for first, last in closed:
            before = low < first
            after = high > last
            low, high = (
                np.concatenate([low[before], np.maximum(low[after], last)]),
                np.concatenate([np.minimum(high[before], first), high[after]]),
            )
        order = np.argsort(low, kind="stable")
        result.append((low[order], high[order]))
    return result


def _cut(begin: Minutes, end: Minutes, edges: Minutes) -> tuple[Minutes, Minutes, Minutes]:
    """Stretches cut at edges: begin, end and bin of each piece; what lies outside the edges is left out."""
    begin, end = np.maximum(begin, edges[0]), np.minimum(end, edges[-1])
    inside = end > begin
    begin, end = begin[inside], end[inside]
    first = np.searchsorted(edges, begin, side="right") - 1
    last = np.searchsorted(edges, end, side="left") - 1
    count = last - first + 1
    row = np.repeat(np.arange(len(begin)), count)
    bin_ = first[row] + np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    return np.maximum(begin[row], edges[bin_]), np.minimum(end[row], edges[bin_ + 1]), bin_
