"""From records and zones to the rows of a panel, a block of zones at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmet._exceptions import InputError
from unmet.mobility.clock.bins import DAY, Bins, Minutes, closed_by_hours, cut_bins
from unmet.mobility.panel.trip_counts import TripCounts, count_trips, trip_moves, trip_span
from unmet.mobility.records.quality import QualityLog
from unmet.mobility.records.read import Records
from unmet.mobility.supply.feed_activity import feed_of_trips, watch_feed
from unmet.mobility.supply.netting import net_supply
from unmet.mobility.supply.pickups import find_changes, known_changes
from unmet.mobility.supply.silence import Feed, outside_coverage, silent_stretches, standstills
from unmet.mobility.supply.spells import (
    Override,
    Spells,
    Tally,
    combine_stations,
    count_minutes,
    status_spells,
)
from unmet.mobility.supply.states import FEED_SILENT, HOURS, STANDSTILL, STATES
from unmet.mobility.supply.status_log import Block, StatusLog, sort_status
from unmet.mobility.zones.build import Zones

__all__ = ["EVIDENCE", "Evidence", "gather", "panel_rows", "row_types"]

EVIDENCE = ("none", "trips", "netted", "status", "status+trips")
"""What speaks for a bin: nothing; trips, but nothing tells of supply; trips, with supply netted from them; status
alone, with pickups inferred from it; both."""

NO_STRETCHES = np.empty((0, 2), dtype=np.int64)
_ROWS_AT_ONCE = 2_000_000
_LONGEST_BESIDE = 366 * DAY


@dataclass(frozen=True)
class Evidence:
    """All that is known before zones are looked at one by one.

    Attributes
    ----------
    bins : Bins
        Of the whole period.
    order, group : array
        Stations (``ix``), zone by zone, and the zone of each.
    overrides : list of Override
        Stretches in which the whole system is silent, stands still or is closed by its hours.
    covered : array of bool
        Bins for which the trip files speak.
    log, feed, share
        Sorted status, what the feed does as a whole, each station's usual share of it; None without status.
    trips : TripCounts, optional
        Pickups and returns by zone and bin.
    netted : Spells, optional
        Supply of the stations netted from trips.
    silent : array
        Stretches (begin, end) in which the feed is silent.
    """

    bins: Bins
    zones: int
    order: Minutes
    group: Minutes
    overrides: list[Override]
    covered: NDArray[np.bool_]
    log: StatusLog | None = None
    feed: Feed | None = None
    share: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    trips: TripCounts | None = None
    netted: Spells | None = None
    silent: Minutes = field(default_factory=lambda: NO_STRETCHES)

    @property
    def inferred(self) -> bool:
        """Whether pickups are inferred from status in any bin."""
        return self.log is not None and not bool(self.covered.all())


def gather(
    records: Records,
    zones: Zones,
    stations: pd.DataFrame,
    *,
    every: int,
    period: tuple[int | None, int | None],
    hours: str | None,
    memory: int,
    quality: QualityLog,
    progress: Callable[[str], None],
) -> Evidence:
    """Sort the status, watch the feed as a whole, count the trips and fix the bins.

    Parameters
    ----------
    records : Records
        With trips, status or both.
    zones, stations
        The zones, and the stations that they were made of, in the order of their numbers.
    every : int
        Minutes of a bin.
    period : tuple of int or None
        First minute, and the one behind the last; None for what the records cover.
    hours : str, optional
        Daily opening hours.
    memory : int
        Bytes that sorting may take.
    quality : QualityLog
        For trips that end up in no zone or bin.
    progress : callable
        Called with a sentence at each step.
    """
    order, group = _by_zone(zones)
    log = span = None
    if "status" in records.tables:
        progress("sorting station status")
        rows = _accepted(records, "status")
        log = sort_status(records.connection, order.tolist(), group.tolist(), records.folder, memory, rows, period)
    if "trips" in records.tables:
        span = trip_span(records.connection)
    bins = cut_bins(*_period(log, span, period, records.timezone), every, records.timezone)
    first, last = int(bins.edges[0]), int(bins.edges[-1]) - 1
    trips = netted = None
    holes = np.array([[first, last + 1]])
    if span is not None:
        progress("counting trips")
        trips = count_trips(records.connection, zones, bins, span, records.folder, quality)
        holes = outside_coverage(trips.starts, first, last)
    silent, share = NO_STRETCHES, np.empty(0)
    if log is not None:
        progress("watching the feed as a whole")
        feed, share = watch_feed(log, trips.moves if trips else np.empty(0, dtype=np.int64))
        silent = silent_stretches(feed)
    else:
        assert trips is not None
        feed = feed_of_trips(trips.starts)
        progress("netting supply from trips")
        netted = _net(records, stations, order, holes, first, last)
    still, silent = standstills(feed, silent)
    overrides = [Override(b, e, FEED_SILENT) for b, e in silent.tolist()]
    overrides += [Override(b, e, STANDSTILL) for b, e in still.tolist()]
    if hours is not None:
        shut = closed_by_hours(hours, first, last, records.timezone)
        overrides += [Override(b, e, HOURS) for b, e in shut.tolist()]
    covered = _covered(bins, holes)
    return Evidence(bins, len(zones), order, group, overrides, covered, log, feed, share, trips, netted, silent)


def _accepted(records: Records, source: str) -> int:
    """How many rows of a source were accepted, by what the readers counted."""
    of_source = records.quality[records.quality["source"] == source]
    read = of_source.loc[of_source["reason"] == "read", "rows"].sum()
    return int(read - of_source.loc[of_source["action"] == "rejected", "rows"].sum())


def _by_zone(zones: Zones) -> tuple[Minutes, Minutes]:
    """Stations zone by zone; those in none come last, each for itself."""
    behind = len(zones)
    zone = np.where(zones.of_station >= 0, zones.of_station, behind + np.arange(len(zones.of_station)))
    order = np.argsort(zone, kind="stable")
    return order, zone[order]


def _period(
    log: StatusLog | None, span: tuple[int, int, int] | None, period: tuple[int | None, int | None], timezone: str
) -> tuple[int, int]:
    """First and last minute; refuse a period without records, and one that goes on for more than a year beside them."""
    firsts = ([log.first_minute] if log else []) + ([span[0]] if span else [])
    lasts = ([log.last_minute] if log else []) + ([span[1]] if span else [])
    first = min(firsts) if period[0] is None else period[0]
    last = max(lasts) if period[1] is None else period[1] - 1
    found = f"the records run from {_local(min(firsts), timezone)} to {_local(max(lasts), timezone)} ({timezone})"
    if last < min(firsts) or first > max(lasts):
        raise InputError(f"There is no record in the period that was asked for: {found}. Check --start and --end.")
    if min(firsts) - first > _LONGEST_BESIDE or last - max(lasts) > _LONGEST_BESIDE:
        raise InputError(
            f"The panel would go on for more than a year before or after the records: {found}. Check --start and --end."
        )
    return first, last


def _local(minute: int, timezone: str) -> str:
    return f"{pd.Timestamp(minute * 60, unit='s', tz='UTC').tz_convert(timezone):%Y-%m-%d %H:%M}"


def _covered(bins: Bins, holes: Minutes) -> NDArray[np.bool_]:
    """Whether any minute of a bin is outside every hole."""
    lost = np.zeros(len(bins), dtype=np.int64)
    for begin, end in holes:
        lost += np.clip(np.minimum(end, bins.edges[1:]) - np.maximum(begin, bins.edges[:-1]), 0, None)
    return lost < bins.minutes


def _net(
    records: Records,
    stations: pd.DataFrame,
    order: Minutes,
    holes: Minutes,
    first: int,
    last: int,
) -> Spells:
    capacity = stations["capacity"].to_numpy(dtype=float, na_value=0.0)[order]
    covered = np.concatenate([[first], holes.reshape(-1), [last + 1]]).reshape(-1, 2)
    covered = covered[covered[:, 1] > covered[:, 0]]
    moves = trip_moves(records.connection, order)
    return net_supply(*moves, np.nan_to_num(capacity).astype(np.int64), covered)


def row_types(inferred: bool) -> dict[str, type[np.generic]]:
    """Columns of the panel's rows as numbers; with `inferred`, those of vans too. -1 stands for a missing count."""
    counts = ("observed", "returns", *(("rebalanced_out", "rebalanced_in") if inferred else ()))
    return {
        "zone": np.int32,
        **dict.fromkeys(counts, np.int32),
        **{f"{state}_minutes": np.int16 for state in STATES},  # a bin is no longer than a week
        "supply_mean": np.float64,
        "evidence": np.int8,
    }


