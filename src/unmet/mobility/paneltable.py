"""The panel as a table in DuckDB: what was asked for, the rows, and the summary."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmet._exceptions import InputError
from unmet.mobility.assemble import EVIDENCE, Evidence, gather, panel_rows
from unmet.mobility.clock import parse_every, parse_hours
from unmet.mobility.pickups import REBALANCING
from unmet.mobility.quality import QualityLog
from unmet.mobility.records import Records
from unmet.mobility.sql import fetch_one
from unmet.mobility.states import REASONS, STATES
from unmet.mobility.tripcounts import loose_starts
from unmet.mobility.zones import find_zones, report_moved

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
_INSERT_AT_ONCE = 500_000


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
        _bytes(self.memory)
        if self.rebalancing < 2:
            raise InputError(f"rebalancing: expected two vehicles or more, got {self.rebalancing}.")


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


def _bytes(memory: str) -> int:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?\s*", memory, re.IGNORECASE)
    if match is None:
        raise InputError(f"memory: expected a size such as '2GB', got {memory!r}.")
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** " KMGT".index(match[2].upper() or " "))


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
    """A panel in DuckDB: `sql` selects it."""

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
        period=(_minute(plan.start, "start", records.timezone), _minute(plan.end, "end", records.timezone)),
        hours=plan.hours,
        memory=_bytes(plan.memory),
        quality=log,
        progress=progress,
    )
    if evidence.log is not None:
        detail = "same station and second: the last record holds"
        log.add("status", "duplicate", "rejected", evidence.log.duplicates, detail)
    reasons = _insert_rows(connection, evidence, plan.rebalancing, progress)
    _register(connection, zones.frame, evidence)
    inferred = evidence.log is not None and not bool(evidence.covered.all())
    columns = PANEL_COLUMNS + (REBALANCED_COLUMNS if inferred else ())
    sql = _select(columns, plan.censored_rule)
    quality = pd.concat([records.quality, log.frame().query("reason != 'read'")], ignore_index=True)
    reasons = _name_reasons(reasons, zones.frame)
    summary = _summarise(connection, sql, records, plan, evidence, reasons, len(stations))
    return Made(sql, columns, zones.frame, quality, reasons, summary)


def _insert_rows(
    connection: duckdb.DuckDBPyConnection,
    evidence: Evidence,
    rebalancing: int,
    progress: Callable[[str], None],
) -> pd.DataFrame:
    reasons, waiting = [], []
    made = False
    for rows, why, is_last in _with_last(panel_rows(evidence, rebalancing, progress)):
        reasons.append(why)
        waiting.append(rows)
        if is_last or sum(len(r["zone"]) for r in waiting) > _INSERT_AT_ONCE:
            some = {name: np.concatenate([r[name] for r in waiting]) for name in rows}
            connection.register("some_rows", some)
            how = "INSERT INTO panel_rows" if made else "CREATE OR REPLACE TEMP TABLE panel_rows AS"
            connection.execute(f"{how} SELECT * FROM some_rows")
            connection.unregister("some_rows")
            waiting, made = [], True
    return pd.concat(reasons, ignore_index=True)


def _with_last(
    blocks: Iterator[tuple[dict[str, NDArray[Any]], pd.DataFrame]],
) -> Iterator[tuple[dict[str, NDArray[Any]], pd.DataFrame, bool]]:
    """Say of each block whether it is the last."""
    block = next(blocks)
    for following in blocks:
        yield *block, False
        block = following
    yield *block, True


def _register(connection: duckdb.DuckDBPyConnection, zones: pd.DataFrame, evidence: Evidence) -> None:
    bins = evidence.bins
    tables = {
        "panel_zones": pd.DataFrame({"ix": range(len(zones)), "name": zones["zone"].astype(str)}),
        "panel_bins": pd.DataFrame(
            {
                "ix": range(len(bins)),
                "start": bins.start,
                "start_local": bins.start_local,
                "minutes": bins.minutes,
            }
        ),
        "panel_evidence": pd.DataFrame({"ix": range(len(EVIDENCE)), "name": EVIDENCE}),
    }
    for name, frame in tables.items():
        connection.register("some_rows", frame)
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM some_rows")
        connection.unregister("some_rows")


def _select(columns: tuple[str, ...], censored_rule: str) -> str:
    written = {
        "zone": "z.name",
        "start": "b.start::TIMESTAMP AT TIME ZONE 'UTC'",
        "start_local": "b.start_local::TIMESTAMP",
        "minutes": "b.minutes::INTEGER",
        "exposure": "available_minutes / b.minutes",
        "censored": _censored(censored_rule),
        "evidence": "e.name",
        **{
            c: f"CASE WHEN NOT isnan({c}) THEN {c} END"
            for c in ("observed", "returns", "supply_mean", *REBALANCED_COLUMNS)
        },
    }
    body = ", ".join(f"{written.get(column, column)} AS {column}" for column in columns)
    return f"""SELECT {body} FROM panel_rows r JOIN panel_zones z ON r.zone = z.ix JOIN panel_bins b ON r.bin = b.ix
        JOIN panel_evidence e ON r.evidence = e.ix ORDER BY r.zone, r.bin"""


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
        sum(observed) FILTER (NOT isnan(observed)) FROM panel_rows""",
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
        "feed_outages": len(evidence.silent),
    }


def _local_end(minute: int, timezone: str) -> str:
    end = pd.Timestamp(minute * 60, unit="s", tz="UTC").tz_convert(timezone).tz_localize(None)
    return str(end)
