"""Usable supply for the panel: learnt in a first pass over the records, found block by block in the second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from unmet.mobility.clock.bins import Integers
from unmet.mobility.panel.learnt import Learnt
from unmet.mobility.supply.between import Between, Cancelled, cut_at_looks, learn_between
from unmet.mobility.supply.docks import dock_records
from unmet.mobility.supply.polls import MISSED_POLLS
from unmet.mobility.supply.served import Served, Unusable, find_served
from unmet.mobility.supply.silence import Feed, StationActivity
from unmet.mobility.supply.spells import Override, Spells, plain_spells, status_spells
from unmet.mobility.supply.status_log import StatusLog, StatusRecords
from unmet.mobility.supply.timeline import EARLIEST, Events, Timeline, find_timeline, status_events
from unmet.mobility.supply.usable_learning import UsableSupply, learn_usable
from unmet.mobility.supply.usual_rates import Calendar, make_calendar

__all__ = ["LONGEST_CADENCE", "Supply", "SupplyModel", "Timelines", "bridges_looks", "learn_supply"]

_MOST_RECORDS, _MOST_STATIONS = 1_500_000, 60  # to learn from

LONGEST_CADENCE = 6.0
"""Minutes between two looks at the feed up to which its changes show nearly all pickups."""

_LONGEST = 0.95  # quantile of the usual intervals between looks that is the longest of them

_SOME_HOURS = 0.2  # share of all

_EVERY_MINUTE = 1.5
"""Minutes between two looks up to which pickups are taken one by one from falls; else from what could have happened."""


@dataclass(frozen=True)
class Timelines:
    """All that timelines of stations are made of, beside their status.

    Attributes
    ----------
    feed, activity, silent, closures
        Activity of the feed and of each station, stretches in which the feed is silent or the system closed.
    implausible : array
        Stations that are not believed when they show no vehicle.
    rebalancing : int
        Vehicles at once that a van moves.
    pickups, returns : array
        Sorted trips: station (its place in the order of zones) × 2**32 + second. Empty without trips.
    holes : array
        Stretches (begin, end) that the trip files do not cover.
    period : tuple of int
        First minute of the panel, and the one behind its last.
    by_second : bool
        Whether the clocks of status and trips agree, so that a trip is in a record or not by their seconds. If not, it
        is in all records of its minute.
    """

    feed: Feed
    activity: StationActivity
    silent: Integers
    closures: Integers
    implausible: Integers
    rebalancing: int
    pickups: Integers
    returns: Integers
    holes: Integers
    period: tuple[int, int]
    by_second: bool = False

    @property
    def until(self) -> int:
        """The minute behind the last one of the period with a record."""
        return min(self.period[1], self.feed.last + 1)

    def with_trips(self, pickups: Integers, returns: Integers) -> Timelines:
        """Return these with other trips, such as those of some stations."""
        return replace(self, pickups=pickups, returns=returns)

    def events(self, records: StatusRecords) -> Events:
        """Return what happens at some stations, by their records and trips."""
        events = status_events(
            records,
            self.feed,
            self.activity.feed_share,
            self.silent,
            self.rebalancing,
            self._covered,
            self._ridden,
        )
        if self.by_second:  # what a record shows happened before it
            events = replace(events, moment=events.moment - EARLIEST)
        first, behind = int(records.station[0]), int(records.station[-1]) + 1
        for trips, taken in ((self.pickups, 1), (self.returns, 0)):
            low, high = np.searchsorted(trips, [first << 32, behind << 32])
            some = np.asarray(trips[low:high])
            station, moment = some >> 32, (some & 0xFFFFFFFF) + 1
            one, none = np.ones(len(some), dtype=np.int64), np.zeros(len(some), dtype=np.int64)
            events += Events(station, moment, one * taken, one * (1 - taken), none, none > 0)
        return events

    def find(self, events: Events, spells: Spells, docks: bool = False) -> Timeline:
        """Return the timeline of some stations; of their docks if so: returns take them and pickups bring them."""
        if docks:
            none = np.zeros_like(events.disabled)
            events = replace(events, pickups=events.returned, returned=events.pickups, disabled=none)
        begin, end = self.period
        inside = (spells.end > begin) & (spells.begin < end)
        spells = spells.select(inside)
        return find_timeline(spells if self.by_second else replace(spells, early=None), events)

    def spells(self, records: StatusRecords) -> Spells:
        """Return the spells of some stations."""
        return status_spells(records, self.feed, self.activity, self.silent, self.closures, self.implausible)

    def cut(self, spells: Spells) -> Spells:
        """Cut spells at looks that found no change, where the feed lists only changes; keep those of the period.

        The look that ends the last interval of the period is kept too.
        """
        spells = cut_at_looks(spells, self.feed.cadence, self.feed.first)
        begin, end = self.period
        inside = (spells.end > begin) & (spells.begin < end)
        inside[1:] |= inside[:-1] & (spells.owner[1:] == spells.owner[:-1])
        return spells.select(inside)

    def dock_spells(self, records: StatusRecords) -> Spells:
        """Return the spells of some stations as seen by riders who return."""
        return plain_spells(dock_records(records), self.feed, self.activity.feed_share)

    def _ridden(self, station: Integers, after: Integers, until: Integers) -> Integers:
        return self._net(station, 60 * until) - self._net(station, 60 * after)

    def _net(self, station: Integers, second: Integers) -> Integers:
        """Returns less pickups of all stations up to one, and of that one before a second."""
        moment = station << 32 | second
        net: Integers = np.searchsorted(self.returns, moment) - np.searchsorted(self.pickups, moment)
        return net

    def explained(self, records: StatusRecords) -> tuple[int, int]:
        """Count the records whose change the trips explain by seconds, and by whole minutes, where these differ."""
        same = ~records.is_new[1:] & records.is_open[1:] & records.is_open[:-1]
        change = np.diff(records.available.astype(np.int64) + records.disabled)
        seconds = records.second.astype(np.int64) + records.origin
        exact, rounded = (np.diff(self._net(records.station, s)) for s in (seconds, 60 * records.minute))
        same &= exact != rounded
        return int((same & (change == exact)).sum()), int((same & (change == rounded)).sum())

    def _covered(self, minutes: Integers) -> NDArray[np.bool_]:
        begun = np.searchsorted(self.holes[:, 0], minutes, "right")
        return begun == np.searchsorted(self.holes[:, 1], minutes, "right")


@dataclass(frozen=True)
class Supply:
    """Usable supply of some stations.

    Attributes
    ----------
    vehicles, docks : Served, optional
        Chances to get one. None where every listed one is taken to be usable.
    unusable : Unusable, optional
        Broken vehicles at the end.
    cancelled : Cancelled, optional
        Pickups that the feed cannot show, if its looks are far apart.
    """

    vehicles: Served | None = None
    docks: Served | None = None
    unusable: Unusable | None = None
    cancelled: Cancelled | None = None


@dataclass(frozen=True)
class SupplyModel:
    """Usable supply of a system.

    Attributes
    ----------
    vehicles, docks : UsableSupply
        What was learnt of listed vehicles, and of free docks.
    timelines : Timelines
        What it is found from.
    since : int, optional
        Minute from which on it is found.
    between : Between, optional
        What may happen between two looks, if they do not show single pickups and there are no trips.
    """

    vehicles: UsableSupply
    docks: UsableSupply
    timelines: Timelines
    since: int | None = None
    between: Between | None = None

    def summary(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what was learnt of vehicles and of docks, for the summary of a panel."""
        vehicles, docks = self.vehicles.summary(), self.docks.summary()
        if self.between is None:
            return vehicles, docks
        breaking = self.between.breaking
        parameters = {} if breaking is None else {"breakage": breaking.breakage, "mended": breaking.mended}
        gain = 0.0 if breaking is None else round(breaking.gain, 1)
        curves, dock_curves = (
            {} if worth is None else worth.summary() for worth in (self.between.vehicles, self.between.docks)
        )
        return (
            vehicles | {"method": "between", "parameters": parameters, "log_likelihood_gain": gain} | curves,
            docks | {"method": "between", "parameters": {}} | dock_curves,
        )

    def served(self, records: StatusRecords, spells: Spells, dock_spells: Spells) -> Supply:
        """Return the chances to get a vehicle and a dock where the feed does not show them, and broken vehicles."""
        until = self.timelines.until
        if self.between is not None:
            spells, dock_spells = (self.timelines.cut(some) for some in (spells, dock_spells))
            activity = self.between.activity(spells)
            vehicles, cancelled, broken = self.between.served(spells, activity, until)
            return Supply(vehicles, self.between.docked(dock_spells, activity), broken, cancelled)
        if self.vehicles.is_as_listed and self.docks.is_as_listed:
            return Supply()
        served = docked = unusable = None
        events = self.timelines.events(records)
        if not self.vehicles.is_as_listed:
            served, unusable = find_served(self.vehicles, self.timelines.find(events, spells), until, self.since)
        if not self.docks.is_as_listed:
            timeline = self.timelines.find(events, dock_spells, docks=True)
            docked, _ = find_served(self.docks, timeline, until, self.since)
        return Supply(served, docked, unusable)


