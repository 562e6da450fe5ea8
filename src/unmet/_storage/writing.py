"""Writing of files: errors that name what remains, and Parquet files with reproducible bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pandas as pd

from unmet._exceptions import InputError
from unmet._storage.sql import literal

__all__ = ["write_parquet", "writing"]


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Turn a failure to write - no permission, no space - into an error that says what remains."""
    try:
        yield
    except (OSError, duckdb.IOException) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(
            f"{out}: cannot be written to: {reason}. Results that were there are as they were, finished zones are "
            "kept: make room or name another folder, and run the same command again."
        ) from error


def write_parquet(frame: pd.DataFrame, path: Path) -> None:
    """Write a frame; equal frames give equal bytes."""
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")  # one thread writes the same bytes every time
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("some_rows", frame)
        connection.execute(f"COPY (SELECT * FROM some_rows) TO {literal(str(path))} (FORMAT parquet, COMPRESSION zstd)")
