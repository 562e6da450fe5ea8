"""Station status: a change log or polled snapshots, from tables or GBFS documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC

from unmet._exceptions import InputError
from unmet._storage.sql import fetch_all, fetch_one, reading
from unmet.mobility.clock.timezones import FIRST_TIME, LAST_TIME, Clock
from unmet.mobility.records.casting import (
    NOTHING,
    DateOrder,
    Time,
    boolean,
    number,
    time,
    unreadable_boolean,
    unreadable_number,
)
from unmet.mobility.records.collected import counted_types, make_polls, open_changes, split_histories
from unmet.mobility.records.dates import date_order
from unmet.mobility.records.documents import load_documents
from unmet.mobility.records.extent import EVERYTHING, Extent, find_extent
from unmet.mobility.records.files import (
    Column,
    Given,
    InputTable,
    Workspace,
    expand,
    is_frame,
    is_json,
    open_files,
    open_tables,
)
from unmet.mobility.records.headers import Headers
from unmet.mobility.records.quality import QualityLog
from unmet.mobility.records.staging import (
    IMPOSSIBLE,
    Staged,
    Within,
    clock_for,
    count_reasons,
    epoch_unit,
    make_ids,
    outside_period,
    repeated_keys,
    report_matches,
    stage,
)
from unmet.mobility.records.stations import StationTable, resolve
from unmet.mobility.records.vehicle_types import available_by_types, available_of_type

__all__ = ["StagedStatus", "make_status", "stage_status"]

# No station has so many vehicles: a larger number is a wrong column or an overflow.
_MOST_VEHICLES = 100_000
_FIRST_SECOND, _LAST_SECOND = (int(t.replace(tzinfo=UTC).timestamp()) for t in (FIRST_TIME, LAST_TIME))


@dataclass(frozen=True)
class StagedStatus:
    """Status in our columns, not yet checked.

    Attributes
    ----------
    staged : Staged
        The relation.
    header : str
        Header of the station's id.
    headers : set of str
        All headers of the files.
    epochs : bool
        Whether all times are numbers since 1970.
    """

    staged: Staged
    header: str
    headers: set[str]
    epochs: bool


def stage_status(
    workspace: Workspace,
    given: Given,
    headers: Headers,
    log: QualityLog,
    force: bool,
    progress: Callable[[str], None],
    order: DateOrder | None = None,
    vehicle_type: str | None = None,
) -> StagedStatus:
    """Open status and convert it to our columns.

    `order` is that of day, month and year, if chosen; `vehicle_type` the type of vehicle to count, if not all.
    """
    histories, others = split_histories(given)
    tables = [open_changes(workspace, history) for history in histories]
    types: list[list[str] | None] = [
        None if vehicle_type is None else counted_types(workspace, history, vehicle_type) for history in histories
    ]
    if histories:
        make_polls(workspace, histories)
    if is_frame(others):
        tables += open_tables(workspace, others, "status")
    elif others or not histories:
        paths = expand(others, "status")
        documents = [p for p in paths if is_json(p)]
        if documents:
            tables.append(load_documents(workspace, documents, log, force, progress, vehicle_type))
        tables += open_files(workspace, [p for p in paths if not is_json(p)])
    matched = [headers.match("status", table.columns, table.label) for table in tables]
    kinds = {table.columns[m["station"]].type for table, m in zip(tables, matched, strict=True)}
    selects = []
    epochs = True
    types += [None] * (len(tables) - len(histories))
    for table, m, of_history in zip(tables, matched, types, strict=True):
        found = date_order(workspace, table, [m["at"]], order, "status", log)
        at = time(table.columns[m["at"]], epoch_unit(workspace, table, m["at"]), found)
        epochs &= at.epoch is not None and at.local == NOTHING
        columns = _columns(table.columns, m, at, native=len(kinds) == 1)
        if vehicle_type is not None:
            columns |= _of_type(workspace, table, m, columns["available"], vehicle_type, of_history)
        selects.append((table, columns))
        for flag in ("installed", "renting", "accepting"):
            if flag not in m:
                log.add("status", f"no column {flag}", "noted", 1, f"{table.label}: assumed to be always true")
    staged = stage(workspace, "status", selects, log)
    return StagedStatus(staged, matched[0]["station"], set().union(*(table.columns for table in tables)), epochs)


def _columns(columns: Mapping[str, Column], matched: Mapping[str, str], at: Time, native: bool) -> dict[str, str]:
    def have(field: str) -> Column | None:
        return columns[matched[field]] if field in matched else None

    station = columns[matched["station"]]
    disabled, docks = have("disabled"), have("docks")
    flags = {name: have(name) for name in ("installed", "renting", "accepting")}
    return {
        # Ids keep their type: converting millions of numbers to text is slow.
        "raw": station.sql if native else f"CAST({station.sql} AS VARCHAR)",
        "at_local": at.local,
        "at_utc": at.utc,
        "no_time": f"{columns[matched['at']].sql} IS NULL",
        "epoch": at.whole_seconds,  # rounded up: a record is in force from the next full second on
        "available": number(columns[matched["available"]], "INTEGER"),
        "disabled": number(disabled, "INTEGER") if disabled else "NULL::INTEGER",
        "docks": number(docks, "INTEGER") if docks else "NULL::INTEGER",
        **{name: f"coalesce({boolean(flag)}, true)" if flag else "true" for name, flag in flags.items()},
        "bad_flag": " OR ".join(unreadable_boolean(flag) for flag in flags.values() if flag) or "false",
        "blank_flag": " OR ".join(f"{boolean(flag)} IS NULL" for flag in flags.values() if flag) or "false",
        "bad_disabled": unreadable_number(disabled, "INTEGER") if disabled else "false",
        "bad_docks": unreadable_number(docks, "INTEGER") if docks else "false",
    }


def _of_type(
    workspace: Workspace,
    table: InputTable,
    matched: Mapping[str, str],
    available: str,
    kind: str,
    types: Sequence[str] | None,
) -> dict[str, str]:
    """Return the columns that differ if only vehicles of one type count; `types` are its ids in a history.

    Docks and disabled vehicles are those of all types: a station full of others is not dead, but out of this one.
    """
    if table.relation.startswith("gbfs"):  # counted when the documents were read
        return {"docks": "NULL::INTEGER", "disabled": "NULL::INTEGER"}
    if types is not None:
        return {
            "available": _of_history(workspace, table, types),
            "docks": "NULL::INTEGER",
            "disabled": "NULL::INTEGER",
        }
    electric = number(table.columns[matched["electric"]], "INTEGER") if "electric" in matched else None
    chosen = available_of_type(kind, available, electric, table.label)
    return {"available": chosen, "docks": "NULL::INTEGER", "disabled": "NULL::INTEGER"}


def _of_history(workspace: Workspace, table: InputTable, types: Sequence[str]) -> str:
    """Return the SQL of the available vehicles of some types in a history; refuse types that it never lists."""
    query = f"SELECT DISTINCT unnest(json_keys(vehicle_types)) FROM {table.relation}"
    with reading(table.label):
        known = sorted(str(row[0]) for row in fetch_all(workspace.connection, query))
    if not set(types) & set(known):
        found = ", ".join(known[:10]) or "none; its feed does not count vehicles by type"
        raise InputError(f"vehicle_type: {table.label} has no vehicle of type {types[0]!r}. Types in it: {found}.")
    return available_by_types([name for name in types if name in known], "vehicle_types")


def make_status(
    workspace: Workspace,
    status: StagedStatus,
    known: StationTable,
    rows_of: Mapping[str, int],
    timezone: str,
    log: QualityLog,
    *,
    matched: bool,
    keep_duplicates: bool,
    within: Within,
) -> None:
    """Make the view ``status`` of accepted records. `matched` if stations were given to look up the ids in."""
    staged = status.staged
    resolved = resolve(known, rows_of, status.header)
    if matched:
        report_matches("status", resolved, log)
    ids = make_ids(workspace, known, resolved)
    clock = clock_for(workspace, staged, timezone, ["at_local"])
    joined = _joined(workspace, staged, clock, ids)
    # If every id is known and times are numbers, conditions are on plain columns: DuckDB then sees from the statistics
    # of a Parquet file that no row meets them, without reading it.
    plain = None not in resolved.index.values() and status.epochs
    moments = ["epoch"] if status.epochs else ["at_utc", "at_local"]
    extent = find_extent(workspace, staged.relation, moments, staged.label, within, seconds=status.epochs)
    stations, reasons, oddities = _conditions(status, clock, plain, extent)
    details = {"unreadable flag": "installed, renting and accepting are true or false, 1 or 0, yes or no"}
    details |= {"impossible time": str(extent)} if extent != EVERYTHING else {}
    judged = staged.relation if plain else joined
    outside = outside_period("epoch" if plain else "moment", within, seconds=plain)
    rows, occurred, seen = count_reasons(
        workspace, "status", staged, judged, stations | reasons, oddities, log, outside, details
    )
    log.add("status", "hour that came twice", "noted", seen["doubled"], "the first occurrence was used")
    log.add(
        "status", "hour that did not exist", "repaired", seen["skipped"], "moved forward by the change of the clock"
    )
    log.add("status", "negative docks", "repaired", seen["negative_docks"], "left blank")
    log.add("status", "negative disabled vehicles", "repaired", seen["negative_disabled"], "left blank")
    log.add("status", "unreadable docks", "repaired", seen["bad_docks"], "left blank")
    log.add("status", "unreadable disabled vehicles", "repaired", seen["bad_disabled"], "left blank")
    log.add("status", "missing flag", "repaired", seen["blank_flag"], "assumed to be true")
    where = [f"({condition}) IS NOT TRUE" for name, condition in reasons.items() if name in occurred]
    where.append("ix IS NOT NULL")
    if not keep_duplicates:
        dropped = _duplicates(workspace, f"{joined} WHERE {' AND '.join(where)}", staged, rows, log)
        if dropped:
            where.append(f"rn NOT IN (SELECT rn FROM {dropped})")
    docks = "CASE WHEN docks >= 0 THEN docks END" if seen["negative_docks"] else "docks"
    disabled = "CASE WHEN disabled >= 0 THEN disabled END" if seen["negative_disabled"] else "disabled"
    second = "epoch" if status.epochs else "(epoch_us(moment) + 999999) // 1000000"
    workspace.connection.execute(
        f"""CREATE VIEW status AS
        SELECT station, moment AS "at", available, {disabled} AS disabled, {docks} AS docks,
            installed, renting, accepting, ix, rn, {second} AS second
        FROM {joined} WHERE {" AND ".join(where)}"""
    )


def _conditions(
    status: StagedStatus, clock: Clock, plain: bool, extent: Extent
) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Return the SQL conditions of the reasons to reject a record, by station and other, and of the oddities.

    `plain` if every station is known and times are numbers; `extent` is where the records are.
    """
    stations = {"missing station": "raw IS NULL", "unknown station": "false" if plain else "ix IS NULL"}
    reasons = {
        "missing time": "no_time",
        "impossible time": f"epoch IS NULL OR epoch NOT BETWEEN {_FIRST_SECOND} AND {_LAST_SECOND} "
        f"OR {extent.outside('epoch', seconds=True)}"
        if status.epochs
        else f"moment IS NULL OR moment {IMPOSSIBLE} OR {extent.outside('moment')}",
        "missing or unreadable count": "available IS NULL",
        "negative vehicles": "available < 0",
        "impossible count": f"available > {_MOST_VEHICLES}",
        "unreadable flag": "bad_flag",
    }
    oddities = {
        "doubled": f"at_utc IS NULL AND {clock.doubled('at_local')} > 0",
        "skipped": f"at_utc IS NULL AND {clock.skipped('at_local')} > 0",
        "negative_docks": "docks < 0",
        "negative_disabled": "disabled < 0",
        "bad_docks": "bad_docks",
        "bad_disabled": "bad_disabled",
        "blank_flag": "blank_flag",
    }
    return stations, reasons, oddities