def panel_rows(
    evidence: Evidence, rebalancing: int, progress: Callable[[str], None]
) -> Iterator[tuple[dict[str, NDArray[Any]], pd.DataFrame]]:
    """Yield the panel's rows, columns as in `row_types`, zone after zone; and minutes by zone and reason."""
    at_once = max(1, _ROWS_AT_ONCE // len(evidence.bins))
    done = 0
    for zones, spells, moved in _zone_blocks(evidence, rebalancing):
        for begin in range(0, len(zones), at_once):
            some = zones[begin : begin + at_once]
            tally = count_minutes(spells, some, evidence.bins.edges, evidence.overrides)
            yield _rows(evidence, some, tally, moved), _reasons(some, tally)
            done += len(some)
            progress(f"labelling minutes: {done:,} of {evidence.zones:,} zones")


@dataclass(frozen=True)
class _Moved:
    """Vehicles that the status shows as moved: zone (never falling), bin, and how many by kind."""

    zone: Minutes
    bin: Minutes
    columns: dict[str, NDArray[np.int16]]


def _zone_blocks(evidence: Evidence, rebalancing: int) -> Iterator[tuple[Minutes, Spells, _Moved | None]]:
    """Yield every zone once, in order: its spells and its inferred moves."""
    following = 0
    inner = evidence.group < evidence.zones
    many = len(np.unique(evidence.group[inner])) < int(inner.sum())
    if evidence.netted is not None:
        spells = evidence.netted
        yield np.arange(evidence.zones), combine_stations(spells, evidence.group), None
        return
    if evidence.log is not None and evidence.feed is not None:
        for block in evidence.log.blocks():
            spells = status_spells(block, evidence.feed, evidence.share)
            if many:
                spells = combine_stations(spells, evidence.group)
            else:
                spells = Spells(evidence.group[spells.owner], *_rest(spells))
            behind = min(int(evidence.group[block.station[-1]]) + 1, evidence.zones)
            moved = _infer(block, evidence, rebalancing) if evidence.inferred else None
            yield np.arange(following, behind), spells, moved
            following = behind
    if following < evidence.zones:
        nothing = np.empty(0, dtype=np.int64)
        yield (
            np.arange(following, evidence.zones),
            Spells(nothing, nothing, nothing, nothing, np.empty(0)),
            None,
        )


def _rest(spells: Spells) -> tuple[Minutes, Minutes, Minutes, NDArray[np.float64]]:
    return spells.begin, spells.end, spells.reason, spells.supply


def _infer(block: Block, evidence: Evidence, rebalancing: int) -> _Moved:
    assert evidence.log is not None
    assert evidence.feed is not None
    changes = known_changes(find_changes(block, evidence.feed.polled), evidence.feed, evidence.share, evidence.silent)
    bin_ = evidence.bins.of(changes.minute)
    zone = evidence.group[changes.station]
    inside = (bin_ >= 0) & (bin_ < len(evidence.bins)) & (zone < evidence.zones)
    columns = {
        "observed": np.where(changes.fall < rebalancing, changes.fall, 0),
        "returns": np.where(changes.rise < rebalancing, changes.rise, 0),
        "rebalanced_out": np.where(changes.fall >= rebalancing, changes.fall, 0),
        "rebalanced_in": np.where(changes.rise >= rebalancing, changes.rise, 0),
    }
    return _Moved(zone[inside], bin_[inside], {name: values[inside] for name, values in columns.items()})


def _rows(evidence: Evidence, zones: Minutes, tally: Tally, moved: _Moved | None) -> dict[str, NDArray[Any]]:
    bins = evidence.bins
    states = {state: tally.by_state(state) for state in STATES}
    open_ = states["available"] + states["stockout"]
    with np.errstate(invalid="ignore"):
        supply = np.where(open_ > 0, tally.vehicle_minutes / np.maximum(open_, 1), np.nan)
    known = states["unknown"] < bins.minutes
    columns: dict[str, NDArray[Any]] = {
        "zone": np.broadcast_to(zones[:, None], known.shape),
        **_moves(evidence, zones, known, moved),
        **{f"{state}_minutes": minutes for state, minutes in states.items()},
        "supply_mean": supply,
        "evidence": _evidence(evidence, known),
    }
    return columns


def _moves(
    evidence: Evidence, zones: Minutes, known: NDArray[np.bool_], moved: _Moved | None
) -> dict[str, NDArray[np.int32]]:
    """Pickups and returns: from trips where there are any, else inferred where the status is known, else missing."""
    names = ["observed", "returns"] + (["rebalanced_out", "rebalanced_in"] if evidence.inferred else [])
    result = {name: np.full(known.shape, -1, dtype=np.int32) for name in names}
    if evidence.inferred:
        to_infer = known & ~evidence.covered
        for name, table in result.items():
            table[to_infer] = 0 if moved is None else _count_moves(moved, name, zones, evidence.bins)[to_infer]
    if evidence.trips is not None:
        few = slice(int(zones[0]), int(zones[-1]) + 1)
        trips = {"observed": evidence.trips.pickups, "returns": evidence.trips.returns}
        for name, counted in trips.items():
            if counted is not None:
                np.copyto(result[name], counted[few], where=evidence.covered)
    return result


def _count_moves(moved: _Moved, name: str, zones: Minutes, bins: Bins) -> NDArray[np.float64]:
    some = slice(*np.searchsorted(moved.zone, [zones[0], zones[-1] + 1]))
    cell = (moved.zone[some] - zones[0]) * len(bins) + moved.bin[some]
    counts: NDArray[Any] = np.bincount(cell, weights=moved.columns[name][some], minlength=len(zones) * len(bins))
    return counts.reshape(len(zones), len(bins))


def _evidence(evidence: Evidence, known: NDArray[np.bool_]) -> NDArray[np.int8]:
    """Index into `EVIDENCE` for each zone and bin."""
    supply = "netted" if evidence.netted is not None else "status"
    with_trips = "netted" if evidence.netted is not None else "status+trips"
    code = np.where(
        known,
        np.where(evidence.covered, EVIDENCE.index(with_trips), EVIDENCE.index(supply)),
        np.where(evidence.covered, EVIDENCE.index("trips"), EVIDENCE.index("none")),
    )
    return code.astype(np.int8)


def _reasons(zones: Minutes, tally: Tally) -> pd.DataFrame:
    minutes = np.array([of_reason.sum(axis=1) for of_reason in tally.minutes.values()])
    code, row = np.nonzero(minutes)
    codes = np.array(list(tally.minutes))
    return pd.DataFrame({"zone": zones[row], "reason": codes[code], "minutes": minutes[code, row]})
