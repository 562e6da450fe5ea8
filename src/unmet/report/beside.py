"""Returns beside pickups: the tables of a run with the numbers of its run of returns, named ``returns_…``.

``observed`` are then recorded returns, ``demand`` the wanted ones, and ``lost`` riders who found no dock there or
nearby.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from unmet._storage.parquet import read_parquet
from unmet._storage.sql import parquet_sql, path_literal, reading
from unmet.report.source import RunSource
from unmet.report.story import read_weeks, week_rows

__all__ = [
    "RETURNED",
    "of_bins",
    "returned_rates",
    "returns_totals",
    "riders_without_dock",
    "with_returns",
    "with_rows_of_returns",
    "with_weeks_of_returns",
]

PREFIX = "returns_"
RETURNED = "returned"
"""Name of the view that `of_bins` makes."""

_QUANTITIES = ("observed", "demand", "lost")
_LIMITS = ("mean", "q05", "q95")
_OF_BINS = (
    *("observed", "exposure", "rate_mean", "rate_sd", "rate_q05", "rate_q95"),
    *(f"{name}_{limit}" for name in ("demand", "lost") for limit in _LIMITS),
)


def returns_totals(source: RunSource) -> pd.DataFrame:
    """Return ``totals.parquet`` of the run of returns; no rows if there is none."""
    if source.returns is None:
        return source.totals.iloc[:0]
    with reading(str(source.returns)):
        return read_parquet(source.returns / "totals.parquet")


def returned_rates(source: RunSource) -> str | None:
    """Make a view of the estimated returns by bin, as ``demand`` is of pickups; return its name, None without them."""
    if source.returns is None:
        return None
    quoted = path_literal(str(source.returns / "demand.parquet"))
    source.connection.execute(f"CREATE OR REPLACE VIEW returned_bins AS SELECT * FROM {parquet_sql(quoted)}")
    return "returned_bins"


def riders_without_dock(source: RunSource) -> float | None:
    """Return how many riders probably found no free dock where they wanted to return; None if not estimated."""
    totals = returns_totals(source)
    found = totals[(totals["level"] == "system") & totals["quantity"].isin(["lost", "walked_on"])]
    return None if found.empty else float(found["mean"].sum())


def with_returns(source: RunSource, table: pd.DataFrame, level: str, key: Sequence[str]) -> pd.DataFrame:
    """Return a table with columns of returns.

    Parameters
    ----------
    source : RunSource
        The run.
    table : pandas.DataFrame
        One row for each value of `key`.
    level : str
        Rows of ``totals.parquet`` that belong to it.
    key : sequence of str
        Columns of `table` that name a row; the first one is the ``zone`` of the totals.
    """
    if source.returns is None:
        return table
    totals = returns_totals(source).rename(columns={"zone": key[0]})
    rows = totals[(totals["level"] == level) & totals["quantity"].isin(_QUANTITIES)]
    found = table[list(key)].copy()
    for quantity in _QUANTITIES:
        own = rows[rows["quantity"] == quantity].set_index(list(key))
        for limit in ("mean",) if quantity == "observed" else _LIMITS:
            name = quantity if quantity == "observed" else f"{quantity}_{limit}"
            found = found.join(own[limit].rename(f"{PREFIX}{name}"), on=list(key))
    return table.join(found.drop(columns=list(key)))


def with_rows_of_returns(source: RunSource, totals: pd.DataFrame) -> pd.DataFrame:
    """Return totals followed by those of returns, whose quantities have the prefix."""
    if source.returns is None:
        return totals
    return pd.concat([totals, _prefixed(returns_totals(source))], ignore_index=True)


def with_weeks_of_returns(source: RunSource, weeks: pd.DataFrame) -> pd.DataFrame:
    """Return rows of weeks followed by those of returns, whose quantities have the prefix."""
    if source.returns is None:
        return weeks
    of_returns = week_rows(read_weeks(replace(source, folder=source.returns)))  # its bins are the same
    return pd.concat([weeks, _prefixed(of_returns)], ignore_index=True)


def of_bins(source: RunSource) -> list[str]:
    """Make the view `RETURNED` of the bins of returns; return its columns, without zone and start; none if missing."""
    if source.returns is None:
        return []
    columns = ", ".join(f"{name} AS {PREFIX}{name}" for name in _OF_BINS)
    with reading(str(source.returns)):
        quoted = path_literal(str(source.returns / "demand.parquet"))
        source.connection.execute(
            f"CREATE OR REPLACE VIEW {RETURNED} AS SELECT zone, start, {columns} FROM {parquet_sql(quoted)}"
        )
    return [f"{PREFIX}{name}" for name in _OF_BINS]


def _prefixed(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(quantity=PREFIX + rows["quantity"].astype("str"))
