"""Parquet files as data frames, by DuckDB."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from unmet._storage.sql import connect, fetch_frame, literal, parquet_sql, path_literal, register

__all__ = ["read_parquet", "write_parquet"]


def read_parquet(path: Path) -> pd.DataFrame:
    """Read a Parquet file; times with a zone are in UTC."""
    with connect() as connection:
        return fetch_frame(connection, f"SELECT * FROM {parquet_sql(path_literal(str(path)))}")


def write_parquet(frame: pd.DataFrame, path: Path) -> None:
    """Write a frame; equal frames give equal bytes."""
    with connect(threads=1) as connection:  # one thread writes the same bytes every time
        register(connection, "some_rows", frame)
        connection.execute(f"COPY (SELECT * FROM some_rows) TO {literal(str(path))} (FORMAT parquet, COMPRESSION zstd)")
