"""Records of a system, by station and minute: sorted status, polls, counted trips, and the bins of the panel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from unmet._storage.sql import fetch_all, reading
from unmet.mobility.clock.bins import Bins, Integers, cut_bins, parse_every
from unmet.mobility.panel.options import PanelOptions
from unmet.mobility.panel.period import check_room, find_period
from unmet.mobility.panel.trip_counts import TripCounts, check_resolution, count_trips, trip_span
from unmet.mobility.records.quality import QualityLog
from unmet.mobility.records.read import Records, parse_memory
from unmet.mobility.supply.polls import Polls
from unmet.mobility.supply.status_log import StatusLog, sort_status
from unmet.mobility.zones.build import Zones

__all__ = ["Sources", "read_sources"]


@dataclass(frozen=True)
class Sources:
    """Records by station and minute.

    Attributes
    ----------
    order, group : array
        Stations (``ix``) sorted by zone, and the zone of each.
    bins : Bins
        Bins of the whole period.
    log : StatusLog, optional
        Sorted status.
    polls : Polls, optional
        The polls, if the records contain them.
    trips : TripCounts, optional
        Trips by zone and bin.
    """

    order: Integers
    group: Integers
    bins: Bins
    log: StatusLog | None
    polls: Polls | None
    trips: TripCounts | None

    @property
    def period(self) -> tuple[int, int]:
        """First minute of the bins, and the one behind their last."""
        return int(self.bins.edges[0]), int(self.bins.edges[-1])


def read_sources(
    records: Records, zones: Zones, options: PanelOptions, quality: QualityLog, progress: Callable[[str], None]
) -> Sources:
    """Sort the status, cut the bins and count the trips.

    Parameters
    ----------
    records : Records
        Trips, status or both.
    zones : Zones
        The zones.
    options : PanelOptions
        Options of the panel.
    quality : QualityLog
        Log for trips that are in no zone or bin.
    progress : callable
        Called with a sentence at each step.
    """
    order, group = _stations_by_zone(zones)
    # Files are read again here, and their statistics may not hold: that has no sentence of its own before.
    with reading("the station status"):
        log, polls = _sort_status(records, order, group, options, progress), _polls(records)
    if log is not None and polls is not None:  # until the last poll, the last record held
        log = replace(log, last_minute=max(log.last_minute, int(polls.minutes[-1]) - 1))
    span = trip_span(records.connection) if "trips" in records.tables else None
    every = parse_every(options.every)
    bins = cut_bins(*find_period(log, span, options), every, records.timezone)
    check_room(len(zones), len(bins), records.folder)
    trips = None
    if span is not None:
        progress("counting trips")
        with reading("the trips"):
            trips = count_trips(records.connection, zones, bins, span, records.folder, quality)
        halves = check_resolution(trips.starts, every, trips.used, records.timezone)
        trips = trips if halves else replace(trips, early=None)
    return Sources(order, group, bins, log, polls, trips)


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
