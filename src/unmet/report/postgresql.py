"""Tables of a report in a PostgreSQL database.

Rows are sent by a binary ``COPY`` of Apache Arrow's driver (ADBC): neither side parses text or handles a row in Python.
No message contains the password of an address.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from unmet._exceptions import InputError, MissingExtraError
from unmet._storage.sql import identifier
from unmet.report.databases import RUN, RunTables, check_types

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


def write_to_postgresql(tables: RunTables, url: str) -> dict[str, int]:
    """Replace the rows of a run in a PostgreSQL database, in one transaction; return the number of rows by table.

    Readers see the earlier rows until the transaction ends; views and permissions stay.
    """
    schema = tables.schema
    with _explained(url, _secrets(url)), _connected(url) as server, server.cursor() as cursor:
        # Two exports into the same schema wait for each other.
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext($1))", [f"unmet.{schema}"])
        cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {identifier(schema)}")
        rows = {}
        for name, query, types in tables:
            _prepare(cursor, schema, name, {column: _TYPES[type_] for column, type_ in types.items()})
            cursor.execute(f"DELETE FROM {identifier(schema)}.{identifier(name)} WHERE {RUN} = $1", [tables.run])
            rows[name] = cursor.adbc_ingest(name, tables.connection.sql(query), mode="append", db_schema_name=schema)
        server.commit()
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
def _connected(url: str) -> Iterator[Any]:
    """Connect, with a transaction that is rolled back unless it is committed."""
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError as error:
        raise MissingExtraError("adbc-driver-postgresql", "postgresql", "Exports to PostgreSQL") from error
    if "connect_timeout=" not in url:
        url += f"{'&' if '?' in url else '?'}connect_timeout={_TIMEOUT}"
    with dbapi.connect(url) as server:
        yield server


@contextmanager
def _explained(url: str, secrets: list[str]) -> Iterator[None]:
    """Turn errors of the server into an `InputError` without secrets."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith("adbc"):
            raise
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        told = " ".join(lines) if lines else type(error).__name__
        if any(secret in told for secret in secrets):
            told = "the server's message contains the password and is not shown"
        raise InputError(f"{hide_secrets(url)}: {told.rstrip('.')}. Existing tables are unchanged.") from None


def _prepare(cursor: Any, schema: str, name: str, types: Mapping[str, str]) -> None:
    """Make the table, or add the columns that it lacks."""
    target = f"{identifier(schema)}.{identifier(name)}"
    columns = ", ".join(f"{identifier(column)} {type_}" for column, type_ in types.items())
    cursor.execute(f"CREATE TABLE IF NOT EXISTS {target} ({columns})")
    cursor.execute(
        "SELECT column_name::text, data_type::text FROM information_schema.columns "
        "WHERE table_schema = $1 AND table_name = $2",
        [schema, name],
    )
    found = {str(column): str(type_) for column, type_ in cursor.fetchall()}
    for column in check_types(name, types, found):
        cursor.execute(f"ALTER TABLE {target} ADD COLUMN {identifier(column)} {types[column]}")
