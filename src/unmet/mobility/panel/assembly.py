"""Rows of the panel, from the evidence of the system and the records of zones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmet.mobility.clock.bins import Integers
from unmet.mobility.panel.evidence import Evidence, ZoneRecords
from unmet.mobility.panel.groups import ZoneGroups
from unmet.mobility.panel.plausibility import disbelieved_stations
from unmet.mobility.panel.schema import EVIDENCE, INFERRED_COLUMNS, stored_types
from unmet.mobility.panel.trip_counts import TripCounts
from unmet.mobility.panel.usable import Supply
from unmet.mobility.supply.between import Cancelled
from unmet.mobility.supply.docks import dock_records
from unmet.mobility.supply.pickups import find_changes, known_changes
from unmet.mobility.supply.served import Served, Unusable, combine_served
from unmet.mobility.supply.spells import (
    Spells,
    Tally,
    combine_stations,
    count_minutes,
    integrate,
    no_spells,
    plain_spells,
    status_spells,
)
from unmet.mobility.supply.states import FAR_APART, FEED_SILENT, SILENT, STATES
from unmet.mobility.supply.status_log import StatusRecords

__all__ = ["ZoneRows", "panel_rows", "zone_rows"]

_ROWS_AT_ONCE = 2_000_000
_HARDLY = 0.1  # share of a bin
_STEPS = 1024.0  # in one, so that sums are exact in any order


@dataclass(frozen=True)
class ZoneRows:
    """Rows of the zones from `begin` up to `end`.

    Attributes
    ----------
    begin, end : int
        The first zone, and the one behind the last.
    columns : dict
        The arrays that `unmet.mobility.panel.schema.stored_types` names, one value per zone and bin (or per bin).
    reasons : DataFrame
        Minutes by zone and reason.
    unusable : list of Unusable
        Vehicles that cannot be rented at the end of the records, of these zones and others before them.
    """

    begin: int
    end: int
    columns: dict[str, NDArray[Any]]
    reasons: pd.DataFrame
    unusable: list[Unusable]


def panel_rows(
    evidence: Evidence, records: ZoneRecords, groups: ZoneGroups, rebalancing: int, progress: Callable[[str], None]
) -> Iterator[ZoneRows]:
    """Yield the rows of all zones, in any order: by groups on their workers, or in this process if there is one group.

    Parameters
    ----------
    evidence, records, groups
        As `unmet.mobility.panel.evidence.gather` returns them.
    rebalancing : int
        Vehicles at once that a van moves.
    progress : callable
        Called with a sentence after each part.
    """
    done = 0
    if len(groups) == 1:
        parts = _rows(evidence, records, rebalancing)
    else:
        work = partial(_list_rows, evidence=evidence, rebalancing=rebalancing)
        found = groups.each(work, lambda number: records.of_group(groups, number))
        parts = (part for _, some in found for part in some)
    for part in parts:
        yield part
        done += part.end - part.begin
        progress(f"labelling minutes: {done:,} of {evidence.zones:,} zones")


def _list_rows(records: ZoneRecords, *, evidence: Evidence, rebalancing: int) -> list[ZoneRows]:
    """Make the rows of a group, as they are stored: half of the bytes to send."""
    types = stored_types(evidence.inferred)
    return [
        replace(part, columns={name: values.astype(types[name]) for name, values in part.columns.items()})
        for part in _rows(evidence, records, rebalancing)
    ]


def _rows(evidence: Evidence, records: ZoneRecords, rebalancing: int) -> Iterator[ZoneRows]:
    """Yield the rows of some zones, in order."""
    if evidence.supply is not None:
        timelines = evidence.supply.timelines.with_trips(records.pickups, records.returns)
        evidence = replace(evidence, supply=replace(evidence.supply, timelines=timelines))
    at_once = max(1, _ROWS_AT_ONCE // len(evidence.bins))
    held: list[Unusable] = []
    for zones, found in _supplies(evidence, records, rebalancing, held):
        for begin in range(0, len(zones), at_once):
            some = zones[begin : begin + at_once]
            tally = count_minutes(found.spells, some, evidence.bins.edges, evidence.overrides)
            columns = zone_rows(evidence, records.trips, some, tally, found)
            yield ZoneRows(int(some[0]), int(some[-1]) + 1, columns, _reasons(some, tally), list(held))
            held.clear()
    if held:  # of stations in no zone, which come last
        yield ZoneRows(evidence.zones, evidence.zones, {}, pd.DataFrame(), held)


@dataclass(frozen=True)
class Moved:
    """Vehicles that moved according to the status: zone (ascending), bin, and their number by column."""

    zone: Integers
    bin: Integers
    columns: dict[str, NDArray[Any]]


@dataclass(frozen=True)
class ZoneSupply:
    """Supply of some zones: spells of vehicles and docks, the chance to get either, and moves.

    Moves are those that the feed shows, and those expected to have cancelled out between two looks.
    """

    spells: Spells
    dock_spells: Spells | None = None
    moved: Moved | None = None
    cancelled: Moved | None = None
    served: Served | None = None
    docked: Served | None = None


def _supplies(
    evidence: Evidence, records: ZoneRecords, rebalancing: int, held: list[Unusable]
) -> Iterator[tuple[Integers, ZoneSupply]]:
    """Yield every zone of some records once, in order, with its supply."""
    following = records.begin
    inner = evidence.group < evidence.zones
    many = len(np.unique(evidence.group[inner])) < int(inner.sum())

    def of_zones(spells: Spells) -> Spells:
        return combine_stations(spells, evidence.group) if many else replace(spells, owner=evidence.group[spells.owner])

    if records.moves is not None:
        for zones, moves in records.moves.blocks(evidence.group, range(records.begin, records.end)):
            yield zones, ZoneSupply(combine_stations(moves.spells(), evidence.group))
        return
    if records.log is not None and evidence.activity is not None:
        for some in records.log.blocks():
            doubted = disbelieved_stations(evidence.implausible)
            spells = status_spells(some, evidence.feed, evidence.activity, evidence.silent, evidence.closures, doubted)
            dock_spells = plain_spells(dock_records(some), evidence.feed, evidence.activity.feed_share)
            usable = _usable(some, spells, dock_spells, evidence, held)
            moved = cancelled = None
            if evidence.inferred:
                moved = _infer(some, evidence, rebalancing, usable.cancelled is not None)
                cancelled = None if usable.cancelled is None else _cancelled(usable.cancelled, evidence)
            behind = min(int(evidence.group[some.station[-1]]) + 1, evidence.zones)
            yield (
                np.arange(following, behind),
                ZoneSupply(
                    of_zones(spells),
                    of_zones(dock_spells),
                    moved,
                    cancelled,
                    _of_zones(usable.vehicles, spells, evidence, many),
                    _of_zones(usable.docks, dock_spells, evidence, many),
                ),
            )
            following = behind
    if following < records.end:
        yield np.arange(following, records.end), ZoneSupply(no_spells(), no_spells())


def _usable(
    records: StatusRecords, spells: Spells, dock_spells: Spells, evidence: Evidence, held: list[Unusable]
) -> Supply:
    """Find the usable supply of stations."""
    if evidence.supply is None:
        return Supply()
    usable = evidence.supply.served(records, spells, dock_spells)
    if usable.unusable is not None:
        held.append(usable.unusable)
    return usable


def _of_zones(served: Served | None, spells: Spells, evidence: Evidence, many: bool) -> Served | None:
    """Return the chances of zones; `many` if a zone may have several stations."""
    if served is None:
        return None
    if many:
        return combine_served(served, spells, evidence.group)
    return replace(served, owner=evidence.group[served.owner])


def _infer(records: StatusRecords, evidence: Evidence, rebalancing: int, bridged: bool) -> Moved:
    """Infer pickups, returns and rebalancing from the changes of availability.

    If `bridged`, pickups that cancel out with returns are found otherwise.
    """
    assert evidence.activity is not None
    changes = find_changes(records, evidence.feed, bridged)
    changes = changes.select(_is_known(changes.station, changes.before, changes.after, evidence))
    begin, end = changes.minute, changes.minute + 1
    if bridged:  # a change that has no time of its own happened at any between its two looks
        own = evidence.feed.cadence.always_at(changes.after - evidence.feed.first)
        begin, end = (
            np.where(own, begin, changes.before),
            np.where(own, end, np.maximum(changes.after, changes.before + 1)),
        )
    columns = {
        "observed": np.where(changes.fall < rebalancing, changes.fall, 0),
        "returns": np.where(changes.rise < rebalancing, changes.rise, 0),
        "rebalanced_out": np.where(changes.fall >= rebalancing, changes.fall, 0),
        "rebalanced_in": np.where(changes.rise >= rebalancing, changes.rise, 0),
    }
    return _by_bin(changes.station, begin, end, columns, evidence)


def _cancelled(cancelled: Cancelled, evidence: Evidence) -> Moved:
    """Spread pickups that cancelled out with returns over the time between their looks.

    Where every change has its own time, none did.
    """
    known = _is_known(cancelled.station, cancelled.before, cancelled.after, evidence)
    known &= ~evidence.feed.cadence.always_at(np.maximum(cancelled.before - evidence.feed.first, 0))
    columns = {"cancelled": cancelled.pairs[known]}
    return _by_bin(cancelled.station[known], cancelled.before[known], cancelled.after[known], columns, evidence)


def _is_known(station: Integers, before: Integers, after: Integers, evidence: Evidence) -> NDArray[np.bool_]:
    assert evidence.activity is not None
    return known_changes(station, before, after, evidence.feed, evidence.activity.feed_share, evidence.silent)


def _by_bin(
    station: Integers, begin: Integers, end: Integers, columns: dict[str, NDArray[Any]], evidence: Evidence
) -> Moved:
    """Find zone and bins of moves that happened at any minute of a stretch, without those outside all."""
    edges = evidence.bins.edges
    first, last = evidence.bins.of(begin), evidence.bins.of(end - 1)
    parts = last - first + 1
    row = np.repeat(np.arange(len(parts)), parts)
    bin_ = first[row] + np.arange(len(row)) - np.repeat(np.cumsum(parts) - parts, parts)
    zone = evidence.group[station[row]]
    inside = (bin_ >= 0) & (bin_ < len(evidence.bins)) & (zone < evidence.zones)
    row, bin_, zone = row[inside], bin_[inside], zone[inside]
    within = np.minimum(end[row], edges[bin_ + 1]) - np.maximum(begin[row], edges[bin_])
    share = np.rint(within / (end - begin)[row] * _STEPS) / _STEPS
    return Moved(zone, bin_, {name: values[row] * share for name, values in columns.items()})


def zone_rows(
    evidence: Evidence, trips: TripCounts | None, zones: Integers, tally: Tally, supply: ZoneSupply
) -> dict[str, NDArray[Any]]:
    """Make the stored arrays of some zones: one per column of the schema that is stored, of shape (zones, bins)."""
    bins = evidence.bins
    states = {state: tally.by_state(state) for state in STATES}
    open_ = states["available"] + states["stockout"]
    with np.errstate(invalid="ignore"):
        mean = np.where(open_ > 0, tally.vehicle_minutes / np.maximum(open_, 1), np.nan)
    hidden = sum(tally.minutes.get(reason, np.int64(0)) for reason in (SILENT, FEED_SILENT, FAR_APART))
    # A bin that is mostly hidden in gaps of the feed is unknown, not zero.
    known = (states["unknown"] < bins.minutes) & (2 * hidden <= bins.minutes)
    return {
        "zone": np.broadcast_to(zones[:, None], known.shape),
        "start": bins.start,
        "start_local": bins.start_local,
        "minutes": bins.minutes,
        **_moves(evidence, trips, zones, known, states["available"], supply),
        **{f"{state}_minutes": minutes for state, minutes in states.items()},
        **_out(evidence, zones, states["stockout"], supply.served),
        **_docks(evidence, zones, supply),
        "supply_mean": mean,
        "evidence": _evidence(evidence, known),
    }


def _out(
    evidence: Evidence, zones: Integers, stockout: NDArray[np.int64], served: Served | None
) -> dict[str, NDArray[Any]]:
    """Expected minutes out of stock though listed, and out of stock in all."""
    if served is None:
        return {
            "unusable_minutes": np.zeros(stockout.shape),
            "out_minutes": stockout,
            "out_sd": np.zeros(stockout.shape),
        }
    less = np.where(served.shown, 1.0 - served.chance, 0.0)
    more = np.where(served.shown, 0.0, served.chance)
    spread = np.zeros_like(less) if served.variance is None else served.variance
    unusable, lent, variance, unsure, had = (
        integrate(served.owner, served.begin, served.end, height, zones, evidence.bins.edges, evidence.overrides)
        for height in (less, more, spread, np.ones_like(less), served.chance)
    )
    # Spells know how long their state lasts, not how short the bin is: no minutes vary more than all or nothing.
    variance = np.minimum(variance, had * (unsure - had))
    return {
        "unusable_minutes": np.maximum(unusable, 0.0),
        "out_minutes": np.maximum(stockout + unusable - lent, 0.0),
        "out_sd": np.sqrt(np.maximum(variance, 0.0)),
    }


def _docks(evidence: Evidence, zones: Integers, supply: ZoneSupply) -> dict[str, NDArray[Any]]:
    """Count the minutes with a free dock, without, and without one to use; -1 where docks are unknown all the bin."""
    if supply.dock_spells is None:
        unknown = np.full((len(zones), len(evidence.bins)), -1)
        return {"dock_minutes": unknown, "full_minutes": unknown, "no_dock_minutes": unknown}
    tally = count_minutes(supply.dock_spells, zones, evidence.bins.edges, evidence.overrides)
    known = tally.by_state("unknown") < evidence.bins.minutes
    free, full = tally.by_state("available"), tally.by_state("stockout")
    out = _out(evidence, zones, full, supply.docked)["out_minutes"]
    columns = {"dock_minutes": free, "full_minutes": full, "no_dock_minutes": out}
    return {name: np.where(known, minutes, -1) for name, minutes in columns.items()}


def _moves(
    evidence: Evidence,
    trips: TripCounts | None,
    zones: Integers,
    known: NDArray[np.bool_],
    available: NDArray[np.int64],
    supply: ZoneSupply,
) -> dict[str, NDArray[np.int32]]:
    """Count pickups and returns: from trips if there are any, else inferred if the status is known, else missing."""
    names = ["observed", "observed_early", "returns", *(INFERRED_COLUMNS if evidence.inferred else ())]
    result = {name: np.full(known.shape, -1, dtype=np.int32) for name in names}
    if evidence.inferred:
        to_infer = known & ~evidence.covered
        for name, table in result.items():
            if name == "observed_early":  # nobody knows when between two looks
                continue
            table[to_infer] = 0
            if supply.moved is not None and name in supply.moved.columns:
                table[to_infer] = _whole(supply.moved, name, zones, to_infer)[to_infer]
        if supply.cancelled is not None:
            # Nobody takes and brings a vehicle where there is hardly ever one.
            some = to_infer & (available > _HARDLY * evidence.bins.minutes)
            pairs = _whole(supply.cancelled, "cancelled", zones, some)
            for name in ("observed", "returns", "cancelled"):
                result[name][to_infer] += pairs[to_infer]
    if trips is not None:
        few = slice(int(zones[0]) - trips.first, int(zones[-1]) + 1 - trips.first)
        known_trips = {"observed": trips.pickups, "observed_early": trips.early, "returns": trips.returns}
        for name, counted in known_trips.items():
            if counted is not None:
                np.copyto(result[name], counted[few], where=evidence.covered)
    return result


def _whole(moved: Moved, name: str, zones: Integers, chosen: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Sum the moved vehicles of a column by zone and bin, where `chosen`, as whole numbers.

    Parts of a vehicle add up: the sum of all bins up to any is right to a half.
    """
    number, bins = chosen.shape
    some = slice(*np.searchsorted(moved.zone, [zones[0], zones[-1] + 1]))
    cell = (moved.zone[some] - zones[0]) * bins + moved.bin[some]
    expected = np.bincount(cell, weights=moved.columns[name][some], minlength=number * bins).reshape(number, bins)
    totals = np.rint(np.cumsum(np.where(chosen, expected, 0.0), axis=1)).astype(np.int32)
    return np.diff(totals, axis=1, prepend=np.int32(0))


def _evidence(evidence: Evidence, known: NDArray[np.bool_]) -> NDArray[np.int8]:
    """Return an index into `EVIDENCE` for each zone and bin."""
    supply, with_trips = ("netted", "netted") if evidence.activity is None else ("status", "status+trips")
    code = np.where(
        known,
        np.where(evidence.covered, EVIDENCE.index(with_trips), EVIDENCE.index(supply)),
        np.where(evidence.covered, EVIDENCE.index("trips"), EVIDENCE.index("none")),
    )
    return code.astype(np.int8)


def _reasons(zones: Integers, tally: Tally) -> pd.DataFrame:
    """Sum the minutes of each zone by reason."""
    minutes = np.array([of_reason.sum(axis=1) for of_reason in tally.minutes.values()])
    code, row = np.nonzero(minutes)
    codes = np.array(list(tally.minutes))
    return pd.DataFrame({"zone": zones[row], "reason": codes[code], "minutes": minutes[code, row]})
