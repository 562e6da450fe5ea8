"""The panel: zone × time bin, with what was observed and what could have been.

One row per zone and bin, no bin missing:

===================== ======================================================================================
``zone``              as in `Panel.zones`
``start``             of the bin, UTC
``start_local``       what the wall clock shows then
``minutes``           length of the bin
``observed``          pickups: from trips, or inferred from the status where there are none; missing where
                      neither tells
``returns``           likewise
``available_minutes`` in which a rider could have been served
``stockout_minutes``  in which the zone was open and empty
``closed_minutes``    in which it was closed
``unknown_minutes``   of which nothing is known; the four sum to `minutes`
``exposure``          available_minutes / minutes
``censored``          whether stock-outs hid demand, by the rule that was chosen
``supply_mean``       vehicles to rent, over the available and stock-out minutes; missing where there are none
``evidence``          ``status+trips``; ``status`` (pickups inferred); ``netted`` (supply netted from trips);
                      ``trips`` (supply unknown); ``none``
===================== ======================================================================================

and, where pickups were inferred, ``rebalanced_out`` and ``rebalanced_in``: vehicles that a van is taken to have moved.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Required, TypedDict, Unpack

import duckdb
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmet._exceptions import FileFormatError, InputError
from unmet.mobility.assemble import EVIDENCE, Evidence, gather, panel_rows
from unmet.mobility.clock import parse_every, parse_hours
from unmet.mobility.pickups import REBALANCING
from unmet.mobility.quality import QualityLog
from unmet.mobility.records import Records, read_records
from unmet.mobility.sources import Given
from unmet.mobility.sql import fetch_one, literal, path_literal
from unmet.mobility.states import REASONS
from unmet.mobility.tripcounts import loose_starts
from unmet.mobility.zones import find_zones, report_moved

__all__ = [
    "PANEL_COLUMNS",
    "REBALANCED_COLUMNS",
    "Panel",
    "PanelOptions",
    "build_panel",
    "panel_of",
    "read_panel",
    "write_panel",
]

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
_METADATA = "unmet."
_INSERT_AT_ONCE = 500_000


@dataclass(frozen=True)
class Panel:
    """A panel and what travels with it.

    Attributes
    ----------
    panel : pandas.DataFrame
        One row per zone and bin: see the head of `unmet.mobility.panel`.
    zones : pandas.DataFrame
        ``zone, name, lat, lon, capacity, stations``.
    quality : pandas.DataFrame
        ``source, reason, action, rows, share, detail``: what was rejected, repaired and noted on the way.
    reasons : pandas.DataFrame
        ``zone, state, reason, minutes``: why the minutes are in their states
        (reasons are explained at the head of `unmet.mobility.states`).
    summary : dict
        Period, zones, trips used, minutes by state, share of censored bins and the like.
    """

    panel: pd.DataFrame
    zones: pd.DataFrame
    quality: pd.DataFrame
    reasons: pd.DataFrame
    summary: dict[str, Any]


class PlanOptions(TypedDict, total=False):
    """Options of `build_panel` that say what to build."""

    zones: str
    every: str
    start: str | None
    end: str | None
    censored_rule: str
    rebalancing: int
    hours: str | None
    memory: str


class PanelOptions(PlanOptions, total=False):
    """All options of `build_panel`, where they are explained."""

    timezone: Required[str]
    mapping: Mapping[str, str] | None
    max_rejected: float
    force: bool
    progress: Callable[[str], None] | None


@dataclass(frozen=True)
class _Plan:
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


def build_panel(
    trips: Given = None,
    status: Given = None,
    stations: Given = None,
    *,
    timezone: str,
    zones: str = "stations",
    every: str = "1h",
    start: str | None = None,
    end: str | None = None,
    censored_rule: str = "any",
    rebalancing: int = REBALANCING,
    hours: str | None = None,
    mapping: Mapping[str, str] | None = None,
    memory: str = "2GB",
    max_rejected: float = 0.2,
    force: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Panel:
    """Build the panel of a system's records.

    Parameters
    ----------
    trips, status, stations : path, list of paths, folder, glob or frame, optional
        What `unmet.mobility.records.read_records` takes; trips, status or both. Frames are not changed.
    timezone : str
        The system's time zone: naive times are local to it, and bins follow its wall clock.
    zones : str
        ``stations``, ``superhubs:200m``, ``superhubs:points.csv:200m``, a GeoJSON file, or ``h3:9``.
    every : str
        Length of a bin, from ``5min`` to ``1w``.
    start, end : str, optional
        Local times between which to build it; as far as the records go unless given.
    censored_rule : str
        Which bins are censored: ``any`` (any minute of stock-out, the paper's), ``minutes:10`` (at least that many) or
        ``share:0.25`` (at least that share of the minutes in which the zone was open).
    rebalancing : int
        Where pickups are inferred: a change of so many vehicles at once is a van.
    hours : str, optional
        Daily opening hours, ``06:00-23:00``; the rest is closed.
    mapping, memory, max_rejected, force, progress
        As for `unmet.mobility.records.read_records`.

    Returns
    -------
    Panel

    Examples
    --------
    A station that is empty from 8:30 to 9:15:

    >>> status = pd.DataFrame({
    ...     "station_id": "a",
    ...     "last_reported": pd.to_datetime(["2021-07-01 08:00", "2021-07-01 08:30", "2021-07-01 09:15",
    ...                                      "2021-07-01 10:00"]),
    ...     "num_bikes_available": [2, 0, 3, 1],
    ... })
    >>> result = build_panel(status=status, timezone="America/New_York", every="1h")
    >>> result.panel[["start_local", "observed", "stockout_minutes", "exposure", "censored"]].head(2)
              start_local  observed  stockout_minutes  exposure  censored
    0 2021-07-01 08:00:00       2.0                30      0.50      True
    1 2021-07-01 09:00:00       0.0                15      0.75      True
    """
    chosen = PanelOptions(
        timezone=timezone,
        zones=zones,
        every=every,
        start=start,
        end=end,
        censored_rule=censored_rule,
        rebalancing=rebalancing,
        hours=hours,
        mapping=mapping,
        memory=memory,
        max_rejected=max_rejected,
        force=force,
        progress=progress,
    )
    with _making(trips, status, stations, chosen) as (records, made):
        frame = _frame(records.connection, f"({made.sql})")
    return Panel(frame, made.zones, made.quality, made.reasons, made.summary)


def panel_of(records: Records, progress: Callable[[str], None] | None = None, **options: Unpack[PlanOptions]) -> Panel:
    """Build the panel of records that are read already; options as for `build_panel`."""
    made = _make(records, _Plan(**options), progress or (lambda _: None))
    frame = _frame(records.connection, f"({made.sql})")
    return Panel(frame, made.zones, made.quality, made.reasons, made.summary)


def write_panel(
    path: str | os.PathLike[str],
    trips: Given = None,
    status: Given = None,
    stations: Given = None,
    **options: Unpack[PanelOptions],
) -> Panel:
    """Build a panel straight into a Parquet file, larger than memory if need be.

    Parameters are those of `build_panel`, and `path` is the file, which appears whole or not at all. Zones, quality,
    reasons and summary are stored in the file's own metadata (keys ``unmet.zones`` and so on, as JSON), so that they
    cannot be lost on the way; `read_panel` gives them back. The panel returned holds no rows.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise InputError(f"There is no folder {str(target.parent)!r} to write {target.name!r} into.")
    with _making(trips, status, stations, options) as (records, made):
        if (progress := options.get("progress")) is not None:
            progress("writing the panel")
        _copy(records, made, target)
    nothing = pd.DataFrame(columns=list(made.columns))
    return Panel(nothing, made.zones, made.quality, made.reasons, made.summary)


def read_panel(path: str | os.PathLike[str]) -> Panel:
    """Read a file that `write_panel` (or ``unmet panel``) wrote."""
    if not Path(path).is_file():
        raise InputError(f"There is no file {str(path)!r}.")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        try:
            file = path_literal(str(path))
            pairs = connection.execute(f"SELECT key, value FROM parquet_kv_metadata({file})").fetchall()
            frame = _frame(connection, f"read_parquet({file})")
        except duckdb.Error as error:
            raise FileFormatError(f"{path}: cannot be read as Parquet: {error}") from error
    found = {bytes(key).decode(): bytes(value).decode() for key, value in pairs}
    parts = {}
    for name in ("zones", "quality", "reasons", "summary"):
        if _METADATA + name not in found:
            raise FileFormatError(
                f"{path}: is a Parquet file, but not a panel (its metadata have no {_METADATA}{name})."
            )
        parts[name] = json.loads(found[_METADATA + name])
    return Panel(
        frame,
        pd.DataFrame(parts["zones"]),
        pd.DataFrame(parts["quality"]),
        pd.DataFrame(parts["reasons"]),
        parts["summary"],
    )


def _frame(connection: duckdb.DuckDBPyConnection, relation: str) -> pd.DataFrame:
    """Fetch a panel with `start` in UTC."""
    frame = connection.execute(f"SELECT * REPLACE (start AT TIME ZONE 'UTC' AS start) FROM {relation}").df()
    frame["start"] = frame["start"].dt.tz_localize("UTC")
    return frame


@contextmanager
def _making(trips: Given, status: Given, stations: Given, options: PanelOptions) -> Iterator[tuple[Records, _Made]]:
    """Read the records and make the panel in their database, which is gone afterwards."""
    reading: dict[str, Any] = {
        k: v for k, v in options.items() if k in ("timezone", "mapping", "memory", "max_rejected", "force", "progress")
    }
    planned: dict[str, Any] = {k: v for k, v in options.items() if k in _Plan.__dataclass_fields__}
    plan = _Plan(**planned)
    progress = options.get("progress") or (lambda _: None)
    # The panel sorts status anyway, and finds the duplicates then.
    with read_records(trips, status, stations, keep_duplicates=True, **reading) as records:
        made = _make(records, plan, progress)
        _check_duplicates(made.quality, options.get("max_rejected", 0.2), options.get("force", False))
        yield records, made


def _check_duplicates(quality: pd.DataFrame, max_rejected: float, force: bool) -> None:
    """Judge the rejected status again, now that the duplicates among it are known."""
    log = QualityLog()
    of_status = quality[quality["source"] == "status"]
    for row in of_status[of_status["reason"] == "read"].to_dict("records"):
        log.total("status", int(row["rows"]))
    for row in of_status[of_status["action"] == "rejected"].to_dict("records"):
        log.add("status", row["reason"], "rejected", int(row["rows"]), row["detail"])
    log.check(max_rejected, force)


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
class _Made:
    """A panel in DuckDB: `sql` selects it."""

    sql: str
    columns: tuple[str, ...]
    zones: pd.DataFrame
    quality: pd.DataFrame
    reasons: pd.DataFrame
    summary: dict[str, Any]


def _make(records: Records, plan: _Plan, progress: Callable[[str], None]) -> _Made:
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
    return _Made(sql, columns, zones.frame, quality, reasons, summary)


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
    plan: _Plan,
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
        "minutes": {state: int(by_state.get(state, 0)) for state in ("available", "stockout", "closed", "unknown")},
        "reasons": {reason: int(by_reason[reason]) for reason in REASONS if reason in by_reason},
        "bins_open": int(counts[0]),
        "bins_censored": int(counts[1]),
        "censored_share": counts[1] / counts[0] if counts[0] else None,
        "feed_outages": len(evidence.silent),
    }


