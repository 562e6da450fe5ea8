"""Usable supply for the panel: learnt in a first pass over the records, found block by block in the second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from unmet.mobility.clock.bins import Integers
from unmet.mobility.panel.options import PanelOptions
from unmet.mobility.panel.trip_counts import station_events
from unmet.mobility.records.read import Records
from unmet.mobility.supply.served import Served, Unusable, find_served
from unmet.mobility.supply.silence import Feed
from unmet.mobility.supply.spells import Override, Spells, status_spells
from unmet.mobility.supply.status_log import StatusLog, StatusRecords
from unmet.mobility.supply.timeline import Events, Timeline, find_timeline, status_events
from unmet.mobility.supply.usable_learning import UsableSupply, learn_usable
from unmet.mobility.supply.usual_rates import make_calendar

__all__ = ["SupplyModel", "learn_supply"]

_MOST_RECORDS, _MOST_STATIONS = 1_500_000, 60  # to learn from

_LONGEST_CADENCE = 6.0
"""Minutes between two looks at the feed up to which its changes show single pickups."""


@dataclass(frozen=True)
class SupplyModel:
    """Usable supply of a system, with the records that it is found from.

    Attributes
    ----------
    usable : UsableSupply
        What was learnt.
    feed, feed_share, silent
        Activity of the feed, share of each station in it, stretches in which it is silent.
    rebalancing : int
        Vehicles at once that a van moves.
    pickups, returns : array
        Sorted trips: station (its place in the order of zones) × 2**32 + minute. Empty without trips.
    holes : array
        Stretches (begin, end) that the trip files do not cover.
    period : tuple of int
        First minute of the panel, and the one behind its last.
    """

    usable: UsableSupply | None
    feed: Feed
    feed_share: NDArray[np.float64]
    silent: Integers
    rebalancing: int
    pickups: Integers
    returns: Integers
    holes: Integers
    period: tuple[int, int]

    def timeline(self, records: StatusRecords, spells: Spells) -> Timeline:
        """Return the timeline of some stations, from their records and trips."""
        events = status_events(records, self.feed, self.feed_share, self.silent, self.rebalancing, self._covered)
        first, behind = int(records.station[0]), int(records.station[-1]) + 1
        for trips, taken in ((self.pickups, 1), (self.returns, 0)):
            low, high = np.searchsorted(trips, [first << 32, behind << 32])
            some = np.asarray(trips[low:high])
            station, minute = some >> 32, (some & 0xFFFFFFFF) + 1
            one, none = np.ones(len(some), dtype=np.int64), np.zeros(len(some), dtype=np.int64)
            events += Events(station, minute, one * taken, one * (1 - taken), none, none > 0)
        begin, end = self.period
        inside = (spells.end > begin) & (spells.begin < end)
        return find_timeline(Spells(*(getattr(spells, f.name)[inside] for f in fields(spells))), events)

    def served(self, records: StatusRecords, spells: Spells) -> tuple[Served, Unusable | None]:
        """Return the chance to be served of some stations, where it is not what the feed shows."""
        assert self.usable is not None
        return find_served(self.usable, self.timeline(records, spells))

    def _covered(self, minutes: Integers) -> NDArray[np.bool_]:
        inside = np.searchsorted(self.holes[:, 0], minutes, "right") > np.searchsorted(
            self.holes[:, 1], minutes, "right"
        )
        return ~inside


def learn_supply(
    source: Records,
    log: StatusLog,
    feed: Feed,
    feed_share: NDArray[np.float64],
    silent: Integers,
    overrides: list[Override],
    order: Integers,
    holes: Integers | None,
    period: tuple[int, int],
    options: PanelOptions,
    progress: Callable[[str], None],
) -> SupplyModel:
    """Learn the usable supply of a system.

    Parameters
    ----------
    source : Records
        Has the trips.
    log, feed, feed_share, silent, overrides
        Sorted status and the activity of the feed.
    order : array
        Stations (``ix``), as in `log`.
    holes : array, optional
        Stretches (begin, end) that the trip files do not cover; None without trips.
    period : tuple of int
        First minute of the panel, and the one behind its last.
    options : PanelOptions
        Options of the panel.
    progress : callable
        Called with a sentence at each step.
    """
    progress("learning which listed vehicles can be rented")
    if holes is None:
        nothing = np.empty(0, dtype=np.int64)
        pickups, returns, holes = nothing, nothing, np.array([period])
    else:
        pickups, returns = station_events(source.connection, order, source.folder)
    model = SupplyModel(None, feed, feed_share, silent, options.rebalancing, pickups, returns, holes, period)
    shut = np.array([[o.begin, o.end] for o in overrides], dtype=np.int64).reshape(-1, 2)
    calendar = make_calendar(period[0], period[1] - 1, source.timezone, shut)
    trips = len(pickups) > 0
    enough = trips or _cadence(feed) <= _LONGEST_CADENCE
    usable = learn_usable(_sample(model, log), calendar, enough=enough, trips=trips)
    return replace(model, usable=usable)


def _sample(model: SupplyModel, log: StatusLog) -> Timeline:
    """The timeline of some stations, evenly spread over all that have records."""
    heard = np.flatnonzero(log.records)
    fit = _MOST_RECORDS * len(heard) // int(log.records.sum())
    number = min(max(fit, 1), len(heard), _MOST_STATIONS)
    parts = [
        model.timeline(records, status_spells(records, model.feed, model.feed_share))
        for records in log.of_stations(heard[np.arange(number) * len(heard) // number])
    ]
    return Timeline(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Timeline)))


def _cadence(feed: Feed) -> float:
    """Minutes between two looks at the feed: the median gap between minutes with a record, among busy ones."""
    gaps = np.diff(np.flatnonzero(feed.records))
    return float(np.median(gaps)) if len(gaps) else np.inf
