"""Evidence for a panel: that of the whole system, which is small, and the records of single zones.

The evidence of the system goes to every worker. Records are cut by groups of zones (`unmet.mobility.panel.groups`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmet.mobility.clock.bins import Bins, Integers
from unmet.mobility.panel.activity import NO_STRETCHES, Activity, Pauses, find_pauses, watch_status, watch_trips
from unmet.mobility.panel.clocks import check_clocks
from unmet.mobility.panel.groups import Workers, ZoneGroups, make_groups
from unmet.mobility.panel.learnt import Learnt
from unmet.mobility.panel.options import PanelOptions
from unmet.mobility.panel.period import local_time
from unmet.mobility.panel.plausibility import (
    Implausible,
    disbelieved_stations,
    find_implausible,
    kept_zones,
    mark_carried,
    with_own_silences,
)
from unmet.mobility.panel.sources import Sources, read_sources
from unmet.mobility.panel.trip_counts import (
    TripCounts,
    incomplete_trips,
    station_events,
    trip_moves,
)
from unmet.mobility.panel.usable import SupplyModel, Timelines, learn_supply
from unmet.mobility.records.quality import QualityLog
from unmet.mobility.records.read import Records
from unmet.mobility.supply.coverage import covered_bins
from unmet.mobility.supply.netting import Moves
from unmet.mobility.supply.silence import Feed, StationActivity
from unmet.mobility.supply.spells import Override
from unmet.mobility.supply.status_log import StatusLog
from unmet.mobility.zones.build import Zones

__all__ = ["Evidence", "ZoneRecords", "gather"]

_NO_EVENTS = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
# Share of trips without a known end, or of vehicles that leave stations and do not come back. In one simulated city
# lost riders of supply netted from the other trips were 0.77 of those with all ends at this share, and 0.51 at twice it
# (in the five of six zones that could be estimated there).
_MOST_INCOMPLETE = 0.05
_HERE = Workers()


@dataclass(frozen=True)
class Evidence:
    """Evidence of the whole system, without the records of zones.

    Attributes
    ----------
    bins : Bins
        Bins of the whole period.
    zones : int
        Number of zones.
    order, group : array
        Stations (``ix``) sorted by zone, and the zone of each.
    overrides : list of Override
        Stretches in which the whole system is silent, stands still or is outside its opening hours.
    covered : array of bool
        Bins that the trip files cover.
    feed : Feed
        Activity of the whole feed, or of the trips.
    activity : StationActivity, optional
        Activity of each station, by its status. None without status.
    trips_used : int, optional
        Trips that start in a zone and a bin. None without trips.
    duplicates : int
        Status records that were left out because a later one has the same station and second.
    repeats : int
        Likewise, of the same content.
    silent : array
        Stretches (begin, end) in which the feed is silent, or looked at too rarely to infer pickups.
    closures : array
        Stretches (begin, end) in which the whole system stands still.
    missing : array
        Stretches (begin, end) without trips that the status does not explain.
    supply : SupplyModel, optional
        Usable supply, without trips. None if every listed vehicle and dock is taken to be usable.
    implausible : list of Implausible
        Stations whose records contradict each other, in zones that are not kept.
    learnt : Learnt, optional
        What is kept of an earlier panel.
    incomplete : float, optional
        Share of trips by which moves at stations do not balance, if it is too large to net supply.
    """

    bins: Bins
    zones: int
    order: Integers
    group: Integers
    overrides: list[Override]
    covered: NDArray[np.bool_]
    feed: Feed
    activity: StationActivity | None = None
    trips_used: int | None = None
    duplicates: int = 0
    repeats: int = 0
    silent: Integers = field(default_factory=lambda: NO_STRETCHES)
    closures: Integers = field(default_factory=lambda: NO_STRETCHES)
    missing: Integers = field(default_factory=lambda: NO_STRETCHES)
    supply: SupplyModel | None = None
    implausible: list[Implausible] = field(default_factory=list)
    learnt: Learnt | None = None
    incomplete: float | None = None

    @property
    def inferred(self) -> bool:
        """Whether pickups are inferred from status in any bin."""
        return self.activity is not None and not bool(self.covered.all())


@dataclass(frozen=True)
class ZoneRecords:
    """Records of consecutive zones.

    Attributes
    ----------
    begin, end : int
        The first zone, and the one behind the last.
    log : StatusLog, optional
        Sorted status of their stations.
    trips : TripCounts, optional
        Pickups and returns by zone and bin.
    moves : Moves, optional
        Moves at their stations, from which supply is netted. None with status.
    pickups, returns : array
        Trips at their stations, as `unmet.mobility.panel.trip_counts.station_events` gives them.
    """

    begin: int
    end: int
    log: StatusLog | None
    trips: TripCounts | None
    moves: Moves | None
    pickups: Integers
    returns: Integers

    def of_group(self, groups: ZoneGroups, number: int) -> ZoneRecords:
        """Return the records of one of several groups."""
        zones, stations = groups.zones_of(number), groups.stations_of(number)
        pickups, returns = (
            np.array(trips[slice(*np.searchsorted(trips, [stations[0] << 32, stations[1] << 32]))])
            for trips in (self.pickups, self.returns)
        )
        return ZoneRecords(
            *zones,
            None if self.log is None else self.log.cut(*stations),
            None if self.trips is None else self.trips.cut(*zones),
            None if self.moves is None else self.moves.cut(*stations),
            pickups,
            returns,
        )


def gather(
    records: Records,
    zones: Zones,
    stations: pd.DataFrame,
    options: PanelOptions,
    quality: QualityLog,
    progress: Callable[[str], None],
    learnt: Learnt | None = None,
    workers: Workers = _HERE,
) -> tuple[Evidence, ZoneRecords, ZoneGroups]:
    """Sort the status, measure the activity of the feed, count the trips and cut the bins.

    Parameters
    ----------
    records : Records
        Trips, status or both.
    zones, stations
        The zones, and the stations they are made of, in the order of their numbers.
    options : PanelOptions
        Options of the panel.
    quality : QualityLog
        Log for trips that are in no zone or bin.
    progress : callable
        Called with a sentence at each step.
    learnt : Learnt, optional
        What an earlier panel of the same system has learnt. It is used if this panel continues that one.
    workers : Workers
        Where groups of zones are worked on.

    Returns
    -------
    evidence, records, groups
        Evidence of the system, records of all zones, and the groups of zones to work on.
    """
    sources = read_sources(records, zones, options, quality, progress)
    log, trips, group, period = sources.log, sources.trips, sources.group, sources.period
    learnt = None if learnt is None or not learnt.fits(sources.bins, zones.frame) else learnt
    moves = incomplete = None
    if log is not None:
        progress("measuring the activity of the feed")
        groups = make_groups(workers, len(zones), group, log.records)
        activity = watch_status(log, sources.polls, trips, period, options.rebalancing, groups)
    else:
        assert trips is not None
        activity = watch_trips(trips, period)
        progress("netting supply from trips")
        moves, incomplete = _moves(records, stations, sources.order, activity.holes, period, quality)
        groups = make_groups(workers, len(zones), group, np.bincount(moves.station, minlength=len(group)))
    pauses = find_pauses(activity, options, period, records.timezone)
    supply, implausible, events = None, [], _NO_EVENTS
    if log is not None and activity.stations is not None:
        events = _station_trips(records, sources.order, activity, options)
        status = _Status(log, activity, activity.stations, pauses, *events)
        implausible = _find_implausible(status, group, zones, options)
        if options.supply == "usable":
            supply = _learn_supply(status, implausible, period, options, learnt, progress)
    evidence = _evidence(sources, len(zones), activity, pauses, supply, implausible, learnt, incomplete, quality)
    return evidence, ZoneRecords(0, len(zones), log, trips, moves, *events), groups


@dataclass(frozen=True)
class _Status:
    """Sorted status, what is known of the whole feed, and the trips at its stations (sorted; empty without trips)."""

    log: StatusLog
    activity: Activity
    stations: StationActivity
    pauses: Pauses
    pickups: Integers
    returns: Integers


def _station_trips(
    records: Records, order: Integers, activity: Activity, options: PanelOptions
) -> tuple[Integers, Integers]:
    """Return the pickups and the returns at stations, and refuse clocks that differ from those of the status."""
    if not activity.has_trips:
        return _NO_EVENTS
    pickups, returns = station_events(records.connection, order, records.folder)
    if not options.force:
        check_clocks(activity.feed, pickups, returns, options.timezone)
    return pickups, returns


def _find_implausible(status: _Status, group: Integers, zones: Zones, options: PanelOptions) -> list[Implausible]:
    """Find the stations whose records contradict each other, in zones that are not kept."""
    kept = kept_zones(options.keep, zones.frame)
    activity, rest = status.stations, (status.pickups, status.returns, status.pauses.silent)
    found = find_implausible(activity, *rest)
    found = find_implausible(with_own_silences(activity, found, status.log, status.activity.feed), *rest)
    found = [one for one in found if not _is_kept(one, group, zones, kept)]
    return mark_carried(found, group, activity, status.pickups)


def _learn_supply(
    status: _Status,
    implausible: list[Implausible],
    period: tuple[int, int],
    options: PanelOptions,
    learnt: Learnt | None,
    progress: Callable[[str], None],
) -> SupplyModel:
    """Learn the usable supply. Trips are left out of the result: those of each group of zones are sent with it."""
    source = Timelines(
        status.activity.feed,
        status.stations,
        status.pauses.silent,
        status.pauses.closures,
        disbelieved_stations(implausible),
        options.rebalancing,
        status.pickups,
        status.returns,
        status.activity.holes,
        period,
    )
    if learnt is None:
        progress("learning which listed vehicles and docks can be used")
    else:
        progress(f"listed vehicles as learnt until {local_time(learnt.end, options.timezone)}")
    supply = learn_supply(source, status.log, status.pauses.overrides, options.timezone, learnt)
    return replace(supply, timelines=supply.timelines.with_trips(*_NO_EVENTS))


def _evidence(
    sources: Sources,
    zones: int,
    activity: Activity,
    pauses: Pauses,
    supply: SupplyModel | None,
    implausible: list[Implausible],
    learnt: Learnt | None,
    incomplete: float | None,
    quality: QualityLog,
) -> Evidence:
    log, trips = sources.log, sources.trips
    return Evidence(
        bins=sources.bins,
        zones=zones,
        order=sources.order,
        group=sources.group,
        overrides=pauses.overrides,
        covered=_covered(sources, activity, quality),
        feed=activity.feed,
        activity=activity.stations,
        trips_used=None if trips is None else trips.used,
        duplicates=0 if log is None else log.duplicates,
        repeats=0 if log is None else log.repeats,
        silent=pauses.silent,
        closures=pauses.closures,
        missing=activity.missing,
        supply=supply,
        implausible=implausible,
        learnt=learnt if supply is not None else None,
        incomplete=incomplete,
    )


def _is_kept(one: Implausible, group: Integers, zones: Zones, kept: set[str]) -> bool:
    zone = int(group[one.place])
    return zone >= len(zones) or str(zones.frame["zone"].iloc[zone]) in kept


def _covered(sources: Sources, activity: Activity, quality: QualityLog) -> NDArray[np.bool_]:
    """Return which bins the trips cover, and count the trips of those that they cover in part."""
    if sources.log is None:
        return covered_bins(sources.bins, activity.holes)[0]
    covered, partly = covered_bins(sources.bins, activity.holes, activity.feed)
    if sources.trips is not None and partly.any():
        some = int(sources.trips.pickups[:, partly].sum())
        quality.add("trips", "part of a bin without trip files", "noted", some, "its pickups are inferred instead")
    return covered


def _moves(
    records: Records,
    stations: pd.DataFrame,
    order: Integers,
    holes: Integers,
    period: tuple[int, int],
    quality: QualityLog,
) -> tuple[Moves, float | None]:
    """Return the moves to net, and the share by which they do not balance if no supply can be netted for it."""
    incomplete, share = incomplete_trips(records.connection)
    quality.add("trips", "an end is not known", "noted", incomplete, "counted, but supply is not computed from them")
    believed = share <= _MOST_INCOMPLETE
    capacity = stations["capacity"].to_numpy(dtype=float, na_value=0.0)[order] * believed  # 0: undetermined
    covered = np.concatenate([[period[0]], holes.reshape(-1), [period[1]]]).reshape(-1, 2)
    covered = covered[covered[:, 1] > covered[:, 0]]
    moves = trip_moves(records.connection, order)
    return Moves(*moves, np.nan_to_num(capacity).astype(np.int64), covered), None if believed else share