def bridges_looks(feed: Feed, trips: bool) -> bool:
    """Return whether supply and pickups follow from what could have happened between two looks.

    That is so without trips, if looks are usually so far apart that they do not show every pickup, or at some hours so
    far that they show few. A feed that was looked at once has no looks to go between.
    """
    cadence = feed.cadence
    if np.isinf(cadence.looks):
        return False
    rare = float(np.mean(cadence.apart > LONGEST_CADENCE))
    return not trips and (cadence.looks > _EVERY_MINUTE or rare > _SOME_HOURS)


def learn_supply(
    source: Timelines, log: StatusLog, overrides: list[Override], timezone: str, learnt: Learnt | None = None
) -> SupplyModel:
    """Learn the usable supply of a system from some of its stations.

    Parameters
    ----------
    source : Timelines
        Feed and trips.
    log : StatusLog
        Sorted status.
    overrides : list of Override
        Stretches in which the whole system is closed or its feed silent.
    timezone : str
        Time zone of the system.
    learnt : Learnt, optional
        What an earlier panel has learnt: its parameters are used, for the last days only.
    """
    if len(source.pickups):
        exact, rounded = np.sum([source.explained(records) for records in _chosen(log)], axis=0)
        source = replace(source, by_second=bool(exact > rounded))
    calendar = _calendar(source, overrides, timezone)
    cadence = source.feed.cadence
    between = None
    if bridges_looks(source.feed, len(source.pickups) > 0):
        spells, dock_spells = (source.cut(some) for some in _sample_spells(source, log))
        longest = MISSED_POLLS * float(np.quantile(cadence.apart[cadence.apart > 0], _LONGEST))
        between = learn_between(spells, dock_spells, calendar, source.rebalancing, longest)
    often = between is None and cadence.looks <= LONGEST_CADENCE
    kept = (None, None) if learnt is None else (learnt.vehicles, learnt.docks)
    vehicles, docks = (
        learn_usable(timeline, calendar, enough=often or len(trips) > 0, trips=len(trips) > 0, kept=before)
        for timeline, trips, before in zip(_sample(source, log), (source.pickups, source.returns), kept, strict=True)
    )
    since = None if learnt is None else learnt.warm
    return SupplyModel(vehicles, docks, source, since, between)


