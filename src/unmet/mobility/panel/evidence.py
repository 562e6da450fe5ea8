"""Evidence for a panel: that of the whole system, which is small, and the records of single zones.

The evidence of the system goes to every worker. Records are cut by groups of zones (`unmet.mobility.panel.groups`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmet._storage.sql import fetch_all
from unmet.mobility.clock.bins import Bins, Integers, cut_bins, parse_every
from unmet.mobility.panel.clocks import check_clocks
from unmet.mobility.panel.groups import Workers, ZoneGroups, make_groups
from unmet.mobility.panel.learnt import Learnt
from unmet.mobility.panel.options import PanelOptions
from unmet.mobility.panel.period import check_room, find_period, local_time
from unmet.mobility.panel.plausibility import (
    Implausible,
    disbelieved_stations,
    find_implausible,
    kept_zones,
    mark_carried,
    with_own_silences,
)
from unmet.mobility.panel.trip_counts import (
    TripCounts,
    check_resolution,
    count_trips,
    incomplete_trips,
    station_events,
    trip_moves,
    trip_span,
)
from unmet.mobility.panel.usable import SupplyModel, Timelines, bridges_looks, learn_supply
from unmet.mobility.records.opening import read_opening_hours
from unmet.mobility.records.quality import QualityLog
from unmet.mobility.records.read import Records, parse_memory
from unmet.mobility.supply.coverage import covered_bins, missing_trips, outside_coverage
from unmet.mobility.supply.feed_activity import FeedCounts, feed_of_trips, watch_feed
from unmet.mobility.supply.netting import Moves
from unmet.mobility.supply.polls import Polls
from unmet.mobility.supply.silence import (
    Feed,
    StationActivity,
    far_apart,
    join,
    repeat_daily,
    silent_stretches,
    standstills,
)
from unmet.mobility.supply.spells import Override
from unmet.mobility.supply.states import FAR_APART, FEED_SILENT, OUTSIDE_HOURS, STANDSTILL
from unmet.mobility.supply.status_log import StatusLog, sort_status
from unmet.mobility.zones.build import Zones

__all__ = ["Evidence", "ZoneRecords", "gather"]

NO_STRETCHES = np.empty((0, 2), dtype=np.int64)
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
    order, group = _stations_by_zone(zones)
    log, polls = _sort_status(records, order, group, options, progress), _polls(records)
    if log is not None and polls is not None:  # until the last poll, the last record held
        log = replace(log, last_minute=max(log.last_minute, int(polls.minutes[-1]) - 1))
    span = trip_span(records.connection) if "trips" in records.tables else None
    bins = cut_bins(*find_period(log, span, options), parse_every(options.every), records.timezone)
    check_room(len(zones), len(bins), records.folder)
    learnt = None if learnt is None or not learnt.fits(bins, zones.frame) else learnt
    first, last = int(bins.edges[0]), int(bins.edges[-1]) - 1
    trips = moves = None
    holes = np.array([[first, last + 1]])
    if span is not None:
        progress("counting trips")
        trips = count_trips(records.connection, zones, bins, span, records.folder, quality)
        halves = check_resolution(trips.starts, parse_every(options.every), trips.used, records.timezone)
        trips = trips if halves else replace(trips, early=None)
        holes = outside_coverage(trips.starts, first, last)
    silent = missing = NO_STRETCHES
    activity = incomplete = None
    if log is not None:
        progress("measuring the activity of the feed")
        groups = make_groups(workers, len(zones), group, log.records)
        moving = trips.moves if trips else np.empty(0, dtype=np.int64)
        both = None
        if trips is not None and len(trips.starts):
            both = max(first, int(trips.starts[0])), min(last, int(trips.starts[-1])) + 1
        feed, activity = watch_feed(log, moving, options.rebalancing, both, partial(_over_parts, log, groups))
        feed = replace(feed, polls=polls)
        silent = silent_stretches(feed)
        if trips is not None:
            missing = missing_trips(trips.starts, feed, silent)
            holes = np.concatenate([holes, missing])
            holes = join(holes[np.argsort(holes[:, 0], kind="stable")], 1)
        covered, partly = covered_bins(bins, holes, feed)
        if trips is not None and partly.any():
            some = int(trips.pickups[:, partly].sum())
            quality.add("trips", "part of a bin without trip files", "noted", some, "its pickups are inferred instead")
    else:
        covered, _ = covered_bins(bins, holes)
        assert trips is not None
        feed = feed_of_trips(trips.starts)
        progress("netting supply from trips")
        moves, incomplete = _moves(records, stations, order, holes, first, last, quality)
        groups = make_groups(workers, len(zones), group, np.bincount(moves.station, minlength=len(group)))
    still, silent = standstills(feed, silent)
    reason = np.where(repeat_daily(silent, feed), FAR_APART, FEED_SILENT)  # a gap that repeats is no outage
    overrides = [Override(b, e, r) for (b, e), r in zip(silent.tolist(), reason.tolist(), strict=True)]
    overrides += [Override(b, e, STANDSTILL) for b, e in still.tolist()]
    if log is not None:
        apart = far_apart(feed, holes, options.supply == "usable" and bridges_looks(feed, span is not None))
        overrides += [Override(b, e, FAR_APART) for b, e in apart.tolist()]
        silent = np.concatenate([silent, apart])
        silent = join(silent[np.argsort(silent[:, 0], kind="stable")], 1)
    if options.hours is not None:
        shut = read_opening_hours(options.hours).closed(first, last, records.timezone)
        overrides += [Override(b, e, OUTSIDE_HOURS) for b, e in shut.tolist()]
    supply, found = None, []
    nothing = np.empty(0, dtype=np.int64)
    events = nothing, nothing
    if log is not None and activity is not None:
        if span is not None:
            events = station_events(records.connection, order, records.folder)
            if not options.force:
                check_clocks(feed, *events, options.timezone)
        kept = kept_zones(options.keep, zones.frame)
        found = find_implausible(activity, *events, silent)
        found = find_implausible(with_own_silences(activity, found, log, feed), *events, silent)
        found = [one for one in found if not _is_kept(one, group, zones, kept)]
        found = mark_carried(found, group, activity, events[0])
        if options.supply == "usable":
            source = Timelines(
                feed,
                activity,
                silent,
                still,
                disbelieved_stations(found),
                options.rebalancing,
                *events,
                np.array([[first, last + 1]]) if span is None else holes,
                (first, last + 1),
            )
            if learnt is None:
                progress("learning which listed vehicles and docks can be used")
            else:
                progress(f"listed vehicles as learnt until {local_time(learnt.end, options.timezone)}")
            supply = learn_supply(source, log, overrides, options.timezone, learnt)
            supply = replace(supply, timelines=supply.timelines.with_trips(nothing, nothing))
    of_zones = ZoneRecords(0, len(zones), log, trips, moves, *events)
    evidence = Evidence(
        bins=bins,
        zones=len(zones),
        order=order,
        group=group,
        overrides=overrides,
        covered=covered,
        feed=feed,
        activity=activity,
        trips_used=None if trips is None else trips.used,
        duplicates=0 if log is None else log.duplicates,
        repeats=0 if log is None else log.repeats,
        silent=silent,
        closures=still,
        missing=missing,
        supply=supply,
        implausible=found,
        learnt=learnt if supply is not None else None,
        incomplete=incomplete,
    )
    return evidence, of_zones, groups


def _over_parts(log: StatusLog, groups: ZoneGroups, count: Callable[[StatusLog], FeedCounts]) -> Sequence[FeedCounts]:
    """Count the records of each group, in the order of the groups; or all in this process.

    Counts per minute are large: with fewer records than minutes, counting is faster than sending the counts.
    """
    if len(groups) == 1 or log.records.sum() < len(groups) * (log.last_minute - log.first_minute):
        return [count(log)]
    found = dict(groups.each(count, lambda number: log.cut(*groups.stations_of(number))))
    return [found[number] for number in range(len(groups))]


def _is_kept(one: Implausible, group: Integers, zones: Zones, kept: set[str]) -> bool:
    zone = int(group[one.place])
    return zone >= len(zones) or str(zones.frame["zone"].iloc[zone]) in kept


def _stations_by_zone(zones: Zones) -> tuple[Integers, Integers]:
    """Sort stations by zone. Stations in no zone come last, each in a group of its own."""
    behind = len(zones)
    zone = np.where(zones.of_station >= 0, zones.of_station, behind + np.arange(len(zones.of_station)))
    order = np.argsort(zone, kind="stable")
    return order, zone[order]


def _sort_status(
    records: Records, order: Integers, group: Integers, options: PanelOptions, progress: Callable[[str], None]
) -> StatusLog | None:
    if "status" not in records.tables:
        return None
    progress("sorting station status")
    findings = records.quality[records.quality["source"] == "status"]
    read = findings.loc[findings["reason"] == "read", "rows"].sum()
    accepted = int(read - findings.loc[findings["action"] == "rejected", "rows"].sum())
    return sort_status(
        records.connection,
        order.tolist(),
        group.tolist(),
        records.folder,
        parse_memory(options.memory),
        accepted,
        options.period(),
        docks_of_capacity=options.vehicle_type is None,
    )


def _polls(records: Records) -> Polls | None:
    """Return the polls, if the records contain them; in the minutes from which what they saw is in force."""
    if "polls" not in records.tables:
        return None
    minute = '(epoch_us("at") + 59_999_999) // 60_000_000'
    rows = fetch_all(records.connection, f"SELECT {minute} AS m, bool_or(fresh) FROM polls GROUP BY m ORDER BY m")
    if not rows:
        return None
    minutes, fresh = (np.array([row[i] for row in rows], dtype=np.int64) for i in range(2))
    return Polls(minutes, minutes[fresh == 1])


def _moves(
    records: Records,
    stations: pd.DataFrame,
    order: Integers,
    holes: Integers,
    first: int,
    last: int,
    quality: QualityLog,
) -> tuple[Moves, float | None]:
    """Return the moves to net, and the share by which they do not balance if no supply can be netted for it."""
    incomplete, share = incomplete_trips(records.connection)
    quality.add("trips", "an end is not known", "noted", incomplete, "counted, but supply is not computed from them")
    believed = share <= _MOST_INCOMPLETE
    capacity = stations["capacity"].to_numpy(dtype=float, na_value=0.0)[order] * believed  # 0: undetermined
    covered = np.concatenate([[first], holes.reshape(-1), [last + 1]]).reshape(-1, 2)
    covered = covered[covered[:, 1] > covered[:, 0]]
    moves = trip_moves(records.connection, order)
    return Moves(*moves, np.nan_to_num(capacity).astype(np.int64), covered), None if believed else share
