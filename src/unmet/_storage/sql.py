"""Small helpers around DuckDB: opening it, quoting, and errors that name the file.

Names and values from files never become SQL: identifiers are quoted, values are bound, and the few places
where a value must stand in the text of a view (a path) go through `literal`.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from unmet._exceptions import FileFormatError, InputError
from unmet._storage.writing import system_reason

__all__ = [
    "INDEX_COLUMNS",
    "MOMENTS",
    "connect",
    "fetch_all",
    "fetch_frame",
    "fetch_one",
    "identifier",
    "literal",
    "one_thread",
    "parquet_rows",
    "parquet_sql",
    "path_literal",
    "reading",
    "register",
]

_NANOSECONDS = "TIMESTAMPTZ_NS"
MOMENTS = ("TIMESTAMP WITH TIME ZONE", _NANOSECONDS)
"""Types of moments: in microseconds, and in nanoseconds, as pandas may write them."""

INDEX_COLUMNS = re.compile(r"__index_level_\d+__")
"""Names under which pandas stores the index of a frame in a Parquet file: row numbers, not data."""


def connect(
    database: str | PathLike[str] | None = None,
    *,
    threads: int | None = None,
    memory: int | None = None,
    temp_folder: Path | None = None,
) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB database. Every part of the package opens its databases here.

    Times are UTC, no progress bar is drawn, and DuckDB never loads an extension from the network.

    Parameters
    ----------
    database : path, optional
        File of the database. In memory if None.
    threads : int, optional
        Number of threads. One per processor if None.
    memory : int, optional
        Memory limit in bytes. DuckDB's own limit if None.
    temp_folder : Path, optional
        Folder for data that does not fit into memory. DuckDB's own choice if None.

    Examples
    --------
    >>> with connect(threads=1) as connection:
    ...     fetch_one(connection, "SELECT current_setting('TimeZone'), current_setting('threads')")
    ('UTC', 1)
    """
    config: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    if threads is not None:
        config["threads"] = threads
    if memory is not None:
        config["memory_limit"] = f"{memory}B"
    if temp_folder is not None:
        config["temp_directory"] = str(temp_folder)
    connection = duckdb.connect(":memory:" if database is None else str(database), config=config)
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_progress_bar = false")
    return connection


