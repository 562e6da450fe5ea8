"""Activity of the whole feed per minute: records, moves, and stations that are closed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from unmet.mobility.clock.bins import DAY, Integers
from unmet.mobility.supply.cadence import HOUR, REGULAR, Cadence, Intervals, looks_with_own_times, pool, usual_intervals
from unmet.mobility.supply.pickups import moves
from unmet.mobility.supply.silence import Feed, StationActivity
from unmet.mobility.supply.states import EMPTY
from unmet.mobility.supply.status_log import StatusLog, StatusRecords

__all__ = ["FeedCounts", "count_feed", "feed_of_trips", "watch_feed"]

# A poll lists nearly every station in each minute that has a record; a change log lists only those that changed.
_POLLED_STATIONS = 0.8
# With one or two stations that criterion does not work. There, only the intervals between records tell them apart.
_FEW_STATIONS = 2
# Stations of a change log may report at nearly equal intervals too, so their intervals must be more regular than looks.
_POLLED_NEAR = 0.75


def watch_feed(
    log: StatusLog,
    trip_minutes: Integers,
    rebalancing: int,
    within: tuple[int, int] | None = None,
    over_parts: Callable[[Callable[[StatusLog], FeedCounts]], Sequence[FeedCounts]] | None = None,
) -> tuple[Feed, StationActivity]:
    """Measure the activity of the feed and of its stations, in one pass.

    Parameters
    ----------
    log : StatusLog
        Sorted records of all stations.
    trip_minutes : array
        Minutes in which a trip started or ended. Vehicles moved then, even if the status does not show it.
    rebalancing : int
        A change of so many vehicles at once is rebalancing.
    within : tuple of int, optional
        Stretch (begin, end) of the panel that trips cover.
    over_parts : callable, optional
        Calls a function on parts of the log and returns the results, in the order of the stations. Default: the
        function is called on the whole log.
    """
    first, last = log.first_minute, log.last_minute
    within = within or (first, last + 1)
    count_part = partial(count_feed, rebalancing=rebalancing, within=within)
    watch, *others = [count_part(log)] if over_parts is None else over_parts(count_part)
    for other in others:
        watch.include(other)
    stations, shut = np.cumsum(watch.appear), np.cumsum(watch.close)
    cadence = watch.cadence(stations)
    moving = _may_have_moved(watch.records, watch.moves, cadence)
    moving[trip_minutes[(trip_minutes >= first) & (trip_minutes <= last)] - first] = True
    feed = Feed(first, watch.records, watch.moves, moving, stations, shut, cadence)
    heard = np.concatenate([[0], np.cumsum(feed.records)])
    of_all = heard[watch.until - first + 1] - heard[watch.since - first]
    share = log.records / np.maximum(of_all - log.records, 1)
    station, begin, end = (np.concatenate([run[i] for run in watch.runs]) for i in range(3))
    moved = (watch.rises, watch.open_minutes, within, watch.falls, watch.open_within)
    return feed, StationActivity(share, watch.since, watch.until, *moved, station, begin, end, cadence.usual)


def feed_of_trips(trip_minutes: Integers) -> Feed:
    """Make the feed of a system without status, in which only moves are known."""
    first, last = int(trip_minutes.min()), int(trip_minutes.max())
    moves = np.bincount(trip_minutes - first).astype(np.int64)
    nothing = np.zeros(last - first + 1, dtype=np.int64)
    hours = -(-len(moves) // HOUR)
    never = np.zeros(hours, dtype=bool)
    return Feed(first, nothing, moves, moves > 0, nothing, nothing, Cadence(np.full(hours, np.inf), never, never))


def _may_have_moved(records: Integers, moves: Integers, cadence: Cadence) -> NDArray[np.bool_]:
    """Return the minutes in which a vehicle may have moved: if a look shows a move, all since the look before it."""
    heard = np.flatnonzero(records)
    before = np.concatenate([heard[:1] - 1, heard[:-1]])
    moved = moves[heard] > 0
    end = heard[moved]
    usual = np.minimum(cadence.at(end), len(records)).astype(np.int64)
    begin = np.minimum(before[moved] + 1, end - usual + 1)
    begin = np.where(cadence.polled_at(end), np.maximum(begin, 0), end)
    steps = np.zeros(len(records) + 1, dtype=np.int64)
    np.add.at(steps, begin, 1)
    np.add.at(steps, end + 1, -1)
    return np.cumsum(steps[:-1]) > 0


def _empty_runs(records: StatusRecords) -> tuple[Integers, Integers, Integers]:
    """Return the stretches in which consecutive records show an open station without a vehicle."""
    empty = records.reason == EMPTY
    begins = np.flatnonzero(empty & (records.is_new | ~np.append(False, empty[:-1])))
    last = np.append(records.is_new[1:], True)
    # A run ends at the station's next record that shows something else, or at its last.
    ends = np.flatnonzero(empty & (last | ~np.append(empty[1:], False)))
    return records.station[begins], records.minute[begins], records.minute[np.where(last[ends], ends, ends + 1)]


def count_feed(log: StatusLog, rebalancing: int, within: tuple[int, int]) -> FeedCounts:
    """Count the records of a log, or of a part of it: see `watch_feed`."""
    counts = FeedCounts(log, rebalancing, within)
    for records in log.blocks():
        counts.add(records)
    return counts


class FeedCounts:
    """Counts per minute and per station, summed over the blocks of a log. Counts of parts of a log can be summed."""

    def __init__(self, log: StatusLog, rebalancing: int, within: tuple[int, int]) -> None:
        first, minutes, stations = log.first_minute, log.last_minute - log.first_minute + 1, len(log.records)
        self.first, self.minutes, self.rebalancing = first, minutes, rebalancing
        self.begin, self.end = (moment - first for moment in within)
        self.records, self.moves, self.listed, self.appear, self.close = (
            np.zeros(minutes, dtype=np.int64) for _ in range(5)
        )
        self.since, self.until = (np.full(stations, first, dtype=np.int64) for _ in range(2))
        self.falls, self.rises, self.open_minutes, self.open_within = (
            np.zeros(stations, dtype=np.int64) for _ in range(4)
        )
        self.runs: list[tuple[Integers, Integers, Integers]] = []
        self.of_stations = Intervals(minutes)
        self.apart = np.zeros(DAY, dtype=np.int64)  # records by the minutes since the last but one of their station

    def add(self, records: StatusRecords) -> None:
        """Add a block of records."""
        minute = records.minute - self.first
        self.records += self._count(minute)
        moved, fall, rise = moves(records)
        self.moves += self._count(minute[1:][moved])
        begins = np.flatnonzero(records.is_new)
        ends = np.append(begins[1:], len(records)) - 1
        self.appear += self._count(minute[begins])
        self.since[records.station[begins]] = records.minute[begins]
        self.until[records.station[ends]] = records.minute[ends]
        shut = ~records.is_open
        was_shut = np.append(False, shut[:-1]) & ~records.is_new
        self.close += self._count(minute[shut & ~was_shut]) - self._count(minute[was_shut & ~shut])
        first_of_minute = records.is_new.copy()
        first_of_minute[1:] |= minute[1:] != minute[:-1]
        self.listed += self._count(minute[first_of_minute])
        again = ~records.is_new[1:]
        length = np.where(again, np.diff(minute), 0)
        inside = (minute[1:] >= self.begin) & (minute[1:] < self.end)
        self.of_stations.add(minute[:-1][again], length[again])
        third = again[1:] & again[:-1]
        self.apart += np.bincount(np.minimum(minute[2:] - minute[:-2], DAY - 1)[third], minlength=DAY)
        for total, some in (
            (self.falls, np.where(moved & inside & (fall > 0) & (fall < self.rebalancing), fall, 0)),
            (self.rises, np.where(moved & (rise > 0) & (rise < self.rebalancing), rise, 0)),
            (self.open_minutes, np.where(shut[:-1], 0, length)),
            (self.open_within, np.where(shut[:-1] | ~inside, 0, length)),
        ):
            total += np.bincount(records.station[1:], some, len(total)).astype(np.int64)
        self.runs.append(_empty_runs(records))

    def include(self, other: FeedCounts) -> None:
        """Add the counts of other stations of the same log, that come after these."""
        for name in (
            "records",
            "moves",
            "listed",
            "appear",
            "close",
            "falls",
            "rises",
            "open_minutes",
            "open_within",
            "apart",
        ):
            total: Integers = getattr(self, name)
            total += getattr(other, name)
        for name in ("since", "until"):  # those of other stations are the first minute of all
            np.maximum(getattr(self, name), getattr(other, name), out=getattr(self, name))
        self.runs += other.runs
        self.of_stations.include(other.of_stations)

    def _count(self, minute: Integers) -> Integers:
        return np.bincount(minute, minlength=self.minutes).astype(np.int64)

    def cadence(self, stations: Integers) -> Cadence:
        """Learn how often the feed is looked at, and whether a look lists every station."""
        heard = np.flatnonzero(self.records)
        looks = Intervals(self.minutes)
        looks.add(heard[:-1], np.diff(heard))
        of_station, near = usual_intervals(self.of_stations)
        by_station = near >= _POLLED_NEAR
        polled = by_station.copy()
        if stations[-1] > _FEW_STATIONS:
            whole = self.listed[heard] >= _POLLED_STATIONS * stations[heard]
            hours = len(polled)
            listed, all_ = (pool(np.bincount(m // HOUR, minlength=hours).astype(float)) for m in (heard[whole], heard))
            polled |= (2 * listed >= all_) & (all_ > 0)
        minutes, near = usual_intervals(looks)
        # Stations may be looked at one after the other: each has its own looks. In a log of changes, quiet nights may
        # look like that.
        by_station &= bool(2 * by_station.mean() > 1)
        minutes = np.where(by_station, np.maximum(of_station, minutes), minutes)
        return Cadence(minutes, (near >= REGULAR) | by_station, polled, looks_with_own_times(self.apart))