def _joined(workspace: Workspace, staged: Staged, clock: Clock, ids: str) -> str:
    """Make a view that adds UTC times and stations."""
    joined = workspace.name("status_joined")
    described = f"SELECT column_type FROM (DESCRIBE {staged.relation}) WHERE column_name = 'raw'"
    raw_type = fetch_one(workspace.connection, described)[0]
    workspace.connection.execute(
        f"""CREATE VIEW {joined} AS
        SELECT s.*, coalesce(at_utc, {clock.utc("at_local")}) AS moment, i.ix, i.station
        FROM {staged.relation} s LEFT JOIN {ids} i ON s.raw = CAST(i.raw AS {raw_type})"""
    )
    return joined


def _duplicates(workspace: Workspace, accepted: str, staged: Staged, rows: int, log: QualityLog) -> str | None:
    """Make a table of all but the last record of each station and second. None if there are none."""
    # The key is station and second in one number (there are at most 2 ** 20 stations), in the order in which the rows
    # seem to be sorted: by station, as in most change logs, or by time.
    sample = f"(SELECT raw FROM {staged.relation} LIMIT 10000)"
    with reading(staged.label):
        runs, rows_seen = fetch_one(
            workspace.connection,
            f"""SELECT count(*) FILTER (raw IS DISTINCT FROM before), count(*)
            FROM (SELECT raw, lag(raw) OVER () AS before FROM {sample})""",
        )
        second = "epoch_us(moment) // 1000000"
        key = f"ix::BIGINT << 34 | {second}" if runs < rows_seen / 4 else f"({second}) << 20 | ix"
        keyed = f"(SELECT rn, ix, {key} AS k FROM {accepted})"
        keys, _ = repeated_keys(workspace, keyed, "ix", rows)
        if keys is None:
            return None
        name = workspace.name("dropped")
        workspace.connection.execute(
            f"""CREATE TABLE {name} AS SELECT rn FROM
            (SELECT rn, row_number() OVER (PARTITION BY k ORDER BY rn DESC) AS nth
             FROM {keyed} WHERE k IN (SELECT k FROM {keys}))
            WHERE nth > 1"""
        )
        count = fetch_one(workspace.connection, f"SELECT count(*) FROM {name}")[0]
    log.add("status", "duplicate", "rejected", count, "same station and second: the last record was used")
    return name