@contextmanager
def one_thread(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Let DuckDB use one thread for a while, so that it writes equal rows as equal bytes.

    Examples
    --------
    >>> with connect(threads=3) as connection:
    ...     with one_thread(connection):
    ...         fetch_one(connection, "SELECT current_setting('threads')")
    ...     fetch_one(connection, "SELECT current_setting('threads')")
    (1,)
    (3,)
    """
    (threads,) = fetch_one(connection, "SELECT current_setting('threads')")
    connection.execute("SET threads = 1")
    try:
        yield
    finally:
        connection.execute(f"SET threads = {int(threads)}")


def fetch_all(connection: duckdb.DuckDBPyConnection, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    """Run a query and fetch all of its rows, which leaves the connection free for others."""
    return connection.execute(sql, list(values)).fetchall()


def fetch_one(connection: duckdb.DuckDBPyConnection, sql: str, values: Sequence[object] = ()) -> tuple[Any, ...]:
    """Run a query that has one row."""
    (row,) = fetch_all(connection, sql, values)
    return row


def fetch_frame(connection: duckdb.DuckDBPyConnection, sql: str, values: Sequence[object] = ()) -> pd.DataFrame:
    """Run a query and fetch a frame; moments are in UTC.

    DuckDB converts moments with a deprecated call of pandas; their zone is put on here instead.
    """
    described = fetch_all(connection, f"DESCRIBE {sql}", values)
    moments = [row[0] for row in described if row[1] in MOMENTS]
    if moments:
        changed = ", ".join(f"{identifier(c)} AT TIME ZONE 'UTC' AS {identifier(c)}" for c in moments)
        sql = f"SELECT * REPLACE ({changed}) FROM ({sql})"
    frame = connection.execute(sql, list(values)).df()
    for name in moments:
        frame[name] = frame[name].dt.tz_localize("UTC")
    return frame


def parquet_sql(file: str) -> str:
    """Return SQL that reads a Parquet file (a quoted path), and takes no column from the names of its folders.

    Examples
    --------
    >>> parquet_sql(path_literal("day=1/a.parquet"))
    "read_parquet('day=1/a.parquet', hive_partitioning=false)"
    """
    return f"read_parquet({file}, hive_partitioning=false)"


def parquet_rows(connection: duckdb.DuckDBPyConnection, file: str) -> str:
    """Return a query of a Parquet file (a quoted path) with all moments in microseconds, which more functions take."""
    source = f"FROM {parquet_sql(file)}"
    precise = [row[0] for row in fetch_all(connection, f"DESCRIBE SELECT * {source}") if row[1] == _NANOSECONDS]
    changed = ", ".join(f"{identifier(name)}::TIMESTAMPTZ AS {identifier(name)}" for name in precise)
    return f"SELECT * REPLACE ({changed}) {source}" if precise else f"SELECT * {source}"


def register(connection: duckdb.DuckDBPyConnection, name: str, frame: Any) -> None:
    """Let SQL see a frame. DuckDB cannot read one whose columns run backwards in memory: that is copied first."""
    try:
        connection.register(name, frame)
    except duckdb.Error:
        if not isinstance(frame, pd.DataFrame) or not frame.columns.is_unique:
            raise
        connection.register(name, pd.DataFrame({column: frame[column].array.copy() for column in frame.columns}))


def identifier(name: str) -> str:
    """Quote a name for SQL.

    Examples
    --------
    >>> print(identifier('an "odd" name'))
    "an ""odd"" name"
    """
    return '"' + name.replace('"', '""') + '"'


def literal(value: str) -> str:
    """Quote a string for SQL; DuckDB's plain string literals know no escape but the doubled quote.

    Examples
    --------
    >>> print(literal("Schindler's"))
    'Schindler''s'
    """
    if "\0" in value:
        raise InputError(f"a name with a NUL character cannot be read: {value!r}")
    return "'" + value.replace("'", "''") + "'"


def path_literal(path: str) -> str:
    """Quote a path for SQL, with its ``*?[~`` taken literally: globs and homes are expanded before, not by DuckDB.

    Examples
    --------
    >>> print(path_literal("trips[1].parquet"))
    'trips[[]1].parquet'
    """
    path = f"./{path}" if path.startswith("~") else path
    return literal("".join(f"[{c}]" if c in "*?[" else c for c in path))


@contextmanager
def reading(label: str) -> Iterator[None]:
    """Turn DuckDB's errors into a `FileFormatError` that names what was being read.

    DuckDB's own words are about its insides. They stay in the cause of the error, which ``--debug`` shows.
    """
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise InputError(
            f"{label}: the memory limit is too small for this step; raise it (memory=, --memory)."
        ) from error
    except (duckdb.TransactionException, duckdb.FatalException) as error:
        raise InputError(
            f"{label}: temporary files could not be written to {tempfile.gettempdir()} while it was read: "
            f"{system_reason(error)}. Free some space, or set TMPDIR to another disk."
        ) from error
    except duckdb.Error as error:
        told = str(error).partition("\n\nLINE ")[0]
        denied = [reason for reason in map(os.strerror, (errno.EACCES, errno.EIO)) if told.endswith(f": {reason}")]
        if denied:
            raise FileFormatError(
                f"{label}: cannot be read: {denied[0]}. Check the permissions of the file and its disk."
            ) from error
        raise FileFormatError(
            f"{label}: cannot be read: the file is damaged or incomplete, or its name has the wrong ending. Copy or "
            "export it again. (--debug shows the details.)"
        ) from error
    except UnicodeError as error:
        raise FileFormatError(f"{label}: contains text that is not UTF-8. Export it again as UTF-8.") from error
