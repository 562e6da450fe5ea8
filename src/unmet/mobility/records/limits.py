"""Limits on tables that are checked before a table is read: columns, rows that a file promises, and covariates.

A small file can promise so many columns or equal rows that reading it takes gigabytes or minutes. Its header or its
metadata show that at once.
"""

from __future__ import annotations

import duckdb

from unmet._exceptions import FileFormatError, InputError
from unmet._storage.sql import fetch_one, reading

__all__ = ["MOST_COLUMNS", "MOST_COVARIATES", "check_columns", "check_covariates", "check_parquet"]

MOST_COLUMNS = 2_000
"""Largest number of columns of a table."""
MOST_COVARIATES = 50
"""Largest number of columns, of the weather or of a panel, that explain demand."""
# Most rows of Parquet files that have more rows than this for each byte. Times of records differ: usual files have less
# than one row per byte. Looks in each minute of a year at quiet stations, with ten changes a day, have 25 to 47 in the
# best encoding. Ten million equal rows are read in seconds.
_MOST_DENSE, _DENSE = 10_000_000, 50


def check_columns(number: int, label: str) -> None:
    """Refuse a table with too many columns.

    Examples
    --------
    >>> check_columns(12, "trips.csv")
    """
    if number > MOST_COLUMNS:
        raise FileFormatError(
            f"{label}: it has {number:,} columns; expected at most {MOST_COLUMNS:,}. Leave out those that are "
            "not needed."
        )


def check_covariates(number: int, label: str, remedy: str) -> None:
    """Refuse more covariates than a model should have; `remedy` says how to give fewer.

    Examples
    --------
    >>> check_covariates(3, "weather.csv", "Remove some.")
    """
    if number > MOST_COVARIATES:
        raise InputError(
            f"{label}: {number:,} columns of numbers would explain demand; expected at most {MOST_COVARIATES}. {remedy}"
        )


def check_parquet(connection: duckdb.DuckDBPyConnection, file: str, label: str, dense: int = 0) -> int:
    """Refuse a Parquet file with too many columns, or that promises far more rows than its bytes can hold.

    Parameters
    ----------
    connection : DuckDBPyConnection
        Any database.
    file : str
        The quoted path.
    label : str
        Name in messages.
    dense : int
        What earlier files of the source have given: many such files are as costly as one.

    Returns
    -------
    int
        Number of rows in files with hardly any bytes for each, with those of earlier files.
    """
    with reading(label):
        columns = fetch_one(
            connection, f"SELECT count(*) FILTER (coalesce(num_children, 0) = 0) FROM parquet_schema({file})"
        )[0]
        check_columns(columns, label)  # first: the metadata of rows are as large as there are columns
        # The row groups are what is read; the number of rows of the whole file may contradict them.
        rows, size = fetch_one(
            connection,
            f"""SELECT coalesce(sum(row_group_num_rows), 0)::BIGINT,
                (SELECT any_value(file_size_bytes) FROM parquet_file_metadata({file}))
            FROM parquet_metadata({file}) WHERE column_id = 0""",
        )
    if rows <= _DENSE * size:
        return dense
    if dense + rows > _MOST_DENSE:
        raise FileFormatError(
            f"{label}: it promises {rows:,} rows in {size:,} bytes; expected at most {_DENSE} rows for each byte, as "
            "times of records differ. It seems to be made to unpack without end. If its rows are right, give only "
            "those in which something changes."
        )
    return dense + int(rows)
