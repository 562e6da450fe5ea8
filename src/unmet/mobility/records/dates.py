"""The order of day, month and year in dates such as 01/02/2024."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date

from unmet._exceptions import InputError
from unmet._storage.sql import fetch_all, fetch_one, reading
from unmet.mobility.clock.timezones import FIRST_TIME, LAST_TIME
from unmet.mobility.records.casting import DATE_ORDERS, DateOrder
from unmet.mobility.records.files import InputTable, Workspace
from unmet.mobility.records.quality import QualityLog

__all__ = ["check_date_order", "date_order"]

_DATE = r"^\s*(\d{1,2})[/.-](\d{1,2})[/.-](\d{4}|\d{2})(?:\D|$)"
_SAMPLE = 10_000
_CONCLUDED = "order of day and month concluded"
_VALID = 0.99  # an order is possible if at least this share of the dates exist in it
# Of two possible orders, the one with the shorter period is used if the other's is this many times as long: days of a
# month read as months are a year.
_LONGER, _FEWEST_DAYS = 3, 3

Dates = dict[tuple[int, int, int], int]
"""The three numbers of a date → number of rows. The last one is below 100 if the year has two digits."""


def check_date_order(order: str | None) -> None:
    """Refuse an unknown order."""
    if order is not None and order not in DATE_ORDERS:
        raise InputError(f"date_order: expected {', '.join(DATE_ORDERS)}, got {order!r:.60}.")


def date_order(
    workspace: Workspace,
    table: InputTable,
    headers: Sequence[str],
    chosen: DateOrder | None,
    source: str,
    log: QualityLog,
) -> DateOrder:
    """Return the order of day, month and year in columns of text.

    The order is the one in which the dates exist. If that leaves several, the one in which the dates follow each other
    is used and noted. If that decides nothing, the table is refused.

    Parameters
    ----------
    table, headers
        Table, and its columns of times.
    chosen : str, optional
        The user's choice.
    source, log
        Kind of file, and log for an order that was concluded.
    """
    if chosen is not None:
        return chosen
    columns = [table.columns[header] for header in headers]
    texts = [f"CAST({c.sql} AS VARCHAR)" for c in columns if c.type == "VARCHAR" or c.type.startswith("ENUM")]
    if not texts:
        return "mdy"
    whole = (table.label, table.lenient or table.relation)
    samples = [(one, _find_dates(workspace, one, texts, f"LIMIT {_SAMPLE}")) for one in table.files or [whole]]
    _check_agree([(label, dates) for (label, _), dates in samples])
    dates: Dates = sum((Counter(found) for _, found in samples), Counter())
    orders = _possible(dates)
    if dates and len(orders) > 1:
        dates = _find_dates(workspace, whole, texts, "")
        orders = _possible(dates)
    if not dates:
        return "mdy"
    if len(orders) == 1:
        for one, found in samples:
            if table.files and found and len(_possible(found)) > 1:
                detail = f"{one[0]} can be read in several ways: read as {orders[0]}, like the other files"
                log.add(source, _CONCLUDED, "noted", _count_rows(workspace, one, texts), detail)
        return orders[0]
    shortest, second = sorted(orders, key=lambda order: _days(dates, order))[:2]
    few = len(dates) < _FEWEST_DAYS
    if few or _days(dates, second) < _LONGER * _days(dates, shortest):
        raise InputError(_question(table.label, headers, dates, shortest, second))
    detail = f"{' and '.join(headers)}: read as {shortest}, in which the dates follow each other; see --date-order"
    log.add(source, _CONCLUDED, "noted", _count_rows(workspace, whole, texts), detail)
    return shortest


def _find_dates(workspace: Workspace, one: tuple[str, str], texts: Sequence[str], limit: str) -> Dates:
    label, relation = one
    rows = " UNION ALL ".join(f"(SELECT {text} AS t FROM {relation} {limit})" for text in texts)
    parts = f"SELECT regexp_extract(t, '{_DATE}', ['a', 'b', 'c']) AS d FROM ({rows})"
    sql = f"SELECT d.a::INTEGER, d.b::INTEGER, d.c::INTEGER, count(*) FROM ({parts}) WHERE d.a <> '' GROUP BY ALL"
    with reading(label):
        return {(a, b, c): count for a, b, c, count in fetch_all(workspace.connection, sql)}


def _count_rows(workspace: Workspace, one: tuple[str, str], texts: Sequence[str]) -> int:
    """Return the number of rows that have such a date in any column."""
    label, relation = one
    found = " OR ".join(f"coalesce(regexp_matches({text}, '{_DATE}'), false)" for text in texts)
    with reading(label):
        return int(fetch_one(workspace.connection, f"SELECT count(*) FROM {relation} WHERE {found}")[0])


def _check_agree(samples: Sequence[tuple[str, Dates]]) -> None:
    """Refuse files of which each shows an order of its own."""
    shown: dict[DateOrder, str] = {}
    for label, dates in samples:
        if dates and len(orders := _valid(dates)) == 1:
            shown.setdefault(orders[0], label)
    if len(shown) > 1:
        (first, one), (second, other) = list(shown.items())[:2]
        raise InputError(
            f"{one} has dates in the order {first}, and {other} in the order {second}. Write the dates of all files in "
            "the same order, best as 2024-01-31."
        )


def _valid(dates: Dates) -> list[DateOrder]:
    """Return the orders in which nearly all dates exist."""
    rows = sum(dates.values())
    return [order for order in DATE_ORDERS if sum(n for d, n in dates.items() if _date(d, order)) >= _VALID * rows]


def _possible(dates: Dates) -> list[DateOrder]:
    """Return the orders in which nearly all dates exist, without those that give the same dates as another.

    If there is none, the order in which most dates exist.
    """
    possible = _valid(dates)
    if not possible:
        return [max(DATE_ORDERS, key=lambda order: sum(n for d, n in dates.items() if _date(d, order)))]
    readings = {tuple(_date(d, order) for d in dates): order for order in reversed(possible)}
    return [order for order in possible if order in readings.values()]


def _date(numbers: tuple[int, int, int], order: DateOrder) -> date | None:
    a, b, c = numbers
    year, month, day = {"mdy": (c, a, b), "dmy": (c, b, a), "ymd": (a, b, c)}[order]
    if order == "ymd" and c > 99:
        return None
    if year < 100:
        year += 2000 if year < 69 else 1900  # as strptime does
    try:
        return date(year, month, day) if FIRST_TIME.year <= year < LAST_TIME.year else None
    except ValueError:
        return None


def _days(dates: Dates, order: DateOrder) -> int:
    """Return the length of the period that the dates cover in an order."""
    found = [day for d in dates if (day := _date(d, order)) is not None]
    return (max(found) - min(found)).days + 1


def _question(label: str, headers: Sequence[str], dates: Dates, *orders: DateOrder) -> str:
    example = next(d for d in dates if len({_date(d, order) for order in orders}) > 1)
    readings = " or ".join(f"{_date(example, order)} ({order})" for order in orders)
    written = "/".join(f"{number:02}" for number in example)
    return (
        f"{label}: dates in {' and '.join(headers)} can be read in several ways: {written} is {readings}. Give the "
        "order with --date-order (in Python date_order=), or write dates as 2024-01-31."
    )
