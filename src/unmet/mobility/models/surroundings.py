"""The rest of the city as one zone meets it: walks between zones, riders who walked in, and shocks.

A walker from i to j is one of the riders counted at j, so the split of j's count decides both what walked in at j and
what walked on from i. Each zone makes that split from the same seed, and sums over all zones agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from unmet._typing import Array, IntArray
from unmet.mobility.models.lasting import USUAL_LASTING
from unmet.mobility.models.walking import DEFAULT_WALKING, REACH, Walking, Walks
from unmet.mobility.models.zone_table import ZoneRecord, table_of

__all__ = [
    "Received",
    "Surroundings",
    "relative_walking",
    "rough_rates",
    "rough_surroundings",
    "sums_by_draw",
    "walks_between",
]

# Seeds of what is drawn alike for all zones.
_WALKING_SEED, _SPLIT_SEED = 3, 4


def walks_between(exposure: Array, stockout: Array, metres: Array, reach: float = REACH) -> Walks:
    """Pairs of a zone that was out and a neighbour in reach, from the shares of their bins.

    While one zone is out, the other is assumed to have stock for the share of the bin in which it had any. Compared
    with a count of minutes on half a year of 53 stations that share is right to 0.004 on average.

    Parameters
    ----------
    exposure, stockout : arrays of shape (zones, bins)
        Shares of the bin with something to rent, and with nothing though open.
    metres : array of shape (zones, zones)
        Distances; NaN where not known.
    reach : float
        Metres beyond which nobody walks.
    """
    parts = []
    for source in range(len(metres)):
        bins = np.flatnonzero(stockout[source] > 0)
        near = np.flatnonzero(metres[source] <= reach)  # NaN compares false
        near = near[near != source]
        near = near[np.argsort(metres[source, near], kind="stable")]
        if bins.size and near.size:
            parts.append(
                (
                    np.full(bins.size * near.size, source),
                    np.tile(near, bins.size),
                    np.repeat(bins, near.size),
                    np.tile(metres[source, near], bins.size),
                    np.repeat(stockout[source, bins], near.size),
                    exposure[np.ix_(near, bins)].T.ravel(),
                )
            )
    if not parts:
        none = np.empty(0, dtype=np.intp)
        return Walks(none, none, none, np.empty(0), np.empty(0), np.empty(0))
    return Walks(*(np.concatenate(column) for column in zip(*parts, strict=True)))


@dataclass(frozen=True)
class Received:
    """Riders counted at a zone who may have walked in, by bin and the zone they came from.

    Attributes
    ----------
    zone : int
        Number of the zone.
    bin, source : integer arrays of shape (n,)
        Sorted by bin.
    metres, walkers : arrays of shape (n,)
        Distance from the source, and how many are expected from there.
    count, own : arrays of shape (n,)
        Of the zone in that bin: what was observed, and expected of its own riders.
    """

    zone: int
    bin: IntArray
    source: IntArray
    metres: Array
    walkers: Array
    count: Array
    own: Array

    def split(self, walking: Walking, draws: int, seed: int) -> csc_array:
        """Draws of the riders from each source, shape (draws, n): a multinomial split of each bin's count.

        The number of walkers of a bin is binomial, and each of them comes from a source by its share of those expected.
        In draw s the walking curve is the same for all zones.
        """
        rng = np.random.default_rng([_SPLIT_SEED, seed, self.zone])
        relative, of_row = relative_walking(walking, self.metres, draws, seed)
        starts = np.diff(self.bin, prepend=-1) > 0
        first, cell_of_row = np.flatnonzero(starts), np.cumsum(starts) - 1
        total = sums_by_draw(self.walkers, cell_of_row, len(first), relative, of_row)
        own, count = self.own[first, None], self.count[first, None].astype(np.int64)
        number = rng.binomial(count, total / np.maximum(own + total, 1e-12))
        cell, drawn = np.nonzero(number)
        times = number[cell, drawn]
        cell, drawn = np.repeat(cell, times), np.repeat(drawn, times)
        left = rng.uniform(size=len(drawn)) * total[cell, drawn]
        row, last = first[cell], np.append(first[1:], len(self.bin))[cell] - 1
        going = np.arange(len(drawn))
        while going.size:  # on to the next source of the bin while what is left exceeds what is expected from this one
            at = row[going]
            here = self.walkers[at] * relative[drawn[going], of_row[at]]
            on = (left[going] >= here) & (at < last[going])
            going = going[on]
            left[going] -= here[on]
            row[going] += 1
        return csc_array((np.ones(len(row), dtype=np.int32), (drawn, row)), shape=(draws, len(self.bin)))


def sums_by_draw(values: Array, group: IntArray, groups: int, relative: Array, of_row: IntArray) -> Array:
    """Sum values times the relative chance of their distance, by group and draw, shape (groups, draws).

    There are few distances: a sum by distance first, for all draws at once, takes no array of (draws, rows).
    """
    by_distance = csr_array((values, (group, of_row)), shape=(groups, relative.shape[1]))
    return np.asarray(by_distance @ relative.T)


def relative_walking(walking: Walking, metres: Array, draws: int, seed: int) -> tuple[Array, IntArray]:
    """``w`` of each draw relative to the mean curve by distance, shape (draws, distances), and the distance of rows."""
    rng = np.random.default_rng([_WALKING_SEED, seed])
    # A pair of zones has one distance, and occurs in many bins.
    distances, of_row = np.unique(metres, return_inverse=True)
    usual = np.maximum(walking(distances), 1e-12)
    return walking.draws(draws, rng, distances) / usual, of_row


@dataclass(frozen=True)
class Surroundings:
    """The rest of the city as one zone meets it, bin by bin of its own rows.

    Attributes
    ----------
    shock : array of shape (n,)
        Expected factor of the rate due to shocks, as a logarithm.
    shock_var : array of shape (n,)
        What is not known of it.
    shock_draws : array of shape (draws, n)
        Joint draws of it, in draw s the same shocks for all zones.
    prior_var : float
        Variance of shocks of which nothing is known.
    background : array of shape (n,)
        Walkers expected from neighbours.
    walked_on : array of shape (draws, n)
        Chance that a rider who finds the zone empty is served elsewhere.
    riders_on, riders_in : integer arrays of shape (draws, n)
        Draws of the riders who walked on from here and were counted elsewhere, and who walked in.
    within, lasting : float
        Dispersion of the zone's counts beside the shocks, and the part of it that lasts through a bin.
    """

    shock: Array
    shock_var: Array
    shock_draws: NDArray[np.float32]
    prior_var: float
    background: Array
    walked_on: NDArray[np.float32]
    riders_on: NDArray[np.int32]
    riders_in: NDArray[np.int32]
    within: float
    lasting: float


def rough_surroundings(
    zones: Sequence[ZoneRecord],
    places: Mapping[str, tuple[float, float]],
    walking: Walking = DEFAULT_WALKING,
    prior_var: float = 0.0,
) -> dict[str, Surroundings]:
    """Surroundings of each zone before anything is estimated: walkers alone, from `rough_rates`.

    Fitted without them, zones beside empty ones would take walkers for riders of their own, and later turns would free
    themselves of that but slowly.
    """
    unknown = {data.zone: (*(np.full(len(data.start), np.nan),) * 3, np.zeros(2)) for data in zones}
    table = table_of(zones, unknown, places)
    stockout = np.where(np.isfinite(table.observed), table.stockout, 0.0)
    walks = walks_between(table.exposure, stockout, table.metres)
    background = walks.background(walking, rough_rates(table.observed, table.exposure, table.slot))
    found = {}
    for i, data in enumerate(zones):
        at, count = table.start.get_indexer(data.start), len(data.start)
        zero, none = np.zeros(count), np.empty((0, count), dtype=np.float32)
        riders = np.empty((0, count), dtype=np.int32)
        walkers = background[i, at], none, riders, riders
        found[data.zone] = Surroundings(zero, zero, none, prior_var, *walkers, 0.0, USUAL_LASTING)
    return found


def rough_rates(observed: Array, exposure: Array, slot: IntArray) -> Array:
    """Pickups over exposure by hour of week, with each zone's mean seen once more, shape (zones, bins)."""
    seen = np.isfinite(observed) & (exposure > 0)
    count, time = np.where(seen, np.nan_to_num(observed), 0.0), np.where(seen, exposure, 0.0)
    rates = np.empty(count.shape)
    for i, (taken, lasted) in enumerate(zip(count, time, strict=True)):
        mean = (taken.sum() + 0.5) / (lasted.sum() + 1.0)
        by_slot = (np.bincount(slot, taken, minlength=168) + mean) / (np.bincount(slot, lasted, minlength=168) + 1)
        rates[i] = by_slot[slot]
    return rates
