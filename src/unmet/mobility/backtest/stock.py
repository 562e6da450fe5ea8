"""Cut stock: days start with few vehicles in many zones at once, and riders who find nothing walk to a neighbour.

Each zone is replayed as in `unmet.mobility.backtest.trials.replay`. Riders who come after the last vehicle is gone try
the neighbours in order of distance and walk with a known chance. Those who are served there are added to the
neighbour's count. So the truth is known: riders turned away, riders who walked, and each zone's own riders. A model
that takes zones for islands counts walkers twice: as lost where they came from, and as demand where they were served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet._typing import Array, BoolArray
from unmet.mobility.backtest.hours import fitted_table
from unmet.mobility.backtest.trials import replay
from unmet.mobility.models.factors import city_factor, local_factor
from unmet.mobility.models.joint import join_city
from unmet.mobility.models.surroundings import walks_between
from unmet.mobility.models.walking import DEFAULT_WALKING, NO_WALKING, Walking, Walks
from unmet.mobility.models.zone_data import ZoneData, zone_data
from unmet.mobility.models.zone_table import ZoneTable, table_of
from unmet.mobility.panel.opening import AnyPanel, opened

__all__ = ["cut_stock", "walk_on"]


def cut_stock(
    panel: AnyPanel,
    *,
    features: pd.DataFrame | None = None,
    places: Mapping[str, tuple[float, float]] | None = None,
    share: float = 0.2,
    walking: Walking = DEFAULT_WALKING,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> pd.DataFrame:
    """Cut the stock of a share of the days of every zone, let riders walk, and compare what models find.

    Parameters
    ----------
    panel : path, PanelFile, Panel or DataFrame
        The panel.
    features : DataFrame, optional
        Columns to join to every zone's rows by ``start``.
    places : mapping, optional
        Zone → latitude and longitude, in place of those of the panel.
    share : float
        Share of the days of a zone whose stock is cut; other days in each zone.
    walking : Walking
        How far the riders of the replay walk.
    seed : int
        Decides days, stocks and walks.
    progress : callable
        Called with a sentence at each step.

    Returns
    -------
    DataFrame
        ``model``; ``turned_away`` and ``walked_on``, the truth; ``turned_away_found`` and ``walked_on_found``;
        ``bias`` of riders turned away; ``received_bias``, of the own riders of zones that were walked to. Models:
        ``exposure`` (the city as one), ``exposure, nobody walks``, ``local-factor``, ``city-factor``.
    """
    if not 0 < share < 1:
        raise InputError(f"share: expected a share of the days, above 0 and below 1; got {share}.")
    with opened(panel) as file:
        file.set_features(features)
        given = [(rows, zone_data(rows)) for rows in map(file.rows_of, file.zones)]
        given = [(rows, data) for rows, data in given if data.seen.any() and data.has_counts]
        where = dict(file.places if places is None else places)
    if not given:
        raise InputError("Cut stock needs counts of pickups; no zone has them.")
    trial = _cut(given, where, share, walking, seed)
    found = []
    for name, curve in (("exposure", None), ("exposure, nobody walks", NO_WALKING)):
        first = DEFAULT_WALKING if curve is None else curve
        table = fitted_table(trial.pairs, where, seed, "Replays of cut stock", progress, first)
        progress("Estimating shocks and walking for the whole city.")
        joint = join_city(table, draws=20, seed=seed, walking=curve, start=first)
        found.append({"model": name, **trial.score(joint.rate, joint.walking)})
    for name, rate in (
        ("local-factor", local_factor(table.observed, table.exposure, table.slot, table.metres, table.hours)),
        ("city-factor", city_factor(table.observed, table.exposure, table.slot)),
    ):
        found.append({"model": name, **trial.score(rate, NO_WALKING)})
    return pd.DataFrame(found)


@dataclass(frozen=True)
class _CutCity:
    """A city with cut stock, and what is true of it.

    Attributes
    ----------
    pairs : list of (DataFrame, ZoneData)
        For each zone its rows, and the data of the trial.
    before, after : ZoneTable
        The zones as they were, and with cut stock but without walkers.
    walks : Walks
        Zones out of stock by the cut, and their neighbours.
    riders, walkers : array of shape (zones, bins), array of shape (n,)
        Riders turned away by the cut, and those of them who walked, by row of `walks`.
    """

    pairs: Sequence[tuple[pd.DataFrame, ZoneData]]
    before: ZoneTable
    after: ZoneTable
    walks: Walks
    riders: Array
    walkers: Array

    @property
    def received(self) -> BoolArray:
        """Zones and bins that were walked to."""
        at = np.zeros(self.riders.shape, dtype=bool)
        at[self.walks.target[self.walkers > 0], self.walks.bin[self.walkers > 0]] = True
        return at

    def score(self, rate: Array, walking: Walking) -> dict[str, float]:
        """Compare with the truth: own riders expected in a full bin, and how far riders were found to walk."""
        turned_away = np.nan_to_num(rate) * (self.after.stockout - self.before.stockout)
        walked = turned_away[self.walks.source, self.walks.bin] * self.walks.chances(walking)
        truth, at = self.riders.sum(), self.received
        own = self.after.observed[at].sum()
        return {
            "turned_away": float(truth),
            "turned_away_found": float(turned_away.sum()),
            "bias": float(turned_away.sum() / truth - 1) if truth else np.nan,
            "walked_on": float(self.walkers.sum()),
            "walked_on_found": float(walked.sum()),
            "received_bias": float((self.after.exposure * rate)[at].sum() / own - 1) if own else np.nan,
        }


def _cut(
    given: Sequence[tuple[pd.DataFrame, ZoneData]],
    places: Mapping[str, tuple[float, float]],
    share: float,
    walking: Walking,
    seed: int,
) -> _CutCity:
    """Replay days with few vehicles in each zone, then let those walk who found nothing."""
    zones = []
    for rows, data in given:
        ordered = rows.sort_values("start")
        returns = ordered["returns"].to_numpy(dtype=float, na_value=np.nan) if "returns" in ordered else None
        zones.append(replay(data, returns, fold=0, folds=1, share=share, seed=seed).data)
    before, after = (_table(data, places) for data in ([data for _, data in given], zones))
    known = np.isfinite(before.observed)
    riders = np.where(known, before.observed - np.nan_to_num(after.observed), 0.0)
    walks = walks_between(after.exposure, np.where(known, after.stockout - before.stockout, 0.0), after.metres)
    walkers = walk_on(walks, riders[walks.source, walks.bin], walking, np.random.default_rng([seed, 2]))
    observed = after.observed.copy()
    np.add.at(observed, (walks.target, walks.bin), walkers)
    pairs = []
    for i, ((rows, _), data) in enumerate(zip(given, zones, strict=True)):
        pairs.append((rows, replace(data, observed=observed[i, after.start.get_indexer(data.start)])))
    return _CutCity(pairs, before, after, walks, riders, walkers)


def _table(zones: Sequence[ZoneData], places: Mapping[str, tuple[float, float]]) -> ZoneTable:
    none = {data.zone: (*(np.zeros(len(data)),) * 3, np.zeros(2)) for data in zones}
    return table_of(zones, none, places)


def walk_on(walks: Walks, riders: Array, walking: Walking, rng: np.random.Generator) -> Array:
    """Draw how many riders who found the source of each row empty walk to its target and are served there.

    Parameters
    ----------
    walks : Walks
        Who was out, and who had stock.
    riders : array of shape (n,)
        Riders who found the source of each row empty: the same number in all rows of a source and bin.
    walking : Walking
        How far they walk.
    rng : Generator
        Draws who walks.

    Returns
    -------
    array of shape (n,)
        Their sum over the rows of a source and bin is at most the number of riders.
    """
    chance = walks.chances(walking)
    walkers = np.zeros(len(walks))
    first = np.ones(len(walks), dtype=bool)
    first[1:] = (np.diff(walks.source) != 0) | (np.diff(walks.bin) != 0)
    for low, high in pairwise([*np.flatnonzero(first), len(walks)]):
        if riders[low] > 0:
            going = chance[low:high]
            walkers[low:high] = rng.multinomial(int(riders[low]), [*going, max(1.0 - going.sum(), 0.0)])[:-1]
    return walkers
