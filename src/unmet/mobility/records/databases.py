"""Records in a DuckDB file: a table or a query, copied into a Parquet file of the workspace.

========================================= ==============================================================
address                                   rows
========================================= ==============================================================
``duckdb://city.duckdb``                  the table named as the source: ``trips``, ``status`` or ``stations``
``duckdb://city.duckdb?table=rides``      a table or view; ``raw.rides`` for that of a schema
``duckdb://city.duckdb#SELECT * FROM …``  a query
========================================= ==============================================================

The file may come from strangers. It is opened read-only, by a DuckDB that loads no extension, opens no other file or
address on the network, and takes no settings: a view in the file reads the file's own tables or fails. A view or query
without end is stopped after ten minutes, or when its rows take twenty times the space of the file and a gigabyte.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import fspath
from pathlib import Path
from urllib.parse import unquote

import duckdb

from unmet._exceptions import FileFormatError, InputError
from unmet._storage.sql import identifier, literal
from unmet.mobility.records.files import Given, Workspace, is_frame

__all__ = ["SCHEME", "copied", "database_file", "is_address"]

SCHEME = "duckdb://"
_MOST_SECONDS, _MOST_TIMES, _MOST_MORE = 600, 20, 10**9  # time; bytes: so many times the file's, and so many more
_BETWEEN = 0.2  # seconds between two looks


def is_address(item: object) -> bool:
    """Return whether an item is the address of a table in a database."""
    return isinstance(item, str) and item.startswith(SCHEME)


def database_file(address: str) -> Path:
    """Give the path of the file in an address.

    Examples
    --------
    >>> database_file("duckdb://city.duckdb?table=trips").name
    'city.duckdb'
    """
    path, _, _ = address.removeprefix(SCHEME).partition("#")
    return Path(os.path.expanduser(path.partition("?")[0]))


def copied(workspace: Workspace, given: Given, source: str) -> Given:
    """Replace the addresses of tables by Parquet files with their rows; leave all else as it is."""
    if given is None or is_frame(given):
        return given
    items = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    if not any(is_address(item) for item in items):
        return given  # what is no source is refused where files are opened
    return [_copy(workspace, str(fspath(item)), source) if is_address(item) else item for item in items]


def _copy(workspace: Workspace, address: str, source: str) -> Path:
    path, query = database_file(address), _query(address, source)
    if not path.is_file():
        raise FileFormatError(f"{path}: no such DuckDB file for {source}.")
    if not os.access(path, os.R_OK):
        raise FileFormatError(f"{path}: cannot be read: permission denied. Check the permissions of the file.")
    # A folder of its own: the database may read what is in it.
    folder = workspace.folder / workspace.name("database")
    folder.mkdir()
    rows = folder / f"{source}.parquet"
    try:
        with _locked(path, folder, workspace.memory) as connection, _ending(connection, rows, path):
            connection.execute(f"COPY ({_one_select(connection, query)}\n) TO {literal(str(rows))} (FORMAT parquet)")
    except duckdb.Error as error:
        raise InputError(f"{path}: {_explain(error)} The query for {source} was: {query}") from error
    return rows


def _query(address: str, source: str) -> str:
    rest, sign, query = address.removeprefix(SCHEME).partition("#")
    if sign:
        return query.strip()
    _, sign, options = rest.partition("?")
    option, _, name = options.partition("=") if sign else ("table", "", source)
    if option != "table" or not name:
        raise InputError(f"{address}: expected {SCHEME}FILE?table=NAME or {SCHEME}FILE#SELECT …")
    # One option, so that all behind it is the name, with & and + as they are.
    return f"SELECT * FROM {'.'.join(identifier(part) for part in unquote(name).split('.'))}"


def _locked(path: Path, folder: Path, memory: int) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(
        str(path),
        read_only=True,
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "memory_limit": f"{memory}B",
            "temp_directory": str(folder / "spill"),
        },
    )
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_progress_bar = false")
    connection.execute(f"SET allowed_directories = [{literal(str(folder))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


@contextmanager
def _ending(connection: duckdb.DuckDBPyConnection, rows: Path, path: Path) -> Iterator[None]:
    """Stop a query that does not end, or that writes without end."""
    done = threading.Event()
    most_bytes, until = _MOST_TIMES * path.stat().st_size + _MOST_MORE, time.monotonic() + _MOST_SECONDS

    def watch() -> None:
        while not done.wait(_BETWEEN):
            if time.monotonic() > until or (rows.exists() and rows.stat().st_size > most_bytes):
                connection.interrupt()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _one_select(connection: duckdb.DuckDBPyConnection, query: str) -> str:
    statements = connection.extract_statements(query)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise InputError(f"expected one SELECT statement; got: {query}")
    return statements[0].query.strip().rstrip(";")


def _explain(error: duckdb.Error) -> str:
    if isinstance(error, duckdb.PermissionException):
        return (
            "the query or a view of the file reads other files or settings, which is not allowed. Export the rows as "
            "a table."
        )
    if isinstance(error, duckdb.InterruptException):
        return (
            f"the query was stopped: it took more than {_MOST_SECONDS} seconds, or its rows took more than "
            f"{_MOST_TIMES} times the space of the file. Export the rows as a table."
        )
    if isinstance(error, duckdb.OutOfMemoryException):
        return "the query or a view of the file needs more memory than is allowed. Raise --memory, or export the rows."
    if isinstance(error, duckdb.CatalogException | duckdb.BinderException | duckdb.ParserException):
        return f"{str(error).splitlines()[0].rstrip('.!')}."
    return "cannot be read as a DuckDB file: another program has it open for writing, or it is another kind of file."
