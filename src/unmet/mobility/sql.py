"""Small helpers around DuckDB: quoting, and errors that name the file.

Names and values from files never become SQL: identifiers are quoted, values are bound, and the few places
where a value must stand in the text of a view (a path) go through `literal`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb

from unmet._exceptions import FileFormatError, InputError

__all__ = ["fetch_all", "fetch_one", "identifier", "literal", "path_literal", "reading"]


def fetch_all(connection: duckdb.DuckDBPyConnection, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    """Run a query and fetch all of its rows, which leaves the connection free for others."""
    return connection.execute(sql, list(values)).fetchall()


def fetch_one(connection: duckdb.DuckDBPyConnection, sql: str, values: Sequence[object] = ()) -> tuple[Any, ...]:
    """Run a query that has one row."""
    (row,) = fetch_all(connection, sql, values)
    return row


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
    """Quote a path for SQL, with its ``*?[`` taken literally: globs are expanded before, not by DuckDB.

    Examples
    --------
    >>> print(path_literal("trips[1].parquet"))
    'trips[[]1].parquet'
    """
    return literal("".join(f"[{c}]" if c in "*?[" else c for c in path))


@contextmanager
def reading(label: str) -> Iterator[None]:
    """Turn DuckDB's errors into a `FileFormatError` that names what was being read."""
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise InputError(
            f"{label}: the memory limit is too small for this step; raise it (memory=, --memory). "
            f"DuckDB said: {_first_line(error)}"
        ) from error
    except duckdb.Error as error:
        raise FileFormatError(f"{label}: cannot be read. DuckDB said: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]
