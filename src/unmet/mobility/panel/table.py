"""The panel as a table in DuckDB: its rows and its summary."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from unmet._exceptions import InputError
from unmet._storage.sql import fetch_one
from unmet.mobility.panel.assembly import ZoneRows, panel_rows
from unmet.mobility.panel.evidence import Evidence, gather
from unmet.mobility.panel.groups import Workers
from unmet.mobility.panel.learnt import Learnt, describe_learnt
from unmet.mobility.panel.options import PanelOptions, censored_sql
from unmet.mobility.panel.plausibility import describe
from unmet.mobility.panel.remarks import cadence_table, find_remarks, misses_pickups
from unmet.mobility.panel.schema import EVIDENCE, columns_of, select_panel, stored_types
from unmet.mobility.panel.trip_counts import loose_starts
from unmet.mobility.records.quality import QualityLog
from unmet.mobility.records.read import Records, parse_memory
from unmet.mobility.supply.served import Unusable
from unmet.mobility.supply.states import FEED_SILENT, REASONS, STATES
from unmet.mobility.zones.areas import find_areas, report_wide_zones
from unmet.mobility.zones.build import Zones, find_zones, report_moved

__all__ = ["UNUSABLE_COLUMNS", "PanelTable", "make_panel"]

UNUSABLE_COLUMNS = ("station", "name", "zone", "listed", "unusable", "probability", "since_local")
_HERE = Workers()
SURE_ENOUGH = 0.8
"""Probability from which on a station is listed as one that holds vehicles nobody can rent."""


@dataclass(frozen=True)
class PanelTable:
    """A panel in DuckDB.

    Attributes
    ----------
    sql : str
        Selects the panel. Zone and evidence are ENUM, which Parquet stores as text.
    columns : tuple of str
        Names of its columns.
    zones, quality, reasons, summary, unusable
        As in `unmet.mobility.panel.Panel`.
    learnt : dict, optional
        What a later panel may keep: see `unmet.mobility.panel.learnt`.
    """

    sql: str
    columns: tuple[str, ...]
    zones: pd.DataFrame
    quality: pd.DataFrame
    reasons: pd.DataFrame
    summary: dict[str, Any]
    unusable: pd.DataFrame
    learnt: dict[str, Any] | None = None


def make_panel(
    records: Records,
    options: PanelOptions,
    progress: Callable[[str], None],
    earlier: Learnt | None = None,
    workers: Workers = _HERE,
) -> PanelTable:
    """Make the panel of records, in their database; `earlier` is what an earlier panel has learnt."""
    connection = records.connection
    stations = connection.execute("SELECT station, name, lat, lon, capacity, area FROM stations ORDER BY ix").df()
    log = QualityLog()
    read = records.quality[records.quality["reason"] == "read"].set_index("source")["rows"].to_dict()
    log.total("stations", len(stations))
    log.total("trips", read.get("trips", 0))
    log.total("status", read.get("status", 0))
    progress("making zones")
    loose = loose_starts(connection) if "trips" in records.tables else None
    zones = find_zones(options.zones, stations, log, loose, parse_memory(options.memory))
    if len(zones) == 0:
        raise InputError(
            f"zones: {options.zones!r} gives no zone: no record names a station. Name the column of the station in the "
            "trips, give --stations, or take zones by place, such as --zones h3:9."
        )
    log.total("panel", len(zones))
    wide = report_wide_zones(zones, stations, log) if options.zones != "stations" else []
    if options.areas is not None:
        zones.frame["area"] = find_areas(options.areas, zones, stations, log, parse_memory(options.memory))
    if "trips" in records.tables:
        report_moved(connection, log)
    evidence, of_zones, groups = gather(records, zones, stations, options, log, progress, earlier, workers)
    if evidence.activity is not None:
        detail, of = "same station and second: the last record was used", records.within.get("status")
        log.add("status", "duplicate", "rejected", evidence.duplicates, detail, of=of)
        detail = "same station, second and content: one was used"
        log.add("status", "repeated record", "noted", evidence.repeats, detail, of=of)
    parts = panel_rows(evidence, of_zones, groups, options.rebalancing, progress)
    minutes, held = _fill_rows(records, zones.frame, evidence, options, parts)
    reasons = _name_reasons(minutes, zones.frame)
    implausible = describe(evidence.implausible, evidence.order, zones, stations)
    for row in implausible:
        log.add("stations", "implausible records", "noted", 1, f"{row['station']}: {row['why']}")
    quality = pd.concat([records.quality, log.frame().query("reason != 'read'")], ignore_index=True)
    summary = _summarise(records, options, evidence, reasons, len(stations), zones.frame, implausible)
    if wide:
        summary["remarks"].append(
            f"{len(wide):,} of {len(zones):,} zones are wider than a walk. A zone is out of stock only when all its "
            "stations are; to sum stations by district, use --zones stations --areas."
        )
    sql = select_panel(evidence.inferred, censored_sql(options.censored_rule))
    unusable = _name_unusable(held, stations, zones, evidence, records.timezone)
    learnt = None
    if evidence.supply is not None:
        learnt = describe_learnt(evidence.supply.vehicles, evidence.supply.docks, evidence.bins, evidence.learnt)
    return PanelTable(sql, columns_of(evidence.inferred), zones.frame, quality, reasons, summary, unusable, learnt)


def _fill_rows(
    records: Records,
    zones: pd.DataFrame,
    evidence: Evidence,
    options: PanelOptions,
    parts: Iterable[ZoneRows],
) -> tuple[pd.DataFrame, list[Unusable]]:
    """Fill the arrays that DuckDB reads as ``panel_rows``, on disk if they are large.

    Return minutes by reason, and vehicles that cannot be rented. Every row is complete, in its place: DuckDB keeps the
    order without sorting only if nothing is joined.
    """
    count = evidence.zones * len(evidence.bins)
    types = stored_types(evidence.inferred)
    in_memory = count * sum(np.dtype(t).itemsize for t in types.values()) <= parse_memory(options.memory) // 16
    columns: dict[str, NDArray[Any]] = {
        name: np.empty(count, dtype=dtype)
        if in_memory
        else open_memmap(records.folder / f"panel-{name}.npy", mode="w+", dtype=dtype, shape=(count,))
        for name, dtype in types.items()
    }
    found: list[ZoneRows] = []
    for part in parts:  # in any order
        for name, values in part.columns.items():
            columns[name].reshape(-1, len(evidence.bins))[part.begin : part.end] = values
        found.append(replace(part, columns={}))
    assert sum(part.end - part.begin for part in found) == evidence.zones
    found.sort(key=lambda part: part.begin)
    if evidence.learnt is not None:
        evidence.learnt.take_over(evidence.bins, columns)
    frame: dict[str, Any] = {name: np.asarray(column) for name, column in columns.items()}
    frame["start"] = pd.DatetimeIndex(frame["start"], copy=False).tz_localize("UTC")
    frame["zone"] = pd.Categorical.from_codes(frame["zone"], pd.Index(zones["zone"].astype(str)))
    frame["evidence"] = pd.Categorical.from_codes(frame["evidence"], pd.Index(EVIDENCE))
    records.connection.register("panel_rows", pd.DataFrame(frame, copy=False))
    reasons = pd.concat([part.reasons for part in found if part.end > part.begin], ignore_index=True)
    return reasons, [unusable for part in found for unusable in part.unusable]


def _name_reasons(reasons: pd.DataFrame, zones: pd.DataFrame) -> pd.DataFrame:
    names = list(REASONS)
    named = pd.DataFrame(
        {
            "zone": zones["zone"].to_numpy()[reasons["zone"].to_numpy(dtype=int)],
            "state": [REASONS[names[code]] for code in reasons["reason"]],
            "reason": [names[code] for code in reasons["reason"]],
            "minutes": reasons["minutes"].to_numpy(),
        }
    )
    return named.sort_values(["zone", "state", "reason"], ignore_index=True)


def _name_unusable(
    held: list[Unusable], stations: pd.DataFrame, zones: Zones, evidence: Evidence, timezone: str
) -> pd.DataFrame:
    """List the stations that very probably hold vehicles nobody can rent, the surest and most first."""
    rows = []
    for found in held:
        for i in np.flatnonzero(found.probability >= SURE_ENOUGH):
            ix = int(evidence.order[found.station[i]])
            zone = int(zones.of_station[ix])
            rows.append(
                {
                    "station": str(stations["station"].iloc[ix]),
                    "name": stations["name"].iloc[ix],
                    "zone": str(zones.frame["zone"].iloc[zone]) if zone >= 0 else None,
                    "listed": int(found.listed[i]),
                    "unusable": round(float(found.number[i]), 2),
                    "probability": round(float(found.probability[i]), 4),
                    "since_local": _local_end(int(found.since[i]), timezone),
                }
            )
    frame = pd.DataFrame(rows, columns=list(UNUSABLE_COLUMNS))
    return frame.sort_values(["probability", "unusable"], ascending=False, ignore_index=True)


def _summarise(
    records: Records,
    options: PanelOptions,
    evidence: Evidence,
    reasons: pd.DataFrame,
    stations: int,
    zones: pd.DataFrame,
    implausible: list[dict[str, Any]],
) -> dict[str, Any]:
    open_ = "available_minutes + stockout_minutes > 0"
    expected = "sum(cancelled) FILTER (cancelled >= 0)" if evidence.inferred else "0"
    counts = fetch_one(
        records.connection,
        f"""SELECT count(*) FILTER ({open_}), count(*) FILTER (({censored_sql(options.censored_rule)}) AND {open_}),
        sum(observed) FILTER (observed >= 0), {expected} FROM panel_rows""",
    )
    bins, trips = evidence.bins, evidence.trips_used
    by_state = reasons.groupby("state")["minutes"].sum()
    by_reason = reasons.groupby("reason")["minutes"].sum()
    kind = None
    if evidence.activity is not None:
        polled = evidence.feed.cadence.polled.mean()
        kind = "polled snapshots" if polled > 0.9 else "change log" if polled < 0.1 else "changes and polled snapshots"
    pickups_from = "trips" if bool(evidence.covered.all()) else "status" if trips is None else "trips and status"
    usable_vehicles, usable_docks = (None, None) if evidence.supply is None else evidence.supply.summary()
    return {
        "timezone": records.timezone,
        "zones_as": options.zones,
        "areas_as": options.areas,
        "every": options.every,
        "censored_rule": options.censored_rule,
        "rebalancing": options.rebalancing,
        "start_local": str(bins.start_local[0]).replace("T", " "),
        "end_local": _local_end(int(bins.edges[-1]), records.timezone),
        "zones": evidence.zones,
        "stations": stations,
        "bins": len(bins),
        "rows": evidence.zones * len(bins),
        "status": kind,
        "cadence": None if kind is None else cadence_table(evidence),
        "pickups_from": pickups_from,
        "misses_pickups": misses_pickups(evidence, pickups_from),
        "supply_from": "trips, netted" if evidence.activity is None else "status",
        "trips_used": trips,
        "observed": float(counts[2] or 0.0),
        "cancelled": float(counts[3] or 0.0),
        "minutes": {state: int(by_state.get(state, 0)) for state in STATES},
        "reasons": {reason: int(by_reason[reason]) for reason in REASONS if reason in by_reason},
        "bins_open": int(counts[0]),
        "bins_censored": int(counts[1]),
        "censored_share": counts[1] / counts[0] if counts[0] else None,
        "usable_supply": usable_vehicles,
        "usable_docks": usable_docks,
        "feed_outages": _outages(evidence),
        "keep": options.keep,
        "implausible": implausible,
        "left_out": sorted({str(row["zone"]) for row in implausible if row["left_out"]}),
        "remarks": find_remarks(evidence, reasons, zones, implausible, pickups_from, records.timezone),
    }


def _outages(evidence: Evidence) -> int:
    """Count the outages of the whole feed in the panel's period."""
    first, behind = int(evidence.bins.edges[0]), int(evidence.bins.edges[-1])
    return sum(o.reason == FEED_SILENT and o.begin < behind and o.end > first for o in evidence.overrides)


def _local_end(minute: int, timezone: str) -> str:
    end = pd.Timestamp(minute * 60, unit="s", tz="UTC").tz_convert(timezone).tz_localize(None)
    return str(end)
