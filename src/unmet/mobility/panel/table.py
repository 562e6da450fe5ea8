"""The panel as a table in DuckDB: what was asked for, the rows, and the summary."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pandas as pd
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from unmet._exceptions import InputError
from unmet._storage.sql import fetch_one
from unmet.mobility.clock.bins import parse_every, parse_hours
from unmet.mobility.panel.assembly import EVIDENCE, Evidence, gather, panel_rows, row_types
from unmet.mobility.panel.trip_counts import loose_starts
from unmet.mobility.records.quality import QualityLog
from unmet.mobility.records.read import Records, parse_memory
from unmet.mobility.supply.pickups import REBALANCING
from unmet.mobility.supply.states import REASONS, STATES
from unmet.mobility.zones.build import find_zones, report_moved

__all__ = ["PANEL_COLUMNS", "REBALANCED_COLUMNS", "Made", "Plan", "make_panel"]

PANEL_COLUMNS = (
    "zone",
    "start",
    "start_local",
    "minutes",
    "observed",
    "returns",
    "available_minutes",
    "stockout_minutes",
    "closed_minutes",
    "unknown_minutes",
    "exposure",
    "censored",
    "supply_mean",
    "evidence",
)
REBALANCED_COLUMNS = ("rebalanced_out", "rebalanced_in")


@dataclass(frozen=True)
class Plan:
    """What was asked for, checked before hours of reading."""

    zones: str = "stations"
    every: str = "1h"
    start: str | None = None
    end: str | None = None
    censored_rule: str = "any"
    rebalancing: int = REBALANCING
    hours: str | None = None
    memory: str = "2GB"

    def __post_init__(self) -> None:
        parse_every(self.every)
        if self.hours is not None:
            parse_hours(self.hours)
        _censored(self.censored_rule)
        parse_memory(self.memory)
        if self.rebalancing < 2:
            raise InputError(f"rebalancing: expected two vehicles or more, got {self.rebalancing}.")

    def period(self, timezone: str) -> tuple[int | None, int | None]:
        """The first minute and the one behind the last, UTC, where they were given."""
        start, end = _minute(self.start, "start", timezone), _minute(self.end, "end", timezone)
        if start is not None and end is not None and end <= start:
            raise InputError(f"The panel would end before it starts: start {self.start!r}, end {self.end!r}.")
        return start, end


def _censored(rule: str) -> str:
    """SQL for the rule."""
    kind, _, value = rule.partition(":")
    if rule == "any":
        return "stockout_minutes > 0"
    if kind == "minutes" and re.fullmatch(r"\d+", value) and int(value) > 0:
        return f"stockout_minutes >= {int(value)}"
    if kind == "share" and re.fullmatch(r"\d*\.?\d+", value) and 0 < float(value) <= 1:
        return (
            "stockout_minutes > 0 AND "
            f"stockout_minutes >= {float(value)!r}::DOUBLE * (available_minutes + stockout_minutes)"
        )
    raise InputError(
        "The rule for censored bins should be any, minutes:10 (at least so many) or share:0.25; "
        f"{rule!r} is none of them."
    )


def _minute(text: str | None, name: str, timezone: str) -> int | None:
    """A local time as a UTC minute; a wall-clock time that came twice is its first."""
    if text is None:
        return None
    try:
        local = pd.Timestamp(text)
        if local.tzinfo is None:
            local = local.tz_localize(timezone, ambiguous=True, nonexistent="shift_forward")
    except (ValueError, TypeError) as error:
        raise InputError(f"{name}: expected a local date or time such as 2021-03-01, got {text!r}.") from error
    return int(local.timestamp() // 60)


@dataclass(frozen=True)
class Made:
    """A panel in DuckDB: `sql` selects it, with zone and evidence as ENUM (which Parquet stores as text)."""

    sql: str
    columns: tuple[str, ...]
    zones: pd.DataFrame
    quality: pd.DataFrame
    reasons: pd.DataFrame
    summary: dict[str, Any]


def make_panel(records: Records, plan: Plan, progress: Callable[[str], None]) -> Made:
    """Make the panel of records, in their database."""
    connection = records.connection
    stations = connection.execute("SELECT station, name, lat, lon, capacity FROM stations ORDER BY ix").df()
    log = QualityLog()
    read = records.quality[records.quality["reason"] == "read"].set_index("source")["rows"].to_dict()
    log.total("stations", len(stations))
    log.total("trips", read.get("trips", 0))
    log.total("status", read.get("status", 0))
    progress("making zones")
    loose = loose_starts(connection) if "trips" in records.tables else None
    zones = find_zones(plan.zones, stations, log, loose)
    log.total("panel", len(zones))
    if "trips" in records.tables:
        report_moved(connection, log)
    evidence = gather(
        records,
        zones,
        stations,
        every=parse_every(plan.every),
        period=plan.period(records.timezone),
        hours=plan.hours,
        memory=parse_memory(plan.memory),
        quality=log,
        progress=progress,
    )
    if evidence.log is not None:
        detail = "same station and second: the last record holds"
        log.add("status", "duplicate", "rejected", evidence.log.duplicates, detail, of=records.within.get("status"))
    reasons = _lay_out(records, zones.frame, evidence, plan, progress)
    columns = PANEL_COLUMNS + (REBALANCED_COLUMNS if evidence.inferred else ())
    sql = _select(columns, plan.censored_rule)
    quality = pd.concat([records.quality, log.frame().query("reason != 'read'")], ignore_index=True)
    reasons = _name_reasons(reasons, zones.frame)
    summary = _summarise(connection, sql, records, plan, evidence, reasons, len(stations))
    return Made(sql, columns, zones.frame, quality, reasons, summary)


def _lay_out(
    records: Records, zones: pd.DataFrame, evidence: Evidence, plan: Plan, progress: Callable[[str], None]
) -> pd.DataFrame:
    """Put the rows, in their order, into arrays that DuckDB reads as ``panel_rows``; on disk where they are many.

    What a join would look up stands in every row already: only so does DuckDB keep the order without sorting.
    """
    bins = evidence.bins
    count = evidence.zones * len(bins)
    types: dict[str, Any] = {"start": "M8[us]", "start_local": "M8[us]", "minutes": np.int16}
    types |= row_types(evidence.inferred)
    in_memory = count * sum(np.dtype(t).itemsize for t in types.values()) <= parse_memory(plan.memory) // 16
    columns: dict[str, NDArray[Any]] = {
        name: np.empty(count, dtype=dtype)
        if in_memory
        else open_memmap(records.folder / f"panel-{name}.npy", mode="w+", dtype=dtype, shape=(count,))
        for name, dtype in types.items()
    }
    reasons = []
    filled = 0
    for rows, why in panel_rows(evidence, plan.rebalancing, progress):
        reasons.append(why)
        some = rows | {"start": bins.start, "start_local": bins.start_local, "minutes": bins.minutes}
        behind = filled + rows["zone"].size
        for name, column in columns.items():
            column[filled:behind].reshape(-1, len(bins))[:] = some[name]
        filled = behind
    assert filled == count
    frame: dict[str, Any] = {name: np.asarray(column) for name, column in columns.items()}
    frame["start"] = pd.DatetimeIndex(frame["start"], copy=False).tz_localize("UTC")
    frame["zone"] = pd.Categorical.from_codes(frame["zone"], pd.Index(zones["zone"].astype(str)))
    frame["evidence"] = pd.Categorical.from_codes(frame["evidence"], pd.Index(EVIDENCE))
    records.connection.register("panel_rows", pd.DataFrame(frame, copy=False))
    return pd.concat(reasons, ignore_index=True)


def _select(columns: tuple[str, ...], censored_rule: str) -> str:
    written = {
        "minutes": "minutes::INTEGER",
        **{c: f"CASE WHEN {c} >= 0 THEN {c}::DOUBLE END" for c in ("observed", "returns", *REBALANCED_COLUMNS)},
        **{f"{state}_minutes": f"{state}_minutes::INTEGER" for state in STATES},
        "exposure": "available_minutes / minutes",
        "censored": _censored(censored_rule),
        "supply_mean": "CASE WHEN NOT isnan(supply_mean) THEN supply_mean END",
    }
    body = ", ".join(f"{written.get(column, 'r.' + column)} AS {column}" for column in columns)
    return f"SELECT {body} FROM panel_rows r"


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


def _summarise(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    records: Records,
    plan: Plan,
    evidence: Evidence,
    reasons: pd.DataFrame,
    stations: int,
) -> dict[str, Any]:
    open_ = "available_minutes + stockout_minutes > 0"
    counts = fetch_one(
        connection,
        f"""SELECT count(*) FILTER ({open_}), count(*) FILTER (({_censored(plan.censored_rule)}) AND {open_}),
        sum(observed) FILTER (observed >= 0) FROM panel_rows""",
    )
    bins, trips = evidence.bins, evidence.trips
    by_state = reasons.groupby("state")["minutes"].sum()
    by_reason = reasons.groupby("reason")["minutes"].sum()
    kind = None
    if evidence.log is not None and evidence.feed is not None:
        kind = "polled snapshots" if evidence.feed.polled else "change log"
    return {
        "timezone": records.timezone,
        "zones_as": plan.zones,
        "every": plan.every,
        "censored_rule": plan.censored_rule,
        "rebalancing": plan.rebalancing,
        "start_local": str(bins.start_local[0]).replace("T", " "),
        "end_local": _local_end(int(bins.edges[-1]), records.timezone),
        "zones": evidence.zones,
        "stations": stations,
        "bins": len(bins),
        "rows": evidence.zones * len(bins),
        "status": kind,
        "pickups_from": "trips" if bool(evidence.covered.all()) else "trips and status" if trips else "status",
        "supply_from": "status" if evidence.log is not None else "trips, netted",
        "trips_used": None if trips is None else trips.used,
        "observed": float(counts[2] or 0.0),
        "minutes": {state: int(by_state.get(state, 0)) for state in STATES},
        "reasons": {reason: int(by_reason[reason]) for reason in REASONS if reason in by_reason},
        "bins_open": int(counts[0]),
        "bins_censored": int(counts[1]),
        "censored_share": counts[1] / counts[0] if counts[0] else None,
        "feed_outages": int(((evidence.silent[:, 0] < bins.edges[-1]) & (evidence.silent[:, 1] > bins.edges[0])).sum()),
    }


def _local_end(minute: int, timezone: str) -> str:
    end = pd.Timestamp(minute * 60, unit="s", tz="UTC").tz_convert(timezone).tz_localize(None)
    return str(end)
