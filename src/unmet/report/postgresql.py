"""Tables of a report in a PostgreSQL database.

Rows are sent by ``COPY`` (psycopg 3, the driver that PostgreSQL's own site lists first for Python) as CSV that DuckDB
writes: neither side parses a row in Python. No message contains the password of an address.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import duckdb

from unmet._exceptions import InputError, MissingExtraError
from unmet._storage.sql import identifier, literal
from unmet.report.databases import RUN, check_types, plain_columns

if TYPE_CHECKING:
    import psycopg

__all__ = ["hide_secrets", "write_to_postgresql"]

# DuckDB's types by PostgreSQL's names, as information_schema has them.
_TYPES = {
    "BOOLEAN": "boolean",
    "BIGINT": "bigint",
    "DOUBLE": "double precision",
    "VARCHAR": "text",
    "DATE": "date",
    "TIMESTAMP": "timestamp without time zone",
    "TIMESTAMP WITH TIME ZONE": "timestamp with time zone",
}
_BLOCK = 1 << 20
_SECRET = ("password", "sslpassword")
_TIMEOUT = 10  # seconds to connect


def hide_secrets(url: str) -> str:
    """Give an address without user, password and options.

    Examples
    --------
    >>> hide_secrets("postgresql://me:secret@db.example.org:5433/city?sslmode=require")
    'postgresql://db.example.org:5433/city'
    """
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0].partition('#')[0]}"


def write_to_postgresql(
    connection: duckdb.DuckDBPyConnection,
    tables: Mapping[str, str],
    url: str,
    schema: str,
    run: str,
    progress: Callable[[str], None],
) -> dict[str, int]:
    """Replace the rows of a run in a PostgreSQL database, in one transaction.

    Readers see the earlier rows until the transaction ends; views and permissions stay. Parameters are those of
    `unmet.report.databases.write_to_duckdb`, and `url` for the database.
    """
    secrets = _secrets(url)
    with _explained(url, secrets), _connected(url) as server, tempfile.TemporaryDirectory(prefix="unmet-") as folder:
        cursor = server.cursor()
        # Two exports into the same schema wait for each other.
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", ["unmet." + schema])
        _execute(cursor, f"CREATE SCHEMA IF NOT EXISTS {identifier(schema)}")
        rows = {}
        for name, sql in tables.items():
            progress(name)
            query, types = plain_columns(connection, sql, run)
            path = Path(folder, "table.csv")
            connection.execute(f"COPY ({query}) TO {literal(str(path))} (FORMAT csv, HEADER false)")
            _prepare(cursor, schema, name, {column: _TYPES[type_] for column, type_ in types.items()})
            rows[name] = _replace(cursor, f"{identifier(schema)}.{identifier(name)}", list(types), run, path)
        return rows


def _secrets(url: str) -> list[str]:
    """Give the passwords of an address. Refuse one in which a password could be taken for something else."""
    try:
        parts = urlsplit(url)
        _ = parts.port
        query = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    except ValueError:
        query, parts = None, None
    if query is None or parts is None or url.count("@") > 1 or "@" in parts.path + parts.query or parts.fragment:
        # Not the address: in a part of it that cannot be read, a password may be anywhere.
        raise InputError(
            "--to postgresql://…: the address cannot be read. Expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE, "
            "with signs such as @ / ? # of the password percent-encoded (@ is %40). Or leave the password out and "
            "set PGPASSWORD, or put it in ~/.pgpass."
        ) from None
    given = [parts.password, *(query.get(name) for name in _SECRET)]
    return [form for secret in given if secret for form in {secret, unquote(secret)}]


@contextmanager
def _connected(url: str) -> Iterator[psycopg.Connection[Any]]:
    """Connect; commit at the end, or roll back after an error."""
    try:
        import psycopg
    except ImportError as error:
        raise MissingExtraError("psycopg", "postgresql", "Exports to PostgreSQL") from error
    timeout = {} if "connect_timeout" in url else {"connect_timeout": _TIMEOUT}
    with psycopg.connect(url, application_name="unmet", **timeout) as server:  # type: ignore[arg-type]
        yield server


@contextmanager
def _explained(url: str, secrets: list[str]) -> Iterator[None]:
    """Turn errors of the server into an `InputError` without secrets."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith("psycopg"):
            raise
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        told = " ".join(lines) if lines else type(error).__name__
        if any(secret in told for secret in secrets):
            told = "the server's message contains the password and is not shown"
        raise InputError(f"{hide_secrets(url)}: {told}. Existing tables are unchanged.") from None


def _execute(cursor: psycopg.Cursor[Any], sql: str) -> None:
    cursor.execute(sql.encode())  # as bytes: names are quoted by `identifier`, nothing else is put in


def _prepare(cursor: psycopg.Cursor[Any], schema: str, name: str, types: Mapping[str, str]) -> None:
    """Make the table, or add the columns that it lacks."""
    target = f"{identifier(schema)}.{identifier(name)}"
    columns = ", ".join(f"{identifier(column)} {type_}" for column, type_ in types.items())
    _execute(cursor, f"CREATE TABLE IF NOT EXISTS {target} ({columns})")
    cursor.execute(
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
        [schema, name],
    )
    found = {str(column): str(type_) for column, type_ in cursor.fetchall()}
    for column in check_types(name, types, found):
        _execute(cursor, f"ALTER TABLE {target} ADD COLUMN {identifier(column)} {types[column]}")


def _replace(cursor: psycopg.Cursor[Any], target: str, columns: list[str], run: str, path: Path) -> int:
    cursor.execute(f"DELETE FROM {target} WHERE {RUN} = %s".encode(), [run])
    named = ", ".join(identifier(column) for column in columns)
    with cursor.copy(f"COPY {target} ({named}) FROM STDIN (FORMAT csv)".encode()) as copy, path.open("rb") as file:
        while block := file.read(_BLOCK):
            copy.write(block)
    return cursor.rowcount
