"""What trips and status have in common on their way into DuckDB: staging, station ids, reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import duckdb

from unmet._exceptions import FileFormatError, InputError
from unmet.mobility.quality import QualityLog
from unmet.mobility.sources import Part, Workspace
from unmet.mobility.sql import fetch_all, fetch_one, reading
from unmet.mobility.stations import Resolved, Station, StationTable, id_text
from unmet.mobility.timezones import FIRST_TIME, LAST_TIME, Clock
from unmet.mobility.values import EPOCH_SECONDS_LIMIT, NOTHING, Time

__all__ = [
    "IMPOSSIBLE",
    "Staged",
    "check_epochs",
    "clock_for",
    "count_reasons",
    "find_stations",
    "insert_rows",
    "make_ids",
    "own_table",
    "report_matches",
    "stage",
]

IMPOSSIBLE = f"NOT BETWEEN TIMESTAMP '{FIRST_TIME}' AND TIMESTAMP '{LAST_TIME}'"
_MOST_STATIONS = 1_000_000


@dataclass(frozen=True)
class Staged:
    """All parts of a source in one relation of our own columns, with `rn`, a number that orders the rows."""

    relation: str
    label: str
    naive: bool
    """Whether any of its times are local ones without a zone."""


def stage(
    workspace: Workspace, source: str, parts: Sequence[tuple[Part, Mapping[str, str]]], log: QualityLog
) -> Staged:
    """Bring parts to our columns: a view where the part is cheap to read again, else a table.

    Parameters
    ----------
    workspace, source, log
        Where to put it, what it is, and where to count the lines that could not be split.
    parts : sequence of (Part, mapping)
        With each part, our columns as SQL; the same columns for all.
    """
    selects = []
    for number, (part, columns) in enumerate(parts):
        name = workspace.name(source)
        body = ", ".join(f"{sql} AS {ours}" for ours, sql in columns.items())
        row = part.row
        with reading(part.label):
            if part.lazy:
                assert row is not None
                workspace.connection.execute(
                    f"CREATE VIEW {name} AS SELECT {body}, {row} AS rn FROM {part.relation}"
                )
                row = "rn"
            else:
                _materialise(workspace, name, body, part)
                row = "rowid"
        if part.rejects is not None:
            malformed = _rejected_lines(workspace, part.rejects)
            log.total(source, malformed)
            log.add(source, "malformed line", "rejected", malformed, part.label)
        columns_only = ", ".join(columns)
        selects.append(f"SELECT {columns_only}, {row} + {number << 56} AS rn FROM {name}")
    relation = workspace.name(f"{source}_staged")
    workspace.connection.execute(f"CREATE VIEW {relation} AS {' UNION ALL '.join(selects)}")
    label = parts[0][0].label + (f" and {len(parts) - 1} more" if len(parts) > 1 else "")
    naive = any(
        sql != NOTHING for _, columns in parts for ours, sql in columns.items() if ours.endswith("_local")
    )
    return Staged(relation, label, naive)


def _materialise(workspace: Workspace, name: str, body: str, part: Part) -> None:
    try:
        workspace.connection.execute(f"CREATE TABLE {name} AS SELECT {body} FROM {part.relation}")
    except duckdb.InvalidInputException:
        if part.rejects is None:
            raise
        # Mixed line ends and stray quotes stop DuckDB's strict reader; the lenient one goes on and counts.
        for leftover in (part.rejects, f"{part.rejects}_scan"):
            workspace.connection.execute(f"DROP TABLE IF EXISTS {leftover}")
        lenient = part.relation.replace(
            "store_rejects=true", "strict_mode=false, parallel=false, store_rejects=true"
        )
        workspace.connection.execute(f"CREATE TABLE {name} AS SELECT {body} FROM {lenient}")


def _rejected_lines(workspace: Workspace, rejects: str) -> int:
    try:
        return int(
            fetch_one(workspace.connection, f"SELECT count(DISTINCT (file_id, line)) FROM {rejects}")[0]
        )
    except duckdb.CatalogException:  # the tables are made with the first rejected line
        return 0


def check_epochs(workspace: Workspace, part: Part, field: str, time: Time) -> None:
    """Refuse a column of times in milliseconds: most of its first numbers are beyond any time in seconds."""
    if time.epoch is None:
        return
    sample = f"(SELECT {time.epoch} AS epoch FROM {part.relation} LIMIT 10000)"
    with reading(part.label):
        wrong = f"epoch BETWEEN {EPOCH_SECONDS_LIMIT} AND 1e19"  # to nanoseconds
        sql = f"SELECT avg(coalesce({wrong}, false)::INT), max(epoch) FILTER ({wrong}) FROM {sample}"
        share, largest = fetch_one(workspace.connection, sql)
    if share is not None and share > 0.5:
        raise FileFormatError(
            f"{part.label}: {field} should be in seconds since 1970; {largest} looks like milliseconds."
        )


def clock_for(workspace: Workspace, staged: Staged, timezone: str, columns: Sequence[str]) -> Clock:
    """Make the clock for the period that some naive local columns cover."""
    times: list[datetime] = []
    if staged.naive:
        possible = IMPOSSIBLE.removeprefix("NOT ")
        spans = ", ".join(f"{f}({c}) FILTER ({c} {possible})" for c in columns for f in ("min", "max"))
        with reading(staged.label):
            found = fetch_one(workspace.connection, f"SELECT {spans} FROM {staged.relation}")
        times = [t for t in found if isinstance(t, datetime)]
    if not times:
        return Clock(timezone, FIRST_TIME, FIRST_TIME)
    return Clock(timezone, min(times), max(times))


def find_stations(workspace: Workspace, staged: Staged, columns: Sequence[str]) -> dict[str, int]:
    """List the raw station ids of some columns, as text, with the number of rows that have each."""
    union = " UNION ALL ".join(
        f"SELECT {column}::VARCHAR AS raw, count(*) AS n FROM {staged.relation} GROUP BY {column}"
        for column in columns
    )
    sql = (
        f"SELECT raw, sum(n)::BIGINT FROM ({union}) WHERE raw IS NOT NULL GROUP BY raw ORDER BY raw "
        f"LIMIT {_MOST_STATIONS + 1}"
    )
    with reading(staged.label):
        found = fetch_all(workspace.connection, sql)
    if len(found) > _MOST_STATIONS:
        raise InputError(
            f"{staged.label}: more than {_MOST_STATIONS:,} different stations; is it the right column?"
        )
    return {raw: rows for raw, rows in found if id_text(raw) is not None}


def make_ids(
    workspace: Workspace, table: StationTable, resolved: Resolved, staff: Mapping[str, bool] | None = None
) -> str:
    """Write the raw ids and what they stand for as a table ``(raw, ix, station, staff)``."""
    name = workspace.name("ids")
    workspace.connection.execute(
        f"CREATE TABLE {name} (raw VARCHAR, ix INTEGER, station VARCHAR, staff BOOLEAN)"
    )
    rows = [
        (raw, ix, None if ix is None else table.stations[ix].station, bool(staff and staff.get(raw)))
        for raw, ix in resolved.index.items()
    ]
    insert_rows(workspace, name, rows)
    return name


def insert_rows(workspace: Workspace, table: str, rows: Sequence[tuple[object, ...]]) -> None:
    """Insert a few thousand rows: one statement of bound values per batch, for executemany is slow."""
    width = len(rows[0]) if rows else 0
    size = max(1, 3000 // max(width, 1))
    for start in range(0, len(rows), size):
        batch = rows[start : start + size]
        marks = ", ".join(["(" + ", ".join(["?"] * width) + ")"] * len(batch))
        workspace.connection.execute(
            f"INSERT INTO {table} VALUES {marks}", [value for row in batch for value in row]
        )


def count_reasons(
    workspace: Workspace,
    source: str,
    staged: Staged,
    relation: str,
    reasons: Mapping[str, str],
    oddities: Mapping[str, str],
    log: QualityLog,
) -> tuple[set[str], dict[str, int]]:
    """Count rows by the first reason to reject them, and oddities of the others, in one pass.

    Rows with nothing odd about them, nearly all, are left behind by the filter before anything is counted.

    Parameters
    ----------
    relation : str
        May follow FROM.
    reasons : mapping
        Reason → SQL condition, in order.
    oddities : mapping
        Name → SQL condition, of accepted rows.

    Returns
    -------
    occurred : set of str
        The reasons that there was a row for.
    counts : dict
        Oddity → number of accepted rows.
    """
    cases = " ".join(f"WHEN {condition} THEN {i}" for i, condition in enumerate(reasons.values()))
    sums = "".join(f", count(*) FILTER ({condition})" for condition in oddities.values())
    odd = " OR ".join(f"({condition})" for condition in (*reasons.values(), *oddities.values()))
    with reading(staged.label):
        log.total(source, fetch_one(workspace.connection, f"SELECT count(*) FROM {staged.relation}")[0])
        found = fetch_all(
            workspace.connection,
            f"SELECT CASE {cases} ELSE -1 END AS reason, count(*){sums} FROM {relation} "
            f"WHERE {odd} GROUP BY reason",
        )
    rejected = {row[0]: row[1] for row in found if row[0] >= 0}
    for i, name in enumerate(reasons):
        log.add(source, name, "rejected", rejected.get(i, 0))
    accepted = next((row[2:] for row in found if row[0] == -1), (0,) * len(oddities))
    return {name for i, name in enumerate(reasons) if i in rejected}, dict(
        zip(oddities, accepted, strict=True)
    )


def report_matches(source: str, resolved: Resolved, log: QualityLog) -> None:
    """Note which id columns of the stations table explained how many rows."""
    rows = sum(resolved.matched.values())
    detail = ", ".join(f"{column}: {count:,}" for column, count in resolved.matched.items())
    log.add(source, "station ids matched", "noted", rows, detail)
    log.add(
        source,
        "station id ambiguous",
        "noted",
        resolved.ambiguous,
        "it is another station by another id column",
    )


def own_table(rows_of: Mapping[str, int]) -> StationTable:
    """Derive the stations from the ids in the files, where no stations were given."""
    names = list(dict.fromkeys(text for raw in rows_of if (text := id_text(raw)) is not None))
    return StationTable(
        [Station(name) for name in names], {"station": {name: i for i, name in enumerate(names)}}
    )
