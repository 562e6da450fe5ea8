"""SQL that turns a file's column into ours, whatever its type: times, numbers, booleans, text.

What cannot be read becomes NULL and is counted by the caller; NOTHING here fails on a row.
"""

from __future__ import annotations

from dataclasses import dataclass

from unmet.mobility.records.files import Column

__all__ = ["Time", "boolean", "number", "text", "time"]

_INTEGERS = {
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "HUGEINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
}
_REALS = ("FLOAT", "DOUBLE", "DECIMAL")
# Read in this order where a text is not ISO 8601; month first, as the American operators write.
_FORMATS = (
    "%m/%d/%Y %H:%M:%S",
    "%m/%d/%Y %H:%M",
    "%m/%d/%Y %I:%M:%S %p",
    "%m/%d/%Y %I:%M %p",
    "%m/%d/%Y",
    "%m/%d/%y %H:%M",
    "%Y-%m-%d %I:%M:%S %p",
    "%Y%m%d %H:%M:%S",
    "%Y%m%d %H:%M",
    "%Y%m%d",
    "%Y-%m-%d %H",
)
EPOCH_SECONDS_LIMIT = 100_000_000_000
"""An epoch beyond this (the year 5138 in seconds) is in milliseconds or smaller."""


NOTHING = "NULL::TIMESTAMP"
"""SQL of a time that no row has."""


@dataclass(frozen=True)
class Time:
    """SQL of a time column: `local` naive local time, `utc` instants; of each row at most one is not NULL.

    `epoch` is the SQL of the number of seconds, where the column holds numbers.
    """

    local: str
    utc: str
    epoch: str | None = None


def time(column: Column) -> Time:
    """Read a column of times: timestamps, dates, seconds since 1970, or text."""
    sql, kind = column.sql, column.type
    if kind.startswith("TIMESTAMP WITH TIME ZONE"):
        return Time(NOTHING, f"CASE WHEN isfinite({sql}) THEN make_timestamp(epoch_us({sql})) END")
    if kind.startswith("TIMESTAMP") or kind == "DATE":
        return Time(f"TRY_CAST({sql} AS TIMESTAMP)", NOTHING)
    if kind in _INTEGERS or kind.startswith(_REALS):
        whole = f"TRY_CAST({sql} AS BIGINT)" if kind in _INTEGERS else f"TRY_CAST({sql} AS DOUBLE)"
        return Time(NOTHING, _from_epoch(whole), whole)
    if kind != "VARCHAR" and not kind.startswith("ENUM"):
        return Time(NOTHING, NOTHING)
    if kind != "VARCHAR":
        sql = f"CAST({sql} AS VARCHAR)"
    sql = f"trim({sql})"
    # DuckDB's cast to TIMESTAMP passes over a zone or AM/PM in silence: only what ends in a digit and has no
    # offset after the date may go that way. A minus before the 9th place belongs to the date.
    plain = f"right({sql}, 1) BETWEEN '0' AND '9' AND NOT contains({sql}, '+') AND NOT contains(substr({sql}, 9), '-')"
    digits = f"TRY_CAST({sql} AS DOUBLE)"
    is_epoch = f"({digits} >= 1e9)"
    formats = "[" + ", ".join(f"'{f}'" for f in _FORMATS) + "]"
    local = (
        f"CASE WHEN {plain} THEN coalesce(TRY_CAST({sql} AS TIMESTAMP), "
        f"CASE WHEN {is_epoch} IS NOT TRUE THEN try_strptime({sql}, {formats}) END) "
        f"WHEN TRY_CAST({sql} AS TIMESTAMPTZ) IS NULL THEN try_strptime({sql}, {formats}) END"
    )
    utc = (
        f"CASE WHEN {plain} THEN CASE WHEN {is_epoch} THEN {_from_epoch(digits)} END "
        f"WHEN isfinite(TRY_CAST({sql} AS TIMESTAMPTZ)) "
        f"THEN make_timestamp(epoch_us(TRY_CAST({sql} AS TIMESTAMPTZ))) END"
    )
    return Time(local, utc, digits)


def _from_epoch(sql: str) -> str:
    """Seconds since 1970, the only unit read; `records` refuses columns in milliseconds."""
    possible = f"{sql} BETWEEN 0 AND {EPOCH_SECONDS_LIMIT}"
    return f"CASE WHEN {possible} THEN make_timestamp(({sql} * 1000000)::BIGINT) END"


def number(column: Column, kind: str) -> str:
    """Read a column of numbers as INTEGER or DOUBLE; NaN and infinity are NULL."""
    if kind == "DOUBLE":
        cast = f"TRY_CAST({column.sql} AS DOUBLE)"
        exact = column.type in _INTEGERS or column.type.startswith("DECIMAL")
        return cast if exact else f"CASE WHEN isfinite({cast}) THEN {cast} END"
    return f"TRY_CAST({column.sql} AS {kind})"


def boolean(column: Column) -> str:
    """Read a column of true/false, 1/0, t/f, yes/no."""
    return column.sql if column.type == "BOOLEAN" else f"TRY_CAST({column.sql} AS BOOLEAN)"


def text(column: Column) -> str:
    """Read a column as text; blank is NULL, and whole numbers in a column of floats lose their ``.0``."""
    sql = column.sql
    if column.type == "VARCHAR":
        return f"nullif({sql}, '')"
    if column.type in ("FLOAT", "DOUBLE"):
        whole = f"{sql} = floor({sql}) AND abs({sql}) < 1e15"
        return f"CASE WHEN {whole} THEN ({sql}::BIGINT)::VARCHAR WHEN isfinite({sql}) THEN {sql}::VARCHAR END"
    return f"CAST({sql} AS VARCHAR)"