def _calendar(source: Timelines, overrides: list[Override], timezone: str) -> Calendar:
    shut = np.array([[o.begin, o.end] for o in overrides], dtype=np.int64).reshape(-1, 2)
    return make_calendar(source.period[0], source.period[1] - 1, timezone, shut)


def _chosen(log: StatusLog) -> Iterator[StatusRecords]:
    """The records of some stations, evenly spread over all that have any."""
    heard = np.flatnonzero(log.records)
    fit = _MOST_RECORDS * len(heard) // int(log.records.sum())
    number = min(max(fit, 1), len(heard), _MOST_STATIONS)
    return log.of_stations(heard[np.arange(number) * len(heard) // number])


def _sample_spells(source: Timelines, log: StatusLog) -> tuple[Spells, Spells]:
    """The spells of some stations and of their docks, by whole minutes."""
    vehicles, docks = zip(*((source.spells(some), source.dock_spells(some)) for some in _chosen(log)), strict=True)
    return _joined(Spells, [replace(some, early=None) for some in vehicles]), _joined(Spells, list(docks))


def _sample(source: Timelines, log: StatusLog) -> tuple[Timeline, Timeline]:
    """The timelines of some stations and of their docks."""
    vehicles, docks = [], []
    for records in _chosen(log):
        events = source.events(records)
        vehicles.append(source.find(events, source.spells(records)))
        docks.append(source.find(events, source.dock_spells(records), docks=True))
    return _joined(Timeline, vehicles), _joined(Timeline, docks)


_Rows = TypeVar("_Rows", Spells, Timeline)


def _joined(kind: type[_Rows], parts: Sequence[_Rows]) -> _Rows:
    names = [f.name for f in fields(kind) if getattr(parts[0], f.name) is not None]
    return kind(**{name: np.concatenate([getattr(p, name) for p in parts]) for name in names})
