"""What trips and status have in common on their way into DuckDB: staging, station ids, reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import duckdb
import numpy as np
import numpy.typing as npt

from unmet._exceptions import FileFormatError, InputError
from unmet._storage.sql import fetch_all, fetch_one, reading
from unmet.mobility.clock.timezones import FIRST_TIME, LAST_TIME, Clock
from unmet.mobility.records.casting import EPOCH_SECONDS_LIMIT, NOTHING, Time
from unmet.mobility.records.files import Part, Workspace, malformed_lines
from unmet.mobility.records.quality import QualityLog
from unmet.mobility.records.stations import Resolved, Station, StationTable, id_text

__all__ = [
    "IMPOSSIBLE",
    "Staged",
    "Within",
    "check_epochs",
    "clock_for",
    "count_reasons",
    "create_table",
    "find_stations",
    "make_ids",
    "outside_period",
    "own_table",
    "repeated_keys",
    "report_matches",
    "stage",
]

Within = tuple[int | None, int | None]
"""The period asked for: its first minute (UTC), and the one behind its last; None where nobody asked."""

IMPOSSIBLE = f"NOT BETWEEN TIMESTAMP '{FIRST_TIME}' AND TIMESTAMP '{LAST_TIME}'"
_MOST_STATIONS = 1 << 20
_MOST_PARTS = 100  # their number is kept in the top bits of `rn`
_DTYPES: Mapping[str, type] = {"INTEGER": np.int64, "DOUBLE": np.float64, "BOOLEAN": np.bool_}


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
    if len(parts) > _MOST_PARTS:
        raise InputError(f"{source}: files with more than {_MOST_PARTS} different headers; give fewer at a time.")
    selects = []
    for number, (part, columns) in enumerate(parts):
        name = workspace.name(source)
        body = ", ".join(f"{sql} AS {ours}" for ours, sql in columns.items())
        row = part.row
        with reading(part.label):
            if part.lazy:
                assert row is not None
                workspace.connection.execute(f"CREATE VIEW {name} AS SELECT {body}, {row} AS rn FROM {part.relation}")
                row = "rn"
            else:
                _materialise(workspace, name, body, part)
                row = "rowid"
        malformed = malformed_lines(workspace, part)
        log.total(source, malformed)
        log.add(source, "malformed line", "rejected", malformed, part.label)
        columns_only = ", ".join(columns)
        selects.append(f"SELECT {columns_only}, {row} + {number << 56} AS rn FROM {name}")
    relation = workspace.name(f"{source}_staged")
    workspace.connection.execute(f"CREATE VIEW {relation} AS {' UNION ALL '.join(selects)}")
    label = parts[0][0].label + (f" and {len(parts) - 1} more" if len(parts) > 1 else "")
    naive = any(sql != NOTHING for _, columns in parts for ours, sql in columns.items() if ours.endswith("_local"))
    return Staged(relation, label, naive)


def _materialise(workspace: Workspace, name: str, body: str, part: Part) -> None:
    try:
        workspace.connection.execute(f"CREATE TABLE {name} AS SELECT {body} FROM {part.relation}")
    except duckdb.InvalidInputException:
        if part.rejects is None:
            raise
        for leftover in (part.rejects, f"{part.rejects}_scan"):
            workspace.connection.execute(f"DROP TABLE IF EXISTS {leftover}")
        workspace.connection.execute(f"CREATE TABLE {name} AS SELECT {body} FROM {part.lenient}")


def check_epochs(workspace: Workspace, part: Part, field: str, time: Time) -> None:
    """Refuse a column of times in milliseconds: most of its first numbers are beyond any time in seconds."""
    if time.epoch is None:
        return
    sample = f"(SELECT {time.epoch} AS epoch FROM {part.lenient or part.relation} LIMIT 10000)"
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
        spans = [f"{f}({c})" for c in columns for f in ("min", "max")]
        with reading(staged.label):
            # Of a column as it stands, DuckDB knows the ends from the statistics of a Parquet file.
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
    """List the raw station ids of some columns, as text, with the rows that have each in the first column."""
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
        raise InputError(f"{staged.label}: more than {_MOST_STATIONS:,} different stations; is it the right column?")
    return dict(found)


def make_ids(
    workspace: Workspace, table: StationTable, resolved: Resolved, staff: Mapping[str, bool] | None = None
) -> str:
    """Write the raw ids and what they stand for as a table ``(raw, ix, station, staff)``."""
    name = workspace.name("ids")
    stations = [None if ix is None else table.stations[ix].station for ix in resolved.index.values()]
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
    """Create a table from lists of Python values, one per column; None is NULL."""
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
) -> tuple[int, set[str], dict[str, int]]:
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
    outside : str, optional
        SQL condition: not in the period asked for. What is rejected there is told apart, for it changes nothing.

    Returns
    -------
    rows : int
        How many were accepted.
    occurred : set of str
        The reasons that there was a row for.
    counts : dict
        Oddity → number of accepted rows.
    """
    cases = " ".join(f"WHEN {condition} THEN {i}" for i, condition in enumerate(reasons.values()))
    sums = "".join(f", count(*) FILTER ({condition})" for condition in oddities.values())
    odd = " OR ".join(f"({condition})" for condition in (*reasons.values(), *oddities.values()))
    beside = f"count(*) FILTER ({outside or 'false'})"
    with reading(staged.label):
        total = fetch_one(workspace.connection, f"SELECT count(*) FROM {staged.relation}")[0]
        elsewhere = fetch_one(workspace.connection, f"SELECT {beside} FROM {relation}")[0] if outside else 0
        found = fetch_all(
            workspace.connection,
            f"SELECT CASE {cases} ELSE -1 END AS reason, count(*), {beside}{sums} FROM {relation} "
            f"WHERE {odd} GROUP BY reason",
        )
    rejected = {row[0]: row[1] for row in found if row[0] >= 0}
    aside = {row[0]: row[2] for row in found}
    log.total(source, total)
    if outside is not None:
        log.within[source] = total - elsewhere
    for i, name in enumerate(reasons):
        # A row without a time may be of any: it counts among all.
        timed = outside is not None and name not in _TIMELESS
        beside_it = aside.get(i, 0) if timed else 0
        log.add(source, name, "rejected", rejected.get(i, 0) - beside_it, of=log.within[source] if timed else None)
        log.add(source, f"{name}, outside the period asked for", "noted", beside_it, "not in the panel")
    accepted = next((row[3:] for row in found if row[0] == -1), (0,) * len(oddities))
    occurred = {name for i, name in enumerate(reasons) if i in rejected}
    return total - sum(rejected.values()), occurred, dict(zip(oddities, accepted, strict=True))


_TIMELESS = ("missing time", "impossible time", "missing or impossible time")


def outside_period(moment: str, within: Within, *, seconds: bool = False) -> str | None:
    """SQL for a moment (a timestamp, or seconds) that is not in the period; None where none was asked for.

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

    Sorting 64-bit numbers outside of DuckDB costs a third of its hash table, and next to nothing where the
    rows come nearly in order, as records do. Where they would not fit into half of the memory limit, `split`
    deals them out to several passes.

    Parameters
    ----------
    keyed : str
        A relation with an integer column `k`; NULL is no key.
    split : str
        SQL of an integer: rows of the same key have the same.
    rows : int
        How many rows it has.

    Returns
    -------
    keys : str or None
        A table of the repeated keys, in a column `k`; None where there are none.
    count : int
        How many rows have a key.
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
    """Note which id columns of the stations table explained how many rows."""
    rows = sum(resolved.matched.values())
    detail = ", ".join(f"{column}: {count:,}" for column, count in resolved.matched.items() if count)
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
    return StationTable([Station(name) for name in names], {"station": {name: i for i, name in enumerate(names)}})
