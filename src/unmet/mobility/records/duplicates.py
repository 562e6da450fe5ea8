"""Trips that occur several times: with the same id, or in a file that was given twice."""

from __future__ import annotations

from math import gcd

from unmet._storage.sql import fetch_all, fetch_one, reading
from unmet.mobility.records.files import Workspace
from unmet.mobility.records.quality import Action, QualityLog
from unmet.mobility.records.staging import Staged, create_table, repeated_keys

__all__ = ["drop_duplicates"]

_KEY = "CASE WHEN trip_id IS NOT NULL THEN hash(trip_id) WHEN bike IS NOT NULL THEN hash(bike, started, start_raw) END"
_SAME = "started, ended, start_raw, end_raw"
_DAY = "coalesce(started_local, started_utc)::DATE"  # by the file's own clock, at whose midnight exports are cut
_MINUTE, _DATE = 60_000_000, 86_400_000_000  # microseconds
# Times may be rounded, so that equal trips are common. That each of so many different ones occurs an even number of
# times by chance has a probability below 1e-6.
_FEWEST = 20


def drop_duplicates(
    workspace: Workspace, accepted: str, staged: Staged, rows: int, log: QualityLog, outside: str | None
) -> str | None:
    """Make a table of the rows (`rn`) of trips to leave out. None if there are none.

    These are all but the first trip of each id; without an id, of each bike, start and time. Rows that share an id are
    one trip if they start within a minute of each other (times may be rounded, and stations named otherwise), or at the
    same station within a day (the start was corrected). Others are different trips, and are kept: ids may begin anew,
    or be of two operators.

    If a file has neither id nor bike, two equal rows may be two riders, and both are kept, unless all trips of the day
    occur equally often: then the day was given several times.

    Parameters
    ----------
    accepted : str
        Relation of the trips that nothing else speaks against, `rows` in number.
    staged : Staged
        All trips.
    log : QualityLog
        Log for the numbers of trips.
    outside : str, optional
        SQL condition of trips outside the chosen period.
    """
    keyed = f"(SELECT *, {_KEY} AS k FROM {accepted})"
    dropped = workspace.name("dropped")
    with reading(staged.label):
        workspace.connection.execute(f"CREATE TABLE {dropped} (rn BIGINT, outside BOOLEAN)")
        suspects, keys = repeated_keys(workspace, keyed, "k", rows)
        log.add("trips", "no trip or bike id", "noted", rows - keys, "duplicates cannot be found one by one")
        if suspects is not None:
            _drop_repeated(workspace, f"{keyed} WHERE k IN (SELECT k FROM {suspects})", dropped, outside, log)
        if keys < rows:
            _drop_copied_days(workspace, f"{keyed} WHERE rn NOT IN (SELECT rn FROM {dropped})", dropped, outside, log)
        found = fetch_one(workspace.connection, f"SELECT count(*) FROM {dropped}")[0]
    return dropped if found else None


def _drop_repeated(workspace: Workspace, trips: str, dropped: str, outside: str | None, log: QualityLog) -> None:
    """Add trips that occur again, by their id or their bike, to the trips to leave out."""
    again = workspace.name("again")
    # Equal hashes may differ in their values: the values decide.
    values = "trip_id, CASE WHEN trip_id IS NULL THEN (bike, started, start_raw) END"
    workspace.connection.execute(
        f"""CREATE TABLE {again} AS SELECT rn, outside, trip_id, started, start_raw,
            CASE WHEN trip_id IS NULL OR apart <= {_MINUTE} THEN 'same'
                WHEN apart <= {_DATE} AND start_raw IS NOT DISTINCT FROM place THEN 'corrected' ELSE 'other' END AS kind
        FROM (SELECT rn, {outside or "false"} AS outside, trip_id, started, start_raw,
                row_number() OVER same AS nth, first(start_raw) OVER same AS place,
                abs(epoch_us(started) - epoch_us(first(started) OVER same)) AS apart
            FROM {trips} WINDOW same AS (PARTITION BY {values} ORDER BY rn))
        WHERE nth > 1"""
    )
    copy = "row_number() OVER (PARTITION BY trip_id, started, start_raw ORDER BY rn) > 1"
    workspace.connection.execute(
        f"""UPDATE {again} SET kind = 'same' WHERE kind = 'other' AND rn IN
        (SELECT rn FROM (SELECT rn, {copy} AS copy FROM {again} WHERE kind = 'other') WHERE copy)"""
    )
    findings: tuple[tuple[str, str, Action, str], ...] = (
        ("same", "duplicate", "rejected", "same trip id, or same bike, start and time: the first was used"),
        ("corrected", "conflicting trip id", "rejected", "same trip id and station, other start: the first was used"),
        ("other", "trip id of another trip", "noted", "other start: both were counted"),
    )
    for kind, reason, action, detail in findings:
        _log(workspace, f"{again} WHERE kind = '{kind}'", reason, detail, log, action)
    workspace.connection.execute(f"INSERT INTO {dropped} SELECT rn, outside FROM {again} WHERE kind <> 'other'")


def _drop_copied_days(workspace: Workspace, trips: str, dropped: str, outside: str | None, log: QualityLog) -> None:
    """Add the copies of whole days to the trips to leave out."""
    counted = f"SELECT {_DAY} AS day, hash({_SAME}) AS h, count(*) AS n FROM (SELECT * FROM {trips}) GROUP BY ALL"
    days = fetch_all(
        workspace.connection, f"SELECT day::VARCHAR, count(*), list(DISTINCT n) FROM ({counted}) GROUP BY day"
    )
    everywhere = gcd(*(n for _, _, times in days for n in times))
    if everywhere > 1 and sum(different for _, different, _ in days) >= _FEWEST:
        copies = {day: everywhere for day, _, _ in days}
    else:
        copies = {day: n for day, different, times in days if different >= _FEWEST and (n := gcd(*times)) > 1}
    if not copies:
        return
    name, found = workspace.name("copied_days"), workspace.name("copies")
    columns = {"day": list(copies), "times": list(copies.values())}
    create_table(workspace, name, {"day": "VARCHAR", "times": "INTEGER"}, columns)
    workspace.connection.execute(f"CREATE TABLE {found} (rn BIGINT, outside BOOLEAN)")
    again = f"row_number() OVER same > (count(*) OVER (PARTITION BY {_SAME})) // times"
    _drop(
        workspace,
        found,
        f"""SELECT rn, {outside or "false"} AS outside, {again} AS again
        FROM (SELECT * FROM {trips}) JOIN {name} c ON {_DAY} = c.day::DATE
        WINDOW same AS (PARTITION BY {_SAME} ORDER BY k IS NULL, rn)""",
    )
    detail = f"on {len(copies):,} days every trip occurs several times: the days were counted once"
    _log(workspace, found, "copy of a whole day", detail, log)
    workspace.connection.execute(f"INSERT INTO {dropped} SELECT * FROM {found}")


def _drop(workspace: Workspace, table: str, judged: str) -> None:
    workspace.connection.execute(f"INSERT INTO {table} SELECT rn, outside FROM ({judged}) WHERE again")


def _log(
    workspace: Workspace, table: str, reason: str, detail: str, log: QualityLog, action: Action = "rejected"
) -> None:
    count, outside = fetch_one(workspace.connection, f"SELECT count(*), count(*) FILTER (outside) FROM {table}")
    log.add("trips", reason, action, count - outside, detail, of=log.within.get("trips"))
    log.add("trips", f"{reason}, outside the chosen period", "noted", outside, "not in the panel")
