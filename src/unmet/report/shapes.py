"""Rows that the tables of a run must have, once each: a run that is read without its checksums may have others."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pandas as pd

from unmet._exceptions import FileFormatError
from unmet._storage.sql import fetch_frame, parquet_sql, path_literal, reading
from unmet.mobility.clock.bins import HOURS_OF_WEEK
from unmet.mobility.runs.totals import QUANTITIES

__all__ = ["check_rows"]

_KEY = ("level", "zone", "hour_of_week", "days", "part", "quantity")
_AGAIN = "The file was damaged or changed. Run the estimate again."


def check_rows(
    connection: duckdb.DuckDBPyConnection, folder: Path, zones: pd.DataFrame, totals: pd.DataFrame, bins: int
) -> None:
    """Raise `FileFormatError` if rows of a run's tables are missing or occur twice.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
        Counts the rows of ``demand.parquet``.
    folder : Path
        The folder of the run.
    zones, totals : pandas.DataFrame
        ``zones.parquet`` and ``totals.parquet``.
    bins : int
        Number of bins, with those ahead.
    """
    _check_zones(zones)
    _check_totals(totals)
    _check_demand(connection, folder / "demand.parquet", zones, bins)


def _check_zones(zones: pd.DataFrame) -> None:
    missing = [name for name in ("zone", "status") if name not in zones]
    if missing:
        raise FileFormatError(f"zones.parquet: there is no column {', '.join(map(repr, missing))}. {_AGAIN}")
    twice = zones["zone"][zones["zone"].duplicated()]
    if len(twice):
        raise FileFormatError(f"zones.parquet: expected one row per zone; {twice.iloc[0]!r} has several. {_AGAIN}")


def _check_totals(totals: pd.DataFrame) -> None:
    missing = [name for name in ("level", "zone", "hour_of_week", "quantity", "mean") if name not in totals]
    if missing:
        raise FileFormatError(f"totals.parquet: there is no column {', '.join(map(repr, missing))}. {_AGAIN}")
    key = [name for name in _KEY if name in totals]
    twice = totals.loc[totals.duplicated(key), key]
    if len(twice):
        row = ", ".join(str(value) for value in twice.iloc[0].dropna())
        raise FileFormatError(f"totals.parquet: expected each total once; {row} has several rows. {_AGAIN}")
    found = set(totals.loc[totals["level"] == "system", "quantity"])
    lacking = [name for name in QUANTITIES if name not in found]
    if lacking:
        raise FileFormatError(f"totals.parquet: there is no row of the system for {', '.join(lacking)}. {_AGAIN}")
    hours = pd.to_numeric(totals["hour_of_week"], errors="coerce")
    odd = totals["hour_of_week"][totals["hour_of_week"].notna() & ~hours.isin(range(HOURS_OF_WEEK))]
    if len(odd):
        raise FileFormatError(
            f"totals.parquet: hour_of_week should be 0 to {HOURS_OF_WEEK - 1}, is {odd.iloc[0]}. {_AGAIN}"
        )


def _check_demand(connection: duckdb.DuckDBPyConnection, path: Path, zones: pd.DataFrame, bins: int) -> None:
    table = parquet_sql(path_literal(str(path)))
    with reading(str(path)):
        found = fetch_frame(connection, f"SELECT zone, count(*) AS rows FROM {table} GROUP BY zone")
    rows = dict(zip(found["zone"], found["rows"], strict=True))
    for zone in zones.loc[zones["status"] == "ok", "zone"]:
        if rows.get(zone, 0) != bins:
            raise FileFormatError(
                f"demand.parquet: expected {bins:,} rows of zone {zone!r}, one per bin; found {rows.get(zone, 0):,}. "
                f"{_AGAIN}"
            )
