"""Steps that trips, status and weather share on their way into DuckDB: staging, station ids, counts by reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import duckdb
import numpy as np
import numpy.typing as npt

from unmet._exceptions import FileFormatError, InputError
from unmet._storage.sql import fetch_all, fetch_one, reading
from unmet.mobility.clock.timezones import FIRST_TIME, LAST_TIME, Clock
from unmet.mobility.records.casting import NOTHING, EpochUnit, epoch_range, time
from unmet.mobility.records.files import MOST_TABLES, InputTable, Workspace, malformed_lines
from unmet.mobility.records.quality import QualityLog
from unmet.mobility.records.stations import Resolved, Station, StationTable, id_text

__all__ = [
    "IMPOSSIBLE",
    "Staged",
    "Within",
    "clock_for",
    "count_reasons",
    "create_table",
    "epoch_unit",
    "find_stations",
    "make_ids",
    "outside_period",
    "own_table",
    "repeated_keys",
    "report_matches",
    "stage",
]

Within = tuple[int | None, int | None]
"""The chosen period: its first minute (UTC) and the one after its last. None where not chosen."""

IMPOSSIBLE = f"NOT BETWEEN TIMESTAMP '{FIRST_TIME}' AND TIMESTAMP '{LAST_TIME}'"
_MOST_STATIONS = 1 << 20
_STRAY = 0.01  # share of numbers in another unit that may be errors of single rows
_DTYPES: Mapping[str, type] = {"INTEGER": np.int64, "DOUBLE": np.float64, "BOOLEAN": np.bool_}


@dataclass(frozen=True)
class Staged:
    """All tables of a source as one relation with our columns.

    Attributes
    ----------
    relation : str
        Name of the relation. Its column `rn` is a number that orders the rows.
    label : str
        Name in messages.
    naive : bool
        Whether it has local times without an offset.
    """

    relation: str
    label: str
    naive: bool


def stage(
    workspace: Workspace, source: str, tables: Sequence[tuple[InputTable, Mapping[str, str]]], log: QualityLog
) -> Staged:
    """Convert tables to our columns: to a view if the table is cheap to read again, else to a table in DuckDB.

    Parameters
    ----------
    workspace, source
        Database, and kind of file.
    tables : sequence of (InputTable, mapping)
        Tables with the SQL of our columns, the same columns for all.
    log : QualityLog
        Log for lines that could not be split.
    """
    if len(tables) > MOST_TABLES:  # the number of a table is stored in the top bits of `rn`
        raise InputError(f"{source}: the files have more than {MOST_TABLES} different headers; give fewer files.")
    selects = []
    for number, (table, columns) in enumerate(tables):
        name = workspace.name(source)
        body = ", ".join(f"{sql} AS {ours}" for ours, sql in columns.items())
        row = table.row
        with reading(table.label):
            if table.lazy:
                assert row is not None
                workspace.connection.execute(f"CREATE VIEW {name} AS SELECT {body}, {row} AS rn FROM {table.relation}")
                row = "rn"
            else:
                _materialise(workspace, name, body, table)
                row = "rowid"
        malformed = malformed_lines(workspace, table, partial(_count_rows, workspace, name))
        log.total(source, malformed)
        log.add(source, "malformed line", "rejected", malformed, table.label)
        columns_only = ", ".join(columns)
        selects.append(f"SELECT {columns_only}, {row} + {number << 56} AS rn FROM {name}")
    relation = workspace.name(f"{source}_staged")
    workspace.connection.execute(f"CREATE VIEW {relation} AS {' UNION ALL '.join(selects)}")
    label = tables[0][0].label + (f" and {len(tables) - 1} more" if len(tables) > 1 else "")
    naive = any(sql != NOTHING for _, columns in tables for ours, sql in columns.items() if ours.endswith("_local"))
    return Staged(relation, label, naive)


def _count_rows(workspace: Workspace, name: str) -> int:
    return int(fetch_one(workspace.connection, f"SELECT count(*) FROM {name}")[0])


def _materialise(workspace: Workspace, name: str, body: str, table: InputTable) -> None:
    try:
        workspace.connection.execute(f"CREATE TABLE {name} AS SELECT {body} FROM {table.relation}")
    except duckdb.InvalidInputException:
        if table.rejects is None:
            raise
        for leftover in (table.rejects, f"{table.rejects}_scan"):
            workspace.connection.execute(f"DROP TABLE IF EXISTS {leftover}")
        workspace.connection.execute(f"CREATE TABLE {name} AS SELECT {body} FROM {table.lenient}")


def epoch_unit(workspace: Workspace, table: InputTable, header: str) -> EpochUnit:
    """Return the unit of a column of numbers since 1970, judged by the size of the first 10,000 numbers.

    A column is refused if it mixes seconds and milliseconds, or if most of its numbers are neither. Single rows in
    another unit are rejected later, as impossible times.
    """
    epoch = time(table.columns[header]).epoch
    if epoch is None:
        return "seconds"
    first, last = (int(moment.replace(tzinfo=UTC).timestamp()) for moment in (FIRST_TIME, LAST_TIME))
    beyond = f"epoch BETWEEN {epoch_range('milliseconds')[1] + 1} AND 1e19"  # up to nanoseconds
    sql = f"""SELECT count(*) FILTER (epoch BETWEEN {first} AND {last}),
            count(*) FILTER (epoch BETWEEN {1000 * first} AND {1000 * last}),
            count(*) FILTER ({beyond}), max(epoch) FILTER ({beyond}), count(*)
        FROM (SELECT {epoch} AS epoch FROM {table.lenient or table.relation} LIMIT 10000)"""
    with reading(table.label):
        seconds, milliseconds, neither, largest, rows = fetch_one(workspace.connection, sql)
    expected = f"{table.label}: {header} should be in seconds or milliseconds since 1970"
    if neither > rows / 2:
        raise FileFormatError(f"{expected}; {largest} is neither.")
    if min(seconds, milliseconds) > _STRAY * (seconds + milliseconds):
        raise FileFormatError(
            f"{expected}; it mixes both ({seconds:,} and {milliseconds:,} of the first {rows:,} rows)."
        )
    return "milliseconds" if milliseconds > seconds else "seconds"


def clock_for(workspace: Workspace, staged: Staged, timezone: str, columns: Sequence[str]) -> Clock:
    """Make the clock for the period that some columns of local times cover."""
    times: list[datetime] = []
    if staged.naive:
        possible = IMPOSSIBLE.removeprefix("NOT ")
        spans = [f"{f}({c})" for c in columns for f in ("min", "max")]
        with reading(staged.label):
            # DuckDB takes the range of a plain column from the statistics of a Parquet file, without reading it.
            plain = ", ".join(f"CASE WHEN {s} {possible} THEN {s} END, {s} {possible}" for s in spans)
            found = fetch_one(workspace.connection, f"SELECT {plain} FROM {staged.relation}")
            if False in found[1::2]:
                filtered = ", ".join(f"{s} FILTER ({s[4:-1]} {possible})" for s in spans)
                found = fetch_one(workspace.connection, f"SELECT {filtered} FROM {staged.relation}")
        times = [t for t in found if isinstance(t, datetime)]
    if not times:
        return Clock(timezone, FIRST_TIME, FIRST_TIME)
    return Clock(timezone, min(times), max(times))


def find_stations(workspace: Workspace, staged: Staged, columns: Sequence[str]) -> dict[str, int]:
    """List the raw station ids of some columns as text, with the number of rows of each in the first column."""
    union = " UNION ALL ".join(
        f"SELECT {column}::VARCHAR AS raw, {'count(*)' if column == columns[0] else '0'} AS n "
        f"FROM {staged.relation} GROUP BY {column}"
        for column in columns
    )
    sql = (
        f"SELECT raw, sum(n)::BIGINT FROM ({union}) WHERE raw IS NOT NULL GROUP BY raw ORDER BY raw "
        f"LIMIT {_MOST_STATIONS + 1}"
    )
    with reading(staged.label):
        found = fetch_all(workspace.connection, sql)
    if len(found) > _MOST_STATIONS:
        raise InputError(f"{staged.label}: more than {_MOST_STATIONS:,} different stations. Is this the right column?")
    return dict(found)


def make_ids(
    workspace: Workspace, known: StationTable, resolved: Resolved, staff: Mapping[str, bool] | None = None
) -> str:
    """Make a table ``(raw, ix, station, staff)`` that gives the station of each raw id."""
    name = workspace.name("ids")
    stations = [None if ix is None else known.stations[ix].station for ix in resolved.index.values()]
    flags = [bool(staff and staff.get(raw)) for raw in resolved.index]
    columns: dict[str, Sequence[object]] = {
        "raw": list(resolved.index),
        "ix": list(resolved.index.values()),
        "station": stations,
        "staff": flags,
    }
    types = {"raw": "VARCHAR", "ix": "INTEGER", "station": "VARCHAR", "staff": "BOOLEAN"}
    create_table(workspace, name, types, columns)
    return name


def create_table(
    workspace: Workspace, name: str, types: Mapping[str, str], columns: Mapping[str, Sequence[object]]
) -> None:
    """Create a table from lists of Python values, one per column. None becomes NULL."""
    given = workspace.name("given")
    arrays = {column: _array(columns[column], kind) for column, kind in types.items()}
    workspace.connection.register(given, arrays)
    body = ", ".join(f"CAST({column} AS {kind}) AS {column}" for column, kind in types.items())
    workspace.connection.execute(f"CREATE TABLE {name} AS SELECT {body} FROM {given}")
    workspace.connection.unregister(given)


def _array(values: Sequence[object], kind: str) -> npt.NDArray[np.generic]:
    if kind == "VARCHAR":
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array
    masked = [value is None for value in values]
    return np.ma.array([0 if value is None else value for value in values], dtype=_DTYPES[kind], mask=masked)


def count_reasons(
    workspace: Workspace,
    source: str,
    staged: Staged,
    relation: str,
    reasons: Mapping[str, str],
    oddities: Mapping[str, str],
    log: QualityLog,
    outside: str | None = None,
    details: Mapping[str, str] | None = None,
) -> tuple[int, set[str], dict[str, int]]:
    """Count rejected rows by their first reason, and oddities of accepted rows, in one pass.

    A filter leaves out the rows with no reason and no oddity, which are nearly all, before anything is counted.

    Parameters
    ----------
    relation : str
        SQL that may follow FROM.
    reasons : mapping
        Reason → SQL condition, in order.
    oddities : mapping
        Name → SQL condition, of accepted rows.
    outside : str, optional
        SQL condition of rows outside the chosen period. Rows rejected there are noted, because they change nothing.
    details : mapping, optional
        Reason → a remark for the log.

    Returns
    -------
    rows : int
        Number of accepted rows.
    occurred : set of str
        Reasons with at least one row.
    counts : dict
        Oddity → number of accepted rows.
    """
    cases = " ".join(f"WHEN {condition} THEN {i}" for i, condition in enumerate(reasons.values()))
    sums = "".join(f", count(*) FILTER ({condition})" for condition in oddities.values())
    odd = " OR ".join(f"({condition})" for condition in (*reasons.values(), *oddities.values()))
    count_outside = f"count(*) FILTER ({outside or 'false'})"
    with reading(staged.label):
        total = fetch_one(workspace.connection, f"SELECT count(*) FROM {staged.relation}")[0]
        elsewhere = fetch_one(workspace.connection, f"SELECT {count_outside} FROM {relation}")[0] if outside else 0
        found = fetch_all(
            workspace.connection,
            f"SELECT CASE {cases} ELSE -1 END AS reason, count(*), {count_outside}{sums} FROM {relation} "
            f"WHERE {odd} GROUP BY reason",
        )
    rejected = {row[0]: row[1] for row in found if row[0] >= 0}
    rejected_outside = {row[0]: row[2] for row in found}
    log.total(source, total)
    if outside is not None:
        log.within[source] = total - elsewhere
    for i, name in enumerate(reasons):
        # A row without a time may belong to any period: its share is one of all rows.
        timed = outside is not None and name not in _TIMELESS
        noted = rejected_outside.get(i, 0) if timed else 0
        detail = (details or {}).get(name, "")
        log.add(source, name, "rejected", rejected.get(i, 0) - noted, detail, of=log.within[source] if timed else None)
        log.add(source, f"{name}, outside the chosen period", "noted", noted, "not in the panel")
    accepted = next((row[3:] for row in found if row[0] == -1), (0,) * len(oddities))
    occurred = {name for i, name in enumerate(reasons) if i in rejected}
    return total - sum(rejected.values()), occurred, dict(zip(oddities, accepted, strict=True))


_TIMELESS = ("missing time", "impossible time", "missing or impossible time")


def outside_period(moment: str, within: Within, *, seconds: bool = False) -> str | None:
    """Return the SQL condition of a moment (a timestamp, or seconds) outside a period. None without a period.

    Examples
    --------
    >>> outside_period("epoch", (1, None), seconds=True)
    '(epoch < 60)'
    >>> outside_period("epoch", (None, None), seconds=True) is None
    True
    """
    begin, end = (None if minute is None else 60 * minute for minute in within)
    edges = [f"{moment} {sign} {edge if seconds else f'make_timestamp({edge}000000)'}"
             for sign, edge in (("<", begin), (">=", end)) if edge is not None]  # fmt: skip
    return f"({' OR '.join(edges)})" if edges else None


def repeated_keys(workspace: Workspace, keyed: str, split: str, rows: int) -> tuple[str | None, int]:
    """Find the keys that occur more than once.

    Sorting 64-bit numbers in NumPy costs a third of DuckDB's hash table, and almost nothing if the rows are nearly
    sorted, as records are. If they do not fit into half of the memory limit, `split` divides them into several passes.

    Parameters
    ----------
    keyed : str
        A relation with an integer column `k`. NULL is not a key.
    split : str
        SQL of an integer that is the same in all rows of a key.
    rows : int
        Number of rows.

    Returns
    -------
    keys : str or None
        A table of the repeated keys, in a column `k`. None if there are none.
    count : int
        Number of rows that have a key.
    """
    passes = 1 + int(rows * 24 / (workspace.memory / 2))
    found, count = [], 0
    for i in range(passes):
        only = f" AND {split} % {passes} = {i}" if passes > 1 else ""
        result = workspace.connection.execute(f"SELECT k FROM {keyed} WHERE k IS NOT NULL{only}").fetchnumpy()
        keys = np.ma.getdata(result["k"])
        count += len(keys)
        nearly_sorted = np.count_nonzero(keys[1:] < keys[:-1]) < len(keys) / 4
        keys.sort(kind="stable" if nearly_sorted else "quicksort")
        found.append(np.unique(keys[1:][keys[1:] == keys[:-1]]))
    repeated = np.concatenate(found)
    if not len(repeated):
        return None, count
    name = workspace.name("keys")
    workspace.connection.register("repeated", {"k": repeated})
    workspace.connection.execute(f"CREATE TABLE {name} AS SELECT k FROM repeated")
    workspace.connection.unregister("repeated")
    return name, count


def report_matches(source: str, resolved: Resolved, log: QualityLog) -> None:
    """Note how many rows each id column of the stations table explained."""
    rows = sum(resolved.matched.values())
    detail = ", ".join(f"{column}: {count:,}" for column, count in resolved.matched.items() if count)
    log.add(source, "station ids matched", "noted", rows, detail)
    log.add(
        source,
        "station id ambiguous",
        "noted",
        resolved.ambiguous,
        "another id column gives another station",
    )


def own_table(rows_of: Mapping[str, int]) -> StationTable:
    """Make a table of stations from the ids in the files, if no stations were given."""
    names = list(dict.fromkeys(text for raw in rows_of if (text := id_text(raw)) is not None))
    return StationTable([Station(name) for name in names], {"station": {name: i for i, name in enumerate(names)}})
