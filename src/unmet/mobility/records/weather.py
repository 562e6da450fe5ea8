"""Weather: any table with a time and columns of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unmet._exceptions import FileFormatError, InputError
from unmet._storage.sql import INDEX_COLUMNS, fetch_one, identifier, reading
from unmet.mobility.records.casting import DateOrder, Time, number, time
from unmet.mobility.records.dates import date_order
from unmet.mobility.records.files import Given, InputTable, Workspace, open_tables
from unmet.mobility.records.headers import Headers
from unmet.mobility.records.limits import check_covariates
from unmet.mobility.records.quality import QualityLog
from unmet.mobility.records.staging import IMPOSSIBLE, Staged, clock_for, count_reasons, epoch_unit, stage

__all__ = ["make_weather"]

# Codes of weather services for a missing value (NOAA's GSOD and GHCN). They are read as missing only if they are far
# from all other values of the column: 999.9 is also a pressure.
_MISSING = (-9999.0, 99.99, 999.9, 9999.9, 99999.0)
# A reading this many times the 98 % quantile of a column is impossible; with fewer readings, nobody knows.
_WILD, _FEW_READINGS = 100.0, 50
_LARGEST = 1e12  # of any reading in any unit


def make_weather(
    workspace: Workspace,
    given: Given,
    timezone: str,
    headers: Headers | None,
    log: QualityLog,
    columns: Sequence[str] | None = None,
    order: DateOrder | None = None,
) -> set[str]:
    """Make the table ``weather``: `at` in UTC, and all columns of numbers or the named ones. Return all headers.

    `order` is that of day, month and year, if chosen.
    """
    rules = headers or Headers()
    tables = open_tables(workspace, given, "weather")
    matched = [rules.match("weather", table.columns, table.label) for table in tables]
    numeric = _choose(workspace, list(zip(tables, matched, strict=True)), log, columns)
    names = {header: f"v{i}" for i, header in enumerate(numeric)}
    staged = _stage(workspace, list(zip(tables, matched, strict=True)), names, log, order)
    clock = clock_for(workspace, staged, timezone, ["at_local"])
    timed = f"(SELECT *, coalesce(at_utc, {clock.utc('at_local')}) AS moment FROM {staged.relation})"
    oddities = {
        "doubled": f"at_utc IS NULL AND {clock.doubled('at_local')} > 0",
        "nonexistent": f"at_utc IS NULL AND {clock.skipped('at_local')} > 0",
    }
    reasons = {"missing or impossible time": f"moment IS NULL OR moment {IMPOSSIBLE}"}
    _, occurred, seen = count_reasons(workspace, "weather", staged, timed, reasons, oddities, log)
    log.add("weather", "hour that came twice", "noted", seen["doubled"], "the first occurrence was used")
    log.add(
        "weather",
        "hour that did not exist",
        "repaired",
        seen["nonexistent"],
        "moved forward by the clock change",
    )
    where = "".join(f"WHERE ({condition}) IS NOT TRUE" for name, condition in reasons.items() if name in occurred)
    # Of each column the last reading that is not missing: other columns of the same time may be in another file.
    values = ", ".join(f"arg_max({name}, rn) AS {identifier(header)}" for header, name in names.items())
    readings = ", ".join(f"count({name})" for name in names.values())
    with reading(staged.label):
        again = fetch_one(
            workspace.connection,
            f"SELECT sum(n) FROM (SELECT greatest({readings}, 1) - 1 AS n FROM {timed} {where} GROUP BY moment)",
        )[0]
        workspace.connection.execute(
            f"""CREATE TABLE weather AS SELECT moment AS "at", {values} FROM {timed} {where}
            GROUP BY moment ORDER BY moment"""
        )
    log.add("weather", "duplicate", "rejected", int(again or 0), "same time: the last reading was used")
    _blank_missing(workspace, numeric, log)
    _blank_wild(workspace, numeric, log)
    _compare_units(workspace, numeric, log)
    return set().union(*(table.columns for table in tables))


def _choose(
    workspace: Workspace,
    tables: Sequence[tuple[InputTable, Mapping[str, str]]],
    log: QualityLog,
    columns: Sequence[str] | None,
) -> list[str]:
    """Return the headers of the columns to use: all columns of numbers, or the named ones, which must exist."""
    found = list(dict.fromkeys(h for table, m in tables for h in _numeric(workspace, table, m, log, columns)))
    label = tables[0][0].label
    check_covariates(
        len(found), label, "Name those to use with --weather-columns (weather_columns=), or remove the others."
    )
    if not found and not columns:
        raise FileFormatError(f"{label}: there is no column of numbers besides the time.")
    unknown = [name for name in columns or () if name not in found]
    if unknown:
        every = dict.fromkeys(h for table, m in tables for h in _numeric(workspace, table, m, QualityLog()))
        raise InputError(
            f"weather_columns: there is no column of numbers {', '.join(map(repr, unknown))} in {label}; "
            f"found: {', '.join(map(repr, every))}."
        )
    return list(dict.fromkeys(columns)) if columns else found


def _stage(
    workspace: Workspace,
    tables: Sequence[tuple[InputTable, Mapping[str, str]]],
    names: Mapping[str, str],
    log: QualityLog,
    order: DateOrder | None,
) -> Staged:
    """Convert weather to a local time, a UTC time, and one column per header, under new names."""
    selects = []
    for table, matched in tables:
        found_order = date_order(workspace, table, [matched["at"]], order, "weather", log)
        at = time(table.columns[matched["at"]], epoch_unit(workspace, table, matched["at"]), found_order)
        columns = {"at_local": at.local, "at_utc": at.utc}
        if "hour" in matched and _are_dates(workspace, table, at):
            hour = number(table.columns[matched["hour"]], "INTEGER")
            added = f"CASE WHEN {hour} BETWEEN 0 AND 24 THEN to_hours({hour}) END"
            columns = {name: f"{sql} + {added}" for name, sql in columns.items()}
        for header, name in names.items():
            found = table.columns.get(header)
            columns[name] = number(found, "DOUBLE") if found else "NULL::DOUBLE"
        selects.append((table, columns))
    return stage(workspace, "weather", selects, log)


def _are_dates(workspace: Workspace, table: InputTable, at: Time) -> bool:
    """Return whether times are dates, so that the hour has to be added. The clock may change between UTC times."""
    sql = f"""SELECT count(*) FILTER (({at.local})::TIME <> TIME '00:00'), count(DISTINCT ({at.utc})::TIME)
        FROM {table.lenient or table.relation}"""
    with reading(table.label):
        timed, times_of_day = fetch_one(workspace.connection, sql)
    return timed == 0 and times_of_day <= 2


def _numeric(
    workspace: Workspace,
    table: InputTable,
    matched: Mapping[str, str],
    log: QualityLog,
    columns: Sequence[str] | None = None,
) -> list[str]:
    """Return the headers, of all columns or of the named ones, whose values are at least half numbers."""
    rest = {h: c for h, c in table.columns.items() if h and h not in matched.values() and h.lower() != "at"}
    rest = {h: c for h, c in rest.items() if (h in columns if columns else not INDEX_COLUMNS.fullmatch(h))}
    if not rest:
        return []
    counts = ", ".join(f"count({number(c, 'DOUBLE')}), count({c.sql})" for c in rest.values())
    with reading(table.label):
        found = fetch_one(workspace.connection, f"SELECT {counts} FROM {table.lenient or table.relation}")
    headers = []
    for header, numbers, values in zip(rest, found[::2], found[1::2], strict=True):
        if numbers and numbers >= 0.5 * values:
            headers.append(header)
            log.add("weather", "unreadable number", "repaired", values - numbers, f"{header}: left blank")
    ignored = [header for header in rest if header not in headers]
    log.add("weather", "column without numbers", "noted", len(ignored), ", ".join(ignored), of=len(rest))
    return headers


def _blank_missing(workspace: Workspace, headers: list[str], log: QualityLog) -> None:
    for header in headers:
        name = identifier(header)
        for code in _MISSING:
            sql = f"""SELECT count(*) FILTER ({name} = $1),
                max(abs({name})) FILTER ({name} NOT IN ({", ".join(map(str, _MISSING))})) FROM weather"""
            times, largest = fetch_one(workspace.connection, sql, [code])
            if times and (largest is None or largest * 3 < abs(code)):
                workspace.connection.execute(f"UPDATE weather SET {name} = NULL WHERE {name} = $1", [code])
                log.add("weather", "code for a missing value", "repaired", times, f"{header}: {code} left blank")


def _blank_wild(workspace: Workspace, headers: list[str], log: QualityLog) -> None:
    """Leave out readings that are far beyond all others: one of them would hide the effect of a column."""
    for header in headers:
        name = identifier(header)
        sql = f"""SELECT count(*), quantile_cont(abs({name}), 0.98) FROM weather WHERE {name} <> 0"""
        readings, usual = fetch_one(workspace.connection, sql)
        most = _LARGEST if readings < _FEW_READINGS else min(_WILD * usual, _LARGEST)
        wild = f"abs({name}) > {most!r}"
        times = fetch_one(workspace.connection, f"SELECT count(*) FROM weather WHERE {wild}")[0]
        if times:
            workspace.connection.execute(f"UPDATE weather SET {name} = NULL WHERE {wild}")
            log.add("weather", "impossible value", "repaired", times, f"{header}: above {most:g}, left blank")


def _compare_units(workspace: Workspace, headers: list[str], log: QualityLog) -> None:
    """Note columns in (C) that disagree with the same column in (F)."""
    for celsius in (h for h in headers if h.endswith("(C)")):
        fahrenheit = celsius[:-3] + "(F)"
        if fahrenheit not in headers:
            continue
        c, f = identifier(celsius), identifier(fahrenheit)
        sql = f"SELECT count(*) FILTER (abs({c} * 1.8 + 32 - {f}) > 1) FROM weather"
        differ = fetch_one(workspace.connection, sql)[0]
        log.add(
            "weather",
            "units disagree",
            "noted",
            differ,
            f"{celsius} differs from {fahrenheit}: check which is right",
        )
