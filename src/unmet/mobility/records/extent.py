"""The period that follows from where the records are, without single rows far away from all others.

One trip in 2040 among thousands in 2021 is an error of a clock, and would stretch the panel over twenty years.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC

import numpy as np
import numpy.typing as npt

from unmet._storage.sql import fetch_all, fetch_one, reading
from unmet.mobility.clock.timezones import FIRST_TIME, LAST_TIME
from unmet.mobility.records.files import Workspace

__all__ = ["EVERYTHING", "Extent", "find_extent", "main_days"]

# Rows are far away if they are at most this share of all, and so many times the usual distance between two days with
# records lies between them and the others, at least so many days.
_SHARE, _GAP = 0.01, 30
_FEWEST_ROWS = 20  # with fewer, nothing shows which of them are right
_DAY = 86_400


@dataclass(frozen=True)
class Extent:
    """First and last day (since 1970) with records. None if there is no limit on that side.

    Examples
    --------
    >>> Extent(None, 18_809).outside("epoch", seconds=True)
    '(epoch >= 1625270400)'
    >>> EVERYTHING.outside("started")
    'false'
    """

    first: int | None
    last: int | None

    def outside(self, moment: str, *, seconds: bool = False) -> str:
        """Return the SQL condition of a UTC moment (a timestamp, or seconds) outside."""
        # A day more on each side: the days may be those of the local clock.
        edges = (
            ("<", None if self.first is None else (self.first - 1) * _DAY),
            (">=", None if self.last is None else (self.last + 2) * _DAY),
        )
        parts = [
            f"{moment} {sign} {edge if seconds else f'make_timestamp({edge}000000)'}"
            for sign, edge in edges
            if edge is not None
        ]
        return f"({' OR '.join(parts)})" if parts else "false"

    def __str__(self) -> str:
        """Describe the limits for the quality table."""
        first, last = (None if day is None else np.datetime64(day, "D") for day in (self.first, self.last))
        if first is None:
            where = f"after {last}"
        elif last is None:
            where = f"before {first}"
        else:
            where = f"before {first} or after {last}"
        return f"far away from all other rows: {where}; choose the period with --start and --end to use them"


EVERYTHING = Extent(None, None)
"""The extent without limits."""


def find_extent(
    workspace: Workspace,
    relation: str,
    moments: Sequence[str],
    label: str,
    chosen: tuple[object | None, object | None],
    *,
    seconds: bool = False,
) -> Extent:
    """Find the days in which records are. A side has a limit only if rows beyond it are far away from all others.

    Parameters
    ----------
    relation, moments
        Relation and its columns of times (timestamps, or seconds); the first that is not NULL counts.
    label : str
        Name in messages.
    chosen : tuple
        Start and end of the chosen period. A side that is not None gets no limit.
    """
    if None not in chosen:
        return EVERYTHING
    first, last = (int(t.replace(tzinfo=UTC).timestamp()) for t in (FIRST_TIME, LAST_TIME))
    low, high = (first, last) if seconds else (f"TIMESTAMP '{FIRST_TIME}'", f"TIMESTAMP '{LAST_TIME}'")
    gap = _GAP * _DAY if seconds else f"INTERVAL {_GAP} DAYS"
    # DuckDB takes the range of a plain column from the statistics of a Parquet file, without reading it.
    short = ", ".join(
        # The last time that DuckDB knows has no time behind it.
        f"min({m}) IS NULL, min({m}) >= {low} AND max({m}) <= {high} AND max({m}) <= least(min({m}), {high}) + {gap}"
        for m in moments
    )
    second = ", ".join(
        f"CASE WHEN {m} BETWEEN {low} AND {high} THEN {m if seconds else f'epoch_us({m}) // 1000000'} END"
        for m in moments
    )
    with reading(label):
        ranges = fetch_one(workspace.connection, f"SELECT {short} FROM {relation}")
        given = [is_short for empty, is_short in zip(ranges[::2], ranges[1::2], strict=True) if not empty]
        if not given or given == [True]:
            return EVERYTHING
        found = fetch_all(
            workspace.connection,
            f"""SELECT second // {_DAY} AS day, count(*) FROM (SELECT coalesce({second}) AS second
            FROM {relation}) WHERE second IS NOT NULL GROUP BY day ORDER BY day""",
        )
    if not found:
        return EVERYTHING
    days, rows = np.array(found, dtype=np.int64).T
    begin, end = main_days(days, rows)
    trim_begin = chosen[0] is None and begin > days[0]
    trim_end = chosen[1] is None and end < days[-1]
    return Extent(begin if trim_begin else None, end if trim_end else None)


def main_days(days: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> tuple[int, int]:
    """Return the first and last of the days that are not far away from the others.

    Groups of days are taken off the ends, the smaller first, while all that is taken off is at most 1 % of the rows.

    Parameters
    ----------
    days : array
        Days with records, sorted.
    rows : array
        Number of records of each day.

    Examples
    --------
    >>> days = np.array([18_800, 18_801, 18_802, 25_600])
    >>> main_days(days, np.array([400, 500, 450, 1]))
    (18800, 18802)
    """
    total = int(rows.sum())
    if total < _FEWEST_ROWS or len(days) < 3:
        return int(days[0]), int(days[-1])
    between = np.diff(days)
    cuts = np.flatnonzero(between > _GAP * max(1.0, float(np.median(between)))) + 1
    groups = np.split(np.arange(len(days)), cuts)
    sizes = [int(rows[group].sum()) for group in groups]
    left, right, allowed = 0, len(groups) - 1, max(1, int(_SHARE * total))
    while left < right:
        smaller = left if sizes[left] <= sizes[right] else right
        allowed -= sizes[smaller]
        if allowed < 0:
            break
        left, right = (left + 1, right) if smaller == left else (left, right - 1)
    return int(days[groups[left][0]]), int(days[groups[right][-1]])
