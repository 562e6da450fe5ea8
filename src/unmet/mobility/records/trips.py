"""Trips: read, converted to UTC, matched to stations, with every rejected row counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from unmet._exceptions import InputError
from unmet._storage.sql import fetch_all, fetch_one, reading
from unmet.mobility.clock.timezones import Clock
from unmet.mobility.records.casting import NOTHING, DateOrder, Time, number, text, time
from unmet.mobility.records.dates import date_order
from unmet.mobility.records.duplicates import drop_duplicates
from unmet.mobility.records.extent import EVERYTHING, Extent, find_extent
from unmet.mobility.records.files import Column, Given, InputTable, Workspace, open_tables
from unmet.mobility.records.headers import Headers, is_staff
from unmet.mobility.records.quality import Action, QualityLog
from unmet.mobility.records.staging import (
    IMPOSSIBLE,
    Staged,
    Within,
    clock_for,
    count_reasons,
    epoch_unit,
    make_ids,
    outside_period,
    report_matches,
    stage,
)
from unmet.mobility.records.stations import StationTable, check_not_swapped, resolve
from unmet.mobility.records.vehicle_types import is_of_type

__all__ = ["StagedTrips", "make_trips", "stage_trips"]

_LONGEST_TRIP = 366 * 86_400_000_000  # microseconds


@dataclass(frozen=True)
class StagedTrips:
    """Trips in our columns, not yet checked.

    Attributes
    ----------
    staged : Staged
        The relation.
    header : str
        Header of the start station's id.
    headers : set of str
        All headers of the files.
    fields : mapping
        Our field → its header, for the fields that any file has (from the first file that has it).
    """

    staged: Staged
    header: str
    headers: set[str]
    fields: Mapping[str, str]


def stage_trips(
    workspace: Workspace,
    given: Given,
    headers: Headers,
    log: QualityLog,
    order: DateOrder | None = None,
    vehicle_type: str | None = None,
) -> StagedTrips:
    """Open trips and convert them to our columns.

    `order` is that of day, month and year, if chosen; `vehicle_type` the type of vehicle to keep, if not all.
    """
    tables = open_tables(workspace, given, "trips")
    selects = []
    header = ""
    fields: dict[str, str] = {}
    for table in tables:
        matched = headers.match("trips", table.columns, table.label)
        if vehicle_type is not None and "vehicle" not in matched:
            raise InputError(
                f"vehicle_type: {table.label} has no column of the type of vehicle, such as rideable_type. Name it "
                "with --map vehicle=THEIR_COLUMN."
            )
        fields = matched | fields
        timed = {field: matched[field] for field in ("started_at", "ended_at") if field in matched}
        found = date_order(workspace, table, list(timed.values()), order, "trips", log)
        times: dict[str, Time] = {
            field: time(table.columns[header], epoch_unit(workspace, table, header), found)
            for field, header in timed.items()
        }
        selects.append((table, _columns(table, matched, times)))
        header = header or matched.get("start_station", matched.get("start_station_name", ""))
    staged = stage(workspace, "trips", selects, log)
    if vehicle_type is not None:
        staged = _of_type(workspace, staged, vehicle_type, log)
    return StagedTrips(staged, header, set().union(*(table.columns for table in tables)), fields)


def _of_type(workspace: Workspace, staged: Staged, kind: str, log: QualityLog) -> Staged:
    """Keep the trips on vehicles of one type."""
    condition = is_of_type(kind, "vehicle")
    with reading(staged.label):
        kept, known, all_ = fetch_one(
            workspace.connection,
            f"SELECT count(*) FILTER ({condition}), count(vehicle), count(*) FROM {staged.relation}",
        )
    if kept == 0:
        raise InputError(f"vehicle_type: none of {all_:,} trips is on a vehicle of type {kind!r}.")
    log.add("trips", "other type of vehicle", "noted", known - kept, f"not {kind}: not in the panel", of=all_)
    log.add("trips", "missing type of vehicle", "rejected", all_ - known, of=all_)
    name = workspace.name("trips_of_type")
    workspace.connection.execute(f"CREATE VIEW {name} AS SELECT * FROM {staged.relation} WHERE {condition}")
    return replace(staged, relation=name)


def _columns(table: InputTable, matched: Mapping[str, str], times: Mapping[str, Time]) -> dict[str, str]:
    def have(field: str) -> Column | None:
        return table.columns[matched[field]] if field in matched else None

    def as_text(*fields: str) -> str:
        return next((text(c) for field in fields if (c := have(field))), "NULL::VARCHAR")

    def as_degrees(field: str) -> str:
        return number(c, "DOUBLE") if (c := have(field)) else "NULL::DOUBLE"

    started, ended = times["started_at"], times.get("ended_at", Time(NOTHING, NOTHING))
    return {
        "trip_id": as_text("trip_id"),
        "bike": as_text("bike"),
        "rider": as_text("rider"),
        "vehicle": as_text("vehicle"),
        "started_local": started.local,
        "started_utc": started.utc,
        "ended_local": ended.local,
        "ended_utc": ended.utc,
        "no_start": f"{table.columns[matched['started_at']].sql} IS NULL",
        "start_raw": as_text("start_station", "start_station_name"),
        "end_raw": as_text("end_station", "end_station_name"),
        "start_name": as_text("start_station_name"),
        "end_name": as_text("end_station_name"),
        "start_lat": as_degrees("start_lat"),
        "start_lon": as_degrees("start_lon"),
        "end_lat": as_degrees("end_lat"),
        "end_lon": as_degrees("end_lon"),
    }


def make_trips(
    workspace: Workspace,
    trips: StagedTrips,
    known: StationTable,
    rows_of: Mapping[str, int],
    timezone: str,
    log: QualityLog,
    *,
    matched: bool,
    within: Within,
) -> None:
    """Make the view ``trips`` of accepted trips. `matched` if stations were given to look up the ids in."""
    staged = trips.staged
    resolved = resolve(known, rows_of, trips.header)
    if matched:
        report_matches("trips", resolved, log)
    staff = _staff_stations(workspace, trips, rows_of)
    ids = make_ids(workspace, known, resolved, staff)
    _check_places(workspace, trips, timezone)
    clock = clock_for(workspace, staged, timezone, ["started_local", "ended_local"])
    timed = _timed(workspace, trips, clock)
    # If every id is known and none belongs to staff, rows can be judged without looking up their stations.
    plain = None not in resolved.index.values() and not any(staff.values())
    judged = timed if plain else _located(workspace, timed, ids)
    extent = find_extent(workspace, staged.relation, ["started_utc", "started_local"], staged.label, within)
    reasons, oddities = _conditions(plain, _staff_riders(workspace, trips), extent)
    outside = outside_period("started", within)
    details = {"impossible time": str(extent)} if extent != EVERYTHING else {}
    rows, occurred, seen = count_reasons(workspace, "trips", staged, judged, reasons, oddities, log, outside, details)
    _note(seen, log)
    accepted = workspace.name("trips_accepted")
    conditions = [f"({condition}) IS NOT TRUE" for name, condition in reasons.items() if name in occurred]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    workspace.connection.execute(f"CREATE VIEW {accepted} AS SELECT * FROM {judged}{where}")
    dropped = drop_duplicates(workspace, accepted, staged, rows, log, outside)
    ended = f"CASE WHEN {oddities['late_end']} THEN NULL ELSE ended END" if seen["late_end"] else "ended"
    workspace.connection.execute(
        f"""CREATE VIEW trips AS SELECT trip_id, started AS started_at,
        {ended} AS ended_at,
        start_station, end_station, start_lat, start_lon, end_lat, end_lon, start_ix, end_ix
        FROM {_located(workspace, accepted, ids) if plain else accepted}
        {f"WHERE rn NOT IN (SELECT rn FROM {dropped})" if dropped else ""}"""
    )
    untouched = (
        not occurred and dropped is None and not any(seen[o] for o in ("doubled", "nonexistent", "late_end", "no_end"))
    )
    _write_span(workspace, staged, clock, untouched)


def _conditions(plain: bool, riders: str, extent: Extent) -> tuple[dict[str, str], dict[str, str]]:
    """Return the SQL conditions of the reasons to reject a trip, and of the oddities of accepted ones.

    `plain` if every station is known and none belongs to staff; `riders` is SQL for riders that are staff; `extent` is
    where the records are.
    """
    reasons = {
        "missing time": "no_start",
        "impossible time": f"started IS NULL OR started {IMPOSSIBLE} OR {extent.outside('started')}",
        "end before start": "ended < started",
        "missing station": "start_raw IS NULL AND (start_lat IS NULL OR start_lon IS NULL)",
        "staff and test trips": f"{'false' if plain else 'start_staff OR end_staff'}{riders}",
        "unknown station": "false" if plain else "start_raw IS NOT NULL AND start_ix IS NULL",
    }
    oddities = {
        "nonexistent": "start_gap > 0 OR end_gap > 0",
        "doubled": "start_fold > 0 OR end_fold > 0",
        "no_end": "ended IS NULL",
        # A vehicle that is brought back years later was not rented so long.
        "late_end": f"ended {IMPOSSIBLE} OR epoch_us(ended) - epoch_us(started) > {_LONGEST_TRIP}",
        "no_start_station": "start_raw IS NULL",
        "no_end_station": "end_raw IS NULL",
        "unknown_end": "false" if plain else "end_raw IS NOT NULL AND end_ix IS NULL",
        "impossible_place": "bad_start_place OR bad_end_place",
    }
    return reasons, oddities


def _write_span(workspace: Workspace, staged: Staged, clock: Clock, untouched: bool) -> None:
    """Make the table ``trip_span``: the first and the last start, and the last end, of the accepted trips.

    If no row was changed or rejected, the ranges of the plain columns are used: a Parquet file stores them.
    """

    def end(function: str, side: str) -> str:
        local = clock.utc(f"{function}({side}_local)")
        return f"{'least' if function == 'min' else 'greatest'}({function}({side}_utc), {local})"

    ends = [f"{f}({side}_at)" for f, side in (("min", "started"), ("max", "started"), ("max", "ended"))]
    source = "trips"
    if untouched:
        ends = [end("min", "started"), end("max", "started"), end("max", "ended")]
        source = staged.relation
    with reading(staged.label):
        workspace.connection.execute(
            f"""CREATE TABLE trip_span AS
            SELECT {ends[0]} AS first, {ends[1]} AS last, {ends[2]} AS last_end FROM {source}"""
        )


def _note(seen: Mapping[str, int], log: QualityLog) -> None:
    """Log the oddities of accepted trips."""
    findings: tuple[tuple[str, Action, str, str], ...] = (
        ("hour that did not exist", "repaired", "nonexistent", "moved forward by the clock change"),
        ("hour that came twice", "noted", "doubled", "the shorter trip was assumed, else the first occurrence"),
        ("missing or unreadable end", "noted", "no_end", "counted as a pickup"),
        ("impossible end time", "repaired", "late_end", "left blank"),
        (
            "missing start station",
            "noted",
            "no_start_station",
            "placed by coordinates, if zones have an outline",
        ),
        ("missing end station", "noted", "no_end_station", "counted as a pickup, not as a return"),
        ("unknown end station", "repaired", "unknown_end", "left blank: no return is counted"),
        ("impossible coordinates", "repaired", "impossible_place", "left blank"),
    )
    for reason, action, oddity, detail in findings:
        log.add("trips", reason, action, seen[oddity], detail)


def _timed(workspace: Workspace, trips: StagedTrips, clock: Clock) -> str:
    """Make a view with UTC times, and without impossible coordinates.

    In an hour that came twice, the reading that makes the shorter trip is used, and the first if both do. So a start is
    moved to the second occurrence if the trip ended after the doubled hour, and an end if it would be before the start.
    A start in an hour that did not exist is moved forward over the gap, or backward if the trip would end before it.
    """
    name = workspace.name("trips_timed")

    def outside(side: str) -> str:
        if f"{side}_lat" not in trips.fields:
            return "false"
        lat, lon = f"{side}_lat", f"{side}_lon"
        return f"(abs({lat}) > 90 OR abs({lon}) > 180 OR ({lat} = 0 AND {lon} = 0)) IS TRUE"

    def place(side: str, axis: str) -> str:
        known = f"{side}_lat" in trips.fields
        return (
            f"{f'CASE WHEN NOT bad_{side}_place THEN {side}_{axis} END' if known else 'NULL::DOUBLE'} AS {side}_{axis}"
        )

    workspace.connection.execute(
        f"""CREATE VIEW {name} AS
        WITH first_reading AS (
            SELECT *, coalesce(started_utc, {clock.utc("started_local")}) AS started_0,
                coalesce(ended_utc, {clock.utc("ended_local")}) AS ended_0,
                CASE WHEN started_utc IS NULL THEN {clock.doubled("started_local")} ELSE 0 END AS start_fold,
                CASE WHEN ended_utc IS NULL THEN {clock.doubled("ended_local")} ELSE 0 END AS end_fold,
                CASE WHEN started_utc IS NULL THEN {clock.skipped("started_local")} ELSE 0 END AS start_gap,
                CASE WHEN ended_utc IS NULL THEN {clock.skipped("ended_local")} ELSE 0 END AS end_gap,
                {outside("start")} AS bad_start_place,
                {outside("end")} AS bad_end_place
            FROM {trips.staged.relation})
        SELECT * EXCLUDE (started_0, ended_0, start_lat, start_lon, end_lat, end_lon),
            {place("start", "lat")}, {place("start", "lon")}, {place("end", "lat")}, {place("end", "lon")},
            CASE WHEN start_fold > 0 AND end_fold = 0
                    AND epoch_us(ended_0) - epoch_us(started_0) >= start_fold
                    THEN make_timestamp(epoch_us(started_0) + start_fold)
                WHEN start_gap > 0 AND end_gap = 0 AND ended_0 < started_0
                    THEN make_timestamp(epoch_us(started_0) - start_gap)
                ELSE started_0 END AS started,
            CASE WHEN start_fold > 0 AND end_fold > 0 AND ended_0 < started_0
                THEN make_timestamp(epoch_us(ended_0) + end_fold) ELSE ended_0 END AS ended
        FROM first_reading"""
    )
    return name


def _located(workspace: Workspace, trips: str, ids: str) -> str:
    """Make a view that adds the stations at which trips start and end."""
    name = workspace.name("trips_located")
    workspace.connection.execute(
        f"""CREATE VIEW {name} AS SELECT t.*,
            s.ix AS start_ix, s.station AS start_station, coalesce(s.staff, false) AS start_staff,
            e.ix AS end_ix, e.station AS end_station, coalesce(e.staff, false) AS end_staff
        FROM {trips} t LEFT JOIN {ids} s ON t.start_raw = s.raw LEFT JOIN {ids} e ON t.end_raw = e.raw"""
    )
    return name


def _staff_stations(workspace: Workspace, trips: StagedTrips, ids: Mapping[str, int]) -> dict[str, bool]:
    """Return, for each raw station id, whether it or any of its names belongs to a depot or a test."""
    staff = {raw: is_staff(raw) for raw in ids}
    for side in ("start", "end"):
        if f"{side}_station_name" not in trips.fields:
            continue
        sql = f"SELECT DISTINCT {side}_raw, {side}_name FROM {trips.staged.relation} WHERE {side}_raw IS NOT NULL"
        with reading(trips.staged.label):
            for raw, name in fetch_all(workspace.connection, sql):
                staff[raw] = staff.get(raw, False) or (name is not None and is_staff(name))
    return staff


def _staff_riders(workspace: Workspace, trips: StagedTrips) -> str:
    """Return SQL to append to a condition: or the rider's type means staff."""
    if "rider" not in trips.fields:
        return ""
    sql = f"SELECT DISTINCT rider FROM {trips.staged.relation} WHERE rider IS NOT NULL LIMIT 1000"
    with reading(trips.staged.label):
        riders = [r[0] for r in fetch_all(workspace.connection, sql) if is_staff(r[0])]
    if not riders:
        return ""
    name = workspace.name("staff")
    workspace.connection.execute(f"CREATE TABLE {name} AS SELECT unnest(?) AS rider", [riders])
    return f" OR rider IN (SELECT rider FROM {name})"


def _check_places(workspace: Workspace, trips: StagedTrips, timezone: str) -> None:
    """Refuse trips with swapped latitudes and longitudes, judged by the median of a sample."""
    if "start_lat" not in trips.fields:
        return
    sql = (
        "SELECT median(start_lat), median(start_lon) FROM "
        f"(SELECT start_lat, start_lon FROM {trips.staged.relation} "
        "WHERE start_lat <> 0 AND start_lon <> 0 LIMIT 100000)"
    )
    with reading(trips.staged.label):
        lat, lon = fetch_one(workspace.connection, sql)
    if lat is not None and lon is not None:
        pairs = [(f"{side}_lat", f"{side}_lon") for side in ("start", "end")]
        check_not_swapped(lat, lon, timezone, trips.staged.label, trips.fields, pairs)
