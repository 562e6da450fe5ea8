"""SQL that converts a file's column to ours, whatever its type: times, numbers, booleans, text.

A value that cannot be read becomes NULL, and the caller counts it. No row raises an error here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from unmet._storage.sql import MOMENTS
from unmet.mobility.records.files import Column

__all__ = [
    "DATE_ORDERS",
    "NOTHING",
    "DateOrder",
    "EpochUnit",
    "Time",
    "boolean",
    "epoch_range",
    "number",
    "seconds",
    "text",
    "time",
    "unreadable_boolean",
    "unreadable_number",
]

EpochUnit = Literal["seconds", "milliseconds"]
DateOrder = Literal["mdy", "dmy", "ymd"]

_SMALL_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT"}  # INTEGER holds them all
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
# Tried in this order if a text is not ISO 8601.
_FORMATS = (
    "%Y-%m-%d %I:%M:%S %p",
    "%Y%m%d %H:%M:%S",
    "%Y%m%d %H:%M",
    "%Y%m%d",
    "%Y-%m-%d %H",
)
# Dates that start with one or two digits. %y comes first: %Y would read two digits as a year of the first century.
_DATES: Mapping[DateOrder, tuple[str, ...]] = {
    "mdy": ("%m/%d/%y", "%m/%d/%Y"),
    "dmy": ("%d/%m/%y", "%d/%m/%Y"),
    "ymd": ("%y/%m/%d",),
}
_TIMES = (" %H:%M:%S", " %H:%M", " %I:%M:%S %p", " %I:%M %p", "")
DATE_ORDERS: tuple[DateOrder, ...] = ("mdy", "dmy", "ymd")
"""Orders of day, month and year."""
_PER_SECOND: dict[EpochUnit, int] = {"seconds": 1, "milliseconds": 1000}
# In seconds the year 5138, in milliseconds March 1973: numbers up to here are seconds, numbers beyond are milliseconds.
_DAY_US = 86_400_000_000
_LARGEST_SECONDS = 100_000_000_000


NOTHING = "NULL::TIMESTAMP"
"""SQL of a time that is missing in every row."""


@dataclass(frozen=True)
class Time:
    """SQL of a time column.

    Attributes
    ----------
    local, utc : str
        Local time without an offset, and UTC time. At most one of them is not NULL in a row.
    epoch : str, optional
        The number, if the column contains numbers: seconds or milliseconds since 1970.
    unit : str
        Unit of `epoch`.
    """

    local: str
    utc: str
    epoch: str | None = None
    unit: EpochUnit = "seconds"

    @property
    def whole_seconds(self) -> str:
        """SQL of the seconds since 1970, rounded up to a whole number; NULL if the column contains no numbers."""
        if self.epoch is None:
            return "NULL::BIGINT"
        if self.unit == "milliseconds":
            return f"TRY_CAST(ceil({self.epoch} / 1000) AS BIGINT)"
        return self.epoch if self.epoch.endswith("AS BIGINT)") else f"TRY_CAST(ceil({self.epoch}) AS BIGINT)"


def epoch_range(unit: EpochUnit) -> tuple[int, int]:
    """Return the numbers that are read as times in a unit.

    Examples
    --------
    >>> epoch_range("milliseconds")[0] > epoch_range("seconds")[1]
    True
    """
    return (0, _LARGEST_SECONDS) if unit == "seconds" else (_LARGEST_SECONDS + 1, 1000 * _LARGEST_SECONDS)


def seconds(number: float) -> float | None:
    """Convert a number of seconds or milliseconds since 1970 to seconds. None if it is neither.

    Examples
    --------
    >>> seconds(1_600_000_000), seconds(1_600_000_000_500), seconds(-1)
    (1600000000.0, 1600000000.5, None)
    """
    for unit, per_second in _PER_SECOND.items():
        low, high = epoch_range(unit)
        if low <= number <= high:
            return number / per_second
    return None


def time(column: Column, unit: EpochUnit = "seconds", order: DateOrder = "mdy") -> Time:
    """Read a column of times: timestamps, dates, numbers since 1970 in a unit, or text with dates in an order."""
    sql, kind = column.sql, column.type
    if kind in MOMENTS:
        micros = f"{sql}::TIMESTAMPTZ"
        return Time(NOTHING, f"CASE WHEN isfinite({micros}) THEN make_timestamp(epoch_us({micros})) END")
    if kind.startswith("TIMESTAMP") or kind == "DATE":
        return Time(f"TRY_CAST({sql} AS TIMESTAMP)", NOTHING)
    if kind in _INTEGERS or kind.startswith(_REALS):
        whole = f"TRY_CAST({sql} AS BIGINT)" if kind in _INTEGERS else f"TRY_CAST({sql} AS DOUBLE)"
        return Time(NOTHING, _from_epoch(whole, unit), whole, unit)
    if kind != "VARCHAR" and not kind.startswith("ENUM"):
        return Time(NOTHING, NOTHING)
    if kind != "VARCHAR":
        sql = f"CAST({sql} AS VARCHAR)"
    sql = f"trim({sql})"
    # DuckDB's cast to TIMESTAMP silently ignores an offset or AM/PM: it is used only for text that ends in a digit and
    # has no offset after the date. A minus before the 9th character belongs to the date.
    plain = f"right({sql}, 1) BETWEEN '0' AND '9' AND NOT contains({sql}, '+') AND NOT contains(substr({sql}, 9), '-')"
    digits = f"TRY_CAST({sql} AS DOUBLE)"
    is_epoch = f"({digits} >= 1e9)"
    formats = _list(_FORMATS)
    # 1/2/2024, 01.02.24 or 01-02-2024: one or two digits and a separator. DuckDB's cast reads 1/2/24 as the year 1.
    dated = " OR ".join(f"contains(left({sql}, 3), '{separator}')" for separator in "/.-")
    slashes = f"regexp_replace({sql}, '^(\\d+)[.-](\\d+)[.-](\\d+)', '\\1/\\2/\\3')"
    local = (
        f"CASE WHEN {dated} THEN try_strptime({slashes}, {_list(d + t for d in _DATES[order] for t in _TIMES)}) "
        f"WHEN {plain} THEN coalesce(TRY_CAST({sql} AS TIMESTAMP), "
        f"CASE WHEN {is_epoch} IS NOT TRUE THEN try_strptime({sql}, {formats}) END) "
        f"WHEN TRY_CAST({sql} AS TIMESTAMPTZ) IS NULL THEN try_strptime({sql}, {formats}) END"
    )
    zoned = f"TRY_CAST({sql} AS TIMESTAMPTZ)"
    # DuckDB reads an offset of 99 hours; RFC 3339 knows offsets below 24. It also reads abbreviations: BST as time of
    # Bangladesh, AST as that of Alaska. They mean several zones, so a time with one cannot be read.
    offset_given = f"regexp_matches({sql}, '(Z|UTC|GMT|[+-][0-9:]+|[A-Za-z_]+/[A-Za-z0-9_/+-]+)$')"
    offset = f"abs(epoch_us({zoned}) - epoch_us(TRY_CAST(left({sql}, 19) AS TIMESTAMP)))"
    utc = (
        f"CASE WHEN {plain} THEN CASE WHEN {is_epoch} THEN {_from_epoch(digits, unit)} END "
        f"WHEN NOT ({dated}) AND {offset_given} AND isfinite({zoned}) AND coalesce({offset} < {_DAY_US}, true) "
        f"THEN make_timestamp(epoch_us({zoned})) END"
    )
    return Time(local, utc, digits, unit)


def _list(formats: Iterable[str]) -> str:
    return "[" + ", ".join(f"'{f}'" for f in formats) + "]"


def _from_epoch(sql: str, unit: EpochUnit) -> str:
    low, high = epoch_range(unit)
    micros = 1_000_000 // _PER_SECOND[unit]
    return f"CASE WHEN {sql} BETWEEN {low} AND {high} THEN make_timestamp(({sql} * {micros})::BIGINT) END"


def number(column: Column, kind: str) -> str:
    """Read a column of numbers as INTEGER or DOUBLE.

    NaN, infinity, fractions of an INTEGER, and true and false as an INTEGER become NULL.
    """
    cast = f"TRY_CAST({column.sql} AS DOUBLE)"
    if kind == "DOUBLE":
        exact = column.type in _INTEGERS or column.type.startswith("DECIMAL")
        return cast if exact else f"CASE WHEN isfinite({cast}) THEN {cast} END"
    if column.type in ("BOOLEAN", "BIT"):
        return f"NULL::{kind}"
    whole = f"TRY_CAST({column.sql} AS {kind})"  # DuckDB rounds, and reads 0x3 as 3
    return whole if column.type in _INTEGERS else f"CASE WHEN {cast} = trunc({cast}) THEN {whole} END"


def boolean(column: Column) -> str:
    """Read a column of true/false, 1/0, t/f, yes/no. ``1.0`` and ``0.0``, which spreadsheets make of 1 and 0, too."""
    sql = column.sql
    if column.type == "BOOLEAN":
        return sql
    if column.type in _INTEGERS:
        return f"CASE WHEN {sql} IN (0, 1) THEN {sql} = 1 END"
    written = f"trim(CAST({sql} AS VARCHAR))"
    digits = f"TRY_CAST({written} AS DOUBLE)"
    return f"coalesce(TRY_CAST({written} AS BOOLEAN), CASE WHEN {digits} IN (0, 1) THEN {digits} = 1 END)"


def unreadable_boolean(column: Column) -> str:
    """Return the SQL condition of a value that `boolean` cannot read, and that does not mean a missing one."""
    return "false" if column.type == "BOOLEAN" else _unreadable(column, boolean(column))


def unreadable_number(column: Column, kind: str) -> str:
    """Return the SQL condition of a value that `number` cannot read, and that does not mean a missing one."""
    return "false" if column.type in _SMALL_INTEGERS else _unreadable(column, number(column, kind))


def _unreadable(column: Column, read: str) -> str:
    missing = f"lower(trim(CAST({column.sql} AS VARCHAR))) IN ('', 'nan', 'none', 'null', 'na', '<na>')"
    return f"({column.sql} IS NOT NULL AND {read} IS NULL AND NOT {missing})"


def text(column: Column) -> str:
    """Read a column as text. Blank text becomes NULL; whole numbers in a column of floats lose their ``.0``."""
    sql = column.sql
    if column.type == "VARCHAR":
        return f"nullif({sql}, '')"
    if column.type in ("FLOAT", "DOUBLE"):
        whole = f"{sql} = floor({sql}) AND abs({sql}) < 1e15"
        return f"CASE WHEN {whole} THEN ({sql}::BIGINT)::VARCHAR WHEN isfinite({sql}) THEN {sql}::VARCHAR END"
    return f"CAST({sql} AS VARCHAR)"