def _local_end(minute: int, timezone: str) -> str:
    end = pd.Timestamp(minute * 60, unit="s", tz="UTC").tz_convert(timezone).tz_localize(None)
    return str(end)


def _copy(records: Records, made: _Made, target: Path) -> None:
    """Write beside the target and rename: it appears whole or not at all."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    parts = {
        "zones": _json(made.zones),
        "quality": _json(made.quality),
        "reasons": _json(made.reasons),
        "summary": json.dumps(made.summary),
    }
    metadata = ", ".join(f"{literal(_METADATA + name)}: {literal(text)}" for name, text in parts.items())
    try:
        records.connection.execute(
            f"""COPY ({made.sql}) TO {literal(str(partial))}
            (FORMAT parquet, COMPRESSION zstd, KV_METADATA {{{metadata}}})"""
        )
        os.replace(partial, target)
    except duckdb.Error as error:
        raise InputError(f"{target}: could not be written: {str(error).splitlines()[0]}") from error
    finally:
        partial.unlink(missing_ok=True)


def _json(frame: pd.DataFrame) -> str:
    """A frame as JSON columns, with null for what is missing."""
    return json.dumps({c: [None if _missing(v) else v for v in frame[c].tolist()] for c in frame})


def _missing(value: object) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and value != value)
